//! Buckets that keys beyond the bound share.
//!
//! Each key has one of a fixed number of buckets by its hash. A bucket is charged for all of its keys, so a key never
//! gets more than from a bucket of its own, and may get less.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BufMut;

use super::state::TableState;
use crate::base::time::Timestamp;
use crate::engine::limit::{Key, Unpacker};
use crate::engine::store::snapshot::blocks::{Emit, Tag};

/// 4096 buckets of 40 bytes: about 160 KB for a limit that overflows, nothing for others.
const BUCKETS: usize = 4096;

/// The shared buckets of one limit. A lock guards one bucket for the length of one decision.
#[derive(Debug)]
pub(super) struct SharedBuckets<S> {
    buckets: Box<[Mutex<Bucket<S>>]>,
}

/// The bucket of all keys of one hash.
#[derive(Debug)]
struct Bucket<S> {
    state: Option<S>,
    /// Decisions, counted here because threads would contend for one counter.
    decided: u64,
}

impl<S> Default for SharedBuckets<S> {
    fn default() -> Self {
        let empty = |_| Mutex::new(Bucket { state: None, decided: 0 });
        Self { buckets: (0..BUCKETS).map(empty).collect() }
    }
}

impl<S: TableState> SharedBuckets<S> {
    /// Calls `look` with the bucket of `key`.
    pub(super) fn with<T>(&self, key: Key, rule: &S::Rule, look: impl FnOnce(&mut S) -> T) -> T {
        look(self.lock(key).state.get_or_insert_with(|| S::fresh(rule)))
    }

    /// A copy of the bucket of `key`; `None` if it is idle at `now`.
    pub(super) fn state(&self, key: Key, now: Timestamp) -> Option<S> {
        self.lock(key).state.as_ref().filter(|state| state.idle_at() > now).cloned()
    }

    /// Whether two keys have one bucket.
    pub(super) fn is_same(one: Key, other: Key) -> bool {
        index(one) == index(other)
    }

    /// Decides a request by the bucket of `key`.
    pub(super) fn decide<T>(&self, key: Key, rule: &S::Rule, decide: impl FnOnce(&mut S) -> T) -> T {
        let mut bucket = self.lock(key);
        bucket.decided += 1;
        decide(bucket.state.get_or_insert_with(|| S::fresh(rule)))
    }

    /// Undoes a charge to the bucket of `key`. Returns the units that are given back.
    pub(super) fn undo(&self, key: Key, undo: impl FnOnce(&mut S) -> u64) -> u64 {
        self.lock(key).state.as_mut().map_or(0, undo)
    }

    /// Whether every bucket is idle at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.buckets.iter().all(|bucket| {
            let bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.state.as_ref().is_none_or(|state| state.idle_at() <= now)
        })
    }

    /// Packs the buckets that are not idle at `now`, in blocks of about `most` bytes. Locks one bucket at a time.
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
        // Also an empty block, so that new keys go on sharing.
        emit(Tag::Shared, &bytes)
    }

    /// Adds the buckets of a block.
    pub(super) fn unpack(&self, from: &mut Unpacker<'_>) -> Option<()> {
        while !from.is_empty() {
            let bucket = self.buckets.get(usize::try_from(from.u32()?).ok()?)?;
            bucket.lock().unwrap_or_else(PoisonError::into_inner).state = Some(S::unpack(from)?);
        }
        Some(())
    }

    /// Decisions since the last call.
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
        &self.buckets[index(key)]
    }
}

/// By the second half: the first half selects the place in the exact map.
fn index(key: Key) -> usize {
    usize::try_from(key.second % BUCKETS as u64).unwrap_or(0)
}
