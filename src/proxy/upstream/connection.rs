//! One connection to an endpoint.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::super::buffer::{Buffer, Out};
use super::super::settings::{Address, HTTP_PORT};
use super::queue::Slot;
use super::socket::Socket;
use crate::policy::Spans;

/// A connection, and what goes through it.
#[derive(Debug)]
pub(in super::super) struct Connection {
    pub(super) stream: Socket,
    /// What has come and is not taken yet.
    pub(super) input: Buffer,
    /// Where the fields of the last response lie in it.
    pub(super) spans: Spans,
    /// What is to be sent.
    pub(super) out: Out,
    /// When it went into the pool, in sweeps of that; none for one that was never used.
    pub(super) idle_since: Option<u64>,
    /// While its endpoint counts it.
    _slot: Option<Slot>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(in super::super) enum ConnectError {
    /// Not in time.
    Timeout,
    /// Refused, unreachable, or no such name.
    Failed(std::io::Error),
    /// There are as many as there may be, and too many wait for one, or this one did for too long.
    Busy,
}

impl Connection {
    pub(super) async fn connect(
        address: &Address,
        resolved: Option<SocketAddr>,
        at_most: Duration,
        slot: Option<Slot>,
    ) -> Result<Box<Self>, ConnectError> {
        let stream = match timeout(at_most, open(address, resolved)).await {
            Ok(connected) => connected.map_err(ConnectError::Failed)?,
            Err(_) => return Err(ConnectError::Timeout),
        };
        let (input, spans, out) = (Buffer::default(), Spans::default(), Out::default());
        Ok(Box::new(Self { stream, input, spans, out, idle_since: None, _slot: slot }))
    }

    /// Whether another request can be sent: nothing has come that nobody asked for, also no end. Costs no system
    /// call unless the socket has reported something.
    pub(super) fn is_reusable(&self) -> bool {
        let is_silent = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        self.input.is_empty() && self.stream.try_read(&mut [0]).is_err_and(is_silent)
    }
}

/// Connects; to the address that is `resolved` from a name, if there is one.
pub(super) async fn open(address: &Address, resolved: Option<SocketAddr>) -> std::io::Result<Socket> {
    let stream = match (address, resolved) {
        (Address::Unix(path), _) => return UnixStream::connect(path).await.map(Socket::Unix),
        (Address::Tcp(_), Some(resolved)) => TcpStream::connect(resolved).await?,
        (Address::Tcp(authority), None) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            TcpStream::connect((host, authority.port_u16().unwrap_or(HTTP_PORT))).await?
        }
    };
    // Latency before packet count; a failure to set it costs only that.
    let _ = stream.set_nodelay(true);
    Ok(Socket::Tcp(stream))
}
