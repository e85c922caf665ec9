//! Eight keys and their buckets, each behind a lock of its own.
//!
//! A slot is four words. The first two are the key, less two bits: one says that the slot is taken, the other that
//! somebody has it in hand. The other two are the bucket, touched only by whoever has it in hand. Keys are put into
//! empty slots only under a lock from outside, else one could be put into two.

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;

use crate::limit::Key;
use crate::limit::token_bucket::State;

/// Slots of a group.
pub(super) const SLOTS: usize = 8;

/// Slots that a key may be in, from one on that its first half says: the second is known later.
#[derive(Debug, Zeroable)]
#[repr(C, align(256))]
pub(super) struct Group([Slot; SLOTS]);

#[derive(Debug, Zeroable)]
#[repr(C)]
struct Slot {
    /// The first half of the key with the flags, or [`EMPTY`].
    first: AtomicU64,
    second: AtomicU64,
    state: [AtomicU64; 2],
}

/// Somebody has it in hand.
const HELD: u64 = 1;
/// There is a key.
const TAKEN: u64 = 2;
const EMPTY: u64 = 0;

/// How often a slot that somebody else has is looked at, some microseconds in all, before its thread gives way.
const TRIES: u32 = 256;

/// A bucket in hand. What becomes of it is kept when it is dropped.
pub(super) struct Held<'s> {
    slot: &'s Slot,
    pub(super) key: Key,
    pub(super) state: State,
    /// What the slot begins with after this.
    left: u64,
}

impl Held<'_> {
    /// Leaves the slot empty.
    pub(super) fn free(mut self) {
        self.left = EMPTY;
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        for (word, value) in self.slot.state.iter().zip(self.state.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.slot.first.store(self.left, Ordering::Release);
    }
}

impl Slot {
    /// Takes it in hand if it has a key that begins with `taken`.
    #[inline]
    fn hold(&self, taken: u64) -> Option<Held<'_>> {
        let exchanged = self.first.compare_exchange(taken, taken | HELD, Ordering::Acquire, Ordering::Relaxed);
        if exchanged.is_err() && !self.wait(taken) {
            return None;
        }
        let key = Key { first: taken & !TAKEN, second: self.second.load(Ordering::Relaxed) };
        Some(Held { slot: self, key, state: self.state(), left: taken })
    }

    /// The bucket; if somebody has it in hand, perhaps half of it as it was and half as it will be.
    #[inline]
    fn state(&self) -> State {
        State::from_words(self.state.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Takes it in hand once nobody else has; not if another key has come there.
    #[cold]
    fn wait(&self, taken: u64) -> bool {
        let mut tries = 0;
        loop {
            let found = self.first.load(Ordering::Relaxed);
            if found & !HELD != taken {
                return false;
            }
            if found == taken
                && self.first.compare_exchange(taken, taken | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            tries += 1;
            if tries % TRIES == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Group {
    /// What is kept of a key: 126 bits.
    #[inline]
    pub(super) fn kept(key: Key) -> Key {
        Key { first: key.first & !(HELD | TAKEN), ..key }
    }

    /// Where `key` is looked for first. These bits do not choose its group.
    #[inline]
    fn start(key: Key) -> usize {
        usize::try_from(key.first >> (u64::BITS - SLOTS.trailing_zeros())).unwrap_or(0)
    }

    /// The slots in the order in which `key` is looked for.
    #[inline]
    fn slots(&self, key: Key) -> impl Iterator<Item = &Slot> {
        let start = Self::start(key);
        (start..start + SLOTS).map(|place| &self.0[place % SLOTS])
    }

    /// Takes the bucket of `key` in hand, if it is here.
    #[inline]
    pub(super) fn hold(&self, key: Key) -> Option<Held<'_>> {
        let taken = Self::kept(key).first | TAKEN;
        self.slots(key).find_map(|slot| {
            let is_alike = slot.first.load(Ordering::Relaxed) & !HELD == taken;
            let held = if is_alike { slot.hold(taken)? } else { return None };
            (held.key.second == key.second).then_some(held)
        })
    }

    /// Takes all of them in hand, one after another.
    pub(super) fn hold_all(&self) -> impl Iterator<Item = Held<'_>> {
        self.0.iter().filter_map(|slot| match slot.first.load(Ordering::Relaxed) {
            EMPTY => None,
            first => slot.hold(first & !HELD),
        })
    }

    /// Puts in a key that is not here, unless there is no room. Only under the lock that keeps others from doing so.
    pub(super) fn put(&self, key: Key, state: &State) -> bool {
        let Some(slot) = self.slots(key).find(|slot| slot.first.load(Ordering::Acquire) == EMPTY) else { return false };
        slot.second.store(key.second, Ordering::Relaxed);
        for (word, value) in slot.state.iter().zip(state.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        slot.first.store(Self::kept(key).first | TAKEN, Ordering::Release);
        true
    }

    /// Drops all that `keep` does not want, and says how many. Those it wants are looked at without being held.
    pub(super) fn retain(&self, mut keep: impl FnMut(&State) -> bool) -> usize {
        let mut dropped = 0;
        for slot in &self.0 {
            let first = slot.first.load(Ordering::Acquire);
            if first == EMPTY || keep(&slot.state()) {
                continue;
            }
            if let Some(held) = slot.hold(first & !HELD)
                && !keep(&held.state)
            {
                held.free();
                dropped += 1;
            }
        }
        dropped
    }
}
