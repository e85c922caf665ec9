//! Decisions over several charges, the bound on keys, sweeps, and threads.

mod batch;
mod full;
mod remote;

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{Batch, Charge, MAX_TOKEN_AGE_NS, Table, TokenCache};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Decision, Key, OnFull, Quota, Rate, Retry};

const START_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

fn ns(text: &str) -> u64 {
    let duration: Duration = humantime::parse_duration(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    u64::try_from(duration.as_nanos()).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::from_ns(START_NS + ns(text))
}

fn quota(count: u64, burst: u64) -> Quota {
    Quota::new(Rate { count, period_ns: SECOND_NS }, burst).unwrap()
}

fn per_second(count: u64, burst: u64) -> Algorithm {
    Algorithm::TokenBucket(quota(count, burst))
}

fn table(max_keys: usize) -> Table {
    Table::new(&per_second(1, 1), max_keys, OnFull::Shared)
}

/// Keys 4096 apart share a bucket of the overflow.
fn key(number: u64) -> Key {
    Key::of_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number)
}

/// Runs rows over limits of one unit a second:
///
/// - `limit NAME BURST MAX_KEYS enforce|shadow`
/// - `AT NAME:KEY:COST... VERDICT DECISION...`; a decision is the remaining units, or `!` and the retry.
fn check(rows: &str) {
    let mut limits: HashMap<&str, (Table, Algorithm, bool)> = HashMap::new();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        if let ["limit", name, burst, max_keys, mode] = cells[..] {
            let limit = (table(max_keys.parse().unwrap()), per_second(1, burst.parse().unwrap()), mode == "enforce");
            limits.insert(name, limit);
            continue;
        }
        let asked: Vec<&str> = cells[1..].iter().copied().take_while(|cell| cell.contains(':')).collect();
        let mut batch: Batch<'_, ()> = asked.iter().map(|text| charge(&limits, text)).collect();
        let verdict = if batch.admit(at(cells[0])) { "admit" } else { "refuse" };
        let said: Vec<String> = batch.charges().iter().map(|charge| say(&charge.decision())).collect();
        assert_eq!(verdict, cells[asked.len() + 1], "verdict: {row}");
        assert_eq!(said, cells[asked.len() + 2..], "said: {row}");
    }
}

fn charge<'t>(limits: &'t HashMap<&str, (Table, Algorithm, bool)>, text: &str) -> Charge<'t, ()> {
    let [name, number, cost] = text.split(':').collect::<Vec<_>>()[..] else { panic!("not a charge: {text}") };
    let (table, rule, enforced) = &limits[name];
    Charge::new(table, key(number.parse().unwrap()), rule, cost.parse().unwrap(), *enforced, ())
}

fn say(decision: &Decision) -> String {
    match decision.denied {
        None => decision.remaining.to_string(),
        Some(Retry::Never) => "!never".into(),
        Some(Retry::AfterNs(ns)) => format!("!{}", humantime::format_duration(Duration::from_nanos(ns))),
    }
}

#[test]
fn all_limits_or_none() {
    check(
        "
        limit a 5 100 enforce
        limit b 1 100 enforce
        limit c 5 100 enforce
        # at   charges             verdict  said
          0s   a:1:1 b:1:1 c:1:1   admit    4 0 4
        # b refuses: neither the limit before it nor the one after it is charged
          0s   a:1:1 b:1:1 c:1:1   refuse   3 !1s 3
          0s   a:1:1 b:1:1 c:1:1   refuse   3 !1s 3
          0s   a:1:0 c:1:0         admit    4 4
        # all who refuse are heard
          0s   a:1:5 b:1:1 c:1:6   refuse   !1s !1s !never
          1s   a:1:1 b:1:1 c:1:1   admit    4 0 4
        # other keys have budgets of their own
          1s   a:1:1 b:2:1         admit    3 0
        ",
    );
    check("# nobody to ask\n 0s admit");
}

#[test]
fn shadow_never_refuses_and_is_charged_only_if_all_admit() {
    check(
        "
        limit real 2 100 enforce
        limit shade 1 100 shadow
        # at   charges              verdict  said
          0s   shade:1:1 real:1:1   admit    0 1
          0s   shade:1:1 real:1:1   admit    !1s 0
        # the refusal of the enforced limit gives the shadow's charge back
          1s   shade:1:1 real:1:2   refuse   0 !1s
          1s   shade:1:1            admit    0
          1s   shade:1:1            admit    !1s
          1s   shade:1:2            admit    !never
          1s   real:1:1 shade:1:1   admit    0 !1s
        # the shadow's denials have cost it nothing
          2s   shade:1:1            admit    0
        ",
    );
}

