//! The keys of one limit in a sharded map, bounded.
//!
//! A key costs 32 bytes and its share of the map's slack, 50 to 60 together; the allocator may keep more of what
//! shards leave behind when they grow. A key is dropped only when its state is that of a key never seen, so
//! forgetting it changes no decision. At the bound new keys share the buckets of the [`Overflow`], which may refuse
//! too early and never admits too much.
//!
//! The map is reached only through the closures here: no guard leaves this file, and none meets another.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::try_result::TryResult;
use dashmap::{DashMap, Entry};

use super::kept::Kept;
use super::overflow::Overflow;
use super::table::Outcome;
use crate::limit::Key;
use crate::time::Timestamp;

/// The states of all keys of one limit.
#[derive(Debug)]
pub(super) struct Keys<S> {
    states: DashMap<Key, S, BuildHasherDefault<Spread>>,
    at_most: AtomicUsize,
    overflow: OnceLock<Overflow<S>>,
    len: Len,
}

/// Entries of a map; kept beside it because its own length locks every shard. On cache lines of its own, so that
/// new keys do not disturb those who look for known ones.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Len(AtomicUsize);

/// At the bound a shard has at most about this many keys, and the largest a third more. Growing or sweeping one
/// takes a fraction of a millisecond, and what leads to the shards (128 bytes each) stays in a processor's cache.
const KEYS_PER_SHARD: usize = 16_384;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 1 << 14;

/// How often a shard that somebody else has is tried, a few microseconds in all, before its thread gives way. The
/// map itself would do so almost at once, which costs far more than the decision that is waited for.
const TRIES: usize = 64;

impl<S: Kept> Keys<S> {
    /// An empty map that remembers `max_keys` keys exactly.
    pub(super) fn new(max_keys: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        Self {
            states: DashMap::with_capacity_and_hasher_and_shard_amount(0, BuildHasherDefault::default(), shards),
            at_most: AtomicUsize::new(max_keys),
            overflow: OnceLock::new(),
            len: Len::default(),
        }
    }

    /// Changes the bound. Keys beyond a smaller one stay until they are idle.
    pub(super) fn set_max_keys(&self, max_keys: usize) {
        self.at_most.store(max_keys, Ordering::Relaxed);
    }

    /// Keys remembered exactly.
    pub(super) fn len(&self) -> usize {
        self.len.0.load(Ordering::Relaxed)
    }

    /// Whether every key is as good as new at `now`, so that the map could as well be a new one.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.len() == 0 && self.overflow.get().is_none_or(|overflow| overflow.is_idle(now))
    }

    /// Whether new keys go to the overflow.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.at_most.load(Ordering::Relaxed)
    }

    /// Decisions made by the overflow since this was last asked.
    pub(super) fn take_overflowed(&self) -> u64 {
        self.overflow.get().map_or(0, Overflow::take_decided)
    }

    /// Decides a request and, if admitted, charges it.
    #[inline]
    pub(super) fn admit(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        // A key that is known, as most are, is found without making room for it.
        let answer = match self.states.try_get_mut(&key) {
            TryResult::Present(mut state) => state.charge(rule, cost, now),
            TryResult::Absent => self.charge_unseen(key, rule, cost, now),
            TryResult::Locked => self.charge_contended(key, rule, cost, now),
        };
        S::outcome(answer, rule, cost, now)
    }

    #[cold]
    #[inline(never)]
    fn charge_contended(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> S::Answer {
        for _ in 0..TRIES {
            std::hint::spin_loop();
            match self.states.try_get_mut(&key) {
                TryResult::Present(mut state) => return state.charge(rule, cost, now),
                TryResult::Absent => break,
                TryResult::Locked => {}
            }
        }
        self.charge_unseen(key, rule, cost, now)
    }

    #[cold]
    #[inline(never)]
    fn charge_unseen(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> S::Answer {
        match self.states.entry(key) {
            Entry::Occupied(mut entry) => entry.get_mut().charge(rule, cost, now),
            Entry::Vacant(entry) if !self.is_full() => {
                let mut state = self.unseen(key, rule, now);
                let answer = state.charge(rule, cost, now);
                if S::is_admitted(&answer) && state.idle_at() > now {
                    self.len.0.fetch_add(1, Ordering::Relaxed);
                    entry.insert(state);
                }
                answer
            }
            Entry::Vacant(entry) => {
                drop(entry);
                self.overflow.get_or_init(Overflow::default).charge(key, rule, cost, now)
            }
        }
    }

    /// Looks at the state of `key`, which adopts `rule` by that.
    pub(super) fn look<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, look: impl FnOnce(&S) -> T) -> T {
        if let Some(mut state) = self.states.get_mut(&key) {
            state.adopt(rule, now);
            return look(&state);
        }
        look(&self.unseen(key, rule, now))
    }

    /// Changes the state of `key`, which is remembered if it is not as good as new after that.
    pub(super) fn change<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, change: impl FnOnce(&mut S) -> T) -> T {
        match self.states.entry(key) {
            Entry::Occupied(mut entry) => change(entry.get_mut()),
            Entry::Vacant(entry) if !self.is_full() => {
                let mut state = self.unseen(key, rule, now);
                let changed = change(&mut state);
                if state.idle_at() > now {
                    self.len.0.fetch_add(1, Ordering::Relaxed);
                    entry.insert(state);
                }
                changed
            }
            Entry::Vacant(entry) => {
                drop(entry);
                self.overflow.get_or_init(Overflow::default).with(key, rule, change)
            }
        }
    }

    /// Undoes something that was charged to `key`.
    pub(super) fn undo(&self, key: Key, undo: impl FnOnce(&mut S)) {
        if let Some(mut state) = self.states.get_mut(&key) {
            undo(&mut state);
        } else if let Some(overflow) = self.overflow.get() {
            // A key that has been forgotten is not given anything here: it was as good as new, so nothing is owed.
            overflow.undo(key, undo);
        }
    }

    /// Drops every key that is as good as new at `now`, and says how many. Locks one shard at a time.
    pub(super) fn sweep(&self, now: Timestamp) -> usize {
        let mut idle = 0;
        self.states.retain(|_, state| {
            let keep = state.idle_at() > now;
            idle += usize::from(!keep);
            keep
        });
        self.len.0.fetch_sub(idle, Ordering::Relaxed);
        idle
    }

    /// A key may have spent from the overflow before there was room for it here.
    fn unseen(&self, key: Key, rule: &S::Rule, now: Timestamp) -> S {
        let Some(overflow) = self.overflow.get() else { return S::fresh(rule) };
        overflow.with(key, rule, |state| {
            state.adopt(rule, now);
            state.clone()
        })
    }
}

/// Keys are uniform hashes already: their first half serves, with other odds for the shards.
///
/// A shard doubles when it is full. Were all as likely, all would double at about the same time, after which more
/// than half of the memory lay idle. With odds from 3 to 5 among them some are full and others have just doubled,
/// whatever the number of keys.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    /// The map takes the shard from the bits below the first seven. Of these, 24 are read as a fraction `x` and
    /// become `x * (5 - x) / 4`, which grows at rates from 5/4 to 3/4.
    fn write_u64(&mut self, half: u64) {
        const BITS: u32 = 24;
        const SHIFT: u32 = 64 - 7 - BITS;
        const MASK: u64 = ((1 << BITS) - 1) << SHIFT;
        let x = (half & MASK) >> SHIFT;
        let spread = (x * ((5 << BITS) - x)) >> (BITS + 2);
        self.0 = half & !MASK | spread << SHIFT;
    }
}
