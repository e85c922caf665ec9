//! Whose requests a limit refuses or holds most, in fixed memory.
//!
//! Only a request that is refused or held on arrival comes here. It never waits for the lock: if another thread has it,
//! the request is not counted, and that is. The text of a key is made only when the key takes a place.
//!
//! What came long ago counts for less: all counts are halved every [`HALF_LIFE_NS`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use super::{Gate, Live};
use crate::limit::Key;
use crate::limit::top::Top;
use crate::time::Timestamp;

/// Keys that are counted for each limit. With texts of at most 256 bytes that is at most about 200 KB for a limit that
/// has refused so many, and nothing for one that has refused none. A count is at most 1/512 of all refusals too high.
pub const TOP_KEYS: usize = 512;

/// Nanoseconds in which counts fall to a half: ten minutes.
pub const HALF_LIFE_NS: u64 = 600_000_000_000;

/// The keys of one limit.
#[derive(Debug, Default)]
pub(super) struct RefusedKeys {
    counted: Mutex<Option<Counted>>,
    missed: AtomicU64,
}

#[derive(Debug)]
struct Counted {
    top: Top,
    /// When counts were halved, or first looked at.
    halved_at: Option<Timestamp>,
}

/// The keys that one limit refused or held most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKeys {
    /// The limit's name.
    pub limit: Box<str>,
    /// Requests counted, over all keys.
    pub total: u64,
    /// Requests that could not be counted, because another one was just then.
    pub missed: u64,
    /// The most frequent first.
    pub keys: Vec<TopKey>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// Its parts, with `|` between them, as [`crate::policy::Policy::shown`] has them.
    pub key: Box<str>,
    /// At most so many of its requests were refused or held.
    pub count: u64,
    /// At least `count - error` were.
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

    /// Halves counts that are old enough at `now`. To be called often.
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

    fn top(&self, limit: &str, n: usize) -> TopKeys {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let top = counted.as_ref().map(|counted| &counted.top);
        let hitters = top.map(|top| top.top(n)).unwrap_or_default().into_iter();
        TopKeys {
            limit: limit.into(),
            total: top.map_or(0, Top::total),
            missed: self.missed.load(Ordering::Relaxed),
            keys: hitters.map(|hit| TopKey { key: hit.text.into(), count: hit.count, error: hit.error }).collect(),
        }
    }
}

impl Gate {
    /// The `n` keys that each limit refused or held most, of late; with a name those of that limit only, of
    /// which there is none if no limit has the name.
    pub fn top(&self, live: &Live, limit: Option<&str>, n: usize) -> Vec<TopKeys> {
        let states = live.states.iter().filter(|state| limit.is_none_or(|limit| *state.name == *limit));
        states.map(|state| state.refused.top(&state.name, n)).collect()
    }
}
