//! A connection to an endpoint as bytes, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::transport::net::buffer::OutputBuffer;
use crate::transport::net::socket::{Socket, read_variants, write_variants};
use crate::transport::net::tls::ClientTls;
use crate::transport::upstream::settings::{Address, Endpoint};

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum EndpointStream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl EndpointStream {
    /// Connects to `resolved`, or else to the address or name of `endpoint`. Sends `preamble` first, before TLS.
    pub(crate) async fn open(
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
            // Never sends plain text where TLS is configured.
            (Some(_), None) => Err(io::Error::other("no TLS is configured for services")),
            (None, _) => Ok(Self::Plain(socket)),
        }
    }

    /// Errs if the connection uses TLS and the service did not agree on HTTP/2 by ALPN.
    pub(crate) fn require_h2(&self) -> io::Result<()> {
        match self {
            Self::Tls(tls) if !ClientTls::agreed_on_h2(tls) => {
                Err(io::Error::other("the service did not agree on HTTP/2 by ALPN"))
            }
            _ => Ok(()),
        }
    }

    /// Whether neither a byte nor the end of the stream has arrived. Without TLS this costs no system call unless the
    /// socket has reported an event.
    pub(crate) fn is_silent(&mut self) -> bool {
        match self {
            Self::Plain(socket) => {
                socket.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            // A session ticket may have arrived; it is not data.
            Self::Tls(tls) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                Pin::new(&mut **tls).poll_read(&mut cx, &mut ReadBuf::new(&mut [0])).is_pending()
            }
        }
    }

    /// Sends bytes of `out`; ready when all are sent.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut OutputBuffer) -> Poll<io::Result<()>> {
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
            return Err(io::Error::new(io::ErrorKind::NotFound, "the addresses of the service are not known yet"));
        }
        (Address::Tcp(authority), None) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            TcpStream::connect((host, endpoint.port())).await?
        }
    };
    // Low latency matters more than few packets. A failure is harmless.
    let _ = stream.set_nodelay(true);
    Ok(Socket::Tcp(stream))
}

read_variants!(EndpointStream: Plain, Tls);
write_variants!(EndpointStream: Plain, Tls);
