//! What goes wrong on the data path, as the kinds of problem that clients are told.

use std::borrow::Cow;
use std::{error, fmt};

use tracing::Level;

use super::h1::HeadFault;
use super::upstream::ExchangeError;
use crate::respond::Kind;

/// Nobody is left to read an answer; the connection is closed without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abandoned;

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client left")
    }
}

impl error::Error for Abandoned {}

type Described = (Kind, Cow<'static, str>);

/// A head that hyper did not get to see.
pub(super) fn head_fault(fault: HeadFault) -> Described {
    let (kind, detail) = match fault {
        HeadFault::Malformed(reason) => (Kind::Malformed, reason),
        HeadFault::AmbiguousFraming(reason) => (Kind::AmbiguousFraming, reason),
        HeadFault::TooLarge => (Kind::HeadTooLarge, "the head has too many bytes or fields"),
        HeadFault::UriTooLong => (Kind::UriTooLong, "the target is too long"),
        HeadFault::Timeout => (Kind::RequestTimeout, "the head did not arrive in time"),
        HeadFault::ConnectRefused => (Kind::MethodRefused, "this is no tunnel"),
    };
    log(kind, detail, None);
    (kind, detail.into())
}

/// An exchange without a response. What the upstream is called and said is logged, not told.
pub(super) fn exchange_error(failure: &ExchangeError) -> Described {
    let (kind, detail) = match failure {
        ExchangeError::ConnectTimeout => (Kind::GatewayTimeout, "the upstream did not accept in time"),
        ExchangeError::Connect(_) => (Kind::BadGateway, "the upstream cannot be reached"),
        ExchangeError::Broken(_) => (Kind::BadGateway, "the upstream broke off"),
        ExchangeError::Switched => (Kind::BadGateway, "the upstream switched protocols unasked"),
        ExchangeError::UpstreamTimeout => (Kind::GatewayTimeout, "the upstream did not answer in time"),
        ExchangeError::ClientTimeout => (Kind::RequestTimeout, "the body did not arrive in time"),
    };
    match failure {
        ExchangeError::Broken(cause) if cause.is_user() => tracing::debug!(%cause, "the client broke off"),
        ExchangeError::Broken(cause) => log(kind, detail, Some(cause)),
        ExchangeError::Connect(cause) => log(kind, detail, Some(&**cause)),
        _ => log(kind, detail, None),
    }
    (kind, detail.into())
}

/// One line, as severe as the table of problems says.
fn log(kind: Kind, detail: &str, cause: Option<&dyn error::Error>) {
    let cause = cause.map(tracing::field::display);
    match kind.level() {
        Level::ERROR => tracing::error!(cause, "{detail}"),
        Level::WARN => tracing::warn!(cause, "{detail}"),
        Level::INFO => tracing::info!(cause, "{detail}"),
        _ => tracing::debug!(cause, "{detail}"),
    }
}
