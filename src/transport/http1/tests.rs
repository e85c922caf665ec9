//! Attacks on the parser, one in each row, each cut at every offset. The result must not depend on the cuts.

use std::collections::HashSet;

use super::HeadFault::{self, AmbiguousFraming, ConnectRefused, Malformed, TooLarge, UriTooLong};
use super::{BodyStep, EXTENSION_BYTES_MAX, HeadStep, Limits, RequestReader, TRAILER_BYTES_MAX, Underscores};
use crate::base::fields::{Fields, Spans};

pub(super) const LIMITS: Limits =
    Limits { max_head_bytes: 256, max_headers: 6, max_uri_bytes: 64, underscores: Underscores::Keep };

/// The position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between messages.
    Idle,
    InHead,
    InBody,
    /// After a fault.
    Done,
    /// In a malformed body.
    Broken,
}

/// A request as it was parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) is_http_11: bool,
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, Vec<u8>)>,
}

/// The result of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes of the client that belong to accepted messages.
    pub(super) released: Vec<u8>,
    /// Offsets in `released` at which messages end.
    pub(super) ends: Vec<usize>,
    pub(super) requests: Vec<Request>,
    pub(super) fault: Option<(u64, HeadFault)>,
    pub(super) phase: Phase,
}

pub(super) fn sorted(fields: Fields<'_>) -> Vec<(String, Vec<u8>)> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
    let mut fields: Vec<_> = fields.iter().map(|(name, value)| (text(name), value.to_vec())).collect();
    fields.sort();
    fields
}

/// Parses `stream`, cut before each of `cuts`, as a connection would.
pub(super) fn run(limits: Limits, stream: &[u8], cuts: &[usize]) -> Run {
    let mut reader = RequestReader::new(limits);
    let mut run = Run { released: Vec::new(), ends: Vec::new(), requests: Vec::new(), fault: None, phase: Phase::Idle };
    let (mut held, mut from) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&stream.len()]) {
        held.extend_from_slice(&stream[from..cut]);
        from = cut;
        while !held.is_empty() && run.step(&mut reader, &mut held) {}
        if run.phase == Phase::InHead && held.is_empty() {
            run.phase = Phase::Idle;
        }
    }
    run
}

impl Run {
    /// One step; returns whether there may be another one.
    fn step(&mut self, reader: &mut RequestReader, held: &mut Vec<u8>) -> bool {
        match self.phase {
            Phase::Idle | Phase::InHead => match reader.head(held) {
                HeadStep::Head(head) => {
                    let spans = reader.take_fields(Spans::default());
                    self.requests.push(Request {
                        method: held[head.method].to_vec(),
                        target: held[head.target].to_vec(),
                        is_http_11: head.is_http_11,
                        fields: sorted(spans.of(held)),
                        ..Request::default()
                    });
                    self.phase = Phase::InBody;
                    self.release(held, head.len);
                    if reader.decoder().has_ended() {
                        self.end(reader);
                    }
                    true
                }
                HeadStep::Incomplete => {
                    self.phase = Phase::InHead;
                    false
                }
                HeadStep::Idle(len) => {
                    self.phase = Phase::Idle;
                    held.drain(..len);
                    true
                }
                HeadStep::Fault(fault) => {
                    self.fault = Some((self.requests.len() as u64, fault));
                    self.phase = Phase::Done;
                    false
                }
            },
            Phase::InBody => match reader.body(held) {
                BodyStep::Data { skipped, len } => {
                    self.requests.last_mut().unwrap().body.extend_from_slice(&held[skipped..skipped + len]);
                    self.release(held, skipped + len);
                    if reader.decoder().has_ended() {
                        self.end(reader);
                    }
                    true
                }
                BodyStep::More => {
                    self.release(held, held.len());
                    false
                }
                BodyStep::End(len) => {
                    self.release(held, len);
                    self.end(reader);
                    true
                }
                BodyStep::Broken(len) => {
                    self.release(held, len);
                    self.phase = Phase::Broken;
                    false
                }
            },
            Phase::Done | Phase::Broken => false,
        }
    }

    fn release(&mut self, held: &mut Vec<u8>, len: usize) {
        self.released.extend(held.drain(..len));
    }

    fn end(&mut self, reader: &RequestReader) {
        self.ends.push(self.released.len());
        if let Some(trailers) = reader.decoder().trailers() {
            self.requests.last_mut().unwrap().trailers = sorted(trailers.fields());
        }
        self.phase = Phase::Idle;
    }
}

