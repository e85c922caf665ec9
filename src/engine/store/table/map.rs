//! The interface of a map of keys.
//!
//! There are two maps: [`super::slots`] for token buckets, and [`super::shards`] for all other states. States are reached
//! in closures, under a lock. No guard leaves a map, and no two locks are held at once.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::Ordering;

use crate::base::sync::AtomicUsize;
use crate::engine::limit::Key;

/// States by key.
pub(super) trait Map<S>: Debug {
    /// An empty map that is laid out for `max_keys` keys. It accepts any number.
    fn new(max_keys: usize) -> Self;

    /// The number of keys.
    fn len(&self) -> usize;

    /// Calls `seen` with the state of `key`, if it is found at the first look. Otherwise it may still be in the map.
    fn find_fast<T>(&self, key: Key, seen: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.find(key, seen).ok()
    }

    /// Calls `seen` with the state of `key`. Returns `seen` if there is no state.
    fn find<T, F: FnOnce(&mut S) -> T>(&self, key: Key, seen: F) -> Result<T, F>;

    /// Calls `change` with the state of `key`. If there is none, the state that `change` returns is added.
    fn entry<T>(&self, key: Key, change: impl FnOnce(Option<&mut S>) -> (Option<S>, T)) -> T;

    /// Packs the `wanted` states in blocks of about `most` bytes. No lock is held while a block is emitted. States that
    /// are added meanwhile may be left out.
    fn in_blocks(
        &self,
        most: usize,
        wanted: impl Fn(&S) -> bool,
        emit: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()>;

    /// Calls `seen` with each key and its state. Locks a few keys or a shard at a time. A key that moves or is added
    /// meanwhile may come twice or not at all.
    fn visit(&self, seen: impl FnMut(Key, &mut S));

    /// Drops the states that are not `wanted`, and returns their number. Locks a few keys at a time.
    fn retain(&self, wanted: impl FnMut(&S) -> bool) -> usize;
}

/// The number of keys of a map, on cache lines of its own: a new key does not slow down look-ups of known keys.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Len(AtomicUsize);

impl Len {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, count: usize) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}
