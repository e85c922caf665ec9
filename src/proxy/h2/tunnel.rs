//! A stream that has become a tunnel (RFC 8441).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWrite;

use crate::net::buffer::{Buffer, Buffers, Out};
use crate::net::duplex::Duplex;

/// What flows in the DATA frames of a stream.
#[derive(Debug)]
pub(in super::super) struct StreamEnd(TokioIo<Upgraded>);

impl StreamEnd {
    pub(in super::super) fn new(stream: Upgraded) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl Duplex for StreamEnd {
    fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut Buffer, buffers: &Buffers) -> Poll<io::Result<usize>> {
        let filled = input.poll_fill(cx, &mut self.0, buffers);
        if filled.is_pending() {
            input.release(buffers);
        }
        filled
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut Out, _buffers: &Buffers) -> Poll<io::Result<()>> {
        while out.pending() > 0 {
            let len = ready!(Pin::new(&mut self.0).poll_write(cx, out.unsent()))?;
            out.advance(len);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>, _buffers: &Buffers) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
