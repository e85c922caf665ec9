//! Decisions without Redis, by `on_failure`, and what is told of them.

use std::time::{Duration, Instant};

use crate::ops::{count_lines, fleet_view, until};
use crate::support::{Client, Fleet, Link, Redis, Relay, Upstream, Weir};

use super::{REPLICAS, over_all, shared, start};

/// The lines of a store behind this relay.
fn store(relay: &Relay, on_failure: &str) -> String {
    format!("redis = [\"{}\"]\ntimeout = \"5s\"\non_failure = \"{on_failure}\"\n", relay.url())
}

/// What the fleet may admit now, as a multiple of the only limit.
fn bound(weir: &Weir) -> Option<f64> {
    let fleet = fleet_view(weir.admin());
    assert_eq!((&fleet["replicas"], &fleet["limits"][0]["strategy"]), (&3.into(), &"redis".into()), "{fleet}");
    fleet["limits"][0]["bound"].as_f64().map(|bound| (bound * 1000.0).round() / 1000.0)
}

/// The line about an outage has the kind and the text of the server, in each form of a store.
#[test]
fn the_log_says_why() {
    let (redis, upstream) = (Redis::with("user weir on nopass ~weir:* +@all -scard"), Upstream::start());
    let (server, silent) = (redis.url(), "a node of a store does not answer");
    let of = |user: &str| format!("user = \"{user}\", password = {{ env = \"WEIR_FLEET_SECRET\" }}");
    let lines = |user: &str| of(user).replace(", ", "\n");
    for (store, line, kind, text) in [
        (format!("redis = [\"{server}\"]\n{}", lines("weir")), silent, "permission", "no permissions"),
        (format!("sentinel = {{ master = \"a\", nodes = [\"{server}\"], {} }}", of("x")), silent, "login", "WRONGPASS"),
        (
            format!("cluster = [\"{server}\"]\n{}", lines("x")),
            "no node of a cluster tells its slots",
            "login",
            "WRONGPASS",
        ),
    ] {
        // A busy machine must not fail by its timeout first.
        let store = format!("{store}\ntimeout = \"5s\"");
        let weir = Fleet::start_one(&Weir::config(&upstream, "", &shared(&store, &over_all("rate = \"30/day\""))));
        let line = weir.wait_for_line(line);
        assert!(line.contains(&format!("\"kind\":\"{kind}\"")) && line.contains(text), "{line}");
    }
}

/// Without Redis from the start, each replica decides as configured, and says that it is ready.
#[test]
fn each_mode_decides_at_once() {
    let rows = [("split", 30, Some(1.667)), ("local", 90, Some(3.0)), ("reject", 0, Some(1.0)), ("allow", 150, None)];
    for (on_failure, passed, ratio) in rows {
        let (redis, upstream) = (Redis::start(), Upstream::start());
        let relay = Relay::to(redis.address());
        relay.set(Link::Reset);
        let fleet =
            Fleet::start(REPLICAS, &upstream, &shared(&store(&relay, on_failure), &over_all("rate = \"30/day\"")));
        for weir in &fleet.weirs {
            assert_eq!(Client::connect(weir.admin()).get("/readyz").status, 200);
            // Before its first attempt to connect has ended, each mode decides by the share.
            weir.wait_for_line("a node of a store does not answer");
        }
        let answers = fleet.ask(150, 3, &["/"]);
        answers.assert_only(&[200, 429]);
        assert_eq!(answers.passed(), passed, "{on_failure}");
        if on_failure == "reject" {
            let answer = Client::connect(fleet.weirs[0].address()).get("/");
            assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
        }
        for weir in &fleet.weirs {
            assert!(weir.fallbacks() > 0.0, "{on_failure}");
            assert_eq!(Client::connect(weir.admin()).get("/readyz").status, 200);
        }
        fleet.wait_for_stores(false);
        for weir in &fleet.weirs {
            assert_eq!(bound(weir), ratio, "{on_failure}");
            let metric = weir.metric("weir_fleet_bound_ratio{limit=\"all\"}");
            assert_eq!((metric * 1000.0).round() / 1000.0, ratio.unwrap_or(f64::INFINITY), "{on_failure}");
        }
        assert!(redis.keys().iter().all(|key| !key.contains("all:")), "{:?}", redis.keys());
    }
}

