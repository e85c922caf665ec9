//! The table of all responses that Weir makes itself, by kind.
//!
//! Not here: their encoding.

use http::StatusCode;
use tracing::Level;

use crate::base::telemetry::RefusedBy;
use crate::engine::gate::Cause;

/// The kind of a problem; each kind is a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// Invalid HTTP.
    Malformed,
    /// A check that does not describe a request.
    BadCheck,
    /// A check of a peer that is no trusted proxy.
    UntrustedPeer,
    /// A message whose end is ambiguous.
    AmbiguousFraming,
    /// `Host` is missing, repeated, or differs from the target.
    BadHost,
    /// A path that cannot be normalised.
    BadPath,
    /// A header, parameter or cookie of a key has several values.
    SeveralValues,
    /// The model of a request has no price.
    UnpricedModel,
    /// An identity is missing or invalid.
    Unidentified,
    /// The keys that verify an identity are missing.
    KeysMissing,
    /// `[access]` refuses the request.
    AccessRefused,
    /// A banned key.
    Banned,
    /// No route matches.
    NoRoute,
    /// CONNECT, which only a forward proxy serves.
    MethodRefused,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The body is too long.
    BodyTooLarge,
    /// The target is too long.
    UriTooLong,
    /// Refused by a limit.
    Limited,
    /// Refused by a limit that a ramp has lowered to zero.
    Gone,
    /// Without TLS, which the address needs.
    NoTls,
    /// The client has too many requests in flight.
    ClientBusy,
    /// The request head is too large.
    HeadTooLarge,
    /// The upstream is unreachable, or broke off.
    BadGateway,
    /// The upstream has `max_connections` in use and a full queue.
    UpstreamBusy,
    /// Operators drain all endpoints of the upstream.
    UpstreamDrained,
    /// Shed under overload.
    Overloaded,
    /// Weir shuts down.
    ShuttingDown,
    /// The upstream did not accept a connection in time, so it has nothing of the request.
    ConnectTimeout,
    /// The upstream did not respond in time.
    GatewayTimeout,
}

impl From<Cause> for ProblemKind {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::ShuttingDown => Self::ShuttingDown,
            Cause::Banned => Self::Banned,
            Cause::Gone => Self::Gone,
            Cause::Limit | Cause::WaitTooLong | Cause::QueueFull => Self::Limited,
        }
    }
}

/// The start of a body with a problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5.
macro_rules! typed {
    ($name:literal, $title:literal) => {
        concat!(
            "{\"type\":\"https://iana.org/assignments/http-problem-types#",
            $name,
            "\",\"title\":\"",
            $title,
            "\",\"status\":"
        )
    };
}

struct ProblemRow {
    status: StatusCode,
    /// google.rpc.Code, by the gRPC mapping of HTTP statuses.
    grpc: &'static str,
    level: Level,
    label: &'static str,
    /// Whether the connection is closed, because the rest of its data cannot be trusted or is unwanted.
    close: bool,
}

impl ProblemKind {
    /// The kinds that `weir_problems_total` counts: all but those of limits.
    pub const COUNTED: [Self; 25] = [
        Self::Malformed,
        Self::BadCheck,
        Self::UntrustedPeer,
        Self::AmbiguousFraming,
        Self::BadHost,
        Self::BadPath,
        Self::SeveralValues,
        Self::UnpricedModel,
        Self::Unidentified,
        Self::KeysMissing,
        Self::AccessRefused,
        Self::NoRoute,
        Self::MethodRefused,
        Self::RequestTimeout,
        Self::BodyTooLarge,
        Self::UriTooLong,
        Self::NoTls,
        Self::ClientBusy,
        Self::HeadTooLarge,
        Self::BadGateway,
        Self::UpstreamBusy,
        Self::UpstreamDrained,
        Self::Overloaded,
        Self::ConnectTimeout,
        Self::GatewayTimeout,
    ];

