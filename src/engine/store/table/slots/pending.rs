//! The units that were charged to keys in slots since they were last taken.
//!
//! They are beside the slot of the key, so adding them costs one more lock of a slot that is in the cache. A key that moves
//! takes its units along, and a key with pending units is not dropped.

use std::sync::atomic::Ordering;

use super::Slots;
use crate::engine::limit::Key;
use crate::engine::store::table::slot_units::{SegmentUnits, SlotIndex};

impl Slots {
    #[inline]
    pub(super) fn pending(&self, index: usize) -> &SegmentUnits {
        let number = self.segment_number(index);
        self.pending.segment_or_new(number, || self.segment(number).len())
    }

    /// Adds `units` to the pending ones of `key`. Returns their sum before. `None` if the key is in no slot, or the sum too
    /// large: nothing is added then.
    #[inline]
    pub(in crate::engine::store::table) fn add_pending(&self, key: Key, units: i64) -> Option<i64> {
        let add = |before: i32| i32::try_from(i64::from(before).checked_add(units)?).ok();
        self.change_pending(key, add).map(i64::from)
    }

    /// Takes `units` from the pending ones of `key`, if there are so many.
    pub(in crate::engine::store::table) fn withdraw_pending(&self, key: Key, units: u64) -> bool {
        let withdraw = |before: i32| before.checked_sub(i32::try_from(units).ok()?).filter(|after| *after >= 0);
        self.change_pending(key, withdraw).is_some()
    }

    /// Changes the pending units of `key`, if it is in a slot and `change` returns their new sum. Returns their sum before.
    #[inline]
    fn change_pending(&self, key: Key, change: impl FnOnce(i32) -> Option<i32>) -> Option<i32> {
        let index = Self::index(key, self.groups.load(Ordering::Acquire));
        self.group(index).with_lock(key, |position| {
            let pending = self.pending(index);
            let before = pending.at((index, position)).load(Ordering::Relaxed);
            pending.set((index, position), before, change(before)?);
            Some(before)
        })?
    }

    /// Calls `taken` with each key that has pending units, and with their sum, which becomes zero. Ends after `most` keys,
    /// about.
    pub(in crate::engine::store::table) fn take_pending(&self, most: usize, mut taken: impl FnMut(Key, i64)) {
        let mut left = most;
        for (number, pending) in self.pending.segments() {
            left = left.saturating_sub(pending.take(self.segment(number), left, &mut taken));
        }
    }

    /// Moves the pending units of a locked slot to a slot that has none and that no other thread finds.
    pub(super) fn move_pending(&self, from: SlotIndex, to: SlotIndex) {
        let Some(pending) = self.pending.segment(self.segment_number(from.0)) else { return };
        let units = pending.at(from).swap(0, Ordering::Relaxed);
        if units != 0 {
            self.pending(to.0).set(to, 0, units);
        }
    }

    /// Whether a slot has pending units.
    pub(super) fn is_pending(&self, slot: SlotIndex) -> bool {
        let pending = self.pending.segment(self.segment_number(slot.0));
        pending.is_some_and(|pending| pending.at(slot).load(Ordering::Relaxed) != 0)
    }
}
