//! The limits that a limiter does not decide, because it lacks them or has another rule for some keys.
//!
//! Not here: a limiter that does not answer (`driver::health`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::backend::Failure;

/// For so long a key counts as undecided after the limiter did not decide it. At least so long passes from one line about a
/// limit to the next.
const FRESH_NS: u64 = 60_000_000_000;

/// Keys of a limit at most. Before a further one, the others are forgotten.
const KEYS_MAX: usize = 1024;

/// The limits that the limiter does not decide, by name.
#[derive(Debug, Default)]
pub(super) struct UndecidedLimits {
    /// Whether any key is here. It changes under the lock.
    has_any: AtomicBool,
    /// Held for one look.
    limits: Mutex<HashMap<Box<str>, UndecidedLimit>>,
}

#[derive(Debug)]
struct UndecidedLimit {
    /// Why the limiter did not decide last.
    failure: Failure,
    /// When the last line was written.
    logged_at: Timestamp,
    /// When the limiter did not decide each key last.
    keys: HashMap<Key, Timestamp>,
}

impl UndecidedLimits {
    /// Notes that the limiter did not decide `key` at `now`. Returns whether a line about the limit is due.
    pub(super) fn add(&self, limit: &str, key: Key, failure: Failure, now: Timestamp) -> bool {
        let mut limits = self.limits();
        self.has_any.store(true, Ordering::Release);
        let Some(known) = limits.get_mut(limit) else {
            let new = UndecidedLimit { failure, logged_at: now, keys: HashMap::from([(key, now)]) };
            limits.insert(limit.into(), new);
            return true;
        };
        known.failure = failure;
        if known.keys.len() >= KEYS_MAX && !known.keys.contains_key(&key) {
            known.keys.clear();
        }
        known.keys.insert(key, now);
        let is_due = now.ns_since(known.logged_at) >= FRESH_NS;
        if is_due {
            known.logged_at = now;
        }
        is_due
    }

    /// Notes that the limiter has decided `key`.
    pub(super) fn remove(&self, limit: &str, key: Key) {
        if !self.has_any.load(Ordering::Acquire) {
            return;
        }
        let mut limits = self.limits();
        if let Some(known) = limits.get_mut(limit) {
            known.keys.remove(&key);
        }
        self.has_any.store(limits.values().any(|known| !known.keys.is_empty()), Ordering::Release);
    }

    /// Why the limiter does not decide `key` or, without a key, some key of the limit; `None` if it decides.
    pub(super) fn failure(&self, limit: &str, key: Option<Key>, now: Timestamp) -> Option<Failure> {
        let mut limits = self.limits();
        let known = limits.get_mut(limit)?;
        known.keys.retain(|_, at| now.ns_since(*at) < FRESH_NS);
        let is_undecided = key.map_or(!known.keys.is_empty(), |key| known.keys.contains_key(&key));
        is_undecided.then_some(known.failure)
    }

    fn limits(&self) -> MutexGuard<'_, HashMap<Box<str>, UndecidedLimit>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::of_hash(number << 2, number)
    }

    fn at(s: u64) -> Timestamp {
        Timestamp::from_ns(s * 1_000_000_000)
    }

    #[test]
    fn a_key_is_undecided_until_an_answer_or_for_a_minute() {
        let undecided = UndecidedLimits::default();
        let all = |now| [None, Some(key(1)), Some(key(2))].map(|key| undecided.failure("a", key, at(now)));
        let rule = Some(Failure::Rule);
        assert!(undecided.add("a", key(1), Failure::Rule, at(0)), "a line");
        assert!(!undecided.add("a", key(2), Failure::Rule, at(30)), "no second line");
        assert_eq!((all(30), undecided.failure("b", None, at(30))), ([rule; 3], None));
        undecided.remove("a", key(2));
        assert_eq!(all(30), [rule, rule, None], "another key with its own rule");
        assert_eq!(all(60), [None; 3]);
        assert!(undecided.add("a", key(2), Failure::Limit, at(60)), "a line after a minute");
        assert_eq!(all(60), [Some(Failure::Limit), None, Some(Failure::Limit)]);
    }

    #[test]
    fn keys_are_bounded() {
        let undecided = UndecidedLimits::default();
        for number in 0..10_000 {
            undecided.add("a", key(number), Failure::Limit, at(0));
            assert_eq!(undecided.failure("a", Some(key(number)), at(0)), Some(Failure::Limit));
        }
        assert!(undecided.limits()["a"].keys.len() <= KEYS_MAX);
    }
}
