//! HTTP/2 with prior knowledge.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use http::{Request, Version};
use http_body_util::{BodyExt, Empty};

use crate::support::{Channel, NEVER, Received, Upstream, Weir, over_h2};

/// Answers with the request's body.
fn mirror() -> Upstream {
    Upstream::answering(|request, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", request.body.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&request.body).is_ok()
    })
}

#[test]
fn many_streams_run_at_once_with_bodies_both_ways() {
    let upstream = mirror();
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |client, _| client.check_echoes().await);
    assert_eq!(upstream.received_count(), 50);
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
        write!(stream, "{head}2\r\nok\r\n0\r\nx-sum: 2\r\n\r\n").is_ok()
    });
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::post("http://weir.test/").header("te", "trailers").header("trailer", "x-check");
        let answer = client.ask_with_trailer(head).await;
        assert_eq!((&*answer.body, answer.trailers.unwrap()["x-sum"].to_str().unwrap()), (&b"ok"[..], "2"));
    });
    let received = &upstream.received()[0];
    assert_eq!((&*received.body, &*received.trailers), (&b"abc"[..], "x-check: 3\r\n"));
}

#[test]
fn the_upstream_sees_http_11() {
    let upstream = mirror();
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::get("http://weir.test:81/a//b?q=1").header("cookie", "a=1").header("cookie", "b=2");
        let response = client.send(head, Empty::new()).await.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
    });
    let received = &upstream.received()[0];
    assert!(received.head.starts_with("GET /a/b?q=1 HTTP/1.1\r\n"));
    assert_eq!(received.header("host"), Some("weir.test:81".into()));
    assert_eq!(received.header("x-forwarded-host"), Some("weir.test:81".into()));
    assert_eq!(received.header("transfer-encoding"), None);
    // RFC 9113, section 8.2.3: the crumbs are one field outside HTTP/2.
    assert_eq!(received.header("cookie"), Some("a=1; b=2".into()));
}

#[test]
fn refusals_carry_no_headers_of_a_connection() {
    let upstream = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nconnection: keep-alive, x-hop\r\nkeep-alive: timeout=5\r\nx-hop: 1\r\n";
        write!(stream, "{head}content-length: 0\r\n\r\n").is_ok()
    });
    let weir = Weir::start(&upstream, "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"");
    over_h2(weir.address(), async |mut client, _| {
        for status in [200, 429] {
            let answer = client.get("/").await.unwrap();
            assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (status, Some("1")));
            for name in ["connection", "keep-alive", "x-hop", "transfer-encoding"] {
                assert_eq!(answer.header(name), None, "{name}");
            }
        }
        let answer = client.get("/a%00b").await.unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/problem+json")));
    });
}

#[test]
fn a_host_that_contradicts_the_authority_is_refused() {
    let upstream = mirror();
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let mut with_host = async |host: &str| {
            let head = Request::get("http://weir.test/").header("host", host);
            client.ask(head).await.unwrap().status
        };
        assert_eq!(with_host("other.test").await, 400);
        assert_eq!(with_host("weir.test").await, 200);
        // The connection and its other streams go on.
        assert_eq!(client.get("/").await.unwrap().status, 200);
    });
    assert_eq!(upstream.received_count(), 2);
}

#[test]
fn head_keeps_its_length() {
    let upstream =
        Upstream::answering(|_, stream| stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").is_ok());
    let weir = Weir::start(&upstream, "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"");
    over_h2(weir.address(), async |mut client, _| {
        let answer = client.ask(Request::head("http://weir.test/")).await.unwrap();
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("5")));
        let answer = client.ask(Request::head("http://weir.test/")).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (429, 0));
    });
}

#[test]
fn an_answer_that_breaks_off_does_not_look_complete() {
    let upstream = Upstream::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
        false
    });
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let broken = client.get("/").await;
        assert!(broken.is_err(), "{broken:?}");
        // Only that stream is broken.
        assert!(client.get("/").await.is_err());
    });
    assert_eq!(upstream.received_count(), 2);
}

#[test]
fn a_stream_that_is_reset_takes_its_upstream_connection_with_it() {
    let upstream = Upstream::serving(|mut peer| {
        peer.head();
        peer.rest();
    });
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |client, _| {
        let mut leaving = client.clone();
        let asked = tokio::spawn(async move { leaving.get("/").await.map(drop) });
        upstream.wait_until(|upstream| upstream.connections() == 1);
        asked.abort();
        upstream.wait_until(|upstream| upstream.connections() == 0);
    });
}

#[test]
fn a_body_that_stalls_is_408() {
    let upstream = mirror();
    let weir = Weir::start(&upstream, "[timeouts]\nbody_idle = \"300ms\"");
    over_h2(weir.address(), async |mut client, _| {
        let (_keep_open, frames) = tokio::sync::mpsc::unbounded_channel();
        let answer = client.send(Request::post("http://weir.test/"), Channel(frames)).await.unwrap();
        assert_eq!(answer.status(), 408);
        assert_eq!(client.get("/").await.unwrap().status, 200);
    });
}

#[test]
fn an_h2_client_that_is_silent_is_left() {
    let upstream = mirror();
    let weir = Weir::start(&upstream, "[timeouts]\nkeep_alive = \"2s\"");
    over_h2(weir.address(), async |mut client, _| {
        assert_eq!(client.get("/").await.unwrap().status, 200);
        weir.wait_for_metric("weir_connections", |open| open == 0.0);
    });
}

#[test]
fn draining_lets_a_stream_run_to_its_end() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |_: &Received, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst");
        let _ = wait.lock().unwrap().recv();
        stream.write_all(b"later").is_ok()
    });
    let weir = Weir::start(&upstream, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let mut answer = client.send(Request::get("http://weir.test/"), Empty::new()).await.unwrap();
        let first = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&*first, b"first");
        weir.signal("TERM");
        weir.wait_for_line("draining");
        go_on.send(()).unwrap();
        let later = answer.collect().await.unwrap().to_bytes();
        assert_eq!(&*later, b"later");
        client.closed().await;
    });
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn heads_are_bounded_as_they_are_over_http_11() {
    let upstream = mirror();
    let weir = Weir::start_with(&upstream, "max_headers = 20\nmax_uri_bytes = \"100B\"", NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let mut ask = async |headers: usize, target_len: usize| {
            let target = format!("http://weir.test/{}", "x".repeat(target_len - 1));
            let head = (0..headers).fold(Request::get(target), |head, n| head.header(format!("x-{n}"), "y"));
            client.ask(head).await.unwrap().status
        };
        assert_eq!([ask(19, 1).await, ask(21, 1).await], [200, 431]);
        assert_eq!([ask(0, 100).await, ask(0, 101).await], [200, 414]);
    });
    assert_eq!(upstream.received_count(), 2);
}

#[test]
fn an_answer_that_is_not_taken_is_given_up() {
    let upstream = Upstream::serving(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
        let piece = vec![0; 65536];
        while peer.send(&piece) {}
    });
    for timeout in ["body_idle", "total"] {
        let weir = Weir::start(&upstream, &format!("{NEVER}[timeouts]\n{timeout} = \"300ms\""));
        over_h2(weir.address(), async |mut client, _| {
            let _kept = client.send(Request::get("http://weir.test/"), Empty::new()).await.unwrap();
            upstream.wait_until(|upstream| upstream.connections() == 0);
        });
    }
}
