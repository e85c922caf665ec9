//! The one table of what Weir answers itself, by kind.
//!
//! Not here: what such an answer looks like.

use http::StatusCode;
use tracing::Level;

/// What kind of answer; the rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// Not HTTP as it should be.
    Malformed,
    /// A message whose end is not certain.
    AmbiguousFraming,
    /// `Host` is missing, double, or not what the target says.
    BadHost,
    /// A path that cannot be normalised.
    BadPath,
    /// A header, parameter or cookie that says whose budget it takes is there several times.
    SeveralValues,
    /// An identity is missing or does not hold.
    Unidentified,
    /// The keys that would show whether an identity holds are not there.
    KeysMissing,
    /// `[access]` shuts it out.
    Denied,
    /// Refused so often that everything is refused for a time.
    Banned,
    /// No route leads anywhere.
    NoRoute,
    /// CONNECT, which only a forward proxy serves.
    MethodRefused,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The body is too long.
    BodyTooLarge,
    /// The target is too long.
    UriTooLong,
    /// Beyond a limit.
    Limited,
    /// The client has too many requests at once.
    ClientBusy,
    /// The head is too large.
    HeadTooLarge,
    /// The upstream cannot be reached, or broke off.
    BadGateway,
    /// The upstream has as many requests as it may have.
    UpstreamBusy,
    /// Weir is going away.
    ShuttingDown,
    /// The upstream took too long.
    GatewayTimeout,
}

struct ProblemRow {
    status: StatusCode,
    /// google.rpc.Code, by the gRPC mapping of HTTP statuses where the request got that far.
    grpc: &'static str,
    level: Level,
    label: &'static str,
    /// Whether the connection is closed, because what follows on it cannot be trusted or is unwanted.
    close: bool,
}

impl ProblemKind {
    /// The kinds that `weir_problems_total` counts: all but refusals by limits.
    pub const COUNTED: [Self; 18] = [
        Self::Malformed,
        Self::AmbiguousFraming,
        Self::BadHost,
        Self::BadPath,
        Self::SeveralValues,
        Self::Unidentified,
        Self::KeysMissing,
        Self::Denied,
        Self::NoRoute,
        Self::MethodRefused,
        Self::RequestTimeout,
        Self::BodyTooLarge,
        Self::UriTooLong,
        Self::ClientBusy,
        Self::HeadTooLarge,
        Self::BadGateway,
        Self::UpstreamBusy,
        Self::GatewayTimeout,
    ];

    fn row(self) -> ProblemRow {
        let row = |status, grpc, level, label, close| ProblemRow { status, grpc, level, label, close };
        match self {
            Self::Malformed => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "malformed", true),
            Self::AmbiguousFraming => row(StatusCode::BAD_REQUEST, "13", Level::INFO, "ambiguous_framing", true),
            Self::BadHost => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_host", true),
            Self::BadPath => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_path", false),
            Self::SeveralValues => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "several_values", false),
            Self::Unidentified => row(StatusCode::UNAUTHORIZED, "16", Level::DEBUG, "unidentified", false),
            Self::KeysMissing => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::WARN, "keys_missing", false),
            Self::Denied => row(StatusCode::FORBIDDEN, "7", Level::DEBUG, "denied", false),
            Self::Banned => row(StatusCode::FORBIDDEN, "7", Level::DEBUG, "banned", false),
            Self::NoRoute => row(StatusCode::NOT_FOUND, "12", Level::DEBUG, "no_route", false),
            Self::MethodRefused => row(StatusCode::METHOD_NOT_ALLOWED, "12", Level::DEBUG, "method_refused", true),
            Self::RequestTimeout => row(StatusCode::REQUEST_TIMEOUT, "4", Level::DEBUG, "request_timeout", true),
            Self::BodyTooLarge => row(StatusCode::PAYLOAD_TOO_LARGE, "8", Level::DEBUG, "body_too_large", true),
            Self::UriTooLong => row(StatusCode::URI_TOO_LONG, "13", Level::DEBUG, "uri_too_long", true),
            Self::Limited => row(StatusCode::TOO_MANY_REQUESTS, "8", Level::DEBUG, "limited", false),
            Self::ClientBusy => row(StatusCode::TOO_MANY_REQUESTS, "8", Level::DEBUG, "client_busy", false),
            Self::HeadTooLarge => {
                row(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "13", Level::DEBUG, "head_too_large", true)
            }
            Self::BadGateway => row(StatusCode::BAD_GATEWAY, "14", Level::WARN, "bad_gateway", false),
            Self::UpstreamBusy => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::WARN, "upstream_busy", false),
            Self::ShuttingDown => row(StatusCode::SERVICE_UNAVAILABLE, "14", Level::DEBUG, "shutting_down", true),
            Self::GatewayTimeout => row(StatusCode::GATEWAY_TIMEOUT, "4", Level::WARN, "gateway_timeout", false),
        }
    }

    /// The status.
    pub fn status(self) -> StatusCode {
        self.row().status
    }

    /// The severity it is logged with.
    pub fn level(self) -> Level {
        self.row().level
    }

    /// Its status to a gRPC client: google.rpc.Code.
    pub(super) fn grpc_status(self) -> &'static str {
        self.row().grpc
    }

    /// Whether the connection ends with it, on HTTP/1.
    pub fn closes(self) -> bool {
        self.row().close
    }

    /// After how many seconds a request like this may pass, where that does not depend on the request.
    pub(super) fn retry_after_s(self) -> Option<u64> {
        // Keys that are missing are fetched at about this rate.
        matches!(self, Self::ClientBusy | Self::UpstreamBusy | Self::KeysMissing).then_some(1)
    }

    /// Its label in metrics.
    pub fn label(self) -> &'static str {
        self.row().label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_but_refusals_by_limits() {
        let of_limits = [ProblemKind::Banned, ProblemKind::Limited, ProblemKind::ShuttingDown];
        let kinds = ProblemKind::GatewayTimeout as usize + 1; // the last one
        let mut counted: Vec<_> = ProblemKind::COUNTED.iter().chain(&of_limits).map(|kind| *kind as usize).collect();
        counted.sort_unstable();
        assert_eq!(counted, (0..kinds).collect::<Vec<_>>());
    }
}
