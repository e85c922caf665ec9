//! The charges of one limit that peers have not heard of, by key, as far as the table of the limit has no place for them.
//!
//! A request adds its charge under the lock of one shard, for the length of one look into a map. So memory is bounded by
//! keys, and a key that is charged a thousand times is one entry.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::time::Timestamp;
use crate::engine::limit::{Key, KeyHasher};
use crate::engine::store::Returned;

/// Locks, so that workers seldom contend.
const SHARDS: usize = 32;

/// Keys of a shard at most. Charges of further keys are lost, and peers ask for the states of all keys.
const SHARD_KEYS_MAX: usize = 8192;

/// Keys at most.
pub const KEYS_MAX: usize = SHARDS * SHARD_KEYS_MAX;

/// The pending charges of one limit.
#[derive(Debug, Default)]
pub struct Pending {
    shards: [Shard; SHARDS],
    /// When the charges were taken last, in nanoseconds. Peers have heard of no charge since.
    since_ns: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<ShardCharges>);

#[derive(Debug, Default)]
struct ShardCharges {
    /// Without the charges that were given back, which are few. So an entry is small.
    units: ByKey<i64>,
    returned: ByKey<Returned>,
    is_overfull: bool,
}

type ByKey<V> = HashMap<PendingKey, V, BuildHasherDefault<KeyHasher>>;

/// A key, and the number of the plan whose rule it goes by.
type PendingKey = (Key, u16);

/// The units that one key was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCharge {
    /// The owner of the budget.
    pub key: Key,
    /// The plan whose rule was applied, as [`Pending::add`] got it.
    pub plan: u16,
    /// Negative if a settlement gave units back.
    pub units: i64,
    /// The charges that were given back.
    pub returned: Returned,
}

/// The part of a capacity that a key uses before peers are told at once.
const URGENT_PART: u64 = 8;

impl Pending {
    /// Adds `units`, negative ones if they were given back. `plan` is a number of the caller's. Returns whether the key has
    /// now used so much of the `capacity` of its rule that peers are to be told at once.
    #[inline(never)]
    pub fn add(&self, key: Key, plan: u16, units: i64, capacity: u64) -> bool {
        let mut shard = self.shard(key);
        let ShardCharges { units: sums, is_overfull, .. } = &mut *shard;
        let Some(sum) = entry(sums, (key, plan), is_overfull) else { return false };
        let before = *sum;
        *sum = before.saturating_add(units);
        becomes_urgent(before, *sum, capacity)
    }

    /// Adds a charge that was given back. If peers have not heard of it, they hear nothing of it.
    pub fn add_returned(&self, key: Key, plan: u16, returned: &Returned) {
        let mut shard = self.shard(key);
        let ShardCharges { units: sums, returned: all_returned, is_overfull } = &mut *shard;
        let charged = i64::try_from(returned.charged).unwrap_or(i64::MAX);
        let is_pending = |units: &&mut i64| self.is_untold(returned) && **units >= charged;
        if let Some(units) = sums.get_mut(&(key, plan)).filter(is_pending) {
            *units -= charged;
        } else if let Some(sum) = entry(all_returned, (key, plan), is_overfull) {
            *sum = sum.with(returned);
        }
    }

    /// Whether the charges that were given back were made after the last [`Pending::take`].
    pub fn is_untold(&self, returned: &Returned) -> bool {
        returned.at.as_ns() >= self.since_ns.load(Ordering::Relaxed)
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, ShardCharges> {
        let index = usize::try_from(key.second % SHARDS as u64).unwrap_or(0);
        self.shards[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves all charges until `now` to `into`. Returns whether none was lost.
    pub fn take(&self, now: Timestamp, into: &mut Vec<PendingCharge>) -> bool {
        let mut is_complete = true;
        self.since_ns.store(now.as_ns(), Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            let ShardCharges { units, returned: all_returned, is_overfull } = &mut *shard;
            is_complete &= !mem::take(is_overfull);
            into.extend(units.drain().filter_map(|((key, plan), units)| {
                let returned = if all_returned.is_empty() { None } else { all_returned.remove(&(key, plan)) };
                let returned = returned.unwrap_or_default();
                (units != 0 || returned.charged > 0).then_some(PendingCharge { key, plan, units, returned })
            }));
            let only_returned = all_returned.drain().filter(|(_, returned)| returned.charged > 0);
            into.extend(only_returned.map(|((key, plan), returned)| PendingCharge { key, plan, units: 0, returned }));
        }
        is_complete
    }
}

/// Whether a change of the pending units of a key is the one after which the key has used so much of the `capacity` of its
/// rule that peers are to be told at once.
#[inline]
pub fn becomes_urgent(before: i64, after: i64, capacity: u64) -> bool {
    let is_urgent =
        |units: i64| u64::try_from(units).is_ok_and(|units| units > 0 && units.saturating_mul(URGENT_PART) >= capacity);
    !is_urgent(before) && is_urgent(after)
}

/// The value of a key. `None` if there is no room for it.
fn entry<'m, V: Default>(map: &'m mut ByKey<V>, key: PendingKey, is_overfull: &mut bool) -> Option<&'m mut V> {
    let is_full = map.len() >= SHARD_KEYS_MAX;
    match map.entry(key) {
        Entry::Occupied(entry) => Some(entry.into_mut()),
        Entry::Vacant(_) if is_full => {
            *is_overfull = true;
            None
        }
        Entry::Vacant(entry) => Some(entry.insert(V::default())),
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
        let is_complete = pending.take(Timestamp::from_ns(10), &mut charges);
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
    fn peers_do_not_hear_of_a_charge_that_is_given_back_at_once() {
        let pending = Pending::default();
        let returned = |charged, at| Returned { units: 0, charged, risk_ns: charged, at: Timestamp::from_ns(at) };
        let mut charges = Vec::new();
        pending.take(Timestamp::from_ns(10), &mut charges);
        pending.add(key(1), 0, 5, 100);
        pending.add_returned(key(1), 0, &returned(2, 10));
        // A charge of a former batch, and one that is not among the pending ones.
        pending.add_returned(key(1), 0, &returned(1, 9));
        pending.add_returned(key(1), 0, &returned(4, 10));
        pending.take(Timestamp::from_ns(20), &mut charges);
        assert_eq!(charges, [PendingCharge { key: key(1), plan: 0, units: 3, returned: returned(5, 9) }]);
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
        let most = KEYS_MAX as u64;
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