#[test]
fn beyond_the_bound_keys_share_buckets() {
    check(
        "
        limit a 2 2 enforce
        limit b 1 100 enforce
        # at    charges        verdict  said
          0s    a:1:1          admit    1
          0s    a:2:1          admit    1
        # full: 10 and 4106 share a bucket, 11 has another
          0s    a:10:1         admit    1
          0s    a:4106:1       admit    0
          0s    a:10:1         refuse   !1s
          0s    a:11:1         admit    1
        # those remembered exactly are not disturbed
          0s    a:1:1          admit    0
        # regression: a refusal charged the overflow of the limits before it
          0s    b:9:1          admit    0
          0s    a:11:1 b:9:1   refuse   0 !1s
          0s    a:11:1         admit    0
        ",
    );
}

#[test]
fn key_that_moves_out_of_the_overflow_keeps_its_debts() {
    let (table, quota) = (table(1), per_second(1, 4));
    assert!(table.admit(key(1), &quota, 1, at("0s")).is_admitted());
    assert_eq!(table.admit(key(10), &quota, 4, at("0s")).decision.remaining, 0);
    assert_eq!((table.len(), table.take_overflowed()), (1, 1));
    assert_eq!(table.sweep(at("1s")), 1);
    assert!(table.is_empty() && !table.is_idle(at("3999ms")) && table.is_idle(at("4s")));
    let decision = table.admit(key(10), &quota, 1, at("1s"));
    assert_eq!((decision.is_admitted(), decision.decision.remaining), (true, 0), "one unit has come back, not four");
    assert_eq!((table.len(), table.take_overflowed()), (1, 0), "remembered exactly by now");
    assert_eq!(table.admit(key(10), &quota, 1, at("1s")).decision.denied, Some(Retry::AfterNs(SECOND_NS)));
    table.set_bound(0, OnFull::Shared);
    assert!(table.admit(key(10), &quota, 1, at("2s")).is_admitted(), "a smaller bound forgets nobody");
    assert_eq!(table.admit(key(11), &quota, 0, at("2s")).decision.remaining, 4);
    assert_eq!(table.take_overflowed(), 1);
}

#[test]
fn only_keys_that_owe_something_are_remembered() {
    let (table, quota) = (table(10), per_second(1, 2));
    table.admit(key(1), &quota, 0, at("0s"));
    table.admit(key(1), &quota, 3, at("0s"));
    table.peek(key(1), &quota, 1, at("0s"));
    table.wait(key(1), &quota, 8, 1, at("0s"));
    table.settle(key(1), &quota, -1, 0, at("0s"));
    assert!(table.is_empty());
    let decision = table.admit(key(1), &quota, 2, at("0s"));
    table.admit(key(2), &quota, 1, at("0s"));
    let swept = table.sweep(at("999999999ns"));
    assert_eq!((swept, table.len()), (0, 2));
    let swept = table.sweep(at("1s"));
    assert_eq!((swept, table.len()), (1, 1));
    table.refund(key(1), &decision.receipt, at("1s"));
    let swept = table.sweep(at("1s"));
    assert_eq!((swept, table.len()), (1, 0));
    table.refund(key(1), &decision.receipt, at("1s"));
    assert_eq!(table.peek(key(1), &quota, 0, at("1s")).remaining, 2, "nothing above the burst");
}

#[test]
fn looking_at_a_key_makes_it_adopt_the_new_rate() {
    let table = table(10);
    let (slow, fast) = (per_second(1, 10), per_second(10, 10));
    table.admit(key(1), &slow, 10, at("0s"));
    assert_eq!(table.wait(key(1), &fast, 0, 1, at("0s")), Retry::AfterNs(ns("100ms")));
    assert_eq!(table.peek(key(1), &fast, 1, at("50ms")).denied, Some(Retry::AfterNs(ns("50ms"))));
    assert!(table.admit(key(1), &fast, 1, at("100ms")).is_admitted());
}

/// Regression: between two changes of the rate the units of a charge came back, and others took them.
#[test]
fn a_receipt_gives_back_no_unit_that_came_back_at_another_rate() {
    let table = table(10);
    let (slow, fast) = (per_second(1, 10), per_second(1000, 10));
    let charged = table.admit(key(1), &slow, 5, at("0s"));
    assert!(table.admit(key(1), &fast, 1, at("0s")).is_admitted());
    assert!(table.admit(key(1), &fast, 10, at("1s")).is_admitted());
    assert!(!table.admit(key(1), &slow, 1, at("1s")).is_admitted());
    table.refund(key(1), &charged.receipt, at("1s"));
    assert_eq!(table.peek(key(1), &slow, 0, at("1s")).remaining, 0);
}

/// Steps of a trace: milliseconds since the step before, a key, a cost.
type Trace = Vec<(u64, u64, u64)>;

fn traces() -> impl Strategy<Value = Trace> {
    prop::collection::vec((prop_oneof![Just(0_u64), 0_u64..300, 0_u64..4000], 0_u64..12, 0_u64..4), 1..120)
}

