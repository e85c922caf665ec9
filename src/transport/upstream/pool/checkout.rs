//! A checked-out connection: what the request requires of it, which pool it belongs to, and what it counts as.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::connection::H1Connection;
use super::endpoint_pool::Pool;
use super::permit::ConnectionPermit;
use super::pin::ConnectionPin;
use super::pinned::PinnedConnection;
use super::stream::EndpointStream;
use super::streams::StreamPermit;
use super::usage::ActiveRequest;
use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer};
use crate::transport::net::client_usage::ClientHandle;
use crate::transport::net::duplex::Duplex;

/// What a request requires of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    /// A hash that selects the endpoint if the upstream balances by hash; else 0.
    pub(crate) affinity: u64,
    /// The connection must be new and serve no other request: its PROXY header names one client, or the request may
    /// change its protocol. If this becomes true during the exchange, the connection is not used again.
    pub(crate) is_exclusive: bool,
    /// The PROXY header with which the connection begins, before TLS.
    pub(crate) preamble: Option<Rc<[u8]>>,
    /// The client of the request; none if it is not counted.
    pub(crate) client: Option<Rc<ClientHandle>>,
    /// The connection that is pinned to the client's connection; none if none was ever pinned.
    pub(crate) pin: Option<Rc<ConnectionPin>>,
}

/// The connection or stream on which a request goes out.
#[derive(Debug)]
pub(crate) enum PooledConnection {
    /// A connection that serves one request at a time.
    H1(Box<H1Connection>),
    /// One stream of a shared connection.
    H2(StreamPermit),
}

/// A checked-out connection.
#[derive(Debug)]
pub(crate) struct Checkout {
    pub(crate) connection: PooledConnection,
    pub(crate) handle: PoolHandle,
    /// The request had to wait for the connection.
    pub(crate) was_queued: bool,
    /// The connection is pinned to the client's connection.
    pub(crate) is_pinned: bool,
}

/// The pool of a checked-out connection, and what its request counts as until this is dropped.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    pub(crate) pool: Rc<Pool>,
    /// The index of the pool in its upstream.
    pub(crate) index: usize,
    /// Counts at the endpoint.
    in_flight: InFlight,
    /// Counts at the client and the worker.
    pub(crate) active: Option<ActiveRequest>,
}

impl Checkout {
    /// A connection of `pool`, which is at `index` in its upstream. `is_balanced`: the balancing counts requests.
    pub(crate) fn new(connection: PooledConnection, pool: &Rc<Pool>, index: usize, is_balanced: bool) -> Self {
        let in_flight = InFlight::new(pool, is_balanced);
        let handle = PoolHandle { pool: Rc::clone(pool), index, in_flight, active: None };
        Self { connection, handle, was_queued: false, is_pinned: false }
    }

    /// The pinned connection of the client's connection, which belongs to `pool`, at `index` in its upstream.
    pub(crate) fn pinned(pinned: PinnedConnection, pool: &Rc<Pool>, index: usize, is_balanced: bool) -> Self {
        let PinnedConnection { active, connection } = pinned;
        let mut checkout = Self::new(PooledConnection::H1(connection), pool, index, is_balanced);
        checkout.handle.active = active;
        Self { is_pinned: true, ..checkout }
    }

    /// Keeps the count of its request until the connection is checked in.
    pub(crate) fn counted(mut self, active: ActiveRequest) -> Self {
        self.handle.active = Some(active);
        self
    }

    /// Sets whether the request had to wait for the connection.
    pub(crate) fn queued(self, was_queued: bool) -> Self {
        Self { was_queued, ..self }
    }
}

impl PoolHandle {
    /// The endpoint's host and port, for `Host` where the client's is not passed on.
    pub(crate) fn host(&self) -> &str {
        &self.pool.spec.endpoint.host
    }
}

/// Counts one request at its endpoint until dropped.
#[derive(Debug)]
struct InFlight {
    pool: Rc<Pool>,
    /// The balancing counts it, too.
    is_balanced: bool,
}

impl InFlight {
    fn new(pool: &Rc<Pool>, is_balanced: bool) -> Self {
        pool.state.begin(is_balanced);
        Self { pool: Rc::clone(pool), is_balanced }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pool.state.end(self.is_balanced);
    }
}

/// A connection that has changed from HTTP to another protocol. It never returns to its pool, but counts at its endpoint
/// until it is closed.
#[derive(Debug)]
pub(crate) struct UpgradedConnection {
    _active: Option<ActiveRequest>,
    in_flight: InFlight,
    stream: EndpointStream,
    _permit: ConnectionPermit,
}

impl UpgradedConnection {
    /// The connection as bytes, and the bytes that have already arrived.
    pub(crate) fn new(connection: H1Connection, handle: PoolHandle) -> (Self, InputBuffer) {
        let H1Connection { stream, input, permit, .. } = connection;
        handle.in_flight.pool.state.upgrade();
        (Self { stream, _permit: permit, in_flight: handle.in_flight, _active: handle.active }, input)
    }
}

impl Drop for UpgradedConnection {
    fn drop(&mut self) {
        self.in_flight.pool.state.end_upgrade();
    }
}

impl Duplex for UpgradedConnection {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        let filled = input.poll_fill(cx, &mut self.stream, buffers);
        if filled.is_pending() {
            input.release(buffers);
        }
        filled
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutputBuffer,
        _buffers: &BufferPool,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_send(cx, out)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>, _buffers: &BufferPool) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
