//! Stored answers over HTTP/1.

use std::future::poll_fn;
use std::task::{Poll, ready};

use super::connection::{AfterResponse, H1Connection};
use super::wire::Wire;
use crate::base::time;
use crate::transport::http1::encode::write_field;
use crate::transport::net::pace::Pace;
use crate::transport::proxy::access_record::AccessRecord;
use crate::transport::proxy::answer::{ResponseForm, write_connection};
use crate::transport::proxy::context::RequestContext;
use crate::transport::proxy::untaken::Hold;
use crate::transport::respond::{self, Profiles, StoredReply};

/// Bytes of a body that are moved at once.
const PIECE: usize = 16 * 1024;

impl<'w> H1Connection<'w> {
    /// Sends a stored answer. Memory is bounded by one piece of its body.
    pub(super) async fn send_stored(
        &mut self,
        context: &RequestContext<'_>,
        stored: &StoredReply<'_>,
        form: ResponseForm,
        mut record: AccessRecord<'_>,
    ) -> AfterResponse<'w> {
        let keeps_alive = self.keeps_alive(form);
        let Self { wire, memory, deadline, worker, .. } = self;
        wire.give_back(memory);
        let keeps_alive = keeps_alive && wire.skip_body();
        write_head(wire, stored, form, context.config.running.settings.profiles, keeps_alive);
        let body = if form.is_head { &[] } else { stored.body() };
        record.replied_stored(body.len() as u64);
        let timeouts = &context.config.timeouts;
        let (mut rest, mut moved_at, mut pace) = (body, time::instant_now(), Pace::default());
        let mut hold = Hold::new(&worker.untaken);
        let has_sent = poll_fn(|cx| {
            loop {
                while !rest.is_empty() && !wire.is_full() {
                    let (piece, behind) = rest.split_at(rest.len().min(PIECE));
                    wire.out().extend_from_slice(piece);
                    rest = behind;
                }
                if wire.is_full() {
                    wire.bound_unsent();
                }
                let before = wire.pending();
                let is_flushed = match wire.poll_flush(cx) {
                    Poll::Ready(Ok(())) => true,
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Pending => false,
                };
                if is_flushed && rest.is_empty() {
                    return Poll::Ready(true);
                }
                if before > wire.pending() {
                    moved_at = time::instant_now();
                    pace.moved((before - wire.pending()) as u64);
                }
                if is_flushed {
                    pace.rest();
                    continue;
                }
                let taken = (body.len() - rest.len()).saturating_sub(wire.pending());
                if hold.poll(cx, taken as u64, wire.pending(), wire.memory()).is_ready() {
                    return Poll::Ready(false);
                }
                ready!(pace.poll(cx, deadline, moved_at + timeouts.body_idle, timeouts.min_read));
                worker.shared.metrics.untaken_answers().inc();
                return Poll::Ready(false);
            }
        });
        match (has_sent.await, keeps_alive) {
            (false, _) => {
                record.transferred(0, (body.len() - rest.len()).saturating_sub(wire.pending()) as u64);
                AfterResponse::Close
            }
            (true, true) => AfterResponse::Next(time::instant_now()),
            (true, false) => AfterResponse::Linger,
        }
    }
}

fn write_head(wire: &mut Wire, stored: &StoredReply<'_>, form: ResponseForm, profiles: Profiles, keeps_alive: bool) {
    let out = wire.out();
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    for (name, value) in stored.fields(profiles) {
        write_field(out, name, value);
    }
    stored.write_fields(out, profiles);
    if form.has_origin {
        respond::expose(out, profiles);
    }
    write_connection(out, form, keeps_alive);
    write_field(out, b"content-length", itoa::Buffer::new().format(stored.body().len()).as_bytes());
    out.extend_from_slice(b"\r\n");
}
