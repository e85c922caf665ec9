//! Bodies of responses that may be stored, and of those in whose place a stored one is sent.

use std::task::{Context, Poll, Waker};

use super::Exchange;
use crate::transport::http1::encode::Encoder;
use crate::transport::stale::Recording;
use crate::transport::upstream::exchange::error::{Cause, Progress};

/// Bytes of a body that are read to keep its connection.
const DISCARDED_MAX: usize = 64 * 1024;

impl Exchange {
    /// Records the response whose head has arrived, if there is a recording.
    pub(crate) fn record_body(&mut self, recording: Option<Box<Recording>>) {
        self.recording = recording;
    }

    /// As [`Transport::poll_body`](super::super::transport::Transport::poll_body). The recording ends early if the body
    /// is too long or breaks off.
    #[inline(never)]
    pub(super) fn poll_recorded(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        let before = out.len();
        let polled = self.transport.poll_body(cx, out, &Encoder::Raw, self.upstream.buffers(), progress);
        let is_broken = matches!(polled, Poll::Ready(Err(_)));
        let is_recorded = |recording: &mut Box<Recording>| !is_broken && recording.push(&out[before..]);
        self.recording = self.recording.take().and_then(|mut one| is_recorded(&mut one).then_some(one));
        if !matches!(encoder, Encoder::Raw) {
            let data = out.split_off(before);
            if !data.is_empty() {
                encoder.data(out, &data);
            }
            if matches!(polled, Poll::Ready(Ok(false))) {
                encoder.end(out, self.transport.trailers());
            }
        }
        polled
    }

    /// Reads what has arrived of a short body that no client gets, so that the connection can be used again.
    pub(crate) fn discard_body(&mut self) {
        let (mut cx, mut body) = (Context::from_waker(Waker::noop()), Vec::new());
        self.begin_body();
        while body.len() < DISCARDED_MAX
            && !self.has_ended()
            && self.poll_body(&mut cx, &mut body, &Encoder::Raw) == Poll::Ready(Ok(true))
        {}
    }
}
