//! Refunds of charges and of parts of them: exact at once, never too much in any order, and whole if everything is given back.

use proptest::prelude::*;
use proptest::sample::Index;

use super::check;
use super::properties::{Trace, algorithms, assert_bound, buckets, instants, singles, start, tick_ns, traces};
use crate::base::time::Timestamp;
use crate::engine::limit::state::{Receipt as _, State as _};
use crate::engine::limit::{Algorithm, AnyReceipt, AnyState};

/// Requests; for each, whether it is given back, after how many requests, and the units that are not given back.
type Undone = Vec<((u64, u64), Option<(usize, u64)>)>;

fn undone() -> impl Strategy<Value = Undone> {
    let request = (prop_oneof![5 => Just(0_u64), 3 => 0_u64..6, 1 => 0_u64..40], 0_u64..5);
    let kept = prop_oneof![1 => Just(0_u64), 1 => 0_u64..6];
    prop::collection::vec((request, prop::option::of((0_usize..12, kept))), 1..60)
}

/// What happens to a bucket.
#[derive(Clone, Debug)]
enum Event {
    Charge(u64),
    /// Gives one of the charges back, if there are any, but for so many units.
    GiveBack(Index, u64),
    /// Charges the request of one of the charges so many units more.
    Grow(Index, u64),
    Settle(i64),
}

/// Events, each with the ticks since the one before.
fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        6 => (1_u64..4).prop_map(Event::Charge),
        6 => (any::<Index>(), 0_u64..3).prop_map(|(which, kept)| Event::GiveBack(which, kept)),
        1 => (any::<Index>(), 1_u64..4).prop_map(|(which, units)| Event::Grow(which, units)),
        1 => (-6_i64..4).prop_map(Event::Settle),
    ];
    prop::collection::vec((prop_oneof![3 => Just(0_u64), 3 => 0_u64..4, 2 => 0_u64..30], event), 1..60)
}

/// More than any debt of a test.
const DEBT_MAX: u64 = 1000;

/// Nanoseconds until a bucket is full that saw these units only, whether they fit or not.
fn owed_ns(rule: &Algorithm, units: &[(Timestamp, i64)], now: Timestamp) -> u64 {
    let mut state = AnyState::fresh(rule);
    for (at, units) in units {
        state.settle(rule, *units, DEBT_MAX, *at);
    }
    state.peek(rule, 0, now).reset_after_ns
}

/// The units that remain, less the debt.
fn balance(state: &AnyState, rule: &Algorithm, now: Timestamp) -> i64 {
    let [remaining, over] = [state.peek(rule, 0, now).remaining, state.over(rule, now)];
    i64::try_from(remaining).unwrap() - i64::try_from(over).unwrap()
}

super::tables! {
    /// Requests that end with fewer units than they were charged give back none that time has given back already.
    a_part_comes_back_once:
    "token_bucket 1000/1min burst 1000" => "
      # at     cost   decision   remaining   reset   retry
      0s       1000   admit      0           60s     -
      60s      1000   admit      0           60s     -
      120s     1000   admit      0           60s     -
      180s     1000   admit      0           60s     -
      240s     1000   admit      0           60s     -
      300s     1000   admit      0           60s     -
      300s     refund 5 1000
      300s     1      deny       0           60s     60ms
      300s     refund 4 400
      300s     refund 1 1000
      300s     1      deny       0           60s     60ms
      # Of the newest, 500 are left of 900.
      330s     refund 6 900
      330s     0      admit      1000        0s      -
      330s     400    admit      600         24s     -
      340s     refund 7 300
      340s     0      admit      1000        0s      -",
    "sliding_log 3/10s" => "
      0s       2      admit      1           10s     -
      9s       1      admit      0           10s     -
      9500ms   refund 1 2
      9500ms   0      admit      2           9500ms  -
      10s      0      admit      2           9s      -",
    "sub_window 3/10s in 10" => "
      0s       3      admit      0           10s     -
      5s       refund 1 2
      9s       1      admit      1           10s     -
      10s      0      admit      2           9s      -";
}

