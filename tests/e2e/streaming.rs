//! Streaming of bodies: each piece at once, and no faster than the receiver reads.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Client, Event, PATIENCE, Upstream, Weir, over_h2, pour, wait_until_stalled};

const MIB: usize = 1 << 20;
const LARGE: usize = 64 * MIB;
/// Bytes that Weir may hold of an unread body: about a MiB of buffers, plus the granularity of the allocator.
const SLACK: usize = 16 * MIB;

/// A signal between two threads: each send ends one wait.
fn signal() -> (Sender<()>, Mutex<Receiver<()>>) {
    let (send, wait) = channel();
    (send, Mutex::new(wait))
}

fn wait_for(signal: &Mutex<Receiver<()>>) {
    let _ = signal.lock().unwrap().recv_timeout(PATIENCE);
}

/// An upstream that responds with [`LARGE`] bytes, and counts the bytes that it wrote.
fn pouring() -> (Upstream, Arc<AtomicUsize>) {
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let upstream = Upstream::serving(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.target() == "/large" {
                peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n"));
                pour(LARGE, |piece| peer.send(piece), &count);
            } else {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    (upstream, written)
}

#[test]
fn a_response_begins_before_the_upstream_has_finished() {
    let (go_on, wait) = signal();
    let upstream = Upstream::serving(move |mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        wait_for(&wait);
        peer.send("5\r\nhello\r\n");
        wait_for(&wait);
        peer.send("0\r\n\r\n");
        peer.rest();
    });
    let weir = Weir::start(&upstream, "");
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    go_on.send(()).unwrap();
    assert_eq!(client.read(10), b"5\r\nhello\r\n");
    go_on.send(()).unwrap();
    assert_eq!(client.read(5), b"0\r\n\r\n");
}

#[test]
fn a_request_begins_before_the_client_has_finished() {
    let (tell, arrived) = channel();
    let tell = Mutex::new(tell);
    let upstream = Upstream::serving(move |mut peer| {
        peer.head();
        for len in [5, 4] {
            let piece = peer.read(len).unwrap();
            tell.lock().unwrap().send(piece).unwrap();
        }
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        peer.rest();
    });
    let weir = Weir::start(&upstream, "");
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfirst");
    assert_eq!(arrived.recv_timeout(PATIENCE).unwrap(), b"first");
    client.send("last");
    assert_eq!(arrived.recv_timeout(PATIENCE).unwrap(), b"last");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn both_bodies_are_streamed_at_once() {
    let upstream = Upstream::serving(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n");
        while let Some(piece) = peer.read(4) {
            peer.send(piece);
        }
    });
    let weir = Weir::start(&upstream, "");
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nping");
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.read(4), b"ping");
    assert_eq!(client.send("pong").read(4), b"pong");
}

#[test]
fn an_unread_response_slows_the_upstream() {
    let (upstream, written) = pouring();
    let weir = Weir::start(&upstream, "");
    let mut client = Client::connect(weir.address());
    client.get("/warm-up");
    let before = weir.resident();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    let stalled_at = wait_until_stalled(&written);
    let grown = weir.resident().saturating_sub(before);
    assert!(stalled_at < LARGE && grown < SLACK, "{stalled_at} bytes written, grown by {grown}");
    let body = client.read(LARGE);
    assert!(body.iter().all(|byte| *byte == 7));
    assert_eq!(client.get("/after").status, 200);
    let grown = weir.resident().saturating_sub(before);
    assert!(grown < SLACK, "grown by {grown} in the end");
}

