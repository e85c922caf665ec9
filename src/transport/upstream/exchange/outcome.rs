//! The result of an exchange up to the response head, and what it says about the endpoint.

use std::io;

use super::error::closed;
use super::upload::BodyFault;
use crate::base::telemetry::EndpointResult;
use crate::transport::http1::ResponseFault;
use crate::transport::upstream::pool::connection::ConnectError;

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// Not connected within the connect timeout.
    ConnectTimeout(io::Error),
    /// The connection failed.
    Connect(io::Error),
    /// All connections are in use, and the queue is full or the request waited for too long.
    Busy,
    /// The client has as many requests as it may have.
    TooMany,
    /// Operators drain all endpoints that could be tried.
    Drained,
    /// The upstream closed the connection or the stream.
    Broken(io::Error),
    /// The response is malformed.
    Malformed(ResponseFault),
    /// The protocol of the upstream cannot express the request.
    Unencodable,
    /// The upstream changed the protocol, but not as the request asked for.
    Switched,
    /// The upstream ignored the request to change the protocol, and its response cannot be passed on.
    Ignored,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The client did not send its body in time.
    ClientTimeout,
    /// The client's body ended early or has wrong framing.
    ClientBroken,
    /// The client's body is longer than allowed.
    BodyTooLarge,
}

/// What has arrived of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseEvent {
    /// An interim response (1xx), readable until the next poll.
    Interim,
    /// The head of the final response; its body follows.
    Final,
    /// The head of a 101 that the request asked for. The bytes after it are not HTTP.
    Switch,
    /// Nothing: the connection ended, and the request may be sent again on another one.
    Retry,
}

/// What `event` says about the endpoint: none if the client caused it, or if a connection that was idle before ended, which
/// may happen at any time. `status` is that of the head, if one has arrived.
pub(crate) fn reached(
    event: &Result<ResponseEvent, ExchangeError>,
    status: u16,
    was_idle: bool,
) -> Option<EndpointResult> {
    match event {
        // A switch counts once it is compared with the request.
        Ok(ResponseEvent::Interim | ResponseEvent::Switch)
        | Err(
            ExchangeError::ClientTimeout
            | ExchangeError::ClientBroken
            | ExchangeError::BodyTooLarge
            | ExchangeError::Unencodable,
        ) => None,
        Ok(ResponseEvent::Retry) | Err(ExchangeError::Broken(_)) if was_idle => None,
        // 502, 503 and 504 report that the gateway's own upstream failed. Any other status is an answer, also 500.
        Ok(ResponseEvent::Final) if !matches!(status, 502..=504) => Some(EndpointResult::Answered),
        _ => Some(EndpointResult::Failed),
    }
}

/// Why `event` is a failure of the endpoint. `status` is that of the head, if one has arrived.
pub(crate) fn failure(event: &Result<ResponseEvent, ExchangeError>, status: u16) -> String {
    match event {
        Ok(ResponseEvent::Final) => format!("the status is {status}"),
        Err(ExchangeError::Broken(error) | ExchangeError::Connect(error)) => error.to_string(),
        Err(ExchangeError::Malformed(fault)) => fault.to_string(),
        Err(ExchangeError::UpstreamTimeout) => "no answer in time".to_owned(),
        Ok(ResponseEvent::Retry) => closed().to_string(),
        _ => other_protocol(),
    }
}

impl From<BodyFault> for ExchangeError {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::Broken => Self::ClientBroken,
            BodyFault::TooLarge => Self::BodyTooLarge,
        }
    }
}

/// Why a 101 is a failure of the endpoint.
pub(crate) fn other_protocol() -> String {
    "another protocol than requested".to_owned()
}

impl From<ConnectError> for ExchangeError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Busy => Self::Busy,
            ConnectError::TooMany => Self::TooMany,
            ConnectError::Drained => Self::Drained,
            ConnectError::Timeout(error) => Self::ConnectTimeout(error),
            ConnectError::Failed(error) => Self::Connect(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_endpoints_own_failures_count() {
        let failed = Some(EndpointResult::Failed);
        for (event, was_idle, expected) in [
            (Ok(ResponseEvent::Interim), false, None),
            (Ok(ResponseEvent::Switch), false, None),
            (Ok(ResponseEvent::Retry), true, None),
            (Ok(ResponseEvent::Retry), false, failed),
            (Err(ExchangeError::ClientTimeout), false, None),
            (Err(ExchangeError::ClientBroken), false, None),
            (Err(ExchangeError::BodyTooLarge), false, None),
            (Err(ExchangeError::Unencodable), false, None),
            (Err(ExchangeError::Broken(closed())), true, None),
            (Err(ExchangeError::Broken(closed())), false, failed),
            (Err(ExchangeError::Switched), true, failed),
            (Err(ExchangeError::UpstreamTimeout), true, failed),
            (Err(ConnectError::timeout().into()), false, failed),
        ] {
            assert_eq!(reached(&event, 0, was_idle), expected, "{event:?} {was_idle}");
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
            assert_eq!(reached(&Ok(ResponseEvent::Final), status, false), Some(expected), "{status}");
        }
    }
}
