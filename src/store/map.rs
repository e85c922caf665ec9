//! What a map of keys must be able to do, so that [`super::memory`] can keep one limit's keys in it.
//!
//! Two exist: [`super::slots`] for token buckets, which most limits are, and [`super::shards`] for everything else.
//! Neither lets a guard out: states are reached in closures, under a lock that no other meets.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limit::Key;

/// States by key.
pub(super) trait Map<S>: Debug {
    /// An empty one that is laid out for `max_keys` keys, and may have any number.
    fn new(max_keys: usize) -> Self;

    /// How many there are.
    fn len(&self) -> usize;

    /// Runs `seen` on the state of `key`, if that is where it is looked for first. If not it may still be there.
    fn find_fast<T>(&self, key: Key, seen: impl FnOnce(&mut S) -> T) -> Option<T>;

    /// Runs `seen` on the state of `key`, or gives it back if there is none.
    fn find<T, F: FnOnce(&mut S) -> T>(&self, key: Key, seen: F) -> Result<T, F>;

    /// Runs `change` on the state of `key`. If there is none, what it returns is put there.
    fn entry<T>(&self, key: Key, change: impl FnOnce(Option<&mut S>) -> (Option<S>, T)) -> T;

    /// Packs what is `wanted`, some `most` bytes at a time. Nothing is locked while a block is emitted. What is put in
    /// meanwhile may be left out.
    fn in_blocks(
        &self,
        most: usize,
        wanted: impl Fn(&S) -> bool,
        emit: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()>;

    /// Drops all that `keep` does not want, and says how many. Locks a few keys at a time.
    fn retain(&self, keep: impl FnMut(&S) -> bool) -> usize;
}

/// How many keys a map has. On cache lines of its own, so that new keys do not disturb those who look for known ones.
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