proptest! {
    #[test]
    fn bounded_table_never_admits_more_than_a_bucket(trace in traces(), max_keys in 0_usize..6, burst in 1_u64..5) {
        let (table, quota) = (table(max_keys), per_second(2, burst));
        let mut admitted: HashMap<u64, Vec<(Timestamp, u64)>> = HashMap::new();
        let mut now = at("0s");
        for (gap_ms, number, cost) in trace {
            now = now.saturating_add_ns(gap_ms * 1_000_000);
            // Every third key shares its overflow bucket with another.
            let key = key(number % 8 + 4096 * (number / 8));
            if gap_ms % 7 == 0 {
                table.sweep(now);
            }
            if table.admit(key, &quota, cost, now).is_admitted() {
                admitted.entry(number).or_default().push((now, cost));
            }
            prop_assert!(table.len() <= max_keys);
        }
        for times in admitted.values() {
            for (first, (from, _)) in times.iter().enumerate() {
                let mut units = 0;
                for (to, cost) in &times[first..] {
                    units += cost;
                    prop_assert!(units <= burst + to.ns_since(*from) / quota.interval_ns());
                }
            }
        }
    }

    #[test]
    fn sweeping_changes_no_decision(trace in traces(), sweeps in prop::collection::vec(any::<bool>(), 120)) {
        let (swept, kept, quota) = (table(100), table(100), per_second(3, 3));
        let mut now = at("0s");
        for ((gap_ms, number, cost), sweep) in trace.into_iter().zip(sweeps) {
            now = now.saturating_add_ns(gap_ms * 1_000_000);
            if sweep {
                swept.sweep(now);
            }
            let key = key(number);
            let decisions = [&swept, &kept].map(|table| table.admit(key, &quota, cost, now).decision);
            prop_assert_eq!(decisions[0], decisions[1]);
            prop_assert!(swept.len() <= kept.len());
        }
    }
}

#[test]
fn threads_agree_on_length_and_on_what_is_left() {
    let table = table(1000);
    // No unit comes back within the test.
    let quota = &Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: 1 << 50 }, 50).unwrap());
    let admitted: u64 = std::thread::scope(|scope| {
        let work = |offset: u64| {
            let table = &table;
            move || {
                let each = |step: u64| {
                    if step.is_multiple_of(100) {
                        table.sweep(at("0s"));
                    }
                    u64::from(table.admit(key((step + offset) % 20), quota, 1, at("0s")).is_admitted())
                };
                (0..2000).map(each).sum::<u64>()
            }
        };
        let threads: Vec<_> = (0..4).map(|offset| scope.spawn(work(offset * 5))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 20 * 50);
    assert_eq!(table.len(), 20);
    let end = Timestamp::from_ns(u64::MAX);
    assert_eq!(table.sweep(end), 20);
    assert!(table.is_empty());
}

#[test]
fn threads_pass_the_bound_by_at_most_one_each() {
    let (table, quota) = (&table(100), &per_second(1, 1));
    std::thread::scope(|scope| {
        for offset in 0..4_u64 {
            let table = &table;
            scope.spawn(move || (0..1000).for_each(|n| _ = table.admit(key(offset * 1000 + n), quota, 1, at("0s"))));
        }
    });
    assert!((100..=104).contains(&table.len()), "{}", table.len());
    let left = table.len();
    let swept = table.sweep(at("1s"));
    assert_eq!((swept, table.len()), (left, 0));
}

#[test]
fn tokens_live_until_they_expire_and_five_minutes_at_most() {
    let cache = TokenCache::<String>::new(3);
    cache.insert(key(1), "one".into(), Some(at("10s")), at("0s"));
    cache.insert(key(2), "two".into(), None, at("0s"));
    cache.insert(key(3), "three".into(), Some(at("1day")), at("0s"));
    cache.insert(key(4), "four".into(), None, at("0s"));
    assert_eq!(cache.len(), 3, "the bound");
    let found = |number, now| cache.find(key(number), now).as_deref().map(str::to_owned);
    let age = Timestamp::from_ns(START_NS + MAX_TOKEN_AGE_NS);
    let rows = [
        (1, at("9999ms"), Some("one")),
        (1, at("10s"), None),
        (2, age.saturating_sub_ns(1), Some("two")),
        (2, age, None),
        (3, age.saturating_sub_ns(1), Some("three")),
        (3, age, None),
        (4, at("0s"), None),
    ];
    for (number, now, expected) in rows {
        assert_eq!(found(number, now).as_deref(), expected, "{number} at {now:?}");
    }
    cache.sweep(at("10s"));
    assert_eq!(cache.len(), 2);
    cache.insert(key(4), "four".into(), Some(at("5s")), at("10s"));
    assert_eq!(found(4, at("10s")), None, "expired before it came");
    cache.sweep(age);
    assert!(cache.is_empty());
}
