//! Streams that are asked for their usage, and models without a price.

use std::io::Write;
use std::sync::mpsc;

use crate::body_units::{spent, tokens, wait_for_spent};
use crate::ops::refill;
use crate::request_bodies::{last, post, post_chunked, post_h2};
use crate::support::{H2Service, Upstream, Weir};

const CHAT: &str = include_str!("../../src/engine/units/answers/openai-chat.events");
const ADD: &str = "{ by = \"openai-chat\", include_usage = \"add\" }";

/// A service whose streams name their usage if the request asks for it.
fn chat() -> Upstream {
    Upstream::answering(|request, stream| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let asks = body["stream_options"]["include_usage"] == true;
        let events: String =
            CHAT.split_inclusive("\n\n").filter(|event| asks || !event.contains("prompt_tokens")).collect();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        write!(stream, "{head}content-length: {}\r\n\r\n{events}", events.len()).is_ok()
    })
}

#[test]
fn a_stream_is_asked_for_its_usage() {
    let upstream = chat();
    let weir = Weir::start(&upstream, &tokens(ADD));
    for (body, sent) in [
        (r#"{"model":"a","stream":true}"#, r#"{"stream_options":{"include_usage":true},"model":"a","stream":true}"#),
        (
            r#"{ "stream" : true, "stream_options": { } }"#,
            r#"{ "stream" : true, "stream_options": {"include_usage":true } }"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":false}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
    ] {
        refill(&weir, "tokens");
        assert_eq!(post(&weir, "/", "", body.as_bytes()).status, 200);
        assert_eq!(last(&upstream).body, sent.as_bytes(), "{body}");
        assert_eq!(last(&upstream).header("content-length"), Some(sent.len().to_string()));
        wait_for_spent(&weir, 1117);
        assert_eq!(post_chunked(&weir, "/", body.as_bytes(), 3).status, 200);
        let received = last(&upstream);
        assert_eq!((&*received.body, received.header("content-length")), (sent.as_bytes(), None));
        assert_eq!(received.trailers.trim(), "x-check: 3");
        wait_for_spent(&weir, 2 * 1117);
        assert_eq!(post_h2(&weir, "/", &[], body.as_bytes()).status, 200);
        assert_eq!(last(&upstream).body, sent.as_bytes());
        wait_for_spent(&weir, 3 * 1117);
    }
}

#[test]
fn other_bodies_arrive_unchanged() {
    let upstream = Upstream::start();
    let limit = format!("{}read_body = \"200B\"\n", tokens(ADD));
    let weir = Weir::start(&upstream, &limit);
    let long = format!(r#"{{"stream":true,"x":"{}"}}"#, "x".repeat(200));
    for body in [
        r#"{"model":"a"}"#,
        r#"{"stream":false}"#,
        r#"{"stream":true,"stream":true}"#,
        r#"{"stream":true,"stream_options":{},"stream_options":{}}"#,
        r#"{"stream":true,"stream_options":{"include_usage":"a"}}"#,
        r#"{"stream":true"#,
        &long,
    ] {
        assert_eq!(post(&weir, "/", "", body.as_bytes()).status, 200);
        assert_eq!(last(&upstream).body, body.as_bytes());
        assert_eq!(last(&upstream).header("content-length"), Some(body.len().to_string()));
        assert_eq!(post_chunked(&weir, "/", body.as_bytes(), 3).status, 200);
        assert_eq!(last(&upstream).body, body.as_bytes());
        assert_eq!(post_h2(&weir, "/", &[], body.as_bytes()).status, 200);
        assert_eq!(last(&upstream).body, body.as_bytes());
    }
    let stream = br#"{"stream":true}"#;
    assert_eq!(post(&weir, "/", "Content-Encoding: gzip\r\n", stream).status, 200);
    assert_eq!(last(&upstream).body, stream);
    // The service would refuse a body that differs from its digest.
    for (name, value) in [
        ("Content-Digest", "sha-256=:AAAA=:"),
        ("Repr-Digest", "sha-256=:AAAA=:"),
        ("Digest", "sha-256=AAAA="),
        ("Content-MD5", "AAAA="),
        ("Signature", "a=:AAAA=:"),
        ("X-Amz-Content-Sha256", "00"),
        ("X-Ms-Content-Sha256", "AA="),
        ("Authorization", "AWS4-HMAC-SHA256 Credential=a"),
        ("Trailer", "X-A, content-digest"),
    ] {
        assert_eq!(post(&weir, "/", &format!("{name}: {value}\r\n"), stream).status, 200);
        assert_eq!(last(&upstream).body, stream, "{name}");
        assert_eq!(post_h2(&weir, "/", &[(&name.to_ascii_lowercase(), value)], stream).status, 200);
        assert_eq!(last(&upstream).body, stream, "{name}");
        assert_eq!(last(&upstream).header(&name.to_ascii_lowercase()).as_deref(), Some(value));
    }
    // The longest body that a service takes may become longer, and is logged as the client sent it.
    let log = "[log]\nformat = \"json\"\naccess = \"all\"\n";
    let weir = Weir::start_with(&upstream, "max_body_bytes = \"15B\"", &format!("{log}{}", tokens(ADD)));
    assert_eq!(post(&weir, "/", "", stream).status, 200);
    weir.wait_for_line("\"bytes_in\":15,");
    assert_eq!(last(&upstream).body, br#"{"stream_options":{"include_usage":true},"stream":true}"#);
    assert_eq!(post(&weir, "/", "", br#"{"stream": true}"#).status, 413);
}

#[test]
fn a_service_over_http2_is_asked_too() {
    let (sender, bodies) = mpsc::channel();
    let service = H2Service::start(move |mut call| {
        let sender = sender.clone();
        async move {
            sender.send(call.read().await.0).unwrap();
            call.say("hello");
        }
    });
    let weir = Weir::with(&format!("{}{}", service.upstream(""), tokens(ADD)));
    let sent = br#"{"stream_options":{"include_usage":true},"stream":true}"#;
    let body = br#"{"stream":true}"#;
    assert_eq!(post(&weir, "/", "", body).status, 200);
    assert_eq!(bodies.recv().unwrap(), sent);
    assert_eq!(service.called()[0].headers["content-length"], sent.len().to_string());
    assert_eq!(post_chunked(&weir, "/", body, 3).status, 200);
    assert_eq!(post_h2(&weir, "/", &[], body).status, 200);
    assert_eq!([bodies.recv().unwrap(), bodies.recv().unwrap()], [sent, sent]);
}

#[test]
fn a_model_without_a_price_is_refused() {
    let upstream = Upstream::start();
    let price = "price.\"model-1*\" = { input = 1, output = 2 }";
    let refuse = tokens(&format!("{{ by = \"openai-chat\", {price}, unpriced = \"refuse\" }}"));
    let weir = Weir::start(&upstream, &refuse);
    let unread = "the model of the request cannot be read";
    let long = format!(r#"{{"model":"model-1","a":"{}"}}"#, "a".repeat(64 << 10));
    for (body, reason) in [
        (r#"{"model":"model-1-mini"}"#, ""),
        (r#"{"model":"model-2"}"#, "the model of the request has no price"),
        ("{}", unread),
        (r#"{"model":"model-1","model":"model-2"}"#, unread),
        ("model=model-1", unread),
        (&long, "the body is longer than `read_body`, so its model is not known"),
    ] {
        let (refused, status) = (post(&weir, "/", "", body.as_bytes()), if reason.is_empty() { 200 } else { 400 });
        assert_eq!(refused.status, status, "{body}");
        assert!(status == 200 || refused.text().contains(&format!("limit tokens: {reason}")), "{}", refused.text());
        assert_eq!(post_chunked(&weir, "/", body.as_bytes(), 3).status, status, "{body}");
        assert_eq!(post_h2(&weir, "/", &[], body.as_bytes()).status, status, "{body}");
    }
    assert_eq!((upstream.received_count(), spent(&weir)), (3, 3));
    assert_eq!(weir.metric("weir_problems_total{kind=\"unpriced_model\"}"), 15.0);
    // A request without a body uses no model.
    assert_eq!(crate::support::Client::connect(weir.address()).get("/models").status, 200);
    for others in [refuse.replace("refuse", "default"), format!("{refuse}mode = \"shadow\"\n")] {
        let weir = Weir::start(&upstream, &others);
        assert_eq!(post(&weir, "/", "", br#"{"model":"model-2"}"#).status, 200);
    }
}
