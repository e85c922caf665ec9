//! Charges told late against charges told at once.

use proptest::prelude::*;

use super::*;
use crate::engine::limit::AnyState;
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::{algorithm, at, each_algorithm};

/// Ten units in a second, under each algorithm.
fn rules() -> Vec<String> {
    each_algorithm(
        "10/1s",
        &[
            "token_bucket 10/1s burst 25",
            "fixed_window 10 per 1 s UTC",
            "sub_window 10/1s in 5",
            "token_bucket 10/1s+fixed_window 30 per 4 s UTC",
        ],
    )
}

/// A key in the mirror of a replica, and in a store that hears of its charges late.
struct Trial {
    rule: Algorithm,
    mirror: AnyState,
    store: AnyState,
    charges: Option<LateCharges>,
}

impl Trial {
    fn new(rule: &str) -> Self {
        let rule = algorithm(rule);
        let fresh = AnyState::fresh(&rule);
        Self { mirror: fresh.clone(), store: fresh, charges: None, rule }
    }

    /// A request that both sides know of, if the store is up.
    fn charge(&mut self, cost: u64, is_up: bool, now: Timestamp) {
        if !self.mirror.admit(&self.rule, cost, now).is_admitted() {
            return;
        }
        if is_up {
            self.store.admit(&self.rule, cost, now);
        } else {
            self.tell(i64::try_from(cost).unwrap(), now);
        }
    }

    fn tell(&mut self, units: i64, now: Timestamp) {
        let rates = self.mirror.remaining(&self.rule, 0, now);
        let idle_at: Vec<_> = rates.iter().map(|rate| now.saturating_add_ns(rate.reset_after_ns)).collect();
        let charge = LateCharges::new(&self.rule, (units, units), &idle_at, now);
        match &mut self.charges {
            Some(charges) => charges.add(&self.rule, &charge),
            none => *none = Some(charge),
        }
    }

    /// The store returns. What remains of the mirror and of the store under each rate, and the time until all is back.
    fn heard(mut self, now: Timestamp) -> [Vec<(u64, u64)>; 2] {
        if let Some(charges) = &self.charges {
            self.store.settle_late(&self.rule, &charges.units_at(&self.rule, now), 0, now);
        }
        [self.mirror, self.store].map(|state| {
            let rates = state.remaining(&self.rule, 0, now);
            rates.iter().map(|rate| (rate.units, rate.reset_after_ns)).collect()
        })
    }
}

/// Requests, each with the milliseconds before it and its cost. The store is up for the first of them.
fn run(rule: &str, (requests, known): (&[(u64, u64)], usize), pause_ms: u64) -> [Vec<(u64, u64)>; 2] {
    let (mut trial, mut now) = (Trial::new(rule), at("0s"));
    for (index, (pause_ms, cost)) in requests.iter().enumerate() {
        now = now.saturating_add_ns(pause_ms * 1_000_000);
        trial.charge(*cost, index < known, now);
    }
    trial.heard(now.saturating_add_ns(pause_ms * 1_000_000))
}

proptest! {
    /// A store that hears late knows what it would know.
    #[test]
    fn nothing_is_lost_and_nothing_is_charged_twice(
        rule in prop::sample::select(rules()),
        // Charges of one step, which is up to 32 ms long, count as one.
        requests in prop::collection::vec((prop_oneof![33_u64..200, 33_u64..3000], 1_u64..5), 1..40),
        known in 0..30_usize,
        pause_ms in 33_u64..1500,
    ) {
        let [mirror, store] = run(&rule, (&requests, known), pause_ms);
        prop_assert_eq!(store, mirror, "{}", rule);
    }

    /// Charges of one step count for longer, never for less.
    #[test]
    fn a_store_never_admits_more(
        rule in prop::sample::select(rules()),
        requests in prop::collection::vec((0_u64..40, 1_u64..3), 1..200),
        known in 0..30_usize,
        pause_ms in 0_u64..1500,
    ) {
        let [mirror, store] = run(&rule, (&requests, known), pause_ms);
        for (store, mirror) in store.iter().zip(&mirror) {
            prop_assert!(store.0 <= mirror.0, "{} {:?} {:?}", rule, store, mirror);
        }
    }
}

/// Others have taken what came back. Five units that are 400 ms old: time would have given four back.
#[test]
fn a_bucket_at_its_limit_takes_all_units() {
    let (rule, now) = (algorithm("token_bucket 10/1s burst 10"), at("0s"));
    for (spent, expected) in [(0, 1), (5, 6), (8, 9), (9, 14), (10, 15)] {
        let mut store = AnyState::fresh(&rule);
        assert!(store.admit(&rule, spent, now).is_admitted());
        let late = LateUnits { units: 5, age_ns: 400_000_000 };
        store.settle_late(&rule, &smallvec![smallvec![late]], 10, now);
        let left = store.peek(&rule, 0, now).remaining;
        assert_eq!(10 - left + store.over(&rule, now), expected, "{spent}");
    }
}

