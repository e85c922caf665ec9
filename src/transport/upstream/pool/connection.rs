//! One HTTP/1 connection to an endpoint.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::permit::ConnectionPermit;
use super::stream::EndpointStream;
use crate::base::fields::Spans;
use crate::transport::net::buffer::{InputBuffer, OutputBuffer};
use crate::transport::upstream::settings::Endpoint;

/// A connection and its buffers.
#[derive(Debug)]
pub(crate) struct H1Connection {
    pub(crate) stream: EndpointStream,
    /// Received bytes that have not been consumed.
    pub(crate) input: InputBuffer,
    /// Positions of the fields of the last response head in `input`.
    pub(crate) spans: Spans,
    /// Bytes to be sent.
    pub(crate) out: OutputBuffer,
    /// The TLS session holds no byte of `out` that the socket has not taken.
    pub(crate) is_flushed: bool,
    /// When it entered the pool, in sweeps of the pool; none if no request has used it.
    pub(crate) idle_since: Option<u64>,
    /// Held until the connection is closed.
    pub(crate) permit: ConnectionPermit,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// Not connected within the connect timeout.
    #[error("{0}")]
    Timeout(io::Error),
    /// The endpoint refused, cannot be reached, or its name is unknown.
    #[error("{0}")]
    Failed(io::Error),
    /// All connections are in use, and the queue is full or the request waited for too long.
    #[error("no connection is free")]
    Busy,
    /// The client has as many requests as it may have.
    #[error("the client has too many requests")]
    TooMany,
    /// Operators drain all endpoints that could be tried.
    #[error("all endpoints are drained")]
    Drained,
}

impl ConnectError {
    pub(crate) fn timeout() -> Self {
        Self::Timeout(io::Error::new(io::ErrorKind::TimedOut, "not connected in time"))
    }

    /// A copy with the endpoint in its text, for the log.
    pub(crate) fn at(&self, endpoint: &Endpoint) -> Self {
        let named = |error: &io::Error| io::Error::new(error.kind(), format!("{endpoint}: {error}"));
        match self {
            Self::Timeout(error) => Self::Timeout(named(error)),
            Self::Failed(error) => Self::Failed(named(error)),
            Self::Busy => Self::Busy,
            Self::TooMany => Self::TooMany,
            Self::Drained => Self::Drained,
        }
    }
}

/// Awaits `opening` for at most `connect_timeout`.
pub(super) async fn in_time<T>(
    opening: impl Future<Output = io::Result<T>>,
    connect_timeout: Duration,
) -> Result<T, ConnectError> {
    match timeout(connect_timeout, opening).await {
        Ok(opened) => opened.map_err(ConnectError::Failed),
        Err(_) => Err(ConnectError::timeout()),
    }
}

impl H1Connection {
    /// A new connection, which holds `permit`.
    pub(super) fn new(stream: EndpointStream, permit: ConnectionPermit) -> Box<Self> {
        let (input, spans, out) = (InputBuffer::default(), Spans::default(), OutputBuffer::default());
        Box::new(Self { stream, input, spans, out, is_flushed: true, idle_since: None, permit })
    }

    /// Whether the socket has taken all bytes.
    pub(crate) fn has_flushed(&self) -> bool {
        self.is_flushed && self.out.pending() == 0
    }

    /// Whether another request can be sent: no unexpected byte and no end of the stream has arrived.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.input.is_empty() && self.stream.is_silent()
    }
}
