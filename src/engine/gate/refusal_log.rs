//! The last refusals by limits and bans, in bounded memory, so that an operator can explain one by its id.
//!
//! A key has a place in one of [`SHARDS`] rings, by its hash. So a flood on few keys displaces the refusals of few others.
//! A refusal never waits for a lock: it is left out if another thread has the ring of its key at that moment. Not here:
//! the ids, which the proxy makes.

use std::array;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::charge_log::{ChargeLog, LoggedCharge};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::RefusalLogRules;

const SHARDS: usize = 64;

/// The most bytes of the text of a key that are kept.
const SHOWN_BYTES_MAX: usize = 256;

/// The facts of a refusal that are kept under its id.
#[derive(Debug)]
pub struct Receipt<'l> {
    at: Timestamp,
    cause: &'static str,
    pub(super) keys: SmallVec<[RefusedKey<'l>; 1]>,
}

/// A key for which a request is refused.
#[derive(Debug)]
pub(super) struct RefusedKey<'l> {
    /// The name of the limit; empty for the ban of an address.
    pub(super) limit: &'l str,
    pub(super) key: Key,
    /// Its parts without secrets; `None` if they are not known, or the last refusal of the key has them.
    pub(super) shown: Option<String>,
    /// The state; `None` for a ban.
    state: Option<RefusedState>,
}

/// A refusal by one limit, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRefusal {
    /// The id. Refusals of one request by several limits have the same.
    pub id: String,
    /// The instant of the decision.
    pub at: Timestamp,
    /// Why the request was refused, in a word.
    pub cause: &'static str,
    /// The name of the limit; empty for the ban of an address.
    pub limit: String,
    /// The hash of the key.
    pub key: Key,
    /// The parts of the key without secrets, with `|` between them; `None` if they are not known.
    pub shown: Option<String>,
    /// The state of the key; `None` for a ban.
    pub state: Option<RefusedState>,
    /// The seconds of `Retry-After`; `None` if there was none.
    pub retry_after_s: Option<u64>,
    /// Charges of the key by this process around the refusal, the oldest first.
    pub charges: Vec<LoggedCharge>,
}

/// The state of a key when it was refused; of several rates that of the tightest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedState {
    /// Units that can be spent at once.
    pub capacity: u64,
    /// Whole units that remained.
    pub remaining: u64,
    /// Nanoseconds until all units are back, or [`crate::engine::limit::Decision::UNKNOWN_NS`].
    pub reset_after_ns: u64,
}

/// The refusals that are kept.
#[derive(Debug)]
pub(super) struct RefusalLog {
    /// The time for which a refusal is kept; 0 keeps none.
    keep_ns: AtomicU64,
    per_shard: AtomicUsize,
    shards: [Mutex<VecDeque<LoggedRefusal>>; SHARDS],
    charges: ChargeLog,
}

impl Default for RefusalLog {
    fn default() -> Self {
        let shards = array::from_fn(|_| Mutex::default());
        Self { keep_ns: AtomicU64::new(0), per_shard: AtomicUsize::new(0), shards, charges: ChargeLog::default() }
    }
}

impl<'l> Receipt<'l> {
    /// The receipt of a refusal without keys yet.
    pub(super) fn new(at: Timestamp, cause: &'static str) -> Self {
        Self { at, cause, keys: SmallVec::new() }
    }

    /// Adds a key of a limit.
    pub(super) fn add(&mut self, limit: &'l str, key: Key, state: Option<RefusedState>) {
        self.keys.push(RefusedKey { limit, key, shown: None, state });
    }

    /// The receipt of a banned address.
    pub(super) fn of_address(at: Timestamp, key: Key, address: String) -> Self {
        let banned = RefusedKey { limit: "", key, shown: Some(address), state: None };
        Self { at, cause: "banned", keys: [banned].into_iter().collect() }
    }
}

impl LoggedRefusal {
    fn is_of(&self, limit: &str, key: Key) -> bool {
        self.key == key && self.limit == limit
    }
}

