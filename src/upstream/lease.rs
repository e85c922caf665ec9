//! What a request goes out on, in hand: whose it is, and what becomes of it.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::ceiling::InHand;
use super::connection::Connection;
use super::pool::Pool;
use super::queue::Slot;
use super::transport::Transport;
use super::trunk::Seat;
use crate::net::buffer::{Buffer, Buffers, Out};
use crate::net::clients::Entered;
use crate::net::end::End;

/// What a request needs of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// What decides to which endpoint it goes, where anything of it does.
    pub(crate) affinity: u64,
    /// Its connection is a new one, and is used for nothing else: it is marked as that of one client, or may become
    /// something else. A service that was asked to change the protocol may have done so. If this becomes true later, the
    /// connection is not used again.
    pub(crate) is_alone: bool,
    /// What a connection begins with, in the clear, if it is marked.
    pub(crate) preamble: Option<Rc<[u8]>>,
    /// Whose request it is, if requests of that client are counted.
    pub(crate) client: Option<Rc<Entered>>,
}

/// What a request goes out on.
#[derive(Debug)]
pub(super) enum Line {
    /// A connection that it has for itself.
    H1(Box<Connection>),
    /// A stream of one that it shares.
    H2(Seat),
}

/// A line in hand, and where it came from.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(super) line: Line,
    pub(super) origin: Origin,
    /// The request had to wait for it.
    pub(crate) was_queued: bool,
}

/// Whose a line is.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) pool: Rc<Pool>,
    /// The place of the pool among its upstream's.
    pub(super) index: usize,
    /// While it is counted.
    flight: Option<Flight>,
    /// While it is counted at its client.
    pub(super) in_hand: Option<InHand>,
}

impl Lease {
    /// That of a request to the endpoint of `pool`, which stands at `index`.
    pub(super) fn new(line: Line, pool: &Rc<Pool>, index: usize, is_counted: bool) -> Self {
        let flight = is_counted.then(|| Flight::new(pool));
        Self { line, origin: Origin { pool: Rc::clone(pool), index, flight, in_hand: None }, was_queued: false }
    }

    /// Keeps the count of its request until the connection is given back.
    pub(super) fn counted(mut self, in_hand: InHand) -> Self {
        self.origin.in_hand = Some(in_hand);
        self
    }

    /// The same, and whether the request had to wait for it.
    pub(super) fn queued(self, was_queued: bool) -> Self {
        Self { was_queued, ..self }
    }
}

impl Origin {
    /// What the endpoint is called where the client's `Host` is not kept.
    pub(super) fn host(&self) -> &str {
        &self.pool.spec.endpoint.host
    }
}

/// A request that an endpoint has in hand.
#[derive(Debug)]
struct Flight(Rc<Pool>);

impl Flight {
    fn new(pool: &Rc<Pool>) -> Self {
        pool.state.begin();
        Self(Rc::clone(pool))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.state.end();
    }
}

/// A connection that speaks another protocol than HTTP. No pool takes it, but its endpoint still has it in hand.
#[derive(Debug)]
pub(crate) struct SwitchedEnd {
    stream: Transport,
    _slot: Slot,
    _flight: Option<Flight>,
    _in_hand: Option<InHand>,
}

impl SwitchedEnd {
    /// The connection as bytes, and what has come through it already. Its endpoint counts it for as long as it is open.
    pub(super) fn new(connection: Connection, origin: Origin) -> (Self, Buffer) {
        let Connection { stream, input, slot, .. } = connection;
        (Self { stream, _slot: slot, _flight: origin.flight, _in_hand: origin.in_hand }, input)
    }
}

impl End for SwitchedEnd {
    fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut Buffer, buffers: &Buffers) -> Poll<io::Result<usize>> {
        let filled = input.poll_fill(cx, &mut self.stream, buffers);
        if filled.is_pending() {
            input.release(buffers);
        }
        filled
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut Out, _buffers: &Buffers) -> Poll<io::Result<()>> {
        self.stream.poll_send(cx, out)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>, _buffers: &Buffers) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
