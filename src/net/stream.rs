//! A client's connection as bytes, with TLS or without.
//!
//! A closed set, so that without TLS it costs a branch.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::time::timeout;

use super::buffer::{Buffer, Buffers, Out};
use super::socket::Socket;
use super::tls::TlsStream;

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// What is under it.
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Reads once, with a buffer only if there is something to read; 0 at the end of the stream.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Buffer,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        let filled = match self {
            Self::Plain(socket) => {
                if !input.has_memory() || input.is_empty() {
                    input.release(buffers);
                    ready!(socket.poll_read_ready(cx))?;
                }
                input.poll_fill(cx, socket, buffers)
            }
            Self::Tls(tls) => tls.poll_fill(cx, input, buffers),
        };
        if filled.is_pending() {
            input.release(buffers);
        }
        filled
    }

    /// Sends what the socket takes; ready when nothing is left.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Out,
        buffers: &Buffers,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => out.poll_write(cx, socket),
            Self::Tls(tls) => tls.poll_write(cx, out, buffers),
        }
    }

    /// Bytes that wait to be sent, beside those that are given to [`Stream::poll_write`].
    pub(crate) fn pending(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.pending(),
        }
    }

    /// Waits until the client has closed its side or the connection is broken, whatever lies unread before that.
    ///
    /// Readiness for priority data is what tokio reports `EPOLLRDHUP` with, and nothing else sets it here: the
    /// socket is not registered for such data. Over TLS a client may also say that it closes and leave the socket
    /// open; that is seen among the first `at_most` bytes, which are taken into `input`.
    pub(crate) async fn gone(&mut self, input: &mut Buffer, at_most: usize, buffers: &Buffers) {
        match self {
            // An error means that the runtime is going away, and the client with it.
            Self::Plain(socket) => drop(socket.ready(Interest::PRIORITY).await),
            Self::Tls(tls) => tls.gone(input, at_most, buffers).await,
        }
    }

    /// Takes what the client still sends, until it stops.
    pub(crate) async fn discard(&self, at_most: Duration, buffers: &Buffers) {
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

    /// Ends our side in the middle of a message. TLS gets no `close_notify`, which tells the client (RFC 8446, section
    /// 6.1). Without TLS and with `by_reset`, dropping the socket resets the connection; returns whether it will.
    pub(crate) fn cut(&self, by_reset: bool) -> bool {
        let socket = SockRef::from(self.socket());
        if by_reset && matches!(self, Self::Plain(_)) {
            return socket.set_linger(Some(Duration::ZERO)).is_ok();
        }
        let _ = socket.shutdown(std::net::Shutdown::Write);
        false
    }

    /// Says that nothing more comes from us.
    pub(crate) fn finish(&mut self, buffers: &Buffers) {
        if let Self::Tls(tls) = self {
            tls.close_notify(buffers);
        }
        let _ = SockRef::from(self.socket()).shutdown(std::net::Shutdown::Write);
    }
}
