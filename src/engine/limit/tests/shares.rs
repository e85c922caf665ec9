//! Shares of a limit: replicas that each spend a part of it together never spend more than the whole.

use proptest::prelude::*;

use super::properties::singles;
use super::{START_NS, algorithm};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, QuotaError, Retry, Scale, fixed_window};

/// Whether replicas see other windows or slots than the whole limit would: then only the bound of each share holds.
fn has_own_windows(rule: &Algorithm) -> bool {
    match rule {
        Algorithm::FixedWindow(rule) => matches!(rule.windows(), fixed_window::Windows::FromFirst(_)),
        Algorithm::LeakyBucket(quota) => quota.shapes(),
        _ => false,
    }
}

proptest! {
    /// Each request that any share admits is one that the whole limit would have admitted.
    #[test]
    fn shares_admit_no_more_than_the_whole(
        whole in singles(),
        replicas in 1_u64..5,
        trace in prop::collection::vec((0_u64..3_000_000_000, 0..5_usize, 1_u64..4), 1..80),
    ) {
        prop_assume!(!has_own_windows(&whole));
        let Ok(share) = whole.share(replicas) else { return Ok(()) };
        let mut states: Vec<_> = (0..replicas).map(|_| AnyState::fresh(&share)).collect();
        let (mut all, mut now) = (AnyState::fresh(&whole), Timestamp::from_ns(START_NS));
        for (pause_ns, replica, cost) in trace {
            now = now.saturating_add_ns(pause_ns / 8);
            let replica = replica % states.len();
            if states[replica].admit(&share, cost, now).is_admitted() {
                prop_assert!(all.admit(&whole, cost, now).is_admitted(), "{whole:?} {share:?}");
            }
        }
    }
}

proptest! {
    /// A rule times zero admits nothing that has a cost, whatever a key has spent, and does not change what is spent.
    #[test]
    fn nothing_passes_a_rule_of_nothing(
        whole in prop_oneof![singles(), Just(algorithm("concurrency 3"))],
        spent in 0_u64..4,
        pause_ns in 0_u64..3_000_000_000,
        cost in 1_u64..4,
    ) {
        let nothing = whole.scaled(Scale { numerator: 0, denominator: 7 }).unwrap();
        let now = Timestamp::from_ns(START_NS);
        let mut state = AnyState::fresh(&whole);
        state.admit(&whole, spent, now);
        let (twin, now) = (state.clone(), now.saturating_add_ns(pause_ns));
        prop_assert_eq!(state.admit(&nothing, cost, now).denied, Some(Retry::Never));
        prop_assert_eq!(state.wait(&nothing, 5, cost, now), Retry::Never);
        prop_assert_eq!(state.peek(&nothing, 0, now).remaining, 0);
        prop_assert_eq!(nothing.percent(0), 0);
        prop_assert!(state.remaining(&nothing, cost, now).iter().all(|rate| rate.units == 0), "{:?}", nothing);
        let _ = (nothing.pace(now), nothing.portable_rate(now), state.export(&nothing, now));
        prop_assert_eq!(state.peek(&whole, 0, now).remaining, twin.peek(&whole, 0, now).remaining, "{:?}", whole);
        state.settle(&nothing, 5, u64::MAX, now);
        state.settle(&nothing, -5, u64::MAX, now);
        prop_assert_eq!(state.admit(&nothing, cost, now).denied, Some(Retry::Never));
    }
}

/// Rules times a scale: the units, and the nanoseconds in which one comes back.
#[test]
fn rules_are_scaled() {
    for (rule, (numerator, denominator), units, refill_ns) in [
        ("token_bucket 10/1s burst 20", (1, 2), 10, 200_000_000),
        ("token_bucket 10/1s burst 20", (1, 3), 6, 300_000_000),
        ("token_bucket 10/1s burst 20", (3, 1), 60, 33_333_334),
        ("token_bucket 10/1s burst 20", (1, 100), 1, 10_000_000_000),
        ("token_bucket 10/1s burst 20", (0, 3), 0, 100_000_000),
        ("leaky_bucket 10/1s burst 20", (1, 2), 10, 200_000_000),
        ("sliding_log 100/1m", (2, 3), 66, 60_000_000_000),
        ("sliding_log 100/1m", (1, 1000), 1, 60_000_000_000),
        ("sliding_window 90/1m", (1, 3), 30, 60_000_000_000),
        ("sub_window 90/1m", (1, 3), 30, 60_000_000_000),
        ("fixed_window 90/1m from first", (4, 3), 120, 60_000_000_000),
        ("concurrency 7", (1, 2), 3, 0),
        ("token_bucket 10/1s burst 10 + sliding_log 30/1m", (1, 2), 5, 60_000_000_000),
    ] {
        let scaled = algorithm(rule).scaled(Scale { numerator, denominator }).unwrap();
        assert_eq!((scaled.capacity(), scaled.refill_ns(1)), (units, refill_ns), "{rule} {numerator}/{denominator}");
    }
    for (rule, numerator, error) in [
        ("token_bucket 1000000/1s burst 20", 20, QuotaError::TooFast),
        ("sliding_log 100/1m", 10_001, QuotaError::TooMany),
    ] {
        assert_eq!(algorithm(rule).scaled(Scale { numerator, denominator: 1 }), Err(error), "{rule}");
    }
    let slow = algorithm("token_bucket 1/24h burst 1").scaled(Scale { numerator: 1, denominator: 100_000 });
    assert_eq!(slow, Err(QuotaError::TooLong));
}

/// The share of a limit, as its capacity and the time in which all of it comes back.
#[test]
fn a_share_is_an_equal_part() {
    for (whole, replicas, share) in [
        ("token_bucket 10/1s burst 20", 1, "token_bucket 10/1s burst 20"),
        ("token_bucket 10/1s burst 20", 2, "token_bucket 10/2s burst 10"),
        ("token_bucket 10/1s burst 20", 3, "token_bucket 10/3s burst 6"),
        ("leaky_bucket 10/1s burst 20", 4, "leaky_bucket 10/4s burst 5"),
        ("sliding_log 100/1m", 3, "sliding_log 33/1m"),
        ("sliding_window 100/1m", 3, "sliding_window 33/1m"),
        ("concurrency 7", 2, "concurrency 3"),
        (
            "token_bucket 10/1m burst 10 + token_bucket 30/1h burst 30",
            2,
            "token_bucket 10/2m burst 5 + token_bucket 30/2h burst 15",
        ),
    ] {
        assert_eq!(algorithm(whole).share(replicas), Ok(algorithm(share)), "{whole} / {replicas}");
    }
}

#[test]
fn a_share_of_nothing_is_refused() {
    for whole in ["token_bucket 10/1s burst 2", "sliding_window 2/1m", "concurrency 2", "sliding_log 2/1m"] {
        assert_eq!(algorithm(whole).share(3), Err(QuotaError::Zero), "{whole}");
    }
}
