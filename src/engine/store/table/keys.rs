//! The keys of one limit, bounded.
//!
//! A key is dropped only when its state equals that of a new key, so forgetting it changes no decision. [`OnFull`]
//! selects what happens to new keys at the bound. A sketch or shared buckets may refuse them too early, and never admit
//! too much.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::changes::Changes;
use super::map::Map;
use super::receipt::Outcome;
use super::shared::SharedBuckets;
use super::state::{SketchStates, TableState};
use crate::base::time::Timestamp;
use crate::engine::limit::{Decision, Key, OnFull, RemainingByRate, Retry, sketch, token_bucket};

/// The states of all keys of one limit.
#[derive(Debug)]
pub(super) struct Keys<S: TableState> {
    pub(super) states: S::Map,
    at_most: AtomicUsize,
    on_full: AtomicOnFull,
    /// Once made it stays, because keys in it have debts.
    pub(super) overflow: OnceLock<Overflow<S>>,
    /// Decisions that were not counted anywhere.
    uncounted: AtomicU64,
    changes: Changes,
}

/// The states of keys beyond the bound.
#[derive(Debug)]
pub(super) enum Overflow<S: TableState> {
    Sketches(S::Sketches),
    Shared(SharedBuckets<S>),
}

/// An atomic [`OnFull`].
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

/// The retry of a key that does not fit, in nanoseconds. Idle keys are forgotten every second.
const FULL_RETRY_NS: u64 = 1_000_000_000;

impl<S: TableState> Keys<S> {
    /// An empty map that remembers `max_keys` keys exactly.
    pub(super) fn new(max_keys: usize, on_full: OnFull) -> Self {
        Self {
            states: S::Map::new(max_keys),
            at_most: AtomicUsize::new(max_keys),
            on_full: AtomicOnFull(AtomicU8::new(on_full as u8)),
            overflow: OnceLock::new(),
            uncounted: AtomicU64::new(0),
            changes: Changes::default(),
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

    /// Whether every key is idle at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.len() == 0
            && self.overflow.get().is_none_or(|overflow| match overflow {
                Overflow::Sketches(sketches) => sketches.is_idle(now),
                Overflow::Shared(buckets) => buckets.is_idle(now),
            })
    }

    /// Whether new keys do not fit.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.max_keys()
    }

    /// Decisions about keys beyond the bound since the last call.
    pub(super) fn take_overflowed(&self) -> u64 {
        let counted = self.overflow.get().map_or(0, |overflow| match overflow {
            Overflow::Sketches(sketches) => sketches.take_decided(),
            Overflow::Shared(buckets) => buckets.take_decided(),
        });
        counted + self.uncounted.swap(0, Ordering::Relaxed)
    }

    /// Decides a request and, if admitted, charges it.
    #[inline]
    pub(super) fn admit(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        match self.charge_known(key, rule, cost, now) {
            Some(answer) => S::outcome(answer, rule, cost, now),
            None => self.admit_unseen(key, rule, cost, now),
        }
    }

    /// Decides as [`Keys::admit`] does, if the key is found at the first look. Most are.
    #[inline]
    pub(super) fn charge_known(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Option<S::Answer> {
        // A state that has to change is found again.
        let charge = |state: &mut S| state.is_under(rule).then(|| state.charge(rule, cost, now));
        self.states.find_fast(key, charge).flatten()
    }

    /// Carries the state of `key` over to `rule`.
    fn adopt(&self, key: Key, state: &mut S, rule: &S::Rule, now: Timestamp) {
        if !state.is_under(rule) {
            self.changes.note(key, state.shorter_interval_ns(rule), now);
        }
        state.adopt(rule, now);
    }

    /// Lets each key in the map adopt the rule that `rule` selects for its state, if any.
    pub(super) fn adopt_rules<'r>(&self, rule: impl Fn(Key, &S) -> Option<&'r S::Rule>, now: Timestamp)
    where
        S::Rule: 'r,
    {
        self.states.visit(|key, state| {
            if let Some(rule) = rule(key, state) {
                self.adopt(key, state, rule, now);
            }
        });
    }

    /// Lets `key` adopt `rule`, if it is in the map.
    pub(super) fn adopt_rule(&self, key: Key, rule: &S::Rule, now: Timestamp) {
        let _ = self.states.find(key, |state| self.adopt(key, state, rule, now));
    }

    /// The shortest interval that `key` may have had, if it may have had another one after `at`.
    pub(super) fn shortest_since(&self, key: Key, at: Timestamp) -> Option<u64> {
        self.changes.shortest_since(key, at)
    }