    fn row(self) -> ProblemRow {
        let row = |status, grpc, level, label, close| ProblemRow { status, grpc, level, label, close };
        match self {
            Self::Malformed => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "malformed", true),
            Self::BadCheck => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_check", false),
            Self::UntrustedPeer => row(StatusCode::FORBIDDEN, "7", Level::DEBUG, "untrusted_peer", true),
            Self::AmbiguousFraming => row(StatusCode::BAD_REQUEST, "13", Level::INFO, "ambiguous_framing", true),
            Self::BadHost => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_host", true),
            Self::BadPath => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_path", false),
            Self::SeveralValues => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "several_values", false),
            Self::UnpricedModel => row(StatusCode::BAD_REQUEST, "3", Level::DEBUG, "unpriced_model", false),
            Self::Unidentified => row(StatusCode::UNAUTHORIZED, "16", Level::DEBUG, "unidentified", false),
            Self::KeysMissing => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::WARN, "keys_missing", false),
            Self::AccessRefused => row(StatusCode::FORBIDDEN, "7", Level::DEBUG, "access_refused", false),
            Self::Banned => row(StatusCode::FORBIDDEN, "7", Level::DEBUG, "banned", false),
            Self::NoRoute => row(StatusCode::NOT_FOUND, "12", Level::DEBUG, "no_route", false),
            Self::MethodRefused => row(StatusCode::METHOD_NOT_ALLOWED, "12", Level::DEBUG, "method_refused", true),
            Self::RequestTimeout => row(StatusCode::REQUEST_TIMEOUT, "4", Level::DEBUG, "request_timeout", true),
            Self::BodyTooLarge => row(StatusCode::PAYLOAD_TOO_LARGE, "8", Level::DEBUG, "body_too_large", true),
            Self::UriTooLong => row(StatusCode::URI_TOO_LONG, "13", Level::DEBUG, "uri_too_long", true),
            Self::Limited => row(StatusCode::TOO_MANY_REQUESTS, "8", Level::DEBUG, "limited", false),
            Self::Gone => row(StatusCode::GONE, "12", Level::DEBUG, "gone", false),
            Self::NoTls => row(StatusCode::PERMANENT_REDIRECT, "9", Level::DEBUG, "no_tls", false),
            Self::ClientBusy => row(StatusCode::TOO_MANY_REQUESTS, "8", Level::DEBUG, "client_busy", false),
            Self::HeadTooLarge => {
                row(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "13", Level::DEBUG, "head_too_large", true)
            }
            Self::BadGateway => row(StatusCode::BAD_GATEWAY, "14", Level::WARN, "bad_gateway", false),
            Self::UpstreamDrained => {
                row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::DEBUG, "upstream_drained", false)
            }
            Self::UpstreamBusy => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::WARN, "upstream_busy", false),
            Self::Overloaded => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::DEBUG, "overloaded", false),
            Self::ShuttingDown => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::DEBUG, "shutting_down", true),
            Self::ConnectTimeout => row(StatusCode::GATEWAY_TIMEOUT, "14", Level::WARN, "gateway_timeout", false),
            Self::GatewayTimeout => row(StatusCode::GATEWAY_TIMEOUT, "4", Level::WARN, "gateway_timeout", false),
        }
    }

    /// The status.
    pub fn status(self) -> StatusCode {
        self.row().status
    }

    /// Whether the upstream did not serve the request.
    pub fn is_upstream(self) -> bool {
        matches!(self, Self::BadGateway | Self::UpstreamBusy | Self::ConnectTimeout | Self::GatewayTimeout)
    }

    /// The start of the body of this kind, if it has a problem type.
    pub(super) fn problem_type(self) -> Option<&'static str> {
        match self {
            Self::Limited => Some(typed!("quota-exceeded", "Quota exceeded")),
            Self::Banned => Some(typed!("abnormal-usage-detected", "Abnormal usage detected")),
            Self::UpstreamBusy | Self::UpstreamDrained | Self::Overloaded | Self::ShuttingDown => {
                Some(typed!("temporary-reduced-capacity", "Temporary reduced capacity"))
            }
            _ => None,
        }
    }

    /// The log level of the problem.
    pub fn level(self) -> Level {
        self.row().level
    }

    /// The google.rpc.Code for a gRPC client.
    pub(super) fn grpc_status(self) -> &'static str {
        self.row().grpc
    }

    /// Whether the response closes an HTTP/1 connection.
    pub fn closes(self) -> bool {
        self.row().close
    }

    /// Seconds until a retry, for kinds in which they do not depend on the request.
    pub(super) fn retry_after_s(self) -> Option<u64> {
        // Missing keys are fetched at about this rate.
        matches!(self, Self::ClientBusy | Self::UpstreamBusy | Self::KeysMissing).then_some(1)
    }

    /// The reason of a refusal of this kind.
    pub fn refused_by(self) -> RefusedBy {
        match self {
            Self::Limited | Self::Gone => RefusedBy::Limit,
            Self::Banned => RefusedBy::Ban,
            Self::AccessRefused => RefusedBy::Access,
            Self::Unidentified => RefusedBy::Identity,
            Self::Overloaded => RefusedBy::Overload,
            _ => RefusedBy::Other,
        }
    }

    /// The label of the kind in metrics.
    pub fn label(self) -> &'static str {
        self.row().label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_but_those_of_limits_are_counted() {
        let of_limits = [ProblemKind::Banned, ProblemKind::Limited, ProblemKind::Gone, ProblemKind::ShuttingDown];
        let kinds = ProblemKind::GatewayTimeout as usize + 1; // the last one
        let mut counted: Vec<_> = ProblemKind::COUNTED.iter().chain(&of_limits).map(|kind| *kind as usize).collect();
        counted.sort_unstable();
        assert_eq!(counted, (0..kinds).collect::<Vec<_>>());
    }
}
