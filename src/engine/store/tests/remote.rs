//! Remote limits: mirrors that are heard, doubted and forgotten, and decisions while a store says nothing.

use std::sync::Arc;

use super::*;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::algorithm;
use crate::engine::limit::{Algorithm, AlgorithmName, AnyState, Calendar, OnFull, Rate, Settings, Unit};
use crate::engine::store::backend::{OnFailure, RemoteOutcome, RemoteReceipt, Unavailable};
use crate::engine::store::snapshot::{Snapshot, restore};
use crate::engine::store::testing::News;
use crate::engine::store::{Bans, LocalDecision, Receipt, RemoteLimit, RemoteStore};

/// A limit that so many replicas share through a store.
fn shared(by: OnFailure, replicas: u64) -> Arc<RemoteLimit> {
    let store = RemoteStore::unreachable(by, Clock::start());
    let metrics = Metrics::new("", "").unwrap().remote_limit("a", false);
    Arc::new(RemoteLimit { name: "a".into(), store, lease: None, replicas, metrics })
}

/// A batch of one remote charge of key 1.
fn remote<'t>((table, limit): (&'t Table, &'t Arc<RemoteLimit>), rule: &'t Algorithm, cost: u64) -> Batch<'t, ()> {
    let mut charge = Charge::new(table, key(1), rule, cost, true, ());
    charge.set_remote(Some(limit));
    std::iter::once(charge).collect()
}

/// The units that the store hears of, by kind of report.
fn news(limit: &RemoteLimit) -> Vec<i64> {
    let units = |news| match news {
        News::GiveBack(receipt) => -i64::try_from(receipt.units()).unwrap(),
        News::Settle { extra, .. } => extra,
    };
    limit.store.take_news().into_iter().map(units).collect()
}

/// An answer whose state has spent `spent` units.
fn answer(rule: &Algorithm, spent: u64, cost: u64, is_charged: bool, now: Timestamp) -> RemoteOutcome {
    let mut state = AnyState::fresh(rule);
    state.admit(rule, spent, now);
    let receipt = is_charged.then(|| RemoteReceipt::numbered(1, cost));
    RemoteOutcome { admitted: if is_charged { cost } else { 0 }, is_charged, is_outdated: false, state, receipt }
}

#[test]
fn a_mirror_denies_as_long_as_it_knows_the_store() {
    let limit = shared(OnFailure::Split, 3);
    for kind in ["token_bucket 1/1h burst 3", "sliding_log 3/1h"] {
        let rule = algorithm(kind);
        let table = Table::new(&rule, 10, OnFull::Sketch);
        let mut batch = remote((&table, &limit), &rule, 1);
        assert_eq!(batch.admit_local(at("0s")), LocalDecision::Open, "unknown");
        batch.hear(0, answer(&rule, 3, 1, true, at("0s")), at("0s"), at("0s"));
        assert!(batch.charges()[0].is_charged() && batch.charges()[0].decision().remaining == 0);
        assert_eq!(
            remote((&table, &limit), &rule, 1).admit_local(at("1s")),
            LocalDecision::Denied,
            "known to be empty"
        );
        assert_eq!(table.mirrored_at(key(1)), Some(at("0s")));
        // An older answer changes nothing.
        remote((&table, &limit), &rule, 1).hear(
            0,
            answer(&rule, 0, 1, false, at("1s")),
            at("0s").saturating_sub_ns(1),
            at("1s"),
        );
        assert_eq!(remote((&table, &limit), &rule, 1).admit_local(at("1s")), LocalDecision::Denied);
        // A refund corrects the mirror, and the store hears of it.
        batch.undo(at("2s"));
        assert_eq!((news(&limit), table.peek(key(1), &rule, 0, at("2s")).remaining), (vec![-1], 1));
        // The store may not have heard of the refund: its denial does not last.
        remote((&table, &limit), &rule, 1).hear(0, answer(&rule, 3, 1, false, at("2s")), at("2s"), at("2s"));
        assert_eq!(remote((&table, &limit), &rule, 1).admit_local(at("2s")), LocalDecision::Open, "in doubt");
        remote((&table, &limit), &rule, 1).hear(0, answer(&rule, 3, 1, false, at("3s")), at("3s"), at("3s"));
        assert_eq!(remote((&table, &limit), &rule, 1).admit_local(at("3s")), LocalDecision::Denied, "heard again");
    }
    // Beyond `max_keys` there is no mirror, and nobody denies for it.
    let rule = algorithm("token_bucket 1/1h burst 3");
    let table = Table::new(&rule, 0, OnFull::Reject);
    remote((&table, &limit), &rule, 1).hear(0, answer(&rule, 3, 1, false, at("0s")), at("0s"), at("0s"));
    assert_eq!(remote((&table, &limit), &rule, 1).admit_local(at("0s")), LocalDecision::Open);
    assert_eq!(
        remote((&table, &limit), &rule, 4).admit_local(at("0s")),
        LocalDecision::Denied,
        "more than there can be"
    );
    assert_eq!(table.mirrored_at(key(1)), None);
}

