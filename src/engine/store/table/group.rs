//! Eight slots, each with a key, its bucket and a lock.
//!
//! A slot is four words. The first two are the key without two bits, which are flags: the slot is occupied, and the slot
//! is locked. The other two words are the bucket, which only the owner of the lock reads and writes. Keys are added only
//! under a lock outside of the group; otherwise a key could be added to two slots.

use std::ptr;
use std::sync::atomic::Ordering;

use crate::base::sync::{AtomicU64, spin_loop, yield_now};
use crate::engine::limit::Key;
use crate::engine::limit::token_bucket::State;

/// Slots of a group.
pub(super) const SLOTS: usize = if cfg!(feature = "loom") { 2 } else { 8 };

/// Segments of groups at most, by the length of a group's index in bits: more than an address space can hold.
pub(super) const SEGMENTS: usize = 64;

/// The slots in which a key may be. The search begins at a slot that the first half of the key selects.
#[derive(Debug)]
#[cfg_attr(not(feature = "loom"), derive(bytemuck::Zeroable))]
#[cfg_attr(feature = "loom", derive(Default))]
#[repr(C, align(256))]
pub(super) struct Group([Slot; SLOTS]);

#[derive(Debug)]
#[cfg_attr(not(feature = "loom"), derive(bytemuck::Zeroable))]
#[cfg_attr(feature = "loom", derive(Default))]
#[repr(C)]
struct Slot {
    /// The first half of the key with the flags, or [`EMPTY`].
    first: AtomicU64,
    second: AtomicU64,
    state: [AtomicU64; 2],
}

/// The flag of a locked slot.
const LOCKED: u64 = 1;
/// The flag of an occupied slot.
const OCCUPIED: u64 = 2;
const EMPTY: u64 = 0;

/// Looks at a locked slot before the thread yields: some microseconds.
const TRIES: u32 = 256;

/// A locked bucket. The state is written back on drop.
pub(super) struct LockedBucket<'s> {
    slot: &'s Slot,
    pub(super) key: Key,
    pub(super) state: State,
    /// The first word of the slot after the lock is released.
    released: u64,
}

impl LockedBucket<'_> {
    /// The position of the slot in its group.
    #[inline]
    pub(super) fn position(&self) -> usize {
        // Groups are aligned to their size.
        ptr::from_ref(self.slot).addr() / size_of::<Slot>() % SLOTS
    }

    /// Removes the key from the slot.
    pub(super) fn free(mut self) {
        self.released = EMPTY;
    }
}

impl Drop for LockedBucket<'_> {
    #[inline]
    fn drop(&mut self) {
        for (word, value) in self.slot.state.iter().zip(self.state.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.slot.first.store(self.released, Ordering::Release);
    }
}

impl Slot {
    /// Locks the slot once it is unlocked. Returns `false` if the first word of its key is not `occupied`.
    #[inline]
    fn lock_slot(&self, occupied: u64) -> bool {
        let exchanged = self.first.compare_exchange(occupied, occupied | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        exchanged.is_ok() || self.wait(occupied)
    }

    /// Locks the bucket if the first word of its key is `occupied`.
    #[inline]
    fn lock(&self, occupied: u64) -> Option<LockedBucket<'_>> {
        if !self.lock_slot(occupied) {
            return None;
        }
        let key = Key { first: occupied & !OCCUPIED, second: self.second.load(Ordering::Relaxed) };
        Some(LockedBucket { slot: self, key, state: self.state(), released: occupied })
    }

