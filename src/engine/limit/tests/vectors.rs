//! Vectors that every algorithm passes.

use super::{START_NS, algorithm, at, check, each_algorithm, ns};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, Retry};

/// Five units a second, in each algorithm's terms.
fn five() -> Vec<String> {
    each_algorithm(
        "5/1s",
        &[
            "fixed_window 5 per 1 s UTC",
            "fixed_window 5 per 1 s Asia/Kathmandu",
            "sub_window 5/1s in 5",
            "token_bucket 5/1s + sliding_log 5/1s",
        ],
    )
}

/// Runs `AT COST DECISION` by each of them.
fn all(rules: &[String], rows: &str) {
    for rule in rules {
        let rule = &algorithm(rule);
        let mut state = AnyState::fresh(rule);
        for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
            let [when, cost, expected] = row.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{row}") };
            let now = at(when);
            let decision = state.admit(rule, cost.parse().unwrap(), now);
            let found = match decision.denied {
                None => "admit",
                Some(Retry::Never) => "never",
                Some(_) => "deny",
            };
            assert_eq!(found, expected, "{row} by {rule:?}");
        }
    }
}

#[test]
fn burst_idle_burst() {
    all(
        &five(),
        "
        # at     cost  decision
          0s     1     admit
          0s     3     admit
          0s     2     deny
          0s     1     admit
          0s     1     deny
        # a pause of at least two periods
          3s     5     admit
          3s     1     deny
          3s     0     admit
          60s    1     admit
          60s    4     admit
          60s    1     deny
        ",
    );
}

#[test]
fn cost_above_the_quota() {
    all(
        &five(),
        "
          0s     6                     never
          0s     18446744073709551615  never
          0s     5                     admit
          0s     6                     never
          0s     5                     deny
        ",
    );
}

#[test]
fn clock_that_stands_still_or_runs_back() {
    all(
        &five(),
        "
          10s    3     admit
          10s    2     admit
          10s    1     deny
          10s    1     deny
        # what was charged later counts
          9s     1     deny
          10s    1     deny
          13s    5     admit
        ",
    );
}

#[test]
fn from_twice_a_day_to_a_million_a_second() {
    all(
        &each_algorithm("2/1day", &[]),
        "
          0h     1     admit
          0h     1     admit
          0h     1     deny
          11h    1     deny
          48h    2     admit
          48h    1     deny
        ",
    );
    all(
        &each_algorithm("1000000/1s", &[]),
        "
          0s     999999   admit
          0s     1        admit
          0s     1        deny
          0s     1000001  never
          2s     1000000  admit
          2s     1        deny
        ",
    );
}

#[test]
fn edges_of_u64() {
    let far = Timestamp::from_ns(u64::MAX);
    for rule in five().iter().map(String::as_str).chain(["concurrency 5", "leaky_bucket 5/1s shapes"]) {
        let rule = &algorithm(rule);
        for now in [Timestamp::ZERO, Timestamp::from_ns(1), Timestamp::from_ns(START_NS), far] {
            let mut state = AnyState::fresh(rule);
            assert!(state.admit(rule, 5, now).is_admitted(), "{rule:?} at {now:?}");
            let receipt = state.receipt(5, now);
            // At the end of time a bucket cannot represent a deficit.
            assert!(now == far || state.admit(rule, 5, now).denied.is_some(), "{rule:?} at {now:?}");
            assert_eq!(state.peek(rule, u64::MAX, now).denied, Some(Retry::Never));
            assert_eq!(state.wait(rule, u64::MAX, u64::MAX, now), Retry::Never);
            assert!(state.wait(rule, u64::MAX, 1, now) >= state.wait(rule, 0, 1, now));
            state.settle(rule, i64::MAX, u64::MAX, now);
            assert!(!state.peek(rule, 1, now).is_admitted() || now == far, "{rule:?} at {now:?}");
            state.settle(rule, i64::MIN, 0, now);
            state.refund(rule, &receipt, now);
            state.refund(rule, &receipt, Timestamp::ZERO);
            state.peek(rule, 1, far);
            state.over(rule, far);
        }
    }
    let huge = u64::MAX.to_string();
    let rules =
        [format!("sliding_window {huge}/1s"), format!("sub_window {huge}/1s in 3"), format!("concurrency {huge}")];
    for rule in rules {
        let rule = &algorithm(&rule);
        let mut state = AnyState::fresh(rule);
        assert_eq!(state.admit(rule, u64::MAX, at("0s")).remaining, 0);
        assert!(!state.peek(rule, 1, at("0s")).is_admitted());
        assert!(matches!(rule, Algorithm::Concurrency(_)) || state.peek(rule, u64::MAX, at("2s")).is_admitted());
    }
    let longest = (1_u64 << 62).to_string() + "ns";
    for rule in [
        format!("sliding_window 3/{longest}"),
        format!("sub_window 3/{longest} in 7"),
        format!("sliding_log 3/{longest}"),
    ] {
        let rule = &algorithm(&rule);
        let mut state = AnyState::fresh(rule);
        assert!(state.admit(rule, 3, at("0s")).is_admitted());
        assert!(!state.admit(rule, 1, at("3000days")).is_admitted());
        assert!(ns("1s") < state.idle_at().ns_since(at("0s")));
    }
}

#[test]
fn several_admit_together_or_not_at_all() {
    check(
        "token_bucket 2/1s burst 2 + fixed_window 3/1m from first",
        "
        # at     cost  decision  remaining  reset  retry
          0s     1     admit     1          60s    -
          0s     1     admit     0          60s    -
        # the bucket refuses: the window is not charged
          0s     1     deny      0          60s    500ms
          0s     3     deny      0          60s    never
          1s     1     admit     0          59s    -
        # the window refuses, for longer: the bucket is not charged
          1500ms 1     deny      0          58500ms 58500ms
          2s     0     admit     0          58s    -
          60s    2     admit     0          60s    -
          60s    refund 4
          60s    2     admit     0          60s    -
        # a window is taken away, and one is added
        rule token_bucket 2/1s burst 2 + fixed_window 3/1m from first + concurrency 1
          61s    1     admit     0          ?      -
          61s    1     deny      0          ?      release
          61s    refund 6
          61s    1     admit     0          ?      -
        ",
    );
}
