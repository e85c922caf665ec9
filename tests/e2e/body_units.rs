//! Limits in units that the bodies of answers name: tokens of language models, and their price.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::ops::refill;
use crate::support::{Client, Received, Upstream, Weir, over_h2, poll};

const CHAT: &str = include_str!("../../src/engine/units/answers/openai-chat.events");
const CHAT_JSON: &str = include_str!("../../src/engine/units/answers/openai-chat.json");
pub const MESSAGES: &str = include_str!("../../src/engine/units/answers/anthropic.events");
/// Units of a budget of which nothing comes back within a test.
pub const BURST: u64 = 50_000;

/// A limit of tokens.
pub fn tokens(settle: &str) -> String {
    format!("[[limit]]\nname = \"tokens\"\nkey = []\nrate = \"1/day\"\nburst = {BURST}\nsettle = {settle}\n")
}

fn head(kind: &str, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}transfer-encoding: chunked\r\n\r\n")
}

/// Writes a body in chunks of this many bytes.
fn write_chunks(stream: &mut TcpStream, body: &[u8], size: usize) -> bool {
    let sent = body.chunks(size).all(|chunk| {
        let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
        stream.write_all(&framed).is_ok()
    });
    sent && stream.write_all(b"0\r\n\r\n").is_ok()
}

/// A service of language models. The path has the format, and the query the bytes of a chunk or the events after which
/// the stream stops until the client leaves.
pub fn models() -> Upstream {
    Upstream::answering(|request: &Received, stream| {
        let (path, query) = request.target().split_once('?').unwrap_or((request.target(), ""));
        let size = query.strip_prefix("chunk=").and_then(|size| size.parse().ok()).unwrap_or(1000);
        let (kind, body) = match path {
            "/chat" => ("text/event-stream", CHAT),
            "/chat.json" => ("application/json", CHAT_JSON),
            "/messages" => ("text/event-stream; charset=utf-8", MESSAGES),
            "/rows" => ("application/x-ndjson", "{\"rows\":1}\n{\"rows\":70}\n"),
            "/html" => ("text/html", "<html>"),
            "/negative" => ("application/json", "{\"usage\":{\"prompt_tokens\":-5}}"),
            "/none" => return stream.write_all(b"HTTP/1.1 204 None\r\n\r\n").is_ok(),
            "/lie" => {
                let head = head("application/json", "content-encoding: gzip\r\n");
                return stream.write_all(head.as_bytes()).is_ok() && write_chunks(stream, CHAT_JSON.as_bytes(), size);
            }
            "/cut" => ("text/event-stream", MESSAGES),
            "/silent" => {
                let _ = stream.read(&mut [0]);
                return false;
            }
            _ => return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").is_ok(),
        };
        if stream.write_all(head(kind, "").as_bytes()).is_err() {
            return false;
        }
        let Some(events) = query.strip_prefix("events=") else { return write_chunks(stream, body.as_bytes(), size) };
        let sent: String = body.split_inclusive("\n\n").take(events.parse().unwrap()).collect();
        let _ = write!(stream, "{:x}\r\n{sent}\r\n", sent.len());
        if path != "/cut" {
            let _ = stream.read(&mut [0]);
        }
        false
    })
}

/// The units that were spent so far, by the balance that the admin API shows.
pub fn spent(weir: &Weir) -> u64 {
    let answer = weir.ask_admin("GET", "/v1/keys?limit=tokens&key=", &serde_json::Value::Null);
    let key: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let number = |name: &str| key[name].as_u64().unwrap_or_else(|| panic!("{key}"));
    BURST - number("remaining") + number("debt")
}

/// Waits until this many units are spent.
pub fn wait_for_spent(weir: &Weir, expected: u64) {
    let mut last = 0;
    poll(|| {
        last = spent(weir);
        (last == expected).then_some(())
    });
}

