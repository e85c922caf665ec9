//! Refunds: exact at once, and never too much in any order.

use proptest::prelude::*;
use proptest::sample::Index;

use super::properties::{Trace, algorithms, assert_bound, instants, start, traces};
use crate::limit::state::State as _;
use crate::limit::{AnyReceipt, AnyState};

/// Requests; for each, whether it is given back, and after how many requests.
type Undone = Vec<((u64, u64), Option<usize>)>;

fn undone() -> impl Strategy<Value = Undone> {
    let request = (prop_oneof![5 => Just(0_u64), 3 => 0_u64..6, 1 => 0_u64..40], 0_u64..5);
    prop::collection::vec((request, prop::option::of(0_usize..12)), 1..60)
}

proptest! {
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

    /// Any requests are given back at any later moment, in any order: all others together stay within the bound.
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
                    Some(later) => outstanding.push((index + 1 + later, state.receipt(cost, now))),
                    None => kept.push((now, cost)),
                }
            }
        }
        assert_bound(&rule, &kept)?;
    }
}
