//! One row per attack, each cut in every place: the outcome must not depend on the cuts.

use super::HeadFault::{self, AmbiguousFraming, ConnectRefused, Malformed, Timeout, TooLarge, UriTooLong};
use super::{Guard, Limits, Phase, SUBSTITUTE, TRAILER_BYTES_MAX};

pub(super) const LIMITS: Limits = Limits { max_head_bytes: 256, max_headers: 6, max_uri_bytes: 64 };

/// What came of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The client's own bytes that were released.
    pub(super) released: Vec<u8>,
    /// Where in them each release ended: every end of a message, and every cut.
    pub(super) ends: Vec<usize>,
    pub(super) fault: Option<(u64, HeadFault)>,
    pub(super) phase: Phase,
}

/// Feeds `stream`, cut before each of `cuts`, as a reader would.
pub(super) fn run(limits: Limits, stream: &[u8], cuts: &[usize]) -> Run {
    let mut guard = Guard::new(limits);
    let (mut released, mut ends) = (Vec::new(), Vec::new());
    let mut from = 0;
    for &cut in cuts.iter().chain([&stream.len()]) {
        let piece = &stream[from..cut];
        from = cut;
        let passed = guard.push(piece);
        released.extend_from_slice(&piece[..passed]);
        ends.push(released.len());
        drain(&mut guard, &mut released, &mut ends);
    }
    outcome(&guard, released, ends)
}

fn drain(guard: &mut Guard, released: &mut Vec<u8>, ends: &mut Vec<usize>) {
    while !guard.releasable().is_empty() {
        let mut left = guard.releasable().len();
        while left > 0 {
            let step = left.min(7);
            released.extend_from_slice(&guard.releasable()[..step]);
            guard.consume(step);
            left -= step;
        }
        ends.push(released.len());
    }
}

fn outcome(guard: &Guard, mut released: Vec<u8>, ends: Vec<usize>) -> Run {
    let fault = (0..1000).find_map(|ordinal| Some((ordinal, guard.fault(ordinal)?)));
    assert_eq!(fault.is_some(), guard.phase() == Phase::Done);
    if fault.is_some() {
        let own = released.len() - SUBSTITUTE.len();
        assert_eq!(released.split_off(own), SUBSTITUTE);
    }
    if guard.phase() != Phase::InHead {
        assert_eq!(guard.held_capacity(), 0, "memory is given back");
    }
    Run { released, ends, fault, phase: guard.phase() }
}

enum Expect {
    /// All of it is released and the stream ends in this phase.
    Pass(Phase),
    /// The request with this ordinal is refused, those before it are released.
    Refuse(u64, HeadFault),
    /// The body breaks after so many bytes of the stream.
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

/// Rows of what follows `post`.
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
        ("not ASCII in target", b"GET /a\xc3\xa4 HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("not ASCII in authority", b"GET http://h/\xc3\xa4 HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("a fragment", b"GET /a#b HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("a fragment in a query", b"GET /a?b#c HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("what http::Uri refuses in a path", b"GET /<a> HTTP/1.1\r\n", Refuse(0, TARGET)),
        ("what http::Uri refuses in a query", b"GET /?\"a\" HTTP/1.1\r\n", Refuse(0, TARGET)),
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
        ("extension", "3;a=b\r\nabc\r\n0\r\n\r\n", Break(1)),
        ("space after size", "3 \r\nabc\r\n", Break(1)),
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
fn push_stops_at_the_end_of_a_message_and_takes_the_rest() {
    let mut guard = Guard::new(LIMITS);
    let one = post("Content-Length: 2\r\n\r\nab");
    let two = [one.clone(), one.clone(), b"GET".to_vec()].concat();
    assert_eq!(guard.push(&two), one.len());
    assert_eq!(guard.releasable(), one);
    assert_eq!(guard.push(b" /"), 0);
    guard.consume(one.len());
    assert_eq!((guard.releasable(), guard.phase()), (&b""[..], Phase::InHead));
    assert_eq!(guard.push(b" HTTP/1.0\r\n\r\n"), 0);
    assert_eq!(guard.releasable(), b"GET / HTTP/1.0\r\n\r\n");
}

#[test]
fn empty_lines_after_a_message_do_not_begin_the_next() {
    let mut guard = Guard::new(LIMITS);
    let one = post("\r\n");
    assert_eq!(guard.push(&[&one[..], b"\r\n"].concat()), one.len());
    assert_eq!((guard.phase(), guard.time_out()), (Phase::Idle, false));
    assert_eq!(guard.push(&one), one.len());
}

#[test]
fn a_late_head_times_out() {
    let rows: &[(&str, &[u8], bool)] = &[
        ("nothing", b"", false),
        ("a part", b"GET / HT", true),
        ("a body", b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\na", false),
        ("a part after a message", b"GET / HTTP/1.0\r\n\r\nG", true),
        ("after a fault", b"GET\r\n", false),
    ];
    for (name, stream, late) in rows {
        let mut guard = Guard::new(LIMITS);
        guard.push(stream);
        assert_eq!(guard.time_out(), *late, "{name}");
        if *late {
            let ordinal = u64::from(stream.len() > 10);
            assert_eq!((guard.fault(ordinal), guard.releasable()), (Some(Timeout), SUBSTITUTE), "{name}");
        }
    }
}

#[test]
fn nothing_follows_a_fault() {
    let mut guard = Guard::new(LIMITS);
    guard.push(b"GET\r\n");
    assert_eq!(guard.push(&post("\r\n")), 0);
    let mut released = Vec::new();
    drain(&mut guard, &mut released, &mut Vec::new());
    assert_eq!(guard.push(&post("\r\n")), 0);
    assert_eq!((released.as_slice(), guard.releasable(), guard.phase()), (SUBSTITUTE, &b""[..], Phase::Done));
}

#[test]
fn bytes_behind_an_upgrade_are_no_request() {
    let mut guard = Guard::new(LIMITS);
    let one = post("Upgrade: x\r\n\r\n");
    assert_eq!(guard.push(&[&one[..], b"\x01\x02"].concat()), one.len());
    assert_eq!(guard.phase(), Phase::Done);
}
