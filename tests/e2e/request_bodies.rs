//! Limits whose charge the body of a request names before it is decided.

use std::net::TcpStream;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;

use crate::body_units::{self, BURST, spent, wait_for_spent};
use crate::ops::refill;
use crate::support::{Answer, Client, H2Answer, Received, Upstream, Weir, over_h2};

const POINTER: &str = "json = \"/max_tokens\", max = 4096, default = 1024";

/// A limit that reserves what the body names.
fn limit(cost: &str, more: &str) -> String {
    format!("[[limit]]\nname = \"tokens\"\nkey = []\nrate = \"1/day\"\nburst = {BURST}\ncost = {{ {cost} }}\n{more}")
}

fn connect(weir: &Weir) -> Client<TcpStream> {
    Client::connect(weir.address())
}

/// Posts a body with a length.
pub fn post(weir: &Weir, path: &str, fields: &str, body: &[u8]) -> Answer {
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    connect(weir).send([head.as_bytes(), body].concat()).answer()
}

/// The bytes of a body in chunks of this many bytes, and a trailer.
fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut framed = Vec::new();
    for chunk in body.chunks(size) {
        framed.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    framed.extend(b"0\r\nx-check: 3\r\n\r\n");
    framed
}

pub fn post_chunked(weir: &Weir, path: &str, body: &[u8], size: usize) -> Answer {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: x-check\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    connect(weir).send([head.as_bytes(), &chunked(body, size)].concat()).answer()
}

pub fn post_h2(weir: &Weir, path: &str, fields: &[(&str, &str)], body: &[u8]) -> H2Answer {
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::post(format!("http://weir.test{path}"));
        let head = fields.iter().fold(head, |head, (name, value)| head.header(*name, *value));
        H2Answer::read(client.send(head, Full::new(Bytes::copy_from_slice(body))).await.unwrap()).await.unwrap()
    })
}

pub fn last(upstream: &Upstream) -> Received {
    upstream.received().pop().unwrap()
}

