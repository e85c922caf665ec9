//! Heavy hitters: the most frequent keys, in fixed memory (Space-Saving; Metwally, Agrawal and El Abbadi,
//! "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! `capacity` keys are counted. A new key replaces the key with the lowest count and takes over that count, which is its
//! error.
//!
//! Bounds, after `total` offers: for a counted key `count - error <= true count <= count`; `error` is at most
//! `total / capacity`; each key that was offered more than `total / capacity` times is counted. An offer takes time
//! logarithmic in `capacity`.
//!
//! Counts can be halved from time to time. The bounds are then halved and rounded down; an `error` is rounded up, so it may
//! be larger by one.
//!
//! Beside its count, a key has the occurrences of the last [`PIECES`] pieces of time since it got its slot. So they are a
//! lower bound without an error upwards, and a key that is frequent now comes before keys that were frequent earlier.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::{Key, KeyHasher};

/// Bytes of a key's text that are stored.
pub const TEXT_BYTES_MAX: usize = 256;

/// Pieces of time whose occurrences are recent.
pub const PIECES: usize = 6;

/// Counts of the most frequent keys.
#[derive(Debug)]
pub struct Top {
    /// The index of each key in `slots`.
    places: HashMap<Key, usize, BuildHasherDefault<KeyHasher>>,
    slots: Vec<Slot>,
    /// Indices into `slots` as a binary heap: no count is larger than the counts of its two children.
    heap: Vec<usize>,
    capacity: usize,
    total: u64,
    /// The index of the present piece in [`Slot::recent`].
    piece: usize,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    text: Box<str>,
    count: u64,
    error: u64,
    /// Occurrences in each piece, as a ring.
    recent: [u32; PIECES],
    /// The index in `heap`.
    rank: usize,
}

impl Slot {
    fn recent(&self) -> u64 {
        self.recent.iter().map(|count| u64::from(*count)).sum()
    }
}

/// A counted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The hash of the key.
    pub hash: Key,
    /// The text of its first offer, cut to [`TEXT_BYTES_MAX`].
    pub text: Box<str>,
    /// An upper bound on its offers.
    pub count: u64,
    /// `count - error` is a lower bound.
    pub error: u64,
    /// A lower bound on its offers in the recent pieces.
    pub recent: u64,
}

impl Top {
    /// A counter of `capacity` keys, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { places: HashMap::default(), slots: Vec::new(), heap: Vec::new(), capacity, total: 0, piece: 0 }
    }

    /// Counts one occurrence of a key. `text` is called only if the key gets a slot.
    pub fn offer<T: AsRef<str>>(&mut self, key: Key, text: impl FnOnce() -> T) {
        self.total = self.total.saturating_add(1);
        let recent = || std::array::from_fn(|piece| u32::from(piece == self.piece));
        if let Some(&place) = self.places.get(&key) {
            let slot = &mut self.slots[place];
            slot.count = slot.count.saturating_add(1);
            slot.recent[self.piece] = slot.recent[self.piece].saturating_add(1);
            let rank = slot.rank;
            self.sink(rank);
        } else if self.slots.len() < self.capacity {
            let rank = self.heap.len();
            self.places.insert(key, self.slots.len());
            self.heap.push(self.slots.len());
            self.slots.push(Slot { key, text: cut(text().as_ref()), count: 1, error: 0, recent: recent(), rank });
            self.rise(rank);
        } else if let Some(&place) = self.heap.first() {
            let recent = recent();
            let slot = &mut self.slots[place];
            self.places.remove(&slot.key);
            self.places.insert(key, place);
            (slot.key, slot.text, slot.error, slot.recent) = (key, cut(text().as_ref()), slot.count, recent);
            slot.count = slot.count.saturating_add(1);
            self.sink(0);
        }
    }

    /// The `n` keys with the most recent offers, the most first; of those with as many, the highest count first.
    pub fn top(&self, n: usize) -> Vec<TopKey> {
        let mut slots: Vec<&Slot> = self.slots.iter().collect();
        slots.sort_by_cached_key(|slot| (Reverse(slot.recent()), Reverse(slot.count), slot.error, slot.key));
        let top_key = |slot: &Slot| {
            let Slot { key: hash, ref text, count, error, .. } = *slot;
            TopKey { hash, text: text.clone(), count, error, recent: slot.recent() }
        };
        slots.into_iter().take(n).map(top_key).collect()
    }

    /// Begins a new piece of time, and forgets the oldest.
    pub fn turn(&mut self) {
        self.piece = (self.piece + 1) % PIECES;
        self.slots.iter_mut().for_each(|slot| slot.recent[self.piece] = 0);
    }

    /// The number of offers, halved as counts were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether no key is counted.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Halves all counts, so that recent offers weigh more than old ones. Removes keys whose count is 0.
    pub fn halve(&mut self) {
        for slot in &mut self.slots {
            slot.count /= 2;
            slot.error = slot.error.div_ceil(2).min(slot.count);
        }
        self.slots.retain(|slot| slot.count > 0);
        self.slots.sort_unstable_by_key(|slot| slot.count); // a sorted list is a heap
        self.slots.iter_mut().enumerate().for_each(|(place, slot)| slot.rank = place);
        self.heap = (0..self.slots.len()).collect();
        self.places = self.slots.iter().map(|slot| (slot.key, slot.rank)).collect();
        self.total = self.slots.iter().map(|slot| slot.count).sum();
    }

    fn count_at(&self, rank: usize) -> u64 {
        self.slots[self.heap[rank]].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.slots[self.heap[one]].rank = one;
        self.slots[self.heap[other]].rank = other;
    }

    fn rise(&mut self, mut rank: usize) {
        while rank > 0 && self.count_at(rank) < self.count_at((rank - 1) / 2) {
            self.swap(rank, (rank - 1) / 2);
            rank = (rank - 1) / 2;
        }
    }

    fn sink(&mut self, mut rank: usize) {
        loop {
            let children = (2 * rank + 1..2 * rank + 3).filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.count_at(*child)) else { return };
            if self.count_at(rank) <= self.count_at(least) {
                return;
            }
            self.swap(rank, least);
            rank = least;
        }
    }
}

/// The first [`TEXT_BYTES_MAX`] bytes, cut between characters.
fn cut(text: &str) -> Box<str> {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].into()
}

#[cfg(test)]
mod tests;
