//! Token buckets by key, each behind a lock of its own.
//!
//! A key and its bucket are 32 bytes, a slot, which lies within one cache line. Eight slots are a group. A key's hash
//! says in which group it is, so that a decision costs one cache miss and one atomic exchange, and two threads meet
//! only if they ask for the same key.
//!
//! **Growth** is by linear hashing (Litwin, 1980): whenever there are too many keys for the groups, the next one in
//! line is split in two. So there is no moment at which everything moves, and memory grows with the keys. Groups lie
//! in segments, each as large as all before it together, of zeroed memory that the system hands out as it is touched.
//!
//! **A key without room** in its group is spilled: it waits in its stripe, until a group nearby is split or swept.
//! A stripe is a lock over all groups of the same residue, for whoever adds a key, moves it, or did not find it where
//! it should be. A key stays in its stripe however often its group is split, so what is not found under that lock
//! is not there. Those who find their key, as most do, take no lock but its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use bytemuck::allocation::zeroed_slice_box;

use super::group::{Group, SLOTS};
use super::map::{Len, Map};
use crate::limit::token_bucket::State;
use crate::limit::{Key, Packed};

/// The buckets of one limit.
#[derive(Debug)]
pub(super) struct Slots {
    /// Groups in use. Changes only while the stripe of the group that is split is locked.
    groups: AtomicUsize,
    /// By the length of their places in bits, less one. The first that is in use has a group for each stripe; each
    /// further one as many as all before it.
    segments: [OnceLock<Box<[Group]>>; SEGMENTS],
    stripes: Box<[Stripe]>,
    growing: Mutex<()>,
    len: Len,
}

/// More than an address space has room for.
const SEGMENTS: usize = 64;

/// Keys of a stripe at the bound, about: few enough for what is spilled of them to be looked through.
const KEYS_PER_STRIPE: usize = 4096;
const STRIPES_MIN: usize = 16;
const STRIPES_MAX: usize = 1 << 14;

/// Slots for this many keys, as a fraction. With fewer, more keys are spilled: here about one in fifty.
const SLOTS_PER_KEYS: (usize, usize) = (20, 11);

/// What one who adds a key does at most for it.
const SPLITS_MAX: usize = 2;

/// The keys of some groups that found no room there.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(Mutex<HashMap<Key, State>>);

type Spilled<'s> = MutexGuard<'s, HashMap<Key, State>>;

impl Stripe {
    fn lock(&self) -> Spilled<'_> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// The group in which `key` is if there are `groups` of them.
    fn place(key: Key, groups: usize) -> usize {
        // Bits that a slot keeps of a key, so that it can be found again by them.
        let hash = usize::try_from(Group::kept(key).first >> 2).unwrap_or(usize::MAX);
        let mask = usize::MAX >> ((groups - 1) | 1).leading_zeros(); // there are several, always
        let place = hash & mask;
        // That one is not split off yet.
        if place >= groups { place & (mask >> 1) } else { place }
    }

    #[inline]
    fn group(&self, place: usize) -> &Group {
        // All places of one segment are as long in bits; a bit is set in any case, so that nobody asks whether one is.
        let number = (place | (self.stripes.len() - 1) | 1).ilog2() as usize;
        let segment = self.segments[number].get().map_or_else(|| self.segment(number), |segment| &**segment);
        &segment[place & (segment.len() - 1)]
    }

    #[cold]
    fn segment(&self, number: usize) -> &[Group] {
        self.segments[number].get_or_init(|| zeroed_slice_box(self.stripes.len().max(1 << number)))
    }

    #[inline]
    fn group_of(&self, key: Key) -> &Group {
        self.group(Self::place(key, self.groups.load(Ordering::Acquire)))
    }

    fn stripe_of(&self, key: Key) -> Spilled<'_> {
        self.stripe(Self::place(key, self.stripes.len()))
    }

    fn stripe(&self, place: usize) -> Spilled<'_> {
        self.stripes[place & (self.stripes.len() - 1)].lock()
    }

    /// Splits groups if there are too many keys for them, unless somebody does so already.
    fn grow(&self) {
        let _growing = match self.growing.try_lock() {
            Ok(growing) => growing,
            Err(TryLockError::Poisoned(growing)) => growing.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let (slots, keys) = SLOTS_PER_KEYS;
        for _ in 0..SPLITS_MAX {
            let groups = self.groups.load(Ordering::Relaxed);
            if self.len() * slots <= groups * SLOTS * keys {
                return;
            }
            self.split(groups);
        }
    }

    /// Adds the group that makes them one more than `groups`, and moves there what belongs there.
    fn split(&self, groups: usize) {
        let from = groups & !(1 << groups.ilog2());
        let mut spilled = self.stripe(from);
        let (old, new) = (self.group(from), self.group(groups));
        for held in old.hold_all() {
            // Nobody else adds to the new group, which nobody knows; it has room for all of the old one.
            if Self::place(held.key, groups + 1) == groups && new.put(held.key, &held.state) {
                held.free();
            }
        }
        self.groups.store(groups + 1, Ordering::Release);
        spilled.retain(|key, state| !self.group_of(*key).put(*key, state));
    }
}

