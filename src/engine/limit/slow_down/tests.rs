//! Delays under every algorithm.

use super::SlowDown;
use crate::engine::limit::AnyState;
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::{algorithm, at, ns};

fn slow_down() -> SlowDown {
    SlowDown { step_ns: ns("100ms"), max_ns: ns("5s") }
}

#[test]
fn step_for_each_unit_up_to_the_most() {
    let rows = [(0, "0s"), (1, "100ms"), (49, "4900ms"), (50, "5s"), (51, "5s"), (u64::MAX, "5s")];
    for (over, delay) in rows {
        assert_eq!(slow_down().delay_ns(over), ns(delay), "{over} over");
    }
    assert_eq!(slow_down().max_debt(), 50);
    assert_eq!(SlowDown { step_ns: 0, max_ns: 1 }.max_debt(), 0);
    assert_eq!(SlowDown { step_ns: 3, max_ns: 10 }.max_debt(), 4);
}

/// Runs `AT COST DELAY`.
fn check(rule: &str, rows: &str) {
    let rule = &algorithm(rule);
    let mut state = AnyState::fresh(rule);
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let delay_ns = slow_down().admit(&mut state, rule, cells[1].parse().unwrap(), at(cells[0])).delay_ns;
        assert_eq!(delay_ns, ns(cells[2]), "{row} by {rule:?}");
    }
}

#[test]
fn delay_grows_with_the_debt_and_falls_as_it_is_paid() {
    for rule in ["token_bucket 1/1s burst 2", "leaky_bucket 1/1s burst 2"] {
        check(
            rule,
            "
            # at    cost  delay
              0s    2     0s
              0s    1     100ms
              0s    1     200ms
              0s    3     500ms
              1s    1     500ms
              7s    1     0s
              7s    100   5s
            # the debt ends where the delay does
              7s    100   5s
              57s   1     100ms
            ",
        );
    }
    check(
        "fixed_window 2/10s from first",
        "
          0s    2     0s
          1s    1     100ms
          2s    1     200ms
          10s   2     0s
        ",
    );
    check("sliding_log 2/10s", "0s 1 0s\n 1s 2 100ms\n 1s 1 200ms\n 10s 1 200ms\n 21s 2 0s");
}

#[test]
fn a_delayed_charge_can_be_given_back() {
    for rule in
        ["token_bucket 1/1s burst 2", "leaky_bucket 1/1s burst 2", "sliding_log 2/10s", "fixed_window 2/10s from first"]
    {
        let rule = &algorithm(rule);
        // within the limit, partly beyond it, beyond it, up to the bound of debts, and at it
        for spent in [0, 1, 2, 30, 52] {
            for cost in [1, 2, 5, 60] {
                let mut state = AnyState::fresh(rule);
                state.settle(rule, spent, 50, at("0s"));
                let stands = |state: &AnyState| (state.peek(rule, 0, at("0s")).remaining, state.over(rule, at("0s")));
                let before = stands(&state);
                let slowed = slow_down().admit(&mut state, rule, cost, at("0s"));
                state.refund(rule, &slowed.receipt, at("0s"));
                assert_eq!(stands(&state), before, "{rule:?}: {cost} after {spent}");
            }
        }
    }
}
