//! Answers of Weir's own, and heads of all answers, over HTTP/2.

use std::future::poll_fn;
use std::task::Poll;

use super::super::answer::ResponseForm;
use super::super::date::Date;
use super::link::StreamHandle;
use crate::transport::http2::Block;
use crate::transport::net::deadline::Deadline;
use crate::transport::respond::{self, HeaderSink, Profiles, Reply};
use tokio::time::Instant;

use super::super::untaken::Hold;

impl HeaderSink for Block<'_> {
    fn put(&mut self, name: &'static str, value: &str) {
        self.field(name.as_bytes(), value.as_bytes());
    }
}

/// Writes the head of an answer of our own, and returns its body.
pub(super) fn write_own(
    stream: &StreamHandle,
    own: &impl Reply,
    form: ResponseForm,
    profiles: Profiles,
    date: &Date,
) -> Vec<u8> {
    let mut body = Vec::new();
    own.write_body(&mut body);
    let is_bodyless = form.is_head || body.is_empty();
    stream.write_head(own.status().as_u16(), is_bodyless, |block| {
        own.write_headers(block, profiles);
        if form.has_origin {
            respond::expose(block, profiles);
        }
        block.put("content-length", itoa::Buffer::new().format(body.len()));
        date.with_value(|date| block.put("date", date));
    });
    if is_bodyless {
        body.clear();
    }
    body
}

/// Sends the whole body of an answer of our own until `by`. A client that does not take it has its stream reset.
pub(super) async fn send_own(stream: &StreamHandle, body: &[u8], hold: &mut Hold<'_>, by: Instant) {
    let (mut sent, mut deadline) = (0, Deadline::default());
    poll_fn(|cx| {
        let written = stream.write_data(&body[sent..], true);
        sent += written.bytes;
        stream.state().pass_on();
        if !written.is_blocked || hold.poll(cx, sent as u64, body.len() - sent, body.len()).is_ready() {
            return Poll::Ready(());
        }
        deadline.poll(cx, by)
    })
    .await;
}