impl Map<State> for Slots {
    fn new(max_keys: usize) -> Self {
        let stripes = (max_keys / KEYS_PER_STRIPE).next_power_of_two().clamp(STRIPES_MIN, STRIPES_MAX);
        Self {
            groups: AtomicUsize::new(stripes),
            segments: [const { OnceLock::new() }; SEGMENTS],
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            growing: Mutex::new(()),
            len: Len::default(),
        }
    }

    fn len(&self) -> usize {
        self.len.get()
    }

    #[allow(clippy::inline_always)] // measured: what comes of it stays in registers
    #[inline(always)]
    fn find_fast<T>(&self, key: Key, seen: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.group_of(key).hold(key).map(|mut held| seen(&mut held.state))
    }

    fn find<T, F: FnOnce(&mut State) -> T>(&self, key: Key, seen: F) -> Result<T, F> {
        if let Some(mut held) = self.group_of(key).hold(key) {
            return Ok(seen(&mut held.state));
        }
        let mut spilled = self.stripe_of(key);
        if let Some(mut held) = self.group_of(key).hold(key) {
            return Ok(seen(&mut held.state));
        }
        match spilled.get_mut(&Group::kept(key)) {
            Some(state) => Ok(seen(state)),
            None => Err(seen),
        }
    }

    fn entry<T>(&self, key: Key, change: impl FnOnce(Option<&mut State>) -> (Option<State>, T)) -> T {
        let mut spilled = self.stripe_of(key);
        let group = self.group_of(key);
        if let Some(mut held) = group.hold(key) {
            return change(Some(&mut held.state)).1;
        }
        match spilled.entry(Group::kept(key)) {
            Entry::Occupied(mut entry) => change(Some(entry.get_mut())).1,
            Entry::Vacant(entry) => {
                let (new, changed) = change(None);
                let Some(state) = new else { return changed };
                if !group.put(key, &state) {
                    entry.insert(state);
                }
                self.len.add(1);
                drop(spilled);
                self.grow();
                changed
            }
        }
    }

    fn in_blocks(
        &self,
        most: usize,
        wanted: impl Fn(&State) -> bool,
        mut emit: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        let pack = |bytes: &mut Vec<u8>, key: &Key, state: &State| {
            if wanted(state) {
                key.pack(bytes);
                state.pack(bytes);
            }
        };
        // First those that are spilled: they may come into a group meanwhile, and none goes the other way.
        for stripe in &self.stripes {
            stripe.lock().iter().for_each(|(key, state)| pack(&mut bytes, key, state));
            emit_full(&mut bytes, most, &mut emit)?;
        }
        let mut place = 0;
        loop {
            while place < self.groups.load(Ordering::Acquire) {
                self.group(place).hold_all().for_each(|held| pack(&mut bytes, &held.key, &held.state));
                emit_full(&mut bytes, most, &mut emit)?;
                place += 1;
            }
            // A split that is under way may have moved some to where nobody has looked.
            let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
            if place >= self.groups.load(Ordering::Acquire) {
                break;
            }
        }
        emit_full(&mut bytes, 0, &mut emit)
    }

    fn retain(&self, mut keep: impl FnMut(&State) -> bool) -> usize {
        let mut dropped = 0;
        if self.len() == 0 {
            return dropped;
        }
        for place in 0..self.groups.load(Ordering::Acquire) {
            dropped += self.group(place).retain(&mut keep);
        }
        for stripe in &self.stripes {
            let mut spilled = stripe.lock();
            spilled.retain(|key, state| {
                let stays = keep(state);
                dropped += usize::from(!stays);
                // What was dropped has made room.
                stays && !self.group_of(*key).put(*key, state)
            });
        }
        self.len.sub(dropped);
        dropped
    }
}

/// Emits what has more than `most` bytes.
fn emit_full(bytes: &mut Vec<u8>, most: usize, emit: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    if bytes.len() > most {
        emit(bytes)?;
        bytes.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