/// Until the store hears of a new rule, units come back as under the old one. So a mirror of the old rule does not deny.
#[test]
fn a_mirror_under_another_rule_is_in_doubt() {
    let limit = shared(OnFailure::Split, 3);
    for [old, new] in [
        ["token_bucket 3/1s burst 3", "token_bucket 3/1h burst 3"],
        ["leaky_bucket 3/1s burst 3", "leaky_bucket 3/1h burst 3"],
        ["fixed_window 3/1s from first", "fixed_window 3/1h from first"],
        ["sliding_log 3/1s", "sliding_log 3/1h"],
        ["sliding_window 3/1s", "sliding_window 3/1h"],
        ["sub_window 3/1s", "sub_window 3/1h"],
        ["token_bucket 3/1s burst 3+sliding_log 9/1h", "token_bucket 3/1h burst 3+sliding_log 9/1h"],
    ] {
        let [old, new] = [old, new].map(algorithm);
        let table = Table::new(&old, 10, OnFull::Sketch);
        let denies =
            |rule: &Algorithm, when| remote((&table, &limit), rule, 1).admit_local(at(when)) == LocalDecision::Denied;
        let hear = |is_outdated, when| {
            let answer = RemoteOutcome { is_outdated, ..answer(&new, 3, 1, false, at(when)) };
            remote((&table, &limit), &new, 1).hear(0, answer, at(when), at(when));
        };
        remote((&table, &limit), &old, 1).hear(0, answer(&old, 3, 1, true, at("0s")), at("0s"), at("0s"));
        assert!(denies(&old, "1ms") && !denies(&new, "1ms"), "{new:?}");
        hear(true, "2ms");
        assert!(!denies(&new, "3ms"), "{new:?}: it may be changed back");
        hear(false, "103ms");
        assert!(denies(&new, "104ms") && denies(&new, "9s"), "{new:?}");
    }
}

#[test]
fn a_request_that_costs_nothing_is_admitted() {
    for kind in ["token_bucket 1/1h burst 3", "sliding_log 3/1h"] {
        let (rule, limit) = (algorithm(kind), shared(OnFailure::Split, 3));
        let table = Table::new(&rule, 10, OnFull::Sketch);
        let mut batch = remote((&table, &limit), &rule, 0);
        batch.hear(0, answer(&rule, 3, 0, false, at("0s")), at("0s"), at("0s"));
        assert!(batch.charges()[0].is_admitted() && batch.charges()[0].is_charged(), "{kind}");
        batch.undo(at("0s"));
        assert_eq!(news(&limit), [0; 0], "{kind}");
    }
}

#[test]
fn a_mirror_is_forgotten_with_its_key() {
    let (rule, limit) = (algorithm("token_bucket 1/1s burst 3"), shared(OnFailure::Split, 3));
    let table = Table::new(&rule, 10, OnFull::Sketch);
    remote((&table, &limit), &rule, 1).hear(0, answer(&rule, 3, 1, true, at("0s")), at("0s"), at("0s"));
    for (when, keys, mirrored) in [("2s", 1, true), ("3s", 0, true), ("10s", 0, false)] {
        table.sweep(at(when));
        assert_eq!((table.len(), table.mirrored_at(key(1)).is_some()), (keys, mirrored), "{when}");
    }
}

#[test]
fn a_denial_by_the_store_is_one_whatever_the_mirror_says() {
    let (rule, limit) = (algorithm("token_bucket 1/1s burst 3"), shared(OnFailure::Split, 3));
    let table = Table::new(&rule, 10, OnFull::Sketch);
    for (spent, retry) in [(3, Retry::AfterNs(1_000_000_000)), (2, Retry::AfterNs(1_000_000))] {
        let mut batch = remote((&table, &limit), &rule, 1);
        batch.hear(0, answer(&rule, spent, 1, false, at("0s")), at("0s"), at("0s"));
        assert_eq!(batch.charges()[0].decision().denied, Some(retry), "{spent}");
    }
}

