//! New keys at the bound, for each value of `on_full`.

use proptest::prelude::*;

use super::super::{Receipt, Table};
use super::{SECOND_NS, at, ns, per_second, say};
use crate::base::split_mix::{STEP, mix};
use crate::engine::limit::fair_share::{self, SharedPool};
use crate::engine::limit::tests::algorithm;
use crate::engine::limit::{Algorithm, Key, OnFull, Quota, Rate};

/// A hash of `number`.
fn key(number: u64) -> Key {
    let half = |seed: u64| mix(number.wrapping_add(seed).wrapping_mul(STEP));
    Key { first: half(1), second: half(1 << 40) }
}

/// One key is remembered, under 1/s with a burst of 2. Rows are `AT KEY COST DECISION PEEK`, with a peek of cost 1.
fn check(on_full: OnFull, rows: &str) -> Table {
    let (table, rule) = (Table::new(&per_second(1, 2), 1, on_full), per_second(1, 2));
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let (key, now) = (key(cells[1].parse().unwrap()), at(cells[0]));
        assert_eq!(say(&table.admit(key, &rule, cells[2].parse().unwrap(), now).decision), cells[3], "{row}");
        assert_eq!(say(&table.peek(key, &rule, 1, now)), cells[4], "{row}");
    }
    table
}

#[test]
fn each_value_of_on_full_has_its_own_answer() {
    let counted = "
        0s   1  1  1    0
        0s   2  1  1    0
        0s   2  1  0    !1s
        0s   2  1  !1s  !1s
        0s   3  2  0    !1s
        0s   1  1  0    !1s
        1s   2  1  0    !1s
    ";
    for on_full in [OnFull::Sketch, OnFull::Shared] {
        let table = check(on_full, counted);
        assert_eq!((table.len(), table.take_overflowed(), table.take_overflowed()), (1, 5, 0));
        assert!(!table.is_idle(at("2s")));
        table.sweep(at("3s"));
        assert!(table.is_idle(at("3s")));
    }
    let rejects = check(
        OnFull::Reject,
        "
        0s   1  1  1    0
        0s   2  1  !1s  !1s
        0s   1  1  0    !1s
        ",
    );
    assert_eq!((rejects.len(), rejects.take_overflowed()), (1, 1));
    rejects.sweep(at("2s"));
    assert_eq!(say(&rejects.admit(key(2), &per_second(1, 2), 1, at("2s")).decision), "1", "there is room again");
    let allows = check(
        OnFull::Allow,
        "
        0s   1  2  0    !1s
        0s   2  2  2    2
        0s   2  2  2    2
        0s   1  1  !1s  !1s
        ",
    );
    assert_eq!((allows.len(), allows.take_overflowed()), (1, 2));
}

#[test]
fn a_key_that_moves_out_of_a_sketch_keeps_its_debts() {
    let (table, rule) = (Table::new(&per_second(1, 4), 1, OnFull::Sketch), per_second(1, 4));
    assert!(table.admit(key(1), &rule, 1, at("0s")).is_admitted());
    let charged = table.admit(key(2), &rule, 4, at("0s"));
    table.refund(key(2), &charged.receipt, at("0s"));
    assert_eq!(say(&table.peek(key(2), &rule, 4, at("0s"))), "0", "given back at once");
    table.admit(key(2), &rule, 4, at("0s"));
    table.sweep(at("1s"));
    assert_eq!(say(&table.admit(key(2), &rule, 1, at("1s")).decision), "0", "one unit has come back, not four");
    assert_eq!((table.len(), table.take_overflowed()), (1, 2));
    // settlements and delays are charged to the sketch, too
    table.settle(key(3), &rule, 5, 2, at("1s"));
    assert_eq!(
        (say(&table.peek(key(3), &rule, 1, at("1s"))).as_str(), table.over(key(3), &rule, at("1s"))),
        ("!2s", 1)
    );
    // a new rate applies at once, and spent units stay spent
    assert_eq!(say(&table.admit(key(3), &per_second(2, 4), 1, at("1s")).decision), "!1s");
    // a changed `on_full` does not forget debts
    table.set_bound(1, OnFull::Shared);
    assert_eq!(say(&table.peek(key(3), &per_second(2, 4), 1, at("1s"))), "!1s");
    table.set_bound(1, OnFull::Reject);
    assert_eq!(say(&table.admit(key(3), &per_second(2, 4), 1, at("9s")).decision), "!1s");
}

