//! Attacks on the end of a message: Content-Length, Transfer-Encoding, chunks, trailers, versions.

use super::lab::Expect::{Closed, Cut, Passes, PassesOnce};
use super::lab::Lab;

/// A request that an attacker tries to smuggle.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: weir.test\r\n\r\n";

/// A POST with these field lines, and a body that hides a request from one of two readers.
fn hiding(lines: &[u8]) -> Vec<u8> {
    let body = format!("0\r\n\r\n{SMUGGLED}");
    [b"POST /outer HTTP/1.1\r\nhost: weir.test\r\n", lines, b"\r\n\r\n", body.as_bytes()].concat()
}

/// All messages of this file on which two readers may differ.
pub fn corpus() -> Vec<Vec<u8>> {
    let whole = hiding(b"transfer-encoding: chunked");
    [odd_codings(), odd_lengths(), odd_versions(), broken_chunks(), vec![hiding_in_http_10(), whole]].concat()
}

/// Transfer codings on which two readers may differ.
fn odd_codings() -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "content-length: 0\r\ntransfer-encoding: chunked",
        "content-length: 5\r\ntransfer-encoding: identity",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked",
        "Transfer-Encoding: chunked\r\nTRANSFER-ENCODING: x",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunkedx",
        "transfer-encoding: identity",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: chunked,",
        "transfer-encoding: ,chunked",
        "transfer-encoding: chunked;a=b",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding: 'chunked'",
        "transfer-encoding: chun ked",
        "transfer-encoding:",
        "transfer-encoding: ",
        "transfer-encoding:\r\n chunked",
        "transfer-encoding\r\n: chunked",
        "transfer-encoding : chunked",
        "transfer-encoding\t: chunked",
        " transfer-encoding: chunked",
        "\ttransfer-encoding: chunked",
        "x: y\r\n transfer-encoding: chunked",
        "x: y\ntransfer-encoding: chunked",
        "x: y\rtransfer-encoding: chunked",
        "transfer-encoding: chunked\ncontent-length: 5",
        "transfer-encoding: chunked\rcontent-length: 5",
        "transfer encoding: chunked",
        ": chunked",
    ]
    .map(|lines| lines.as_bytes().to_vec())
    .to_vec();
    // A byte that some readers skip, at each position where one does.
    for byte in [0, 1, 8, 0x0b, 0x0c, 0x0e, 0x1b, 0x7f, 0x85, 0xa0, 0xff] {
        for (before, after) in [
            ("", "transfer-encoding: chunked"),
            ("transfer", "-encoding: chunked"),
            ("transfer-encoding", ": chunked"),
            ("transfer-encoding:", "chunked"),
            ("transfer-encoding: ", "chunked"),
            ("transfer-encoding: chun", "ked"),
            ("transfer-encoding: chunked", ""),
            ("content-length: 5\r\ntransfer-encoding:", "chunked"),
        ] {
            lines.push([before.as_bytes(), &[byte], after.as_bytes()].concat());
        }
    }
    lines.iter().map(|lines| hiding(lines)).collect()
}

#[test]
fn two_framings_or_an_unknown_coding_are_refused() {
    Lab::start("", "").check_all("TE", &odd_codings(), Closed(400));
}

