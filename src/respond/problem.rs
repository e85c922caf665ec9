//! The one table of what Weir answers itself: problem+json (RFC 9457), or trailers to a gRPC client.

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;
use tracing::Level;

/// What kind of answer; the rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not HTTP as it should be.
    Malformed,
    /// A message whose end is not certain.
    AmbiguousFraming,
    /// `Host` is missing, double, or not what the target says.
    BadHost,
    /// A path that cannot be normalised.
    BadPath,
    /// An identity is missing or does not hold.
    Unidentified,
    /// CONNECT, which only a forward proxy serves.
    MethodRefused,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The target is too long.
    UriTooLong,
    /// Beyond a limit.
    Limited,
    /// The head is too large.
    HeadTooLarge,
    /// The upstream cannot be reached, or broke off.
    BadGateway,
    /// Weir is going away.
    ShuttingDown,
    /// The upstream took too long.
    GatewayTimeout,
}

struct Row {
    status: StatusCode,
    /// google.rpc.Code, by the gRPC mapping of HTTP statuses where the request got that far.
    grpc: &'static str,
    level: Level,
    label: &'static str,
    /// Whether the connection is closed, because what follows on it cannot be trusted or is unwanted.
    close: bool,
}

impl Kind {
    fn row(self) -> Row {
        let row = |status, grpc, level, label, close| Row { status, grpc, level, label, close };
        match self {
            Self::Malformed => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "malformed", true),
            Self::AmbiguousFraming => row(StatusCode::BAD_REQUEST, "13", Level::INFO, "ambiguous_framing", true),
            Self::BadHost => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_host", true),
            Self::BadPath => row(StatusCode::BAD_REQUEST, "13", Level::DEBUG, "bad_path", false),
            Self::Unidentified => row(StatusCode::UNAUTHORIZED, "16", Level::DEBUG, "unidentified", false),
            Self::MethodRefused => row(StatusCode::METHOD_NOT_ALLOWED, "12", Level::DEBUG, "method_refused", true),
            Self::RequestTimeout => row(StatusCode::REQUEST_TIMEOUT, "4", Level::DEBUG, "request_timeout", true),
            Self::UriTooLong => row(StatusCode::URI_TOO_LONG, "13", Level::DEBUG, "uri_too_long", true),
            Self::Limited => row(StatusCode::TOO_MANY_REQUESTS, "8", Level::DEBUG, "limited", false),
            Self::HeadTooLarge => {
                row(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "13", Level::DEBUG, "head_too_large", true)
            }
            Self::BadGateway => row(StatusCode::BAD_GATEWAY, "14", Level::WARN, "bad_gateway", false),
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

    /// Its label in metrics.
    pub fn label(self) -> &'static str {
        self.row().label
    }
}

/// The body of an answer; what is not said is left out.
#[derive(Clone, Debug, Serialize)]
pub struct Problem<'a> {
    #[serde(skip)]
    kind: Kind,
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: Cow<'a, str>,
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    violated_policies: &'a [&'a str],
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

impl<'a> Problem<'a> {
    /// A problem of `kind`; `detail` is for people and holds nothing secret.
    pub fn new(kind: Kind, detail: impl Into<Cow<'a, str>>) -> Self {
        let status = kind.status();
        Self {
            kind,
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or(""),
            status: status.as_u16(),
            detail: detail.into(),
            violated_policies: &[],
        }
    }

    /// The same, of the registered type quota-exceeded (draft-ietf-httpapi-ratelimit-headers-10, section 5.1).
    pub fn quota_exceeded(mut self, violated_policies: &'a [&'a str]) -> Self {
        self.r#type = "https://iana.org/assignments/http-problem-types#quota-exceeded";
        self.title = "Quota exceeded";
        self.violated_policies = violated_policies;
        self
    }

    /// As an answer; to a gRPC client as trailers only, with status 200.
    pub fn into_response(self, is_grpc: bool) -> Response<Bytes> {
        let row = self.kind.row();
        let mut response = Response::new(Bytes::new());
        if is_grpc {
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(GRPC_STATUS, HeaderValue::from_static(row.grpc));
            headers.insert(GRPC_MESSAGE, grpc_message(&self.detail));
        } else {
            *response.body_mut() = serde_json::to_vec(&self).unwrap_or_default().into();
            *response.status_mut() = row.status;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        }
        if row.close {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Percent-encoded as the gRPC protocol wants it: everything but printable ASCII, and `%`.
fn grpc_message(text: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x20..=0x7e).contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    HeaderValue::from_str(&encoded).unwrap_or(HeaderValue::from_static(""))
}
