//! Request heads and trailers, collected field by field from their blocks.
//!
//! Names and values lie in one piece of memory, written as HTTP/1 writes field lines. What RFC 9113, sections 8.2 and 8.3,
//! calls malformed is a [`HeadFault`] of its stream. The whole block is decoded in any case, as its table is for all streams.
//!
//! Not here: the bytes of methods, paths and hosts, which are judged alike for all protocols.

use std::ops::Range;

use super::settings::Config;
use crate::base::fields::{FieldBuf, Fields, LOWER, PLAIN, Spans, is_value, parse_length, shared_classes, trim_ows};

/// Why a head is refused. The stream ends with it; the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// Malformed (RFC 9113, section 8.1.1). A short, fixed reason.
    Malformed(&'static str),
    /// More than one `content-length`.
    Ambiguous,
    /// The list of fields is too long.
    TooLarge,
}

/// The head of a request.
#[derive(Debug, Default)]
pub struct Head {
    /// Pseudo-header fields, then the lines of all other fields.
    bytes: Vec<u8>,
    spans: Spans,
    pseudo: [Option<Part>; PSEUDO.len()],
    /// Bytes of the body, if the head says so.
    pub content_length: Option<u64>,
    /// Services may read a name as another one: it is not [`PLAIN`].
    pub has_ambiguous_name: bool,
    /// What is wrong with it; then some fields may be missing.
    pub fault: Option<HeadFault>,
}

/// A piece of [`Head::bytes`].
type Part = Range<u32>;

/// The pseudo-header fields of requests (RFC 9113, section 8.3.1; RFC 8441, section 4).
const PSEUDO: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;

impl Head {
    /// The method; empty if there is none.
    pub fn method(&self) -> &[u8] {
        self.part(METHOD).unwrap_or_default()
    }

    /// The scheme.
    pub fn scheme(&self) -> Option<&[u8]> {
        self.part(SCHEME)
    }

    /// The host and port of the target.
    pub fn authority(&self) -> Option<&[u8]> {
        self.part(AUTHORITY)
    }

    /// The path and query of the target; empty if there are none.
    pub fn path(&self) -> &[u8] {
        self.part(PATH).unwrap_or_default()
    }

    /// The protocol that an extended CONNECT asks for.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.part(PROTOCOL)
    }

    /// All other fields.
    pub fn fields(&self) -> Fields<'_> {
        self.spans.of(&self.bytes)
    }

    /// Removes the fields whose names are not to stay.
    pub fn retain(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        let fields: FieldBuf = self.fields().iter().filter(|(name, _)| is_kept(name)).collect();
        let mut spans = Spans::default();
        for (name, value) in fields.fields().iter() {
            push(&mut self.bytes, &mut spans, name, value);
        }
        self.spans = spans;
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.memory()
    }

    /// Bytes and number of fields, as capacities of the next head.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.bytes.len(), self.spans.len())
    }

    fn part(&self, index: usize) -> Option<&[u8]> {
        let Range { start, end } = self.pseudo[index].clone()?;
        self.bytes.get(start as usize..end as usize)
    }
}

/// Collects the fields of one block.
#[derive(Debug)]
pub(super) struct Collector {
    head: Head,
    config: Config,
    is_trailer: bool,
    /// As RFC 9113, section 6.5.2, counts it.
    list_len: usize,
}

/// What a field counts for beside its bytes (RFC 9113, section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

impl Collector {
    /// Collects a head, or the trailers of a body. `bytes` and `fields` are the capacity to begin with.
    pub(super) fn new(config: Config, is_trailer: bool, bytes: usize, fields: usize) -> Self {
        let head = Head { bytes: Vec::with_capacity(bytes), spans: Spans::with_capacity(fields), ..Head::default() };
        Self { head, config, is_trailer, list_len: 0 }
    }

