//! Timers that fire late by random spans of time, for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Clock, Timestamp};
use crate::base::split_mix::{STEP, mix};

/// Random spans of time from a seed.
#[derive(Debug)]
pub(crate) struct Lateness {
    state: AtomicU64,
    ns_max: u64,
}

impl Lateness {
    /// The next span in nanoseconds.
    pub(super) fn next_ns(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed)) % (self.ns_max + 1)
    }
}

impl Clock {
    /// A clock that starts at `date`, so that a test knows where calendar windows begin.
    pub(crate) fn starting_at(date: Timestamp) -> Self {
        Self { unix_ns_at_start: date.as_ns(), ..Self::start() }
    }

    /// A copy of the clock whose timers fire up to `ns_max` nanoseconds late. The spans follow from `seed`.
    pub(crate) fn with_late_timers(self, seed: u64, ns_max: u64) -> Self {
        let lateness = Box::leak(Box::new(Lateness { state: AtomicU64::new(seed), ns_max }));
        Self { lateness: Some(lateness), ..self }
    }
}
