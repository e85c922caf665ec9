//! Unread bodies: a request hidden in them is never served, and the response before them arrives.

use std::io::Write;
use std::net::TcpListener;

use super::lab::{Lab, is_problem};
use crate::support::{Client, Upstream, Weir, free_port};

const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nhost: weir.test\r\n\r\n";
const LARGE: usize = 1 << 20;

/// A POST with this target, host and field lines, without its framing.
fn head(target: &str, host: &str, lines: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nhost: {host}\r\n{lines}")
}

/// Both framings of a body: the field line and the bytes.
fn framings(body: &str) -> [(String, String); 2] {
    let len = body.len();
    [
        (format!("content-length: {len}\r\n\r\n"), body.to_owned()),
        ("transfer-encoding: chunked\r\n\r\n".to_owned(), format!("{len:x}\r\n{body}\r\n0\r\n\r\n")),
    ]
}

/// Bodies that hide requests, after heads that are admitted and heads that are refused.
pub fn corpus() -> Vec<Vec<u8>> {
    let heads = [
        head("/a", "weir.test", ""),
        head("/%00", "weir.test", ""),
        head("/a", "a/b", ""),
        head("/a", "weir.test", "expect: 100-continue\r\n"),
        head("/a", "weir.test", "connection: close\r\n"),
    ];
    let with_bodies =
        |head: String| framings(HIDDEN).map(|(framing, body)| format!("{head}{framing}{body}").into_bytes());
    heads.into_iter().flat_map(with_bodies).collect()
}

/// Sends an unread body in every way, and expects `status`.
fn check(weir: &Weir, head: &str, status: u16) {
    for (framing, body) in framings(HIDDEN) {
        body_with_the_head(weir, &format!("{head}{framing}{body}"), status);
        body_after_the_response(weir, &format!("{head}{framing}"), &body, status);
    }
    for (framing, body) in framings(&HIDDEN.repeat(LARGE / HIDDEN.len())) {
        body_before_the_response(weir, format!("{head}{framing}{body}"), status);
    }
}

fn body_with_the_head(weir: &Weir, request: &str, status: u16) {
    let mut client = Client::connect(weir.address());
    is_problem(&client.send(request).answer(), status).unwrap();
    expect_no_more(&mut client, request);
}

fn body_after_the_response(weir: &Weir, head: &str, body: &str, status: u16) {
    let mut client = Client::connect(weir.address());
    is_problem(&client.send(head).answer(), status).unwrap();
    let _ = client.stream().write_all(body.as_bytes());
    expect_no_more(&mut client, head);
}

/// Sends the whole body before it reads the response.
fn body_before_the_response(weir: &Weir, request: String, status: u16) {
    let mut client = Client::connect(weir.address());
    let mut writer = client.stream().try_clone().unwrap();
    let sending =
        std::thread::spawn(move || request.as_bytes().chunks(16 << 10).all(|piece| writer.write_all(piece).is_ok()));
    is_problem(&client.answer(), status).unwrap();
    client.finish();
    sending.join().unwrap();
}

/// Asserts that nothing follows but the response to a valid request, if the connection is still open.
fn expect_no_more(client: &mut Client, request: &str) {
    let _ = client.stream().write_all(b"GET /%00/last HTTP/1.1\r\nhost: weir.test\r\n\r\n");
    if let Some(answer) = client.try_answer() {
        let about_last = answer.status == 400 || answer.status == 401 || answer.status == 429;
        assert!(about_last, "{} after {request:?}", answer.head);
    }
    client.finish();
    assert_eq!(String::from_utf8_lossy(&client.rest()), "", "after {request:?}");
}

fn nothing_was_smuggled(lab: &Lab, expected: &[&str]) {
    let targets = lab.upstream.targets();
    assert_eq!(targets, expected);
}

#[test]
fn unread_after_a_malformed_request() {
    let lab = Lab::start("", "");
    check(&lab.weir, &head("/%00", "weir.test", ""), 400);
    check(&lab.weir, &head("/a", "a/b", ""), 400);
    check(&lab.weir, &head("/a", "weir.test", "x : y\r\n"), 400);
    check(&lab.weir, &head(&format!("/{}", "a".repeat(9000)), "weir.test", ""), 414);
    check(&lab.weir, &head("/a", "weir.test", &"x: y\r\n".repeat(101)), 431);
    nothing_was_smuggled(&lab, &[]);
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}

#[test]
fn unread_after_an_unidentified_client() {
    let lab =
        Lab::start("", "[identity.key]\nheader = \"x-key\"\n[[limit]]\nname = \"a\"\nkey = [\"key\"]\nrate = \"9/h\"");
    check(&lab.weir, &head("/a", "weir.test", ""), 401);
    nothing_was_smuggled(&lab, &[]);
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}

#[test]
fn unread_after_a_rejection() {
    let lab = Lab::start("", "[[limit]]\nname = \"a\"\nkey = [\"header:x-key\"]\nrate = \"1/h\"");
    assert_eq!(lab.client().get("/first").status, 200);
    check(&lab.weir, &head("/a", "weir.test", ""), 429);
    nothing_was_smuggled(&lab, &["/first"]);
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}

/// A Weir whose upstream does not accept connections.
fn without_upstream(address: &str, timeouts: &str) -> Weir {
    let upstream = Upstream::start();
    let config = Weir::config(&upstream, "", timeouts).replace(&upstream.address().to_string(), address);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

#[test]
fn unread_without_an_upstream() {
    let weir = without_upstream(&format!("127.0.0.1:{}", free_port()), "");
    check(&weir, &head("/a", "weir.test", ""), 502);
    assert_eq!(Client::connect(weir.address()).get("/").status, 502);
    assert_eq!(weir.metric("weir_panics_total"), 0.0);
}

#[test]
fn unread_by_a_slow_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let weir = without_upstream(&address.to_string(), "[timeouts]\nresponse_head = \"1s\"\nbody_idle = \"1s\"");
    for (framing, body) in framings(HIDDEN) {
        let head = format!("{}{framing}", head("/a", "weir.test", ""));
        body_with_the_head(&weir, &format!("{head}{body}"), 504);
        body_after_the_response(&weir, &head, &body, 408);
        body_after_the_response(&weir, &format!("{head}{}", &body[..9]), &body[9..], 408);
    }
    for (framing, body) in framings(&HIDDEN.repeat(LARGE / HIDDEN.len())) {
        body_before_the_response(&weir, format!("{}{framing}{body}", head("/a", "weir.test", "")), 504);
    }
    assert_eq!(Client::connect(weir.address()).get("/").status, 504);
    assert_eq!(weir.metric("weir_panics_total"), 0.0);
}

#[test]
fn a_closing_response_arrives_before_pipelined_requests() {
    let lab = Lab::start("", "");
    let refused = "GET /a HTTP/1.1\r\nhost: a/b\r\n\r\n";
    for _ in 0..20 {
        let behind = HIDDEN.repeat(LARGE / HIDDEN.len());
        body_before_the_response(&lab.weir, format!("{refused}{behind}"), 400);
    }
    nothing_was_smuggled(&lab, &[]);
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}
