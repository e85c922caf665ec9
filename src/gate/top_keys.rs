//! The keys whose requests a limit refuses or holds most, in fixed memory.
//!
//! Only a request that is refused or held on arrival is counted. It never waits for the lock: if another thread holds
//! the lock, the request is counted as missed. The text of a key is built only when the key gets a slot.
//!
//! Old requests count for less: all counts are halved every [`HALF_LIFE_NS`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::limit::Key;
use crate::limit::top::Top;
use crate::time::Timestamp;

/// Keys that are counted for each limit. With texts of at most 256 bytes they take about 200 KB; a limit that has refused
/// no request takes nothing. A count is too high by at most 1/512 of all refusals.
pub const TOP_KEYS: usize = 512;

/// Nanoseconds in which counts are halved: ten minutes.
pub const HALF_LIFE_NS: u64 = 600_000_000_000;

/// The counts of one limit.
#[derive(Debug, Default)]
pub(super) struct RefusedKeys {
    counted: Mutex<Option<Counted>>,
    missed: AtomicU64,
}

#[derive(Debug)]
struct Counted {
    top: Top,
    /// The last time that counts were halved; at first, the first call of [`RefusedKeys::age`].
    halved_at: Option<Timestamp>,
}

/// The keys whose requests one limit refused or held most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKeys {
    /// The limit's name.
    pub limit: Box<str>,
    /// Requests counted, of all keys.
    pub total: u64,
    /// Requests that were not counted, because another thread was counting.
    pub missed: u64,
    /// The most frequent first.
    pub keys: Vec<TopKey>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The hash of the key.
    pub hash: Key,
    /// The parts of the key, separated by `|`, as [`crate::policy::Policy::shown`] has them.
    pub key: Box<str>,
    /// An upper bound on its requests that were refused or held.
    pub count: u64,
    /// `count - error` is a lower bound.
    pub error: u64,
}

impl RefusedKeys {
    /// Counts one request.
    pub(super) fn count(&self, key: Key, text: impl FnOnce() -> String) {
        let mut counted = match self.counted.try_lock() {
            Ok(counted) => counted,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let new = || Counted { top: Top::new(TOP_KEYS), halved_at: None };
        counted.get_or_insert_with(new).top.offer_with(key, text);
    }

    /// Halves the counts if they are old enough at `now`. To be called about once a second.
    pub(super) fn age(&self, now: Timestamp) {
        let mut all = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counted) = all.as_mut() else { return };
        let halved_at = counted.halved_at.get_or_insert(now);
        if now.ns_since(*halved_at) < HALF_LIFE_NS {
            return;
        }
        *halved_at = now;
        counted.top.halve();
        if counted.top.is_empty() {
            *all = None;
        }
        self.missed.store(self.missed.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }

    /// The names of all counted keys.
    pub(super) fn names(&self) -> HashMap<Key, Box<str>> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let hitters = counted.as_ref().map(|counted| counted.top.top(TOP_KEYS)).unwrap_or_default();
        hitters.into_iter().map(|hit| (hit.key, hit.text.into())).collect()
    }

    /// The `n` keys with the highest counts. `limit` is the limit's name.
    pub(super) fn top(&self, limit: &str, n: usize) -> TopKeys {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let top = counted.as_ref().map(|counted| &counted.top);
        let hitters = top.map(|top| top.top(n)).unwrap_or_default().into_iter();
        TopKeys {
            limit: limit.into(),
            total: top.map_or(0, Top::total),
            missed: self.missed.load(Ordering::Relaxed),
            keys: hitters
                .map(|hit| TopKey { hash: hit.key, key: hit.text.into(), count: hit.count, error: hit.error })
                .collect(),
        }
    }
}