proptest! {
    /// A bucket whose charges are given back in any order, whole or in part, is never fuller than a bucket that never saw what
    /// is given back.
    #[test]
    fn a_bucket_never_gets_too_much(rule in buckets(), events in events()) {
        let mut state = AnyState::fresh(&rule);
        let (mut charges, mut units) = (Vec::new(), Vec::new());
        let mut now = start();
        for (number, (ticks, event)) in events.into_iter().enumerate() {
            now = now.saturating_add_ns(ticks * tick_ns(&rule) + ticks % 3);
            match event {
                Event::Charge(cost) => if state.admit(&rule, cost, now).is_admitted() {
                    charges.push((number, state.receipt(cost, now), cost, 0));
                    units.push((number, (now, i64::try_from(cost).unwrap())));
                },
                Event::GiveBack(which, kept) => if !charges.is_empty() {
                    let (number, receipt, cost, grown) = charges.swap_remove(which.index(charges.len()));
                    let kept = kept.min(cost);
                    state.refund(&rule, &receipt.part(cost + grown - kept, grown).0, now);
                    let first = units.iter().position(|(of, _)| *of == number).unwrap();
                    units[first].1.1 = i64::try_from(kept).unwrap();
                    let mut place = 0..;
                    units.retain(|(of, _)| place.next() == Some(first) || *of != number);
                },
                Event::Grow(which, more) => if !charges.is_empty() {
                    let which = which.index(charges.len());
                    let (number, _, _, grown) = &mut charges[which];
                    let extra = i64::try_from(more).unwrap();
                    state.settle(&rule, extra, DEBT_MAX, now);
                    units.push((*number, (now, extra)));
                    *grown += more;
                },
                Event::Settle(extra) => {
                    state.settle(&rule, extra, DEBT_MAX, now);
                    units.push((number, (now, extra)));
                }
            }
            let kept: Vec<_> = units.iter().map(|(_, units)| *units).collect();
            prop_assert!(state.peek(&rule, 0, now).reset_after_ns >= owed_ns(&rule, &kept, now));
        }
    }

    /// A refund and a settlement return the units by which they change what remains, but for a part of a unit.
    #[test]
    fn units_that_move_are_returned(rule in singles(), events in events()) {
        // What remains of a bucket that shapes depends on the next instant, too.
        prop_assume!(!matches!(rule, Algorithm::LeakyBucket(quota) if quota.shapes()));
        let mut state = AnyState::fresh(&rule);
        let (mut receipts, mut now) = (Vec::new(), start());
        for (ticks, event) in events {
            now = now.saturating_add_ns(ticks * tick_ns(&rule) + ticks % 3);
            let before = balance(&state, &rule, now);
            let charged = match event {
                Event::Charge(cost) => {
                    let is_admitted = state.admit(&rule, cost, now).is_admitted();
                    receipts.extend(is_admitted.then(|| state.receipt(cost, now)));
                    continue;
                }
                Event::GiveBack(..) if receipts.is_empty() => continue,
                Event::GiveBack(which, units) => {
                    let receipt: AnyReceipt = receipts.swap_remove(which.index(receipts.len()));
                    let receipt = receipt.part(units + 1, 0).0;
                    -i64::try_from(state.refund(&rule, &receipt, now)).unwrap()
                }
                Event::Grow(..) => continue,
                Event::Settle(extra) => state.settle(&rule, extra, DEBT_MAX, now),
            };
            let spent = before - balance(&state, &rule, now);
            prop_assert!((charged - spent).abs() <= 1 && charged * spent >= 0, "{charged} of {spent}");
        }
    }

    /// All charges are given back over any time, the newest or the oldest first: the bucket is full. In other orders some
    /// time can be lost twice.
    #[test]
    fn a_bucket_is_full_if_all_is_given_back(
        rule in buckets(), trace in traces(), is_newest_first: bool, pauses in prop::collection::vec(0_u64..6, 60),
    ) {
        let mut state = AnyState::fresh(&rule);
        let (mut charges, mut now) = (Vec::new(), start());
        for (at, cost) in instants(&rule, &trace, start()) {
            now = at;
            if cost > 0 && state.admit(&rule, cost, now).is_admitted() {
                charges.push(state.receipt(cost, now));
            }
        }
        if is_newest_first {
            charges.reverse();
        }
        for (charge, ticks) in charges.iter().zip(pauses) {
            now = now.saturating_add_ns(ticks * tick_ns(&rule));
            state.refund(&rule, charge, now);
        }
        prop_assert_eq!(state.peek(&rule, 0, now).reset_after_ns, 0);
    }

    #[test]
    fn at_once_it_restores_every_decision(
        rule in algorithms(), trace in traces(), cost in 0_u64..30, next in traces(),
    ) {
        let mut untouched = AnyState::fresh(&rule);
        let mut now = start();
        for (at, cost) in instants(&rule, &trace, start()) {
            untouched.admit(&rule, cost, at);
            now = at;
        }
        let mut refunded = untouched.clone();
        if refunded.admit(&rule, cost, now).is_admitted() {
            let receipt = refunded.receipt(cost, now);
            refunded.refund(&rule, &receipt, now);
        }
        for (now, cost) in instants(&rule, &next, now) {
            prop_assert_eq!(refunded.admit(&rule, cost, now), untouched.admit(&rule, cost, now));
        }
    }

    /// Several requests undone at the instant they came, in the order they came or in the reverse one.
    #[test]
    fn many_at_once_restore_every_decision(
        rule in algorithms(), trace in traces(), costs in prop::collection::vec(0_u64..5, 1..8), reverse in any::<bool>(),
        next in traces(),
    ) {
        let mut untouched = AnyState::fresh(&rule);
        let mut now = start();
        for (at, cost) in instants(&rule, &trace, start()) {
            untouched.admit(&rule, cost, at);
            now = at;
        }
        let mut refunded = untouched.clone();
        let mut receipts = Vec::new();
        for cost in costs {
            if refunded.admit(&rule, cost, now).is_admitted() {
                receipts.push(refunded.receipt(cost, now));
            }
        }
        if reverse {
            receipts.reverse();
        }
        for receipt in &receipts {
            refunded.refund(&rule, receipt, now);
        }
        for (now, cost) in instants(&rule, &next, now) {
            prop_assert_eq!(refunded.admit(&rule, cost, now), untouched.admit(&rule, cost, now));
        }
    }

    /// Any requests are given back at any later moment, whole or in part, in any order: what is not given back stays within
    /// the bound.
    #[test]
    fn never_too_much(rule in algorithms(), requests in undone(), order in prop::collection::vec(any::<Index>(), 60)) {
        let trace: Trace = requests.iter().map(|(request, _)| *request).collect();
        let mut state = AnyState::fresh(&rule);
        let mut outstanding: Vec<(usize, AnyReceipt)> = Vec::new();
        let mut kept = Vec::new();
        for (index, (now, cost)) in instants(&rule, &trace, start()).into_iter().enumerate() {
            loop {
                let due: Vec<usize> = (0..outstanding.len()).filter(|&which| outstanding[which].0 <= index).collect();
                if due.is_empty() {
                    break;
                }
                let (_, receipt) = outstanding.remove(due[order[index].index(due.len())]);
                state.refund(&rule, &receipt, now);
            }
            if state.admit(&rule, cost, now).is_admitted() {
                match requests[index].1 {
                    Some((later, units)) => {
                        let units = units.min(cost);
                        outstanding.push((index + 1 + later, state.receipt(cost, now).part(cost - units, 0).0));
                        kept.push((now, units));
                    }
                    None => kept.push((now, cost)),
                }
            }
        }
        assert_bound(&rule, &kept)?;
    }
}

