//! States of any kind in a sharded map.

use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;

use dashmap::{DashMap, Entry};

use super::map::{Len, Map};
use super::ranges::in_blocks;
use crate::engine::limit::{Key, Packed};

/// States by key, behind the lock of a shard.
#[derive(Debug)]
pub(super) struct Shards<S> {
    states: DashMap<Key, S, BuildHasherDefault<Spread>>,
    /// The map's own length locks every shard.
    len: Len,
}

/// Keys of a shard at the bound; the largest shard has a third more. To grow or sweep a shard takes a fraction of a
/// millisecond, and to let its states adopt other rules up to five milliseconds. The headers of the shards (128 bytes each) fit into a processor's cache.
const KEYS_PER_SHARD: usize = 16_384;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 1 << 14;

impl<S: Debug + Packed> Map<S> for Shards<S> {
    fn new(max_keys: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        let states = DashMap::with_capacity_and_hasher_and_shard_amount(0, BuildHasherDefault::default(), shards);
        Self { states, len: Len::default() }
    }

    fn len(&self) -> usize {
        self.len.get()
    }

    fn find<T, F: FnOnce(&mut S) -> T>(&self, key: Key, seen: F) -> Result<T, F> {
        match self.states.get_mut(&key) {
            Some(mut state) => Ok(seen(&mut state)),
            None => Err(seen),
        }
    }

    fn entry<T>(&self, key: Key, change: impl FnOnce(Option<&mut S>) -> (Option<S>, T)) -> T {
        match self.states.entry(key) {
            Entry::Occupied(mut entry) => change(Some(entry.get_mut())).1,
            Entry::Vacant(entry) => {
                let (new, changed) = change(None);
                if let Some(state) = new {
                    self.len.add(1);
                    entry.insert(state);
                }
                changed
            }
        }
    }

    fn in_blocks(
        &self,
        most: usize,
        wanted: impl Fn(&S) -> bool,
        emit: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        in_blocks(&self.states, most, wanted, emit)
    }

    fn visit(&self, mut seen: impl FnMut(Key, &mut S)) {
        self.states.iter_mut().for_each(|mut entry| seen(*entry.key(), &mut entry));
    }

    fn retain(&self, mut wanted: impl FnMut(&S) -> bool) -> usize {
        let mut dropped = 0;
        self.states.retain(|_, state| {
            let stays = wanted(state);
            dropped += usize::from(!stays);
            stays
        });
        self.len.sub(dropped);
        dropped
    }
}

/// A hasher for keys, which are uniform hashes already. It gives shards unequal probabilities.
///
/// A shard doubles when it is full. With equal probabilities all shards would double at about the same time, and more than
/// half of the memory would be unused after that. With probabilities in a ratio of 3 to 5 some shards are full while
/// others have just doubled.
#[derive(Debug, Default)]
pub(in crate::engine::store) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    /// The map selects the shard by the bits below the first seven. 24 of these bits, as a fraction `x`, become
    /// `x * (5 - x) / 4`, whose slope falls from 5/4 to 3/4.
    ///
    /// The lowest bits select the place in the shard. Two of them are never set in a key; other bits take their places.
    fn write_u64(&mut self, half: u64) {
        const BITS: u32 = 24;
        const SHIFT: u32 = 64 - 7 - BITS;
        const MASK: u64 = ((1 << BITS) - 1) << SHIFT;
        let x = (half & MASK) >> SHIFT;
        let spread = (x * ((5 << BITS) - x)) >> (BITS + 2);
        self.0 = half & !MASK | spread << SHIFT | (half >> 30 & 0b11);
    }
}

#[cfg(test)]
mod tests;