#[test]
fn an_answer_costs_what_its_body_names() {
    let upstream = models();
    for (settle, targets, units) in [
        ("{ by = \"openai-chat\" }", &["/chat", "/chat?chunk=1", "/chat?chunk=7", "/chat.json?chunk=3"][..], 1117),
        ("{ by = \"openai-chat\", units = { output = 4, cache_read = \"1/10\" } }", &["/chat"], 17 + 100 + 400),
        ("{ by = \"anthropic\" }", &["/messages?chunk=11"], 2200),
        ("{ by = \"json:/usage/total_tokens\" }", &["/chat.json"], 1117),
        ("{ by = \"json:/rows\" }", &["/rows?chunk=1"], 70),
        (
            "{ by = \"json\", units = { \"/usage/prompt_tokens\" = 2, \"/usage/completion_tokens\" = 0.5 } }",
            &["/chat.json"],
            2084,
        ),
        // 17 and 100 tokens at 2.5 and 10 micro-dollars, and 1,000 of the cache at a tenth of the former.
        (
            "{ by = \"openai-chat\", price.\"model-1*\" = { input = 2.5, cache_read = 0.25, output = 10 } }",
            &["/chat"],
            43 + 250 + 1000,
        ),
    ] {
        let weir = Weir::start(&upstream, &tokens(settle));
        for target in targets {
            refill(&weir, "tokens");
            assert_eq!(Client::connect(weir.address()).get(target).status, 200, "{target}");
            wait_for_spent(&weir, units);
            over_h2(weir.address(), async |mut client, _| {
                assert_eq!(client.get(target).await.unwrap().status, 200, "{target}");
            });
            wait_for_spent(&weir, 2 * units);
        }
    }
}

#[test]
fn a_body_without_a_number_costs_the_default() {
    let upstream = models();
    let reasons =
        [("/html", "syntax"), ("/lie", "encoded"), ("/negative", "number"), ("/empty", "absent"), ("/none", "absent")];
    for (prices, rows) in [
        ("units = { input = 1 }", &reasons[..]),
        ("price = { other = { input = 1, output = 1 } }", &[("/chat.json", "model")]),
    ] {
        let settle = format!("{{ by = \"openai-chat\", default = 300, {prices} }}");
        let weir = Weir::start(&upstream, &tokens(&settle));
        let series = |reason: &str| format!("weir_unreadable_bodies_total{{limit=\"tokens\",reason=\"{reason}\"}}");
        let metrics = weir.metrics();
        for (target, reason) in rows {
            assert!(
                metrics.contains(&format!("{} 0\n", series(reason))),
                "{reason}: each series is there from the start"
            );
            let before = weir.metric(&series(reason));
            refill(&weir, "tokens");
            let mut client = Client::connect(weir.address());
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")).answer();
            wait_for_spent(&weir, 300);
            assert_eq!(weir.metric(&series(reason)), before + 1.0, "{target}");
            over_h2(weir.address(), async |mut client, _| {
                client.get(target).await.unwrap();
            });
            wait_for_spent(&weir, 600);
        }
    }
    // The service was asked for a body that is not encoded.
    let encodings: Vec<_> = upstream.received().iter().map(|request| request.header("accept-encoding")).collect();
    assert!(encodings.iter().all(|encoding| encoding.as_deref() == Some("identity")), "{encodings:?}");
    // Without such a limit the field is that of the client.
    let weir = Weir::start(&upstream, "");
    Client::connect(weir.address()).send("GET /plain HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").answer();
    assert_eq!(upstream.received().last().unwrap().header("accept-encoding").as_deref(), Some("gzip"));
}

#[test]
fn a_client_that_leaves_pays_for_what_came() {
    let upstream = models();
    for (by, path, body, costs) in [
        // The charge, or a token for each event if these are more; then what the last event names.
        ("openai-chat", "/chat", CHAT, &[2, 2, 3, 1117][..]),
        ("anthropic", "/messages", MESSAGES, &[2051, 2052, 2053, 2054, 2055, 2200]),
    ] {
        let weir = Weir::start(&upstream, &tokens(&format!("{{ by = \"{by}\" }}\ncost = 2")));
        for (count, expected) in costs.iter().enumerate() {
            refill(&weir, "tokens");
            let mut client = Client::connect(weir.address());
            client.send(format!("GET {path}?events={} HTTP/1.1\r\nHost: a\r\n\r\n", count + 1));
            assert_eq!(client.head().unwrap().status, 200);
            let event = body.split_inclusive("\n\n").nth(count).unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(format!("{event}\r\n").as_bytes()) {
                seen.extend(client.read(1));
            }
            drop(client);
            wait_for_spent(&weir, *expected);
        }
    }
}

