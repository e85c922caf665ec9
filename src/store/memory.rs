//! The keys of one limit in a sharded map, bounded.
//!
//! A key costs 32 bytes and its share of the map's slack, 50 to 60 together; the allocator may keep more of what
//! shards leave behind when they grow. A key is dropped only when its state is that of a key never seen, so
//! forgetting it changes no decision. What happens to new keys at the bound is for [`OnFull`] to say; where they are
//! counted by a sketch or in the buckets of the [`Overflow`], they may be refused too early and never get too much.
//!
//! The map is reached only through the closures here: no guard leaves this file, and none meets another.

mod packed;

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use dashmap::try_result::TryResult;
use dashmap::{DashMap, Entry};

use super::kept::{Kept, Sketched};
use super::overflow::Overflow;
use super::table::Outcome;
use crate::limit::{Decision, Key, OnFull, Retry, sketch, token_bucket};
use crate::time::Timestamp;

pub(super) use packed::{BLOCK_BYTES, in_blocks};

/// The states of all keys of one limit.
#[derive(Debug)]
pub(super) struct Keys<S: Kept> {
    states: DashMap<Key, S, BuildHasherDefault<Spread>>,
    at_most: AtomicUsize,
    on_full: AtomicOnFull,
    /// One of the two at most. Once there is one it is used for good: who has spent from it still owes.
    overflow: OnceLock<Crowd<S>>,
    /// Decisions without a state.
    uncounted: AtomicU64,
    len: Len,
}

/// Where keys are that cannot be remembered.
#[derive(Debug)]
enum Crowd<S: Kept> {
    Sketches(S::Sketches),
    Shared(Overflow<S>),
}

/// An [`OnFull`] that may change.
#[derive(Debug)]
struct AtomicOnFull(AtomicU8);

impl AtomicOnFull {
    const ALL: [OnFull; 4] = [OnFull::Sketch, OnFull::Shared, OnFull::Reject, OnFull::Allow];

    fn store(&self, on_full: OnFull) {
        self.0.store(on_full as u8, Ordering::Relaxed);
    }

    fn load(&self) -> OnFull {
        Self::ALL.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }
}