    #[cold]
    #[inline(never)]
    fn admit_unseen(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        let is_full = self.is_full();
        let answer = self.states.entry(key, |state| match state {
            Some(state) => {
                self.adopt(key, state, rule, now);
                (None, Some(state.charge(rule, cost, now)))
            }
            None if let Some(buckets) = self.bucket_of_released(key, rule, is_full, now) => {
                (None, Some(buckets.decide(key, rule, |state| state.charge(rule, cost, now))))
            }
            None if is_full => (None, None),
            None => {
                let mut state = self.first(key, rule, now);
                let answer = state.charge(rule, cost, now);
                let stays = state.stays(&answer) && state.idle_at() > now;
                (stays.then_some(state), Some(answer))
            }
        });
        match answer {
            Some(answer) => S::outcome(answer, rule, cost, now),
            None => self.admit_beyond(key, rule, cost, now),
        }
    }

    /// Decides for a key beyond the bound.
    fn admit_beyond(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome {
        if let Some(decision) = self.uncounted(rule, now) {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
            return decision.into();
        }
        match self.overflow(rule) {
            Overflow::Sketches(sketches) => sketches.admit(key, rule, cost, now),
            Overflow::Shared(buckets) => {
                let charge = |state: &mut S| {
                    self.adopt(key, state, rule, now);
                    state.charge(rule, cost, now)
                };
                S::outcome(buckets.decide(key, rule, charge), rule, cost, now)
            }
        }
    }

    /// The decision for a key beyond the bound, if such keys are not counted.
    fn uncounted(&self, rule: &S::Rule, now: Timestamp) -> Option<Decision> {
        let retry = Some(Retry::AfterNs(FULL_RETRY_NS));
        match self.on_full.load() {
            OnFull::Sketch | OnFull::Shared => None,
            OnFull::Reject => Some(Decision { denied: retry, remaining: 0, reset_after_ns: FULL_RETRY_NS }),
            OnFull::Allow => Some(S::fresh(rule).peek(rule, 0, now)),
        }
    }

    fn overflow(&self, rule: &S::Rule) -> &Overflow<S> {
        self.overflow.get_or_init(|| {
            let wanted = self.on_full.load() == OnFull::Sketch;
            let sketches = if wanted { S::Sketches::new(rule) } else { None };
            sketches.map_or_else(|| Overflow::Shared(SharedBuckets::default()), Overflow::Sketches)
        })
    }

    /// The decision for `key` at `now`. Nothing is charged.
    pub(super) fn peek(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Decision {
        let uncounted = self.uncounted_now(key, rule, now);
        uncounted.unwrap_or_else(|| self.look(key, rule, now, |state| state.peek(rule, cost, now)))
    }

    /// The decision for `key` at `now` by its own state; that of a new key if there is none.
    pub(super) fn peek_exact(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Decision {
        let peek = |state: &mut S| {
            self.adopt(key, state, rule, now);
            state.peek(rule, cost, now)
        };
        self.states.find(key, peek).unwrap_or_else(|peek| peek(&mut S::fresh(rule)))
    }

    /// Replaces the state of `key`. Returns whether the key fits into the map.
    pub(super) fn overwrite(&self, key: Key, state: S) -> bool {
        self.states.entry(key, |known| match known {
            Some(known) => {
                *known = state;
                (None, true)
            }
            None if self.is_full() => (None, false),
            None => (Some(state), true),
        })
    }

    /// The units that remain for `key` at `now`, for each rate. A key that is not counted has one answer for all rates.
    pub(super) fn remaining(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        match self.uncounted_now(key, rule, now) {
            Some(decision) => SmallVec::from_iter([decision.into()]),
            None => self.look(key, rule, now, |state| state.remaining(rule, cost, now)),
        }
    }

    /// The decision for `key` if it is beyond the bound and not counted.
    fn uncounted_now(&self, key: Key, rule: &S::Rule, now: Timestamp) -> Option<Decision> {
        if self.is_full() && self.states.find(key, |_| ()).is_err() { self.uncounted(rule, now) } else { None }
    }

    /// Calls `look` with the state of `key`, as it decides under `rule`.
    pub(super) fn look<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, look: impl FnOnce(&S) -> T) -> T {
        let look = |state: &mut S| {
            if !state.is_under(rule) {
                self.changes.note(key, state.shorter_interval_ns(rule), now);
            }
            state.adopt_rate(rule, now);
            look(state)
        };
        self.states.find(key, look).unwrap_or_else(|look| look(&mut self.unseen(key, rule, now)))
    }

    /// Changes the state of `key`. The key is remembered if it is not idle after that.
    pub(super) fn change<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, change: impl FnOnce(&mut S) -> T) -> T {
        let change = |state: &mut S| {
            self.adopt(key, state, rule, now);
            change(state)
        };
        let is_full = self.is_full();
        let changed = self.states.entry(key, |state| match state {
            Some(state) => (None, Ok(change(state))),
            None if let Some(buckets) = self.bucket_of_released(key, rule, is_full, now) => {
                (None, Ok(buckets.with(key, rule, change)))
            }
            None if is_full => (None, Err(change)),
            None => {
                let mut state = self.first(key, rule, now);
                let changed = change(&mut state);
                let stays = state.idle_at() > now;
                (stays.then_some(state), Ok(changed))
            }
        });
        changed.unwrap_or_else(|change| {
            if self.uncounted(rule, now).is_some() {
                return change(&mut S::fresh(rule));
            }
            match self.overflow(rule) {
                Overflow::Sketches(sketches) => sketches.change(key, rule, now, change),
                Overflow::Shared(buckets) => buckets.with(key, rule, change),
            }
        })
    }

    /// Calls `seen` with each key that is not idle at `now`, and with the decision about `cost` units. A key without a rule
    /// is left out.
    pub(super) fn each_used<'r>(
        &self,
        rule: impl Fn(Key) -> Option<&'r S::Rule>,
        cost: u64,
        now: Timestamp,
        mut seen: impl FnMut(Key, Decision),
    ) where
        S::Rule: 'r,
    {
        self.states.visit(|key, state| {
            let Some(rule) = rule(key).filter(|_| state.idle_at() > now) else { return };
            let mut state = state.clone();
            state.adopt(rule, now);
            seen(key, state.look(rule, cost, now));
        });
    }

