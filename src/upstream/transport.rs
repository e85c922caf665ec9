//! A connection to an endpoint as bytes, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::settings::{Address, Endpoint};
use crate::net::buffer::Out;
use crate::net::socket::Socket;
use crate::net::tls::ClientTls;

/// See the [module](self).
#[derive(Debug)]
pub(super) enum Transport {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Transport {
    /// Connects; to the address that is `resolved` from a name, if there is one. Sends `preamble` before all else.
    pub(super) async fn open(
        endpoint: &Endpoint,
        resolved: Option<SocketAddr>,
        tls: Option<&ClientTls>,
        preamble: Option<&[u8]>,
    ) -> io::Result<Self> {
        let mut socket = socket(endpoint, resolved).await?;
        if let Some(preamble) = preamble {
            socket.write_all(preamble).await?;
        }
        match (&endpoint.server_name, tls) {
            (Some(name), Some(tls)) => Ok(Self::Tls(Box::new(tls.connect(name, socket).await?))),
            // Never in the clear what was to be sealed.
            (Some(_), None) => Err(io::Error::other("there is no TLS to services")),
            (None, _) => Ok(Self::Plain(socket)),
        }
    }

    /// Fails where there is TLS and the service did not agree on HTTP/2.
    pub(super) fn agreed_on_h2(&self) -> io::Result<()> {
        match self {
            Self::Tls(tls) if !ClientTls::agreed_on_h2(tls) => {
                Err(io::Error::other("it did not agree on HTTP/2 by ALPN"))
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing has come, also no end. Without TLS it costs no system call unless the socket has reported
    /// something.
    pub(super) fn is_silent(&mut self) -> bool {
        match self {
            Self::Plain(socket) => {
                socket.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            // A ticket may have come, which is nothing to us.
            Self::Tls(tls) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                Pin::new(&mut **tls).poll_read(&mut cx, &mut ReadBuf::new(&mut [0])).is_pending()
            }
        }
    }

    /// Sends what is taken of `out`; ready when nothing is left.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Out) -> Poll<io::Result<()>> {
        let tls = match self {
            Self::Plain(socket) => return out.poll_write(cx, socket),
            Self::Tls(tls) => &mut **tls,
        };
        while out.pending() > 0 {
            match ready!(Pin::new(&mut *tls).poll_write(cx, out.unsent()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => out.advance(len),
            }
        }
        Pin::new(tls).poll_flush(cx)
    }
}

async fn socket(endpoint: &Endpoint, resolved: Option<SocketAddr>) -> io::Result<Socket> {
    let stream = match (&endpoint.address, resolved) {
        (Address::Unix(path), _) => return UnixStream::connect(path).await.map(Socket::Unix),
        (_, Some(resolved)) => TcpStream::connect(resolved).await?,
        (Address::Srv(_), None) => {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its places are not known yet"));
        }
        (Address::Tcp(authority), None) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            TcpStream::connect((host, endpoint.port())).await?
        }
    };
    // Latency before packet count; a failure to set it costs only that.
    let _ = stream.set_nodelay(true);
    Ok(Socket::Tcp(stream))
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, into),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, into),
        }
    }
}
