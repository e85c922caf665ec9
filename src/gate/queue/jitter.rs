//! Short random delays, so that several replicas do not ask a store for the same units at the same instant.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::split_mix::{STEP, mix};

/// Delays of all waiting requests of a process.
#[derive(Debug)]
pub(in crate::gate) struct Jitter {
    state: AtomicU64,
}

/// The longest delay in nanoseconds.
const DELAY_NS_MAX: u64 = 4_000_000;

impl Jitter {
    /// The delays that follow from `seed`, which differs between replicas.
    pub(in crate::gate) fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Nanoseconds to add to a wait: at most 2 % of it, and at most 4 ms.
    pub(in crate::gate) fn next_ns(&self, wait_ns: u64) -> u64 {
        let most = (wait_ns / 50).min(DELAY_NS_MAX);
        let random = mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP));
        random % (most + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
