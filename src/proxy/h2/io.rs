//! The socket of an HTTP/2 connection, with deadlines for clients that say nothing or take nothing.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::super::buffer::Buffer;
use super::super::deadline::Deadline;
use super::super::settings::Timeouts;
use crate::time;

/// What hyper reads and writes.
#[derive(Debug)]
pub(in super::super) struct FrameIo {
    stream: TcpStream,
    /// What was read to tell the protocol.
    first: Buffer,
    timeouts: Rc<Timeouts>,
    /// Streams whose answer has not ended.
    in_flight: Rc<Cell<u32>>,
    idle_since: Option<Instant>,
    idle_deadline: Deadline,
    blocked_since: Option<Instant>,
    write_deadline: Deadline,
}

impl FrameIo {
    pub(in super::super) fn new(
        stream: TcpStream,
        first: Vec<u8>,
        timeouts: Rc<Timeouts>,
        in_flight: Rc<Cell<u32>>,
    ) -> Self {
        Self {
            stream,
            first: Buffer::new(first),
            timeouts,
            in_flight,
            idle_since: None,
            idle_deadline: Deadline::default(),
            blocked_since: None,
            write_deadline: Deadline::default(),
        }
    }

    /// After a write that could not go on: fails once it has been so for too long.
    fn write_blocked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let since = *self.blocked_since.get_or_insert_with(time::instant_now);
        ready!(self.write_deadline.poll(cx, since + self.timeouts.body_idle));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.stream.poll_write_ready(cx)?.is_pending() {
                return self.write_blocked(cx);
            }
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    self.blocked_since = None;
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl AsyncRead for FrameIo {
    /// Ends the stream once nothing has been asked for too long. hyper reads again whenever something happens, so
    /// that it is seen when the last answer ends.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.first.is_empty() {
            let len = this.first.unread().len().min(buf.remaining());
            buf.put_slice(&this.first.unread()[..len]);
            this.first.consume(len);
            if this.first.is_empty() {
                this.first = Buffer::default();
            }
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.idle_since = None;
            return Poll::Ready(read);
        }
        let now = if this.in_flight.get() > 0 { None } else { this.idle_since };
        let since = *this.idle_since.insert(now.unwrap_or_else(time::instant_now));
        ready!(this.idle_deadline.poll(cx, since + this.timeouts.keep_alive));
        if this.in_flight.get() > 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for FrameIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write))
    }
}
