//! Stored answers over HTTP/2.

use std::future::poll_fn;
use std::task::{Poll, ready};

use super::super::access_record::AccessRecord;
use super::super::answer::ResponseForm;
use super::super::context::RequestContext;
use super::super::untaken::Hold;
use super::link::StreamHandle;
use crate::base::time;
use crate::transport::http2::ErrorCode;
use crate::transport::net::deadline::Deadline;
use crate::transport::net::pace::Pace;
use crate::transport::respond::{self, HeaderSink, StoredReply};

const OK: u16 = 200;

/// Sends a stored answer. A client that does not take it has its stream reset. What waits for it is in no other memory
/// than that of the answer and of the task.
pub(super) async fn send(
    context: &RequestContext<'_>,
    stream: &StreamHandle,
    stored: &StoredReply<'_>,
    form: ResponseForm,
    mut record: AccessRecord<'_>,
) {
    let body = if form.is_head { &[] } else { stored.body() };
    record.replied_stored(body.len() as u64);
    let profiles = context.config.running.settings.profiles;
    stream.write_head(OK, body.is_empty(), |block| {
        stored.fields(profiles).for_each(|(name, value)| block.field(name, value));
        stored.write_fields(block, profiles);
        if form.has_origin {
            respond::expose(block, profiles);
        }
        block.put("content-length", itoa::Buffer::new().format(stored.body().len()));
    });
    if body.is_empty() {
        return;
    }
    let timeouts = &context.config.timeouts;
    let (mut sent, mut seen, mut moved_at) = (0, 0, time::instant_now());
    let (mut deadline, mut pace) = (Deadline::default(), Pace::default());
    let mut hold = Hold::of_stream(&context.worker.untaken, 0);
    let is_sent = poll_fn(|cx| {
        let written = stream.write_data(&body[sent..], true);
        sent += written.bytes;
        stream.state().pass_on();
        if !written.is_blocked {
            return Poll::Ready(true);
        }
        // While other streams have their turn, the client takes what they send.
        let (moved, is_exhausted) = {
            let state = stream.state();
            (state.moved(), state.http2.is_exhausted(stream.key()))
        };
        let others = moved - std::mem::replace(&mut seen, moved);
        let taken = if is_exhausted { written.bytes as u64 } else { others.max(written.bytes as u64) };
        if taken > 0 {
            moved_at = time::instant_now();
            pace.moved(taken);
        }
        if hold.poll(cx, sent as u64, body.len() - sent, 0).is_ready() {
            return Poll::Ready(false);
        }
        ready!(pace.poll(cx, &mut deadline, moved_at + timeouts.body_idle, timeouts.min_read));
        context.worker.shared.metrics.untaken_answers().inc();
        Poll::Ready(false)
    });
    if !is_sent.await {
        stream.reset(ErrorCode::Internal);
        record.transferred(0, sent as u64);
    }
}
