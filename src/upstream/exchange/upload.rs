//! The half of an exchange that goes out: the head of a request, and its body as that comes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::fields::FieldBuf;
use crate::http1::encode::Encoder;
use crate::net::pace::Pace;

/// How long an upstream may take to ask for the body of a request that says `Expect: 100-continue`. Then it is sent
/// anyway, as RFC 9110, section 10.1.1, allows.
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// Where the body of a request comes from.
pub(crate) trait Source {
    /// Writes what has come of the body to `out`, as `encoder` frames it, and takes its length from `left`. `false`: that
    /// was the end.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        left: &mut u64,
    ) -> Poll<Result<bool, BodyFault>>;

    /// The fields after the body, once that has ended.
    fn trailers(&self) -> Option<&FieldBuf>;
}

/// What a request goes out on.
pub(crate) trait BodySink {
    /// Sends what is taken of what is to be sent; ready when nothing is left.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether none of it can have reached the upstream.
    fn is_untouched(&self) -> bool;

    /// Where the next piece of the body is put. What was there before is gone.
    fn next_piece(&mut self) -> &mut Vec<u8>;

    /// The last piece is there.
    fn end(&mut self, trailers: Option<&FieldBuf>);
}

/// Why a client's body is not sent on to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// It broke off, or its framing did.
    Broken,
    /// It is longer than it may be.
    TooLarge,
}

/// Takes a piece of a body from what is `left` of its bound.
pub(crate) fn spend(left: &mut u64, len: usize) -> Result<(), BodyFault> {
    *left = left.checked_sub(len as u64).ok_or(BodyFault::TooLarge)?;
    Ok(())
}

/// What matters of a request once its head is written.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(crate) struct RequestTraits {
    /// It is HEAD.
    pub(crate) is_head: bool,
    /// It has a body.
    pub(crate) has_body: bool,
    /// Bytes that the body may have; what is longer is cut off there.
    pub(crate) max_body: u64,
    /// The body waits for a 100.
    pub(crate) expects_continue: bool,
    /// It may go out twice: it is safe and has no body (RFC 9110, section 9.2.2).
    pub(crate) may_repeat: bool,
    /// It asks for another protocol.
    pub(crate) may_switch: bool,
    /// `Host` is the endpoint's, not the client's.
    pub(crate) has_own_host: bool,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Upload {
    encoder: Encoder,
    state: BodyState,
    /// Bytes of the body that may still come.
    left: u64,
    /// How fast it comes.
    pub(crate) pace: Pace,
    /// The last piece that was asked for has not come from the client.
    pub(crate) awaits_client: bool,
    /// Bytes of it may have reached the upstream.
    pub(crate) is_touched: bool,
}

/// How the body fares.
#[derive(Debug)]
enum BodyState {
    /// It waits for the upstream to ask for it.
    Expected(Pin<Box<Sleep>>),
    Running,
    Ended,
    /// The upstream takes no more; it may still answer.
    Refused,
    Cut(BodyFault),
}

impl BodyState {
    /// Before anything of `request` was sent.
    fn of(request: RequestTraits) -> Self {
        match request {
            RequestTraits { has_body: false, .. } => Self::Ended,
            RequestTraits { expects_continue: true, .. } => Self::Expected(Box::pin(sleep(CONTINUE_PATIENCE))),
            _ => Self::Running,
        }
    }
}

impl Upload {
    /// Of a request whose head is on its connection.
    pub(crate) fn new(request: RequestTraits, encoder: Encoder) -> Self {
        Self {
            encoder,
            state: BodyState::of(request),
            left: request.max_body,
            pace: Pace::default(),
            awaits_client: false,
            is_touched: false,
        }
    }

    /// Begins anew; nothing of the body has been asked for.
    pub(crate) fn restart(&mut self, request: RequestTraits) {
        (self.state, self.left) = (BodyState::of(request), request.max_body);
        (self.awaits_client, self.is_touched) = (false, false);
    }

    /// Begins anew with what has been taken of the body, which is all of it if `is_whole`.
    pub(crate) fn resume(&mut self, is_whole: bool) {
        self.state = if is_whole { BodyState::Ended } else { BodyState::Running };
        (self.awaits_client, self.is_touched) = (false, false);
    }

    /// Whether all of it has been taken.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, BodyState::Ended)
    }

    /// Why it will never come to its end, if that is the client's doing.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        match self.state {
            BodyState::Cut(fault) => Some(fault),
            _ => None,
        }
    }

    /// Whether nothing more of it will be taken from the client.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, BodyState::Ended | BodyState::Refused | BodyState::Cut(_))
    }

    /// The upstream has asked for the body.
    pub(crate) fn go_on(&mut self) {
        if let BodyState::Expected(_) = self.state {
            self.state = BodyState::Running;
        }
    }

    /// Moves on as far as it goes now. Says whether anything of the body moved.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, carrier: &mut impl BodySink, source: &mut impl Source) -> bool {
        let mut has_moved = false;
        self.awaits_client = false;
        if matches!(self.state, BodyState::Refused | BodyState::Cut(_)) {
            return has_moved;
        }
        loop {
            let written = carrier.poll_send(cx);
            self.is_touched |= !carrier.is_untouched();
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
            if let BodyState::Expected(patience) = &mut self.state
                && patience.as_mut().poll(cx).is_ready()
            {
                self.state = BodyState::Running;
            }
            if !matches!(self.state, BodyState::Running) {
                return has_moved;
            }
            let left = self.left;
            let polled = source.poll_body(cx, carrier.next_piece(), &self.encoder, &mut self.left);
            self.pace.moved(left - self.left);
            match polled {
                Poll::Pending => {
                    self.awaits_client = true;
                    return has_moved;
                }
                Poll::Ready(Ok(true)) => has_moved = true,
                Poll::Ready(Ok(false)) => {
                    carrier.end(source.trailers());
                    (self.state, has_moved) = (BodyState::Ended, true);
                }
                Poll::Ready(Err(fault)) => self.state = BodyState::Cut(fault),
            }
        }
    }
}
