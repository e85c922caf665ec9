//! One connection to the upstream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Request;
use http::uri::Authority;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::super::body::RequestBody;
use super::super::deadline::Deadline;

/// A connection and the one who sends on it.
#[derive(Debug)]
pub(super) struct Connection {
    send: SendRequest<RequestBody>,
    io: http1::Connection<TokioIo<TcpStream>, RequestBody>,
    is_over: bool,
    pub(super) deadline: Deadline,
    /// When it went into the pool, in sweeps of that.
    pub(super) idle_since: Option<u64>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(in super::super) enum ConnectError {
    /// Not in time.
    Timeout,
    /// Refused, unreachable, or no such name.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

const HTTP_PORT: u16 = 80;

impl Connection {
    pub(super) async fn connect(authority: &Authority, at_most: Duration) -> Result<Box<Self>, ConnectError> {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let address = (host, authority.port_u16().unwrap_or(HTTP_PORT));
        let stream = match timeout(at_most, TcpStream::connect(address)).await {
            Ok(connected) => connected.map_err(|error| ConnectError::Failed(error.into()))?,
            Err(_) => return Err(ConnectError::Timeout),
        };
        // Latency before packet count; a failure to set it costs only that.
        let _ = stream.set_nodelay(true);
        // Most requests are a head and nothing else, which one plain write sends cheaper than a vectored one.
        let handshake = http1::Builder::new().writev(false).handshake(TokioIo::new(stream)).await;
        let (send, io) = handshake.map_err(|error| ConnectError::Failed(error.into()))?;
        Ok(Box::new(Self { send, io, is_over: false, deadline: Deadline::default(), idle_since: None }))
    }

    /// Moves bytes both ways. Never ready: what has ended shows in what was waited for.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.is_over && Pin::new(&mut self.io).poll(cx).is_ready() {
            self.is_over = true;
        }
    }

    /// Whether another request can be sent, as far as one can tell without sending one.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.is_over && self.send.is_ready()
    }

    /// Hands over a request; the future must be polled between calls of [`Connection::drive`].
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<http::Response<hyper::body::Incoming>, TrySendError<Request<RequestBody>>>> + use<>
    {
        self.send.try_send_request(request)
    }

    /// Ready once `at` has passed.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        self.deadline.poll(cx, at)
    }
}
