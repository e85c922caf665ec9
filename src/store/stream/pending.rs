//! The charges of one limit that peers have not heard of, by key.
//!
//! A request adds its charge under the lock of one shard, for the length of one look into a map. So memory is bounded by
//! keys, and a key that is charged a thousand times is one entry.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::{Mutex, PoisonError};

use crate::limit::Key;

/// Locks, so that workers seldom contend.
const SHARDS: usize = 32;

/// Keys of a shard at most. Charges of further keys are lost, and peers ask for the states of all keys.
const SHARD_KEYS_MAX: usize = 8192;

/// The pending charges of one limit.
#[derive(Debug, Default)]
pub struct Pending {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<ShardCharges>);

#[derive(Debug, Default)]
struct ShardCharges {
    units: HashMap<PendingKey, i64, BuildHasherDefault<KeyHasher>>,
    is_overfull: bool,
}

/// A key, and the number of the plan whose rule it goes by.
type PendingKey = (Key, u16);

/// The units that one key was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCharge {
    /// The owner of the budget.
    pub key: Key,
    /// The plan whose rule was applied, as [`Pending::add`] got it.
    pub plan: u16,
    /// Negative if units were given back.
    pub units: i64,
}

/// The hasher of keys, which are hashes already. Two bits of a key are always 0.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u16(&mut self, plan: u16) {
        self.0 ^= u64::from(plan);
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half.rotate_right(2);
    }
}

/// The part of a capacity that a key uses before peers are told at once.
const URGENT_PART: u64 = 8;

impl Pending {
    /// Adds `units`, negative ones if they were given back. `plan` is a number of the caller's. Returns whether the key has
    /// now used so much of the `capacity` of its rule that peers are to be told at once.
    pub fn add(&self, key: Key, plan: u16, units: i64, capacity: u64) -> bool {
        let index = usize::try_from(key.second % SHARDS as u64).unwrap_or(0);
        let mut shard = self.shards[index].0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = shard.units.len() >= SHARD_KEYS_MAX;
        let before = match shard.units.entry((key, plan)) {
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                *entry.get_mut() = before.saturating_add(units);
                before
            }
            Entry::Vacant(_) if is_full => {
                shard.is_overfull = true;
                return false;
            }
            Entry::Vacant(entry) => {
                entry.insert(units);
                0
            }
        };
        let is_urgent = |units: i64| {
            u64::try_from(units).is_ok_and(|units| units > 0 && units.saturating_mul(URGENT_PART) >= capacity)
        };
        !is_urgent(before) && is_urgent(before.saturating_add(units))
    }

    /// Moves all charges to `into`. Returns whether none was lost.
    pub fn take(&self, into: &mut Vec<PendingCharge>) -> bool {
        let mut is_complete = true;
        for shard in &self.shards {
            let mut charges = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            is_complete &= !mem::take(&mut charges.is_overfull);
            let pending = charges.units.drain().filter(|(_, units)| *units != 0);
            into.extend(pending.map(|((key, plan), units)| PendingCharge { key, plan, units }));
        }
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::of_hash(number << 2, number)
    }

    fn taken(pending: &Pending) -> (bool, Vec<(u64, u16, i64)>) {
        let mut charges = Vec::new();
        let is_complete = pending.take(&mut charges);
        let mut charges: Vec<_> = charges.into_iter().map(|one| (one.key.second, one.plan, one.units)).collect();
        charges.sort_unstable();
        (is_complete, charges)
    }

    #[test]
    fn charges_of_a_key_are_added_up() {
        let pending = Pending::default();
        for (number, plan, units) in [(1, 0, 3), (1, 1, 5), (2, 0, 1), (1, 0, 4), (3, 0, 2), (3, 0, -2), (4, 0, -1)] {
            pending.add(key(number), plan, units, 100);
        }
        assert_eq!(taken(&pending), (true, vec![(1, 0, 7), (1, 1, 5), (2, 0, 1), (4, 0, -1)]));
        assert_eq!(taken(&pending), (true, vec![]), "they are taken once");
    }

    #[test]
    fn a_key_is_urgent_once() {
        for (capacity, rows) in [
            (80, &[(9, false), (1, true), (10, false), (-15, false), (5, true)][..]),
            (80, &[(10, true)]),
            (1, &[(1, true), (1, false)]),
            (80, &[(-5, false), (14, false), (1, true)]),
        ] {
            let pending = Pending::default();
            for (units, is_urgent) in rows {
                assert_eq!(pending.add(key(1), 0, *units, capacity), *is_urgent, "{capacity} {rows:?} {units}");
            }
        }
        let pending = Pending::default();
        assert!(pending.add(key(1), 0, 1, 1));
        taken(&pending);
        assert!(pending.add(key(1), 0, 1, 1), "again after the charges were taken");
    }

    #[test]
    fn keys_beyond_the_bound_are_noticed() {
        let pending = Pending::default();
        let most = (SHARDS * SHARD_KEYS_MAX) as u64;
        (0..most).for_each(|number| _ = pending.add(key(number), 0, 1, 100));
        pending.add(key(0), 0, 1, 100);
        let (is_complete, charges) = taken(&pending);
        assert!(is_complete && charges.len() as u64 == most && charges[0] == (0, 0, 2));
        (0..=most).for_each(|number| _ = pending.add(key(number), 0, 1, 100));
        let (is_complete, charges) = taken(&pending);
        assert!(!is_complete && charges.len() as u64 == most);
        assert_eq!(taken(&pending), (true, vec![]));
    }
}