/// While the store says nothing, a replica admits what its share of the limit would.
fn is_as_the_share(whole: &Algorithm, replicas: u64, trace: &[(u64, u64, bool)]) {
    let limit = shared(OnFailure::Split, replicas);
    let share = whole.share(replicas).unwrap();
    let table = Table::new(whole, 10, OnFull::Sketch);
    let (mut state, mut now) = (AnyState::fresh(&share), at("0s"));
    let mut open = Vec::new();
    let (mut admitted, mut reported) = (0, 0);
    for &(pause_ms, cost, releases) in trace {
        now = now.saturating_add_ns(pause_ms * 1_000_000);
        if whole.is_released() && releases && !open.is_empty() {
            let (receipt, own): (Receipt, _) = open.remove(0);
            table.refund(key(1), &receipt, now);
            state.refund(&share, &own, now);
        }
        let cost = cost.min(share.capacity());
        let expected = state.admit(&share, cost, now);
        let mut batch = remote((&table, &limit), whole, cost);
        batch.fall_back(0, Unavailable::Down, now);
        let found = batch.charges()[0].decision();
        assert_eq!((found.denied, found.remaining), (expected.denied, expected.remaining), "{whole:?} / {replicas}");
        if found.is_admitted() {
            admitted += i64::try_from(cost).unwrap();
            if whole.is_released() && cost > 0 {
                open.push((batch.take_receipt(0).unwrap(), state.receipt(cost, now)));
            }
        }
        reported += news(&limit).iter().sum::<i64>();
    }
    if !whole.is_released() {
        assert_eq!(reported, admitted, "the store hears of what was admitted");
    }
}

proptest! {
    #[test]
    fn a_fallback_is_the_share_of_a_replica(
        (_, name) in prop::sample::select(&AlgorithmName::ALL),
        in_calendar in any::<bool>(),
        count in 1_u64..20,
        burst in 1_u64..20,
        replicas in 1_u64..6,
        trace in prop::collection::vec((0_u64..400, 0_u64..4, any::<bool>()), 1..60),
    ) {
        let (count, burst) = (count * replicas, burst * replicas);
        let rate = Rate { count, period_ns: 1_000_000_000 };
        let calendar = in_calendar.then(|| Calendar::new(Unit::Second, 1, "UTC").unwrap());
        let settings = Settings { burst, calendar, sub_windows: 4, ..rate.into() };
        is_as_the_share(&name.rule(&settings).unwrap(), replicas, &trace);
    }
}

#[test]
fn a_share_of_less_than_the_cost_passes_if_nothing_is_spent() {
    let (rule, limit) = (algorithm("token_bucket 2/1h burst 2"), shared(OnFailure::Split, 3));
    let table = Table::new(&rule, 10, OnFull::Sketch);
    for (when, is_admitted) in [("0s", true), ("30min", false), ("1h", true)] {
        let mut batch = remote((&table, &limit), &rule, 1);
        batch.fall_back(0, Unavailable::Down, at(when));
        assert_eq!(batch.charges()[0].is_admitted(), is_admitted, "{when}");
    }
}

/// What is charged without the store is given back without it.
#[test]
fn a_fallback_is_undone_on_both_sides() {
    for by in [OnFailure::Split, OnFailure::Local] {
        let limit = shared(by, 3);
        for kind in ["token_bucket 1/1h burst 9", "sliding_log 9/1h", "concurrency 9"] {
            let rule = algorithm(kind);
            let table = Table::new(&rule, 10, OnFull::Sketch);
            let mut batch = remote((&table, &limit), &rule, 2);
            batch.fall_back(0, Unavailable::Down, at("0s"));
            assert!(batch.charges()[0].is_charged());
            assert!(table.peek(key(1), &rule, 0, at("0s")).remaining < 9 || rule.is_released());
            assert_eq!(news(&limit), [2], "{kind}");
            batch.undo(at("1s"));
            assert_eq!(table.peek(key(1), &rule, 0, at("1s")).remaining, 9, "{kind}");
            assert_eq!(news(&limit), [-2], "{kind}");
        }
    }
}

/// A delay counts the units of the share.
#[test]
fn a_delay_goes_on_without_the_store() {
    let (rule, limit) = (algorithm("token_bucket 1/1h burst 3"), shared(OnFailure::Split, 3));
    let table = Table::new(&rule, 10, OnFull::Sketch);
    let by = SlowDown { step_ns: SECOND_NS, max_ns: 2 * SECOND_NS };
    for (delay_s, reported) in [(None, vec![1]), (Some(1), vec![1]), (Some(2), vec![1]), (Some(2), vec![])] {
        let mut batch = remote((&table, &limit), &rule, 1);
        batch.fall_back(0, Unavailable::Down, at("0s"));
        let slowed = (!batch.charges()[0].is_admitted()).then(|| batch.slow_down_remote(0, &by, at("0s")));
        let charged = reported.iter().sum::<i64>().unsigned_abs();
        assert_eq!(slowed, delay_s.map(|seconds: u64| (seconds * SECOND_NS, charged)));
        assert_eq!(news(&limit), reported);
    }
}

