//! A stream that has become a tunnel (RFC 8441).

use std::io;
use std::task::{Context, Poll};

use super::link::StreamHandle;
use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer};
use crate::transport::net::duplex::Duplex;

/// What flows in the DATA frames of a stream.
#[derive(Debug)]
pub(super) struct StreamEnd<'s>(pub(super) &'s StreamHandle);

impl Duplex for StreamEnd<'_> {
    fn poll_read(
        &mut self,
        _cx: &mut Context<'_>,
        input: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        let (mut state, key) = (self.0.state(), self.0.key());
        let Some(slot) = state.http2.get_mut(key) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let len = slot.input.unread().len();
        if len == 0 {
            return if slot.has_ended { Poll::Ready(Ok(0)) } else { Poll::Pending };
        }
        input.extend(slot.input.unread(), buffers);
        slot.input.consume(len);
        slot.input.release(buffers);
        state.write(buffers, |http2, out| http2.consume(key, len, out));
        Poll::Ready(Ok(len))
    }

    fn poll_write(
        &mut self,
        _cx: &mut Context<'_>,
        out: &mut OutputBuffer,
        _buffers: &BufferPool,
    ) -> Poll<io::Result<()>> {
        if out.pending() == 0 {
            return Poll::Ready(Ok(()));
        }
        let written = self.0.write_data(out.unsent(), false);
        out.advance(written.bytes);
        self.0.state().pass_on();
        if written.is_blocked { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>, _buffers: &BufferPool) -> Poll<io::Result<()>> {
        self.0.write_data(&[], true);
        Poll::Ready(Ok(()))
    }
}