impl RefusalLog {
    /// Whether refusals are kept.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.keep_ns.load(Ordering::Relaxed) > 0
    }

    /// Keeps refusals as the policy says.
    pub(super) fn follow(&self, keep: RefusalLogRules) {
        self.per_shard.store(keep.max / SHARDS, Ordering::Relaxed);
        self.keep_ns.store(keep.keep_ns, Ordering::Relaxed);
    }

    /// Forgets refusals that are too old or too many at `now`.
    pub(super) fn sweep(&self, now: Timestamp) {
        let most = self.per_shard.load(Ordering::Relaxed);
        for mut logged in self.shards() {
            while logged.len() > most || logged.front().is_some_and(|first| !self.is_fresh(first.at, now)) {
                logged.pop_front();
            }
            if logged.is_empty() {
                *logged = VecDeque::new(); // without its memory
            }
        }
    }

    /// Adds a charge of a key, if refusals are kept.
    #[inline]
    pub(super) fn charged(&self, limit: &str, key: Key, units: i64, at: Timestamp) {
        if self.is_on() {
            self.charges.add(limit, key, LoggedCharge { at, units });
        }
    }

    /// Whether the last refusal next to this key is its own, so that its text is known.
    pub(super) fn has_text_of(&self, limit: &str, key: Key) -> bool {
        let logged = self.shard(key).try_lock();
        logged.is_ok_and(|logged| logged.back().is_some_and(|last| last.shown.is_some() && last.is_of(limit, key)))
    }

    /// Adds a refusal of each key of `receipt`.
    pub(super) fn add(&self, id: &str, receipt: &mut Receipt<'_>, retry_after_s: Option<u64>) {
        let most = self.per_shard.load(Ordering::Relaxed);
        for RefusedKey { limit, key, shown, state } in &mut receipt.keys {
            let Ok(mut logged) = self.shard(*key).try_lock() else { continue };
            // In the memory of the refusal that it displaces.
            let mut one =
                if logged.len() < most { LoggedRefusal::default() } else { logged.pop_front().unwrap_or_default() };
            id.clone_into(&mut one.id);
            (*limit).clone_into(&mut one.limit);
            match (shown.take(), logged.back().filter(|last| last.is_of(limit, *key))) {
                (None, Some(last)) => one.shown.clone_from(&last.shown),
                (shown, _) => one.shown = shown.map(shortened),
            }
            (one.at, one.cause, one.key, one.retry_after_s) = (receipt.at, receipt.cause, *key, retry_after_s);
            one.state = *state;
            self.charges.copy(limit, *key, &mut one.charges);
            logged.push_back(one);
        }
    }

    /// Copies of the refusals with this id, also with charges that came after them.
    pub(super) fn of_id(&self, id: &str, now: Timestamp) -> Vec<LoggedRefusal> {
        let of_shard = |logged: MutexGuard<'_, VecDeque<LoggedRefusal>>| {
            let found = logged.iter().filter(|logged| logged.id == id && self.is_fresh(logged.at, now));
            found.cloned().collect::<Vec<_>>()
        };
        let (mut all, mut charges) = (self.shards().flat_map(of_shard).collect::<Vec<_>>(), Vec::new());
        for logged in &mut all {
            self.charges.copy(&logged.limit, logged.key, &mut charges);
            let known = logged.charges.last().map_or(logged.at, |charge| charge.at.max(logged.at));
            logged.charges.extend(charges.iter().filter(|charge| charge.at > known));
            logged.charges.retain(|charge| self.is_fresh(charge.at, now));
        }
        all
    }

    /// Copies of the refusals of a key by a limit, the newest first.
    pub(super) fn of_key(&self, limit: &str, key: Key, now: Timestamp) -> Vec<LoggedRefusal> {
        let logged = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        logged
            .iter()
            .rev()
            .filter(|logged| logged.is_of(limit, key))
            .filter(|logged| self.is_fresh(logged.at, now))
            .cloned()
            .collect()
    }

    fn shard(&self, key: Key) -> &Mutex<VecDeque<LoggedRefusal>> {
        &self.shards[usize::try_from(key.second % SHARDS as u64).unwrap_or(0)]
    }

    fn is_fresh(&self, at: Timestamp, now: Timestamp) -> bool {
        now.ns_since(at) < self.keep_ns.load(Ordering::Relaxed)
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, VecDeque<LoggedRefusal>>> {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// As much of the text of a key as is kept.
fn shortened(mut shown: String) -> String {
    shown.truncate(shown.floor_char_boundary(SHOWN_BYTES_MAX));
    shown
}
