//! What comes of an exchange until the head of its response, and what that says of the endpoint.

use std::io;

use super::connection::ConnectError;
use crate::http1::ResponseFault;
use crate::telemetry::EndpointResult;

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// No connection in time.
    ConnectTimeout,
    /// No connection.
    Connect(io::Error),
    /// No connection may be opened.
    Busy,
    /// The client has too many requests at once.
    TooMany,
    /// The upstream broke off.
    Broken(io::Error),
    /// The upstream's answer cannot be read.
    Malformed(ResponseFault),
    /// The request cannot be said in the protocol of the upstream.
    Unsayable,
    /// The upstream changed to another protocol, and not as it was asked to.
    Switched,
    /// The upstream answered as if it had not been asked to change the protocol, which cannot be passed on.
    Ignored,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The client did not send its body in time.
    ClientTimeout,
    /// The client's body broke off, or its framing did.
    ClientBroken,
    /// The client's body is longer than it may be.
    BodyTooLarge,
}

/// What has come of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// An interim answer, in hand until the next look.
    Interim,
    /// The head; its body follows.
    Head,
    /// The head of a 101 after an upgrade was asked for. What follows is not HTTP.
    Switch,
    /// The connection closed without a word; the request may go out again on another one.
    Nothing,
}

/// What this says of the endpoint: nothing, if it is what the client did, or if an idle connection was closed from the
/// other side, as that may be at any time. `status` is that of a head that has come.
pub(super) fn reached(arrived: &Result<Arrived, ExchangeError>, status: u16, was_idle: bool) -> Option<EndpointResult> {
    match arrived {
        // A switch only once it is held against what was asked for.
        Ok(Arrived::Interim | Arrived::Switch)
        | Err(
            ExchangeError::ClientTimeout
            | ExchangeError::ClientBroken
            | ExchangeError::BodyTooLarge
            | ExchangeError::Unsayable,
        ) => None,
        Ok(Arrived::Nothing) | Err(ExchangeError::Broken(_)) if was_idle => None,
        // What a gateway says whose own upstream fails; any other status is an answer, also a 500.
        Ok(Arrived::Head) if !matches!(status, 502..=504) => Some(EndpointResult::Answered),
        _ => Some(EndpointResult::Failed),
    }
}

/// The end of the stream where an answer was to come.
pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection before it answered")
}

/// The upstream broke off for this reason.
pub(super) fn broken(error: io::Error) -> ExchangeError {
    ExchangeError::Broken(error)
}

impl From<ConnectError> for ExchangeError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Busy => Self::Busy,
            ConnectError::TooMany => Self::TooMany,
            ConnectError::Timeout => Self::ConnectTimeout,
            ConnectError::Failed(error) => Self::Connect(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_endpoint_did_is_its_fault() {
        let failed = Some(EndpointResult::Failed);
        for (arrived, was_idle, expected) in [
            (Ok(Arrived::Interim), false, None),
            (Ok(Arrived::Switch), false, None),
            (Ok(Arrived::Nothing), true, None),
            (Ok(Arrived::Nothing), false, failed),
            (Err(ExchangeError::ClientTimeout), false, None),
            (Err(ExchangeError::ClientBroken), false, None),
            (Err(ExchangeError::BodyTooLarge), false, None),
            (Err(ExchangeError::Unsayable), false, None),
            (Err(broken(closed())), true, None),
            (Err(broken(closed())), false, failed),
            (Err(ExchangeError::Switched), true, failed),
            (Err(ExchangeError::UpstreamTimeout), true, failed),
            (Err(ExchangeError::ConnectTimeout), false, failed),
        ] {
            assert_eq!(reached(&arrived, 0, was_idle), expected, "{arrived:?} {was_idle}");
        }
        for (status, expected) in [
            (200, EndpointResult::Answered),
            (404, EndpointResult::Answered),
            (500, EndpointResult::Answered),
            (501, EndpointResult::Answered),
        ]
        .into_iter()
        .chain([502, 503, 504].map(|status| (status, EndpointResult::Failed)))
        .chain([(505, EndpointResult::Answered)])
        {
            assert_eq!(reached(&Ok(Arrived::Head), status, false), Some(expected), "{status}");
        }
    }
}
