//! Buckets that keys share once a limit has as many keys as it may remember.
//!
//! Each key falls into one of a fixed number of buckets by its hash. A bucket is charged for all of its
//! keys, so no key gets more than a bucket of its own would give it; it may get less.

use std::sync::{Mutex, PoisonError};

use crate::limit::Key;
use crate::limit::Quota;
use crate::limit::token_bucket::State;
use crate::time::Timestamp;

/// 4096 buckets of 24 bytes: about 100 KB for a limit that overflows, nothing for others.
const BUCKETS: usize = 4096;

/// The shared buckets of one limit. A lock guards one bucket for the length of one decision.
#[derive(Debug)]
pub(super) struct Overflow {
    buckets: Box<[Mutex<Option<State>>]>,
}

impl Default for Overflow {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| Mutex::new(None)).collect() }
    }
}

impl Overflow {
    /// Runs `decide` on the bucket of `key`.
    pub(super) fn with<T>(&self, key: Key, quota: &Quota, decide: impl FnOnce(&mut State) -> T) -> T {
        let mut bucket = self.bucket(key).lock().unwrap_or_else(PoisonError::into_inner);
        decide(bucket.get_or_insert_with(|| State::fresh(quota)))
    }

    /// Gives back what was charged to the bucket of `key`.
    pub(super) fn refund(&self, key: Key, cost: u64, full_at: Timestamp, now: Timestamp) {
        let mut bucket = self.bucket(key).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = bucket.as_mut() {
            state.refund(cost, full_at, now);
        }
    }

    /// Whether every bucket is as good as new at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.buckets.iter().all(|bucket| {
            let state = *bucket.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_none_or(|state| state.idle_at() <= now)
        })
    }

    fn bucket(&self, key: Key) -> &Mutex<Option<State>> {
        // The second half: the first one places the key in the exact table.
        let index = key.halves[1] % BUCKETS as u64;
        &self.buckets[usize::try_from(index).unwrap_or(0)]
    }
}
