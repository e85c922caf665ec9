//! Builds the responses of the admin listener: text, JSON and problems.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use tokio::task::JoinError;
use utoipa::ToSchema;

pub(super) type Answer = Response;

/// A refusal: the status and the detail of a problem.
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

/// The answer of a handler. The error is answered with a problem.
pub(super) type Answered = Result<Answer, Refused>;

impl IntoResponse for Refused {
    fn into_response(self) -> Answer {
        let Self(status, detail) = self;
        problem(status, detail)
    }
}

/// Says what is wrong with a request.
impl From<String> for Refused {
    fn from(detail: String) -> Self {
        Self(StatusCode::BAD_REQUEST, detail)
    }
}

/// A task panicked.
impl From<JoinError> for Refused {
    fn from(error: JoinError) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

/// One result, or an array of results; in a body one item, or an array of items.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// A problem (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status.
    status: u16,
    /// What is wrong.
    detail: String,
}

impl ProblemBody {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { kind: "about:blank", title, status: status.as_u16(), detail: detail.into() }
    }
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    of_kind(status, "text/plain; charset=utf-8", body)
}

/// A response with `value` as JSON. If `value` cannot be JSON, the response is a problem.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut answer = match serde_json::to_vec(value) {
        Ok(mut body) => {
            body.push(b'\n');
            of_kind(status, "application/json", body)
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A response with a problem as its body.
pub(super) fn problem(status: StatusCode, detail: impl Into<String>) -> Answer {
    let problem = ProblemBody::new(status, detail);
    let mut body = serde_json::to_vec(&problem).unwrap_or_default();
    body.push(b'\n');
    of_kind(status, "application/problem+json", body)
}

/// A response with a body of the media type `kind`.
pub(super) fn of_kind(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
