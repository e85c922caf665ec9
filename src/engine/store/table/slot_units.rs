//! A number of units beside each slot.
//!
//! A number is read and written under the lock of its slot. A group has a bit, which is set after a number of the group has
//! changed from zero. A taker clears the bit before it reads the numbers. So it finds each number that is not zero, now or
//! the next time.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::group::{Group, SEGMENTS, SLOTS};
use crate::base::sync::{AtomicI32, AtomicU64, zeroed};
use crate::engine::limit::Key;

/// The numbers of all slots, by segment of groups. They take memory once one of them has changed.
#[derive(Debug, Default)]
pub(super) struct SlotUnits(OnceLock<Box<Segments>>);

type Segments = [OnceLock<SegmentUnits>; SEGMENTS];

/// The numbers of the slots of a segment. There are as many groups as a power of two.
#[derive(Debug)]
pub(super) struct SegmentUnits {
    units: Box<[[AtomicI32; SLOTS]]>,
    /// A bit for each group.
    changed: Box<[AtomicU64]>,
}

/// The index of a group in all segments, and the position of a slot in it.
pub(super) type SlotIndex = (usize, usize);

const WORD_BITS: usize = u64::BITS as usize;

impl SlotUnits {
    /// The numbers of the segment `number`; `None` if no number of it has ever changed.
    pub(super) fn segment(&self, number: usize) -> Option<&SegmentUnits> {
        self.0.get()?[number].get()
    }

    /// The numbers of the segment `number`, which has so many `groups`.
    #[inline]
    pub(super) fn segment_or_new(&self, number: usize, groups: impl FnOnce() -> usize) -> &SegmentUnits {
        let segments = self.0.get_or_init(|| Box::new([const { OnceLock::new() }; SEGMENTS]));
        segments[number].get_or_init(|| {
            let groups = groups();
            SegmentUnits { units: zeroed(groups), changed: zeroed(groups.div_ceil(WORD_BITS)) }
        })
    }

    /// The segments that have numbers.
    pub(super) fn segments(&self) -> impl Iterator<Item = (usize, &SegmentUnits)> {
        let segments = self.0.get().into_iter().flat_map(|segments| segments.iter());
        segments.enumerate().filter_map(|(number, segment)| Some((number, segment.get()?)))
    }
}

impl SegmentUnits {
    /// The number of a slot.
    #[inline]
    pub(super) fn at(&self, (index, position): SlotIndex) -> &AtomicI32 {
        &self.units[index & (self.units.len() - 1)][position]
    }

    /// Replaces the number of a slot, which was `before`. The caller has the lock of the slot.
    #[inline]
    pub(super) fn set(&self, (index, position): SlotIndex, before: i32, after: i32) {
        let group = index & (self.units.len() - 1);
        self.units[group][position].store(after, Ordering::Relaxed);
        if before == 0 {
            self.changed[group / WORD_BITS].fetch_or(1 << (group % WORD_BITS), Ordering::Release);
        }
    }

    /// Calls `taken` with each key of `groups`, the groups of the segment, whose number is not zero, and with the number,
    /// which becomes zero. Ends after `most` keys, about. Returns the number of keys.
    pub(super) fn take(&self, groups: &[Group], most: usize, taken: &mut impl FnMut(Key, i64)) -> usize {
        let mut count = 0;
        for (word, changed) in self.changed.iter().enumerate() {
            if count >= most {
                break;
            }
            // Most are zero in a large table. A load does not take the cache line from requests.
            let mut left = if changed.load(Ordering::Relaxed) == 0 { 0 } else { changed.swap(0, Ordering::Acquire) };
            while left != 0 {
                let group = word * WORD_BITS + left.trailing_zeros() as usize;
                left &= left - 1;
                count += take_group(&groups[group], &self.units[group], taken);
            }
        }
        count
    }
}

/// Takes the numbers of the keys of a group. Returns the number of keys.
fn take_group(group: &Group, units: &[AtomicI32; SLOTS], taken: &mut impl FnMut(Key, i64)) -> usize {
    let mut count = 0;
    for (position, units) in units.iter().enumerate().filter(|(_, units)| units.load(Ordering::Relaxed) != 0) {
        // A key that has moved meanwhile has set the bit of its new group.
        let Some(locked) = group.lock_at(position) else { continue };
        let (key, units) = (locked.key, units.swap(0, Ordering::Relaxed));
        drop(locked);
        taken(key, units.into());
        count += 1;
    }
    count
}
