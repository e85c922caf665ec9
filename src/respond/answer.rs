//! An answer of Weir's own: problem+json (RFC 9457), or trailers only to a gRPC client.

use std::borrow::Cow;
use std::fmt::Write;

use http::{Method, StatusCode};
use serde::Serialize;
use smallvec::SmallVec;

use super::headers::number;
use super::{Kind, Profiles, Sink, Verdict, limit_headers};
use crate::gate::{Cause, Refusal, Standing, Unidentified, Why};
use crate::limit::Retry;
use crate::policy::Fields;

/// What is answered, before it is written. The headers that frame it and `connection` are the writer's.
#[derive(Debug)]
pub struct Answer<'a> {
    kind: Kind,
    /// For people; holds nothing secret.
    detail: Cow<'static, str>,
    violated: SmallVec<[&'a str; 2]>,
    is_quota: bool,
    is_grpc: bool,
    retry_after_s: Option<u64>,
    challenge: Option<&'static str>,
    standing: Option<(Standing<'a>, Verdict)>,
}

/// The body; what is not said is left out.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    violated_policies: &'a [&'a str],
}

/// Whether a request speaks gRPC, so that its answer must too.
pub fn is_grpc(method: &Method, headers: Fields<'_>) -> bool {
    let is_grpc_type = |value: &[u8]| {
        let kind = value.strip_prefix(b"application/grpc");
        kind.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    };
    *method == Method::POST && headers.first("content-type").is_some_and(is_grpc_type)
}

impl<'a> Answer<'a> {
    /// A problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>, is_grpc: bool) -> Self {
        Self {
            kind,
            detail: detail.into(),
            violated: SmallVec::new(),
            is_quota: false,
            is_grpc,
            retry_after_s: None,
            challenge: None,
            standing: None,
        }
    }

    /// The answer to a request beyond its limits: 429, or 503 to one that waited until the end.
    pub fn refusal(refusal: Refusal<'a>, is_grpc: bool) -> Self {
        let retry_after_s = match refusal.retry {
            Retry::AfterNs(ns) => Some(ns.div_ceil(1_000_000_000).max(1)),
            Retry::Never => None,
        };
        let kind = match refusal.cause {
            Cause::ShuttingDown => Kind::ShuttingDown,
            Cause::Limit | Cause::WaitTooLong | Cause::QueueFull => Kind::Limited,
        };
        Self {
            is_quota: kind == Kind::Limited,
            retry_after_s,
            standing: refusal.standing.map(|standing| (standing, Verdict::Refused { retry_after_s })),
            ..Self::new(kind, refusal_detail(&refusal, retry_after_s), is_grpc)
        }
        .violating(refusal.violated)
    }

    /// The answer to a request without the identity it needs: 401.
    pub fn unidentified(missing: &Unidentified<'_>, is_grpc: bool) -> Self {
        let identity = missing.identity;
        let detail = match missing.why {
            Why::Missing => format!("{identity}: none given"),
            Why::Several => format!("{identity}: more than one given"),
            Why::Token(error) => format!("{identity}: {error}"),
        };
        // RFC 6750, section 3: the error code only if there was a token.
        let challenge = missing.wants_bearer.then_some(match missing.why {
            Why::Missing => "Bearer",
            Why::Several => "Bearer error=\"invalid_request\"",
            Why::Token(_) => "Bearer error=\"invalid_token\"",
        });
        Self { challenge, ..Self::new(Kind::Unidentified, detail, is_grpc) }
    }

    /// The same, saying where the client stands although no limit refused it.
    pub fn standing(mut self, standing: Option<Standing<'a>>) -> Self {
        self.standing = standing.map(|standing| (standing, Verdict::Passed));
        self
    }

    fn violating(mut self, violated: SmallVec<[&'a str; 2]>) -> Self {
        if self.is_quota {
            self.violated = violated;
        }
        self
    }

    /// The status; 200 to a gRPC client, which reads another one.
    pub fn status(&self) -> StatusCode {
        if self.is_grpc { StatusCode::OK } else { self.kind.status() }
    }

    /// Whether the connection ends with it, on HTTP/1.
    pub fn closes(&self) -> bool {
        self.kind.closes()
    }

    /// Writes its headers.
    pub fn write_headers(&self, sink: &mut impl Sink, profiles: Profiles) {
        if self.is_grpc {
            sink.put("content-type", "application/grpc");
            sink.put("grpc-status", self.kind.grpc_status());
            sink.put("grpc-message", &grpc_message(&self.detail));
        } else {
            sink.put("content-type", "application/problem+json");
        }
        if let Some(challenge) = self.challenge {
            sink.put("www-authenticate", challenge);
        }
        if let Some(s) = self.retry_after_s {
            number(sink, "retry-after", s);
        }
        if let Some((standing, verdict)) = &self.standing {
            limit_headers(sink, profiles, standing, *verdict);
        }
    }

    /// Writes its body.
    pub fn write_body(&self, body: &mut Vec<u8>) {
        if self.is_grpc {
            return;
        }
        let status = self.kind.status();
        // The type quota-exceeded: draft-ietf-httpapi-ratelimit-headers-10, section 5.1.
        let (r#type, title) = if self.is_quota {
            ("https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota exceeded")
        } else {
            ("about:blank", status.canonical_reason().unwrap_or(""))
        };
        let problem =
            Problem { r#type, title, status: status.as_u16(), detail: &self.detail, violated_policies: &self.violated };
        // Writing text into memory does not fail.
        let _ = serde_json::to_writer(body, &problem);
    }
}

fn refusal_detail(refusal: &Refusal<'_>, retry_after_s: Option<u64>) -> Cow<'static, str> {
    let names = refusal.violated.join(", ");
    match (refusal.cause, retry_after_s) {
        (Cause::ShuttingDown, _) => "the proxy is shutting down".into(),
        (_, None) => format!("this request costs more than {names} can ever hold").into(),
        (Cause::Limit, Some(s)) => format!("beyond {names}; retry after {s} s").into(),
        (Cause::WaitTooLong, Some(s)) => format!("beyond {names}, and the wait of {s} s is longer than allowed").into(),
        (Cause::QueueFull, Some(s)) => format!("beyond {names}, and too many are waiting; retry after {s} s").into(),
    }
}

/// Percent-encoded as the gRPC protocol wants it: everything but printable ASCII, and `%`.
fn grpc_message(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x20..=0x7e).contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
