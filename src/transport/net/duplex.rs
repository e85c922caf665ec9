//! A byte stream in both directions, read and written through shared buffers.

use std::io;
use std::task::{Context, Poll};

use super::buffer::{BufferPool, InputBuffer, OutputBuffer};
use super::stream::Stream;

/// One side of a tunnel.
pub(crate) trait Duplex {
    /// Reads once; 0 at the end of the stream. Takes a buffer only if there are bytes to read.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>>;

    /// Writes until no more is accepted; ready when all of `out` is written.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<()>>;

    /// Ends our direction of the stream. To be called until it is ready.
    fn poll_finish(&mut self, cx: &mut Context<'_>, buffers: &BufferPool) -> Poll<io::Result<()>>;
}

impl Duplex for Stream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill(cx, input, buffers)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<()>> {
        Stream::poll_write(self, cx, out, buffers)
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>, buffers: &BufferPool) -> Poll<io::Result<()>> {
        self.finish(buffers);
        Poll::Ready(Ok(()))
    }
}
