//! Rows with time as a column, although no decision depends on time.

use proptest::prelude::*;

use super::{Rule, State};
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::{at, check};

#[test]
fn charges_last_until_they_are_released() {
    check(
        "concurrency 3",
        "
        # at      cost  decision  remaining  reset  retry
          0s      2     admit     1          ?      -
          0s      2     deny      1          ?      release
          0s      4     deny      1          ?      never
          9h      1     admit     0          ?      -
          9h      0     admit     0          ?      -
          9h      wait 0 1 release
          9h      wait 0 4 never
          9h      refund 1
          9h      wait 1 1 0s
          9h      wait 2 1 release
          9h      2     admit     0          ?      -
        # a lowered maximum drains
        rule concurrency 1
          9h      1     deny      0          ?      release
          9h      refund 3
          9h      1     deny      0          ?      release
          9h      refund 2
          9h      0     admit     1          0s     -
          9h      1     admit     0          ?      -
        ",
    );
}

proptest! {
    #[test]
    fn never_more_than_max(max in 1_u64..10, requests in prop::collection::vec((1_u64..4, any::<Option<prop::sample::Index>>()), 1..100)) {
        let rule = Rule::new(max).unwrap();
        let mut state = State::fresh(&rule);
        let mut in_flight: Vec<(u64, super::Receipt)> = Vec::new();
        for (cost, ends) in requests {
            if let Some(ends) = ends.filter(|_| !in_flight.is_empty()) {
                let (_, receipt) = in_flight.swap_remove(ends.index(in_flight.len()));
                state.refund(&rule, &receipt, at("0s"));
            }
            let units: u64 = in_flight.iter().map(|(cost, _)| cost).sum();
            let decision = state.admit(&rule, cost, at("0s"));
            prop_assert_eq!(decision.is_admitted(), units + cost <= max);
            if decision.is_admitted() {
                in_flight.push((cost, state.receipt(cost, at("0s"))));
            }
        }
        let is_idle = in_flight.is_empty();
        prop_assert_eq!(state.idle_at() <= at("0s"), is_idle);
    }
}
