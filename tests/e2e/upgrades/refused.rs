//! Refused upgrades, and requests that clients try to smuggle past them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{AGREE, ASK, OPEN, start};
use crate::attacks::lab::{Lab, is_closed, is_problem};
use crate::ops::until;
use crate::support::{Client, Upstream, Weir};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: weir.test\r\n\r\n";

/// A Weir that allows WebSocket, with an upstream that declines all upgrades.
fn lab() -> Lab {
    let upstream = Upstream::start();
    let weir = start(&upstream, "", "");
    Lab::of(upstream, weir)
}

#[test]
fn bytes_after_a_declined_upgrade_are_a_request_or_refused() {
    let lab = lab();
    let mut client = lab.client();
    client.send(format!("{ASK}{SMUGGLED}"));
    assert_eq!((client.answer().status, client.answer().status), (200, 200));
    lab.probe(&mut client).unwrap();
    let received = lab.upstream.received();
    let smuggled = &received[1];
    assert_eq!((smuggled.target(), smuggled.header("x-forwarded-for")), ("/smuggled", Some("127.0.0.1".into())));
    assert_eq!(lab.weir.metric("weir_requests_total{verdict=\"forwarded\"}"), 3.0);

    for bytes in ["\u{1}\u{5}hello", "\r\n\r\n\r\n\r\nx", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = lab.client();
        client.send(format!("{ASK}{bytes}"));
        assert_eq!(client.answer().status, 200);
        is_problem(&client.answer(), 400).unwrap();
        is_closed(&mut client).unwrap();
    }
    assert_eq!(lab.upstream.received_count(), 6);
    lab.is_well();
}

/// The head of a handshake with this key.
fn websocket_with(key: &str) -> String {
    format!("GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: {key}\r\n")
}

#[test]
fn forbidden_upgrades_are_not_forwarded() {
    let lab = lab();
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    for (name, head, body) in [
        ("another protocol", "GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n".to_owned(), ""),
        (
            "h2c",
            "GET /a HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n".into(),
            "",
        ),
        ("not in Connection", format!("GET /a HTTP/1.1\r\nupgrade: websocket\r\n{key}\r\n"), ""),
        (
            "HTTP/1.0",
            format!("GET /a HTTP/1.0\r\nconnection: upgrade, keep-alive\r\nupgrade: websocket\r\n{key}\r\n"),
            "",
        ),
        ("no key", "GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n".into(), ""),
        ("two keys", format!("GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\n{key}\r\n"), ""),
        (
            "a key that is none",
            "GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: a\r\n".into(),
            "",
        ),
        ("a key of 17 bytes", websocket_with("dGhlIHNhbXBsZSBub25jZSE="), ""),
        ("a key of 18 bytes", websocket_with("dGhlIHNhbXBsZSBub25jZSEh"), ""),
        ("a key in another alphabet", websocket_with("dGhlIHNhbXBsZSBub25jZ-=="), ""),
        ("POST", format!("POST /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\n"), ""),
        (
            "a length",
            format!("GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\ncontent-length: 2\r\n"),
            "hi",
        ),
        (
            "chunks",
            format!(
                "GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\ntransfer-encoding: chunked\r\n"
            ),
            "2\r\nhi\r\n0\r\n\r\n",
        ),
    ] {
        let mut client = lab.client();
        assert_eq!(client.send(format!("{head}host: h\r\n\r\n{body}")).answer().status, 200, "{name}");
        let got = lab.upstream.received().pop().unwrap();
        assert!(["upgrade", "connection"].iter().all(|name| got.header(name).is_none()), "{name}: {got:?}");
        assert_eq!(got.body, if body.is_empty() { &b""[..] } else { b"hi" }, "{name}");
        lab.probe(&mut client).unwrap();
    }
    lab.is_well();
}

#[test]
fn connect_is_still_refused() {
    let lab = lab();
    let mut client = lab.client();
    client.send("CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    is_problem(&client.answer(), 405).unwrap();
    is_closed(&mut client).unwrap();
    assert!(lab.upstream.received().is_empty());
}

/// The upstream sends 101 for something else. No byte of the client reaches it.
#[test]
fn an_agreement_to_another_protocol_is_refused() {
    let bad = [
        AGREE.replace("upgrade: websocket", "upgrade: x"),
        AGREE.replace("upgrade: websocket\r\n", ""),
        AGREE.replace("connection: Upgrade\r\n", ""),
        AGREE.replace("connection: Upgrade", "connection: keep-alive"),
        AGREE.replace("s3p", "S3p"),
        AGREE.replace("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", ""),
        AGREE.replace("\r\n\r\n", "\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"),
        AGREE.replace("\r\n\r\n", "\r\nupgrade: x\r\n\r\n"),
        AGREE.replace("\r\n\r\n", "\r\nbad field\r\n\r\n"),
    ];
    let rests = Arc::<Mutex<Vec<usize>>>::default();
    let (said, seen) = (bad.clone(), Arc::clone(&rests));
    let upstream = Upstream::serving(move |mut peer| {
        while let Some(received) = peer.head() {
            if let Some(index) = received.target().strip_prefix("/chat/") {
                peer.send(&said[index.parse::<usize>().unwrap()]);
                let rest = peer.rest().len();
                return seen.lock().unwrap().push(rest);
            }
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    });
    let weir = start(&upstream, "", "");
    let lab = Lab::of(upstream, weir);
    for (index, agreement) in bad.iter().enumerate() {
        let (target, before) = (format!("/chat/{index}"), lab.upstream.received_count());
        let mut client = lab.client();
        client.send(format!("{}{SMUGGLED}", ASK.replace("/chat", &target)));
        is_problem(&client.answer(), 502).unwrap_or_else(|error| panic!("{agreement}: {error}"));
        assert_eq!(client.answer().status, 200, "{agreement}");
        lab.probe(&mut client).unwrap_or_else(|error| panic!("{agreement}: {error}"));
        assert_eq!(lab.upstream.targets()[before..before + 2], [&*target, "/smuggled"], "{agreement}");
        until("its connection is closed", || rests.lock().unwrap().len() > index);
        assert_eq!((rests.lock().unwrap()[index], lab.weir.metric(OPEN)), (0, 0.0), "{agreement}");
        lab.is_well();
    }
}

/// An upstream may believe that its connection was upgraded. So the connection gets no other request.
#[test]
fn an_upstream_connection_after_an_upgrade_request_is_not_reused() {
    let opened = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&opened);
    let upstream = Upstream::serving(move |mut peer| {
        count.fetch_add(1, Ordering::Relaxed);
        while peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    });
    let weir =
        Weir::start_as(&Weir::upgrading(&upstream, &["websocket"], "", "").replace("workers = 2", "workers = 1"));
    let mut client = Client::connect(weir.address());
    let expected = [1, 1, 2, 2, 3];
    for (request, expected) in ["", "", ASK, "", ASK].into_iter().zip(expected) {
        let answer = if request.is_empty() { client.get("/") } else { client.send(request).answer() };
        assert_eq!((answer.status, opened.load(Ordering::Relaxed)), (200, expected));
    }
}