/// The budgets of a limit may have several rates. A look by one of them changes no state of another, nor does a key that
/// comes into the map from a bucket that it shared.
#[test]
fn looks_by_another_rate_return_no_units() {
    let second = "fixed_window 9/1s from first";
    for [day, second] in [
        ["fixed_window 2/1day from first", second].map(algorithm),
        ["sliding_window 2/1day", "sliding_window 9/1s"].map(algorithm),
        ["sliding_log 2/1day", "sliding_log 9/1s"].map(algorithm),
        ["sub_window 2/1day in 4", "sub_window 9/1s in 2"].map(algorithm),
        [
            algorithm(&format!("{second}+fixed_window 2/1day from first")),
            Algorithm::Several([algorithm(second)].into()),
        ],
    ] {
        let table = Table::new(&day, 1, OnFull::Shared);
        // Keys 4096 apart share a bucket.
        let [own, shared, other] = [1, 2, 2 + 4096].map(super::key);
        for key in [own, shared] {
            assert!(table.admit(key, &day, 2, at("0s")).is_admitted());
            table.peek(key, &second, 1, at("0s"));
            table.remaining(key, &second, 1, at("0s"));
            table.wait(key, &second, 0, 1, at("0s"));
            assert_eq!(table.owed(key, &second, at("0s")), 2, "{second:?}");
            table.state(key, &second, at("0s"));
            assert!(!table.peek(key, &day, 1, at("4s")).is_admitted());
        }
        table.set_bound(9, OnFull::Reject);
        table.admit(other, &second, 1, at("0s"));
        assert!(!table.peek(shared, &day, 1, at("4s")).is_admitted());
        assert!(!table.admit(own, &day, 1, at("4s")).is_admitted());
    }
}

#[test]
fn other_algorithms_share_where_they_cannot_be_sketched() {
    let rule = Algorithm::Concurrency(crate::engine::limit::concurrency::Rule::new(1).unwrap());
    let table = Table::new(&rule, 0, OnFull::Sketch);
    let outcome = table.admit(key(1), &rule, 1, at("0s"));
    assert!(outcome.is_admitted() && !table.admit(key(1), &rule, 1, at("0s")).is_admitted());
    table.refund(key(1), &outcome.receipt, at("0s"));
    assert!(table.admit(key(1), &rule, 1, at("0s")).is_admitted());
}

/// Units in flight come back where they were taken, whether the map has room by then or not.
#[test]
fn units_in_flight_are_counted_in_one_place() {
    let rule = algorithm("concurrency 2");
    let table = Table::new(&rule, 1, OnFull::Shared);
    // Keys 4096 apart share a bucket.
    let [full, one, other] = [1, 2, 2 + 4096].map(super::key);
    let admit = |key| {
        let outcome = table.admit(key, &rule, 1, at("0s"));
        outcome.is_admitted().then_some(outcome)
    };
    let end = |key, receipt: &Receipt| table.refund(key, receipt, at("0s"));
    for second in [one, other, one, other] {
        let filling = admit(full).unwrap();
        let first = admit(one).unwrap();
        end(full, &filling.receipt);
        table.sweep(at("0s"));
        let last = admit(second).unwrap();
        assert!(admit(one).is_none(), "two are in flight");
        end(one, &first.receipt);
        end(second, &last.receipt);
        assert_eq!([full, one, other].map(|key| table.owed(key, &rule, at("0s"))), [0; 3]);
        table.sweep(at("0s"));
        assert!(table.is_idle(at("0s")));
    }
    table.set_bound(9, OnFull::Shared);
    for key in [full, one, other] {
        assert!([(); 3].map(|()| admit(key).is_some()) == [true, true, false]);
    }
}

