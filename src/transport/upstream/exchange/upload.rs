//! The outgoing half of an exchange: the request head, and the body as it arrives from the client.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::base::fields::FieldBuf;
use crate::transport::http1::encode::Encoder;
use crate::transport::net::pace::Pace;

/// How long a request with `Expect: 100-continue` waits for the upstream to ask for its body. After that the body is sent
/// anyway, as RFC 9110, section 10.1.1, allows.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The source of a request body: the client.
pub(crate) trait Source {
    /// Appends received bytes of the body to `out`, framed by `encoder`, and subtracts their number from `left`. Returns
    /// false at the end of the body.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        left: &mut u64,
    ) -> Poll<Result<bool, BodyFault>>;

    /// The trailer fields, once the body has ended.
    fn trailers(&self) -> Option<&FieldBuf>;
}

/// The destination of a request body: a connection or a stream.
pub(crate) trait BodySink {
    /// Sends queued bytes; ready when all are sent.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether no byte can have reached the upstream.
    fn is_untouched(&self) -> bool;

    /// An empty buffer for the next piece of the body.
    fn next_piece(&mut self) -> &mut Vec<u8>;

    /// Marks the last piece.
    fn end(&mut self, trailers: Option<&FieldBuf>);
}

/// Why a client's body is not passed on completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// It ended early or has wrong framing.
    Broken,
    /// It is longer than allowed.
    TooLarge,
}

/// Subtracts the length of a piece from the remaining bytes `left`. Errs if the piece exceeds them.
pub(crate) fn spend(left: &mut u64, len: usize) -> Result<(), BodyFault> {
    *left = left.checked_sub(len as u64).ok_or(BodyFault::TooLarge)?;
    Ok(())
}

/// Properties of a request that the exchange needs beside its head.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(crate) struct RequestTraits {
    /// The method is HEAD.
    pub(crate) is_head: bool,
    /// The request has a body.
    pub(crate) has_body: bool,
    /// The largest allowed body, in bytes. A longer body ends the exchange.
    pub(crate) max_body: u64,
    /// Bytes that were added to the body, or taken from it.
    pub(crate) added_bytes: i64,
    /// The client waits for a 100 before it sends the body.
    pub(crate) expects_continue: bool,
    /// It may be sent twice: its method is safe and it has no body (RFC 9110, section 9.2.2).
    pub(crate) may_retry: bool,
    /// It asks for a change of protocol.
    pub(crate) may_switch: bool,
    /// It authenticates its connection (NTLM or Negotiate).
    pub(crate) authenticates_connection: bool,
    /// Its trailers are passed on.
    pub(crate) passes_trailers: bool,
}

/// The progress of one request body.
#[derive(Debug)]
pub(crate) struct Upload {
    encoder: Encoder,
    state: BodyState,
    /// Remaining bytes that the body may have.
    left: u64,
    /// Its trailers are passed on.
    passes_trailers: bool,
    /// How fast it arrives.
    pub(crate) pace: Pace,
    /// The client has not sent the next piece yet.
    pub(crate) awaits_client: bool,
    /// Bytes of the request may have reached the upstream.
    pub(crate) is_touched: bool,
}

/// The state of the body.
#[derive(Debug)]
enum BodyState {
    /// It waits until the upstream asks for it.
    Expected(Pin<Box<Sleep>>),
    Running,
    Ended,
    /// The upstream takes no more bytes; it may still answer.
    Refused,
    Cut(BodyFault),
}

impl BodyState {
    /// The state before any byte of `request` was sent.
    fn of(request: RequestTraits) -> Self {
        match request {
            RequestTraits { has_body: false, .. } => Self::Ended,
            RequestTraits { expects_continue: true, .. } => Self::Expected(Box::pin(sleep(CONTINUE_TIMEOUT))),
            _ => Self::Running,
        }
    }
}

impl Upload {
    /// The body of a request whose head is on its connection.
    pub(crate) fn new(request: RequestTraits, encoder: Encoder) -> Self {
        Self {
            encoder,
            state: BodyState::of(request),
            left: request.max_body,
            passes_trailers: request.passes_trailers,
            pace: Pace::default(),
            awaits_client: false,
            is_touched: false,
        }
    }

    /// Begins again; no byte of the body has been taken from the client.
    pub(crate) fn restart(&mut self, request: RequestTraits) {
        if !matches!(self.state, BodyState::Running) {
            self.state = BodyState::of(request);
        }
        self.left = request.max_body;
        (self.awaits_client, self.is_touched) = (false, false);
    }

    /// Begins again with the bytes already taken from the client; `is_whole`: they are the whole body.
    pub(crate) fn resume(&mut self, is_whole: bool) {
        self.state = if is_whole { BodyState::Ended } else { BodyState::Running };
        (self.awaits_client, self.is_touched) = (false, false);
    }

    /// Bytes that were taken from the client.
    pub(crate) fn taken(&self, request: RequestTraits) -> u64 {
        (request.max_body - self.left).saturating_sub_signed(request.added_bytes)
    }

    /// Whether the whole body has been taken from the client.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, BodyState::Ended)
    }

    /// The client's fault that ended the body early, if any.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        match self.state {
            BodyState::Cut(fault) => Some(fault),
            _ => None,
        }
    }

    /// Whether no further byte will be taken from the client.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, BodyState::Ended | BodyState::Refused | BodyState::Cut(_))
    }

    /// Lets the body begin: the upstream has asked for it.
    pub(crate) fn go_on(&mut self) {
        if let BodyState::Expected(_) = self.state {
            self.state = BodyState::Running;
        }
    }

    /// Sends as much as is possible now. Returns whether bytes of the body moved.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, sink: &mut impl BodySink, source: &mut impl Source) -> bool {
        let mut has_moved = false;
        self.awaits_client = false;
        if matches!(self.state, BodyState::Refused | BodyState::Cut(_)) {
            return has_moved;
        }
        loop {
            let written = sink.poll_send(cx);
            self.is_touched |= !sink.is_untouched();
            match written {
                Poll::Pending => {
                    self.pace.rest();
                    return has_moved;
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "the upstream takes no more of a request");
                    self.state = BodyState::Refused;
                    return has_moved;
                }
            }
            if let BodyState::Expected(timeout) = &mut self.state
                && timeout.as_mut().poll(cx).is_ready()
            {
                self.state = BodyState::Running;
            }
            if !matches!(self.state, BodyState::Running) {
                return has_moved;
            }
            let left = self.left;
            let polled = source.poll_body(cx, sink.next_piece(), &self.encoder, &mut self.left);
            self.pace.moved(left - self.left);
            match polled {
                Poll::Pending => {
                    self.awaits_client = true;
                    return has_moved;
                }
                Poll::Ready(Ok(true)) => has_moved = true,
                Poll::Ready(Ok(false)) => {
                    sink.end(source.trailers().filter(|_| self.passes_trailers));
                    (self.state, has_moved) = (BodyState::Ended, true);
                }
                Poll::Ready(Err(fault)) => self.state = BodyState::Cut(fault),
            }
        }
    }
}
