//! Bodies of responses that may be stored, or that name units, and of those in whose place a stored one is sent.

use std::task::{Context, Poll, Waker};

use super::Exchange;
use super::taps::{self, BodyTaps};
use crate::engine::gate::BodyMeter;
use crate::transport::http1::encode::Encoder;
use crate::transport::stale::Recording;
use crate::transport::upstream::exchange::error::{Cause, Progress};

/// Bytes of a body that are read to keep its connection.
const DISCARDED_MAX: usize = 64 * 1024;

impl Exchange {
    /// Records the response whose head has arrived, if there is a recording.
    pub(crate) fn record_body(&mut self, recording: Option<Box<Recording>>) {
        if recording.is_some() {
            self.taps.get_or_insert_default().recording = recording;
        }
    }

    /// Reads the units that the body names, if there is a meter.
    pub(crate) fn meter_body(&mut self, meter: Option<Box<BodyMeter>>) {
        if meter.is_some() {
            self.taps.get_or_insert_default().meter = meter;
        }
    }

    /// Whether all bytes of the body have come. A stream may end later.
    fn has_whole_body(&self) -> bool {
        self.has_ended() || self.remaining() == Some(0)
    }

    /// Whether no byte of a body is left to transfer. The stream of the response may end later.
    pub(crate) fn has_transferred(&self) -> bool {
        self.has_whole_body() && self.has_sent()
    }

    /// The meter of the body, which has read what has come of it.
    pub(crate) fn take_meter(&mut self) -> Option<Box<BodyMeter>> {
        let mut meter = self.taps.as_mut()?.meter.take();
        let is_complete = self.has_whole_body() && !self.is_broken;
        if let Some(meter) = meter.as_mut().filter(|meter| is_complete && meter.cut().is_none()) {
            meter.end();
        }
        meter
    }

    /// The limit that has cut the body.
    pub(crate) fn cut_by(&self) -> Option<&str> {
        self.taps.as_ref()?.meter.as_ref()?.cut().map(|(limit, _)| limit)
    }

    /// Ends the body behind `len` bytes of `out`, with an event that says why, in place of what follows.
    #[cold]
    fn cut_body(&mut self, out: &mut Vec<u8>, len: usize) {
        out.truncate(len);
        if let Some(taps) = &mut self.taps {
            taps.recording = None;
            if let Some((limit, form)) = taps.meter.as_ref().and_then(|meter| meter.cut()) {
                taps::write_last_event(out, form, limit);
            }
        }
        self.transport.end_early();
        self.handle = None;
    }

    /// As [`Transport::poll_body`](super::super::transport::Transport::poll_body). The recording ends early if the body
    /// is too long or breaks off.
    #[inline(never)]
    pub(super) fn poll_tapped(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        let before = out.len();
        let mut polled = self.transport.poll_body(cx, out, &Encoder::Raw, self.upstream.buffers(), progress);
        let is_broken = matches!(polled, Poll::Ready(Err(_)));
        if let Some(taps) = &mut self.taps {
            let BodyTaps { recording, meter } = &mut **taps;
            let is_recorded = |recording: &mut Box<Recording>| !is_broken && recording.push(&out[before..]);
            *recording = recording.take().and_then(|mut one| is_recorded(&mut one).then_some(one));
            if let Some(read) = meter.as_mut().and_then(|meter| meter.push(&out[before..])) {
                self.cut_body(out, before + read);
                progress.bytes = (out.len() - before) as u64;
                polled = Poll::Ready(Ok(false));
            }
        }
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