enum Expect {
    /// All bytes are released, and the stream ends in this phase.
    Pass(Phase),
    /// The request with this ordinal is refused; the requests before it are released.
    Refuse(u64, HeadFault),
    /// The body is broken after this number of bytes of the stream.
    Break(usize),
}
use Expect::{Break, Pass, Refuse};

const BARE_LF: HeadFault = Malformed("bare LF");
const METHOD: HeadFault = Malformed("method");
const TARGET: HeadFault = Malformed("target");
const VERSION: HeadFault = Malformed("version");
const LINE: HeadFault = Malformed("request line");
const NAME: HeadFault = Malformed("field name");
const VALUE: HeadFault = Malformed("field value");
const FOLDED: HeadFault = Malformed("folded field line");
const LENGTH: HeadFault = Malformed("content-length");
const LENGTHS: HeadFault = AmbiguousFraming("more than one content-length");
const BOTH: HeadFault = AmbiguousFraming("transfer-encoding and content-length");
const CODING: HeadFault = AmbiguousFraming("transfer-encoding is not chunked");
const CODINGS: HeadFault = AmbiguousFraming("more than one transfer-encoding");
const NO_HOST: HeadFault = Malformed("missing host");
const HOSTS: HeadFault = Malformed("more than one host");

fn check(name: &str, stream: &[u8], expect: &Expect) {
    let mut cuttings: Vec<Vec<usize>> = vec![vec![], (1..stream.len()).collect()];
    cuttings.extend((1..stream.len()).map(|cut| vec![cut]));
    for cuts in cuttings {
        let run = run(LIMITS, stream, &cuts);
        let label = format!("{name}, cut at {cuts:?}: {run:?}");
        match expect {
            Pass(phase) => {
                assert_eq!((run.phase, run.fault), (*phase, None), "{label}");
                if run.phase != Phase::InHead && !stream.starts_with(b"\r") {
                    assert_eq!(run.released.len(), stream.len(), "{label}");
                }
            }
            Refuse(ordinal, fault) => assert_eq!(run.fault, Some((*ordinal, *fault)), "{label}"),
            Break(at) => {
                assert_eq!(run.phase, Phase::Broken, "{label}");
                assert_eq!(run.released, stream[..*at], "{label}");
            }
        }
        assert!(stream.starts_with(&run.released) || stream.starts_with(b"\r"), "{label}");
    }
}

/// A request line and Host, then `rest`.
fn post(rest: &str) -> Vec<u8> {
    format!("POST /p HTTP/1.1\r\nHost: h\r\n{rest}").into_bytes()
}

fn check_all(rows: &[(&str, &[u8], Expect)]) {
    for (name, stream, expect) in rows {
        check(name, stream, expect);
    }
}

/// Rows of field lines and body after the start of a POST request.
fn check_posts(rows: &[(&str, &str, Expect)]) {
    for (name, rest, expect) in rows {
        check(name, &post(rest), expect);
    }
}

