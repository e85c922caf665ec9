//! The last charges of keys that are near their limit, or whose charges are settled later, in bounded memory, so that a
//! refusal can be explained by them.
//!
//! A key of a limit has one of [`SLOTS`] slots, by its hash. A charge of another key with the same slot displaces its
//! charges. Nothing waits for a lock: a charge is left out if another thread has the slot at that moment, and so are the
//! charges of a refusal. Not here: charges by other replicas.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::base::time::Timestamp;
use crate::engine::limit::Key;

const SLOTS: usize = 1024;

/// The most charges of a key.
const CHARGES_MAX: usize = 16;

/// A charge of a key by one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedCharge {
    /// The instant.
    pub at: Timestamp,
    /// Units; negative ones were given back.
    pub units: i64,
}

/// The last charges of one key for each slot.
#[derive(Debug)]
pub(super) struct ChargeLog(Box<[Mutex<KeyCharges>]>);

#[derive(Debug, Default)]
struct KeyCharges {
    limit: String,
    key: Key,
    charges: VecDeque<LoggedCharge>,
}

impl Default for ChargeLog {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl ChargeLog {
    /// Adds a charge. Units that are given back are added only to earlier charges of the key.
    #[inline(never)]
    pub(super) fn add(&self, limit: &str, key: Key, charge: LoggedCharge) {
        let Ok(mut slot) = self.slot(limit, key).try_lock() else { return };
        let is_other = !slot.is_of(limit, key);
        if charge.units == 0 || (is_other && charge.units < 0) {
            return;
        }
        if is_other {
            limit.clone_into(&mut slot.limit);
            slot.key = key;
            slot.charges.clear();
        }
        if slot.charges.len() == CHARGES_MAX {
            slot.charges.pop_front();
        }
        slot.charges.push_back(charge);
    }

    /// Replaces `charges` by those of the key, the oldest first. None are there if another thread has the slot.
    pub(super) fn copy(&self, limit: &str, key: Key, charges: &mut Vec<LoggedCharge>) {
        charges.clear();
        if let Ok(slot) = self.slot(limit, key).try_lock()
            && slot.is_of(limit, key)
        {
            charges.extend(&slot.charges);
        }
    }

    /// The slot of a key. Limits by the same parts have equal keys, so the name counts too.
    fn slot(&self, limit: &str, key: Key) -> &Mutex<KeyCharges> {
        let hash = limit.bytes().fold(key.second, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        &self.0[usize::try_from(hash % SLOTS as u64).unwrap_or(0)]
    }
}

impl KeyCharges {
    fn is_of(&self, limit: &str, key: Key) -> bool {
        self.key == key && self.limit == limit
    }
}
