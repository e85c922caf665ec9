//! Endpoints with a bound on connections: which requests wait, for how long, and in which order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::ops::until;
use crate::routes::upstream;
use crate::support::{Client, NEVER, Upstream, Weir, echo, over_h2};

/// An upstream whose requests end once the first value is true. The second is the largest number of requests at once.
fn slow() -> (Upstream, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (may_end, now, most) = (Arc::<AtomicBool>::default(), AtomicUsize::new(0), Arc::<AtomicUsize>::default());
    let (ends, highest) = (Arc::clone(&may_end), Arc::clone(&most));
    let upstream = Upstream::answering(move |request, stream| {
        highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        until("requests may end", || ends.load(Ordering::SeqCst));
        now.fetch_sub(1, Ordering::SeqCst);
        echo(request, stream)
    });
    (upstream, may_end, most)
}

const LIMIT: &str = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"1000/day\"\n";

fn capped(endpoints: &[&Upstream], more: &str) -> Weir {
    Weir::with(&format!("{}{LIMIT}", upstream("a", endpoints, more)))
}

/// Sends a GET without waiting for its answer.
fn ask(weir: &Weir, path: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

const QUEUED: &str = "weir_upstream_queued{upstream=\"a\"}";

#[test]
fn requests_are_at_most_the_connections_and_waiting_ones_keep_their_order() {
    let (slow, may_end, most) = slow();
    let weir = capped(&[&slow], "max_connections = 1");
    let mut clients = vec![ask(&weir, "/0")];
    slow.wait_until(|slow| slow.received_count() == 1);
    for turn in 1..12 {
        clients.push(ask(&weir, &format!("/{turn}")));
        weir.wait_for_metric(QUEUED, |queued| queued == f64::from(turn));
    }
    let address = slow.address();
    assert_eq!(weir.metric(&format!("weir_endpoint_connections{{endpoint=\"http://{address}\",upstream=\"a\"}}")), 1.0);
    may_end.store(true, Ordering::SeqCst);
    for (turn, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().text(), format!("/{turn}"));
    }
    let expected: Vec<_> = (0..12).map(|turn| format!("/{turn}")).collect();
    assert_eq!((slow.targets(), most.load(Ordering::SeqCst)), (expected, 1));
    slow.wait_until(|slow| slow.connections() <= 1);
    assert_eq!(weir.metric(QUEUED), 0.0);
    assert_eq!(weir.metric("weir_overhead_seconds_count"), 1.0, "of the request that did not wait");
}

/// While the only connection to the other endpoint is busy, the endpoint that broke off gets the retry.
#[test]
fn a_retry_does_not_keep_requests_from_an_idle_endpoint() {
    let (slow, may_end, _) = slow();
    let idle = Upstream::answering(|request, stream| request.target() != "/die" && echo(request, stream));
    let weir = capped(&[&slow, &idle], "max_connections = 1\nqueue_timeout = \"1h\"");
    let mut busy = Vec::new();
    until("one endpoint is busy", || {
        let before = idle.received_count();
        busy.push(ask(&weir, "/slow"));
        until("an endpoint has the request", || slow.received_count() == 1 || idle.received_count() > before);
        slow.received_count() == 1
    });
    assert_eq!(Client::connect(weir.address()).get("/die").status, 502);
    assert_eq!(Client::connect(weir.address()).get("/x").text(), "/x");
    may_end.store(true, Ordering::SeqCst);
    assert!(busy.iter_mut().all(|client| client.answer().status == 200));
}

#[test]
fn an_idle_connection_of_one_worker_makes_room_for_another() {
    let app = Upstream::answering(echo);
    // Shorter than the time between two sweeps of idle connections.
    let weir = capped(&[&app], "max_connections = 1\nqueue_timeout = \"900ms\"");
    // A busy machine may stop for so long, but not again and again.
    let served = (0..40).filter(|_| Client::connect(weir.address()).get("/").status == 200).count();
    assert!(served >= 36, "{served} of 40");
    app.wait_until(|app| app.connections() <= 1);
}

#[test]
fn a_full_queue_and_a_long_wait_are_refused_and_cost_nothing() {
    let (slow, may_end, _) = slow();
    let weir = capped(&[&slow], "max_connections = 1\nmax_queued = 1\nqueue_timeout = \"6s\"");
    let mut first = ask(&weir, "/0");
    slow.wait_until(|slow| slow.received_count() == 1);
    let mut waiting = ask(&weir, "/1");
    weir.wait_for_metric(QUEUED, |queued| queued == 1.0);
    let full = ask(&weir, "/2").answer();
    assert_eq!((full.status, full.header("content-type")), (503, Some("application/problem+json")));
    let late = waiting.answer();
    assert_eq!((late.status, late.header("x-ratelimit-remaining")), (503, Some("999")), "only the first is charged");
    for reason in ["full", "timeout"] {
        let series = format!("weir_upstream_queue_refused_total{{reason=\"{reason}\",upstream=\"a\"}}");
        assert_eq!(weir.metric(&series), 1.0, "{reason}");
    }
    assert_eq!(weir.metric("weir_problems_total{kind=\"upstream_busy\"}"), 2.0);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"refused\"}"), 2.0);
    may_end.store(true, Ordering::SeqCst);
    assert_eq!(first.answer().status, 200);
    let again = waiting.get("/3");
    assert_eq!((again.status, again.header("x-ratelimit-remaining")), (200, Some("998")));
    assert_eq!(slow.targets(), ["/0", "/3"]);
}