    /// Takes a field. After the first fault fields are only counted.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        self.list_len += name.len() + value.len() + FIELD_OVERHEAD;
        if self.head.fault.is_some() {
            return;
        }
        self.head.fault = if self.list_len > self.config.max_head_bytes {
            Some(HeadFault::TooLarge)
        } else {
            self.checked(name, value).err()
        };
    }

    fn checked(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        if let [b':', ..] = name {
            return self.pseudo(name, value);
        }
        let classes = shared_classes(name);
        if name.is_empty() || classes & LOWER == 0 {
            return Err(HeadFault::Malformed("field name"));
        }
        if !is_value(value) {
            return Err(HeadFault::Malformed("field value"));
        }
        // RFC 9113, section 8.2.1, allows to refuse white space; most servers remove it, as over HTTP/1.
        let value = trim_ows(value);
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return Err(HeadFault::Malformed("a field of HTTP/1 connections"));
            }
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => return Err(HeadFault::Malformed("te")),
            b"content-length" if !self.is_trailer => self.content_length(value)?,
            _ => {}
        }
        if self.head.spans.len() >= self.config.max_fields {
            return Err(HeadFault::TooLarge);
        }
        self.head.has_ambiguous_name |= classes & PLAIN == 0;
        push(&mut self.head.bytes, &mut self.head.spans, name, value);
        Ok(())
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        let known = PSEUDO.iter().position(|known| *known == name).filter(|_| !self.is_trailer);
        let Some(index) = known else { return Err(HeadFault::Malformed("pseudo-header field")) };
        if !self.head.spans.is_empty() {
            return Err(HeadFault::Malformed("a pseudo-header field behind others"));
        }
        if self.head.pseudo[index].is_some() {
            return Err(HeadFault::Malformed("a pseudo-header field twice"));
        }
        if !is_value(value) {
            return Err(HeadFault::Malformed("pseudo-header field"));
        }
        let at = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let start = at(&self.head.bytes);
        self.head.bytes.extend_from_slice(value);
        self.head.pseudo[index] = Some(start..at(&self.head.bytes));
        Ok(())
    }

    fn content_length(&mut self, digits: &[u8]) -> Result<(), HeadFault> {
        if self.head.content_length.is_some() {
            return Err(HeadFault::Ambiguous);
        }
        self.head.content_length = Some(parse_length(digits).ok_or(HeadFault::Malformed("content-length"))?);
        Ok(())
    }

    /// The head; `has_ended` says that no body follows.
    pub(super) fn into_head(mut self, has_ended: bool) -> Head {
        if self.head.fault.is_none() {
            self.head.fault = self.fault(has_ended);
        }
        self.head
    }

    /// The trailers.
    pub(super) fn into_trailers(self) -> Result<FieldBuf, HeadFault> {
        match self.head.fault {
            Some(fault) => Err(fault),
            None => Ok(self.head.fields().iter().collect()),
        }
    }

    /// What is wrong with the head as a whole (RFC 9113, sections 8.1.1, 8.3.1 and 8.5; RFC 8441, section 4).
    fn fault(&self, has_ended: bool) -> Option<HeadFault> {
        let has = |index: usize| self.head.part(index).is_some_and(|part| !part.is_empty());
        let is_connect = self.head.method() == b"CONNECT";
        if !has(METHOD) {
            return Some(HeadFault::Malformed("no method"));
        }
        if self.head.pseudo[PROTOCOL].is_some() {
            let is_whole = is_connect && has(PROTOCOL) && has(SCHEME) && has(PATH) && has(AUTHORITY);
            let is_good = is_whole && self.config.takes_protocol && self.head.content_length.is_none();
            return (!is_good).then_some(HeadFault::Malformed("extended CONNECT"));
        }
        if is_connect {
            let is_good = has(AUTHORITY) && self.head.pseudo[SCHEME].is_none() && self.head.pseudo[PATH].is_none();
            return (!is_good).then_some(HeadFault::Malformed("CONNECT"));
        }
        if !self.head.scheme().is_some_and(is_scheme) {
            return Some(HeadFault::Malformed("scheme"));
        }
        if !has(PATH) {
            return Some(HeadFault::Malformed("no path"));
        }
        if has_ended && self.head.content_length.is_some_and(|length| length > 0) {
            return Some(HeadFault::Malformed("a body that is shorter than its content-length"));
        }
        None
    }
}