/// Each sharer that comes into the map is one of its own, although it shared a bucket before.
#[test]
fn sharers_of_a_bucket_are_apart_in_the_map() {
    let quota = Quota::new(Rate { count: 1, period_ns: SECOND_NS }, 20).unwrap();
    let rule = Algorithm::FairShare(fair_share::Rule::new(quota, 1, SharedPool::default()));
    let table = Table::new(&rule, 0, OnFull::Shared);
    let [one, other] = [2, 2 + 4096].map(super::key);
    assert!(table.admit(one, &rule, 1, at("0s")).is_admitted());
    table.set_bound(9, OnFull::Shared);
    for key in [one, other] {
        assert!(table.admit(key, &rule, 5, at("1h")).is_admitted());
    }
    let left = [one, other].map(|key| table.peek(key, &rule, 0, at("1h")).remaining);
    assert_eq!(left, [4, 4], "each has spent 5 of 9: a tenth of the burst is kept for new sharers");
}

/// A million new keys send one request each, within ten seconds, while one key sends requests all the time.
#[test]
fn a_flood_of_new_keys_lets_no_hot_key_escape() {
    const FLOOD: u64 = 300_000;
    let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 10, period_ns: SECOND_NS }, 10).unwrap());
    for (on_full, comes_first, least) in
        [(OnFull::Sketch, true, 100), (OnFull::Sketch, false, 0), (OnFull::Shared, false, 0)]
    {
        let table = Table::new(&rule, 1000, on_full);
        let hot = key(u64::MAX);
        let (mut admitted, mut others, step_ns) = (0_u64, 0_u64, 10 * SECOND_NS / FLOOD);
        for number in 0..FLOOD {
            let now = at("0s").saturating_add_ns(number * step_ns);
            if comes_first || number >= 2000 {
                admitted += u64::from(number % 20 == 0 && table.admit(hot, &rule, 1, now).is_admitted());
            }
            others += u64::from(table.admit(key(number), &rule, 1, now).is_admitted());
        }
        assert!((least..=110).contains(&admitted), "{on_full:?}: {admitted} of the hot key");
        assert!(table.len() <= 1000 && table.take_overflowed() > FLOOD / 2);
        let least = if on_full == OnFull::Sketch { FLOOD * 99 / 100 } else { FLOOD / 4 };
        assert!(others >= least, "{on_full:?}: {others} of the others");
    }
}

proptest! {
    /// A table for all keys, charged with the same requests, admits every request that a bounded table admits.
    #[test]
    fn at_the_bound_no_more_passes_than_with_room_for_all(
        trace in prop::collection::vec((0_u64..900, 0_u64..40, 0_u64..5, 0_u8..8), 1..200),
        max_keys in 0_usize..5,
        burst in 1_u64..5,
        on_full in prop::sample::select(vec![OnFull::Sketch, OnFull::Shared, OnFull::Reject]),
    ) {
        let rule = per_second(2, burst);
        let (bounded, exact) = (Table::new(&rule, max_keys, on_full), Table::new(&rule, 1000, on_full));
        let mut now = at("0s");
        let mut receipts: Vec<(Key, [Receipt; 2])> = Vec::new();
        for (gap_ms, number, cost, what) in trace {
            now = now.saturating_add_ns(ns("1ms") * gap_ms / 4);
            let key = key(number % 9);
            match what {
                0 => _ = bounded.sweep(now),
                1 if on_full != OnFull::Reject => {
                    bounded.settle(key, &rule, 2, 1, now);
                    exact.settle(key, &rule, 2, 1, now);
                }
                2 if let Some((key, [one, other])) = receipts.pop() => {
                    bounded.refund(key, &one, now);
                    exact.refund(key, &other, now);
                }
                _ => {
                    let outcome = bounded.admit(key, &rule, cost, now);
                    if outcome.is_admitted() {
                        let other = exact.admit(key, &rule, cost, now);
                        prop_assert!(other.is_admitted(), "{other:?}, but {outcome:?}");
                        receipts.push((key, [outcome.receipt, other.receipt]));
                    }
                }
            }
            prop_assert!(bounded.len() <= max_keys);
        }
    }
}
