//! Priorities of requests: the order of held ones, and which are shed under overload.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ops::until;
use crate::support::{Answer, Client, Upstream, Weir, echo, over_h2};
use crate::upgrades;

/// Background requests, and a proxy that may name priorities.
const PRIORITIES: &str = "
    [priority]
    header = 'x-priority'
    rule = [{ priority = 'background', match = { path = ['/jobs/{*rest}', '/private'] } }]
";
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SERVER: &str = "trusted_proxies = ['127.0.0.2']";

/// Sends a GET with more fields, without waiting for its answer.
fn ask(mut client: Client, path: &str, fields: &str) -> Client {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client
}

fn direct(weir: &Weir, path: &str, fields: &str) -> Client {
    ask(Client::connect(weir.address()), path, fields)
}

fn proxied(weir: &Weir, path: &str, fields: &str) -> Client {
    ask(Client::connect_from(PROXY, weir.address()), path, fields)
}

#[test]
fn held_requests_pass_by_priority_and_no_client_can_raise_its_own() {
    let app = Upstream::answering(echo);
    let limit = "[[limit]]\nname = 'all'\nkey = []\nrate = '10/min'\nburst = 1\non_limit = 'hold'\n";
    let weir = Weir::start_with(&app, SERVER, &format!("{limit}hold = {{ max_wait = '9s' }}\n{PRIORITIES}"));
    let critical = "X-Priority: critical\r\n";
    assert_eq!(direct(&weir, "/first", "").answer().status, 200);
    let held = |count: f64| weir.wait_for_metric("weir_held_requests{limit=\"all\"}", |held| held == count);
    let mut job = direct(&weir, "/jobs/1", critical);
    held(1.0);
    let refused = direct(&weir, "/jobs/2", critical).answer();
    let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("12")));
    assert_eq!(problem["detail"], "beyond all, and the wait of about 12 s is longer than allowed");
    let mut urgent = proxied(&weir, "/jobs/3", &format!("{critical}X-Forwarded-For: 192.0.2.7\r\n"));
    held(2.0);
    assert_eq!(urgent.answer().status, 200);
    // It was overtaken beyond its longest wait.
    assert_eq!(job.answer().status, 429);
    assert_eq!(app.targets(), ["/first", "/jobs/3"]);
}

/// An upstream whose requests end once the value is true.
fn blocked() -> (Upstream, Arc<AtomicBool>) {
    let may_end = Arc::<AtomicBool>::default();
    let ends = Arc::clone(&may_end);
    let upstream = Upstream::answering(move |request, stream| {
        until("requests may end", || ends.load(Ordering::SeqCst));
        echo(request, stream)
    });
    (upstream, may_end)
}

fn assert_shed(answer: &Answer, priority: &str) {
    let retry_s: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    let waits = if priority == "background" { 10..=20 } else { 2..=5 };
    assert!(answer.status == 503 && waits.contains(&retry_s), "{}", answer.head);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(problem["detail"], format!("overloaded, so that requests of priority {priority} are shed"));
}

