//! Batches: undone charges, receipts that are taken, delays, and rules that do not fit their tables.

use super::super::{Batch, Charge, Table};
use super::{SECOND_NS, at, key, per_second};
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Algorithm, Decision, OnFull, Quota, Rate, Retry, concurrency, sliding_log};

fn log(count: u64) -> Algorithm {
    Algorithm::SlidingLog(sliding_log::Rule::new(Rate { count, period_ns: SECOND_NS }).unwrap())
}

fn of(rule: &Algorithm) -> Table {
    Table::new(rule, 100, OnFull::Shared)
}

/// A batch of one unit of key 1 from each of `limits`.
fn batch(limits: &[(Table, Algorithm)]) -> Batch<'_, ()> {
    limits.iter().map(|(table, rule)| Charge::new(table, key(1), rule, 1, true, ())).collect()
}

fn remaining(limits: &[(Table, Algorithm)]) -> Vec<u64> {
    limits.iter().map(|(table, rule)| table.peek(key(1), rule, 0, at("0s")).remaining).collect()
}

/// A token bucket of a known key, one of a new key, and another algorithm.
fn limits() -> [(Table, Algorithm); 3] {
    let limits = [per_second(1, 5), per_second(1, 5), log(5)].map(|rule| (of(&rule), rule));
    limits[0].0.admit(key(1), &limits[0].1, 1, at("0s"));
    limits
}

#[test]
fn an_undone_batch_has_charged_nothing() {
    let limits = limits();
    let mut batch = batch(&limits);
    assert!(batch.admit(at("0s")));
    assert_eq!(remaining(&limits), [3, 4, 4]);
    assert!(batch.charges().iter().all(|charge| charge.is_charged() && !charge.is_undone()));
    assert_eq!(batch.charges().iter().map(Charge::is_plain).collect::<Vec<_>>(), [true, false, false]);
    for _ in 0..2 {
        batch.undo(at("0s"));
        assert_eq!(remaining(&limits), [4, 5, 5]);
        assert!(batch.charges().iter().all(|charge| charge.is_undone() && !charge.is_charged()));
    }
    assert!(batch.admit(at("0s")), "a batch may be decided again");
    assert_eq!(remaining(&limits), [3, 4, 4]);
    assert!(batch.charges().iter().all(Charge::is_charged));
}

#[test]
fn a_receipt_that_is_taken_is_not_undone() {
    for taken in 0..3 {
        let limits = limits();
        let mut batch = batch(&limits);
        assert!(batch.take_receipt(taken).is_none(), "nothing is charged");
        assert!(batch.admit(at("0s")));
        let receipt = batch.take_receipt(taken).unwrap();
        assert!(batch.take_receipt(taken).is_none() && batch.take_receipt(3).is_none());
        assert!(batch.charges()[taken].is_charged());
        batch.undo(at("0s"));
        let mut expected = [4, 5, 5];
        expected[taken] -= 1;
        assert_eq!(remaining(&limits), expected);
        limits[taken].0.refund(key(1), &receipt, at("0s"));
        assert_eq!(remaining(&limits), [4, 5, 5]);
    }
}

#[test]
fn a_denied_batch_has_the_decisions_of_all_limits() {
    let limits = [2, 1, 3].map(|count| (of(&log(count)), log(count)));
    let mut first = batch(&limits);
    assert!(first.peek(at("0s")) && first.admit(at("0s")));
    let mut second = batch(&limits);
    assert!(!second.peek(at("0s")), "the limit in the middle is exhausted");
    assert_eq!(remaining(&limits), [1, 0, 2]);
    assert!(!second.admit(at("0s")));
    let admitted: Vec<bool> = second.charges().iter().map(Charge::is_admitted).collect();
    assert_eq!((admitted, remaining(&limits)), (vec![true, false, true], vec![1, 0, 2]));
    let undone: Vec<bool> = second.charges().iter().map(Charge::is_undone).collect();
    assert_eq!(undone, [true, false, false]);
    // The unit of 0 s is back after one second.
    for (earliest, slot) in [("0s", "1s"), ("1500ms", "1500ms")] {
        assert_eq!(second.slot(at(earliest), at("3s")), at(slot), "{earliest}");
    }
}

