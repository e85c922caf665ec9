//! Several windows decide as their states do alone.

use proptest::prelude::*;

use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::{algorithm, at};
use crate::engine::limit::tightness::Tightness;
use crate::engine::limit::{Algorithm, AnyState, Retry, token_bucket};

const RULES: &str = "token_bucket 10/1m burst 10 + token_bucket 30/1h burst 30";

/// Both rules together, and each of them.
fn rules() -> (Algorithm, Vec<Algorithm>) {
    let both = algorithm(RULES);
    let each = both.rates().to_vec();
    (both, each)
}

#[test]
fn the_sizes_of_states() {
    assert_eq!((size_of::<token_bucket::State>(), size_of::<AnyState>()), (16, 56));
}

#[test]
fn the_tightest_window_has_the_longest_wait_or_the_least_left() {
    let (rule, rates) = rules();
    let mut state = AnyState::fresh(&rule);
    let tightest = |state: &AnyState, cost, now| {
        let by_rate = state.remaining(&rule, cost, now);
        let tightness = |index: usize| Tightness {
            denied: by_rate[index].denied,
            remaining: by_rate[index].units,
            capacity: rates[index].capacity(),
        };
        usize::from(tightness(1).is_tighter(tightness(0)))
    };
    assert!(state.admit(&rule, 9, at("0s")).is_admitted());
    assert_eq!(tightest(&state, 0, at("0s")), 0, "1 of 10, and 21 of 30");
    assert_eq!(tightest(&state, 2, at("0s")), 0);
    assert!(state.admit(&rule, 10, at("1m")).is_admitted());
    assert!(state.admit(&rule, 10, at("2m")).is_admitted());
    let retry = state.admit(&rule, 4, at("3m")).denied;
    assert_eq!(retry, Some(Retry::AfterNs(180 * 1_000_000_000)), "29 are owed, 1.5 of them paid; 2.5 must be");
    assert_eq!(tightest(&state, 4, at("3m")), 1);
    assert_eq!(tightest(&state, 0, at("3m")), 1);
}

proptest! {
    #[test]
    fn several_windows_admit_what_each_of_them_admits(
        requests in prop::collection::vec((0_u64..40_000, 0_u64..12, any::<bool>()), 1..80),
    ) {
        let (rule, rates) = rules();
        let mut together = AnyState::fresh(&rule);
        let mut alone: Vec<AnyState> = rates.iter().map(AnyState::fresh).collect();
        let mut now = at("0s");
        for (gap_ms, cost, is_undone) in requests {
            now = now.saturating_add_ns(gap_ms * 1_000_000);
            let singly: Vec<_> = alone.iter().zip(&rates).map(|(state, rate)| state.peek(rate, cost, now)).collect();
            let peeked = together.peek(&rule, cost, now);
            let decision = together.admit(&rule, cost, now);
            prop_assert_eq!(peeked, decision);
            prop_assert_eq!(decision.denied, singly.iter().map(|decision| decision.denied).max().unwrap_or(None));
            if decision.is_admitted() {
                prop_assert_eq!(Some(decision.remaining), singly.iter().map(|decision| decision.remaining).min());
            }
            if decision.is_admitted() && is_undone {
                let receipt = together.receipt(cost, now);
                together.refund(&rule, &receipt, now);
            } else if decision.is_admitted() {
                alone.iter_mut().zip(&rates).for_each(|(state, rate)| _ = state.admit(rate, cost, now));
            }
        }
    }

    /// The wait of several token buckets is that of the slowest.
    #[test]
    fn wait_is_when_the_last_of_a_queue_is_admitted(
        before in prop::collection::vec((0_u64..100_000, 0_u64..10), 1..30), costs in prop::collection::vec(1_u64..10, 1..20),
    ) {
        let (rule, _) = rules();
        let mut state = AnyState::fresh(&rule);
        let mut start: Timestamp = at("0s");
        for (gap_ms, cost) in before {
            start = start.saturating_add_ns(gap_ms * 1_000_000);
            state.admit(&rule, cost, start);
        }
        let last = costs[costs.len() - 1];
        let expected = state.wait(&rule, costs.iter().sum::<u64>() - last, last, start);
        let mut now = start;
        for cost in costs {
            if let Some(Retry::AfterNs(ns)) = state.peek(&rule, cost, now).denied {
                now = now.saturating_add_ns(ns);
            }
            prop_assert!(state.admit(&rule, cost, now).is_admitted());
        }
        prop_assert_eq!(Retry::AfterNs(now.ns_since(start)), expected);
    }
}
