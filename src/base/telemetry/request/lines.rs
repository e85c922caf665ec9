//! The lines of a request in each format. They are written to memory that is used again.

use std::time::{Duration, UNIX_EPOCH};

use super::escape::escape;
use super::fields::{FIELDS, Members, Value, for_each_member};
use super::record::{RequestRecord, TappedKey};
use super::template::{Piece, Template};
use crate::base::digits::{hex, push_address};
use crate::base::time::Timestamp;

/// The format of access lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// One object a line.
    Json,
    /// Names and values.
    Text,
    /// A template.
    Template(Template),
}

/// The date of a line in two formats. Dates of one second are formatted once.
#[derive(Debug)]
pub struct LineTimes {
    /// The unix time of both; no date at first.
    second: u64,
    /// RFC 3339 with microseconds.
    rfc3339: String,
    /// Common Log Format.
    clf: String,
}

/// The length of a date without the fraction of the second: `2026-01-02T03:04:05`.
const SECONDS_LEN: usize = 19;

impl LineTimes {
    /// No date.
    pub const fn new() -> Self {
        Self { second: u64::MAX, rfc3339: String::new(), clf: String::new() }
    }

    fn set(&mut self, now: Timestamp) {
        let (second, micros) = (now.as_secs(), now.as_ns() / 1000 % 1_000_000);
        if second != self.second {
            let date = UNIX_EPOCH + Duration::from_secs(second);
            self.rfc3339 = humantime::format_rfc3339_seconds(date).to_string();
            // `Fri, 02 Jan 2026 03:04:05 GMT` becomes `02/Jan/2026:03:04:05 +0000`.
            let http = httpdate::fmt_http_date(date);
            let parts: Vec<_> = http.split(' ').collect();
            if let [_, day, month, year, time, _] = parts[..] {
                self.clf = format!("{day}/{month}/{year}:{time} +0000");
            }
            self.second = second;
        }
        self.rfc3339.truncate(SECONDS_LEN);
        let mut digits = itoa::Buffer::new();
        self.rfc3339.push('.');
        // A digit before them keeps leading zeros.
        self.rfc3339.push_str(&digits.format(1_000_000 + micros)[1..]);
        self.rfc3339.push('Z');
    }
}

impl Default for LineTimes {
    fn default() -> Self {
        Self::new()
    }
}

impl LineFormat {
    /// Whether the gate must be asked for one of its fields.
    pub fn names_gate(&self) -> bool {
        match self {
            Self::Json | Self::Text => true,
            Self::Template(template) => template.names_gate(),
        }
    }

    /// Appends the line of `request` with a line feed.
    pub fn write(&self, out: &mut Vec<u8>, times: &mut LineTimes, request: &RequestRecord) {
        times.set(request.at);
        let mut line = LineBuffer::of(out, request);
        match self {
            Self::Json => {
                line.push("{\"timestamp\":\"");
                line.push(&times.rfc3339);
                line.push("\",\"level\":\"INFO\",\"message\":\"request\"");
                for_each_member(request, &mut line);
                line.push("}\n");
            }
            Self::Text => {
                line.push(&times.rfc3339);
                line.push("  INFO request");
                for field in FIELDS {
                    let value = (field.value)(request);
                    if !matches!(value, Value::Absent) {
                        let quote = if matches!(value, Value::Number(_) | Value::Address(_)) { "" } else { "\"" };
                        for text in [" ", field.name, "=", quote] {
                            line.push(text);
                        }
                        line.value(value);
                        line.push(quote);
                    }
                }
                line.push("\n");
            }
            Self::Template(template) => {
                for piece in &template.pieces {
                    match piece {
                        Piece::Literal(text) => line.push(text),
                        Piece::Field(field) => line.value((field.value)(request)),
                        Piece::Timestamp => line.push(&times.rfc3339),
                        Piece::ClfTime => line.push(&times.clf),
                    }
                }
                line.push("\n");
            }
        }
    }
}

/// Appends a comma, the name and the value of each field that has one, as members of a JSON object.
pub fn write_fields_json(out: &mut Vec<u8>, request: &RequestRecord) {
    for_each_member(request, &mut LineBuffer::of(out, request));
}

/// The memory of a line.
struct LineBuffer<'o> {
    out: &'o mut Vec<u8>,
    /// Whether no text is escaped. One look at all texts is faster than one at each.
    is_plain: bool,
}

impl Members for LineBuffer<'_> {
    #[allow(clippy::inline_always)] // measured: the start and the kind of the value are known where it is called
    #[inline(always)]
    fn member(&mut self, start: &'static str, value: Value<'_>) {
        if matches!(value, Value::Absent) {
            return;
        }
        self.push(start);
        match value {
            Value::Absent => {}
            Value::Text(text) => self.text(text, b"\""),
            Value::Number(number) => self.number(number),
            Value::Address(address) => {
                push_address(address, |piece| self.push(piece));
                self.push("\"");
            }
            Value::Identities(request) => self.identities(request),
            Value::Keys(request) => self.keys(request),
        }
    }
}