#[test]
fn request_lines() {
    check_all(&[
        ("plain", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("HTTP/1.0 without host", b"GET / HTTP/1.0\r\n\r\n", Pass(Phase::Idle)),
        ("absolute form", b"GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("absolute form without path", b"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("asterisk form", b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("unknown method", b"M-SEARCH! / HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("odd bytes", b"GET /\"{|}~[]^?`{|}~?? HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("incomplete", b"GET / HTTP/1.1\r\nHost: h\r\n\r", Pass(Phase::InHead)),
        ("one empty line first", b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("two empty lines first", b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("only empty lines", b"\r\n\r\n", Pass(Phase::Idle)),
        ("three empty lines", b"\r\n\r\n\r\n", Refuse(0, Malformed("empty lines before the request line"))),
        ("empty bare line", b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Refuse(0, BARE_LF)),
        ("CR first", b"\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", Refuse(0, METHOD)),
        ("bare LF", b"GET / HTTP/1.1\nHost: h\r\n\r\n", Refuse(0, BARE_LF)),
        ("bare CR", b"GET / HTTP/1.1\rHost: h\r\n\r\n", Refuse(0, VERSION)),
        ("two CR", b"GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", Refuse(0, VERSION)),
        ("HTTP/0.9", b"GET /\r\n", Refuse(0, LINE)),
        ("one word", b"GET\r\n", Refuse(0, LINE)),
        ("no method", b" / HTTP/1.1\r\n", Refuse(0, METHOD)),
        ("two spaces first", b"GET  / HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("two spaces last", b"GET /  HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("tab", b"GET\t/ HTTP/1.1\r\n", Refuse(0, METHOD)),
        ("space at the end", b"GET / HTTP/1.1 \r\n", Refuse(0, VERSION)),
        ("no target", b"GET  HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("not a token", b"G(T / HTTP/1.1\r\n", Refuse(0, METHOD)),
        ("HTTP/1.2", b"GET / HTTP/1.2\r\n", Refuse(0, VERSION)),
        ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Refuse(0, VERSION)),
        ("lower case version", b"GET / http/1.1\r\n", Refuse(0, VERSION)),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Refuse(0, METHOD)),
        ("CONNECT", b"CONNECT h:443 HTTP/1.1\r\n", Refuse(0, ConnectRefused)),
        ("space in target", b"GET /a b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("NUL in target", b"GET /a\0b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("DEL in target", b"GET /a\x7fb HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("UTF-8 in target", "GET /ä?ä HTTP/1.1\r\nHost: h\r\n\r\n".as_bytes(), Pass(Phase::Idle)),
        ("UTF-8 in absolute target", "GET http://h/ä?ä HTTP/1.1\r\nHost: h\r\n\r\n".as_bytes(), Pass(Phase::Idle)),
        ("UTF-8 in authority", "GET http://ä/ HTTP/1.1\r\n".as_bytes(), Refuse(0, TARGET)),
        ("Latin-1 in target", b"GET /a\xe4 HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("Latin-1 in query", b"GET /?a\xe4 HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("Latin-1 in absolute target", b"GET http://h/\xe4 HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("tab in query", b"GET /?a\tb HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("space in query", b"GET /?a b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("fragment in absolute target", b"GET http://h#a/b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("a fragment", b"GET /a#b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("a fragment in a query", b"GET /a?b#c HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("bytes that http::Uri refuses", b"GET /<`> HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("and in a query", b"GET /?\"<>\" HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("and in both", b"GET http://h/<`>?\"<>\" HTTP/1.1\r\nHost: h\r\n\r\n", Pass(Phase::Idle)),
        ("authority form", b"GET h:80 HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("no slash", b"GET a/b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("no authority", b"GET http:///a HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("asterisk with GET", b"GET * HTTP/1.1\r\n", Refuse(0, TARGET)),
    ]);
}

#[test]
fn fields() {
    check_posts(&[
        ("empty value", "A:\r\n\r\n", Pass(Phase::Idle)),
        ("spaces around", "A: \t b \t\r\n\r\n", Pass(Phase::Idle)),
        ("obs-text", "A: \u{e4}\r\n\r\n", Pass(Phase::Idle)),
        ("bare LF", "A: b\n\r\n", Refuse(0, BARE_LF)),
        ("bare LF at the end", "A: b\r\n\n", Refuse(0, BARE_LF)),
        ("bare CR", "A: b\rC: d\r\n\r\n", Refuse(0, VALUE)),
        ("CR CR LF", "A: b\r\n\r\r\n", Refuse(0, NAME)),
        ("NUL", "A: b\0\r\n\r\n", Refuse(0, VALUE)),
        ("DEL", "A: b\x7f\r\n\r\n", Refuse(0, VALUE)),
        ("control", "A: b\x0b\r\n\r\n", Refuse(0, VALUE)),
        ("folded", "A: b\r\n c\r\n\r\n", Refuse(0, FOLDED)),
        ("folded by tab", "A: b\r\n\tc\r\n\r\n", Refuse(0, FOLDED)),
        ("space before colon", "A : b\r\n\r\n", Refuse(0, NAME)),
        ("tab before colon", "Transfer-Encoding\t: chunked\r\n\r\n", Refuse(0, NAME)),
        ("no name", ": b\r\n\r\n", Refuse(0, NAME)),
        ("no colon", "A\r\n\r\n", Refuse(0, NAME)),
        ("not a token", "A\u{e4}: b\r\n\r\n", Refuse(0, NAME)),
        ("NUL in name", "Transfer-Encoding\0: chunked\r\n\r\n", Refuse(0, NAME)),
        ("second host", "hOST: i\r\n\r\n", Refuse(0, HOSTS)),
        ("same host twice", "Host: h\r\n\r\n", Refuse(0, HOSTS)),
    ]);
    check_all(&[
        ("no host", b"GET / HTTP/1.1\r\nHosts: h\r\n\r\n", Refuse(0, NO_HOST)),
        ("two hosts in 1.0", b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", Refuse(0, HOSTS)),
        ("folded first line", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", Refuse(0, FOLDED)),
    ]);
}

#[test]
fn framing() {
    check_posts(&[
        ("length", "Content-Length: 3\r\n\r\nabc", Pass(Phase::Idle)),
        ("length, part", "content-length:\t3 \r\n\r\nab", Pass(Phase::InBody)),
        ("length zero", "Content-Length: 000\r\n\r\n", Pass(Phase::Idle)),
        ("length at most", "Content-Length: 9223372036854775807\r\n\r\nab", Pass(Phase::InBody)),
        ("length above", "Content-Length: 9223372036854775808\r\n\r\n", Refuse(0, LENGTH)),
        ("length 2^64", "Content-Length: 18446744073709551616\r\n\r\n", Refuse(0, LENGTH)),
        ("length of 20 digits", "Content-Length: 00000000000000000003\r\n\r\n", Refuse(0, LENGTH)),
        ("length plus", "Content-Length: +1\r\n\r\n", Refuse(0, LENGTH)),
        ("length minus", "Content-Length: -1\r\n\r\n", Refuse(0, LENGTH)),
        ("length hex", "Content-Length: 0x1\r\n\r\n", Refuse(0, LENGTH)),
        ("length empty", "Content-Length: \r\n\r\n", Refuse(0, LENGTH)),
        ("length list", "Content-Length: 5,5\r\n\r\n", Refuse(0, LENGTH)),
        ("length, space within", "Content-Length: 1 1\r\n\r\n", Refuse(0, LENGTH)),
        ("length, exotic space", "Content-Length: \u{a0}1\r\n\r\n", Refuse(0, LENGTH)),
        ("same length twice", "Content-Length: 1\r\ncontent-length: 1\r\n\r\n", Refuse(0, LENGTHS)),
        ("length differs", "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Refuse(0, LENGTHS)),
        ("TE then CL", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", Refuse(0, BOTH)),
        ("CL then TE", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", Refuse(0, BOTH)),
        ("TE in capitals", "TRANSFER-ENCODING:CHUNKED\t\r\n\r\n0\r\n\r\n", Pass(Phase::Idle)),
        ("TE gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n\r\n", Refuse(0, CODING)),
        ("TE chunked, chunked", "Transfer-Encoding: chunked, chunked\r\n\r\n", Refuse(0, CODING)),
        ("TE identity", "Transfer-Encoding: identity\r\n\r\n", Refuse(0, CODING)),
        ("TE xchunked", "Transfer-Encoding: xchunked\r\n\r\n", Refuse(0, CODING)),
        ("TE quoted", "Transfer-Encoding: \"chunked\"\r\n\r\n", Refuse(0, CODING)),
        ("TE with parameter", "Transfer-Encoding: chunked;a=b\r\n\r\n", Refuse(0, CODING)),
        ("TE empty", "Transfer-Encoding:\r\n\r\n", Refuse(0, CODING)),
        ("TE vertical tab", "Transfer-Encoding: \x0bchunked\r\n\r\n", Refuse(0, VALUE)),
        ("TE twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", Refuse(0, CODINGS)),
    ]);
    let te_10 = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    check("TE in HTTP/1.0", te_10, &Refuse(0, AmbiguousFraming("transfer-encoding in HTTP/1.0")));
}

#[test]
fn chunks() {
    const TE: &str = "Transfer-Encoding: chunked\r\n\r\n";
    let head = post(TE).len();
    let rows: &[(&str, &str, Expect)] = &[
        ("chunks", "3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n", Pass(Phase::Idle)),
        ("trailers", "0\r\nA: b\r\nC:\r\n\r\n", Pass(Phase::Idle)),
        ("not ended", "3\r\nabc\r\n0\r\n", Pass(Phase::InBody)),
        ("16 digits", "FFFFFFFFFFFFFFFF\r\nabc", Pass(Phase::InBody)),
        ("17 digits", "00000000000000003\r\nabc", Break(16)),
        ("no digits", "\r\nabc", Break(0)),
        ("prefix", "0x3\r\nabc\r\n", Break(1)),
        ("sign", "+3\r\nabc\r\n", Break(0)),
        ("not hex", "g\r\n", Break(0)),
        ("extensions", "3;a=b\r\nabc\r\n0;c\r\n\r\n", Pass(Phase::Idle)),
        ("extension, white space and quotes", "3 \t; a = \"b;\\\"\"\r\nabc\r\n0\r\n\r\n", Pass(Phase::Idle)),
        ("extension without size", ";a\r\nabc\r\n", Break(0)),
        ("extension, bare LF", "3;a\nabc\r\n", Break(3)),
        ("extension, bare CR", "3;a\rbc\r\n", Break(4)),
        ("extension, control character", "3;a\0\r\nabc\r\n", Break(3)),
        ("space after size", "3 \r\nabc\r\n", Break(2)),
        ("space within size", "3 3\r\nabc\r\n", Break(2)),
        ("bare LF after size", "3\nabc\r\n", Break(1)),
        ("CR CR", "3\r\r\nabc\r\n", Break(2)),
        ("data too long", "3\r\nabcd\r\n", Break(6)),
        ("LF after data", "3\r\nabc\n0\r\n\r\n", Break(6)),
        ("CR and other after data", "3\r\nabc\rX", Break(7)),
        ("trailer without name", "0\r\n: b\r\n\r\n", Break(3)),
        ("trailer folded", "0\r\nA: b\r\n c\r\n\r\n", Break(9)),
        ("trailer, bare LF", "0\r\nA: b\n\r\n", Break(7)),
        ("trailer, bare CR", "0\r\nA: b\rC: d\r\n\r\n", Break(8)),
        ("trailer, space before colon", "0\r\nA : b\r\n\r\n", Break(4)),
        ("trailers, bare LF at the end", "0\r\nA: b\r\n\n", Break(9)),
        ("CR and other at the end", "0\r\n\rX", Break(4)),
        ("too many trailers", "0\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n", Break(3 + 6 * 4)),
    ];
    for (name, body, expect) in rows {
        let expect = match expect {
            Break(at) => Break(head + at),
            Pass(phase) => Pass(*phase),
            Refuse(ordinal, fault) => Refuse(*ordinal, *fault),
        };
        check(name, &post(&format!("{TE}{body}")), &expect);
    }
    let long = [post(TE), b"0\r\na:".to_vec(), vec![b'x'; TRAILER_BYTES_MAX]].concat();
    let run = run(LIMITS, &long, &[]);
    assert_eq!((run.phase, run.released.len()), (Phase::Broken, head + 3 + TRAILER_BYTES_MAX));
}

#[test]
fn extensions_may_not_outweigh_the_data() {
    let phase = |chunks: usize, data: usize, extension: usize| {
        let chunk = format!("{data:x};{}\r\n{}\r\n", "x".repeat(extension - 1), "y".repeat(data));
        let stream = post(&format!("Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(chunks)));
        run(LIMITS, &stream, &[]).phase
    };
    assert_eq!(phase(1, 1, EXTENSION_BYTES_MAX), Phase::Idle);
    assert_eq!(phase(1, 1, EXTENSION_BYTES_MAX + 1), Phase::Broken);
    assert_eq!(phase(100, 200, 200), Phase::Idle);
    assert_eq!(phase(100, 1, 200), Phase::Broken);
}

#[test]
fn limits() {
    let uri = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(bytes - 1)).into_bytes();
    check("target at the limit", &uri(64), &Pass(Phase::Idle));
    check("target beyond", &uri(65), &Refuse(0, UriTooLong));
    check("target beyond the head too", &uri(400), &Refuse(0, UriTooLong));
    check("target without end", &uri(400)[..300], &Refuse(0, UriTooLong));

    let head = |bytes: usize| post(&format!("A:{}\r\n\r\n", "b".repeat(bytes - post("A:\r\n\r\n").len())));
    check("head at the limit", &head(256), &Pass(Phase::Idle));
    check("after an empty line", &[b"\r\n".to_vec(), head(256)].concat(), &Pass(Phase::Idle));
    check("head beyond", &head(257), &Refuse(0, TooLarge));
    check("field without end", &head(400)[..300], &Refuse(0, TooLarge));
    check("method without end", "A".repeat(300).as_bytes(), &Refuse(0, TooLarge));
    check("request line too long", format!("{} / HTTP/1.1\r\n", "A".repeat(300)).as_bytes(), &Refuse(0, TooLarge));

    check("headers at the limit", &post(&format!("{}\r\n", "A:\r\n".repeat(5))), &Pass(Phase::Idle));
    check("one beyond", &post(&format!("{}\r\n", "A:\r\n".repeat(6))), &Refuse(0, TooLarge));
    check("before the head ends", &post(&"A:\r\n".repeat(6)), &Refuse(0, TooLarge));
}

#[test]
fn pipelines() {
    let get = "GET /g HTTP/1.1\r\nHost: h\r\n\r\n";
    check_posts(&[
        ("three", &format!("\r\n{get}{get}"), Pass(Phase::Idle)),
        ("after a body", &format!("Content-Length: 2\r\n\r\nab{get}"), Pass(Phase::Idle)),
        ("after chunks", &format!("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{get}"), Pass(Phase::Idle)),
        ("a part", &format!("\r\n{get}GET"), Pass(Phase::InHead)),
        ("bad third", &format!("\r\n{get}GET\r\n{get}"), Refuse(2, LINE)),
        ("bad after a body", "Content-Length: 2\r\n\r\nabc", Pass(Phase::InHead)),
        ("CL.0 smuggle", "Content-Length: 0\r\n\r\nX\r\n\r\n", Refuse(1, LINE)),
    ]);
}

#[test]
fn empty_lines_after_a_message_do_not_begin_the_next() {
    let one = post("\r\n");
    let run = run(LIMITS, &[&one[..], b"\r\n"].concat(), &[]);
    assert_eq!((run.phase, run.requests.len(), run.released), (Phase::Idle, 1, one));
}

#[test]
fn requests_are_parsed_as_they_were_sent() {
    let stream = post("X-A:  b \t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\nU:\r\n\r\n");
    for cuts in [vec![], (1..stream.len()).collect()] {
        let run = run(LIMITS, &stream, &cuts);
        let request = &run.requests[0];
        assert_eq!((&*request.method, &*request.target, &*request.body), (&b"POST"[..], &b"/p"[..], &b"abcde"[..]));
        assert_eq!(request.fields[2], ("x-a".into(), b"b".to_vec()));
        assert_eq!(request.trailers, [("t".into(), b"1".to_vec()), ("u".into(), b"".to_vec())]);
    }
}

#[test]
fn bytes_after_an_upgrade_are_no_request() {
    let one = post("Upgrade: x\r\n\r\n");
    let run = run(LIMITS, &[&one[..], b"\x01\x02"].concat(), &[]);
    assert_eq!((run.phase, run.released), (Phase::Done, one));
}

#[test]
fn names_that_services_may_read_as_others() {
    for sign in ["_", ".", "!", "~"] {
        let chunked = "transfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n0\r\nx_t: 1\r\nx-t: 2\r\n\r\n";
        let stream = format!("POST / HTTP/1.1\r\nHost: a\r\nX_A: 1\r\nX-A: 2\r\nContent_Length: 9\r\n{chunked}");
        let stream = stream.replace('_', sign);
        let with_sign = |names: &[&str]| names.iter().map(|name| name.replace('_', sign)).collect::<HashSet<_>>();
        let names = |fields: &[(String, Vec<u8>)]| fields.iter().map(|(name, _)| name.clone()).collect::<HashSet<_>>();
        for (underscores, expected, trailers) in [
            (Underscores::Drop, &["host", "trailer", "transfer-encoding", "x-a"][..], &["x-t"][..]),
            (
                Underscores::Keep,
                &["content_length", "host", "trailer", "transfer-encoding", "x-a", "x_a"],
                &["x-t", "x_t"],
            ),
        ] {
            let read = run(Limits { underscores, ..LIMITS }, stream.as_bytes(), &[]);
            assert_eq!((read.fault, read.requests.len()), (None, 1), "{sign} {underscores:?}");
            assert_eq!(names(&read.requests[0].fields), with_sign(expected), "{sign} {underscores:?}");
            assert_eq!(names(&read.requests[0].trailers), with_sign(trailers), "{sign} {underscores:?}");
        }
        let strict = Limits { underscores: Underscores::Refuse, ..LIMITS };
        let refused = Malformed("a field name with more than letters, digits and `-`");
        assert_eq!(run(strict, stream.as_bytes(), &[]).fault.map(|(_, fault)| fault), Some(refused), "{sign}");
        let in_trailer = stream.replace(&format!("X{sign}A"), "X-B").replace(&format!("Content{sign}L"), "Content-T");
        assert_eq!(run(strict, in_trailer.as_bytes(), &[]).phase, Phase::Broken, "{sign}");
    }
}