#[test]
fn a_delay_charges_a_debt_that_can_be_undone() {
    let rule = per_second(1, 1);
    let by = SlowDown { step_ns: 1000, max_ns: 10_000 };
    let limits = [(of(&rule), rule)];
    let [(table, rule)] = &limits;
    table.admit(key(1), rule, 1, at("0s"));
    let mut batch: Batch<'_, ()> = [Charge::new(table, key(1), rule, 2, false, ())].into_iter().collect();
    assert!(batch.admit(at("0s")), "it is not enforced");
    assert!(!batch.charges()[0].is_charged() && !batch.charges()[0].is_admitted());
    assert_eq!(batch.slow_down(0, &by, at("0s")), (2000, 2));
    assert!(batch.charges()[0].is_slowed() && batch.charges()[0].is_charged());
    assert_eq!((table.over(key(1), rule, at("0s")), batch.slow_down(1, &by, at("0s"))), (2, (0, 0)));
    batch.undo(at("0s"));
    assert_eq!(table.over(key(1), rule, at("0s")), 0);
}

#[test]
fn a_rule_that_does_not_fit_its_table_denies() {
    let denial = Decision { denied: Some(Retry::AfterNs(SECOND_NS)), remaining: 0, reset_after_ns: SECOND_NS };
    let one_in_flight = Algorithm::Concurrency(concurrency::Rule::new(1).unwrap());
    let (table, now) = (of(&per_second(1, 1)), at("0s"));
    for rule in [log(5), one_in_flight] {
        assert!(!table.fits(&rule));
        let mut batch: Batch<'_, ()> = [Charge::new(&table, key(1), &rule, 1, true, ())].into_iter().collect();
        assert!(!batch.peek(now) && !batch.admit(now));
        assert_eq!(batch.charges()[0].decision(), denial);
        assert_eq!(batch.charges()[0].wait(0, now), Retry::AfterNs(SECOND_NS));
        assert_eq!(table.remaining(key(1), &rule, 1, now)[..], [denial.into()]);
        let by = SlowDown { step_ns: 1, max_ns: 77 };
        assert_eq!(batch.slow_down(0, &by, now), (77, 0));
        table.settle(key(1), &rule, 5, 5, now);
        assert_eq!((table.over(key(1), &rule, now), table.is_empty()), (0, true));
    }
}

/// Requests of one key in flight at a time, each of which is given back later, in another order.
#[test]
fn a_stream_of_refunds_loses_nothing() {
    const HOUR_NS: u64 = 3600 * SECOND_NS;
    let a_hundred = Quota::new(Rate { count: 100, period_ns: HOUR_NS }, 100).unwrap();
    let rule = Algorithm::TokenBucket(a_hundred);
    for max_keys in [100, 0] {
        let table = Table::new(&rule, max_keys, OnFull::Shared);
        let (mut charges, mut now) = (Vec::new(), at("0s"));
        for number in 0_usize..1200 {
            now = now.saturating_add_ns(500_000 + number as u64 % 7);
            let mut batch: Batch<'_, ()> = [Charge::new(&table, key(1), &rule, 1, true, ())].into_iter().collect();
            assert!(batch.admit(now), "{number}");
            charges.push(batch);
            if charges.len() == 8 {
                charges.swap_remove(number * 5 % 7).undo(now);
            }
        }
        now = now.saturating_add_ns(1_000_000);
        for mut batch in charges {
            batch.undo(now);
        }
        assert_eq!(table.peek(key(1), &rule, 0, now).remaining, 100);
    }
}

/// Units that a settlement gives back are not given back by a receipt again.
#[test]
fn a_settlement_is_no_refund() {
    let rule = per_second(1, 10);
    let table = of(&rule);
    let charge = |now| {
        let mut batch: Batch<'_, ()> = [Charge::new(&table, key(1), &rule, 1, true, ())].into_iter().collect();
        assert!(batch.admit(now));
        batch
    };
    let mut early = charge(at("0s"));
    table.settle(key(1), &rule, -5, 0, at("0s"));
    let _kept = charge(at("1ms"));
    early.undo(at("2ms"));
    assert_eq!(table.peek(key(1), &rule, 0, at("2ms")).remaining, 9, "one is kept");
    charge(at("3ms")).undo(at("4ms"));
    assert_eq!(table.peek(key(1), &rule, 0, at("4ms")).remaining, 9);
}
