//! The body of a request over HTTP/2.

use std::task::{Context, Poll};

use super::super::replay::{ReadAhead, Replayed, replay};
use super::link::{LinkState, StreamHandle};
use crate::base::fields::FieldBuf;
use crate::transport::http1::Underscores;
use crate::transport::http1::encode::Encoder;
use crate::transport::upstream::{BodyFault, Source, spend};

/// Continue (RFC 9110, section 15.2.1).
const CONTINUE: u16 = 100;

/// What comes on a stream behind its head.
#[derive(Debug)]
pub(super) struct StreamBody<'s> {
    stream: &'s StreamHandle,
    underscores: Underscores,
    /// The client waits for a 100 before it sends.
    awaits_continue: bool,
    /// Boxed: few bodies have trailers.
    trailers: Option<Box<FieldBuf>>,
    /// What was read before; none if nothing is left of it. Boxed: few bodies are read before.
    ahead: Option<Box<ReadAhead>>,
}

impl<'s> StreamBody<'s> {
    pub(super) fn new(stream: &'s StreamHandle, underscores: Underscores) -> Self {
        Self { stream, underscores, awaits_continue: false, trailers: None, ahead: None }
    }

    /// Takes what came, frames it, and gives the client as much of its window back. Whether that was the end.
    fn take(
        &mut self,
        state: &mut LinkState,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        remaining: &mut u64,
    ) -> Result<bool, BodyFault> {
        let (key, buffers) = (self.stream.key(), self.stream.buffers());
        let slot = state.http2.get_mut(key).ok_or(BodyFault::Broken)?;
        let len = slot.input.unread().len();
        if len > 0 {
            spend(remaining, len)?;
            encoder.data(out, slot.input.unread());
            slot.input.consume(len);
            slot.input.release(buffers);
        }
        let (has_ended, trailers) = (slot.has_ended, slot.trailers.take());
        if len > 0 {
            self.awaits_continue = false;
            state.write(buffers, |http2, out| http2.consume(key, len, out));
        }
        if let Some(trailers) = trailers {
            self.trailers = Some(Box::new(self.checked(&trailers)?));
        }
        Ok(has_ended)
    }

    /// The trailers whose names are to stay.
    fn checked(&self, trailers: &FieldBuf) -> Result<FieldBuf, BodyFault> {
        let keeps = |name: &[u8]| self.underscores.allows(name).map_err(|_| BodyFault::Broken);
        let mut kept = FieldBuf::default();
        for (name, value) in trailers.fields().iter() {
            if keeps(name)? {
                kept.push(name, value);
            }
        }
        Ok(kept)
    }
}

impl Source for StreamBody<'_> {
    fn poll_body(
        &mut self,
        _cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        remaining: &mut u64,
    ) -> Poll<Result<bool, BodyFault>> {
        if let Some(replayed) = replay(&mut self.ahead, out, encoder, remaining, self.trailers.as_deref()) {
            return Poll::Ready(replayed);
        }
        let (stream, before) = (self.stream, out.len());
        let has_ended = self.take(&mut stream.state(), out, encoder, remaining)?;
        if has_ended {
            encoder.end(out, self.trailers());
            return Poll::Ready(Ok(false));
        }
        if out.len() > before {
            return Poll::Ready(Ok(true));
        }
        if std::mem::take(&mut self.awaits_continue) {
            stream.write_head(CONTINUE, false, |_| {});
        }
        Poll::Pending
    }

    fn trailers(&self) -> Option<&FieldBuf> {
        self.trailers.as_deref()
    }
}

impl Replayed for StreamBody<'_> {
    fn expect_continue(&mut self) -> bool {
        self.awaits_continue = self.ahead.is_none();
        self.awaits_continue
    }

    fn put_back(&mut self, ahead: ReadAhead) {
        self.ahead = Some(Box::new(ahead));
    }

    fn unread(&self) -> usize {
        self.stream.state().http2.get_mut(self.stream.key()).map_or(0, |slot| slot.input.unread().len())
    }
}
