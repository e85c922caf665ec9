//! Shares of a limit: replicas that each spend a part of it together never spend more than the whole.

use proptest::prelude::*;

use super::properties::singles;
use super::{START_NS, algorithm};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, QuotaError, fixed_window};

/// Whether replicas see other windows or slots than the whole limit would: then only the bound of each share holds.
fn has_own_windows(rule: &Algorithm) -> bool {
    match rule {
        Algorithm::FixedWindow(rule) => matches!(rule.windows(), fixed_window::Windows::FromFirst(_)),
        Algorithm::LeakyBucket(rule) => rule.shapes,
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