#[test]
fn a_bucket_gets_all_units_of_a_short_time() {
    let rule = algorithm("token_bucket 10/1s burst 10");
    let charges = LateCharges::new(&rule, (8, 8), &[], at("0s"));
    for (at_ms, units, age_ms) in [(400, 8, 400), (500, 8, 500), (600, 2, 0)] {
        let late = charges.units_at(&rule, at("0s").saturating_add_ns(at_ms * 1_000_000));
        assert_eq!(late[0][..], [LateUnits { units, age_ns: age_ms * 1_000_000 }], "{at_ms}");
    }
}

#[test]
fn entries_are_bounded() {
    for rule in ["sliding_log 1000000/1s", "sliding_window 1000000/1s", "sub_window 1000000/1s in 1000"] {
        let mut trial = Trial::new(rule);
        // Longer than any window.
        for tenth_ms in 25_000..50_000 {
            trial.charge(1, false, at("0s").saturating_add_ns(tenth_ms * 100_000));
        }
        let left = trial.charges.unwrap().units_at(&trial.rule, at("4999ms"));
        assert!((120..=130).contains(&left[0].len()), "{rule}: {}", left[0].len());
        let counts_s = if rule.contains("sliding_window") { 2 } else { 1 };
        assert!((9900 * counts_s..=10_100 * counts_s).contains(&most(&left)), "{rule}: {}", most(&left));
    }
}

#[test]
fn a_charge_that_is_given_back_leaves_nothing() {
    for rule in &rules() {
        let mut trial = Trial::new(rule);
        for (units, when) in [(3, "0s"), (4, "100ms"), (-4, "200ms"), (-3, "200ms")] {
            trial.mirror.settle(&trial.rule, units, 0, at(when));
            trial.tell(units, at(when));
        }
        assert_eq!(most(&trial.charges.as_ref().unwrap().units_at(&trial.rule, at("300ms"))), 0, "{rule}");
    }
}

/// Reports that were parked join those of the meantime, and workers do not wait for each other.
#[test]
fn the_order_of_charges_changes_nothing() {
    for rule in &rules() {
        let mut trial = Trial::new(rule);
        let mut charges = Vec::new();
        for number in 0..6 {
            trial.charge(2, false, at("0s").saturating_add_ns(number * 300_000_000));
            charges.extend(trial.charges.take());
        }
        let sum = |order: [usize; 6]| {
            let mut sum = charges[order[0]].clone();
            order[1..].iter().for_each(|index| sum.add(&trial.rule, &charges[*index]));
            sum.units_at(&trial.rule, at("2s"))
        };
        for order in [[5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]] {
            assert_eq!(sum(order), sum([0, 1, 2, 3, 4, 5]), "{rule}");
        }
        // As those of an outage join.
        let (mut older, mut newer) = (charges[0].clone(), charges[3].clone());
        charges[1..3].iter().for_each(|charge| older.add(&trial.rule, charge));
        charges[4..].iter().for_each(|charge| newer.add(&trial.rule, charge));
        newer.add(&trial.rule, &older);
        assert_eq!(newer.units_at(&trial.rule, at("2s")), sum([0, 1, 2, 3, 4, 5]), "{rule}");
    }
}

/// What is left of charges under one rule counts under another.
#[test]
fn another_rule_takes_charges_over() {
    let [before, after] = ["token_bucket 1/1s burst 10", "fixed_window 10/1min from first"].map(algorithm);
    let charges = LateCharges::new(&before, (8, 8), &[], at("0s"));
    assert_eq!(most(&charges.owed_at(&before, at("3s"))), 5);
    let mut charges = charges.under(&before, &after);
    charges.add(&after, &LateCharges::new(&after, (1, 1), &[], at("3s")));
    assert_eq!((most(&charges.units_at(&after, at("4s"))), charges.units()), (9, 9));
}

/// A replica tells its part of the deficit: each row is the units of all replicas, those of this one, when the mirror is
/// full, the present, and the units with their age in milliseconds.
#[test]
fn the_part_of_a_replica_is_told() {
    let rule = algorithm("token_bucket 1/1s burst 10");
    for (assumed, units, full_at, now, expected) in [
        (9, 3, "9s", "0s", Some((3, 0))),
        (9, 3, "9s", "1500ms", Some((3, 500))),
        (9, 3, "9s", "9s", None),
        // The bucket owes more than the charges.
        (3, 1, "9s", "0s", Some((1, 0))),
        (3, 1, "9s", "6s", Some((1, 0))),
        (3, 1, "9s", "7500ms", Some((1, 500))),
    ] {
        let charges = LateCharges::new(&rule, (units, assumed), &[at(full_at)], at("0s"));
        let left = charges.units_at(&rule, at(now)).remove(0);
        let found: Vec<_> = left.iter().map(|late| (late.units, late.age_ns / 1_000_000)).collect();
        assert_eq!(found, Vec::from_iter(expected), "{assumed} {units} {full_at} {now}");
    }
}