    /// Undoes a charge to `key`. Returns the units that are given back.
    pub(super) fn undo(&self, key: Key, undo: impl FnOnce(&mut S) -> u64) -> u64 {
        self.states.find(key, undo).unwrap_or_else(|undo| match self.overflow.get() {
            Some(Overflow::Shared(buckets)) => buckets.undo(key, undo),
            // A forgotten key gets nothing: it was idle, so it owed nothing.
            _ => 0,
        })
    }

    /// Drops every key that is idle at `now`, and returns their number. Locks a few keys at a time.
    pub(super) fn sweep(&self, now: Timestamp) -> usize {
        self.states.retain(|state| state.idle_at() > now)
    }

    /// The shared buckets, if that of `key` decides under a rule whose units come back only by refunds: beyond the bound, and
    /// until it is idle. So all units of a key that is not in the map are in its bucket, where refunds find them. The lock of
    /// the key in the map must be held.
    fn bucket_of_released(&self, key: Key, rule: &S::Rule, is_full: bool, now: Timestamp) -> Option<&SharedBuckets<S>> {
        if !S::is_released(rule) || is_full && self.uncounted(rule, now).is_some() {
            return None;
        }
        let overflow = if is_full { Some(self.overflow(rule)) } else { self.overflow.get() };
        match overflow {
            Some(Overflow::Shared(buckets)) if is_full || buckets.state(key, now).is_some() => Some(buckets),
            _ => None,
        }
    }

    /// Whether one key may wait for units of the other, because they share a bucket.
    pub(super) fn share_bucket(&self, one: Key, other: Key) -> bool {
        matches!(self.overflow.get(), Some(Overflow::Shared(_))) && SharedBuckets::<S>::is_same(one, other)
    }

    /// The first state of a key in the map.
    fn first(&self, key: Key, rule: &S::Rule, now: Timestamp) -> S {
        if S::is_released(rule) { S::fresh(rule) } else { self.unseen(key, rule, now) }
    }

    /// The state of a key that is not in the map. It may have spent from the overflow before.
    fn unseen(&self, key: Key, rule: &S::Rule, now: Timestamp) -> S {
        let buckets = match self.overflow.get() {
            None => return S::fresh(rule),
            Some(Overflow::Sketches(sketches)) => return sketches.state(key, rule, now),
            Some(Overflow::Shared(buckets)) => buckets,
        };
        // The bucket stays under the rule of the keys that were charged to it.
        let mut state = buckets.state(key, now).unwrap_or_else(|| S::fresh(rule));
        self.adopt(key, &mut state, rule, now);
        state
    }
}

impl Keys<token_bucket::State> {
    /// Undoes a charge of a sketch to `key`. Returns the units that are given back.
    pub(super) fn undo_sketched(&self, key: Key, receipt: &sketch::Receipt) -> u64 {
        match self.overflow.get() {
            Some(Overflow::Sketches(sketches)) => sketches.undo(key, receipt),
            _ => 0,
        }
    }
}
