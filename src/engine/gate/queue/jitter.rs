//! Random delays, so that several replicas do not ask a store for the same units at the same instant.
//!
//! If the fronts of N replicas all ask when a unit is due, a unit costs N calls. So once other replicas have taken units
//! that a front waited for, it asks somewhat later, for units that have come back meanwhile. The bucket must have room for
//! them, so the fleet loses none: a queue takes several when it asks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::split_mix::{STEP, mix};
use crate::base::time::Timestamp;
use crate::engine::limit::Algorithm;

/// Delays of all waiting requests of a process.
#[derive(Debug)]
pub(in crate::engine::gate) struct Jitter {
    state: AtomicU64,
}

/// The longest delay in nanoseconds.
const DELAY_NS_MAX: u64 = 4_000_000;

impl Jitter {
    /// The delays that follow from `seed`, which differs between replicas.
    pub(in crate::engine::gate) fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Nanoseconds to add to a wait: at most 2 % of it, and at most 4 ms.
    pub(in crate::engine::gate) fn next_ns(&self, wait_ns: u64) -> u64 {
        self.up_to((wait_ns / 50).min(DELAY_NS_MAX))
    }

    /// A random instant up to `spread_ns` after `slot`, but not after both `slot` and `last`.
    pub(super) fn later(&self, slot: Timestamp, spread_ns: u64, last: Option<Timestamp>) -> Timestamp {
        let most = last.map_or(spread_ns, |last| last.ns_since(slot).min(spread_ns));
        slot.saturating_add_ns(self.up_to(most))
    }

    /// A random number, at most `most`.
    fn up_to(&self, most: u64) -> u64 {
        self.bits() % most.saturating_add(1)
    }

    /// Random bits.
    pub(in crate::engine::gate) fn bits(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

/// The longest time in nanoseconds by which a front asks later for `cost` units that the fronts of `replicas` want. In twice
/// as many turns as there are others, 1.4 calls cost a unit; with one turn for each other, two. 0 for limits whose units
/// come back in other ways.
pub(super) fn spread_ns(rule: &Algorithm, cost: u64, replicas: u64) -> u64 {
    let Algorithm::TokenBucket(quota) = rule else { return 0 };
    let cost = cost.max(1);
    let room = (quota.burst() / cost).saturating_sub(1);
    let turns = replicas.saturating_sub(1).saturating_mul(2).min(room);
    turns.saturating_mul(cost).saturating_mul(quota.interval_ns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::tests::algorithm;

    #[test]
    fn a_bucket_has_room_for_the_units_of_a_spread() {
        let turn = 10_000_000;
        for (rule, cost, replicas, turns) in [
            ("token_bucket 100/1s burst 10", 1, 3, 4),
            ("token_bucket 100/1s burst 10", 1, 10, 9),
            ("token_bucket 100/1s burst 10", 4, 3, 4), // one turn of four units
            ("token_bucket 100/1s burst 10", 10, 3, 0),
            ("token_bucket 100/1s burst 1", 1, 3, 0),
            ("token_bucket 100/1s burst 10", 1, 1, 0),
            ("leaky_bucket 100/1s burst 10", 1, 3, 0),
            ("sliding_log 100/1s", 1, 3, 0),
        ] {
            assert_eq!(spread_ns(&algorithm(rule), cost, replicas), turns * turn, "{rule} {cost} {replicas}");
        }
        let (jitter, slot) = (Jitter::new(1), Timestamp::from_ns(1000));
        let later = |spread_ns, last: Option<u64>| jitter.later(slot, spread_ns, last.map(Timestamp::from_ns)).as_ns();
        for _ in 0..50 {
            assert_eq!([later(0, None), later(50, Some(900))], [1000; 2]);
            assert!((1000..=1050).contains(&later(50, None)) && (1000..=1010).contains(&later(50, Some(1010))));
        }
    }

    #[test]
    fn a_delay_is_a_small_part_of_the_wait() {
        let (one, other) = (Jitter::new(1), Jitter::new(2));
        for (wait_ns, most) in [(0, 0), (49, 0), (50_000_000, 1_000_000), (u64::MAX, DELAY_NS_MAX)] {
            let delays: Vec<[u64; 2]> = (0..100).map(|_| [one.next_ns(wait_ns), other.next_ns(wait_ns)]).collect();
            assert!(delays.iter().flatten().all(|delay| *delay <= most), "{wait_ns}");
            let longest = delays.iter().flatten().max().copied();
            assert!(longest >= Some(most / 2), "{wait_ns}: {longest:?}");
            assert!(most == 0 || delays.iter().any(|[one, other]| one != other), "{wait_ns}");
        }
    }
}
