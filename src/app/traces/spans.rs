//! The spans of a request, with attributes by the semantic conventions for HTTP (OpenTelemetry 1.40) and `weir.*`.

use std::time::Duration;

use super::messages::{CLIENT, ERROR, Event, KeyValue, SERVER, Span, Status};
use crate::base::telemetry::{SpanContext, Text, TracedRequest};

/// Methods that `http.request.method` may name; others are [`OTHER`].
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
const OTHER: &str = "_OTHER";

/// Answers from these statuses on are errors of the server, and of its caller.
const SERVER_ERROR: u16 = 500;
const CLIENT_ERROR: u16 = 400;

/// The flags of a recorded trace (W3C Trace Context, section 3.2.2.5).
const SAMPLED: u32 = 1;

/// The spans of a request: that of Weir as a server, and that of Weir as a client of the service, if it got the request.
pub(super) fn spans(request: &TracedRequest) -> impl Iterator<Item = Span> {
    [Some(server(request)), client(request)].into_iter().flatten()
}

fn server(request: &TracedRequest) -> Span {
    let TracedRequest { context, record, .. } = request;
    let (method, original) = (method(request), record.text(Text::Method));
    let route = Some(record.text(Text::Route)).filter(|route| *route != "*").unwrap_or_default();
    let mut attributes = vec![
        KeyValue::text("http.request.method", method),
        KeyValue::text("url.scheme", if record.tls.is_empty() { "http" } else { "https" }),
        KeyValue::text("client.address", record.client.to_string()),
        KeyValue::number("http.response.status_code", record.status.into()),
        KeyValue::number("http.request.body.size", record.bytes_in),
        KeyValue::number("http.response.body.size", record.bytes_out),
        KeyValue::text("weir.verdict", record.outcome.verdict()),
    ];
    for (key, text) in [
        ("http.request.method_original", if method == OTHER { original } else { "" }),
        ("url.path", record.text(Text::Path)),
        ("server.address", record.text(Text::Host)),
        ("http.route", route),
        ("user_agent.original", record.text(Text::UserAgent)),
        ("weir.limit", record.text(Text::Limit)),
        ("weir.plan", record.text(Text::Plan)),
        ("weir.upstream", record.text(Text::Upstream)),
        ("weir.request_id", record.text(Text::RequestId)),
    ] {
        attributes.extend((!text.is_empty()).then(|| KeyValue::text(key, text)));
    }
    let version = record.protocol.strip_prefix("HTTP/");
    attributes.extend(version.map(|version| KeyValue::text("network.protocol.version", version)));
    attributes.extend(record.outcome.refused_by().map(|by| KeyValue::text("weir.refused_by", by.label())));
    let identity = |(name, shown)| KeyValue::text(format!("weir.identity.{name}"), shown);
    attributes.extend(record.identities().map(identity));
    let is_error = record.status >= SERVER_ERROR;
    attributes.extend(is_error.then(|| KeyValue::text("error.type", record.status.to_string())));
    let hold = request.held_after.map(|after| Event {
        time_unix_nano: start_ns(request) + ns(after),
        name: "weir.hold".to_owned(),
        attributes: vec![
            KeyValue::text("weir.limit", record.text(Text::Limit)),
            KeyValue::number("weir.held_us", ns(record.held) / 1000),
        ],
    });
    Span {
        span_id: id(context.server),
        parent_span_id: if context.parent == 0 { Vec::new() } else { id(context.parent) },
        name: if route.is_empty() { name(method).to_owned() } else { format!("{} {route}", name(method)) },
        kind: SERVER,
        start_time_unix_nano: start_ns(request),
        end_time_unix_nano: record.at.as_ns(),
        attributes,
        events: hold.into_iter().collect(),
        status: is_error.then_some(Status { code: ERROR }),
        ..of_trace(context)
    }
}

fn client(request: &TracedRequest) -> Option<Span> {
    let TracedRequest { context, record, sent_after, of_upstream, answer, .. } = request;
    let start = start_ns(request) + ns((*sent_after)?);
    let (method, endpoint) = (method(request), record.text(Text::Endpoint));
    let mut attributes = vec![
        KeyValue::text("http.request.method", method),
        KeyValue::text("weir.upstream", record.text(Text::Upstream)),
        KeyValue::text("server.address", address(endpoint).0),
    ];
    attributes.extend(address(endpoint).1.map(|port| KeyValue::number("server.port", port.into())));
    let is_error = answer.is_none_or(|status| status >= CLIENT_ERROR);
    attributes.extend(answer.map(|status| KeyValue::number("http.response.status_code", status.into())));
    let kind = || answer.map_or_else(|| OTHER.to_owned(), |status| status.to_string());
    attributes.extend(is_error.then(|| KeyValue::text("error.type", kind())));
    Some(Span {
        span_id: id(context.client),
        parent_span_id: id(context.server),
        name: name(method).to_owned(),
        kind: CLIENT,
        start_time_unix_nano: start,
        end_time_unix_nano: start + of_upstream.map_or(0, ns),
        attributes,
        status: is_error.then_some(Status { code: ERROR }),
        ..of_trace(context)
    })
}

fn of_trace(context: &SpanContext) -> Span {
    Span { trace_id: context.trace.to_be_bytes().to_vec(), flags: SAMPLED, ..Span::default() }
}

fn id(span: u64) -> Vec<u8> {
    span.to_be_bytes().to_vec()
}

fn method(request: &TracedRequest) -> &'static str {
    let method = request.record.text(Text::Method);
    METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER)
}

/// The name of a span with this method, by the conventions.
fn name(method: &'static str) -> &'static str {
    if method == OTHER { "HTTP" } else { method }
}

/// The host and the port of an endpoint: `http://host:port`, `ip:port` or `unix:/path`.
fn address(endpoint: &str) -> (&str, Option<u16>) {
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, authority)| authority);
    let host_and_port = authority.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    host_and_port.map_or((authority, None), |(host, port)| (host.trim_matches(['[', ']']), Some(port)))
}

fn start_ns(request: &TracedRequest) -> u64 {
    request.record.at.as_ns().saturating_sub(ns(request.record.duration))
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_host_and_perhaps_a_port() {
        for (endpoint, host, port) in [
            ("http://10.0.0.1:80", "10.0.0.1", Some(80)),
            ("https://a.test", "a.test", None),
            ("[::1]:9000", "::1", Some(9000)),
            ("unix:/run/a.sock", "unix:/run/a.sock", None),
            ("", "", None),
        ] {
            assert_eq!(address(endpoint), (host, port));
        }
    }
}
