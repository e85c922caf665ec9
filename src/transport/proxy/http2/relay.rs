//! A response on its way to a client over HTTP/2, and what is left of its request.
//!
//! Nothing is taken from the upstream that cannot be written, but one piece: the client may let nothing through. A reset
//! never overtakes data, as both go the same way.

use std::task::{Context, Poll, ready};

use super::super::access_record::AccessRecord;
use super::super::untaken::Hold;
use super::body::StreamBody;
use super::link::{Slot, StreamHandle};
use crate::base::time;
use crate::engine::gate::Bill;
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::hop;
use crate::transport::http2::{Connection, ErrorCode};
use crate::transport::net::deadline::Deadline;
use crate::transport::upstream::Exchange;

/// What is put together in one go, if it is there; the longest frame.
const PIECE: usize = 16 * 1024;

/// An exchange whose head was sent.
pub(super) struct Answered<'s> {
    pub(super) record: AccessRecord<'s>,
    pub(super) exchange: Exchange,
    /// The unsettled charges.
    pub(super) bill: Option<Bill>,
    pub(super) is_tunnel: bool,
}

/// Both bodies of an exchange.
#[derive(Debug)]
pub(super) struct Relay<'s> {
    stream: &'s StreamHandle,
    exchange: Exchange,
    request: StreamBody<'s>,
    bill: Option<Bill>,
    record: AccessRecord<'s>,
    /// What came from the upstream and waits for the client.
    pending: Vec<u8>,
    /// How much of that was taken.
    taken: usize,
    /// More may come from the upstream.
    has_more: bool,
    /// Bytes of all streams that the client had taken when this one last looked.
    moved: u64,
    deadline: Deadline,
    hold: Hold<'s>,
}

/// Why nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ForUpstream,
    ForClient,
}

impl<'s> Relay<'s> {
    /// The rest of an exchange whose head was sent.
    pub(super) fn new(
        stream: &'s StreamHandle,
        answered: Answered<'s>,
        request: StreamBody<'s>,
        hold: Hold<'s>,
    ) -> Self {
        let Answered { record, exchange, bill, .. } = answered;
        let (pending, deadline) = (Vec::new(), Deadline::default());
        Self { stream, exchange, request, bill, record, pending, taken: 0, has_more: true, moved: 0, deadline, hold }
    }

    /// Moves both bodies on, to the end of the response.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.exchange.has_sent() {
            self.exchange.send(cx, &mut self.request);
        }
        let waits = self.advance(cx);
        if self.exchange.has_transferred() {
            self.record.settle(&mut self.exchange, &mut self.bill); // before the connection sends the last bytes
        }
        self.stream.state().pass_on();
        let cause = match waits {
            None => return Poll::Ready(()),
            // A client that takes nothing is not the upstream's fault.
            Some(Waits::ForClient) => {
                self.count_others();
                let bytes = self.pending.len() - self.taken;
                let taken = self.exchange.body_bytes().saturating_sub(bytes as u64);
                let memory = self.pending.capacity() + self.exchange.memory();
                // Behind other streams it waits although it has written everything.
                if self.hold.poll(cx, taken, bytes.max(1), memory).is_pending() {
                    ready!(self.exchange.poll_untaken(cx, &mut self.deadline));
                }
                self.exchange.give_up_untaken();
                self.stream.reset(ErrorCode::Internal);
                return Poll::Ready(());
            }
            // An upstream that waits for a request without an end answers nothing more.
            Some(Waits::ForUpstream) if self.exchange.is_cut() => self.exchange.give_up("its request was cut off"),
            Some(Waits::ForUpstream) => ready!(self.exchange.poll_overdue(cx, &mut self.deadline)),
        };
        tracing::debug!(cause, "a response was cut off");
        self.stream.reset(ErrorCode::Internal);
        Poll::Ready(())
    }

    /// Moves the response on. Returns what it waits for; none at its end.
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<Waits> {
        loop {
            if !self.write_pending() {
                return Some(Waits::ForClient);
            }
            if !self.has_more {
                self.finish();
                return None;
            }
            // An upstream that always has more would never be waited for.
            if self.exchange.total_at().is_some_and(|at| at <= time::instant_now()) {
                self.exchange.give_up("it did not finish in time");
                self.has_more = false;
                continue;
            }
            if !self.stream.state().may_go_on(self.stream.key()) {
                return Some(Waits::ForClient);
            }
            if self.take_piece(cx) && self.pending.is_empty() {
                self.exchange.all_taken();
                let _ = self.hold.poll(cx, 0, 0, 0);
                return Some(Waits::ForUpstream);
            }
        }
    }

    /// Writes what waits for the client. Returns whether nothing of it is left.
    fn write_pending(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        let is_last = self.ends_with_data();
        let written = self.stream.write_data(&self.pending[self.taken..], is_last);
        self.taken += written.bytes;
        if written.bytes > 0 {
            self.exchange.taken(written.bytes);
            self.moved = self.stream.state().moved();
        }
        if !written.is_blocked {
            (self.pending, self.taken) = (Vec::new(), 0);
        }
        !written.is_blocked
    }

    /// Takes a piece from the upstream, straight to where it is written; what the windows do not allow waits. Returns
    /// whether nothing more is there.
    fn take_piece(&mut self, cx: &mut Context<'_>) -> bool {
        let Self { stream, exchange, pending, has_more, .. } = self;
        let mut waits = false;
        stream.state().write(stream.buffers(), |http2, out| {
            let start = Connection::<Slot>::begin_data(out);
            while *has_more && !waits && out.len() - start < PIECE {
                match exchange.poll_body(cx, out, &Encoder::Raw) {
                    Poll::Ready(more) => *has_more = more == Ok(true),
                    Poll::Pending => waits = true,
                }
            }
            let is_last = !*has_more && !exchange.is_broken() && trailers(exchange).next().is_none();
            http2.end_data(stream.key(), out, start, is_last, pending)
        });
        waits
    }

    /// Whether the stream ends with the data that is there.
    fn ends_with_data(&self) -> bool {
        !self.has_more && !self.exchange.is_broken() && trailers(&self.exchange).next().is_none()
    }

    /// Ends the stream behind its data.
    fn finish(&mut self) {
        if self.exchange.is_broken() {
            self.stream.reset(ErrorCode::Internal);
        } else if !self.ends_with_data() {
            self.stream.write_trailers(|block| {
                trailers(&self.exchange).for_each(|(name, value)| block.field(name, value));
            });
        }
    }

    /// While others have their turn, the client takes what they send.
    fn count_others(&mut self) {
        let moved = self.stream.state().moved();
        let others = moved - std::mem::replace(&mut self.moved, moved);
        if others > 0 && !self.stream.state().http2.is_exhausted(self.stream.key()) {
            self.exchange.taken(usize::try_from(others).unwrap_or(usize::MAX));
        }
    }
}

/// The fields after the upstream's body that may stand there.
fn trailers(exchange: &Exchange) -> impl Iterator<Item = (&[u8], &[u8])> {
    let fields = exchange.trailers().into_iter().flat_map(|trailers| trailers.fields().iter());
    fields.filter(|(name, _)| hop::may_trail(name))
}

impl Drop for Relay<'_> {
    /// A client that leaves pays for what came until then.
    fn drop(&mut self) {
        let untaken = self.pending.len() - self.taken;
        let bytes_out = self.exchange.body_bytes().saturating_sub(untaken as u64);
        self.record.transferred(self.exchange.bytes_in(), bytes_out);
        self.record.settle(&mut self.exchange, &mut self.bill);
    }
}