impl<'o> LineBuffer<'o> {
    fn of(out: &'o mut Vec<u8>, request: &RequestRecord) -> Self {
        Self { out, is_plain: request.is_plain() }
    }

    /// Appends a text that needs no escapes.
    #[inline]
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Appends a text, and `end` behind it.
    #[inline]
    fn text<const N: usize>(&mut self, text: &str, end: &[u8; N]) {
        if self.is_plain {
            self.push(text);
        } else {
            escape(self.out, text);
        }
        self.out.extend_from_slice(end);
    }

    fn number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number));
    }

    fn identities(&mut self, request: &RequestRecord) {
        let mut before = "{\"";
        for (name, shown) in request.identities() {
            self.push(before);
            self.text(name, b"\":\"");
            self.text(shown, b"\"");
            before = ",\"";
        }
        self.push("}");
    }

    fn keys(&mut self, request: &RequestRecord) {
        let mut before = "[{\"limit\":\"";
        for TappedKey { limit, hash: [first, second], shown, cost, unit } in request.keys() {
            self.push(before);
            self.text(limit, b"\",\"key\":\"");
            self.text(shown, b"\",\"id\":\"");
            self.out.extend_from_slice(&hex::<16>(first));
            self.out.extend_from_slice(&hex::<16>(second));
            self.push("\",\"cost\":");
            self.number(cost);
            if !unit.is_empty() {
                self.push(",\"unit\":\"");
                self.push(unit);
                self.push("\"");
            }
            self.push("}");
            before = ",{\"limit\":\"";
        }
        self.push("]");
    }

    /// Appends a value for text and templates; `-` if there is none.
    fn value(&mut self, value: Value<'_>) {
        match value {
            Value::Absent => self.push("-"),
            Value::Text(text) => self.text(text, b""),
            Value::Number(number) => self.number(number),
            Value::Address(address) => push_address(address, |piece| self.push(piece)),
            Value::Identities(request) => self.pairs(request.identities()),
            Value::Keys(request) => self.pairs(request.keys().map(|key| (key.limit, key.shown))),
        }
    }

    fn pairs<'r>(&mut self, pairs: impl Iterator<Item = (&'r str, &'r str)>) {
        for (index, (name, shown)) in pairs.enumerate() {
            self.push(if index > 0 { " " } else { "" });
            self.text(name, b"=");
            self.text(shown, b"");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Text;
    use super::super::template::COMBINED;
    use super::*;
    use crate::base::telemetry::{Outcome, RefusedBy};

    fn refused() -> RequestRecord {
        let mut request = RequestRecord {
            at: Timestamp::from_ns(1_767_323_045_000_007_999),
            client: "2001:db8::1".parse().unwrap(),
            protocol: "HTTP/1.1",
            tls: "TLSv1.3",
            status: 429,
            outcome: Outcome::Refused(RefusedBy::Limit),
            duration: Duration::from_nanos(1_234_567),
            upstream_time: Some(Duration::from_micros(7)),
            bytes_in: 3,
            bytes_out: 12,
            ..RequestRecord::default()
        };
        for (text, value) in [
            (Text::Method, "GET"),
            (Text::Host, "a\"b"),
            (Text::Path, "/\u{1b}\u{202e}"),
            (Text::Route, "/api/{*rest}"),
            (Text::Limit, "one"),
            (Text::Stale, "refused"),
            (Text::Plan, "premium"),
            (Text::Upstream, "api"),
            (Text::Endpoint, "http://10.0.0.1:80"),
            (Text::UserAgent, "curl\\ \" - x"),
            (Text::Referer, "https://a/"),
            (Text::RequestId, "id-1"),
            (Text::TraceId, "4bf9"),
            (Text::ShadowLimits, "one.candidate"),
        ] {
            request.set(text, value);
        }
        request.add_identity("seller", |out| out.push_str("7|\u{2066}"));
        request.add_identity("key", |out| out.push_str("ab..#01020304"));
        let key = TappedKey { limit: "per-ip", hash: [0, 1], cost: 1, ..TappedKey::default() };
        request.add_key(key, |out| out.push_str("2001:db8::/64"));
        request
            .add_key(TappedKey { limit: "one", hash: [1, 2], cost: 250, unit: "tokens", ..key }, |out| out.push('7'));
        request
    }

    fn line(format: &LineFormat, request: &RequestRecord) -> String {
        let (mut out, mut times) = (Vec::new(), LineTimes::new());
        format.write(&mut out, &mut times, request);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_format_has_all_fields() {
        let (request, bare) = (refused(), RequestRecord::default());
        insta::assert_snapshot!(line(&LineFormat::Json, &request), @r##"{"timestamp":"2026-01-02T03:04:05.000007Z","level":"INFO","message":"request","client":"2001:db8::1","method":"GET","host":"a\"b","path":"/\u001b\u202e","status":429,"verdict":"refused","refused_by":"limit","limit":"one","shadow_limits":"one.candidate","stale":"refused","identities":{"seller":"7|\u2066","key":"ab..#01020304"},"plan":"premium","keys":[{"limit":"per-ip","key":"2001:db8::/64","id":"00000000000000000000000000000001","cost":1},{"limit":"one","key":"7","id":"00000000000000010000000000000002","cost":250,"unit":"tokens"}],"route":"/api/{*rest}","upstream":"api","endpoint":"http://10.0.0.1:80","duration_us":1234,"held_us":0,"upstream_us":7,"bytes_in":3,"bytes_out":12,"protocol":"HTTP/1.1","tls":"TLSv1.3","user_agent":"curl\\ \" - x","referer":"https://a/","request_id":"id-1","trace_id":"4bf9"}"##);
        insta::assert_snapshot!(line(&LineFormat::Text, &request), @r##"2026-01-02T03:04:05.000007Z  INFO request client=2001:db8::1 method="GET" host="a\"b" path="/\u001b\u202e" status=429 verdict="refused" refused_by="limit" limit="one" shadow_limits="one.candidate" stale="refused" identities="seller=7|\u2066 key=ab..#01020304" plan="premium" keys="per-ip=2001:db8::/64 one=7" route="/api/{*rest}" upstream="api" endpoint="http://10.0.0.1:80" duration_us=1234 held_us=0 upstream_us=7 bytes_in=3 bytes_out=12 protocol="HTTP/1.1" tls="TLSv1.3" user_agent="curl\\ \" - x" referer="https://a/" request_id="id-1" trace_id="4bf9""##);
        let combined = LineFormat::Template(Template::parse(COMBINED).unwrap());
        insta::assert_snapshot!(line(&combined, &request), @r##"2001:db8::1 - - [02/Jan/2026:03:04:05 +0000] "GET /\u001b\u202e HTTP/1.1" 429 12 "https://a/" "curl\\ \" - x""##);
        insta::assert_snapshot!(line(&combined, &bare), @r##"0.0.0.0 - - [01/Jan/1970:00:00:00 +0000] "- - -" 0 0 "-" "-""##);
        insta::assert_snapshot!(line(&LineFormat::Json, &bare), @r##"{"timestamp":"1970-01-01T00:00:00.000000Z","level":"INFO","message":"request","client":"0.0.0.0","status":0,"verdict":"abandoned","duration_us":0,"held_us":0,"bytes_in":0,"bytes_out":0}"##);
        let named = Template::parse("{{{identities}}} [{keys}] {timestamp} {plan}").unwrap();
        assert!(named.names_gate() && !combined.names_gate());
        insta::assert_snapshot!(line(&LineFormat::Template(named), &request), @r##"{seller=7|\u2066 key=ab..#01020304} [per-ip=2001:db8::/64 one=7] 2026-01-02T03:04:05.000007Z premium"##);
    }

    #[test]
    fn json_is_read_back() {
        let read: serde_json::Value = serde_json::from_str(&line(&LineFormat::Json, &refused())).unwrap();
        let names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        assert!(names.iter().all(|name| !read[name].is_null()), "{read}");
        assert_eq!(
            (read["path"].as_str(), read["identities"]["seller"].as_str()),
            (Some("/\u{1b}\u{202e}"), Some("7|\u{2066}"))
        );
        assert_eq!(read["keys"][1]["id"], "00000000000000010000000000000002");
    }

    #[test]
    fn a_second_is_formatted_once() {
        let mut times = LineTimes::new();
        for (ns, rfc3339, clf) in [
            (1_767_323_045_000_007_999, "2026-01-02T03:04:05.000007Z", "02/Jan/2026:03:04:05 +0000"),
            (1_767_323_045_999_999_000, "2026-01-02T03:04:05.999999Z", "02/Jan/2026:03:04:05 +0000"),
            (1_767_323_046_100_000_000, "2026-01-02T03:04:06.100000Z", "02/Jan/2026:03:04:06 +0000"),
            (0, "1970-01-01T00:00:00.000000Z", "01/Jan/1970:00:00:00 +0000"),
        ] {
            times.set(Timestamp::from_ns(ns));
            assert_eq!((&*times.rfc3339, &*times.clf), (rfc3339, clf));
        }
    }
}