/// What was decided without Redis is in Redis afterwards.
#[test]
fn an_outage_is_remembered() {
    for on_failure in ["split", "local"] {
        let (redis, upstream) = (Redis::start(), Upstream::start());
        let relay = Relay::to(redis.address());
        let config = Weir::config(&upstream, "", &shared(&store(&relay, on_failure), &over_all("rate = \"90/day\"")));
        let mut fleet = Fleet::of(REPLICAS, &config);
        fleet.wait_for_stores(true);
        // One client, so that each replica knows what the others have taken but the last one or two.
        assert_eq!(fleet.ask(30, 1, &["/"]).passed(), 30);
        relay.set(Link::Reset);
        fleet.wait_for_stores(false);
        let during = fleet.ask(60, 1, &["/"]);
        during.assert_only(&[200, 429]);
        assert!((58..=60).contains(&during.passed()), "{on_failure}: {}", during.passed());
        relay.set(Link::Clear);
        fleet.wait_for_stores(true);
        assert_eq!(bound(&fleet.weirs[0]), Some(1.0));
        // A replica that knows nothing but Redis.
        fleet.add(&config);
        let fresh = Fleet { weirs: fleet.weirs.split_off(REPLICAS) };
        fresh.wait_for_stores(true);
        let after = fresh.ask(100, 1, &["/"]).passed() + fleet.ask(100, 3, &["/"]).passed();
        assert!(30 + during.passed() + after <= 90, "{on_failure}: {} and {after}", during.passed());
    }
}

/// The log has one line about the begin of an outage and one about its end. Further outages within a minute have none.
/// The metrics have every failure.
#[test]
fn an_outage_is_told_once() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let relay = Relay::to(redis.address());
    let fleet = start(&upstream, &shared(&store(&relay, "split"), &over_all("rate = \"10000/s\"")));
    let weir = &fleet.weirs[0];
    assert_eq!(fleet.ask(20, 2, &["/"]).passed(), 20);
    fleet.wait_for_stores(true);
    let begin = Instant::now();
    for round in 1..=3 {
        relay.set(Link::Reset);
        fleet.wait_for_stores(false);
        let pace = Duration::from_millis(5);
        let answers =
            fleet.during(3, pace, &["/"], || until("decisions", || weir.fallbacks() > 50.0 * f64::from(round)));
        answers.assert_only(&[200]);
        relay.set(Link::Clear);
        fleet.wait_for_stores(true);
    }
    until("lines", || count_lines(weir, "a node of a store answers again") > 0);
    let lines =
        ["does not answer", "answers again"].map(|text| count_lines(weir, &format!("a node of a store {text}")));
    // On a busy machine the rounds may take longer than a minute.
    let most = 1 + usize::try_from(begin.elapsed().as_secs() / 60).unwrap();
    assert!(lines.iter().all(|lines| (1..=most).contains(lines)), "{:#?}", weir.lines());
    assert_eq!(count_lines(weir, "panic"), 0);
    let errors = Client::connect(weir.admin()).get("/metrics").text();
    let errors = errors.lines().filter(|line| line.starts_with("weir_store_errors_total{"));
    assert!(errors.filter(|line| !line.ends_with(" 0")).count() > 0);
}

/// Redis is asked again within two seconds of its return, without a request that pays for it.
#[test]
fn redis_decides_again_within_two_seconds() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let relay = Relay::to(redis.address());
    let fleet = start(&upstream, &shared(&store(&relay, "split"), &over_all("rate = \"10000/s\"")));
    let is_soon = |fault: Link| {
        assert_eq!(fleet.ask(30, 3, &["/"]).passed(), 30);
        relay.set(fault);
        if fault == Link::Silent {
            // Nobody knows before a call fails.
            relay.reset();
        }
        fleet.wait_for_stores(false);
        std::thread::park_timeout(Duration::from_secs(1));
        relay.set(Link::Clear);
        let begin = Instant::now();
        fleet.wait_for_stores(true);
        begin.elapsed() < Duration::from_millis(2500)
    };
    // A busy machine may be late, but not each time.
    for fault in [Link::Reset, Link::Silent] {
        assert!((0..5).any(|_| is_soon(fault)), "{fault:?}");
    }
}
