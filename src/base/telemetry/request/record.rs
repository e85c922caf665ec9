//! The record of a request. Its texts are in one buffer, so that a record which is used again allocates nothing.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::escape::is_plain;
use crate::base::telemetry::outcome::Outcome;
use crate::base::time::Timestamp;

/// A request that has ended. It has no query and no credentials.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The end of the request.
    pub at: Timestamp,
    /// The client's address.
    pub client: IpAddr,
    /// The HTTP version; empty if unknown.
    pub protocol: &'static str,
    /// The TLS version of the client's connection; empty without TLS.
    pub tls: &'static str,
    /// The status of the response.
    pub status: u16,
    /// The outcome.
    pub outcome: Outcome,
    /// The time from the parsed request head to the end.
    pub duration: Duration,
    /// The part of `duration` during which the request was held.
    pub held: Duration,
    /// The time from the request on its upstream connection to the response head.
    pub upstream_time: Option<Duration>,
    /// Bytes of the request body that Weir took.
    pub bytes_in: u64,
    /// Bytes of the response body that the client took.
    pub bytes_out: u64,
    /// The number of its limits of stages that have ended.
    pub charged_before: usize,
    /// Its texts; methods read and set them.
    pub texts: Texts,
}

/// The texts of a request.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    buffer: String,
    single: [Span; TEXTS],
    identities: Vec<[Span; 2]>,
    keys: Vec<KeySpan>,
}

/// A text of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// The method.
    Method,
    /// The host, in the form that limits match.
    Host,
    /// The normalised path; the path as sent if it cannot be normalised.
    Path,
    /// The first path pattern of its route; `*` if the route has none.
    Route,
    /// The limit that held or refused it.
    Limit,
    /// The limits in shadow mode that would have refused or held it.
    ShadowLimits,
    /// Why the request got a stored answer.
    Stale,
    /// The plan.
    Plan,
    /// The name of the upstream.
    Upstream,
    /// The endpoint that got it.
    Endpoint,
    /// The `User-Agent`.
    UserAgent,
    /// The `Referer` without its query.
    Referer,
    /// The request id.
    RequestId,
    /// The id of its trace, in hexadecimal digits.
    TraceId,
}

const TEXTS: usize = Text::TraceId as usize + 1;

/// The most bytes of a text that only the client chooses.
const CLIENT_TEXT_MAX: usize = 512;

/// A record with a larger buffer is not used again.
const KEPT_BYTES_MAX: usize = 4096;

/// A part of the buffer, from its start to its end.
type Span = (u32, u32);

/// A limit that applies to the request, with its key.
#[derive(Clone, Copy, Debug)]
struct KeySpan {
    limit: Span,
    hash: [u64; 2],
    shown: Span,
    cost: u64,
    unit: Span,
}

/// A limit that applies to a request, with the request's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TappedKey<'r> {
    /// The name of the limit.
    pub limit: &'r str,
    /// The hash of the key.
    pub hash: [u64; 2],
    /// The parts of the key without secrets, with `|` between them.
    pub shown: &'r str,
    /// Units of the request.
    pub cost: u64,
    /// What the units are; empty if the configuration does not say it.
    pub unit: &'r str,
}

impl Default for RequestRecord {
    fn default() -> Self {
        Self {
            at: Timestamp::ZERO,
            client: Ipv4Addr::UNSPECIFIED.into(),
            protocol: "",
            tls: "",
            status: 0,
            outcome: Outcome::Abandoned,
            duration: Duration::ZERO,
            held: Duration::ZERO,
            upstream_time: None,
            bytes_in: 0,
            bytes_out: 0,
            charged_before: 0,
            texts: Texts::default(),
        }
    }
}

impl RequestRecord {
    /// Forgets the request and keeps the memory for another one. Returns whether that is not unusually large.
    pub fn renew(&mut self) -> bool {
        let texts = &mut self.texts;
        texts.buffer.clear();
        texts.single = [(0, 0); TEXTS];
        texts.identities.clear();
        texts.keys.clear();
        let is_usual = texts.buffer.capacity() <= KEPT_BYTES_MAX;
        *self = Self { texts: std::mem::take(texts), ..Self::default() };
        is_usual
    }

    /// The text; empty if the request has none.
    pub fn text(&self, text: Text) -> &str {
        self.slice(self.texts.single[text as usize])
    }

    /// Sets a text.
    pub fn set(&mut self, text: Text, value: &str) {
        self.texts.single[text as usize] = self.push(value);
    }

    /// Sets a text that only the client chooses: its first 512 bytes, valid UTF-8 or not.
    pub fn set_bytes(&mut self, text: Text, value: &[u8]) {
        let value = &value[..value.len().min(CLIENT_TEXT_MAX)];
        self.texts.single[text as usize] = match str::from_utf8(value) {
            Ok(value) => self.push(value),
            Err(_) => self.push(&String::from_utf8_lossy(value)),
        };
    }

    /// Sets the referer: without its query, which may have secrets, and without a user name and password.
    pub fn set_referer(&mut self, value: &[u8]) {
        let end = value.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(value.len());
        let value = &value[..end];
        let is_scheme_end = |window: &[u8]| window == b"://";
        let is_scheme = |at: &usize| !value[..*at].iter().any(|byte| b"/@".contains(byte));
        let scheme = value.windows(3).position(is_scheme_end).filter(is_scheme);
        let authority = scheme.map_or(if value.starts_with(b"//") { 2 } else { 0 }, |at| at + 3);
        let host_end = value[authority..].iter().position(|byte| *byte == b'/').map_or(end, |len| authority + len);
        let host = value[authority..host_end]
            .iter()
            .rposition(|byte| *byte == b'@')
            .map_or(authority, |at| authority + at + 1);
        if host == authority {
            return self.set_bytes(Text::Referer, value);
        }
        self.set_bytes(Text::Referer, &[&value[..authority], &value[host..]].concat());
    }