/// Adds a field as a line of HTTP/1.
fn push(bytes: &mut Vec<u8>, spans: &mut Spans, name: &[u8], value: &[u8]) {
    let start = bytes.len();
    for piece in [name, b": ", value, b"\r\n"] {
        bytes.extend_from_slice(piece);
    }
    let value_at = start + name.len() + 2;
    spans.push(bytes, start..start + name.len(), value_at..value_at + value.len(), bytes.len());
}

/// RFC 3986, section 3.1.
fn is_scheme(scheme: &[u8]) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config { max_streams: 1, max_head_bytes: 1000, max_fields: 3, takes_protocol: true };

    /// A head of fields, `name=value` each.
    fn head(fields: &str, config: Config, has_ended: bool) -> Head {
        let mut collector = Collector::new(config, false, 0, 0);
        for (name, value) in fields.split('|').filter_map(|field| field.split_once('=')) {
            collector.field(name.as_bytes(), value.as_bytes());
        }
        collector.into_head(has_ended)
    }

    const GET: &str = ":method=GET|:scheme=http|:authority=a|:path=/";
    const CONNECT: &str = ":method=CONNECT|:protocol=websocket|:scheme=http|:authority=a|:path=/";

    #[test]
    fn a_head_is_what_came() {
        let head = head(&format!("{GET}b?c|x-key= \t1 |te=trailers|cookie=a_"), CONFIG, false);
        assert_eq!(head.fault, None);
        assert_eq!(
            [head.method(), head.scheme().unwrap_or_default(), head.authority().unwrap_or_default(), head.path()],
            [&b"GET"[..], b"http", b"a", b"/b?c"]
        );
        assert_eq!((head.protocol(), head.content_length, head.has_ambiguous_name), (None, None, false));
        let mut lines = Vec::new();
        head.fields().write_lines(&mut lines, |_| true);
        assert_eq!(lines, b"x-key: 1\r\nte: trailers\r\ncookie: a_\r\n");
    }

    #[test]
    fn fields_are_removed_by_name() {
        for name in ["x_a", "x.a", "x!a"] {
            assert!(head(&format!("{GET}|b-2=2|{name}=1"), CONFIG, true).has_ambiguous_name, "{name}");
        }
        let mut head = head(&format!("{GET}|x_a=1|b=2|c_=3"), CONFIG, true);
        head.retain(|name| !name.contains(&b'_'));
        assert_eq!(head.fields().iter().collect::<Vec<_>>(), [(&b"b"[..], &b"2"[..])]);
        assert_eq!((head.method(), head.path()), (&b"GET"[..], &b"/"[..]));
    }

    /// Whether heads without a body are good.
    fn check(rows: &[(String, bool)]) {
        for (fields, is_good) in rows {
            let fault = head(fields, CONFIG, true).fault;
            assert_eq!(fault.is_none(), *is_good, "{fields}: {fault:?}");
            assert!(*is_good || matches!(fault, Some(HeadFault::Malformed(_))), "{fields}");
        }
    }

    #[test]
    fn malformed_fields_are_a_fault() {
        let get = |more: &str| format!("{GET}|{more}");
        let rows = [
            // RFC 9113, section 8.2.1
            (get("X=1"), false),
            (get("x y=1"), false),
            (get("x:=1"), false),
            (get("=1"), false),
            (get("x\u{7f}=1"), false),
            (get("\u{e9}=1"), false),
            (get("x=a\rb"), false),
            (get("x=a\nb"), false),
            (get("x=a\0b"), false),
            (get("x=a\u{7f}"), false),
            (get("x=\u{e9}\tb"), true),
            // Section 8.2.2
            (get("connection=close"), false),
            (get("keep-alive=1"), false),
            (get("proxy-connection=1"), false),
            (get("transfer-encoding=chunked"), false),
            (get("upgrade=h2c"), false),
            (get("te=gzip"), false),
            (get("te=trailers, gzip"), false),
            (get("te=Trailers"), true),
        ];
        check(&rows);
    }

    #[test]
    fn malformed_requests_are_a_fault() {
        let get = |more: &str| format!("{GET}|{more}");
        let rows = [
            // Section 8.3
            (get(":path=/b"), false),
            (get(":status=200"), false),
            (get(":x=1"), false),
            (get("x=1|:path=/b"), false),
            (":method=GET|:scheme=http|x=1|:path=/".into(), false),
            // Section 8.3.1
            (":scheme=http|:path=/".into(), false),
            (":method=GET|:path=/".into(), false),
            (":method=GET|:scheme=http".into(), false),
            (":method=GET|:scheme=http|:path=".into(), false),
            (":method=|:scheme=http|:path=/".into(), false),
            (":method=GET|:scheme=|:path=/".into(), false),
            (":method=GET|:scheme=1|:path=/".into(), false),
            (":method=GET|:scheme=ht tp|:path=/".into(), false),
            (":method=GET|:scheme=http|:path=/\r".into(), false),
            (":method=GET|:scheme=http|:path=/".into(), true),
            // Section 8.1.1
            (get("content-length=5"), false),
            (get("content-length=0"), true),
            (get("content-length="), false),
            (get("content-length=+0"), false),
            (get("content-length=0x0"), false),
            (get("content-length=99999999999999999999"), false),
            (get("content-length=9223372036854775808"), false),
            // Section 8.5
            (":method=CONNECT|:authority=a".into(), true),
            (":method=CONNECT".into(), false),
            (":method=CONNECT|:authority=a|:path=/".into(), false),
            (":method=CONNECT|:authority=a|:scheme=http".into(), false),
            // RFC 8441, section 4
            (CONNECT.into(), true),
            (CONNECT.replace("CONNECT", "GET"), false),
            (CONNECT.replace("websocket", ""), false),
            (CONNECT.replace(":scheme=http|", ""), false),
            (CONNECT.replace(":authority=a|", ""), false),
            (CONNECT.replace("|:path=/", ""), false),
            (format!("{CONNECT}|content-length=0"), false),
        ];
        check(&rows);
        let no_protocol = Config { takes_protocol: false, ..CONFIG };
        assert!(head(CONNECT, no_protocol, true).fault.is_some());
        assert_eq!(head(&get("content-length=1|content-length=1"), CONFIG, false).fault, Some(HeadFault::Ambiguous));
    }

    #[test]
    fn heads_are_bounded() {
        let many = |count: usize| format!("{GET}{}", "|x=1".repeat(count));
        let large = |len: usize| format!("{GET}|x={}", "v".repeat(len));
        // 4 pseudo-header fields of 38 bytes, a field of 1 byte, 32 bytes for each.
        let most = 1000 - 38 - 1 - 5 * 32;
        for (fields, fault) in [
            (many(3), None),
            (many(4), Some(HeadFault::TooLarge)),
            (large(most), None),
            (large(most + 1), Some(HeadFault::TooLarge)),
        ] {
            assert_eq!(head(&fields, CONFIG, true).fault, fault, "{fields}");
        }
        let large = head(&large(most + 1), CONFIG, true);
        assert!(large.fields().is_empty() && large.bytes.len() < 100);
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        for (name, value, is_good) in [
            ("x-sum", "1", true),
            ("content-length", "x", true),
            (":path", "/", false),
            (":status", "200", false),
            ("connection", "close", false),
            ("X", "1", false),
            ("x", "a\nb", false),
        ] {
            let mut collector = Collector::new(CONFIG, true, 0, 0);
            collector.field(name.as_bytes(), value.as_bytes());
            assert_eq!(collector.into_trailers().is_ok(), is_good, "{name}");
        }
    }
}
