//! Limits whose units replicas borrow from Redis.

use std::time::{Duration, Instant};

use crate::ops::until;
use crate::support::{Fleet, Link, Redis, Relay, Upstream, over_paths};

use super::{assert_no_fallback, patient, shared, start, three, three_of};

/// A limit of 300 of each kind, from which nothing comes back during a test.
const LIMITS: [&str; 6] = [
    "rate = \"60/day\"\nburst = 300",
    "algorithm = \"fixed_window\"\nrate = \"300/week\"",
    "algorithm = \"sliding_log\"\nrate = \"300/week\"",
    "algorithm = \"sliding_window\"\nrate = \"300/week\"",
    "algorithm = \"sub_window\"\nrate = \"300/week\"",
    "rate = [\"10000/h\", \"300/day\"]",
];

const LEASE: &str = "strategy = \"lease\"";

/// Asks for `path` until so many requests have passed in all, with those of `before`, and then for longer than a lease
/// lasts. Returns what passed in all.
fn exhaust(fleet: &Fleet, path: &str, before: usize, at_least: usize) -> usize {
    let mut passed = before;
    let mut ask = |requests: usize, clients: usize| {
        let answers = fleet.ask(requests, clients, &[path]);
        answers.assert_only(&[200, 429]);
        passed += answers.passed();
        (passed, answers.passed())
    };
    // Units that wait on one replica while another refuses come back late.
    until("all units are spent", || ask(60, 6).0 >= at_least);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1200) {
        // All that comes back is asked for at once.
        while ask(6, 2).1 > 0 {}
        std::thread::park_timeout(Duration::from_millis(100));
    }
    passed
}

/// All replicas together spend what Redis has lent, and no more. What one of them does not need goes to the others.
#[test]
fn all_units_and_no_more_are_spent() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limits = over_paths(&LIMITS.map(|limit| format!("{limit}\n{LEASE}")));
    let fleet = start(&upstream, &shared(&patient(&redis), &limits));
    for (index, limit) in LIMITS.iter().enumerate() {
        let path = format!("/l{index}");
        let first = fleet.ask(450, 12, &[&path]);
        first.assert_only(&[200, 429]);
        let passed = exhaust(&fleet, &path, first.passed(), 300);
        // Units that wait on one replica while another refuses go back. Each refund may lose the time since the loan, once
        // for all of them, and this time has brought as much back.
        assert_eq!(passed, 300, "{limit}");
        assert_eq!(upstream.count(&path), passed, "{limit}");
        assert_eq!(fleet.fallbacks(), 0.0, "{limit}");
        let lent = format!("weir_lease_units{{limit=\"l{index}\"}}");
        until(&format!("unspent units go back: {limit}"), || fleet.metric(&lent) == 0.0);
    }
}

#[test]
fn a_hot_key_costs_few_calls() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, &format!("rate = \"1000000/s\"\n{LEASE}"));
    // The demand is unknown at first.
    fleet.ask(300, 6, &["/"]).assert_only(&[200]);
    let (before, start) = (redis.calls("evalsha"), Instant::now());
    // Twelve requests for each call that is allowed, and so long that the calls of its begin do not matter.
    let pace = Duration::from_millis(10);
    let answers = fleet.during(6, pace, &["/"], || std::thread::park_timeout(Duration::from_secs(2)));
    answers.assert_only(&[200]);
    // Refunds of what was not needed are in it.
    let per_second = (redis.calls("evalsha") - before) as f64 / start.elapsed().as_secs_f64();
    assert!(per_second <= 50.0 + 3.0, "{per_second} calls/s at {} requests", answers.passed());
    assert_no_fallback(&fleet);
}

/// A request that finds units is answered while the call that borrows more is on its way.
#[test]
fn a_request_that_finds_units_does_not_wait() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let relay = Relay::to(redis.address());
    let store = format!("redis = [\"{}\"]\ntimeout = \"5s\"\n", relay.url());
    let limit = "[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1000/day\"\n\
                 strategy = { use = \"lease\", units = 8 }\n";
    let fleet = Fleet::start(1, &upstream, &shared(&store, limit));
    fleet.wait_for_stores(true);
    let is_quick = (0..20).any(|attempt| {
        relay.set(Link::Clear);
        fleet.wait_for_stores(true);
        let (path, begin) = ([format!("/{attempt}")], Instant::now());
        assert_eq!(fleet.ask(1, 1, &path).passed(), 1);
        relay.set(Link::Silent);
        // The last but one leaves less than a quarter of the lease.
        assert_eq!(fleet.ask(7, 1, &path).passed(), 7);
        // Units that are older than half a second are gone, on a busy machine.
        begin.elapsed() < Duration::from_millis(500)
    });
    relay.set(Link::Clear);
    assert!(is_quick, "a request waits for Redis");
}

