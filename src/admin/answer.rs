//! Builds the responses of the admin listener: text, JSON and problems.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

pub(super) type Answer = Response<Full<Bytes>>;

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body.into())
}

pub(super) fn json(status: StatusCode, value: &Value) -> Answer {
    let mut answer = answer(status, "application/json", format!("{value}\n").into());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A response with a problem (RFC 9457) as its body.
pub(super) fn problem(status: StatusCode, detail: &str) -> Answer {
    answer(status, "application/problem+json", format!("{}\n", problem_value(status, detail)).into())
}

/// The body of a problem (RFC 9457) as JSON.
pub(super) fn problem_value(status: StatusCode, detail: &str) -> Value {
    let title = status.canonical_reason().unwrap_or("Error");
    json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail })
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
