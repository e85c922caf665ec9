//! Rows with time as a column, and properties of the module's doc.

mod leaky;
mod properties;

use std::time::Duration;

use super::State;
use crate::base::time::Timestamp;
use crate::engine::limit::tests::tables;
use crate::engine::limit::{Quota, Rate, Retry};

const START_NS: u64 = 1_700_000_000_000_000_000;

fn ns(text: &str) -> u64 {
    let duration: Duration = humantime::parse_duration(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    u64::try_from(duration.as_nanos()).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::from_ns(START_NS + ns(text))
}

fn quota(count: u64, period: &str, burst: u64) -> Quota {
    Quota::new(Rate { count, period_ns: ns(period) }, burst).unwrap()
}

/// Runs rows against one key:
///
/// - `quota COUNT PERIOD BURST`: the quota from here on
/// - `AT refund`: gives back the last admitted charge
/// - `AT COST DECISION REMAINING RESET RETRY`: a request, whose peek agrees
fn check(rows: &str) {
    let mut quota_now = quota(1, "1s", 1);
    let mut state = State::fresh(&quota_now);
    let mut last_charge = (0, Timestamp::ZERO);
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        match cells[..] {
            ["quota", count, period, burst] => {
                quota_now = quota(count.parse().unwrap(), period, burst.parse().unwrap());
            }
            [when, "refund"] => state.refund(last_charge.0, last_charge.1, at(when)),
            [when, cost, decision, remaining, reset, retry] => {
                let (now, cost) = (at(when), cost.parse().unwrap());
                let peeked = state.peek(&quota_now, cost, now);
                let found = state.admit(&quota_now, cost, now);
                assert_eq!(peeked, found, "a peek differs: {row}");
                if found.is_admitted() && cost > 0 {
                    last_charge = (cost, found.full_at(now));
                }
                let retry = match retry {
                    "-" => None,
                    "never" => Some(Retry::Never),
                    text => Some(Retry::AfterNs(ns(text))),
                };
                assert_eq!(if found.is_admitted() { "admit" } else { "deny" }, decision, "decision: {row}");
                assert_eq!(found.remaining, remaining.parse::<u64>().unwrap(), "remaining: {row}");
                assert_eq!(found.reset_after_ns, ns(reset), "reset: {row}");
                assert_eq!(found.denied, retry, "retry: {row}");
            }
            _ => panic!("not a row: {row}"),
        }
    }
}

tables! {
    five_a_second: "
        quota 5 1s 5
        # at      cost   decision   remaining   reset    retry
          0ms     5      admit      0           1s       -
          0ms     1      deny       0           1s       200ms
          100ms   1      deny       0           900ms    100ms
          199ms   1      deny       0           801ms    1ms
          200ms   1      admit      0           1s       -
          200ms   6      deny       0           1s       never
          200ms   5      deny       0           1s       1s
          600ms   3      deny       2           600ms    200ms
          600ms   2      admit      0           1s       -
          5s      0      admit      5           0s       -
          5s      5      admit      0           1s       -
    ";

    other_rates: "
        quota 100 1m 100
        # at            cost  decision  remaining  reset   retry
          0s            100   admit     0          60s     -
          599ms         1     deny      0          59401ms 1ms
          600ms         1     admit     0          60s     -
          30s           1     admit     48         31200ms -
          2h            0     admit     100        0s      -

        quota 2 1day 2
          1day          1     admit     1          12h     -
          1day          1     admit     0          24h     -
          1day          1     deny      0          24h     12h
          36h           1     admit     0          24h     -
          60h           2     admit     0          24h     -

        quota 1000000 1s 1000000
          100h          1000000 admit   0          1s      -
          100h          1     deny      0          1s      1us
    ", "
        # 3/s: an interval is rounded up to 333333334 ns, so never too much is admitted
        quota 3 1s 3
        # at            cost  decision  remaining  reset         retry
          0s            3     admit     0          1000000002ns  -
          333333333ns   1     deny      0          666666669ns   1ns
          333333334ns   1     admit     0          1000000002ns  -
    ";

    burst_of_one_spaces_requests_evenly: "
        quota 10 1s 1
        # at      cost  decision  remaining  reset   retry
          0ms     1     admit     0          100ms   -
          0ms     1     deny      0          100ms   100ms
          99ms    1     deny      0          1ms     1ms
          100ms   1     admit     0          100ms   -
          250ms   1     admit     0          100ms   -
          349ms   1     deny      0          1ms     1ms
          350ms   2     deny      1          0s      never
    ";

    cost_zero_is_admitted_and_takes_nothing: "
        quota 1 1s 2
        # at      cost  decision  remaining  reset  retry
          0s      0     admit     2          0s     -
          0s      2     admit     0          2s     -
          0s      0     admit     0          2s     -
          0s      0     admit     0          2s     -
          1s      1     admit     0          2s     -
    ";

    clock_that_stands_still_or_runs_back: "
        quota 1 1s 2
        # at      cost  decision  remaining  reset  retry
          10s     1     admit     1          1s     -
          10s     1     admit     0          2s     -
          10s     1     deny      0          2s     1s
        # the announced wait is the true one, also seen from before the last charge
          9s      1     deny      0          3s     2s
          0s      0     admit     0          12s    -
          10999ms 1     deny      0          1001ms 1ms
          11s     1     admit     0          2s     -
    ";
}

