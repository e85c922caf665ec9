//! Draining: open requests are finished, waiting requests are answered, and the end is bounded in time.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ops::until;
use crate::support::{Client, Event, Upstream, Weir};

const HOLD_ALL: &str = "[[limit]]\nname = \"all\"\nkey = []\nburst = 1\non_limit = \"hold\"\n";

/// An upstream that responds at once, except to `/slow`, which waits for `go_on`.
struct Slow {
    upstream: Upstream,
    go_on: Arc<Event>,
}

impl Slow {
    fn start() -> Self {
        let go_on = Arc::<Event>::default();
        let may_go_on = Arc::clone(&go_on);
        let upstream = Upstream::answering(move |request, stream| {
            if request.target() == "/slow" {
                may_go_on.wait();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok()
        });
        Self { upstream, go_on }
    }
}

/// Sends a request, and does not read the response.
fn ask(weir: &Weir, target: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

fn status_of(weir: &Weir, target: &str) -> u16 {
    Client::connect(weir.admin()).get(target).status
}

#[test]
fn open_requests_are_finished_and_no_connection_is_accepted() {
    for signal in ["TERM", "INT", "QUIT"] {
        let Slow { upstream, go_on } = Slow::start();
        let weir = Weir::start(&upstream, "");
        assert_eq!((status_of(&weir, "/readyz"), status_of(&weir, "/healthz")), (200, 200));
        let mut silent = Client::connect(weir.address());
        let mut idle = Client::connect(weir.address());
        assert_eq!(idle.get("/").status, 200);
        weir.wait_for_metric("weir_connections", |open| open >= 2.0);
        let mut running = ask(&weir, "/slow");
        upstream.wait_until(|upstream| upstream.targets().contains(&"/slow".to_owned()));

        weir.signal(signal);
        weir.wait_for_line("\"draining\"");
        assert_eq!(idle.rest(), b"");
        assert_eq!(silent.rest(), b"");
        until("nothing new is accepted", || TcpStream::connect(weir.address()).is_err());
        until("not ready", || status_of(&weir, "/readyz") == 503);
        assert_eq!(status_of(&weir, "/healthz"), 200);
        go_on.set();
        let answer = running.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(running.rest(), b"");
        assert_eq!(weir.wait(), Some(0));
    }
}

/// The time for requests that are on their way ends while a head is incomplete.
#[test]
fn a_head_that_arrives_in_pieces_is_answered() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "");
    let (mut idle, mut slow) = (Client::connect(weir.address()), Client::connect(weir.address()));
    slow.send("GET / HTTP/1.1\r\n");
    weir.wait_for_metric("weir_connections", |open| open >= 2.0);

    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    assert_eq!(idle.rest(), b"");
    let received = "weir_client_bytes_total{direction=\"received\"}";
    let before = weir.metric(received);
    slow.send("X-More: 1\r\n");
    weir.wait_for_metric(received, |bytes| bytes > before);
    let answer = slow.send("Host: a\r\n\r\n").answer();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn open_requests_are_dropped_after_the_grace_period() {
    let Slow { upstream, .. } = Slow::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"100ms\"", "");
    let mut running = ask(&weir, "/slow");
    upstream.wait_until(|upstream| upstream.targets().len() == 1);

    let began = Instant::now();
    weir.signal("TERM");
    assert_eq!(running.rest(), b"");
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_second_signal_ends_the_grace_period() {
    let Slow { upstream, .. } = Slow::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"10min\"", "");
    let mut running = ask(&weir, "/slow");
    upstream.wait_until(|upstream| upstream.targets().len() == 1);

    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    weir.signal("INT");
    assert_eq!(running.rest(), b"");
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn held_requests_are_served_within_the_grace_period() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"30s\"", &format!("{HOLD_ALL}rate = \"1/4s\""));
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    let mut held = ask(&weir, "/held");
    weir.wait_for_metric("weir_held_requests{limit=\"all\"}", |held| held == 1.0);

    weir.signal("TERM");
    let answer = held.answer();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn requests_still_held_get_retry_after() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"100ms\"", &format!("{HOLD_ALL}rate = \"1/h\""));
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    let mut held = ask(&weir, "/held");
    weir.wait_for_metric("weir_held_requests{limit=\"all\"}", |held| held == 1.0);

    weir.signal("TERM");
    let answer = held.answer();
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
    let retry_after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&retry_after), "{retry_after}");
    assert!(answer.text().contains("shutting down"), "{}", answer.text());
    assert_eq!(upstream.targets(), ["/"]);
    assert_eq!(weir.wait(), Some(0));
}
