//! Bodies of responses that may be stored, or that name units, and of those in whose place a stored one is sent.

use std::task::{Context, Poll, Waker};

use super::Exchange;
use super::taps::BodyTaps;
use crate::engine::units::UnitReaders;
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

    /// Reads the units that the body names, if there are readers.
    pub(crate) fn read_units(&mut self, units: Option<Box<UnitReaders>>) {
        if units.is_some() {
            self.taps.get_or_insert_default().units = units;
        }
    }

    /// The readers of units, which have read what has come of the body.
    pub(crate) fn take_units(&mut self) -> Option<Box<UnitReaders>> {
        let mut units = self.taps.as_mut()?.units.take();
        if let Some(units) = units.as_mut().filter(|_| self.has_ended() && !self.is_broken) {
            units.end();
        }
        units
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
        let polled = self.transport.poll_body(cx, out, &Encoder::Raw, self.upstream.buffers(), progress);
        let is_broken = matches!(polled, Poll::Ready(Err(_)));
        if let Some(taps) = &mut self.taps {
            let BodyTaps { recording, units } = &mut **taps;
            let is_recorded = |recording: &mut Box<Recording>| !is_broken && recording.push(&out[before..]);
            *recording = recording.take().and_then(|mut one| is_recorded(&mut one).then_some(one));
            if let Some(units) = units {
                units.push(&out[before..]);
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
