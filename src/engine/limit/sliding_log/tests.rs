//! Rows with time as a column, and the entries of a log.

use super::{COUNT_MAX, Rule, State};
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::{at, check, rate, tables};
use crate::engine::limit::{QuotaError, Rate};

tables! {
    each_charge_lasts_a_period: "sliding_log 3/10s" => "
        # at     cost  decision  remaining  reset  retry
          0s     1     admit     2          10s    -
          4s     2     admit     0          10s    -
          4s     1     deny      0          10s    6s
          4s     2     deny      0          10s    10s
          4s     4     deny      0          10s    never
          9999ms 1     deny      0          4001ms 1ms
          10s    1     admit     0          10s    -
          10s    1     deny      0          10s    4s
          10s    wait 0 1 4s
          10s    wait 2 1 10s
          10s    wait 3 1 14s
          10s    wait 5 1 20s
          10s    wait 7 1 24s
          14s    1     admit     1          10s    -
    ";

    refunds_are_exact_in_any_order: "sliding_log 3/10s" => "
        # at     cost  decision  remaining  reset  retry
          0s     1     admit     2          10s    -
          1s     1     admit     1          10s    -
          2s     1     admit     0          10s    -
          3s     refund 2
          3s     1     admit     0          10s    -
          4s     refund 3
          4s     refund 4
          4s     0     admit     2          6s     -
          5s     refund 1
          5s     0     admit     3          0s     -
    ";

    a_changed_rule_keeps_spent_units: "sliding_log 5/10s" => "
        # at     cost  decision  remaining  reset  retry
          0s     2     admit     3          10s    -
          8s     2     admit     1          10s    -
        rule sliding_log 3/10s
          8s     1     deny      0          10s    2s
        rule sliding_log 3/2s
          9s     1     admit     0          2s     -
        # what has expired stays so
        rule sliding_log 3/1h
          10s    1     admit     1          1h     -
    ";
}

#[test]
fn memory_is_bounded_and_refusals_take_none() {
    let rule = Rule::new(rate("50/1s")).unwrap();
    let mut state = State::fresh(&rule);
    for step in 0..10_000 {
        state.admit(&rule, 1, at("0s").saturating_add_ns(step * 1_000_000));
        // Entries that expired in the last 10 ms stay.
        assert!(state.log.len() <= 50 + 10);
    }
    assert!(state.log.capacity() <= 2 * (50 + 10));
    let refused = state.log.clone();
    for _ in 0..100 {
        state.admit(&rule, 2, at("9999ms"));
    }
    assert_eq!(state.log, refused);
    assert_eq!(Rule::new(Rate { count: COUNT_MAX + 1, period_ns: 1 }).err(), Some(QuotaError::TooMany));
}
