//! When the states of one limit changed to another rule, by which the receipts from before are void.
//!
//! States have no room for it. So each key has one of a fixed number of entries by its hash, and shares it with other keys.
//! If the rates of many keys change, some valid receipts are void too: then refunds give back less, never more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// 1024 entries of 8 bytes for a limit whose rate has changed. All keys that share a bucket (`shared.rs`) have one entry,
/// because this divides the number of shared buckets.
const ENTRIES: usize = 1024;

/// The last changes of the keys of one limit. The lock of a state guards the entry against changes of that state.
#[derive(Debug, Default)]
pub(super) struct Changes(OnceLock<Box<[AtomicU64]>>);

impl Changes {
    /// Notes a change of `key`.
    #[cold]
    pub(super) fn note(&self, key: Key, now: Timestamp) {
        let entries = self.0.get_or_init(|| (0..ENTRIES).map(|_| AtomicU64::new(0)).collect());
        entries[index(key)].fetch_max(now.as_ns(), Ordering::Relaxed);
    }

    /// Whether `key` may have changed after `at`.
    pub(super) fn is_after(&self, key: Key, at: Timestamp) -> bool {
        self.0.get().is_some_and(|entries| entries[index(key)].load(Ordering::Relaxed) > at.as_ns())
    }
}

fn index(key: Key) -> usize {
    usize::try_from(key.second % ENTRIES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_counts_for_all_keys_of_an_entry() {
        let (changes, key) = (Changes::default(), |second| Key { first: second, second });
        let at = Timestamp::from_ns;
        assert!(!changes.is_after(key(1), at(0)));
        changes.note(key(1), at(20));
        changes.note(key(1), at(10));
        let is_after = |second| [19, 20, 21].map(|ns| changes.is_after(key(second), at(ns)));
        assert_eq!(is_after(1), [true, false, false]);
        assert_eq!(is_after(1 + ENTRIES as u64), is_after(1));
        assert_eq!(is_after(2), [false; 3]);
    }
}
