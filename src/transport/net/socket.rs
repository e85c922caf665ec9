//! The socket of a connection: TCP, or a Unix socket.
//!
//! A closed set of types, so that a call costs a branch.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BufMut;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use super::buffer::Writable;

/// Unsent bytes that the kernel accepts for a socket. It reports space again at half of that.
const UNSENT_MAX: u32 = 64 * 1024;

/// An expression of the socket in each variant.
macro_rules! either {
    ($of:expr, $socket:ident => $value:expr) => {
        match $of {
            Self::Tcp($socket) => $value,
            Self::Unix($socket) => $value,
        }
    };
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Turns Nagle's algorithm off. A failure costs latency only, so it is ignored.
    pub(crate) fn set_nodelay(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket.set_nodelay(true);
        }
    }

    /// Bounds the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`). Bytes in flight do not count, so that no connection
    /// gets slower.
    pub(crate) fn bound_unsent(&self) {
        if let Self::Tcp(socket) = self {
            let _ = SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_MAX);
        }
    }

    /// The local address, if there is one.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Ready when there may be bytes to read.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, socket => socket.poll_read_ready(cx))
    }

    /// Waits until there may be bytes to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        either!(self, socket => socket.readable().await)
    }

    /// Waits for `interest`.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        either!(self, socket => socket.ready(interest).await)
    }

    /// Reads the bytes that are available, and returns their number.
    pub(crate) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => socket.try_read(into))
    }

    /// Reads the bytes that are available into growable memory, and returns their number.
    pub(crate) fn try_read_buf(&self, into: &mut impl BufMut) -> io::Result<usize> {
        either!(self, socket => socket.try_read_buf(into))
    }

    /// Both directions, so that a task can wait on one while it reads the other.
    pub(crate) fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        match self {
            Self::Tcp(socket) => {
                let (read, write) = socket.split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Self::Unix(socket) => {
                let (read, write) = socket.split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, socket => socket.as_fd())
    }
}

impl Writable for Socket {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, socket => socket.try_write(bytes))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, socket => socket.poll_write_ready(cx))
    }
}

/// `AsyncRead` for an enum whose variants have one stream each.
macro_rules! read_variants {
    ($name:ty: $($variant:ident),+) => {
        impl AsyncRead for $name {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_read(cx, into)),+ }
            }
        }
    };
}

/// `AsyncWrite` for an enum whose variants have one stream each.
macro_rules! write_variants {
    ($name:ty: $($variant:ident),+) => {
        impl AsyncWrite for $name {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_write(cx, bytes)),+ }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_write_vectored(cx, slices)),+ }
            }

            fn is_write_vectored(&self) -> bool {
                match self { $(Self::$variant(stream) => stream.is_write_vectored()),+ }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_flush(cx)),+ }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_shutdown(cx)),+ }
            }
        }
    };
}

pub(crate) use {read_variants, write_variants};

read_variants!(Socket: Tcp, Unix);
write_variants!(Socket: Tcp, Unix);

/// The read half of a [`Socket`].
#[derive(Debug)]
pub(crate) enum ReadHalf<'s> {
    Tcp(tcp::ReadHalf<'s>),
    Unix(unix::ReadHalf<'s>),
}

impl ReadHalf<'_> {
    /// Ready when there may be bytes to read.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, half => half.as_ref().poll_read_ready(cx))
    }
}

read_variants!(ReadHalf<'_>: Tcp, Unix);

/// TLS may have to answer a record at once.
impl Writable for ReadHalf<'_> {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, half => half.as_ref().try_write(bytes))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, half => half.as_ref().poll_write_ready(cx))
    }
}

/// The write half of a [`Socket`], used only to wait.
#[derive(Debug)]
pub(crate) enum WriteHalf<'s> {
    Tcp(tcp::WriteHalf<'s>),
    Unix(unix::WriteHalf<'s>),
}

impl WriteHalf<'_> {
    /// Waits for `interest`.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        either!(self, half => half.ready(interest).await)
    }
}