#[test]
fn an_unread_request_slows_the_client() {
    let (go_on, wait) = signal();
    let upstream = Upstream::serving(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.target() == "/large" {
                wait_for(&wait);
                assert!(peer.read(LARGE).unwrap().iter().all(|byte| *byte == 7));
            }
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let weir = Weir::start(&upstream, "");
    let mut client = Client::connect(weir.address());
    client.get("/warm-up");
    let before = weir.resident();
    let sent = AtomicUsize::new(0);
    thread::scope(|scope| {
        client.send(format!("POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"));
        let mut writer = client.stream().try_clone().unwrap();
        scope.spawn(|| pour(LARGE, move |piece| writer.write_all(piece).is_ok(), &sent));
        let stalled_at = wait_until_stalled(&sent);
        let grown = weir.resident().saturating_sub(before);
        assert!(stalled_at < LARGE && grown < SLACK, "{stalled_at} bytes sent, grown by {grown}");
        go_on.send(()).unwrap();
        assert_eq!(client.answer().status, 200);
    });
    assert_eq!(client.get("/after").status, 200);
    let grown = weir.resident().saturating_sub(before);
    assert!(grown < SLACK, "grown by {grown} in the end");
}

#[test]
fn an_unread_h2_response_slows_the_upstream() {
    let (upstream, written) = pouring();
    let weir = Weir::start(&upstream, "");
    over_h2(weir.address(), async |mut client, _| {
        client.get("/warm-up").await.unwrap();
        let before = weir.resident();
        let mut response = client.send(Request::get("http://weir.test/large"), Empty::new()).await.unwrap();
        let stalled_at = wait_until_stalled(&written);
        let grown = weir.resident().saturating_sub(before);
        assert!(stalled_at < LARGE && grown < SLACK, "{stalled_at} bytes written, grown by {grown}");
        // Other streams of the connection continue.
        assert_eq!(client.get("/beside").await.unwrap().status, 200);
        let mut len = 0;
        while let Some(frame) = response.frame().await {
            len += frame.unwrap().data_ref().map_or(0, bytes::Bytes::len);
        }
        assert_eq!(len, LARGE);
    });
}

#[test]
fn a_client_that_leaves_within_the_response_ends_the_upstream_connection() {
    let (upstream, written) = pouring();
    let weir = Weir::start(&upstream, "");
    let mut client = Client::connect(weir.address());
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.stream().read(&mut [0; 100]);
    wait_until_stalled(&written);
    drop(client);
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn a_client_that_leaves_before_the_response_ends_the_upstream_connection() {
    let upstream = Upstream::serving(|mut peer| {
        peer.head();
        peer.rest();
    });
    let weir = Weir::start(&upstream, "");
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"]
    {
        let mut client = Client::connect(weir.address());
        client.send(request);
        upstream.wait_until(|upstream| upstream.connections() == 1);
        drop(client);
        upstream.wait_until(|upstream| upstream.connections() == 0);
    }
}

/// A body of [`LARGE`] bytes that counts those that the windows have let through.
struct Counted(Arc<AtomicUsize>);

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = Bytes::from_static(&[7; 16 * 1024]);
        let is_more = self.0.fetch_add(piece.len(), Ordering::Relaxed) < LARGE;
        Poll::Ready(is_more.then(|| Ok(Frame::data(piece))))
    }
}

#[test]
fn uploads_that_stall_stop_no_other_upload_of_their_connection() {
    let end = Arc::<Event>::default();
    let ends = Arc::clone(&end);
    let upstream = Upstream::serving(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.target() == "/stalled" {
                peer.read(64 * 1024);
                return ends.wait();
            }
            peer.read(10);
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let weir = Weir::start(&upstream, "");
    over_h2(weir.address(), async |mut client, _| {
        let count = Arc::<AtomicUsize>::default();
        let stalled = [(); 2].map(|()| {
            let (mut client, body) = (client.clone(), Counted(Arc::clone(&count)));
            tokio::spawn(async move { client.send(Request::post("http://weir.test/stalled"), body).await.map(drop) })
        });
        // A pause of the machine may look like a stall.
        for _ in 0..4 {
            assert!(wait_until_stalled(&count) < LARGE);
            let answer = timeout(Duration::from_secs(10), client.post("/", "0123456789")).await;
            assert_eq!(answer.expect("the stalled bodies stop it").unwrap().status, 200);
        }
        stalled.iter().for_each(JoinHandle::abort);
    });
    end.set();
}
