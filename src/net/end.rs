//! One side of a tunnel: bytes in both directions, without the meaning of HTTP.

use std::io;
use std::task::{Context, Poll};

use super::buffer::{Buffer, Buffers, Out};
use super::stream::Stream;

/// One side of a tunnel.
pub(crate) trait End {
    /// Reads once, with a buffer only if there is something to read; 0 at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut Buffer, buffers: &Buffers) -> Poll<io::Result<usize>>;

    /// Sends what it takes; ready when nothing is left.
    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut Out, buffers: &Buffers) -> Poll<io::Result<()>>;

    /// Says that nothing more comes from us. To be called until it is ready.
    fn poll_finish(&mut self, cx: &mut Context<'_>, buffers: &Buffers) -> Poll<io::Result<()>>;
}

impl End for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut Buffer, buffers: &Buffers) -> Poll<io::Result<usize>> {
        self.poll_fill(cx, input, buffers)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut Out, buffers: &Buffers) -> Poll<io::Result<()>> {
        Stream::poll_write(self, cx, out, buffers)
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>, buffers: &Buffers) -> Poll<io::Result<()>> {
        self.finish(buffers);
        Poll::Ready(Ok(()))
    }
}
