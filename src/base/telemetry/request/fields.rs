//! The table of fields: names, meanings and values, for all formats of the access log, for taps, and for their reference.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use super::record::{RequestRecord, Text};

/// A field of a request.
#[derive(Debug)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: FieldKind,
    /// The meaning.
    pub about: &'static str,
    pub(super) value: for<'r> fn(&'r RequestRecord) -> Value<'r>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A string.
    Text,
    /// A whole number.
    Number,
    /// Strings by name.
    Identities,
    /// A list of objects with `limit`, `key`, `id`, `cost` and, if it is known, `unit`.
    Keys,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'r> {
    Absent,
    Text(&'r str),
    Number(u64),
    Address(IpAddr),
    Identities(&'r RequestRecord),
    Keys(&'r RequestRecord),
}

/// A writer of JSON members.
pub(super) trait Members {
    /// Takes a member: a comma, its name and a colon; for a text also the quote before it; and its value.
    fn member(&mut self, start: &'static str, value: Value<'_>);
}

/// A comma, the name and a colon as in a JSON object; for a text also the quote before it.
macro_rules! member {
    (Text, $name:literal) => {
        concat!(",\"", $name, "\":\"")
    };
    ($kind:ident, $name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

macro_rules! fields {
    ($($kind:ident($name:literal, $about:literal, |$request:ident| $value:expr $(,)?),)*) => {
        /// All fields, in the order of lines. A field without a value is left out of objects.
        pub static FIELDS: &[Field] = &[$(Field {
            name: $name,
            kind: FieldKind::$kind,
            about: $about,
            value: |$request| $value,
        }),*];

        /// Gives `to` the start of the JSON member and the value of each field. The table is unrolled: the compiler
        /// copies a start of known length without a call, and knows the kind of each value.
        pub(super) fn for_each_member(request: &RequestRecord, to: &mut impl Members) {
            $({
                let $request = request;
                to.member(member!($kind, $name), $value);
            })*
        }
    };
}

fields!(
    Text("client", "address of the client", |request| Value::Address(request.client)),
    Text("method", "method", |request| request.of(Text::Method)),
    Text("host", "host in lower case, without its port", |request| request.of(Text::Host)),
    Text("path", "normalised path without the query; the path as sent if it cannot be normalised", |request| {
        request.of(Text::Path)
    }),
    Number("status", "status of the answer; 499 if the client left before it", |request| {
        Value::Number(request.status.into())
    }),
    Text(
        "verdict",
        "`forwarded`, `held` (forwarded after a wait), `refused` or `abandoned` (its client left)",
        |request| Value::Text(request.outcome.verdict()),
    ),
    Text("refused_by", "reason of a refusal: `limit`, `ban`, `access`, `identity`, `overload` or `other`", |request| {
        request.outcome.refused_by().map_or(Value::Absent, |by| Value::Text(by.label()))
    }),
    Text("limit", "limit that held or refused the request, or cut its stream", |request| request.of(Text::Limit)),
    Text(
        "shadow_limits",
        "limits in shadow mode that would have refused or held the request, with commas",
        |request| request.of(Text::ShadowLimits)
    ),
    Text("stale", "cause of a stored answer: `refused`, `upstream_429` or `upstream_error`", |request| {
        request.of(Text::Stale)
    }),
    Identities("identities", "verified identities by name; those of headers are masked", |request| {
        if request.has_identities() { Value::Identities(request) } else { Value::Absent }
    }),
    Text("plan", "plan of the request, if a limit or an access list needs it", |request| request.of(Text::Plan)),
    Keys(
        "keys",
        "limits that apply to the request, as far as it came, with its keys and its final cost; secrets are masked",
        |request| if request.has_keys() { Value::Keys(request) } else { Value::Absent }
    ),
    Text("route", "first path pattern of the route; `*` for a route without one", |request| request.of(Text::Route)),
    Text("upstream", "name of the upstream; `upstream` for `[upstream]`", |request| request.of(Text::Upstream)),
    Text("endpoint", "endpoint that got the request", |request| request.of(Text::Endpoint)),
    Number("duration_us", "microseconds from the head of the request to the end of the answer", |request| {
        micros(request.duration)
    }),
    Number("held_us", "microseconds of them during which limits held the request", |request| micros(request.held)),
    Number("upstream_us", "microseconds from the request on its connection to the head of the answer", |request| {
        request.upstream_time.map_or(Value::Absent, micros)
    }),
    Number("bytes_in", "bytes of the request's body", |request| Value::Number(request.bytes_in)),
    Number("bytes_out", "bytes of the answer's body that were sent", |request| Value::Number(request.bytes_out)),
    Text("protocol", "HTTP version of the client: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`", |request| {
        text_or_absent(request.protocol)
    }),
    Text("tls", "TLS version of the client's connection; absent without TLS", |request| text_or_absent(request.tls)),
    Text("user_agent", "first 512 bytes of `User-Agent`", |request| request.of(Text::UserAgent)),
    Text("referer", "first 512 bytes of `Referer`, without query and password", |request| request.of(Text::Referer)),
    Text("request_id", "`X-Request-Id`, with `server.request_id`", |request| request.of(Text::RequestId)),
    Text("trace_id", "id of the trace in `traceparent`", |request| request.of(Text::TraceId)),
);

impl Field {
    /// Whether the gate must be asked for the value.
    pub(super) fn is_of_gate(&self) -> bool {
        matches!(self.kind, FieldKind::Identities | FieldKind::Keys) || matches!(self.name, "plan" | "shadow_limits")
    }
}

impl RequestRecord {
    fn of(&self, text: Text) -> Value<'_> {
        text_or_absent(self.text(text))
    }

    fn has_identities(&self) -> bool {
        self.identities().next().is_some()
    }

    fn has_keys(&self) -> bool {
        self.keys().next().is_some()
    }
}

fn text_or_absent(text: &str) -> Value<'_> {
    if text.is_empty() { Value::Absent } else { Value::Text(text) }
}

fn micros(duration: Duration) -> Value<'static> {
    Value::Number(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// The table of the reference.
pub fn fields_markdown() -> String {
    let mut table = "| Field | Type | Value |\n|---|---|---|\n".to_owned();
    for Field { name, kind, about, .. } in FIELDS {
        let kind = match kind {
            FieldKind::Text => "string",
            FieldKind::Number => "number",
            FieldKind::Identities => "object",
            FieldKind::Keys => "list",
        };
        let _ = writeln!(table, "| `{name}` | {kind} | {about} |"); // a string has room
    }
    table
}
