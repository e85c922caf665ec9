//! Reads queries and JSON bodies of requests. Bodies are bounded in length and time.

use std::fmt::Display;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use bytes::Buf;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::timeout;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::answer::{Answer, problem};
use super::guard::has_no_body;
use crate::engine::policy::access::canonical;

/// Most items of one array.
pub(super) const BATCH_MAX: usize = 1000;
/// Most bytes of a body: 524 for each of [`BATCH_MAX`] items.
pub(super) const BODY_BYTES_MAX: usize = 512 * 1024;
/// Most bytes of a configuration in TOML.
const TOML_BYTES_MAX: usize = 4 << 20;
/// Most bytes to read and discard of a body that is too long. A client that still sends would not see the answer.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a reason: it is in the audit log, of which operators see the last 128 KiB, and with a ban in messages to
/// replicas, of which one has 1024 bans in 8 MiB at most.
const REASON_BYTES_MAX: usize = 1024;

/// The reason of a change.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Reason(String);

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > REASON_BYTES_MAX {
            return Err(format!("reason: expected at most {REASON_BYTES_MAX} bytes"));
        }
        Ok(Self(text))
    }
}

impl Reason {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Reason> for String {
    fn from(Reason(text): Reason) -> Self {
        text
    }
}

impl From<Reason> for Box<str> {
    fn from(Reason(text): Reason) -> Self {
        text.into()
    }
}

impl PartialSchema for Reason {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).max_length(Some(REASON_BYTES_MAX)).into()
    }
}

impl ToSchema for Reason {}

/// The body of a request as JSON.
pub(super) struct Json(pub(super) Value);

impl<S: Sync> FromRequest<S> for Json {
    type Rejection = Answer;

    async fn from_request(request: Request, _: &S) -> Result<Self, Answer> {
        read(request.into_body()).await.map(Self)
    }
}

/// The body of a request as JSON; an empty object without a body.
pub(super) struct OptionalJson(pub(super) Value);

impl<S: Sync> FromRequest<S> for OptionalJson {
    type Rejection = Answer;

    async fn from_request(request: Request, _: &S) -> Result<Self, Answer> {
        match bytes(request.into_body(), BODY_BYTES_MAX).await? {
            bytes if bytes.is_empty() => Ok(Self(Value::Object(Map::new()))),
            bytes => json_of(&bytes).map(Self).map_err(bad),
        }
    }
}

/// The body of a request as the text of a configuration.
pub(super) struct Toml(pub(super) String);

impl<S: Sync> FromRequest<S> for Toml {
    type Rejection = Answer;

    async fn from_request(request: Request, _: &S) -> Result<Self, Answer> {
        let bytes = bytes(request.into_body(), TOML_BYTES_MAX).await?;
        let not_utf8 = |_| problem(StatusCode::BAD_REQUEST, "the body is not UTF-8");
        String::from_utf8(bytes).map(Self).map_err(not_utf8)
    }
}

/// The query of a request. The error is the answer to a query with an unknown, missing or invalid parameter, and to a
/// `DELETE` with a body.
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Answer> {
        if parts.method == Method::DELETE && !has_no_body(parts) {
            return Err(bad("a DELETE has parameters in place of a body".to_owned()));
        }
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(rejection) => Err(bad(rejection.body_text())),
        }
    }
}

/// The query of an operation without parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// Reads a body as JSON. The error is the answer to a body that is invalid, too long or too slow.
async fn read<B: Body<Error: Display>>(body: B) -> Result<Value, Answer> {
    json_of(&bytes(body, BODY_BYTES_MAX).await?).map_err(bad)
}

fn bad(detail: String) -> Answer {
    problem(StatusCode::BAD_REQUEST, detail)
}

/// The error says why the bytes are not JSON.
fn json_of(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("the body is not JSON: {error}"))
}

/// Reads a body of at most `bytes_max` bytes. The error is the answer to a body that is incomplete, too long or too slow.
pub(super) async fn bytes<B: Body<Error: Display>>(body: B, bytes_max: usize) -> Result<Vec<u8>, Answer> {
    match timeout(TIMEOUT, collect(body, bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(detail)) => Err(problem(StatusCode::BAD_REQUEST, detail)),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

/// Deserializes an object. Errs for an array, which `serde` would read as the fields in their order.
pub(super) fn object<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, String> {
    if !value.is_object() {
        return Err("expected an object".to_owned());
    }
    T::deserialize(value).map_err(|error| error.to_string())
}

/// What a text is that [`network`] does not read.
pub(super) const NO_NETWORK: &str = "expected an address or a network";

/// The network that a text names; an address is a network of one. `None` for other texts.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    Some(canonical(network.ok()?).trunc())
}

async fn collect<B: Body<Error: Display>>(body: B, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut body = pin!(body);
    let (mut bytes, mut discarded) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the body is incomplete: {error}"))?;
        let Ok(mut data) = frame.into_data() else { continue };
        if discarded == 0 && bytes.len() + data.remaining() <= bytes_max {
            while data.has_remaining() {
                let piece = data.chunk();
                bytes.extend_from_slice(piece);
                data.advance(piece.len());
            }
            continue;
        }
        discarded += data.remaining();
        if discarded > DISCARDED_BYTES_MAX {
            break;
        }
    }
    if discarded > 0 { Err(format!("the body is longer than {bytes_max} bytes")) } else { Ok(bytes) }
}