/// A store that has lost its keys gets them from the mirrors, under the names that it knows.
#[test]
fn the_keys_of_mirrors_are_those_that_were_charged() {
    for kind in ["token_bucket 1/1h burst 9", "sliding_log 9/1h"] {
        let rule = algorithm(kind);
        let table = Table::new(&rule, 100, OnFull::Sketch);
        let keys: Vec<_> = (1..40).map(|number: u64| Key::of_hash(number << 1, u64::MAX - number)).collect();
        for key in &keys {
            table.admit(*key, &rule, 2, at("0s"));
        }
        let mut found = Vec::new();
        table.each_state(at("1s"), |key, state| found.push((key, state.peek(&rule, 0, at("1s")).remaining)));
        found.sort();
        let mut expected: Vec<_> = keys.into_iter().map(|key| (key, 7)).collect();
        expected.sort();
        assert_eq!(found, expected, "{kind}");
    }
}

/// The units that remain in a snapshot of `table`, which `rule` applies to.
fn remaining_in_snapshot(table: &Table, rule: &Algorithm, now: Timestamp) -> u64 {
    let mut snapshot = Snapshot::begin(Vec::new(), &[7; 16], now, now).unwrap();
    snapshot.limit("a", table, &Bans::default(), |_| Some(rule)).unwrap();
    let restored = restore(&snapshot.finish().unwrap()[..], now, |_| None).unwrap();
    restored.limits[0].table.peek(key(1), rule, 0, now).remaining
}

/// A request without the store counts for every replica as long as the store is down, and once after a restart.
#[test]
fn a_snapshot_has_each_fallback_once() {
    let limit = shared(OnFailure::Split, 3);
    for kind in
        ["token_bucket 1/1h burst 90", "sliding_log 90/1h", "sliding_window 90/1h", "fixed_window 90/1h from first"]
    {
        let rule = algorithm(kind);
        let table = Table::new(&rule, 10, OnFull::Sketch);
        let charge = |when: &str| {
            let mut batch = remote((&table, &limit), &rule, 2);
            batch.fall_back(0, Unavailable::Down, at(when));
            batch
        };
        charge("0s");
        assert_eq!(remaining_in_snapshot(&table, &rule, at("0s")), 88, "{kind}: never heard");
        remote((&table, &limit), &rule, 1).hear(0, answer(&rule, 60, 1, true, at("1s")), at("1s"), at("1s"));
        assert_eq!(remaining_in_snapshot(&table, &rule, at("1s")), 30, "{kind}: heard");
        let mut undone = charge("2s");
        charge("2s");
        assert_eq!(table.peek(key(1), &rule, 0, at("2s")).remaining, 18, "{kind}");
        assert_eq!(remaining_in_snapshot(&table, &rule, at("2s")), 26, "{kind}");
        undone.undo(at("2s"));
        assert_eq!(remaining_in_snapshot(&table, &rule, at("2s")), 28, "{kind}: one is undone");
    }
    // Units that time has given back are in none.
    let rule = algorithm("token_bucket 1/1s burst 90");
    let table = Table::new(&rule, 10, OnFull::Sketch);
    for when in ["0s", "1h", "2h"] {
        remote((&table, &limit), &rule, 2).fall_back(0, Unavailable::Down, at(when));
    }
    assert_eq!(remaining_in_snapshot(&table, &rule, at("2h")), 88);
    assert_eq!(remaining_in_snapshot(&table, &rule, at("3h")), 90);
}

/// What was charged without the store is reported to it. So it is in no state that the store gets from a mirror.
#[test]
fn a_fallback_is_in_no_state_that_a_store_gets() {
    let limit = shared(OnFailure::Split, 3);
    for kind in ["token_bucket 1/1h burst 90", "sliding_log 90/1h", "sliding_window 90/1h"] {
        let rule = algorithm(kind);
        let table = Table::new(&rule, 10, OnFull::Sketch);
        let heard = |when: &str| {
            let mut remaining = Vec::new();
            table.each_state(at(when), |key, state| {
                remaining.push(table.state_of_store(key, &rule, state, at(when)).peek(&rule, 0, at(when)).remaining);
            });
            remaining
        };
        // Never heard: all of it is reported.
        remote((&table, &limit), &rule, 1).fall_back(0, Unavailable::Down, at("0s"));
        assert_eq!(heard("0s"), [90], "{kind}");
        remote((&table, &limit), &rule, 1).hear(0, answer(&rule, 60, 1, true, at("1s")), at("1s"), at("1s"));
        assert_eq!(heard("1s"), [30], "{kind}");
        let mut batch = remote((&table, &limit), &rule, 2);
        batch.fall_back(0, Unavailable::Down, at("2s"));
        remote((&table, &limit), &rule, 1).fall_back(0, Unavailable::Down, at("2s"));
        assert_eq!((heard("2s"), table.peek(key(1), &rule, 0, at("2s")).remaining), (vec![30], 21), "{kind}");
        batch.undo(at("3s"));
        assert_eq!((heard("3s"), table.peek(key(1), &rule, 0, at("3s")).remaining), (vec![30], 27), "{kind}");
    }
}
