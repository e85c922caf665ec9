//! One connection to an endpoint.

use std::future::Future;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::queue::Slot;
use super::settings::Endpoint;
use super::transport::Transport;
use super::upload::Carrier;
use crate::fields::{FieldBuf, Spans};
use crate::net::buffer::{Buffer, Out};

/// A connection, and what goes through it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) stream: Transport,
    /// What has come and is not taken yet.
    pub(super) input: Buffer,
    /// Where the fields of the last response lie in it.
    pub(super) spans: Spans,
    /// What is to be sent.
    pub(super) out: Out,
    /// When it went into the pool, in sweeps of that; none for one that was never used.
    pub(super) idle_since: Option<u64>,
    /// While its endpoint counts it.
    pub(super) slot: Slot,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Not in time.
    Timeout,
    /// Refused, unreachable, or no such name.
    Failed(io::Error),
    /// There are as many as there may be, and too many wait for one, or this one did for too long.
    Busy,
    /// The client has as many requests as it may have.
    TooMany,
}

impl ConnectError {
    /// The same, with the endpoint that it is about, for the log.
    pub(super) fn at(self, endpoint: &Endpoint) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(io::Error::new(error.kind(), format!("{endpoint}: {error}"))),
            other => other,
        }
    }
}

impl Connection {
    /// Opens one by `opening`, which is given up in time. It holds `slot`.
    pub(super) async fn connect(
        opening: impl Future<Output = io::Result<Transport>>,
        at_most: Duration,
        slot: Slot,
    ) -> Result<Box<Self>, ConnectError> {
        let stream = match timeout(at_most, opening).await {
            Ok(connected) => connected.map_err(ConnectError::Failed)?,
            Err(_) => return Err(ConnectError::Timeout),
        };
        let (input, spans, out) = (Buffer::default(), Spans::default(), Out::default());
        Ok(Box::new(Self { stream, input, spans, out, idle_since: None, slot }))
    }

    /// Whether another request can be sent: nothing has come that nobody asked for, also no end.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.input.is_empty() && self.stream.is_silent()
    }
}

impl Carrier for Connection {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_send(cx, &mut self.out)
    }

    fn is_untouched(&self) -> bool {
        self.out.is_untouched()
    }

    fn next_piece(&mut self) -> &mut Vec<u8> {
        self.out.clear();
        self.out.bytes()
    }

    /// The framing of the last piece says it.
    fn end(&mut self, _trailers: Option<&FieldBuf>) {}
}
