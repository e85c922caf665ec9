//! `GET /v1/tap`: server-sent events of requests as they end.
//!
//! A task collects the events of a tap and sends them in pieces, at most one each [`PAUSE`]. So a tap takes little time
//! from probes and scrapes, whatever the load.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, RefOr, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::access::Access;
use super::answer::{Answer, Answered, Refused};
use super::body::{self, NO_NETWORK, Parameters};
use super::connections::{Activity, Streaming};
use super::keys;
use super::state::Admin;
use super::times::rfc3339;
use crate::base::telemetry::{
    FIELDS, Field, FieldKind, Outcome, RefusedBy, RequestRecord, TAPS_MAX, Tap, TapFilter, write_fields_json,
};
use crate::engine::limit::Key;

/// The shortest time between two pieces of a stream.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two pieces. A client that has left is found by a piece.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A stream ends if its client takes nothing for this time.
const STUCK_MAX: Duration = Duration::from_mins(1);

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TapQuery {
    /// The name of a limit that applies to the request.
    limit: Option<String>,
    /// The request's key in this limit: its text as in `overrides`, or a JSON object with its parts by name.
    key: Option<String>,
    /// The id of the key, in place of `key`.
    id: Option<String>,
    /// Verdicts with commas between them.
    verdict: Option<String>,
    /// Reasons of refusals with commas between them.
    refused_by: Option<String>,
    /// The client's address, or a network such as `203.0.113.0/24`.
    client: Option<String>,
    /// One of so many requests; all by default.
    sample: Option<u64>,
    /// The number of requests after which the stream ends; it has no end by default.
    count: Option<u64>,
}

/// A request that has ended: the data of an event `decision`. Its members are the fields of the access log. Those without
/// a value are left out.
struct Decision;

impl PartialSchema for Decision {
    fn schema() -> RefOr<Schema> {
        let of_type = |kind: Type| ObjectBuilder::new().schema_type(kind);
        let texts = |names: [&str; 3]| {
            let add = |object: ObjectBuilder, name| object.property(name, of_type(Type::String)).required(name);
            names.into_iter().fold(ObjectBuilder::new(), add)
        };
        let at = of_type(Type::String).description(Some("end of the request (RFC 3339)"));
        let object = ObjectBuilder::new().property("at", at).required("at");
        let add = |object: ObjectBuilder, &Field { name, kind, about, .. }: &Field| match kind {
            FieldKind::Text => object.property(name, of_type(Type::String).description(Some(about))),
            FieldKind::Number => object.property(name, of_type(Type::Integer).description(Some(about))),
            FieldKind::Identities => {
                let values = ObjectBuilder::new().additional_properties(Some(of_type(Type::String)));
                object.property(name, values.description(Some(about)))
            }
            FieldKind::Keys => {
                let key = texts(["limit", "key", "id"]).property("cost", of_type(Type::Integer)).required("cost");
                let keys = ArrayBuilder::new().items(key.property("unit", of_type(Type::String)));
                object.property(name, keys.description(Some(about)))
            }
        };
        FIELDS.iter().fold(object, add).into()
    }
}

impl ToSchema for Decision {
    fn name() -> Cow<'static, str> {
        "Decision".into()
    }
}

/// The data of an event `lost`.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = LostDecisions)]
struct LostBody {
    /// Requests since the last such event that are not in the stream.
    lost: u64,
}

