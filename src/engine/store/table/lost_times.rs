//! The lost time of token buckets, which have no room for it beside their keys.
//!
//! Each key has one of a fixed number of entries by its hash. The key that was given a charge back last has the entry. The
//! lost time of a key may be forgotten: then refunds give back less. The time of a settlement is kept for all keys of an
//! entry, because without it refunds would give back too much.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::limit::lost_time::LostTime;

/// 1024 entries of 56 bytes: 56 KiB for a limit with refunds. All keys that share a bucket (`shared.rs`) have one entry,
/// because this divides the number of shared buckets.
const ENTRIES: usize = 1024;

/// The lost times of one limit. A lock guards one entry for the length of one refund.
#[derive(Debug)]
pub(super) struct LostTimes(Box<[Mutex<KeyLostTime>]>);

#[derive(Debug, Default)]
struct KeyLostTime {
    /// The key whose lost time it is.
    key: Option<Key>,
    lost: LostTime,
}

impl Default for LostTimes {
    fn default() -> Self {
        Self((0..ENTRIES).map(|_| Mutex::default()).collect())
    }
}

impl LostTimes {
    /// The nanoseconds that the refund of a charge of `at` to `key` loses, at most `most_ns`.
    pub(super) fn lose(&self, key: Key, at: Timestamp, most_ns: u64, now: Timestamp) -> u64 {
        let mut entry = self.entry(key);
        if entry.key != Some(key) {
            entry.key = Some(key);
            entry.lost.forget();
        }
        entry.lost.lose(at, most_ns, now)
    }

    /// Notes that units of `key` are given back without a receipt.
    pub(super) fn settled(&self, key: Key, now: Timestamp) {
        self.entry(key).lost.settled(now);
    }

    fn entry(&self, key: Key) -> MutexGuard<'_, KeyLostTime> {
        let index = usize::try_from(key.second % ENTRIES as u64).unwrap_or(0);
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_key_has_the_entry_and_settlements_stay() {
        let lost_times = LostTimes::default();
        let key = |second| Key { first: second, second };
        let lose = |second, at, now| lost_times.lose(key(second), Timestamp::from_ns(at), 100, Timestamp::from_ns(now));
        assert_eq!((lose(1, 10, 20), lose(1, 10, 20)), (10, 0));
        assert_eq!(lose(2, 10, 20), 10, "another entry");
        assert_eq!(lose(1 + ENTRIES as u64, 10, 20), 10);
        assert_eq!(lose(1, 10, 20), 10, "forgotten");
        lost_times.settled(key(1), Timestamp::from_ns(15));
        assert_eq!((lose(1 + ENTRIES as u64, 15, 20), lose(1, 10, 20), lose(1, 16, 20)), (100, 100, 4));
    }
}
