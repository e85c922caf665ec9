//! Answers to requests that the gate does not let pass.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Method, Response};

use super::{Kind, Problem, Profiles, Verdict, limit_headers};
use crate::gate::{Cause, Refusal, Unidentified, Why};
use crate::limit::Retry;

/// Whether a request speaks gRPC, so that its answer must too.
pub fn is_grpc(method: &Method, headers: &HeaderMap) -> bool {
    let is_grpc_type = |value: &HeaderValue| {
        let kind = value.as_bytes().strip_prefix(b"application/grpc");
        kind.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    };
    *method == Method::POST && headers.get(CONTENT_TYPE).is_some_and(is_grpc_type)
}

/// The answer to a request beyond its limits: 429, or 503 to one that waited until the end.
pub fn refusal(refusal: &Refusal<'_>, profiles: Profiles, is_grpc: bool) -> Response<Bytes> {
    let retry_after_s = match refusal.retry {
        Retry::AfterNs(ns) => Some(ns.div_ceil(1_000_000_000).max(1)),
        Retry::Never => None,
    };
    let names = refusal.violated.join(", ");
    let detail = match (refusal.cause, retry_after_s) {
        (Cause::ShuttingDown, _) => "the proxy is shutting down".to_owned(),
        (_, None) => format!("this request costs more than {names} can ever hold"),
        (Cause::Limit, Some(s)) => format!("beyond {names}; retry after {s} s"),
        (Cause::WaitTooLong, Some(s)) => format!("beyond {names}, and the wait of {s} s is longer than allowed"),
        (Cause::QueueFull, Some(s)) => format!("beyond {names}, and too many are waiting; retry after {s} s"),
    };
    let kind = match refusal.cause {
        Cause::ShuttingDown => Kind::ShuttingDown,
        Cause::Limit | Cause::WaitTooLong | Cause::QueueFull => Kind::Limited,
    };
    let mut problem = Problem::new(kind, detail);
    if kind == Kind::Limited {
        problem = problem.quota_exceeded(&refusal.violated);
    }
    let mut response = problem.into_response(is_grpc);
    if let Some(s) = retry_after_s {
        response.headers_mut().insert(RETRY_AFTER, s.into());
    }
    if let Some(standing) = &refusal.standing {
        limit_headers(response.headers_mut(), profiles, standing, Verdict::Refused { retry_after_s });
    }
    response
}

/// The answer to a request without the identity it needs: 401.
pub fn unidentified(missing: &Unidentified<'_>, is_grpc: bool) -> Response<Bytes> {
    let identity = missing.identity;
    let detail = match missing.why {
        Why::Missing => format!("{identity}: none given"),
        Why::Several => format!("{identity}: more than one given"),
        Why::Token(error) => format!("{identity}: {error}"),
    };
    let mut response = Problem::new(Kind::Unidentified, detail).into_response(is_grpc);
    if missing.wants_bearer {
        // RFC 6750, section 3: the error code only if there was a token.
        let challenge = match missing.why {
            Why::Missing => HeaderValue::from_static("Bearer"),
            Why::Several => HeaderValue::from_static("Bearer error=\"invalid_request\""),
            Why::Token(_) => HeaderValue::from_static("Bearer error=\"invalid_token\""),
        };
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
