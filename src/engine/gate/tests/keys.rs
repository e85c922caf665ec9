//! Keys that operators reset and list.

use super::*;
use crate::engine::gate::keys::{KeyName, LimitedKey, LimitedKeysQuestion};
use crate::engine::gate::spend::Spend;
use crate::engine::limit::Key;
use crate::engine::policy::{AfterResponse, Repeated, Settle, SettleBy};
use crate::engine::store::backend::Settlement;

fn of(name: &str, rule: Algorithm) -> Limit {
    let every = limit(name, 10, "1s", 10, OnLimit::Reject);
    let settle = Settle::only(SettleBy::ElapsedMs, 100);
    let key = vec![KeyPart::Query("k".into(), Repeated::Reject)];
    let after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
    Limit { matches: Match::default(), key, allowed: Allowed::to_all(rule), after, ..every }
}

fn name(key: &str) -> KeyName {
    KeyName::Text(key.to_owned())
}

fn spend(gate: &Gate, live: &Live, limit: &str, key: &str, units: i64, now: Timestamp) {
    let key = pairs_of(&[("query:k", key)]);
    gate.spend(live, Spend { limit, key: &key, plan: None, units }, now).unwrap();
}

/// Whatever the algorithm, a reset key is like a new one, and no other key is changed.
#[tokio::test(start_paused = true)]
async fn a_reset_gives_all_units_back() {
    let rate = Rate { count: 10, period_ns: ns("10s") };
    let rules = [
        Algorithm::TokenBucket(Quota::new(rate, 10).unwrap()),
        Algorithm::SlidingLog(crate::engine::limit::sliding_log::Rule::new(rate).unwrap()),
        Algorithm::SlidingWindow(crate::engine::limit::Allowance::new(rate).unwrap()),
    ];
    for rule in rules {
        let gate = new_gate();
        let live = install(gate, [of("l", rule.clone())], CAPS);
        let now = gate.clock.now();
        let remaining = |key: &str| {
            let found = gate.find_key(live, "l", &name(key)).unwrap();
            let state = gate.key_state(live, &found, None, now).unwrap();
            (state.budget.remaining, state.budget.debt, state.is_limited)
        };
        spend(gate, live, "l", "a", 50, now);
        spend(gate, live, "l", "b", 3, now);
        assert_eq!((remaining("a"), remaining("b")), ((0, 40, true), (7, 0, false)), "{rule:?}");
        gate.reset_key(live, &gate.find_key(live, "l", &name("a")).unwrap(), None, now).unwrap();
        assert_eq!((remaining("a"), remaining("b")), ((10, 0, false), (7, 0, false)), "{rule:?}");
        // A service may report any cost, and several of them.
        let found = gate.find_key(live, "l", &name("a")).unwrap();
        (0..3).for_each(|_| _ = live.states[0].settle(found.key, &rule, i64::MAX, u64::MAX, now));
        gate.reset_key(live, &found, None, now).unwrap();
        assert_eq!(remaining("a"), (10, 0, false), "{rule:?}");
    }
}

/// The rule of a plan may have a window that the usual rule has not.
#[tokio::test(start_paused = true)]
async fn keys_of_plans_are_reset_with_all_keys() {
    let gate = new_gate();
    let bucket =
        |count, period| Algorithm::TokenBucket(Quota::new(Rate { count, period_ns: ns(period) }, count).unwrap());
    let usual = of("l", Algorithm::Several([bucket(9, "1s")].into()));
    let of_plan = Algorithm::Several([bucket(9, "1s"), bucket(5, "1h")].into());
    let plans = vec![("premium".into(), Some(of_plan))];
    let allowed = Allowed { plans, ..usual.allowed.clone() };
    let live = install(gate, [Limit { allowed, ..usual }], CAPS);
    let start = gate.clock.now();
    let key = pairs_of(&[("query:k", "a")]);
    gate.spend(live, Spend { limit: "l", key: &key, plan: Some("premium"), units: 5 }, start).unwrap();
    let now = start.saturating_add_ns(ns("5s"));
    let found = gate.find_key(live, "l", &name("a")).unwrap();
    let is_limited = || gate.key_state(live, &found, Some("premium"), now).unwrap().is_limited;
    assert!(is_limited());
    assert_eq!(gate.reset_all(live, "l", now), Ok((1, 0)));
    assert!(!is_limited());
}