/// Requests as they end, as server-sent events. An event `decision` has a request, and an event `lost` the number of
/// requests that the reader was too slow for (`LostDecisions`).
#[utoipa::path(
    get,
    path = "/v1/tap",
    params(TapQuery),
    responses(
        (status = 200, content_type = "text/event-stream", body = Decision, description = "the stream"),
        (status = 404, description = "the limit does not exist"),
        (status = 503, description = "too many taps are open"),
    )
)]
pub(super) async fn tap(
    State(admin): State<Arc<Admin>>,
    Extension(activity): Extension<Arc<Activity>>,
    Parameters(wanted): Parameters<TapQuery>,
) -> Answered {
    let count = wanted.count.unwrap_or(u64::MAX);
    let too_many = || Refused(StatusCode::SERVICE_UNAVAILABLE, format!("{TAPS_MAX} taps are open, which is the most"));
    let tap = admin.taps.open(filter(&admin, wanted)?).ok_or_else(too_many)?;
    let (pieces, body) = channel(1);
    let access = admin.access.load_full();
    let stream = EventStream { tap, pieces, count, admin, access, streaming: Streaming::new(activity) };
    tokio::spawn(stream.run());
    let mut answer = Answer::new(Body::from_stream(ReceiverStream::new(body)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

fn filter(admin: &Admin, wanted: TapQuery) -> Result<TapFilter, Refused> {
    let TapQuery { limit, key, id, verdict, refused_by, client, sample, count } = wanted;
    let live = admin.live.load();
    let has_key = key.is_some() || id.is_some();
    let keys = match &limit {
        None if has_key => return Err("key: needs `limit`".to_owned().into()),
        Some(limit) if has_key => {
            let Key { first, second } = keys::find(admin, &live, limit, (key.as_deref(), id.as_deref()))?.key;
            vec![(limit.clone(), [first, second])]
        }
        Some(limit) if live.policy.by_name(limit).is_none() => {
            return Err(keys::unknown_limit(&live));
        }
        _ => Vec::new(),
    };
    let client = client.map(|text| body::network(&text).ok_or_else(|| format!("client: {NO_NETWORK}")));
    let verdicts = listed("verdict", verdict.as_deref(), &Outcome::VERDICTS.map(|verdict| (verdict, verdict)))?;
    let reasons = RefusedBy::ALL.map(|by| (by.label(), by));
    let refused_by = listed("refused_by", refused_by.as_deref(), &reasons)?;
    if let Some((name, _)) = [("sample", sample), ("count", count)].iter().find(|(_, number)| *number == Some(0)) {
        return Err(format!("{name}: expected a whole number from 1").into());
    }
    Ok(TapFilter { limit, keys, verdicts, refused_by, client: client.transpose()?, sample: sample.unwrap_or(1) })
}

/// The values of the parameter `name`, whose text has labels with commas between them. `known` has all labels.
fn listed<T: Copy>(name: &str, text: Option<&str>, known: &[(&str, T)]) -> Result<Vec<T>, String> {
    let value = |text: &str| {
        let found = known.iter().find(|(label, _)| *label == text).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let labels: Vec<_> = known.iter().map(|(label, _)| *label).collect();
            format!("{name}: expected {}", labels.join(", "))
        })
    };
    text.into_iter().flat_map(|text| text.split(',')).map(value).collect()
}

/// A stream of events.
struct EventStream {
    tap: Tap,
    pieces: Sender<Result<Bytes, Infallible>>,
    /// The number of requests that the stream still has.
    count: u64,
    admin: Arc<Admin>,
    /// The conditions of access when the stream began. Under others its client may have no access.
    access: Arc<Access>,
    streaming: Streaming,
}

impl EventStream {
    /// Sends events until there are enough, the client leaves, or the conditions of access change.
    async fn run(mut self) {
        // The first piece tells the client that the tap is open.
        let mut text = ": open\n\n".to_owned();
        while **self.admin.access.load() == *self.access {
            self.streaming.touch();
            let sent = timeout(STUCK_MAX, self.pieces.send(Ok(Bytes::from(text)))).await;
            if !matches!(sent, Ok(Ok(()))) || self.count == 0 {
                return;
            }
            let mut requests = Vec::new();
            tokio::select! {
                () = self.pieces.closed() => return,
                _ = timeout(SILENCE_MAX, self.tap.receive(&mut requests)) => {}
            }
            requests.truncate(usize::try_from(self.count).unwrap_or(usize::MAX));
            self.count -= requests.len() as u64;
            text = piece(&requests, self.tap.take_lost());
            sleep(PAUSE).await;
        }
    }
}

/// The request as a `Decision`.
pub(super) fn decision_json(request: &RequestRecord) -> Vec<u8> {
    let mut json = format!("{{\"at\":\"{}\"", rfc3339(request.at)).into_bytes();
    write_fields_json(&mut json, request);
    json.push(b'}');
    json
}

/// The events of these requests, and of lost ones. Without any it is a comment.
fn piece(requests: &[Arc<RequestRecord>], lost: u64) -> String {
    let mut text = String::new();
    for request in requests {
        text.push_str("event: decision\ndata: ");
        text.push_str(&String::from_utf8_lossy(&decision_json(request)));
        text.push_str("\n\n");
    }
    match lost {
        0 if text.is_empty() => text.push_str(":\n\n"),
        0 => {}
        lost => {
            // Neither can fail: the data have text keys only, and a string has room.
            let data = serde_json::to_string(&LostBody { lost }).unwrap_or_default();
            let _ = write!(text, "event: lost\ndata: {data}\n\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::{TappedKey, Text};
    use crate::base::time::Timestamp;

    #[test]
    fn a_piece_has_requests_and_the_number_of_lost_ones() {
        let passed = RequestRecord {
            at: Timestamp::from_ns(1_500_000_000),
            client: "2001:db8::1".parse().unwrap(),
            status: 429,
            outcome: Outcome::Refused(RefusedBy::Limit),
            duration: Duration::from_micros(12),
            ..RequestRecord::default()
        };
        let mut request = passed.clone();
        request.set(Text::Path, "/a\nb");
        request.set(Text::Limit, "one");
        let key = TappedKey { limit: "one", hash: [1, 2], cost: 3, ..TappedKey::default() };
        request.add_key(key, |out| out.push_str("a|b"));
        assert_eq!(piece(&[], 0), ":\n\n");
        insta::assert_snapshot!(piece(&[Arc::new(request), Arc::new(passed)], 7), @r#"
        event: decision
        data: {"at":"1970-01-01T00:00:01.500Z","client":"2001:db8::1","path":"/a\nb","status":429,"verdict":"refused","refused_by":"limit","limit":"one","keys":[{"limit":"one","key":"a|b","id":"00000000000000010000000000000002","cost":3}],"duration_us":12,"held_us":0,"bytes_in":0,"bytes_out":0}

        event: decision
        data: {"at":"1970-01-01T00:00:01.500Z","client":"2001:db8::1","status":429,"verdict":"refused","refused_by":"limit","duration_us":12,"held_us":0,"bytes_in":0,"bytes_out":0}

        event: lost
        data: {"lost":7}
        "#);
    }
}
