//! Clients that are slow on purpose: heads, bodies and answers, a little at a time.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Frame;

use crate::support::{Channel, Client, NEVER, PATIENCE, Upstream, Weir, over_h2};

/// What a drip never reaches, and nothing that flows stays below.
const RATES: &str = "[timeouts]\nmin_send_rate = \"10KiB\"\nmin_read_rate = \"10KiB\"\nrate_window = \"1s\"\n";

/// A window in which something flows, also if the machine pauses for a second or two.
const LONG_WINDOW: &str = "rate_window = \"3s\"";
const UNTAKEN: &str = "weir_problems_total{kind=\"untaken_answer\"}";

fn start(upstream: &Upstream) -> Weir {
    Weir::start(upstream, &format!("{NEVER}{RATES}"))
}

fn start_with_long_window(upstream: &Upstream) -> Weir {
    Weir::start(upstream, &format!("{NEVER}{}", RATES.replace("rate_window = \"1s\"", LONG_WINDOW)))
}

/// An upstream with more to say than fits anywhere.
fn endless() -> Upstream {
    Upstream::serving(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n");
        let piece = vec![0; 65536];
        while peer.send(&piece) {}
    })
}

#[test]
fn a_body_that_trickles_is_408() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for (framing, piece) in
        [("content-length: 50000000\r\n\r\n", &b"x"[..]), ("transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n")]
    {
        let mut client = Client::connect(weir.address());
        client.send(format!("POST /a HTTP/1.1\r\nhost: h\r\n{framing}"));
        let mut writer = client.stream().try_clone().unwrap();
        let drip = thread::spawn(move || {
            while writer.write_all(piece).is_ok() {
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{framing:?}");
        drop(client);
        drip.join().unwrap();
    }
    assert!(upstream.received().is_empty());
    assert_eq!(weir.metric("weir_problems_total{kind=\"request_timeout\"}"), 2.0);
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn a_body_that_trickles_over_http2_is_408() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    over_h2(weir.address(), async |mut client, _| {
        let (frames, body) = tokio::sync::mpsc::unbounded_channel();
        let drip = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(5));
            while frames.send(Frame::data(Bytes::from_static(b"x"))).is_ok() {
                pace.tick().await;
            }
        });
        let answer = client.send(Request::post("http://weir.test/a"), Channel(body)).await.unwrap();
        assert_eq!(answer.status(), 408);
        drop(answer);
        drip.await.unwrap();
        assert_eq!(client.get("/b").await.unwrap().status, 200);
    });
    assert_eq!(upstream.targets(), ["/b"]);
}

#[test]
fn a_body_that_flows_is_not_slow_however_long_it_takes() {
    const PIECES: usize = 40;
    let upstream = Upstream::start();
    let weir = start_with_long_window(&upstream);
    let mut client = Client::connect(weir.address());
    let piece = vec![b'x'; 64 << 10];
    client.send(format!("POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", PIECES * piece.len()));
    // Several windows, with each of them filled.
    for _ in 0..PIECES {
        client.send(&piece);
        thread::park_timeout(Duration::from_millis(250));
    }
    assert_eq!(client.answer().status, 200);
    assert_eq!(upstream.received()[0].body.len(), PIECES * piece.len());
}

/// Whoever waits for the service is not slow.
#[test]
fn the_service_may_take_its_time() {
    let upstream = Upstream::serving(|mut peer| {
        while peer.head().is_some() {
            thread::park_timeout(Duration::from_millis(1500));
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no");
            thread::park_timeout(Duration::from_millis(1500));
            peer.send("k");
        }
    });
    let weir = start(&upstream);
    assert_eq!(Client::connect(weir.address()).get("/").text(), "ok");
    over_h2(weir.address(), async |mut client, _| assert_eq!(&*client.get("/").await.unwrap().body, b"ok"));
    assert_eq!(weir.metric(UNTAKEN), 0.0);
}

#[test]
fn an_answer_that_is_sipped_is_cut_off() {
    let upstream = endless();
    let weir = start(&upstream);
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    let began = Instant::now();
    let mut sip = [0; 16];
    while weir.metric(UNTAKEN) == 0.0 {
        let _ = client.stream().read(&mut sip);
        assert!(began.elapsed() < PATIENCE);
        thread::park_timeout(Duration::from_millis(5));
    }
    upstream.wait_until(|upstream| upstream.connections() == 0);
    weir.wait_for_metric("weir_connections", |open| open == 0.0);
}

#[test]
fn an_answer_that_is_sipped_over_http2_is_cut_off() {
    let upstream = endless();
    let weir = start(&upstream);
    over_h2(weir.address(), async |mut client, _| {
        let mut answer = client.send(Request::get("http://weir.test/"), Empty::new()).await.unwrap();
        // The client reads one frame and nothing after it.
        assert!(answer.body_mut().frame().await.unwrap().is_ok());
        upstream.wait_until(|upstream| upstream.connections() == 0);
        weir.wait_for_metric(UNTAKEN, |count| count > 0.0);
    });
}

#[test]
fn an_answer_that_is_read_steadily_is_not() {
    const LEN: usize = 24 << 20;
    let upstream = Upstream::answering(|_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&vec![b'x'; LEN]).is_ok()
    });
    let weir = start_with_long_window(&upstream);
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    // Several windows, with something in each of them.
    let mut left = LEN;
    let mut piece = vec![0; 256 << 10];
    while left > 0 {
        let len = client.reader().read(&mut piece).unwrap();
        assert!(len > 0, "{left} bytes are missing");
        left -= len;
        thread::park_timeout(Duration::from_millis(100));
    }
    assert_eq!(weir.metric(UNTAKEN), 0.0);
}