/// All keys that lack units of any rate are reset; those with all units are not counted.
#[tokio::test(start_paused = true)]
async fn all_keys_of_a_limit_are_reset() {
    let gate = new_gate();
    let bucket =
        |count, period| Algorithm::TokenBucket(Quota::new(Rate { count, period_ns: ns(period) }, count).unwrap());
    let several = Algorithm::Several([bucket(2, "1s"), bucket(5, "1h")].into());
    let in_flight = Algorithm::Concurrency(crate::engine::limit::concurrency::Rule::new(3).unwrap());
    let live = install(gate, [of("l", several), of("other", bucket(5, "1h")), of("c", in_flight)], CAPS);
    let start = gate.clock.now();
    for key in ["a", "b"] {
        spend(gate, live, "l", key, 2, start);
        spend(gate, live, "other", key, 2, start);
    }
    // The rate of a second has all units again, that of an hour has not.
    let now = start.saturating_add_ns(ns("5s"));
    spend(gate, live, "l", "c", 1, now);
    assert_eq!(gate.reset_all(live, "l", now), Ok((3, 0)));
    assert_eq!(gate.reset_all(live, "l", now), Ok((0, 0)));
    let remaining = |limit: &str, key: &str| {
        let found = gate.find_key(live, limit, &name(key)).unwrap();
        gate.key_state(live, &found, None, now).unwrap().budget.reset_after_ns
    };
    assert_eq!((remaining("l", "a"), remaining("l", "c")), (Some(0), Some(0)));
    assert_ne!(remaining("other", "a"), Some(0));
    assert!(gate.reset_all(live, "c", now).is_err() && gate.reset_all(live, "none", now).is_err());
}

/// Replicas that split a limit hear of a bounded number of resets.
#[tokio::test(start_paused = true)]
async fn many_keys_of_a_split_limit_are_reset_in_parts() {
    const KEYS: usize = 50_001;
    for (is_fleet, expected) in [(false, (KEYS, 0)), (true, (KEYS - 1, 1))] {
        let gate = new_gate();
        let bucket = Algorithm::TokenBucket(Quota::new(Rate { count: 5, period_ns: ns("1h") }, 5).unwrap());
        let limit = Limit { strategy: Strategy::Split(2), max_keys: 100_000, ..of("l", bucket.clone()) };
        let (live, now) = (install(gate, [limit], CAPS), gate.clock.now());
        if is_fleet {
            gate.share_bans(1);
        }
        for key in (1..=KEYS as u64).map(|key| key << 32) {
            live.states[0].settle(Key { first: key, second: key }, &bucket, 1, 0, now);
        }
        assert_eq!(gate.reset_all(live, "l", now), Ok(expected), "{is_fleet}");
        let told: usize = gate.listeners.take_resets().iter().map(|keys| keys.units.len()).sum();
        assert_eq!(told, if is_fleet { expected.0 } else { 0 });
    }
}

/// The store knows of a debt that this replica has not heard of.
#[tokio::test(start_paused = true)]
async fn a_reset_fills_the_store() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let store = redis.store(OnFailure::Split);
    let limit = parse_limit(&["a", "1", "1h", "10", "reject", "redis=2"]);
    let rule = limit.allowed.usual.clone();
    let live = install_with(gate, [limit], CAPS, std::slice::from_ref(&store));
    let found = gate.find_key(live, "a", &name("k")).unwrap();
    store.settle(Settlement::new("a", found.key, &rule, (500, 1000), gate.clock.now()));
    assert_eq!(redis.remaining("a", found.key, &rule), 0);
    gate.reset_key(live, &found, None, gate.clock.now()).unwrap();
    assert_eq!(redis.remaining("a", found.key, &rule), 10);
}

/// Pages have each limited key once, the longest wait first.
#[tokio::test(start_paused = true)]
async fn limited_keys_come_by_pages() {
    let gate = new_gate();
    let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 10, period_ns: ns("10s") }, 10).unwrap());
    let live = install(gate, [of("l", rule)], CAPS);
    let now = gate.clock.now();
    for key in 0..40 {
        spend(gate, live, "l", &key.to_string(), if key < 25 { 10 + key } else { 9 }, now);
    }
    let (mut keys, mut after): (Vec<Key>, _) = (Vec::new(), None);
    for (left, length) in [(25, 10), (15, 10), (5, 5), (0, 0)] {
        let asked = LimitedKeysQuestion { after: after.clone(), n: 10, ..LimitedKeysQuestion::default() };
        let (page, count) = gate.limited_keys(live, "l", &asked, now).unwrap();
        assert_eq!((count, page.len()), (left, length));
        keys.extend(page.iter().map(|LimitedKey { key, .. }| *key));
        after = page.last().map(|last| last.position.clone()).or(after);
    }
    let expected = (0..25).rev().map(|key| gate.find_key(live, "l", &name(&key.to_string())).unwrap().key);
    assert_eq!(keys, expected.collect::<Vec<_>>());
}
