//! What a request took and did not use comes back, in Redis too: clients that leave, services that are down, waiters.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::ops::until;
use crate::support::{Client, Link, Redis, Relay, Upstream, over_paths};

use super::{REPLICAS, assert_no_fallback, over_all, patient, shared, start, three};

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n";

/// A client that leaves while Redis is asked takes nothing.
#[test]
fn a_client_that_leaves_while_redis_is_asked_takes_nothing() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let relay = Relay::to(redis.address());
    let store = format!("redis = [\"{}\"]\ntimeout = \"10s\"\n", relay.url());
    let fleet = start(&upstream, &shared(&store, &over_all("rate = \"200/day\"")));
    assert_eq!(fleet.ask(100, 3, &["/"]).passed(), 100);
    relay.set(Link::Slow(Duration::from_secs(4)));
    for index in 0..60 {
        let mut client = Client::connect(fleet.weirs[index % REPLICAS].address());
        client.send(REQUEST);
        client.finish();
        let _ = client.stream().shutdown(Shutdown::Both);
    }
    for weir in &fleet.weirs {
        weir.wait_for_metric("weir_connections", |open| open == 0.0);
    }
    relay.set(Link::Clear);
    // Refunds are on their way; what they bring back passes, and no more.
    let mut passed = 0;
    until("all units", || {
        passed += fleet.ask(30, 3, &["/"]).passed();
        passed >= 100
    });
    assert_eq!((passed, fleet.ask(300, 6, &["/"]).passed()), (100, 0));
    assert_eq!(upstream.received_count(), 200);
}

/// Requests that reached no service take nothing, in whatever order their units come back.
#[test]
fn a_service_that_is_down_costs_nothing() {
    let limits = [
        "rate = \"40/day\"",
        "algorithm = \"leaky_bucket\"\nrate = \"40/day\"",
        "algorithm = \"sub_window\"\nrate = \"40/week\"",
        "rate = [\"80/h\", \"40/day\"]",
    ];
    let strategies = ["local", "redis", "lease"];
    let rows: Vec<_> =
        limits.iter().flat_map(|limit| strategies.map(|by| format!("{limit}\nstrategy = \"{by}\""))).collect();
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = start(&upstream, &shared(&patient(&redis), &over_paths(&rows)));
    let paths: Vec<_> = (0..rows.len()).map(|index| format!("/l{index}")).collect();
    let address = upstream.stop();
    for (row, path) in rows.iter().zip(&paths) {
        let answers = fleet.ask(150, 12, &[path]);
        assert_eq!(answers.passed(), 0, "{row}");
        assert!(answers.count(502) + answers.count(503) > 0, "{row}: {:?}", answers.0.first());
    }
    let upstream = Upstream::start_at(address);
    for (row, path) in rows.iter().zip(&paths) {
        let (mut passed, all) = (0, if row.contains("local") { 40 * REPLICAS } else { 40 });
        until(&format!("all units of {row}"), || {
            passed += fleet.ask(30, 3, &[path]).passed();
            passed >= all
        });
        assert_eq!((passed, fleet.ask(60, 6, &[path]).passed()), (all, 0), "{row}");
        assert_eq!(upstream.count(path), all, "{row}");
        assert_eq!(fleet.fallbacks(), 0.0, "{row}");
    }
}

/// Requests wait for units that all replicas share, and each admission costs about one call.
#[test]
fn held_requests_pass_at_the_rate_of_all_replicas() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let mut fleet = three(&redis, &upstream, "rate = \"100/s\"\nburst = 10\non_limit = \"hold\"");
    let begin = Instant::now();
    let answers = fleet.ask(150, 60, &["/"]);
    let took = begin.elapsed();
    assert_eq!(answers.passed(), 150);
    assert!(took >= Duration::from_millis(1390), "too fast: {took:?}");
    let calls = redis.calls("evalsha");
    // The first waiters ask at once, before a denial is known.
    assert!(calls <= 60 + 300, "{calls} calls for 150 admissions");
    assert_no_fallback(&fleet);
    fleet.weirs.truncate(1);
    assert_eq!(fleet.ask(150, 60, &["/"]).passed(), 150);
    let of_one = redis.calls("evalsha") - calls;
    assert!(of_one <= 60 + 180, "{of_one} calls for 150 admissions");
}

/// A waiter that leaves takes nothing, and the others move up.
#[test]
fn a_waiter_that_leaves_takes_nothing() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, "rate = \"1/2s\"\nburst = 3\non_limit = \"hold\"");
    assert_eq!(fleet.ask(1, 1, &["/"]).passed(), 1);
    let waiters: Vec<_> = (0..30)
        .map(|index| {
            let mut client = Client::connect(fleet.weirs[index % REPLICAS].address());
            client.stream().write_all(REQUEST.as_bytes()).unwrap();
            client
        })
        .collect();
    until("they wait", || fleet.metric("weir_held_requests{limit=\"all\"}") > 20.0);
    drop(waiters);
    for weir in &fleet.weirs {
        weir.wait_for_metric("weir_held_requests{limit=\"all\"}", |held| held == 0.0);
    }
    // Almost a minute of waiting is gone with them, which is longer than these clients wait.
    assert_eq!(fleet.ask(3, 3, &["/"]).passed(), 3);
}

/// Requests over the limit pass later, by what all replicas have taken.
#[test]
fn delays_grow_with_the_debt_of_all_replicas() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let lines = "rate = \"10/h\"\non_limit = \"delay\"\ndelay = { step = \"10ms\", max = \"100ms\" }";
    let fleet = three(&redis, &upstream, lines);
    assert_eq!(fleet.ask(10, 3, &["/"]).passed(), 10);
    // Each of three clients finds the debt of the others.
    let answers = fleet.ask(30, 3, &["/"]);
    assert_eq!(answers.passed(), 30);
    let longest = answers.percentile(100);
    assert!(longest >= Duration::from_millis(100), "{longest:?}");
}
