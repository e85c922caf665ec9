//! When the states of one limit changed to another interval, so that the instants of receipts from before do not count.
//!
//! States have no room for it. So each key has one of a fixed number of entries by its hash, and shares it with other keys.
//! If the rates of many keys change, other receipts are taken for such ones too: then refunds give back less, never more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// 1024 entries of 16 bytes for a limit whose rate has changed. All keys that share a bucket (`shared.rs`) have one entry,
/// because this divides the number of shared buckets.
const ENTRIES: usize = 1024;

/// The last changes of the keys of one limit. The lock of a state guards the entry against changes of that state.
#[derive(Debug, Default)]
pub(super) struct Changes(OnceLock<Box<[LastChange]>>);

#[derive(Debug)]
struct LastChange {
    last_ns: AtomicU64,
    /// The shortest interval of its keys so far.
    shortest_ns: AtomicU64,
}

impl Changes {
    /// Notes a change of `key`, before and after which no interval is below `shortest_ns`.
    #[cold]
    pub(super) fn note(&self, key: Key, shortest_ns: u64, now: Timestamp) {
        let entry = |_| LastChange { last_ns: AtomicU64::new(0), shortest_ns: AtomicU64::new(u64::MAX) };
        let entry = &self.0.get_or_init(|| (0..ENTRIES).map(entry).collect())[index(key)];
        entry.shortest_ns.fetch_min(shortest_ns, Ordering::Relaxed);
        entry.last_ns.fetch_max(now.as_ns(), Ordering::Relaxed);
    }

    /// The shortest interval that `key` may have had, if it may have changed after `at`.
    pub(super) fn shortest_since(&self, key: Key, at: Timestamp) -> Option<u64> {
        let entry = &self.0.get()?[index(key)];
        (entry.last_ns.load(Ordering::Relaxed) > at.as_ns()).then(|| entry.shortest_ns.load(Ordering::Relaxed))
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
        assert_eq!(changes.shortest_since(key(1), at(0)), None);
        changes.note(key(1), 5, at(20));
        changes.note(key(1), 7, at(10));
        let since = |second| [19, 20, 21].map(|ns| changes.shortest_since(key(second), at(ns)));
        assert_eq!(since(1), [Some(5), None, None]);
        assert_eq!(since(1 + ENTRIES as u64), since(1));
        assert_eq!(since(2), [None; 3]);
    }
}