/// A client that leaves before the first number pays the charge, although the default is lower.
#[test]
fn a_client_that_leaves_early_pays_its_charge() {
    let upstream = models();
    for settle in ["{ by = \"json:/rows\", default = 5 }", "{ by = \"openai-chat\", default = 5 }"] {
        let weir = Weir::start(&upstream, &tokens(&format!("{settle}\ncost = 100")));
        let cut = "weir_unreadable_bodies_total{limit=\"tokens\",reason=\"cut\"}";
        // Before the head, and behind two events.
        for (count, (target, has_head)) in [("/silent", false), ("/chat?events=2", true)].into_iter().enumerate() {
            refill(&weir, "tokens");
            let received = upstream.received_count();
            let mut client = Client::connect(weir.address());
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            if has_head {
                assert_eq!(client.head().unwrap().status, 200);
                client.read(1);
            } else {
                poll(|| (upstream.received_count() > received).then_some(()));
            }
            drop(client);
            weir.wait_for_metric(cut, |value| value == count as f64 + 1.0);
            wait_for_spent(&weir, 100);
        }
        // A whole body without a number.
        refill(&weir, "tokens");
        assert_eq!(Client::connect(weir.address()).get("/empty").status, 200);
        wait_for_spent(&weir, 5);
    }
}

#[test]
fn parallel_streams_are_admitted_by_their_reservations() {
    let upstream = models();
    let limit = tokens("{ by = \"anthropic\" }\ncost = 2500");
    let weir = Weir::start(&upstream, &limit);
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(weir.address())).collect();
    // Each of these streams is open until its client leaves, so nothing is settled yet.
    for client in &mut clients {
        client.send("GET /messages?events=7 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.head().unwrap().status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 20, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    assert_eq!(spent(&weir), BURST);
    // Each admitted stream is settled once; of one that was refused nothing is owed.
    for (client, _) in clients.iter_mut().zip(&statuses).filter(|(_, status)| **status == 200) {
        let mut seen = Vec::new();
        while !seen.ends_with(MESSAGES.as_bytes()) {
            seen.extend(client.read(1));
        }
    }
    drop(clients);
    // The event behind the last number counts as a token.
    wait_for_spent(&weir, 20 * 2201);
}

#[test]
fn every_end_of_a_stream_settles_it_once() {
    let upstream = models();
    // The service breaks off behind the event that has all numbers, or before.
    for (events, units) in [(6, 2200), (1, 2051)] {
        let weir = Weir::start(&upstream, &tokens("{ by = \"anthropic\" }"));
        let mut client = Client::connect(weir.address());
        client.send(format!("GET /cut?events={events} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.try_answer().is_none());
        wait_for_spent(&weir, units);
    }
    // A reload while a stream is open: it is settled by the rule that admitted it.
    let weir = Weir::start(&upstream, &tokens("{ by = \"anthropic\" }"));
    let mut client = Client::connect(weir.address());
    client.send("GET /messages?events=6 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    std::fs::write(weir.config_file(), text.replace("anthropic", "gemini")).unwrap();
    weir.signal("HUP");
    weir.wait_for_line("\"reloaded\"");
    let mut seen = Vec::new();
    while !seen.ends_with(b"150}}\n\n\r\n") {
        seen.extend(client.read(1));
    }
    drop(client);
    wait_for_spent(&weir, 2200);
    // A client without a body to read.
    Client::connect(weir.address()).send("HEAD /messages HTTP/1.1\r\nHost: a\r\n\r\n").head().unwrap();
    wait_for_spent(&weir, 2201);
}