#[test]
fn overload_sheds_the_lowest_priority_first_and_ends() {
    let (app, may_end) = blocked();
    let limits = "
        [identity.user]
        header = 'x-user'
        on_missing = 'reject'
        [[limit]]
        name = 'all'
        key = []
        rate = '1000/day'
        [[limit]]
        name = 'users'
        match = { path = '/private' }
        key = ['user']
        rate = '1000/day'
        [overload]
        in_flight = 8
    ";
    let weir = Weir::start_with(&app, SERVER, &format!("{limits}{PRIORITIES}"));
    let forwarded = |count: usize| app.wait_until(|app| app.received_count() == count);
    let level = |level: f64| weir.wait_for_metric("weir_overload_level", |now| now == level);
    // One more than the bound: all background requests are shed, and no others.
    let mut waiting: Vec<_> = (0..9).map(|_| direct(&weir, "/a", "")).collect();
    forwarded(9);
    level(1.0);
    weir.wait_for_line("overload begins");
    assert_shed(&direct(&weir, "/jobs/1", "").answer(), "background");
    assert_shed(&direct(&weir, "/jobs/1", "X-Priority: critical\r\n").answer(), "background");
    let over_http2 = over_h2(weir.address(), async |mut client, _| client.get("/jobs/1").await.unwrap());
    assert_eq!(over_http2.status, 503);
    // What a client must prove comes first.
    assert_eq!(direct(&weir, "/private", "").answer().status, 401);
    assert_shed(&direct(&weir, "/private", "X-User: u\r\n").answer(), "background");
    let mut grpc = Client::connect(weir.address());
    grpc.send("POST /jobs/g HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n");
    let grpc = grpc.answer();
    assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("14")));
    assert!(grpc.header("grpc-retry-pushback-ms").unwrap().parse::<u64>().unwrap() >= 10_000, "{}", grpc.head);
    assert_eq!(weir.metric("weir_shed_requests_total{priority=\"background\"}"), 5.0);
    assert_eq!(weir.metric("weir_refused_requests_total{by=\"overload\"}"), 5.0);
    assert_eq!(weir.metric("weir_problems_total{kind=\"overloaded\"}"), 5.0);
    // At 10/8 of the bound normal requests are shed too. A critical one passes.
    waiting.push(direct(&weir, "/a", ""));
    forwarded(10);
    level(2.0);
    assert_shed(&direct(&weir, "/a", "").answer(), "normal");
    waiting.push(proxied(&weir, "/jobs/1", "X-Priority: critical\r\n"));
    forwarded(11);
    assert_eq!(weir.metric("weir_shed_requests_total{priority=\"critical\"}"), 0.0);
    // Then nothing is shed any more, and no shed request has spent a unit.
    may_end.store(true, Ordering::SeqCst);
    assert!(waiting.iter_mut().all(|client| client.answer().status == 200));
    level(0.0);
    weir.wait_for_line("overload ends");
    let last = direct(&weir, "/jobs/1", "").answer();
    assert_eq!((last.status, last.header("x-ratelimit-remaining")), (200, Some("988")));
    assert_eq!(weir.lines().iter().filter(|line| line.contains("overload begins")).count(), 1);
}

/// A wait for a connection is a sign of overload, too. A reload without bounds sheds nothing any more.
#[test]
fn a_long_wait_for_a_connection_sheds_until_the_bound_is_gone() {
    let (app, may_end) = blocked();
    let text = |overload: &str| {
        let upstream = format!("[upstream]\nurl = 'http://{}'\nmax_connections = 1\n", app.address());
        format!("{upstream}{overload}[[limit]]\nname = 'all'\nkey = []\nrate = '1000/day'\n")
    };
    let weir = Weir::with(&text("[overload]\nqueue_delay = '100ms'\n"));
    // Two clients: one that waits because of its own requests is no sign of overload.
    let mut waiting = [direct(&weir, "/a", ""), proxied(&weir, "/a", "")];
    weir.wait_for_metric("weir_overload_level", |level| level == 2.0);
    assert_shed(&direct(&weir, "/a", "").answer(), "normal");
    std::fs::write(weir.config_file(), Weir::text(&text(""))).unwrap();
    weir.wait_for_metric("weir_overload_level", |level| level == 0.0);
    may_end.store(true, Ordering::SeqCst);
    assert!(waiting.iter_mut().all(|client| client.answer().status == 200));
}

/// The level is exactly that of the requests without the upgraded connections.
#[test]
fn upgraded_connections_are_not_in_flight() {
    let may_end = Arc::<AtomicBool>::default();
    let ends = Arc::clone(&may_end);
    let app = Upstream::serving(move |mut peer| {
        while let Some(received) = peer.head() {
            if received.header("upgrade").is_some() {
                peer.send(upgrades::AGREE);
                continue;
            }
            until("requests may end", || ends.load(Ordering::SeqCst));
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let weir = upgrades::start(&app, "", "[overload]\nin_flight = 8\n");
    let sockets = [(); 4].map(|()| upgrades::upgraded(&weir));
    let mut waiting: Vec<_> = (0..9).map(|_| direct(&weir, "/a", "")).collect();
    weir.wait_for_metric("weir_overload_level", |level| level == 1.0);
    // One that is closed is not subtracted any more.
    drop(sockets);
    weir.wait_for_metric(upgrades::OPEN, |open| open == 0.0);
    waiting.push(direct(&weir, "/a", ""));
    weir.wait_for_metric("weir_overload_level", |level| level == 2.0);
    may_end.store(true, Ordering::SeqCst);
    assert!(waiting.iter_mut().all(|client| client.answer().status == 200));
}
