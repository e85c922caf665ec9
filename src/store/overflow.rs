//! Buckets that keys share once a limit has as many keys as it may remember.
//!
//! Each key falls into one of a fixed number of buckets by its hash. A bucket is charged for all of its
//! keys, so no key gets more than a bucket of its own would give it; it may get less.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BufMut;

use super::kept::Kept;
use super::snapshot::{Emit, Tag};
use crate::limit::{Key, Unpacker};
use crate::time::Timestamp;

/// 4096 buckets of 40 bytes: about 160 KB for a limit that overflows, nothing for others.
const BUCKETS: usize = 4096;

/// The shared buckets of one limit. A lock guards one bucket for the length of one decision.
#[derive(Debug)]
pub(super) struct Overflow<S> {
    buckets: Box<[Mutex<Bucket<S>>]>,
}

/// What all keys of one hash share.
#[derive(Debug)]
struct Bucket<S> {
    state: Option<S>,
    /// Decisions, counted here because one counter for all would be fought for.
    decided: u64,
}

impl<S> Default for Overflow<S> {
    fn default() -> Self {
        let empty = |_| Mutex::new(Bucket { state: None, decided: 0 });
        Self { buckets: (0..BUCKETS).map(empty).collect() }
    }
}

impl<S: Kept> Overflow<S> {
    /// Runs `look` on the bucket of `key`.
    pub(super) fn with<T>(&self, key: Key, rule: &S::Rule, look: impl FnOnce(&mut S) -> T) -> T {
        look(self.lock(key).state.get_or_insert_with(|| S::fresh(rule)))
    }

    /// Decides a request and, if admitted, charges it to the bucket of `key`.
    pub(super) fn charge(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> S::Answer {
        let mut bucket = self.lock(key);
        bucket.decided += 1;
        bucket.state.get_or_insert_with(|| S::fresh(rule)).charge(rule, cost, now)
    }

    /// Undoes something that was charged to the bucket of `key`.
    pub(super) fn undo(&self, key: Key, undo: impl FnOnce(&mut S)) {
        if let Some(state) = self.lock(key).state.as_mut() {
            undo(state);
        }
    }

    /// Whether every bucket is as good as new at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.buckets.iter().all(|bucket| {
            let bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.state.as_ref().is_none_or(|state| state.idle_at() <= now)
        })
    }

    /// Packs the buckets that are not as good as new at `now`, some `most` bytes at a time. Locks one at a time.
    pub(super) fn pack(&self, now: Timestamp, most: usize, emit: &mut Emit<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (number, bucket) in (0_u32..).zip(&self.buckets) {
            let bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(state) = bucket.state.as_ref().filter(|state| state.idle_at() > now) {
                bytes.put_u32_le(number);
                state.pack(&mut bytes);
            }
            drop(bucket);
            if bytes.len() > most {
                emit(Tag::Shared, &bytes)?;
                bytes.clear();
            }
        }
        // Also if nothing is in it: keys that come next go on sharing.
        emit(Tag::Shared, &bytes)
    }

    /// Takes the buckets of a block for its own.
    pub(super) fn unpack(&self, from: &mut Unpacker<'_>) -> Option<()> {
        while !from.is_empty() {
            let bucket = self.buckets.get(usize::try_from(from.u32()?).ok()?)?;
            bucket.lock().unwrap_or_else(PoisonError::into_inner).state = Some(S::unpack(from)?);
        }
        Some(())
    }

    /// Decisions since this was last asked.
    pub(super) fn take_decided(&self) -> u64 {
        let take = |bucket: &Mutex<Bucket<S>>| {
            std::mem::take(&mut bucket.lock().unwrap_or_else(PoisonError::into_inner).decided)
        };
        self.buckets.iter().map(take).sum()
    }

    fn lock(&self, key: Key) -> MutexGuard<'_, Bucket<S>> {
        self.bucket(key).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bucket(&self, key: Key) -> &Mutex<Bucket<S>> {
        // The second half: the first one places the key in the exact table.
        let index = key.second % BUCKETS as u64;
        &self.buckets[usize::try_from(index).unwrap_or(0)]
    }
}