#[test]
fn a_refund_gives_back_units_that_have_not_come_back() {
    check(
        "
        quota 1 1s 3
        # at      cost  decision  remaining  reset   retry
          0s      3     admit     0          3s      -
          0s      refund
          0s      3     admit     0          3s      -
        # a full refund while everybody was waiting for budget
          1s      1     admit     0          3s      -
          2s      refund
          2s      2     admit     0          3s      -
        ",
    );
    check(
        "
        # what has come back is not given again
        quota 1 1s 1
          0s      1     admit     0          1s      -
          1s      refund
          1s      1     admit     0          1s      -
          1s      1     deny      0          1s      1s
        ",
    );
    // Regression: the unit had come back, another request spent it, and the refund gave it a third time.
    let quota = quota(1, "1s", 1);
    let mut state = State::fresh(&quota);
    let early = state.admit(&quota, 1, at("0s"));
    assert!(state.admit(&quota, 1, at("1s")).is_admitted());
    state.refund(1, early.full_at(at("0s")), at("1s"));
    assert_eq!(state.admit(&quota, 1, at("1s")).denied, Some(Retry::AfterNs(ns("1s"))));
}

tables! {
    a_changed_rate_keeps_spent_units_and_applies_at_once: "
        # raised tenfold
        quota 1 1s 10
        # at        cost  decision  remaining  reset    retry
          0s        10    admit     0          10s      -
        quota 10 1s 10
          0s        1     deny      0          1s       100ms
        # regression: until the first admission, units still came back at the old rate
          50ms      1     deny      0          950ms    50ms
          99ms      1     deny      0          901ms    1ms
          100ms     1     admit     0          1s       -
        # lowered tenfold
        quota 1 1s 10
          100ms     1     deny      0          10s      1s
          1099ms    1     deny      0          9001ms   1ms
          1100ms    1     admit     0          10s      -
        # half of it spent stays half of it spent
          6100ms    0     admit     5          5s       -
        quota 1 1m 10
          6100ms    0     admit     5          5m       -
          6100ms    5     admit     0          10m      -
        # an interval that its tag does not say exactly: a unit is taken for a little more than one, for less than a millisecond
        quota 5 1day 5
          1day      1     admit     4          4h48m    -
        quota 2 1day 2
          86400001ms 1    admit     0          23h59m59s997ms991us520ns -
    ";

    lowered_burst_leaves_a_debt_with_an_honest_retry: "
        quota 1 1s 100
        # at        cost  decision  remaining  reset    retry
          0s        50    admit     50         50s      -
        quota 1 1s 10
        # regression: said 1s, and again 1s, and again
          0s        1     deny      0          50s      41s
          0s        0     admit     0          50s      -
          0s        11    deny      0          50s      never
          40s       1     deny      0          10s      1s
          41s       1     admit     0          10s      -
        quota 1 1s 100
          41s       1     admit     89         11s      -
    ";
}

#[test]
fn edges_of_u64() {
    let slow = Quota::new(Rate { count: 1, period_ns: 1 << 62 }, 1).unwrap();
    let fast = Quota::new(Rate { count: 1, period_ns: 100 }, 1 << 55).unwrap();
    let now = at("0s");
    let mut state = State::fresh(&slow);
    assert_eq!(state.admit(&slow, u64::MAX, now).denied, Some(Retry::Never));
    assert!(state.admit(&slow, 1, now).is_admitted());
    assert_eq!(state.peek(&slow, 1, now).denied, Some(Retry::AfterNs(1 << 62)));
    assert_eq!(state.wait_ns(&slow, u64::MAX, now), u64::MAX);
    state.adopt(&fast, now);
    assert_eq!(state.peek(&fast, 0, now).remaining, (1 << 55) - 1);
    assert!(state.admit(&fast, (1 << 55) - 1, now).is_admitted());
    state.adopt(&slow, now);
    assert_eq!(state.peek(&slow, 0, now).remaining, 0, "saturated, not wrapped");
    assert!(!state.admit(&slow, 1, now).is_admitted());
    state.refund(u64::MAX, Timestamp::from_ns(u64::MAX), Timestamp::ZERO);
    assert_eq!(state.idle_at(), Timestamp::ZERO);
    assert!(State::fresh(&slow).admit(&slow, 1, Timestamp::ZERO).is_admitted());
}

#[test]
fn quotas_that_cannot_be() {
    use crate::engine::limit::QuotaError::{TooFast, TooLong, Zero};
    let new = |count, period_ns, burst| Quota::new(Rate { count, period_ns }, burst).err();
    let rows = [
        (0, 1, 1, Some(Zero)),
        (1, 0, 1, Some(Zero)),
        (1, 1000, 0, Some(Zero)),
        (10, 1000, 1, None),
        (11, 1000, 1, Some(TooFast)),
        (u64::MAX, u64::MAX, 1, Some(TooFast)),
        (1, 1 << 62, 1, None),
        (1, (1 << 62) + 1, 1, Some(TooLong)),
        (1, 1 << 61, 2, None),
        (1, 1 << 61, 3, Some(TooLong)),
        (1, u64::MAX, u64::MAX, Some(TooLong)),
    ];
    for (count, period_ns, burst, error) in rows {
        assert_eq!(new(count, period_ns, burst), error, "{count}/{period_ns}ns burst {burst}");
    }
}