/// An outage: each request is given back while others are in flight. No unit is lost, whatever the algorithm.
#[test]
fn a_stream_of_refunds_loses_nothing() {
    const IN_FLIGHT: usize = 8;
    let more = [
        "token_bucket 1000/1s burst 100",
        "fixed_window 100 per 1 day UTC",
        "concurrency 100",
        "token_bucket 100/1h+token_bucket 1000/1day",
    ];
    for rule in super::each_algorithm("100/1h", &more).iter().map(|rule| super::algorithm(rule)) {
        let mut state = AnyState::fresh(&rule);
        let (mut charges, mut now) = (Vec::new(), start());
        for number in 0_usize..1200 {
            now = now.saturating_add_ns(500_000 + number as u64 % 7);
            assert!(state.admit(&rule, 1, now).is_admitted(), "{rule:?}: {number}");
            charges.push(state.receipt(1, now));
            if charges.len() == IN_FLIGHT {
                // In an order that looks random.
                state.refund(&rule, &charges.swap_remove(number * 5 % 7), now);
            }
        }
        for receipt in charges {
            now = now.saturating_add_ns(1_000_000);
            state.refund(&rule, &receipt, now);
        }
        assert_eq!(state.peek(&rule, 0, now).remaining, 100, "{rule:?}");
    }
}
