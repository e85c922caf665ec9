//! What goes wrong on the data path, as the kinds of problem that clients are told.

use std::borrow::Cow;
use std::cell::Cell;
use std::error;

use tracing::Level;

use crate::http1::HeadFault;
use crate::respond::ProblemKind;
use crate::time;
use crate::upstream::ExchangeError;

/// What someone is told who sends too much.
pub(super) const BODY_TOO_LARGE: &str = "the body is too long";

type Described = (ProblemKind, Cow<'static, str>);

/// A head that is refused.
pub(super) fn head_fault(fault: HeadFault) -> Described {
    let (kind, detail) = match fault {
        HeadFault::Malformed(reason) => (ProblemKind::Malformed, reason),
        HeadFault::AmbiguousFraming(reason) => (ProblemKind::AmbiguousFraming, reason),
        HeadFault::TooLarge => (ProblemKind::HeadTooLarge, "the head has too many bytes or fields"),
        HeadFault::UriTooLong => (ProblemKind::UriTooLong, "the target is too long"),
        HeadFault::Timeout => (ProblemKind::RequestTimeout, "the head did not arrive in time"),
        HeadFault::ConnectRefused => (ProblemKind::MethodRefused, "this is no tunnel"),
    };
    tracing::debug!("{detail}");
    (kind, detail.into())
}

/// An exchange without a response. What the upstream is called and said is logged, not told.
pub(super) fn exchange_error(failure: &ExchangeError, log: &ProblemLog) -> Described {
    let (kind, detail) = match failure {
        ExchangeError::ConnectTimeout => (ProblemKind::GatewayTimeout, "the upstream did not accept in time"),
        ExchangeError::Busy => (ProblemKind::UpstreamBusy, "the upstream has no connection left"),
        ExchangeError::TooMany => (ProblemKind::ClientBusy, "too many requests of this client are in progress"),
        ExchangeError::Connect(_) => (ProblemKind::BadGateway, "the upstream cannot be reached"),
        ExchangeError::Broken(_) => (ProblemKind::BadGateway, "the upstream broke off"),
        ExchangeError::Malformed(_) => (ProblemKind::BadGateway, "the upstream's answer cannot be read"),
        ExchangeError::Unencodable => (ProblemKind::Malformed, "the upstream's protocol has no way to say it"),
        ExchangeError::Switched => {
            (ProblemKind::BadGateway, "the upstream switched protocols, and not as it was asked to")
        }
        ExchangeError::Ignored => (ProblemKind::BadGateway, "the upstream did not switch protocols as it was asked to"),
        ExchangeError::UpstreamTimeout => (ProblemKind::GatewayTimeout, "the upstream did not answer in time"),
        ExchangeError::BodyTooLarge => (ProblemKind::BodyTooLarge, BODY_TOO_LARGE),
        ExchangeError::ClientTimeout => (ProblemKind::RequestTimeout, "the body did not arrive in time"),
        ExchangeError::ClientBroken => (ProblemKind::Malformed, "the body broke off, or is not framed as it should be"),
    };
    match failure {
        ExchangeError::Broken(cause) | ExchangeError::Connect(cause) => log.write(kind, detail, Some(cause)),
        ExchangeError::Malformed(cause) => log.write(kind, detail, Some(cause)),
        _ => log.write(kind, detail, None),
    }
    (kind, detail.into())
}

/// Lines about failed requests: a few a second, so that an upstream that is down does not flood the log.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    /// The second that is written about, since some instant, and how many lines it has had.
    second: Cell<(u64, u32)>,
    left_out: Cell<u64>,
}

/// Lines of one worker in one second.
const LINES_PER_S: u32 = 5;

impl ProblemLog {
    /// One line, as severe as the table of problems says. What is not worth a warning is not counted.
    fn write(&self, kind: ProblemKind, detail: &str, cause: Option<&dyn error::Error>) {
        let cause = cause.map(tracing::field::display);
        if kind.level() > Level::WARN {
            return tracing::debug!(cause, "{detail}");
        }
        let (second, lines) = self.second.get();
        let now = time::coarse_s();
        let lines = if second == now { lines } else { 0 };
        if lines >= LINES_PER_S {
            return self.left_out.set(self.left_out.get() + 1);
        }
        self.second.set((now, lines + 1));
        let left_out = Some(self.left_out.take()).filter(|left_out| *left_out > 0);
        tracing::warn!(cause, lines_left_out = left_out, "{detail}");
    }
}
