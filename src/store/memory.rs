//! The keys of one limit in a sharded map, bounded.
//!
//! A key costs 32 bytes and its share of the map's slack. It is dropped only when its state is that of a key
//! never seen, so forgetting it changes no decision. At the bound new keys share the buckets of the
//! [`Overflow`], which may refuse too early and never admits too much.
//!
//! The map is reached only through the closures here: no guard leaves this file, and none meets another.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::{DashMap, Entry};

use super::overflow::Overflow;
use crate::limit::token_bucket::State;
use crate::limit::{Decision, Key, Quota};
use crate::time::Timestamp;

/// The state of all keys of one limit.
#[derive(Debug)]
pub struct Table {
    states: DashMap<Key, State, BuildHasherDefault<AlreadyHashed>>,
    /// Entries of `states`; kept beside it because its own length locks every shard.
    len: AtomicUsize,
    max_keys: AtomicUsize,
    overflow: OnceLock<Overflow>,
    overflowed: AtomicU64,
}

/// At the bound a shard has about this many keys, so that growing or sweeping one takes well under a millisecond.
const KEYS_PER_SHARD: usize = 8192;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 4096;

impl Table {
    /// An empty table that remembers `max_keys` keys exactly.
    pub fn new(max_keys: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        Self {
            states: DashMap::with_capacity_and_hasher_and_shard_amount(0, BuildHasherDefault::default(), shards),
            len: AtomicUsize::new(0),
            max_keys: AtomicUsize::new(max_keys),
            overflow: OnceLock::new(),
            overflowed: AtomicU64::new(0),
        }
    }

    /// Changes the bound. Keys beyond a smaller one stay until they are idle.
    pub fn set_max_keys(&self, max_keys: usize) {
        self.max_keys.store(max_keys, Ordering::Relaxed);
    }

    /// Keys remembered exactly.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every key is as good as new at `now`, so that the table could as well be a new one.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.is_empty() && self.overflow.get().is_none_or(|overflow| overflow.is_idle(now))
    }

    /// Whether new keys go to the overflow.
    pub fn is_full(&self) -> bool {
        self.len() >= self.max_keys.load(Ordering::Relaxed)
    }

    /// Decisions made by the overflow since this was last asked.
    pub fn take_overflowed(&self) -> u64 {
        self.overflowed.swap(0, Ordering::Relaxed)
    }

    /// Decides a request and, if admitted, charges it.
    pub fn admit(&self, key: Key, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        // A key that is known, as most are, is found without making room for it.
        if let Some(mut state) = self.states.get_mut(&key) {
            return state.admit(quota, cost, now);
        }
        self.admit_unseen(key, quota, cost, now)
    }

    fn admit_unseen(&self, key: Key, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        match self.states.entry(key) {
            Entry::Occupied(mut entry) => entry.get_mut().admit(quota, cost, now),
            Entry::Vacant(entry) if !self.is_full() => {
                let mut state = self.unseen(key, quota, now);
                let decision = state.admit(quota, cost, now);
                if decision.is_admitted() && state.idle_at() > now {
                    self.len.fetch_add(1, Ordering::Relaxed);
                    entry.insert(state);
                }
                decision
            }
            Entry::Vacant(entry) => {
                drop(entry);
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                self.overflow.get_or_init(Overflow::default).with(key, quota, |state| state.admit(quota, cost, now))
            }
        }
    }

    /// Decides a request as [`Table::admit`] would, charging nothing.
    pub fn peek(&self, key: Key, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.state(key, quota, now).peek(quota, cost, now)
    }

    /// Nanoseconds until `units` have been admitted one request after another.
    pub fn wait_ns(&self, key: Key, quota: &Quota, units: u64, now: Timestamp) -> u64 {
        self.state(key, quota, now).wait_ns(quota, units, now)
    }

    /// Gives back what [`Table::admit`] charged, as far as it has not come back by itself since; it had left
    /// the bucket to be full at `full_at`.
    pub fn refund(&self, key: Key, cost: u64, full_at: Timestamp, now: Timestamp) {
        if let Some(mut state) = self.states.get_mut(&key) {
            state.refund(cost, full_at, now);
        } else if let Some(overflow) = self.overflow.get() {
            // A key that has been forgotten is not given anything here: it was full, so nothing is owed.
            overflow.refund(key, cost, full_at, now);
        }
    }

    /// Drops every key that is as good as new at `now`, and says how many. Locks one shard at a time.
    pub fn sweep(&self, now: Timestamp) -> usize {
        let mut idle = 0;
        self.states.retain(|_, state| {
            let keep = state.idle_at() > now;
            idle += usize::from(!keep);
            keep
        });
        self.len.fetch_sub(idle, Ordering::Relaxed);
        idle
    }

    /// The state of `key` under `quota`, which it adopts by being looked at.
    fn state(&self, key: Key, quota: &Quota, now: Timestamp) -> State {
        let known = self.states.get_mut(&key).map(|mut state| {
            state.adopt(quota, now);
            *state
        });
        known.unwrap_or_else(|| self.unseen(key, quota, now))
    }

    /// A key may have spent from the overflow before there was room for it here.
    fn unseen(&self, key: Key, quota: &Quota, now: Timestamp) -> State {
        let Some(overflow) = self.overflow.get() else { return State::fresh(quota) };
        overflow.with(key, quota, |state| {
            state.adopt(quota, now);
            *state
        })
    }
}

/// Keys are uniform hashes already: their first half serves as it is.
#[derive(Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }
}