/// Regression: several charges of one key were all given back in full, although the units of the second had come back
/// by themselves.
#[test]
fn charges_undone_in_any_order() {
    use crate::engine::limit::tests::check;
    const RULE: &str = "token_bucket 1/1s burst 3";
    check(
        RULE,
        "
        # in the order they were made
        # at      cost  decision  remaining  reset    retry
          0s      1     admit     2          1s       -
          0s      1     admit     1          2s       -
          0s      1     admit     0          3s       -
          0s      refund 1
          0s      0     admit     1          2s       -
          0s      refund 2
          0s      refund 3
          0s      0     admit     3          0s       -
        # in the reverse one
          1s      2     admit     1          2s       -
          1s      1     admit     0          3s       -
          1s      refund 5
          1s      refund 4
          1s      0     admit     3          0s       -
        # the first and the last, then the one between
          2s      1     admit     2          1s       -
          2s      1     admit     1          2s       -
          2s      1     admit     0          3s       -
          2s      refund 6
          2s      refund 8
          2s      refund 7
          2s      0     admit     3          0s       -
        ",
    );
    check(
        RULE,
        "
          0s      1     admit     2          1s       -
          0s      1     admit     1          2s       -
          0s      refund 1
        # the second has become the first, and has come back by now
          1s      1     admit     2          1s       -
          1500ms  refund 2
          1500ms  0     admit     2          500ms    -
        ",
    );
    check(
        RULE,
        "
        # one made at another rate has no place in this one
          0s      3     admit     0          3s       -
        rule token_bucket 10/1s burst 3
          0s      1     deny      0          300ms    100ms
          0s      refund 1
          0s      0     admit     0          300ms    -
        # nor after the rate is what it was
          1s      3     admit     0          300ms    -
        rule token_bucket 1/1s burst 3
          1s      1     deny      0          3s       1s
          1s      refund 1
          1s      0     admit     0          3s       -
        ",
    );
}

/// Regression: units given back were counted in 32 bits, and 2^32 of them counted as none.
#[test]
fn many_units_are_given_back() {
    use crate::engine::limit::state::State as _;
    use crate::engine::limit::token_bucket::Bucket;
    let quota = Quota::new(Rate { count: 10_000_000, period_ns: 1_000_000_000 }, 1 << 34).unwrap();
    let mut state = Bucket::fresh(&quota);
    let charge = |state: &mut Bucket| {
        assert!(state.admit(&quota, 1 << 31, at("0s")).is_admitted());
        state.receipt(1 << 31, at("0s"))
    };
    let receipts = [(); 4].map(|()| charge(&mut state));
    for receipt in &receipts[..2] {
        state.refund(&quota, receipt, at("0s"));
    }
    // All has come back after 430 s, and others take it.
    assert!(state.admit(&quota, 1 << 34, at("500s")).is_admitted());
    state.refund(&quota, &receipts[3], at("500s"));
    assert_eq!(state.peek(&quota, 0, at("500s")).remaining, 0);
}

/// A request that costs nothing does not make a full bucket known for longer.
#[test]
fn a_peek_that_is_charged_keeps_no_bucket() {
    use crate::engine::limit::state::{self, State as _};
    let quota = quota(1, "1s", 10);
    let mut state = State::fresh(&quota);
    state.admit(&quota, 1, at("0s"));
    let receipt = state.receipt(1, at("0s"));
    state.admit(&quota, 1, at("0s"));
    state::State::refund(&mut state, &quota, &receipt, at("0s"));
    let idle_at = state.idle_at();
    assert!(idle_at >= at("2s"));
    assert!(state.admit(&quota, 0, at("1500ms")).is_admitted());
    assert_eq!(state.idle_at(), idle_at);
}

#[test]
fn true_costs_are_settled_afterwards() {
    crate::engine::limit::tests::check(
        // Milliseconds of work: one second of it each second, a minute at once.
        "token_bucket 1000/1s burst 60000",
        "
        # at       cost  decision  remaining  reset    retry
          0s       1     admit     59999      1ms      -
        # it took 70 s
          70s      settle 70000 600000
          70s      0     admit     0          70s      -
          70s      1     deny      0          70s      10001ms
          80s      1     deny      0          60s      1ms
          80001ms  1     admit     0          60s      -
        # a debt has a bound
          80001ms  settle 1000000 5000
          80001ms  1     deny      0          65s      5001ms
          80001ms  settle 1 0
          80001ms  1     deny      0          65s      5001ms
        # an estimate was too high, by more than is owed
          80001ms  settle -64000 5000
          80001ms  0     admit     59000      1s       -
          80001ms  settle -64000 5000
          80001ms  0     admit     60000      0s       -
        ",
    );
}
