//! The relay of a response to an HTTP/1 client, and of the rest of its request.

use std::task::{Context, Poll, ready};

use super::wire::Wire;
use crate::engine::gate::Bill;
use crate::transport::http1::encode::Encoder;
use crate::transport::net::deadline::Deadline;
use crate::transport::proxy::access_record::AccessRecord;
use crate::transport::proxy::answer::{self, ResponseForm};
use crate::transport::proxy::request::HttpVersion;
use crate::transport::upstream::Exchange;

/// The reason why a response is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayError {
    /// The upstream closed too early. The client got all bytes before that.
    Truncated,
    /// The client left, or does not read the response.
    Abandoned,
}

/// A response that is relayed. It is settled and logged on drop: at its end, or if its task is dropped before.
pub(super) struct Relayed<'e, 'm> {
    pub(super) exchange: &'e mut Exchange,
    /// The unsettled charges.
    pub(super) bill: Option<Bill>,
    pub(super) record: AccessRecord<'m>,
    /// Bytes of the body that the client has taken.
    pub(super) taken: u64,
}

impl Relayed<'_, '_> {
    fn settle(&mut self) {
        self.record.settle(self.exchange, &mut self.bill);
    }
}

impl Drop for Relayed<'_, '_> {
    fn drop(&mut self) {
        self.record.transferred(self.exchange.bytes_in(), self.taken);
        self.settle();
    }
}

/// Moves both bodies, and settles the charges before the last bytes are sent. If the upstream closes too early, its last
/// bytes are sent first.
pub(super) fn poll_relay(
    cx: &mut Context<'_>,
    wire: &mut Wire,
    relayed: &mut Relayed<'_, '_>,
    encoder: &Encoder,
    deadline: &mut Deadline,
) -> Poll<Result<(), RelayError>> {
    let mut has_more = !relayed.exchange.has_ended() && !relayed.exchange.is_broken();
    loop {
        let exchange = &mut *relayed.exchange;
        if !exchange.is_sent() {
            exchange.send(cx, wire);
        }
        let mut waits = false;
        while has_more && !waits && !wire.is_full() {
            match exchange.poll_body(cx, wire.out(), encoder) {
                Poll::Ready(Ok(more)) => has_more = more,
                Poll::Ready(Err(_)) => has_more = false,
                Poll::Pending => waits = true,
            }
        }
        if !has_more || relayed.exchange.has_transferred() {
            relayed.settle(); // the client may send its next request as soon as it has the last byte
        }
        let exchange = &mut *relayed.exchange;
        if wire.is_full() {
            wire.bound_unsent();
        }
        let before = wire.pending();
        let is_flushed = match wire.poll_flush(cx) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayError::Abandoned)),
            Poll::Pending => false,
        };
        if is_flushed && !has_more {
            return Poll::Ready(if exchange.is_broken() { Err(RelayError::Truncated) } else { Ok(()) });
        }
        if before > wire.pending() {
            exchange.taken(before - wire.pending());
        }
        if is_flushed {
            exchange.all_taken();
        }
        if is_flushed && !waits {
            continue;
        }
        if is_flushed && wire.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(RelayError::Abandoned));
        }
        // An upstream that waits for the rest of a truncated request sends nothing more.
        if is_flushed && exchange.is_cut() {
            exchange.give_up("its request was cut off");
            return Poll::Ready(Err(RelayError::Truncated));
        }
        // The upstream is not to blame for a client that does not read.
        if is_flushed {
            ready!(exchange.poll_overdue(cx, deadline));
            return Poll::Ready(Err(RelayError::Truncated));
        }
        ready!(exchange.poll_untaken(cx, deadline));
        exchange.give_up_untaken();
        return Poll::Ready(Err(RelayError::Abandoned));
    }
}

/// Forwards an interim response to HTTP/1.1 clients (RFC 9110, section 15.2). Weir sends 100 itself, when the body is
/// first needed. A client that does not read gets no more interim responses.
pub(super) fn write_interim(wire: &mut Wire, exchange: &Exchange, form: ResponseForm) {
    let Some((head, reason, fields)) = exchange.response() else { return };
    if form.version == HttpVersion::Http11 && head.status != 100 && !wire.is_full() {
        answer::write_interim(wire.out(), head.status, reason, fields);
        // The rest goes before the final response.
        let _ = wire.poll_flush(&mut Context::from_waker(std::task::Waker::noop()));
    }
}