    /// The bucket. If the slot is locked, its two words may be from before and after a change.
    #[inline]
    fn state(&self) -> State {
        State::from_words(self.state.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Locks the slot once it is unlocked. Returns `false` if it has another key by then.
    #[cold]
    fn wait(&self, occupied: u64) -> bool {
        let mut tries = 0;
        loop {
            let found = self.first.load(Ordering::Relaxed);
            if found & !LOCKED != occupied {
                return false;
            }
            if found == occupied
                && self
                    .first
                    .compare_exchange(occupied, occupied | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return true;
            }
            tries += 1;
            if tries % TRIES == 0 {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }
}

impl Group {
    /// A key as a slot stores it: 126 bits.
    #[inline]
    pub(super) fn stored(key: Key) -> Key {
        Key { first: key.first & !(LOCKED | OCCUPIED), ..key }
    }

    /// The positions of slots in the order of the search for `key`.
    #[inline]
    fn positions(key: Key) -> impl Iterator<Item = usize> {
        // These bits do not select the group.
        let start = usize::try_from(key.first >> (u64::BITS - SLOTS.trailing_zeros())).unwrap_or(0);
        (start..start + SLOTS).map(|position| position % SLOTS)
    }

    /// Locks the bucket of `key`, if it is in the group.
    #[inline]
    pub(super) fn lock(&self, key: Key) -> Option<LockedBucket<'_>> {
        let occupied = Self::stored(key).first | OCCUPIED;
        // As an iterator with a closure it is not always inlined, and took 60 instructions more.
        for position in Self::positions(key) {
            let slot = &self.0[position];
            if slot.first.load(Ordering::Relaxed) & !LOCKED == occupied
                && let Some(locked) = slot.lock(occupied)
                && locked.key.second == key.second
            {
                return Some(locked);
            }
        }
        None
    }

    /// Calls `seen` with the position of the slot of `key`, if it is in the group, under the lock of the slot. The bucket is
    /// neither read nor written.
    #[inline]
    pub(super) fn with_lock<T>(&self, key: Key, seen: impl FnOnce(usize) -> T) -> Option<T> {
        let occupied = Self::stored(key).first | OCCUPIED;
        let is_alike = |position: &usize| self.0[*position].first.load(Ordering::Relaxed) & !LOCKED == occupied;
        let position = Self::positions(key).find(is_alike)?;
        let slot = &self.0[position];
        if !slot.lock_slot(occupied) {
            return None;
        }
        let is_same = slot.second.load(Ordering::Relaxed) == key.second;
        let result = is_same.then(|| seen(position));
        slot.first.store(occupied, Ordering::Release);
        result
    }

    /// Locks all buckets, one after another.
    pub(super) fn lock_each(&self) -> impl Iterator<Item = LockedBucket<'_>> {
        (0..SLOTS).filter_map(|position| self.lock_at(position))
    }

    /// Locks the bucket at `position`, if there is one.
    pub(super) fn lock_at(&self, position: usize) -> Option<LockedBucket<'_>> {
        let slot = &self.0[position];
        match slot.first.load(Ordering::Relaxed) {
            EMPTY => None,
            first => slot.lock(first & !LOCKED),
        }
    }

    /// Adds a key that is not in the group. Returns the position of its slot; `None` if the group is full. The caller holds
    /// the lock under which keys are added.
    pub(super) fn put(&self, key: Key, state: &State) -> Option<usize> {
        let mut positions = Self::positions(key);
        let position = positions.find(|position| self.0[*position].first.load(Ordering::Acquire) == EMPTY)?;
        let slot = &self.0[position];
        slot.second.store(key.second, Ordering::Relaxed);
        for (word, value) in slot.state.iter().zip(state.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        slot.first.store(Self::stored(key).first | OCCUPIED, Ordering::Release);
        Some(position)
    }

    /// Drops the keys that are neither `wanted` nor in use, and returns their number. `is_in_use` gets the position of a
    /// locked slot. Wanted keys are not locked.
    pub(super) fn retain(&self, mut wanted: impl FnMut(&State) -> bool, is_in_use: impl Fn(usize) -> bool) -> usize {
        let mut dropped = 0;
        for (position, slot) in self.0.iter().enumerate() {
            let first = slot.first.load(Ordering::Acquire);
            if first == EMPTY || wanted(&slot.state()) {
                continue;
            }
            if let Some(locked) = slot.lock(first & !LOCKED)
                && !wanted(&locked.state)
                && !is_in_use(position)
            {
                locked.free();
                dropped += 1;
            }
        }
        dropped
    }
}
