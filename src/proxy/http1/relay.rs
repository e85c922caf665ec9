//! A response on its way to a client over HTTP/1, and what is left of its request.

use std::task::{Context, Poll, ready};

use super::wire::Wire;
use crate::http1::encode::Encoder;
use crate::net::deadline::Deadline;
use crate::upstream::Exchange;

/// Why a response did not reach its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// The upstream broke off. The client has everything that came before.
    Cut,
    /// The client left, or does not read the response.
    Abandoned,
}

/// Moves both bodies on. After the upstream breaks off, everything that came from it is sent first.
pub(super) fn poll_relay(
    cx: &mut Context<'_>,
    wire: &mut Wire,
    exchange: &mut Exchange,
    encoder: &Encoder,
    deadline: &mut Deadline,
) -> Poll<Result<(), Unfinished>> {
    let mut has_more = !exchange.has_ended() && !exchange.is_broken();
    loop {
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
        if wire.is_full() {
            wire.bound_unsent();
        }
        let before = wire.pending();
        let is_flushed = match wire.poll_flush(cx) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Unfinished::Abandoned)),
            Poll::Pending => false,
        };
        if is_flushed && !has_more {
            return Poll::Ready(if exchange.is_broken() { Err(Unfinished::Cut) } else { Ok(()) });
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
            return Poll::Ready(Err(Unfinished::Abandoned));
        }
        // Whoever waits for a request that has no end answers nothing more.
        if is_flushed && exchange.is_cut() {
            exchange.give_up("its request was cut off");
            return Poll::Ready(Err(Unfinished::Cut));
        }
        // A client that takes nothing is not the upstream's fault.
        if is_flushed {
            ready!(exchange.poll_overdue(cx, deadline));
            return Poll::Ready(Err(Unfinished::Cut));
        }
        ready!(exchange.poll_untaken(cx, deadline));
        exchange.give_up_untaken();
        return Poll::Ready(Err(Unfinished::Abandoned));
    }
}
