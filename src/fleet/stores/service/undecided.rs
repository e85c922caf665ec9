//! The limits that a limiter does not decide, because it lacks them or has another rule for some keys.
//!
//! Not here: a limiter that does not answer (`driver::health`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// The bits of the limits that have keys here. They change under the lock.
    bits: AtomicU64,
    /// Held for one look.
    limits: Mutex<HashMap<Box<str>, UndecidedLimit>>,
}

#[derive(Debug)]
struct UndecidedLimit {
    /// Why the limiter did not decide last.
    failure: Failure,
    /// When the last line was written.
    logged_at: Timestamp,
    /// When the limiter did not decide a key last.
    added_at: Timestamp,
    /// When the limiter did not decide each key last.
    keys: HashMap<Key, Timestamp>,
}

/// One of 64 bits for a limit, which others may share.
fn bit(limit: &str) -> u64 {
    1 << (limit.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 64)
}

impl UndecidedLimits {
    /// Notes that the limiter did not decide `key` at `now`. Returns whether a line about the limit is due.
    pub(super) fn add(&self, limit: &str, key: Key, failure: Failure, now: Timestamp) -> bool {
        let mut limits = self.limits();
        self.bits.fetch_or(bit(limit), Ordering::Release);
        let Some(known) = limits.get_mut(limit) else {
            let new = UndecidedLimit { failure, logged_at: now, added_at: now, keys: HashMap::from([(key, now)]) };
            limits.insert(limit.into(), new);
            return true;
        };
        (known.failure, known.added_at) = (failure, now);
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

    /// Notes that the limiter has decided `key` at `now`. Locks nothing for a limit without undecided keys.
    pub(super) fn remove(&self, limit: &str, key: Key, now: Timestamp) {
        if self.bits.load(Ordering::Acquire) & bit(limit) == 0 {
            return;
        }
        let mut limits = self.limits();
        if let Some(known) = limits.get_mut(limit) {
            known.keys.remove(&key);
        }
        let mut bits = 0;
        for (limit, known) in &mut *limits {
            if now.ns_since(known.added_at) >= FRESH_NS {
                known.keys.clear();
            }
            bits |= if known.keys.is_empty() { 0 } else { bit(limit) };
        }
        self.bits.store(bits, Ordering::Release);
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
        undecided.remove("a", key(2), at(30));
        assert_eq!(all(30), [rule, rule, None], "another key with its own rule");
        assert_eq!(all(60), [None; 3]);
        assert!(undecided.add("a", key(2), Failure::Limit, at(60)), "a line after a minute");
        assert_eq!(all(60), [Some(Failure::Limit), None, Some(Failure::Limit)]);
    }

    /// A decision of another limit, or after the last key, locks nothing.
    #[test]
    fn a_limit_has_a_bit_while_it_has_keys() {
        let undecided = UndecidedLimits::default();
        let bits = || undecided.bits.load(Ordering::Relaxed);
        let (a, b) = (bit("a"), bit("b"));
        assert_eq!([a, b, bit("per-seller")].map(u64::count_ones), [1; 3]);
        assert!(a != b && bits() == 0);
        undecided.add("a", key(1), Failure::Rule, at(0));
        undecided.add("b", key(1), Failure::Rule, at(10));
        assert_eq!(bits(), a | b);
        // the limit and the key that the limiter decides, when, and the limits that still have keys
        for (limit, number, now, expected) in
            [("a", 2, 20, a | b), ("b", 2, 59, a | b), ("b", 2, 60, b), ("b", 2, 70, 0), ("b", 1, 70, 0)]
        {
            undecided.remove(limit, key(number), at(now));
            assert_eq!(bits(), expected, "{limit} {number} {now}");
        }
        undecided.add("a", key(1), Failure::Rule, at(80));
        undecided.remove("a", key(1), at(80));
        assert_eq!(bits(), 0, "a key that is decided again");
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
