//! Several windows of one algorithm do what several states of any do, which have the rows.

#![allow(clippy::panic)] // a test that cannot go on says so

use proptest::prelude::*;

use super::Windows;
use crate::limit::state::State as _;
use crate::limit::tests::{algorithm, at};
use crate::limit::{Algorithm, AnyState, Quota, Retry, token_bucket};

fn quota(text: &str) -> Quota {
    match algorithm(text) {
        Algorithm::TokenBucket(quota) => quota,
        other => panic!("{other:?} is no token bucket"),
    }
}

fn rules() -> [Quota; 2] {
    [quota("token_bucket 10/1m burst 10"), quota("token_bucket 30/1h burst 30")]
}

#[test]
fn two_windows_cost_two_states() {
    assert_eq!(size_of::<token_bucket::State>(), 16);
    assert_eq!(size_of::<Windows<token_bucket::State, 2>>(), 32);
}

#[test]
fn tightest_is_the_longest_wait_or_the_least_left() {
    let rules = rules();
    let mut state = Windows::<token_bucket::State, 2>::fresh(&rules);
    let tightest =
        |state: &Windows<token_bucket::State, 2>, cost, when| state.tightest(&rules, cost, at(when), Quota::burst);
    assert!(state.admit(&rules, 9, at("0s")).is_admitted());
    assert_eq!(tightest(&state, 0, "0s"), 0, "1 of 10, and 21 of 30");
    assert_eq!(tightest(&state, 2, "0s"), 0);
    assert!(state.admit(&rules, 10, at("1m")).is_admitted());
    assert!(state.admit(&rules, 10, at("2m")).is_admitted());
    let retry = state.admit(&rules, 4, at("3m")).denied;
    assert_eq!(retry, Some(Retry::AfterNs(180 * 1_000_000_000)), "29 are owed, 1.5 of them paid; 2.5 must be");
    assert_eq!(tightest(&state, 4, "3m"), 1);
    assert_eq!(tightest(&state, 0, "3m"), 1);
}

proptest! {
    #[test]
    fn inline_or_boxed_they_decide_the_same(requests in prop::collection::vec((0_u64..40_000, 0_u64..12, any::<bool>()), 1..80)) {
        let rules = rules();
        let boxed_rule = Algorithm::Several(rules.map(Algorithm::TokenBucket).into());
        let mut inline = Windows::<token_bucket::State, 2>::fresh(&rules);
        let mut boxed = AnyState::fresh(&boxed_rule);
        let mut alone = rules.map(|quota| token_bucket::State::fresh(&quota));
        let mut now = at("0s");
        for (gap_ms, cost, is_undone) in requests {
            now = now.saturating_add_ns(gap_ms * 1_000_000);
            let singly = [0, 1].map(|index| alone[index].peek(&rules[index], cost, now).is_admitted());
            let decision = inline.admit(&rules, cost, now);
            prop_assert_eq!(decision, boxed.admit(&boxed_rule, cost, now));
            prop_assert_eq!(decision.is_admitted(), singly[0] && singly[1]);
            if decision.is_admitted() && is_undone {
                let receipts = inline.receipt(cost, now);
                inline.refund(&rules, &receipts, now);
                let receipts = boxed.receipt(cost, now);
                boxed.refund(&boxed_rule, &receipts, now);
            } else if decision.is_admitted() {
                alone.iter_mut().zip(&rules).for_each(|(state, rule)| _ = state.admit(rule, cost, now));
            }
        }
    }

    /// Token buckets come free together with the slowest of them, whatever the others do.
    #[test]
    fn wait_is_when_the_last_of_a_queue_is_admitted(
        before in prop::collection::vec((0_u64..100_000, 0_u64..10), 1..30), costs in prop::collection::vec(1_u64..10, 1..20),
    ) {
        let rules = rules();
        let mut state = Windows::<token_bucket::State, 2>::fresh(&rules);
        let mut start = at("0s");
        for (gap_ms, cost) in before {
            start = start.saturating_add_ns(gap_ms * 1_000_000);
            state.admit(&rules, cost, start);
        }
        let last = costs[costs.len() - 1];
        let expected = state.wait(&rules, costs.iter().sum::<u64>() - last, last, start);
        let mut now = start;
        for cost in costs {
            if let Some(Retry::AfterNs(ns)) = state.peek(&rules, cost, now).denied {
                now = now.saturating_add_ns(ns);
            }
            prop_assert!(state.admit(&rules, cost, now).is_admitted());
        }
        prop_assert_eq!(Retry::AfterNs(now.ns_since(start)), expected);
    }
}