#[test]
fn a_client_that_leaves_frees_its_place_in_the_queue() {
    let (slow, may_end, _) = slow();
    let weir = capped(&[&slow], "max_connections = 1\nqueue_timeout = \"1h\"");
    let mut first = ask(&weir, "/0");
    slow.wait_until(|slow| slow.received_count() == 1);
    let leaving = ask(&weir, "/1");
    weir.wait_for_metric(QUEUED, |queued| queued == 1.0);
    let mut last = ask(&weir, "/2");
    weir.wait_for_metric(QUEUED, |queued| queued == 2.0);
    drop(leaving);
    weir.wait_for_metric(QUEUED, |queued| queued == 1.0);
    may_end.store(true, Ordering::SeqCst);
    assert_eq!([first.answer().text(), last.answer().text()], ["/0", "/2"]);
    assert_eq!(slow.targets(), ["/0", "/2"]);
    let verdicts = ["forwarded", "abandoned"].map(|verdict| format!("weir_requests_total{{verdict=\"{verdict}\"}}"));
    assert_eq!(verdicts.map(|verdict| weir.metric(&verdict)), [2.0, 1.0]);
}

#[test]
fn a_stream_that_is_reset_in_the_queue_is_an_abandoned_request() {
    let (slow, may_end, _) = slow();
    let weir = capped(&[&slow], "max_connections = 1\nqueue_timeout = \"1h\"");
    let mut first = ask(&weir, "/0");
    slow.wait_until(|slow| slow.received_count() == 1);
    over_h2(weir.address(), async |client, _| {
        let mut leaving = client.clone();
        let leaving = tokio::spawn(async move { leaving.get("/1").await.map(drop) });
        weir.wait_for_metric(QUEUED, |value| value == 1.0);
        leaving.abort();
        weir.wait_for_metric(QUEUED, |value| value == 0.0);
    });
    weir.wait_for_metric("weir_requests_total{verdict=\"abandoned\"}", |abandoned| abandoned == 1.0);
    may_end.store(true, Ordering::SeqCst);
    assert_eq!(first.answer().text(), "/0");
    assert_eq!(slow.targets(), ["/0"]);
}

#[test]
fn a_connection_that_breaks_off_makes_room() {
    let broken = Upstream::answering(|_, _| false);
    let weir = capped(&[&broken], "max_connections = 1\nqueue_timeout = \"1h\"");
    let asking: Vec<_> = (0..10).map(|turn| ask(&weir, &format!("/{turn}"))).collect();
    for mut client in asking {
        assert_eq!(client.answer().status, 502);
    }
}

#[test]
fn an_endpoint_that_is_full_leaves_its_requests_to_others() {
    let ((slow, may_end, most), other) = (slow(), Upstream::answering(echo));
    // A trusted proxy, so that the requests are not those of one client, which may use half of the connections.
    let config = upstream("a", &[&slow, &other], "max_connections = 2\nbalance = \"hash\"\nhash_by = \"host\"");
    let text = Weir::text(&format!("{config}{LIMIT}"));
    let weir = Weir::start_as(&text.replace("[server]", "[server]\ntrusted_proxies = [\"127.0.0.1\"]"));
    let mut clients: Vec<_> = (0..20).map(|turn| ask(&weir, &format!("/{turn}"))).collect();
    let is_selected = |upstream: &Upstream| !upstream.received().is_empty();
    until("it is known which endpoint the host selects", || is_selected(&slow) || is_selected(&other));
    may_end.store(!is_selected(&slow), Ordering::SeqCst);
    if is_selected(&slow) {
        // Two requests are active, and the other endpoint serves the rest.
        other.wait_until(|other| other.received_count() == 18);
        may_end.store(true, Ordering::SeqCst);
    }
    assert!(clients.iter_mut().all(|client| client.answer().status == 200));
    assert!(most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn all_requests_of_both_workers_get_their_turn() {
    let app = Upstream::start();
    let text = format!("{}{NEVER}", upstream("a", &[&app], "max_connections = 3"));
    let weir = Weir::with(&text);
    let asking: Vec<_> = (0..12)
        .map(|_| {
            let address = weir.address();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..30).all(|_| client.get("/").status == 200)
            })
        })
        .collect();
    assert!(asking.into_iter().all(|thread| thread.join().unwrap()));
    app.wait_until(|app| app.connections() <= 3);
    assert_eq!(weir.metric(QUEUED), 0.0);
}
