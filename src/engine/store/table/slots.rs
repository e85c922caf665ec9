//! Token buckets by key, each behind a lock of its own.
//!
//! A key and its bucket are 32 bytes, a slot, which lies within one cache line. Eight slots are a group. The hash of a key
//! selects its group. So a decision costs one cache miss and one atomic exchange, and two threads contend only for the
//! same key.
//!
//! **Growth** is by linear hashing (Litwin, 1980): whenever there are too many keys for the groups, the next group is
//! split in two. So keys never move all at once, and memory grows with the keys. Groups lie in segments. Each segment is
//! as large as all segments before it together, and consists of zeroed memory that the system provides at first use.
//!
//! **A spilled key** did not fit into its group. It is in a map of its stripe, until a group of the stripe is split or
//! swept. A stripe is a lock over all groups of the same residue. It is taken to add a key, to move it, and to search
//! for a key that is not in its group. A key stays in its stripe however often its group is split, so a key that is not
//! found under that lock does not exist. A look-up that finds its key, as most do, takes only the lock of the slot.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError, TryLockError};

use super::group::{Group, SEGMENTS, SLOTS};
use super::map::{Len, Map};
use super::slot_units::SlotUnits;
use crate::base::sync::{AtomicUsize, Mutex, MutexGuard, zeroed};
use crate::engine::limit::token_bucket::State;
use crate::engine::limit::{Key, Packed};

mod pending;

/// The buckets of one limit.
#[derive(Debug)]
pub(super) struct Slots {
    /// Groups in use. Changes only while the stripe of the group that is split is locked.
    groups: AtomicUsize,
    /// By the length of the groups' indices in bits, less one. The first segment in use has a group for each stripe;
    /// each further segment has as many as all before it.
    segments: [OnceLock<Box<[Group]>>; SEGMENTS],
    /// Units that were charged since they were last taken.
    pending: SlotUnits,
    /// The number of stripes, a power of two.
    stripe_count: usize,
    /// Made when the first key is looked for, so that a limit without requests takes little memory.
    stripes: OnceLock<Box<[Stripe]>>,
    growing: Mutex<()>,
    len: Len,
}

/// Keys of a stripe at the bound, about. So few of them are spilled that searching them is cheap.
const KEYS_PER_STRIPE: usize = 4096;
const STRIPES_MIN: usize = if cfg!(feature = "loom") { 2 } else { 16 };
const STRIPES_MAX: usize = 1 << 14;

/// Slots per keys, as a fraction. About one key in fifty is spilled; with fewer slots it would be more.
const SLOTS_PER_KEYS: (usize, usize) = (20, 11);

/// Groups that are split at most when a key is added.
const SPLITS_MAX: usize = 2;

/// The spilled keys of the groups of one stripe.
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
    /// The index of the group of `key` if there are `groups` groups.
    fn index(key: Key, groups: usize) -> usize {
        // Only bits that a slot stores, so that a split can compute the index again.
        let hash = usize::try_from(Group::stored(key).first >> 2).unwrap_or(usize::MAX);
        let mask = usize::MAX >> ((groups - 1) | 1).leading_zeros(); // there are always several groups
        let index = hash & mask;
        // A group that is not split off yet.
        if index >= groups { index & (mask >> 1) } else { index }
    }

    /// The number of the segment of the group at `index`.
    #[inline]
    fn segment_number(&self, index: usize) -> usize {
        // All indices of one segment have the same length in bits. A set bit makes the test for zero unnecessary.
        (index | (self.stripe_count - 1) | 1).ilog2() as usize
    }

    #[inline]
    fn group(&self, index: usize) -> &Group {
        let number = self.segment_number(index);
        let segment = self.segments[number].get().map_or_else(|| self.segment(number), |segment| &**segment);
        &segment[index & (segment.len() - 1)]
    }

    #[cold]
    fn segment(&self, number: usize) -> &[Group] {
        self.segments[number].get_or_init(|| zeroed(self.stripe_count.max(1 << number)))
    }

    #[inline]
    fn group_of(&self, key: Key) -> &Group {
        self.group(Self::index(key, self.groups.load(Ordering::Acquire)))
    }

    fn stripe_of(&self, key: Key) -> Spilled<'_> {
        self.stripe(Self::index(key, self.stripe_count))
    }

    fn stripe(&self, index: usize) -> Spilled<'_> {
        let stripes = self.stripes.get_or_init(|| (0..self.stripe_count).map(|_| Stripe::default()).collect());
        stripes[index & (stripes.len() - 1)].lock()
    }

    /// The stripes, none if no key was looked for.
    fn stripes(&self) -> &[Stripe] {
        self.stripes.get().map_or(&[], |stripes| stripes)
    }

    /// Splits groups if there are too many keys for them, unless another thread does so already.
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

    /// Adds a group to `groups` groups, and moves its keys there.
    fn split(&self, groups: usize) {
        let from = groups & !(1 << groups.ilog2());
        let mut spilled = self.stripe(from);
        let (old, new) = (self.group(from), self.group(groups));
        for locked in old.lock_each() {
            // No other thread knows the new group. It can hold all keys of the old one.
            if Self::index(locked.key, groups + 1) == groups
                && let Some(position) = new.put(locked.key, &locked.state)
            {
                self.move_pending((from, locked.position()), (groups, position));
                locked.free();
            }
        }
        self.groups.store(groups + 1, Ordering::Release);
        spilled.retain(|key, state| self.group_of(*key).put(*key, state).is_none());
    }
}

