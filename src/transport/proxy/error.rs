//! Maps errors of the data path to kinds of problems.

use std::borrow::Cow;
use std::cell::Cell;
use std::error;

use tracing::Level;

use crate::base::time;
use crate::transport::http1::HeadFault;
use crate::transport::respond::{LocalReply, ProblemKind};
use crate::transport::upstream::ExchangeError;

/// The detail of a 413.
pub(super) const BODY_TOO_LARGE: &str = "the body is too long";

type ProblemDetail = (ProblemKind, Cow<'static, str>);

/// The response to a refused head.
pub(super) fn head_fault<'a>(fault: HeadFault) -> LocalReply<'a> {
    let (kind, detail) = match fault {
        HeadFault::Malformed(reason) => (ProblemKind::Malformed, not_valid(reason)),
        HeadFault::AmbiguousFraming(reason) => (ProblemKind::AmbiguousFraming, not_valid(reason)),
        HeadFault::TooLarge => (ProblemKind::HeadTooLarge, "the head has too many bytes or fields".into()),
        HeadFault::UriTooLong => (ProblemKind::UriTooLong, "the target is too long".into()),
        HeadFault::Timeout => (ProblemKind::RequestTimeout, "the head did not arrive in time".into()),
        HeadFault::ConnectRefused => return no_connect(),
    };
    tracing::debug!("{detail}");
    LocalReply::new(kind, detail, false)
}

fn not_valid(reason: &str) -> Cow<'static, str> {
    format!("the head is not valid: {reason}").into()
}

/// The response to a CONNECT, with the methods that services get.
pub(super) fn no_connect<'a>() -> LocalReply<'a> {
    LocalReply::method_refused("CONNECT is not supported", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
}

/// The problem of a failed exchange with an upstream, and with an endpoint if one got the request. The error and the
/// names of both are logged, not sent.
pub(super) fn exchange_error(
    failure: &ExchangeError,
    (upstream, endpoint): (&str, Option<&str>),
    log: &ProblemLog,
) -> ProblemDetail {
    let (kind, detail) = match failure {
        ExchangeError::ConnectTimeout(_) => (ProblemKind::ConnectTimeout, "the upstream did not accept in time"),
        ExchangeError::Busy => (ProblemKind::UpstreamBusy, "the upstream has no connection left"),
        ExchangeError::TooMany => (ProblemKind::ClientBusy, "too many requests of this client are in progress"),
        ExchangeError::Drained => {
            (ProblemKind::UpstreamDrained, "an operator has drained all endpoints of the upstream")
        }
        ExchangeError::Connect(_) => (ProblemKind::BadGateway, "the upstream cannot be reached"),
        ExchangeError::Broken(_) => (ProblemKind::BadGateway, "the upstream closed the connection"),
        ExchangeError::Malformed(_) => (ProblemKind::BadGateway, "the response of the upstream is malformed"),
        ExchangeError::Unencodable => {
            (ProblemKind::Malformed, "the protocol of the upstream cannot express the request")
        }
        ExchangeError::Switched => {
            (ProblemKind::BadGateway, "the upstream switched to a protocol that was not requested")
        }
        ExchangeError::Ignored => (ProblemKind::BadGateway, "the upstream did not switch protocols as requested"),
        ExchangeError::UpstreamTimeout => (ProblemKind::GatewayTimeout, "the upstream did not answer in time"),
        ExchangeError::BodyTooLarge => (ProblemKind::BodyTooLarge, BODY_TOO_LARGE),
        ExchangeError::ClientTimeout => (ProblemKind::RequestTimeout, "the body did not arrive in time"),
        ExchangeError::ClientBroken => (ProblemKind::Malformed, "the body is incomplete or malformed"),
    };
    let cause: Option<&dyn error::Error> = match failure {
        ExchangeError::Broken(cause) | ExchangeError::Connect(cause) | ExchangeError::ConnectTimeout(cause) => {
            Some(cause)
        }
        ExchangeError::Malformed(cause) => Some(cause),
        _ => None,
    };
    log.write((kind, detail), (upstream, endpoint), cause);
    (kind, detail.into())
}

/// Log lines about failed requests, limited in rate so that a failing upstream does not flood the log.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    /// The current second, since an arbitrary instant, and its number of lines.
    second: Cell<(u64, u32)>,
    left_out: Cell<u64>,
}

/// Lines of one worker per second.
const LINES_PER_S: u32 = 5;

impl ProblemLog {
    /// Writes a line with the level of the problem. Lines below `warn` are not limited.
    fn write(
        &self,
        (kind, detail): (ProblemKind, &str),
        (upstream, endpoint): (&str, Option<&str>),
        cause: Option<&dyn error::Error>,
    ) {
        let cause = cause.map(tracing::field::display);
        if kind.level() > Level::WARN {
            return tracing::debug!(upstream, endpoint, cause, "{detail}");
        }
        let (second, lines) = self.second.get();
        let now = time::system_now().as_secs();
        let lines = if second == now { lines } else { 0 };
        if lines >= LINES_PER_S {
            return self.left_out.set(self.left_out.get() + 1);
        }
        self.second.set((now, lines + 1));
        let left_out = Some(self.left_out.take()).filter(|left_out| *left_out > 0);
        tracing::warn!(upstream, endpoint, cause, lines_left_out = left_out, "{detail}");
    }
}