    /// Adds a verified identity: its name in the configuration. `write` appends its value without secrets.
    pub fn add_identity(&mut self, name: &str, write: impl FnOnce(&mut String)) {
        let identity = [self.push(name), self.push_with(write)];
        self.texts.identities.push(identity);
    }

    /// The identities, each with its name.
    pub fn identities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.identities.iter().map(|[name, shown]| (self.slice(*name), self.slice(*shown)))
    }

    /// Adds a limit that applies to the request; its `shown` is empty. `write` appends the parts of the key without
    /// secrets, with `|` between them.
    pub fn add_key(&mut self, key: TappedKey<'_>, write: impl FnOnce(&mut String)) {
        let TappedKey { limit, hash, cost, unit, .. } = key;
        let (limit, shown, unit) = (self.push(limit), self.push_with(write), self.push(unit));
        self.texts.keys.push(KeySpan { limit, hash, shown, cost, unit });
    }

    /// Sets the cost of the request for a key of a limit, once it is known.
    pub fn settled(&mut self, limit: &str, hash: [u64; 2], cost: u64) {
        let is_settled = |key: &KeySpan| key.hash == hash && self.slice(key.limit) == limit;
        if let Some(index) = self.texts.keys.iter().position(is_settled) {
            self.texts.keys[index].cost = cost;
        }
    }

    /// Begins a stage: the limits of the stage before keep their charges.
    pub fn begin_stage(&mut self) {
        self.charged_before = self.texts.keys.len();
    }

    /// Sets the costs of the current stage to zero.
    pub fn uncharged(&mut self) {
        self.texts.keys.iter_mut().skip(self.charged_before).for_each(|key| key.cost = 0);
    }

    /// The limits that apply to the request, as far as it came.
    pub fn keys(&self) -> impl Iterator<Item = TappedKey<'_>> {
        self.texts.keys.iter().map(|key| TappedKey {
            limit: self.slice(key.limit),
            hash: key.hash,
            shown: self.slice(key.shown),
            cost: key.cost,
            unit: self.slice(key.unit),
        })
    }

    /// Whether no character of its texts is escaped in lines.
    pub(super) fn is_plain(&self) -> bool {
        is_plain(&self.texts.buffer)
    }

    fn push(&mut self, text: &str) -> Span {
        self.push_with(|buffer| buffer.push_str(text))
    }

    fn push_with(&mut self, write: impl FnOnce(&mut String)) -> Span {
        let start = self.end();
        write(&mut self.texts.buffer);
        (start, self.end())
    }

    /// The end of the buffer. Texts beyond 4 GiB, far above the bounds of heads, are cut.
    fn end(&self) -> u32 {
        u32::try_from(self.texts.buffer.len()).unwrap_or(u32::MAX)
    }

    fn slice(&self, (start, end): Span) -> &str {
        self.texts.buffer.get(start as usize..end as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_record_has_nothing_of_the_request_before() {
        let mut record = RequestRecord::default();
        record.set(Text::Path, "/a");
        record.set_bytes(Text::UserAgent, b"a\xffb");
        record.set_bytes(Text::Referer, &[b'r'; 600]);
        record.add_identity("seller", |out| out.push('7'));
        let key = TappedKey { limit: "one", hash: [1, 2], cost: 3, unit: "tokens", ..TappedKey::default() };
        record.add_key(key, |out| out.push_str("7|GET"));
        record.status = 200;
        assert_eq!((record.text(Text::Path), record.text(Text::UserAgent)), ("/a", "a\u{fffd}b"));
        assert_eq!((record.text(Text::Referer).len(), record.text(Text::Host)), (512, ""));
        assert_eq!(record.identities().collect::<Vec<_>>(), [("seller", "7")]);
        for (limit, hash, settled, cost) in [("one", [1, 2], 5, 5), ("two", [1, 2], 6, 5), ("one", [2, 2], 7, 5)] {
            record.settled(limit, hash, settled);
            assert_eq!(record.keys().collect::<Vec<_>>(), [TappedKey { shown: "7|GET", cost, ..key }]);
        }

        assert!(record.renew());
        assert_eq!((record.text(Text::Path), record.keys().count(), record.identities().count()), ("", 0, 0));
        assert_eq!(record.status, 0);
        record.set(Text::Path, &"/".repeat(5000));
        assert!(!record.renew());
    }

    #[test]
    fn a_referer_has_no_secrets() {
        for (sent, kept) in [
            ("https://a.test/b?token=1", "https://a.test/b"),
            ("https://a.test/b#c", "https://a.test/b"),
            ("https://user:secret@a.test/b@c", "https://a.test/b@c"),
            ("//user:secret@a.test/b", "//a.test/b"),
            ("user:secret@a.test", "a.test"),
            ("//user:secret@a.test/x://b", "//a.test/x://b"),
            ("user:secret@a.test/x://u@b", "a.test/x://u@b"),
            ("/b?c://d@e", "/b"),
            ("", ""),
        ] {
            let mut record = RequestRecord::default();
            record.set_referer(sent.as_bytes());
            assert_eq!(record.text(Text::Referer), kept);
        }
    }
}