/// At the limit, replicas do not ask about each request either.
#[test]
fn an_exhausted_key_costs_few_calls() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, &format!("rate = \"200/s\"\n{LEASE}"));
    // Since a request was refused, the bucket has no more than what came back.
    let mut start = Instant::now();
    until("the limit is reached", || {
        start = Instant::now();
        let answers = fleet.ask(100, 12, &["/"]);
        answers.assert_only(&[200, 429]);
        answers.count(429) > 0
    });
    let before = redis.calls("evalsha");
    let pace = Duration::from_millis(5);
    let answers = fleet.during(6, pace, &["/"], || {
        let begun = upstream.received_count();
        std::thread::park_timeout(Duration::from_secs(2));
        // A machine that pauses takes longer.
        upstream.wait_until(|upstream| upstream.received_count() >= begun + 300);
    });
    let took = start.elapsed().as_secs_f64();
    let per_second = (redis.calls("evalsha") - before) as f64 / took;
    answers.assert_only(&[200, 429]);
    assert!(per_second <= 2.0 * 50.0, "{per_second} calls/s");
    // The limit, and half a second more. A busy machine may ask for less.
    let passed = answers.passed() as f64;
    let wanted = (200.0 * took).min(answers.0.len() as f64);
    assert!(passed <= 200.0 * (took + 0.5) && passed >= 0.5 * wanted, "{passed} in {took} s");
    assert_no_fallback(&fleet);
}

/// A replica that dies has spent some of the 100 units that it has borrowed, and nobody spends the others.
#[test]
fn a_replica_that_dies_takes_its_units_along() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let mut fleet =
        three(&redis, &upstream, "rate = \"100/day\"\nburst = 1000\nstrategy = { use = \"lease\", units = 100 }");
    let passed = fleet.ask(30, 3, &["/"]).passed();
    assert_eq!(passed, 30);
    fleet.weirs[0].signal("KILL");
    drop(fleet.weirs.remove(0));
    // On a busy machine it may have borrowed twice.
    let passed = exhaust(&fleet, "/", passed, 800);
    assert!(passed <= 1000, "{passed}");
    assert_eq!(upstream.received_count(), passed);
}

/// A replica that is stopped gives back what it borrowed.
#[test]
fn a_replica_that_ends_gives_its_units_back() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let mut fleet =
        three(&redis, &upstream, "rate = \"100/day\"\nburst = 1000\nstrategy = { use = \"lease\", units = 300 }");
    let passed = fleet.ask(30, 3, &["/"]).passed();
    assert_eq!(passed, 30);
    let ended = fleet.weirs.remove(0);
    ended.signal("TERM");
    assert_eq!(ended.wait(), Some(0));
    assert_eq!(exhaust(&fleet, "/", passed, 1000), 1000);
    assert_no_fallback(&fleet);
}

/// A replica that is paused for longer than a lease lasts spends none of its old units afterwards. They go back.
#[test]
fn a_paused_replica_gives_its_units_back() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    // No call ends late, so Redis decides throughout.
    let lease = "rate = \"100/day\"\nburst = 400\nstrategy = { use = \"lease\", units = 120 }";
    let fleet = three_of(&redis, &upstream, "10s", lease);
    let paused = &fleet.weirs[2];
    let samples = fleet.during(9, Duration::from_millis(30), &["/"], || {
        until("the units of a lease", || paused.metric("weir_lease_units{limit=\"all\"}") > 0.0);
        paused.signal("STOP");
        std::thread::park_timeout(Duration::from_secs(5));
        paused.signal("CONT");
    });
    samples.assert_only(&[200, 429]);
    let during = samples.passed();
    let mut passed = during;
    until("all units are spent", || {
        let more = fleet.ask(60, 6, &["/"]);
        more.assert_only(&[200, 429]);
        passed += more.passed();
        passed >= 400
    });
    passed += fleet.ask(60, 6, &["/"]).passed();
    println!("a paused replica with leases: admitted {passed}, {during} of them meanwhile / allowed 400");
    assert_eq!(passed, 400);
    until("unspent units go back", || fleet.metric("weir_lease_units{limit=\"all\"}") == 0.0);
}

/// Without Redis each replica takes what is left of its share. It counts what it has borrowed itself, because it does not
/// know what others have borrowed since its own last call.
#[test]
fn borrowed_units_count_in_a_fallback() {
    let (mut redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, &format!("rate = \"100/day\"\nburst = 600\n{LEASE}"));
    let first = fleet.ask(240, 12, &["/"]).passed();
    let mut passed = first;
    redis.kill();
    until("all shares are spent", || {
        let answers = fleet.ask(60, 6, &["/"]);
        answers.assert_only(&[200, 429]);
        passed += answers.passed();
        answers.passed() == 0
    });
    let without = passed - first;
    redis.restart();
    fleet.wait_for_stores(true);
    // Redis has lost its keys, and hears of refunds as if all their charges were new: each loses the time since its loan.
    let passed = exhaust(&fleet, "/", passed, 596);
    assert!(passed <= 600, "{passed}, {first} of them before and {without} without Redis");
}