#[test]
fn names_similar_to_framing_fields_do_not_frame() {
    let lab = Lab::start("", "");
    for line in ["transfer_encoding: chunked", "transfer-encodin: chunked", "xtransfer-encoding: chunked"] {
        let bytes = format!("GET /outer HTTP/1.1\r\nhost: weir.test\r\n{line}\r\n\r\n");
        lab.check(&[(line, bytes.as_bytes(), Passes("/outer"))]);
    }
    for line in ["Transfer-Encoding:\t chunked \t", "TRANSFER-ENCODING:cHuNkEd"] {
        let bytes = format!("POST /outer HTTP/1.1\r\nhost: weir.test\r\n{line}\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
        lab.check(&[(line, bytes.as_bytes(), Passes("/outer"))]);
    }
    assert!(lab.upstream.received().iter().filter(|it| it.head.starts_with("POST")).all(|it| it.body == b"hi"));
}

fn odd_lengths() -> Vec<Vec<u8>> {
    [
        "content-length: +1",
        "content-length: -1",
        "content-length: 0x1",
        "content-length: 1e1",
        "content-length: 1.0",
        "content-length:",
        "content-length: 5,5",
        "content-length: 5, 5",
        "content-length: 5 5",
        "content-length: 5;",
        "content-length: 9223372036854775808",
        "content-length: 18446744073709551615",
        "content-length: 18446744073709551616",
        "content-length: 18446744073709551621",
        "content-length: 00000000000000000005",
        "content-length: \u{665}",
        "content-length : 5",
        "content-length: 5\r\ncontent-length: 5",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5\r\nContent-Length: 0",
        "content-length: 5\ncontent-length: 6",
        "content-length: \x0b5",
        "content-length: 5\0",
    ]
    .map(|lines| hiding(lines.as_bytes()))
    .to_vec()
}

#[test]
fn a_length_is_one_plain_number() {
    let lab = Lab::start("", "");
    lab.check_all("CL", &odd_lengths(), Closed(400));
    lab.check(&[
        ("tab", b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length:\t2 \r\n\r\nhi", Passes("/a")),
        ("zeros", b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 0002\r\n\r\nhi", Passes("/a")),
        ("none", b"POST /a HTTP/1.1\r\nhost: h\r\n\r\n", Passes("/a")),
        ("on GET", b"GET /a HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi", Passes("/a")),
    ]);
    let bodies: Vec<_> = lab.upstream.received().into_iter().filter(|it| it.target() == "/a").collect();
    assert_eq!(bodies.iter().map(|it| &it.body[..]).collect::<Vec<_>>(), [&b"hi"[..], b"hi", b"", b"hi"]);
    // The service gets the number in Weir's own spelling.
    let lengths: Vec<_> = bodies.iter().map(|it| it.header("content-length")).collect();
    assert_eq!(lengths, [Some("2".into()), Some("2".into()), None, Some("2".into())]);
}

fn odd_versions() -> Vec<Vec<u8>> {
    let bad = ["HTTP/1.2", "HTTP/0.9", "HTTP/2.0", "HTTP/2", "HTTP/1.10", "HTTP/01.1", "HTTP/1,1", "http/1.1"];
    let bad = bad.into_iter().chain(["HTTP/1.1 ", "HTTP /1.1", "HTTP/ 1.1", "HTTP/1.", "HTTP/11", "ICY/1.1", ""]);
    bad.map(|version| format!("GET /a {version}\r\nhost: weir.test\r\n\r\n").into_bytes()).collect()
}

#[test]
fn other_versions_are_refused() {
    let lab = Lab::start("", "");
    lab.check_all("version", &odd_versions(), Closed(400));
    lab.check(&[
        ("0.9", b"GET /a\r\n", Closed(400)),
        ("1.0 and TE", b"POST /a HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Closed(400)),
        ("1.0 and both", &hiding_in_http_10(), Closed(400)),
        ("1.0", b"GET /a HTTP/1.0\r\nhost: h\r\n\r\n", PassesOnce("/a")),
        ("1.0, keep-alive", b"GET /a HTTP/1.0\r\nhost: h\r\nconnection: keep-alive\r\n\r\n", Passes("/a")),
        ("1.0 without host", b"GET /a HTTP/1.0\r\n\r\n", PassesOnce("/a")),
    ]);
}

fn hiding_in_http_10() -> Vec<u8> {
    let rest = "POST /a HTTP/1.0\r\nhost: h\r\nconnection: keep-alive\r\ncontent-length: 5\r\n";
    format!("{rest}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}").into_bytes()
}

fn broken_chunks() -> Vec<Vec<u8>> {
    let huge = format!("4\r\nabcd\r\n0\r\nx: {}\r\n\r\n", "y".repeat(9000));
    let extended = format!("2;{}\r\nhi\r\n0\r\n\r\n", "x".repeat(9000));
    let many = format!("0\r\n{}\r\n", "a: b\r\n".repeat(101));
    [
        "2;a=\"\n\"\r\nhi\r\n0\r\n\r\n",
        "2;\nhi\r\n0\r\n\r\n",
        "2;a\rb\r\nhi\r\n0\r\n\r\n",
        "2;a=\0\r\nhi\r\n0\r\n\r\n",
        "2\u{a0};a\r\nhi\r\n0\r\n\r\n",
        "2 \r\nhi\r\n0\r\n\r\n",
        " 2\r\nhi\r\n0\r\n\r\n",
        "2\nhi\r\n0\r\n\r\n",
        "2\rhi\r\n0\r\n\r\n",
        "+2\r\nhi\r\n0\r\n\r\n",
        "-2\r\nhi\r\n0\r\n\r\n",
        "0x2\r\nhi\r\n0\r\n\r\n",
        "2_\r\nhi\r\n0\r\n\r\n",
        "\r\nhi\r\n0\r\n\r\n",
        "g\r\nhi\r\n0\r\n\r\n",
        "2\r\nhi0\r\n\r\n",
        "2\r\nhi\n0\r\n\r\n",
        "2\r\nhi\r0\r\n\r\n",
        "2\r\nhi!\r\n0\r\n\r\n",
        "2\r\nhi\r\n\r\n0\r\n\r\n",
        "2\r\nhi\r\n0\r\n x: y\r\n\r\n",
        "2\r\nhi\r\n0\r\nx\r\n\r\n",
        "2\r\nhi\r\n0\r\nx : y\r\n\r\n",
        "2\r\nhi\r\n0\r\nx: y\n\r\n",
        "2\r\nhi\r\n0\r\nx: \0\r\n\r\n",
        "2\r\nhi\r\n0\r\n: y\r\n\r\n",
        "2\r\nhi\r\n0\r\n\n",
        "10000000000000002\r\nhi\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhi\r\n0\r\n\r\n",
        "00000000000000002\r\nhi\r\n0\r\n\r\n",
        &huge,
        &many,
        &extended,
    ]
    .map(|body| {
        format!("POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{body}{SMUGGLED}").into_bytes()
    })
    .to_vec()
}

#[test]
fn chunk_extensions_are_dropped() {
    let lab = Lab::start("", "");
    for chunks in ["2;a=b\r\nhi\r\n0\r\n\r\n", "2;\r\nhi\r\n0\r\n\r\n", "2 ; a=\"2;b\" ;c\r\nhi\r\n0;last\r\n\r\n"] {
        let bytes = format!("POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        lab.check(&[(chunks, bytes.as_bytes(), Passes("/a"))]);
    }
    assert!(lab.upstream.received().iter().filter(|it| it.target() == "/a").all(|it| it.body == b"hi"));
}

#[test]
fn a_malformed_chunk_ends_the_connection() {
    Lab::start("", "").check_all("chunk", &broken_chunks(), Cut);
}

#[test]
fn an_endless_chunk_takes_no_memory() {
    let lab = Lab::start("", "[timeouts]\nbody_idle = \"300ms\"");
    for size in ["ffffffffffffffff", "7fffffffffffffff"] {
        let bytes = format!("POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{size}\r\n{SMUGGLED}");
        lab.check(&[(size, bytes.as_bytes(), Cut)]);
    }
    let bytes = format!("POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{SMUGGLED}", i64::MAX);
    lab.check(&[("CL", bytes.as_bytes(), Cut)]);
}

#[test]
fn malformed_requests_after_a_valid_one() {
    let lab = Lab::start("", "");
    let clean = "GET /clean HTTP/1.1\r\nhost: weir.test\r\n\r\n";
    for lines in
        ["content-length: 5\r\ntransfer-encoding: chunked", "transfer-encoding: xchunked", "content-length: +1"]
    {
        let before = lab.upstream.received_count();
        let mut client = lab.client();
        client.send([clean.as_bytes(), &hiding(lines.as_bytes()), clean.as_bytes()].concat());
        assert_eq!(client.answer().status, 200);
        super::lab::is_problem(&client.answer(), 400).unwrap();
        super::lab::is_closed(&mut client).unwrap();
        assert_eq!(lab.upstream.targets()[before..], ["/clean"]);
    }
    let mut client = lab.client();
    client.send(format!("{clean}\r\n{clean}"));
    assert_eq!([client.answer().status, client.answer().status], [200, 200]);
    lab.is_well();
}