#[test]
fn a_body_names_its_charge_and_arrives_unchanged() {
    let deep = format!(r#"{{"a":{}1{},"max_tokens":5}}"#, "[".repeat(500), "]".repeat(500));
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit(POINTER, ""));
    for (body, units) in [
        (r#"{"model":"x","max_tokens":100,"messages":[{"max_tokens":7}]}"#, 100),
        (r#" { "max\u005ftokens" : 99.2 } "#, 100),
        (r#"{"max_tokens":1e3}"#, 1000),
        (r#"{"max_tokens":90071992547409930}"#, 4096),
        (r#"{"max_tokens":0}"#, 1),
        (r#"{"max_tokens":-5}"#, 4096),
        (r#"{"max_tokens":"5"}"#, 4096),
        (r#"{"max_tokens":null}"#, 1024),
        (r#"{"other":[1]}"#, 1024),
        (r#"[{"max_tokens":5}]"#, 1024),
        // What a service may read in another way.
        (r#"{"max_tokens":5,"max_tokens":6}"#, 4096),
        (r#"{"MAX_tokens":5}"#, 4096),
        ("\u{feff}{\"max_tokens\":5}", 4096),
        ("max_tokens=5", 4096),
        (r#"{"max_tokens":5}}"#, 4096),
        (r#"{"max_tokens":5"#, 4096),
        (&deep, 4096),
    ] {
        refill(&weir, "tokens");
        let body = body.as_bytes();
        assert_eq!(post(&weir, "/", "", body).status, 200);
        assert_eq!(last(&upstream).body, body);
        assert_eq!(last(&upstream).header("content-length"), Some(body.len().to_string()));
        assert_eq!(spent(&weir), units, "{}", String::from_utf8_lossy(body));
        assert_eq!(post_chunked(&weir, "/", body, 3).status, 200);
        let received = last(&upstream);
        assert_eq!((&*received.body, received.header("content-length")), (body, None));
        assert_eq!(received.trailers.trim(), "x-check: 3");
        assert_eq!(spent(&weir), 2 * units);
        assert_eq!(post_h2(&weir, "/", &[("content-type", "text/plain")], body).status, 200);
        assert_eq!(last(&upstream).body, body);
        assert_eq!(spent(&weir), 3 * units);
    }
}

#[test]
fn a_type_may_make_another_number_of_a_body() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit(POINTER, ""));
    for (content_type, body, units) in [
        ("application/json; charset=utf-8", r#"{"max_tokens":5}"#, 5),
        ("application/json; charset=utf-7", r#"{"max_tokens":5,"+AG0-ax_tokens":100000}"#, 4096),
        (FORM, r#"{"max_tokens":5}"#, 5),
        (FORM, r#"{"max_tokens":5,"a":"b&c=6&max=7"}"#, 5),
        (FORM, r#"{"max_tokens":5,"a":"&max_tokens=100000&"}"#, 4096),
        (FORM, r#"{"max_tokens":5,"a":"&max[tokens=100000&"}"#, 4096),
        (FORM, r#"{"max_tokens":5,"a":"&[max_tokens]=100000&"}"#, 4096),
        ("application/json", r#"{"max_tokens":5,"a":"&max_tokens=100000&"}"#, 5),
    ] {
        refill(&weir, "tokens");
        let fields = format!("Content-Type: {content_type}\r\n");
        assert_eq!(post(&weir, "/", &fields, body.as_bytes()).status, 200);
        assert_eq!(spent(&weir), units, "{content_type} {body}");
        assert_eq!(post_h2(&weir, "/", &[("content-type", content_type)], body.as_bytes()).status, 200);
        assert_eq!(spent(&weir), 2 * units, "{content_type} {body}");
        assert_eq!(last(&upstream).body, body.as_bytes());
    }
}

#[test]
fn several_numbers_have_weights() {
    let upstream = Upstream::start();
    let cost = "units = { \"/max_tokens\" = 1, \"/images\" = 1000, \"/pages/n\" = \"1/3\" }, max = 4096, default = 50";
    let weir = Weir::start(&upstream, &limit(cost, ""));
    let mut expected = 0;
    for (body, units) in [
        (r#"{"max_tokens":100,"images":2,"pages":{"n":1}}"#, 2101),
        (r#"{"pages":{"n":6}}"#, 2),
        (r#"{"images":5}"#, 4096),
        (r#"{"images":null}"#, 50),
        (r#"{"max_tokens":1,"images":"1"}"#, 4096),
    ] {
        assert_eq!(post(&weir, "/", "", body.as_bytes()).status, 200);
        expected += units;
        assert_eq!(spent(&weir), expected, "{body}");
        assert_eq!(post_h2(&weir, "/", &[], body.as_bytes()).status, 200);
        expected += units;
        assert_eq!(spent(&weir), expected, "{body}");
    }
}

#[test]
fn units_have_a_name() {
    let upstream = Upstream::start();
    let config = format!("[headers]\nprofiles = [\"ietf\"]\n{}", limit(POINTER, "unit_name = \"tokens\"\n"));
    let weir = Weir::start(&upstream, &config);
    let answer = post(&weir, "/", "", br#"{"max_tokens":100}"#);
    let policy = answer.header("ratelimit-policy").unwrap();
    assert!(policy.starts_with("\"tokens\";") && policy.ends_with(";qu=\"tokens\""), "{policy}");
    let key = weir.ask_admin("GET", "/v1/keys?limit=tokens&key=", &serde_json::Value::Null);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&key.body).unwrap()["unit"], "tokens");
    let page = weir.ask_admin("GET", "/key?limit=tokens&key=", &serde_json::Value::Null);
    assert!(page.text().contains(" tokens remain"), "{}", page.text());
}

#[test]
fn some_bodies_are_not_read() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit(POINTER, ""));
    assert_eq!(connect(&weir).get("/").status, 200);
    assert_eq!(spent(&weir), 1024);
    let body = br#"{"max_tokens":5}"#;
    assert_eq!(post(&weir, "/", "Content-Encoding: gzip\r\n", body).status, 200);
    assert_eq!(spent(&weir), 1024 + 4096);
    assert_eq!(post_h2(&weir, "/", &[("content-encoding", "br")], body).status, 200);
    assert_eq!(spent(&weir), 1024 + 2 * 4096);
    // A limit that does not apply needs no body: this one comes after the answer.
    let elsewhere = limit(POINTER, "match = { path = \"/chat\" }\n");
    let echoing = Upstream::serving(|mut peer| {
        while peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            peer.read(5);
        }
    });
    let weir = Weir::start(&echoing, &elsewhere);
    let mut client = connect(&weir);
    client.send("POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    client.send("hello");
}

#[test]
fn the_size_of_a_body_adds_an_estimate() {
    let upstream = Upstream::start();
    let cost = format!("{POINTER}, estimate = \"bytes/4\"");
    let weir = Weir::start(&upstream, &limit(&cost, ""));
    let body = format!(r#"{{"max_tokens":100,"x":"{}"}}"#, "x".repeat(980));
    assert_eq!(body.len(), 1005);
    assert_eq!(post(&weir, "/", "", body.as_bytes()).status, 200);
    assert_eq!(spent(&weir), 100 + 252);
    assert_eq!(post_chunked(&weir, "/", body.as_bytes(), 100).status, 200);
    assert_eq!(spent(&weir), 2 * 352);
    assert_eq!(post_h2(&weir, "/", &[], body.as_bytes()).status, 200);
    assert_eq!(spent(&weir), 3 * 352);
}

#[test]
fn longer_bodies_cost_the_most_or_are_refused() {
    let upstream = Upstream::start();
    let body = format!(r#"{{"max_tokens":5,"x":"{}"}}"#, "x".repeat(300_000)).into_bytes();
    let weir = Weir::start(&upstream, &limit(POINTER, ""));
    assert_eq!(post(&weir, "/", "", &body).status, 200);
    assert_eq!(post_chunked(&weir, "/", &body, 10_000).status, 200);
    assert_eq!(last(&upstream).body, body);
    assert_eq!(post_h2(&weir, "/", &[], &body).status, 200);
    assert_eq!(last(&upstream).body, body);
    assert_eq!(spent(&weir), 3 * 4096);
    // All of it is within a larger bound.
    let weir = Weir::start(&upstream, &limit(POINTER, "read_body = \"1MiB\"\n"));
    assert_eq!(post(&weir, "/", "", &body).status, 200);
    assert_eq!(last(&upstream).body, body);
    assert_eq!(post_chunked(&weir, "/", &body, 10_000).status, 200);
    assert_eq!(last(&upstream).body, body);
    assert_eq!(post_h2(&weir, "/", &[], &body).status, 200);
    assert_eq!(last(&upstream).body, body);
    assert_eq!(spent(&weir), 15);
    let refuse = format!("{POINTER}, beyond = \"refuse\"");
    let weir = Weir::start(&upstream, &limit(&refuse, "read_body = \"20B\"\n"));
    let (fits, longer) = (br#"{"max_tokens":   50}"#, br#"{"max_tokens":    50}"#);
    assert_eq!(post(&weir, "/", "", fits).status, 200);
    assert_eq!(post_chunked(&weir, "/", fits, 7).status, 200);
    assert_eq!(post_h2(&weir, "/", &[], fits).status, 200);
    let count = upstream.received_count();
    let refused = post(&weir, "/", "Expect: 100-continue\r\n", longer);
    assert_eq!((refused.status, refused.header("content-type")), (413, Some("application/problem+json")));
    assert_eq!(post_chunked(&weir, "/", longer, 7).status, 413);
    assert_eq!(post_h2(&weir, "/", &[], longer).status, 413);
    assert_eq!((spent(&weir), upstream.received_count()), (150, count));
}

/// A body that does not arrive with its head takes the capacity of a waiting request while it is read.
#[test]
fn bodies_that_are_awaited_are_bounded() {
    let upstream = Upstream::start();
    let tables = limit(POINTER, "") + "\n[hold]\nmax_waiting_bytes_per_client = \"50KiB\"\n";
    let weir = Weir::start(&upstream, &tables);
    let begin = |length: usize| {
        let mut client = connect(&weir);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        client
    };
    let refused = begin(60_000).send(vec![b' '; 55_000]).answer();
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.head);
    assert_eq!(weir.metric("weir_hold_overflow_total"), 1.0);
    for _ in 0..3 {
        assert_eq!(begin(40_000).send(vec![b' '; 40_000]).answer().status, 200);
    }
    assert_eq!(weir.metric("weir_hold_overflow_total"), 1.0);
}

#[test]
fn a_client_is_asked_for_its_body_once() {
    let upstream = Upstream::start();
    let identity = "[identity.user]\nheader = \"x-user\"\non_missing = \"reject\"\n";
    let config = format!("{identity}{}", limit(POINTER, "").replace("key = []", "key = [\"user\"]"));
    let weir = Weir::start(&upstream, &config);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\nExpect: 100-continue\r\n";
    let mut client = connect(&weir);
    // What the head decides needs no body.
    assert_eq!(client.send(format!("{head}\r\n")).head().unwrap().status, 401);
    let mut client = connect(&weir);
    for _ in 0..2 {
        assert_eq!(client.send(format!("{head}X-User: a\r\n\r\n")).head().unwrap().status, 100);
        assert_eq!(client.send(r#"{"max_tokens":5}"#).answer().status, 200);
        assert_eq!(last(&upstream).body, br#"{"max_tokens":5}"#);
    }
    let fields = [("expect", "100-continue"), ("x-user", "a")];
    assert_eq!(post_h2(&weir, "/", &fields, br#"{"max_tokens":5}"#).status, 200);
    assert_eq!(upstream.received_count(), 3);
}

/// Weir has asked the client for the body, so it does not wait until the service asks, too. The wait is a second.
#[test]
fn a_body_that_was_read_does_not_wait_for_the_service() {
    let upstream = Upstream::serving(|mut peer| {
        while peer.head().is_some() {
            let began = Instant::now();
            peer.read(16);
            let waited = began.elapsed().as_millis();
            peer.send(format!("HTTP/1.1 200 OK\r\nx-waited: {waited}\r\ncontent-length: 0\r\n\r\n"));
        }
    });
    let weir = Weir::start(&upstream, &limit(POINTER, ""));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n";
    let waits = (0..3).map(|_| {
        let mut client = connect(&weir);
        assert_eq!(client.send(head).head().unwrap().status, 100);
        let answer = client.send(r#"{"max_tokens":5}"#).answer();
        answer.header("x-waited").unwrap().parse::<u32>().unwrap()
    });
    assert!(waits.min() < Some(900));
    let waits = (0..3).map(|_| {
        let fields = [("expect", "100-continue"), ("content-length", "16")];
        let answer = post_h2(&weir, "/", &fields, br#"{"max_tokens":5}"#);
        answer.header("x-waited").unwrap().parse::<u32>().unwrap()
    });
    assert!(waits.min() < Some(900));
}

#[test]
fn a_body_that_does_not_come_charges_nothing() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &format!("[timeouts]\nbody_idle = \"300ms\"\n{}", limit(POINTER, "")));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\n\r\n{\"max";
    let mut client = connect(&weir);
    client.send(head);
    assert_eq!(client.answer().status, 408);
    connect(&weir).send(head);
    let mut broken = connect(&weir);
    broken.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nx\r\n");
    assert_eq!(broken.answer().status, 400);
    over_h2(weir.address(), async |mut client, _| {
        let (frames, body) = tokio::sync::mpsc::unbounded_channel();
        frames.send(hyper::body::Frame::data(Bytes::from_static(b"{\"max"))).unwrap();
        let head = Request::post("http://weir.test/");
        let answer = H2Answer::read(client.send(head, crate::support::Channel(body)).await.unwrap()).await.unwrap();
        assert_eq!(answer.status, 408);
    });
    // Another request passes behind all of these.
    assert_eq!(post(&weir, "/", "", br#"{"max_tokens":5}"#).status, 200);
    assert_eq!((spent(&weir), upstream.received_count()), (5, 1));
}

#[test]
fn a_held_request_keeps_its_body() {
    let upstream = Upstream::start();
    let hold = "on_limit = \"hold\"\nhold = { max_wait = \"10s\" }\n";
    let limit = limit("json = \"/n\", max = 5", hold).replace("1/day", "5/2s").replace(&BURST.to_string(), "5");
    let weir = Weir::start(&upstream, &limit);
    for body in [r#"{"n":5,"x":"first"}"#, r#"{"n":4,"x":"second"}"#] {
        assert_eq!(post(&weir, "/", "", body.as_bytes()).status, 200);
        assert_eq!(last(&upstream).body, body.as_bytes());
    }
    assert_eq!(post_h2(&weir, "/", &[], br#"{"n":5,"x":"third"}"#).status, 200);
    assert_eq!(last(&upstream).body, br#"{"n":5,"x":"third"}"#);
    assert!(weir.metric("weir_limit_decisions_total{decision=\"held\",limit=\"tokens\"}") >= 2.0);
}

/// Opens 100 streams at once, each of which names this many units and costs 2201. Returns those that were admitted, and
/// the units that were spent at the end.
fn hundred_streams(named: u64) -> (u64, u64) {
    let upstream = body_units::models();
    let weir = Weir::start(&upstream, &limit("json = \"/max\", max = 4096", "settle = { by = \"anthropic\" }\n"));
    let mut clients: Vec<_> = (0..100).map(|_| connect(&weir)).collect();
    let body = format!("{{\"max\":{named}}}");
    // Each of these streams is open until its client leaves, so nothing is settled before all are decided.
    for client in &mut clients {
        let length = body.len();
        client.send(format!("POST /messages?events=7 HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"));
    }
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.head().unwrap().status).collect();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    for (client, _) in clients.iter_mut().zip(&statuses).filter(|(_, status)| **status == 200) {
        let mut seen = Vec::new();
        while !seen.ends_with(body_units::MESSAGES.as_bytes()) {
            seen.extend(client.read(1));
        }
    }
    drop(clients);
    let admitted = statuses.iter().filter(|status| **status == 200).count() as u64;
    wait_for_spent(&weir, admitted * 2201);
    (admitted, spent(&weir))
}

#[test]
fn parallel_streams_exceed_a_budget_by_the_errors_of_their_estimates() {
    // Streams that cost at most what they reserve exceed nothing.
    let (admitted, spent) = hundred_streams(2500);
    assert_eq!(admitted, BURST / 2500);
    assert!(spent <= BURST, "{spent}");
    // Each of these costs 201 units more.
    let (admitted, spent) = hundred_streams(2000);
    assert_eq!(admitted, BURST / 2000);
    assert_eq!(spent - BURST, admitted * 201, "the sum of the errors, because the reservations took the whole budget");
}