impl Map<State> for Slots {
    fn new(max_keys: usize) -> Self {
        let stripes = (max_keys / KEYS_PER_STRIPE).next_power_of_two().clamp(STRIPES_MIN, STRIPES_MAX);
        Self {
            groups: AtomicUsize::new(stripes),
            segments: [const { OnceLock::new() }; SEGMENTS],
            pending: SlotUnits::default(),
            stripe_count: stripes,
            stripes: OnceLock::new(),
            growing: Mutex::new(()),
            len: Len::default(),
        }
    }

    fn len(&self) -> usize {
        self.len.get()
    }

    #[allow(clippy::inline_always)] // measured: the result stays in registers
    #[inline(always)]
    fn find_fast<T>(&self, key: Key, seen: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.group_of(key).lock(key).map(|mut locked| seen(&mut locked.state))
    }

    fn find<T, F: FnOnce(&mut State) -> T>(&self, key: Key, seen: F) -> Result<T, F> {
        if let Some(mut locked) = self.group_of(key).lock(key) {
            return Ok(seen(&mut locked.state));
        }
        let mut spilled = self.stripe_of(key);
        if let Some(mut locked) = self.group_of(key).lock(key) {
            return Ok(seen(&mut locked.state));
        }
        match spilled.get_mut(&Group::stored(key)) {
            Some(state) => Ok(seen(state)),
            None => Err(seen),
        }
    }

    fn entry<T>(&self, key: Key, change: impl FnOnce(Option<&mut State>) -> (Option<State>, T)) -> T {
        let mut spilled = self.stripe_of(key);
        let group = self.group_of(key);
        if let Some(mut locked) = group.lock(key) {
            return change(Some(&mut locked.state)).1;
        }
        match spilled.entry(Group::stored(key)) {
            Entry::Occupied(mut entry) => change(Some(entry.get_mut())).1,
            Entry::Vacant(entry) => {
                let (new, changed) = change(None);
                let Some(state) = new else { return changed };
                if group.put(key, &state).is_none() {
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
        // Spilled keys first: they may move into a group meanwhile, and no key moves the other way.
        for stripe in self.stripes() {
            stripe.lock().iter().for_each(|(key, state)| pack(&mut bytes, key, state));
            emit_full(&mut bytes, most, &mut emit)?;
        }
        let mut index = 0;
        loop {
            while index < self.groups.load(Ordering::Acquire) {
                self.group(index).lock_each().for_each(|locked| pack(&mut bytes, &locked.key, &locked.state));
                emit_full(&mut bytes, most, &mut emit)?;
                index += 1;
            }
            // A split that is in progress may have moved keys into a group that was not packed.
            let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
            if index >= self.groups.load(Ordering::Acquire) {
                break;
            }
        }
        emit_full(&mut bytes, 0, &mut emit)
    }

    fn visit(&self, mut seen: impl FnMut(Key, &mut State)) {
        for stripe in self.stripes() {
            stripe.lock().iter_mut().for_each(|(key, state)| seen(*key, state));
        }
        let mut index = 0;
        while index < self.groups.load(Ordering::Acquire) {
            self.group(index).lock_each().for_each(|mut locked| seen(locked.key, &mut locked.state));
            index += 1;
        }
    }

    /// Keys with pending units stay.
    fn retain(&self, mut wanted: impl FnMut(&State) -> bool) -> usize {
        let mut dropped = 0;
        if self.len() == 0 {
            return dropped;
        }
        for index in 0..self.groups.load(Ordering::Acquire) {
            dropped += self.group(index).retain(&mut wanted, |position| self.is_pending((index, position)));
        }
        for stripe in self.stripes() {
            let mut spilled = stripe.lock();
            spilled.retain(|key, state| {
                let stays = wanted(state);
                dropped += usize::from(!stays);
                // Dropped keys have made space in the groups.
                stays && self.group_of(*key).put(*key, state).is_none()
            });
        }
        self.len.sub(dropped);
        dropped
    }
}

/// Emits a block that has more than `most` bytes.
fn emit_full(bytes: &mut Vec<u8>, most: usize, emit: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    if bytes.len() > most {
        emit(bytes)?;
        bytes.clear();
    }
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "loom")]
mod interleavings;
#[cfg(test)]
mod tests;
