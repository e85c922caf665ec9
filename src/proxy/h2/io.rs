//! The socket of an HTTP/2 connection, with deadlines for clients that say nothing or take nothing.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::Streams;
use crate::net::Timeouts;
use crate::net::buffer::{Buffer, Buffers, PENDING_MAX, Writable};
use crate::net::deadline::Deadline;
use crate::net::socket::Socket;
use crate::net::stream::Stream;
use crate::net::tls::TlsStream;
use crate::time;

/// What hyper reads and writes.
#[derive(Debug)]
pub(in super::super) struct FrameIo {
    stream: Stream,
    /// What was read to tell the protocol, and over TLS what was opened and is not taken yet.
    first: Buffer,
    buffers: Rc<Buffers>,
    timeouts: Rc<Timeouts>,
    streams: Rc<Streams>,
    idle_since: Option<Instant>,
    idle_deadline: Deadline,
    blocked_since: Option<Instant>,
    write_deadline: Deadline,
}

impl FrameIo {
    pub(in super::super) fn new(
        stream: Stream,
        first: Buffer,
        timeouts: Rc<Timeouts>,
        streams: Rc<Streams>,
        buffers: Rc<Buffers>,
    ) -> Self {
        stream.socket().bound_unsent();
        Self {
            stream,
            first,
            buffers,
            timeouts,
            streams,
            idle_since: None,
            idle_deadline: Deadline::default(),
            blocked_since: None,
            write_deadline: Deadline::default(),
        }
    }

    /// What a write comes to: fails once it could not go on for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked_since = None;
            return written;
        }
        let since = *self.blocked_since.get_or_insert_with(time::instant_now);
        ready!(self.write_deadline.poll(cx, since + self.timeouts.body_idle));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Gives hyper of what was read.
    fn take_first(&mut self, buf: &mut ReadBuf<'_>) {
        let len = self.first.unread().len().min(buf.remaining());
        buf.put_slice(&self.first.unread()[..len]);
        self.first.consume(len);
        self.first.release(&self.buffers);
    }
}

fn poll_write_plain(
    cx: &mut Context<'_>,
    socket: &Socket,
    write: impl Fn(&Socket) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(socket.poll_write_ready(cx))?;
        match write(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

/// Seals `bytes` once what was sealed before has gone out. What the socket does not take of it goes with the next
/// flush.
fn poll_write_tls(
    cx: &mut Context<'_>,
    tls: &mut TlsStream,
    bytes: &[u8],
    buffers: &Buffers,
) -> Poll<io::Result<usize>> {
    ready!(tls.poll_flush(cx, buffers))?;
    let len = tls.seal(bytes, buffers)?;
    match tls.poll_flush(cx, buffers) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        _ => Poll::Ready(Ok(len)),
    }
}

/// Puts slices together, so that they become one record if they fit.
fn poll_write_tls_joined(
    cx: &mut Context<'_>,
    tls: &mut TlsStream,
    slices: &[io::IoSlice<'_>],
    buffers: &Buffers,
) -> Poll<io::Result<usize>> {
    ready!(tls.poll_flush(cx, buffers))?;
    let mut joined = buffers.take();
    for slice in slices {
        let len = slice.len().min(PENDING_MAX - joined.len());
        joined.extend_from_slice(&slice[..len]);
    }
    let written = poll_write_tls(cx, tls, &joined, buffers);
    buffers.put(joined);
    written
}

impl AsyncRead for FrameIo {
    /// Ends the stream once nothing has been asked for too long, whatever else has come: heads that never end, and
    /// frames that ask for nothing. hyper reads again whenever something happens, so that it is seen when the last
    /// answer ends.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.first.is_empty() {
            this.take_first(buf);
            return Poll::Ready(Ok(()));
        }
        let read = match &mut this.stream {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            tls @ Stream::Tls(_) => tls.poll_fill(cx, &mut this.first, &this.buffers).map_ok(|_| ()),
        };
        let is_idle = this.streams.are_idle();
        if read.is_ready() && !is_idle {
            this.idle_since = None;
            this.take_first(buf);
            return read;
        }
        let before = this.idle_since.filter(|_| is_idle);
        let since = *this.idle_since.insert(before.unwrap_or_else(time::instant_now));
        let overdue = this.idle_deadline.poll(cx, since + this.timeouts.keep_alive).is_ready() && is_idle;
        if overdue {
            return Poll::Ready(Ok(()));
        }
        this.take_first(buf);
        read
    }
}

impl AsyncWrite for FrameIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = match &mut this.stream {
            Stream::Plain(socket) => poll_write_plain(cx, socket, |socket| socket.try_write(bytes)),
            Stream::Tls(tls) => poll_write_tls(cx, tls, bytes, &this.buffers),
        };
        this.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = match &mut this.stream {
            Stream::Plain(socket) => poll_write_plain(cx, socket, |socket| socket.try_write_vectored(slices)),
            Stream::Tls(tls) => match slices {
                [only] => poll_write_tls(cx, tls, only, &this.buffers),
                _ => poll_write_tls_joined(cx, tls, slices, &this.buffers),
            },
        };
        this.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Stream::Tls(tls) = &mut this.stream else { return Poll::Ready(Ok(())) };
        let flushed = tls.poll_flush(cx, &this.buffers);
        this.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.stream.finish(&this.buffers);
        Poll::Ready(Ok(()))
    }
}
