//! The connections of one worker to one endpoint: idle HTTP/1 connections, the most recently used first, or shared
//! HTTP/2 connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{ConnectError, H1Connection, in_time};
use super::permit::ConnectionPermit;
use super::pinned::PinnedConnections;
use super::queue::{Queue, WorkerNotify};
use super::stream::EndpointStream;
use crate::transport::net::Protocol;
use crate::transport::net::buffer::BufferPool;
use crate::transport::net::tls::ClientTls;
use crate::transport::upstream::h2::set::H2Connections;
use crate::transport::upstream::settings::{Cap, Endpoint};
use crate::transport::upstream::state::EndpointState;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) spec: PoolSpec,
    /// What all workers know of the endpoint.
    pub(crate) state: Arc<EndpointState>,
    /// Requests that wait for a connection to the upstream.
    queue: Arc<Queue>,
    worker: WorkerNotify,
    #[allow(clippy::vec_box)] // boxed once; moved in and out on every request
    idle: RefCell<Vec<Box<H1Connection>>>,
    /// Connections that wait for the next request of their client's connection.
    pub(super) pinned: PinnedConnections,
    /// Empty unless the endpoint speaks HTTP/2; `idle` is empty if it does.
    pub(crate) h2: H2Connections,
    /// The number of sweeps so far.
    sweeps: Cell<u64>,
    /// It is swept no more, so it keeps no connections.
    is_closed: Cell<bool>,
    buffers: Rc<BufferPool>,
}

/// The settings of a pool. A reload keeps a pool whose settings stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolSpec {
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) protocol: Protocol,
    pub(crate) max_idle: Option<usize>,
    pub(crate) idle_timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

/// The time between two sweeps: an idle connection may stay this much longer than `idle_timeout`.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Pool {
    /// An empty pool.
    pub(crate) fn new(
        spec: PoolSpec,
        state: Arc<EndpointState>,
        queue: Arc<Queue>,
        worker: WorkerNotify,
        buffers: Rc<BufferPool>,
    ) -> Self {
        let (idle, sweeps, is_closed) = (RefCell::default(), Cell::new(0), Cell::new(false));
        let (pinned, h2) = (PinnedConnections::default(), H2Connections::default());
        Self { spec, state, queue, worker, idle, pinned, h2, sweeps, is_closed, buffers }
    }

    /// The buffers of the worker's connections.
    pub(crate) fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// Whether requests share its connections.
    pub(crate) fn is_shared(&self) -> bool {
        self.spec.protocol == Protocol::H2
    }

    /// Takes an idle connection that the service had not closed a moment ago.
    pub(crate) fn take(&self) -> Option<Box<H1Connection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if connection.is_reusable() {
                return Some(connection);
            }
        }
        None
    }

    /// Closes one connection for a waiter of another worker: an idle one, or a shared one once its streams have ended.
    /// Returns whether there was any.
    pub(crate) fn close_one(&self) -> bool {
        if self.is_shared() { self.h2.retire_one() } else { self.take().is_some() }
    }

    /// Closes one idle connection for a waiter of another upstream. Returns whether there was any.
    pub(crate) fn close_one_idle(&self) -> bool {
        if self.is_shared() { self.h2.retire_one_idle() } else { self.take().is_some() }
    }

    /// Closes one pinned connection for a waiter. A login needs its connection for the next request, so that one is idle
    /// for a second. Returns whether there was any.
    pub(crate) fn close_one_pinned(&self) -> bool {
        self.pinned.close_one(|since| self.sweeps.get() - since > 1)
    }

    /// Whether the endpoint can take one more request: on an open connection, or on a new one within `cap`.
    pub(crate) fn has_capacity(&self, cap: &Cap) -> bool {
        let has_open = if self.is_shared() { self.h2.has_capacity() } else { !self.idle.borrow().is_empty() };
        has_open || self.state.has_capacity(cap.most())
    }

    /// Whether requests to other upstreams wait until any upstream connection closes.
    pub(crate) fn has_ceiling_waiters(&self) -> bool {
        self.queue.ceiling.has_waiters()
    }

    /// Wakes the first waiter if it is a request of this worker. Returns whether it is; none if there is no first waiter.
    pub(crate) fn wake_waiters(&self) -> Option<bool> {
        let is_of_worker = self.queue.is_front_of(&self.worker);
        if is_of_worker == Some(true) {
            self.queue.wake_front();
        }
        is_of_worker
    }

    /// The number of sweeps so far.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.get()
    }

    /// Notes that a connection becomes idle, and releases its buffers.
    pub(super) fn rest(&self, connection: &mut H1Connection) {
        connection.idle_since = Some(self.sweeps.get());
        connection.input.release(&self.buffers);
        connection.out.release(&self.buffers);
    }

    /// Whether it keeps no connections any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Opens an HTTP/1 connection, which holds `permit` and begins with `preamble`.
    pub(crate) async fn connect(
        &self,
        permit: ConnectionPermit,
        preamble: Option<&[u8]>,
    ) -> Result<Box<H1Connection>, ConnectError> {
        let opening = EndpointStream::open(&self.spec.endpoint, self.state.resolved, self.spec.tls.as_ref(), preamble);
        let stream =
            in_time(opening, self.spec.connect_timeout).await.map_err(|error| error.at(&self.spec.endpoint))?;
        Ok(H1Connection::new(stream, permit))
    }

    /// Takes a connection back. It stays idle in the pool, or closes if it cannot be used again, if `max_idle` are idle,
    /// or if its permit is needed elsewhere.
    pub(crate) fn put(&self, connection: Box<H1Connection>) {
        match self.queue.is_front_of(&self.worker) {
            // Closing it lets a request to another upstream open a connection.
            None if self.has_ceiling_waiters() => drop(connection),
            None => self.put_idle(connection),
            Some(true) => {
                self.put_idle(connection);
                self.queue.wake_front();
            }
            // The first waiter of another worker cannot use it. Closing it frees a permit for that waiter.
            Some(false) => drop(connection),
        }
    }

    fn put_idle(&self, mut connection: Box<H1Connection>) {
        let mut idle = self.idle.borrow_mut();
        let has_capacity = !self.is_closed.get() && self.spec.max_idle.is_none_or(|max_idle| idle.len() < max_idle);
        if has_capacity && connection.is_reusable() {
            self.rest(&mut connection);
            idle.push(connection);
        }
    }

    /// Closes all idle connections, and from now on each connection that is put back.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.close_idle();
    }

    /// Closes all idle connections, and shared ones once their streams have ended.
    fn close_idle(&self) {
        self.idle.borrow_mut().clear();
        self.pinned.close();
        self.h2.retire_all();
    }

    /// Closes connections that have been idle for longer than `idle_timeout`, that the service has closed, or whose endpoint
    /// is drained. To be called every [`SWEEP_EVERY`]; idle time is counted in sweeps, so that putting a connection back
    /// reads no clock.
    pub(crate) fn sweep(&self) {
        let sweeps = self.sweeps.get() + 1;
        self.sweeps.set(sweeps);
        if self.state.is_draining() {
            self.close_idle();
        }
        let max_sweeps = self.spec.idle_timeout.as_millis().div_ceil(SWEEP_EVERY.as_millis());
        let is_fresh = |since: u64| u128::from(sweeps - since) <= max_sweeps;
        let stays = |connection: &mut Box<H1Connection>| {
            connection.idle_since.is_some_and(is_fresh) && connection.is_reusable()
        };
        self.idle.borrow_mut().retain_mut(stays);
        self.pinned.sweep();
        self.h2.sweep(|since| !is_fresh(since));
    }
}
