//! The keys of one limit, bounded.
//!
//! A key is dropped only when its state is that of a key never seen, so forgetting it changes no decision. What
//! happens to new keys at the bound is for [`OnFull`] to say; where they are counted by a sketch or in the buckets of
//! the [`Overflow`], they may be refused too early and never get too much.

mod packed;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::kept::{Kept, Sketched};
use super::map::Map;
use super::overflow::Overflow;
use super::table::Outcome;
use crate::limit::{Decision, Key, OnFull, RemainingByRate, Retry, sketch, token_bucket};
use crate::time::Timestamp;

pub(super) use packed::{BLOCK_BYTES, in_blocks};

/// The states of all keys of one limit.
#[derive(Debug)]
pub(super) struct Keys<S: Kept> {
    states: S::Map,
    at_most: AtomicUsize,
    on_full: AtomicOnFull,
    /// One of the two at most. Once there is one it is used for good: who has spent from it still owes.
    overflow: OnceLock<Crowd<S>>,
    /// Decisions without a state.
    uncounted: AtomicU64,
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

impl<S: Kept> Keys<S> {
    /// An empty map that remembers `max_keys` keys exactly.
    pub(super) fn new(max_keys: usize, on_full: OnFull) -> Self {
        Self {
            states: S::Map::new(max_keys),
            at_most: AtomicUsize::new(max_keys),
            on_full: AtomicOnFull(AtomicU8::new(on_full as u8)),
            overflow: OnceLock::new(),
            uncounted: AtomicU64::new(0),
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
        self.states.len()
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
        match self.charge_known(key, rule, cost, now) {
            Some(answer) => S::outcome(answer, rule, cost, now),
            None => self.admit_unseen(key, rule, cost, now),
        }
    }

    /// The same, if the key is known and found at once, as most are.
    #[inline]
    pub(super) fn charge_known(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Option<S::Answer> {
        self.states.find_fast(key, |state| state.charge(rule, cost, now))
    }

    #[cold]
    #[inline(never)]
    fn admit_unseen(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        let answer = self.states.entry(key, |state| match state {
            Some(state) => (None, Some(state.charge(rule, cost, now))),
            None if self.is_full() => (None, None),
            None => {
                let mut state = self.unseen(key, rule, now);
                let answer = state.charge(rule, cost, now);
                let stays = S::is_admitted(&answer) && state.idle_at() > now;
                (stays.then_some(state), Some(answer))
            }
        });
        match answer {
            Some(answer) => S::outcome(answer, rule, cost, now),
            None => self.admit_beyond(key, rule, cost, now),
        }
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
        let uncounted = self.uncounted_now(key, rule, now);
        uncounted.unwrap_or_else(|| self.look(key, rule, now, |state| state.peek(rule, cost, now)))
    }

    /// What is left to `key` at `now`, for each rate. A key that is not counted has one answer for all of them.
    pub(super) fn remaining(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        match self.uncounted_now(key, rule, now) {
            Some(decision) => SmallVec::from_iter([decision.into()]),
            None => self.look(key, rule, now, |state| state.remaining(rule, cost, now)),
        }
    }

    /// What `key` is told if there is no room for it and it is not counted.
    fn uncounted_now(&self, key: Key, rule: &S::Rule, now: Timestamp) -> Option<Decision> {
        if self.is_full() && self.states.find(key, |_| ()).is_err() { self.uncounted(rule, now) } else { None }
    }

    /// Looks at the state of `key`, which adopts `rule` by that.
    pub(super) fn look<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, look: impl FnOnce(&S) -> T) -> T {
        let look = |state: &mut S| {
            state.adopt(rule, now);
            look(state)
        };
        self.states.find(key, look).unwrap_or_else(|look| look(&mut self.unseen(key, rule, now)))
    }

    /// Changes the state of `key`, which is remembered if it is not as good as new after that.
    pub(super) fn change<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, change: impl FnOnce(&mut S) -> T) -> T {
        let changed = self.states.entry(key, |state| match state {
            Some(state) => (None, Ok(change(state))),
            None if self.is_full() => (None, Err(change)),
            None => {
                let mut state = self.unseen(key, rule, now);
                let changed = change(&mut state);
                let stays = state.idle_at() > now;
                (stays.then_some(state), Ok(changed))
            }
        });
        changed.unwrap_or_else(|change| {
            if self.uncounted(rule, now).is_some() {
                return change(&mut S::fresh(rule));
            }
            match self.crowd(rule) {
                Crowd::Sketches(sketches) => sketches.change(key, rule, now, change),
                Crowd::Shared(overflow) => overflow.with(key, rule, change),
            }
        })
    }

    /// Undoes something that was charged to `key`.
    pub(super) fn undo(&self, key: Key, undo: impl FnOnce(&mut S)) {
        // A key that has been forgotten is not given anything: it was as good as new, so nothing is owed.
        if let Err(undo) = self.states.find(key, undo)
            && let Some(Crowd::Shared(overflow)) = self.overflow.get()
        {
            overflow.undo(key, undo);
        }
    }

    /// Drops every key that is as good as new at `now`, and says how many. Locks a few at a time.
    pub(super) fn sweep(&self, now: Timestamp) -> usize {
        self.states.retain(|state| state.idle_at() > now)
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
