//! Buckets that keys share once a limit has as many keys as it may remember.
//!
//! Each key falls into one of a fixed number of buckets by its hash. A bucket is charged for all of its
//! keys, so no key gets more than a bucket of its own would give it; it may get less.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::token_bucket::{Answer, State};
use crate::limit::{Key, Quota};
use crate::time::Timestamp;

/// 4096 buckets of 40 bytes: about 160 KB for a limit that overflows, nothing for others.
const BUCKETS: usize = 4096;

/// The shared buckets of one limit. A lock guards one bucket for the length of one decision.
#[derive(Debug)]
pub(super) struct Overflow {
    buckets: Box<[Mutex<Bucket>]>,
}

/// What all keys of one hash share.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    state: Option<State>,
    /// Decisions, counted here because one counter for all would be fought for.
    decided: u64,
}

impl Default for Overflow {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| Mutex::default()).collect() }
    }
}

impl Overflow {
    /// Runs `look` on the bucket of `key`.
    pub(super) fn with<T>(&self, key: Key, quota: &Quota, look: impl FnOnce(&mut State) -> T) -> T {
        look(self.lock(key).state.get_or_insert_with(|| State::fresh(quota)))
    }

    /// Decides a request and, if admitted, charges it to the bucket of `key`.
    pub(super) fn charge(&self, key: Key, quota: &Quota, cost: u64, now: Timestamp) -> Answer {
        let mut bucket = self.lock(key);
        bucket.decided += 1;
        bucket.state.get_or_insert_with(|| State::fresh(quota)).charge(quota, cost, now)
    }

    /// Gives back what was charged to the bucket of `key`.
    pub(super) fn refund(&self, key: Key, cost: u64, full_at: Timestamp, now: Timestamp) {
        if let Some(state) = self.lock(key).state.as_mut() {
            state.refund(cost, full_at, now);
        }
    }

    /// Whether every bucket is as good as new at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.buckets.iter().all(|bucket| {
            let state = bucket.lock().unwrap_or_else(PoisonError::into_inner).state;
            state.is_none_or(|state| state.idle_at() <= now)
        })
    }

    /// Decisions since this was last asked.
    pub(super) fn take_decided(&self) -> u64 {
        let take =
            |bucket: &Mutex<Bucket>| std::mem::take(&mut bucket.lock().unwrap_or_else(PoisonError::into_inner).decided);
        self.buckets.iter().map(take).sum()
    }

    fn lock(&self, key: Key) -> MutexGuard<'_, Bucket> {
        self.bucket(key).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bucket(&self, key: Key) -> &Mutex<Bucket> {
        // The second half: the first one places the key in the exact table.
        let index = key.second % BUCKETS as u64;
        &self.buckets[usize::try_from(index).unwrap_or(0)]
    }
}
