//! The end of a Weir: what runs is finished, who waits is told, and it does not take long.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ops::until;
use crate::support::{Client, Upstream, Weir};

const HOLD_ALL: &str = "[[limit]]\nname = \"all\"\nkey = []\nburst = 1\non_limit = \"hold\"\n";

/// An upstream that answers at once, but `/slow` only when told to.
struct Slow {
    upstream: Upstream,
    go_on: Arc<AtomicBool>,
}

impl Slow {
    fn start() -> Self {
        let go_on = Arc::new(AtomicBool::new(false));
        let may_go_on = Arc::clone(&go_on);
        let upstream = Upstream::answering(move |request, stream| {
            while request.target() == "/slow" && !may_go_on.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok()
        });
        Self { upstream, go_on }
    }
}

/// Sends a request without waiting for its answer.
fn ask(weir: &Weir, target: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

fn status_of(weir: &Weir, target: &str) -> u16 {
    Client::connect(weir.admin()).get(target).status
}

#[test]
fn what_runs_is_finished_and_nothing_new_begins() {
    for signal in ["TERM", "INT"] {
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
        go_on.store(true, Ordering::Release);
        let answer = running.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(running.rest(), b"");
        assert_eq!(weir.wait(), Some(0));
    }
}

#[test]
fn past_the_grace_period_what_runs_is_cut() {
    let Slow { upstream, .. } = Slow::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"100ms\"", "");
    let mut running = ask(&weir, "/slow");
    upstream.wait_until(|upstream| upstream.targets().len() == 1);

    let began = Instant::now();
    weir.signal("TERM");
    assert_eq!(running.rest(), b"");
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(weir.wait(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_second_signal_cuts_the_grace_period_short() {
    let Slow { upstream, .. } = Slow::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"10min\"", "");
    let mut running = ask(&weir, "/slow");
    upstream.wait_until(|upstream| upstream.targets().len() == 1);

    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    let began = Instant::now();
    weir.signal("INT");
    assert_eq!(running.rest(), b"");
    assert_eq!(weir.wait(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn who_waits_is_served_within_the_grace_period() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"30s\"", &format!("{HOLD_ALL}rate = \"1/700ms\""));
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    let mut held = ask(&weir, "/held");
    weir.wait_for_metric("weir_held_requests{limit=\"all\"}", |held| held == 1.0);

    weir.signal("TERM");
    let answer = held.answer();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn who_still_waits_then_is_told_when_to_come_back() {
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