/// When to come back if there was no room for a key: idle keys are forgotten every second.
const FULL_RETRY_NS: u64 = 1_000_000_000;

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
    pub(super) fn new(max_keys: usize, on_full: OnFull) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        Self {
            states: DashMap::with_capacity_and_hasher_and_shard_amount(0, BuildHasherDefault::default(), shards),
            at_most: AtomicUsize::new(max_keys),
            on_full: AtomicOnFull(AtomicU8::new(on_full as u8)),
            overflow: OnceLock::new(),
            uncounted: AtomicU64::new(0),
            len: Len::default(),
        }
    }

    /// Changes the bound. Keys beyond a smaller one stay until they are idle.
    pub(super) fn set_bound(&self, max_keys: usize, on_full: OnFull) {
        self.at_most.store(max_keys, Ordering::Relaxed);
        self.on_full.store(on_full);
    }

    /// Keys that may be remembered exactly.
    pub(super) fn max_keys(&self) -> usize {
        self.at_most.load(Ordering::Relaxed)
    }

    /// Keys remembered exactly.
    pub(super) fn len(&self) -> usize {
        self.len.0.load(Ordering::Relaxed)
    }

    /// Whether every key is as good as new at `now`, so that the map could as well be a new one.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.len() == 0
            && self.overflow.get().is_none_or(|crowd| match crowd {
                Crowd::Sketches(sketches) => sketches.is_idle(now),
                Crowd::Shared(overflow) => overflow.is_idle(now),
            })
    }

    /// Whether there is no room for new keys.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.max_keys()
    }

    /// Decisions about keys without room since this was last asked.
    pub(super) fn take_overflowed(&self) -> u64 {
        let crowd = self.overflow.get().map_or(0, |crowd| match crowd {
            Crowd::Sketches(sketches) => sketches.take_decided(),
            Crowd::Shared(overflow) => overflow.take_decided(),
        });
        crowd + self.uncounted.swap(0, Ordering::Relaxed)
    }

    /// Decides a request and, if admitted, charges it.
    #[inline]
    pub(super) fn admit(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        // A key that is known, as most are, is found without making room for it.
        let answer = match self.states.try_get_mut(&key) {
            TryResult::Present(mut state) => state.charge(rule, cost, now),
            TryResult::Absent => return self.admit_unseen(key, rule, cost, now),
            TryResult::Locked => return self.admit_contended(key, rule, cost, now),
        };
        S::outcome(answer, rule, cost, now)
    }

    #[cold]
    #[inline(never)]
    fn admit_contended(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        for _ in 0..TRIES {
            std::hint::spin_loop();
            match self.states.try_get_mut(&key) {
                TryResult::Present(mut state) => {
                    let answer = state.charge(rule, cost, now);
                    drop(state);
                    return S::outcome(answer, rule, cost, now);
                }
                TryResult::Absent => break,
                TryResult::Locked => {}
            }
        }
        self.admit_unseen(key, rule, cost, now)
    }

    #[cold]
    #[inline(never)]
    fn admit_unseen(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        let answer = match self.states.entry(key) {
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
                return self.admit_beyond(key, rule, cost, now);
            }
        };
        S::outcome(answer, rule, cost, now)
    }

    /// Decides for a key that there is no room for.
    fn admit_beyond(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        if let Some(decision) = self.uncounted(rule, now) {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
            return decision.into();
        }
        match self.crowd(rule) {
            Crowd::Sketches(sketches) => sketches.admit(key, rule, cost, now),
            Crowd::Shared(overflow) => S::outcome(overflow.charge(key, rule, cost, now), rule, cost, now),
        }
    }

    /// What a key is told that there is no room for, if it is not counted.
    fn uncounted(&self, rule: &S::Rule, now: Timestamp) -> Option<Decision> {
        let retry = Some(Retry::AfterNs(FULL_RETRY_NS));
        match self.on_full.load() {
            OnFull::Sketch | OnFull::Shared => None,
            OnFull::Reject => Some(Decision { denied: retry, remaining: 0, reset_after_ns: FULL_RETRY_NS }),
            OnFull::Allow => Some(S::fresh(rule).peek(rule, 0, now)),
        }
    }

    fn crowd(&self, rule: &S::Rule) -> &Crowd<S> {
        self.overflow.get_or_init(|| {
            let wanted = self.on_full.load() == OnFull::Sketch;
            let sketches = if wanted { S::Sketches::new(rule) } else { None };
            sketches.map_or_else(|| Crowd::Shared(Overflow::default()), Crowd::Sketches)
        })
    }

    /// What `key` would be told at `now`; nothing is charged.
    pub(super) fn peek(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Decision {
        if self.is_full()
            && !self.states.contains_key(&key)
            && let Some(decision) = self.uncounted(rule, now)
        {
            return decision;
        }
        self.look(key, rule, now, |state| state.peek(rule, cost, now))
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
                if self.uncounted(rule, now).is_some() {
                    return change(&mut S::fresh(rule));
                }
                match self.crowd(rule) {
                    Crowd::Sketches(sketches) => sketches.change(key, rule, now, change),
                    Crowd::Shared(overflow) => overflow.with(key, rule, change),
                }
            }
        }
    }

    /// Undoes something that was charged to `key`.
    pub(super) fn undo(&self, key: Key, undo: impl FnOnce(&mut S)) {
        if let Some(mut state) = self.states.get_mut(&key) {
            undo(&mut state);
        } else if let Some(Crowd::Shared(overflow)) = self.overflow.get() {
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
        let overflow = match self.overflow.get() {
            None => return S::fresh(rule),
            Some(Crowd::Sketches(sketches)) => return sketches.state(key, rule, now),
            Some(Crowd::Shared(overflow)) => overflow,
        };
        overflow.with(key, rule, |state| {
            state.adopt(rule, now);
            state.clone()
        })
    }
}

impl Keys<token_bucket::State> {
    /// Undoes what a sketch charged to `key`.
    pub(super) fn undo_sketched(&self, key: Key, receipt: &sketch::Receipt) {
        if let Some(Crowd::Sketches(sketches)) = self.overflow.get() {
            sketches.undo(key, receipt);
        }
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
