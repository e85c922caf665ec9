//! The byte stream of a client's connection, with TLS or without.
//!
//! A closed set of types, so that it costs a branch without TLS.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::time::timeout;

use super::buffer::{BufferPool, InputBuffer, OutputBuffer};
use super::socket::Socket;
use super::tls::TlsStream;

/// The byte stream of a client's connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// The socket below the stream.
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Reads once; 0 at the end of the stream. Takes a buffer only if there are bytes to read.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        let filled = match self {
            Self::Plain(socket) => {
                if input.is_empty() && socket.poll_read_ready(cx)?.is_pending() {
                    Poll::Pending
                } else {
                    input.poll_fill(cx, socket, buffers)
                }
            }
            Self::Tls(tls) => tls.poll_fill(cx, input, buffers),
        };
        match &filled {
            Poll::Ready(Ok(len)) => buffers.client_bytes.received(*len),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => input.release(buffers),
        }
        filled
    }

    /// Writes until the socket accepts no more; ready when all of `out` is written.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<()>> {
        let before = out.pending();
        let written = match self {
            Self::Plain(socket) => out.poll_write(cx, socket),
            Self::Tls(tls) => tls.poll_write(cx, out, buffers),
        };
        buffers.client_bytes.sent(before.saturating_sub(out.pending()));
        written
    }

    /// Bytes that wait to be sent, without those given to [`Stream::poll_write`].
    pub(crate) fn pending(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.pending(),
        }
    }

    /// Waits until the client has closed its direction or the connection is broken, even if unread bytes come before
    /// that.
    ///
    /// tokio reports `EPOLLRDHUP` as readiness for priority data. Nothing else causes that readiness here, because the
    /// socket is not registered for priority data. Over TLS a client may also send `close_notify` and leave the socket
    /// open. That is seen among the first `at_most` bytes, which are read into `input`.
    pub(crate) async fn gone(&mut self, input: &mut InputBuffer, at_most: usize, buffers: &BufferPool) {
        match self {
            // An error means that the runtime ends, and the connection with it.
            Self::Plain(socket) => drop(socket.ready(Interest::PRIORITY).await),
            Self::Tls(tls) => tls.gone(input, at_most, buffers).await,
        }
    }

    /// Reads and drops what the client still sends, until it stops or `at_most` has passed.
    pub(crate) async fn discard(&self, at_most: Duration, buffers: &BufferPool) {
        let socket = self.socket();
        let discard = async {
            let mut waste = buffers.take();
            while socket.readable().await.is_ok() {
                match socket.try_read_buf(&mut waste) {
                    Ok(0) => break,
                    Ok(_) => waste.clear(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        };
        let _ = timeout(at_most, discard).await;
    }

    /// Ends our direction in the middle of a message. TLS sends no `close_notify`, so that the client can tell (RFC
    /// 8446, section 6.1). Without TLS and with `by_reset`, a drop of the socket resets the connection. Returns whether
    /// it will.
    pub(crate) fn cut(&self, by_reset: bool) -> bool {
        let socket = SockRef::from(self.socket());
        if by_reset && matches!(self, Self::Plain(_)) {
            return socket.set_linger(Some(Duration::ZERO)).is_ok();
        }
        let _ = socket.shutdown(std::net::Shutdown::Write);
        false
    }

    /// Ends our direction after a whole message.
    pub(crate) fn finish(&mut self, buffers: &BufferPool) {
        if let Self::Tls(tls) = self {
            tls.close_notify(buffers);
        }
        let _ = SockRef::from(self.socket()).shutdown(std::net::Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    /// Reads of a body grow, although each piece is consumed before the next read; a wait gives the memory back.
    #[tokio::test]
    async fn reads_grow_while_bytes_wait() {
        let (client, server) = UnixStream::pair().unwrap();
        let (mut stream, buffers) = (Stream::Plain(Socket::Unix(server)), BufferPool::default());
        let (mut input, mut sent) = (InputBuffer::default(), 0);
        client.writable().await.unwrap();
        while let Ok(len) = client.try_write(&[7; 16 * 1024]) {
            sent += len;
        }
        let mut reads = Vec::new();
        while reads.iter().sum::<usize>() < sent {
            let len = std::future::poll_fn(|cx| stream.poll_fill(cx, &mut input, &buffers)).await.unwrap();
            input.consume(len);
            reads.push(len);
        }
        assert!(sent > 64 * 1024, "{sent}");
        assert!(reads.iter().any(|len| *len >= 32 * 1024), "{reads:?}");
        let mut wait =
            async || std::future::poll_fn(|cx| Poll::Ready(stream.poll_fill(cx, &mut input, &buffers))).await;
        assert!(wait().await.is_pending());
        assert!(!input.has_memory());
    }
}
