//! Attacks with hop-by-hop fields: Connection, Upgrade, TE, and fields in trailers.

use std::io::Write;

use super::lab::{Lab, is_closed};
use crate::support::{Received, Upstream};

/// Sends a request with these lines, and returns the request of the upstream.
fn forwarded(lab: &Lab, lines: &str) -> Received {
    let request = format!("GET /a HTTP/1.1\r\nhost: weir.test\r\n{lines}\r\n");
    assert_eq!(lab.client().send(request).answer().status, 200, "{lines}");
    lab.upstream.received().pop().unwrap()
}

#[test]
fn connection_removes_only_fields_that_it_may() {
    let lab = Lab::start("", "");
    for name in ["close", "keep-alive", "host", "content-length", "x-forwarded-for", "x-forwarded-proto", "te", ""] {
        let got = forwarded(&lab, &format!("connection: {name}\r\nx-forwarded-for: 6.6.6.6\r\n"));
        assert_eq!(got.header("host").as_deref(), Some("weir.test"), "{name}");
        assert_eq!(got.header("x-forwarded-for").as_deref(), Some("127.0.0.1"), "{name}");
        assert_eq!(got.header("x-forwarded-proto").as_deref(), Some("http"), "{name}");
        assert_eq!(got.header("connection"), None, "{name}");
    }
    let got = forwarded(&lab, "connection: close, authorization , x-a;b\r\nauthorization: b\r\nx-a: 1\r\nx-b: 2\r\n");
    assert_eq!([got.header("authorization"), got.header("x-a"), got.header("x-b")], [None, None, Some("2".into())]);
    let got =
        forwarded(&lab, "te: gzip, trailers;q=1\r\nkeep-alive: 1\r\nproxy-connection: x\r\nproxy-authorization: y\r\n");
    assert_eq!(got.header("te").as_deref(), Some("trailers"));
    assert!(["keep-alive", "proxy-connection", "proxy-authorization"].iter().all(|name| got.header(name).is_none()));
    lab.is_well();
}

#[test]
fn connection_cannot_remove_the_length() {
    let lab = Lab::start("", "");
    let body = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
    for (named, framing, body) in [
        ("content-length", format!("content-length: {}", body.len()), body.to_owned()),
        (
            "transfer-encoding",
            "transfer-encoding: chunked".to_owned(),
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        ),
    ] {
        for method in ["POST", "GET"] {
            let mut client = lab.client();
            client.send(format!("{method} /a HTTP/1.1\r\nhost: h\r\nconnection: {named}\r\n{framing}\r\n\r\n{body}"));
            assert_eq!(client.answer().status, 200);
            lab.probe(&mut client).unwrap();
        }
    }
    let received = lab.upstream.received();
    let bodies: Vec<_> = received.iter().filter(|it| it.target() == "/a").map(|it| it.body.len()).collect();
    assert_eq!((received.len(), bodies), (8, vec![body.len(); 4]));
    lab.is_well();
}

const UPGRADES: [&str; 2] = [
    "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13",
    "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA",
];

fn upgrading(lines: &str) -> String {
    format!("GET /a HTTP/1.1\r\nhost: h\r\n{lines}\r\n\r\n")
}

/// All messages of this file on which two readers may differ.
pub fn corpus() -> Vec<Vec<u8>> {
    let named = ["content-length", "transfer-encoding", "host", "close", "te", "x-forwarded-for, content-length"];
    let body = "28\r\nGET /smuggled HTTP/1.1\r\nhost: weir.t\r\n\r\n0\r\n\r\n";
    let post = "POST /a HTTP/1.1\r\nhost: h";
    let plain =
        named.map(|name| format!("{post}\r\nconnection: {name}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let chunked = named.map(|name| format!("{post}\r\nconnection: {name}\r\ntransfer-encoding: chunked\r\n\r\n{body}"));
    let texts = plain.into_iter().chain(chunked).chain(UPGRADES.map(upgrading)).map(String::into_bytes);
    texts.chain([with_trailers()]).collect()
}

#[test]
fn no_upgrade_is_forwarded() {
    let lab = Lab::start("", "");
    for upgrade in UPGRADES {
        let mut client = lab.client();
        client.send(upgrading(upgrade));
        assert_eq!(client.answer().status, 200);
        let got = lab.upstream.received().pop().unwrap();
        assert!(["upgrade", "connection", "http2-settings"].iter().all(|name| got.header(name).is_none()), "{got:?}");
        client.send(b"\x81\x05hello");
        super::lab::is_problem(&client.answer(), 400).unwrap();
        is_closed(&mut client).unwrap();
    }
    assert_eq!(lab.upstream.targets(), ["/a", "/a"]);
    lab.is_well();
}

/// A client and an upstream that agree on a protocol without Weir.
#[test]
fn an_unrequested_switch_is_refused() {
    let upstream = Upstream::answering(|received, stream| {
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        let hello = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        stream.write_all(if received.target() == "/switch" { switch } else { hello }).is_ok()
    });
    let lab = Lab::behind(upstream, "", "");
    for lines in ["", "connection: upgrade\r\nupgrade: x\r\n"] {
        let mut client = lab.client();
        client.send(format!("GET /switch HTTP/1.1\r\nhost: h\r\n{lines}\r\n"));
        super::lab::is_problem(&client.answer(), 502).unwrap();
        lab.probe(&mut client).unwrap();
        lab.probe(&mut lab.client()).unwrap();
    }
    assert_eq!(lab.upstream.received_count(), 6);
    lab.is_well();
}

/// A request with forbidden trailer fields.
fn with_trailers() -> Vec<u8> {
    let fields = [
        "content-length: 9",
        "transfer-encoding: chunked",
        "host: evil.test",
        "x-forwarded-for: 6.6.6.6",
        "connection: close",
        "authorization: Bearer x",
        "te: gzip",
        "trailer: x",
        "upgrade: x",
        "forwarded: for=6.6.6.6",
        "cookie: a=b",
        "expect: 100-continue",
        "x-forwarded-host: evil.test",
        "x-forwarded-proto: https",
        "keep-alive: 1",
    ];
    let names: Vec<_> = fields.iter().filter_map(|line| line.split(':').next()).collect();
    let request = format!(
        "POST /a HTTP/1.1\r\nhost: h\r\ntrailer: x-sum, {}\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 1\r\n{}\r\n\r\n",
        names.join(", "),
        fields.join("\r\n")
    );
    request.into_bytes()
}

#[test]
fn forbidden_trailers_are_dropped() {
    let lab = Lab::start("", "");
    let mut client = lab.client();
    assert_eq!(client.send(with_trailers()).answer().status, 200);
    lab.probe(&mut client).unwrap();
    let received = lab.upstream.received();
    assert_eq!((received.len(), received[0].trailers.trim(), &received[0].body[..]), (2, "x-sum: 1", &b"hi"[..]));
    lab.is_well();
}
