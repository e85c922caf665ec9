//! Token buckets of any number of keys in fixed memory: a count-min sketch (Cormode and Muthukrishnan, 2005) of
//! theoretical arrival times, with conservative update (Estan and Varghese, 2002).
//!
//! Each key has one cell in each of a few rows, and shares it with other keys. Its `tat` is the least of its cells. A charge
//! raises the cells that are below the new `tat`, and no others.
//!
//! Bound: no cell of a key is ever below the `tat` of a bucket of its own, so the sketch admits nothing that such a bucket
//! would refuse. It may refuse too early: a key whose cells are all shared with busier keys counts as busy as the least
//! busy of them.
//!
//! Nothing is locked here: the caller holds one lock for a sketch.

use bytes::BufMut;

use super::packed::{Packed, Unpacker, put_instant};
use super::{Decision, Key, Quota, Rate, token_bucket};
use crate::base::time::Timestamp;

/// Cells of one key. A key is charged for others only if all of its cells are shared.
pub const ROWS: usize = 4;

/// The buckets of many keys.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// A `tat` in each cell, row by row. The length of a row is a power of two.
    cells: Box<[Timestamp]>,
    width: usize,
    quota: Quota,
    /// The latest cell.
    latest: Timestamp,
    /// Counts charges that have not been undone, and passes over all cells.
    charges: u64,
}

/// The proof of a charge.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    /// The key's cells before the charge.
    before: [Timestamp; ROWS],
    charges: u64,
    cost: u64,
}

impl Sketch {
    /// An empty sketch of about `cells` cells of 8 bytes; a power of two in each row, at least 16.
    pub fn new(cells: usize, quota: &Quota) -> Self {
        let width = (cells / ROWS).max(16).next_power_of_two();
        let cells = vec![Timestamp::ZERO; width * ROWS].into_boxed_slice();
        Self { cells, width, quota: *quota, latest: Timestamp::ZERO, charges: 0 }
    }

    /// Decides a request of `cost` units and, if admitted, charges it; the receipt is for [`Sketch::undo`].
    pub fn admit(&mut self, key: Key, quota: &Quota, cost: u64, now: Timestamp) -> (Decision, Option<Receipt>) {
        self.adopt(quota, now);
        let places = self.places(key);
        let before = places.map(|place| self.cells[place]);
        let decision = self.bucket(&before).peek(quota, cost, now);
        let is_charged = decision.is_admitted() && cost > 0;
        if is_charged {
            let tat = decision.full_at(now);
            for place in places {
                self.cells[place] = self.cells[place].max(tat);
            }
            self.latest = self.latest.max(tat);
            self.charges += 1;
        }
        (decision, is_charged.then_some(Receipt { before, charges: self.charges, cost }))
    }

    /// The bucket of `key`, for peeks, for waits, and as the first state of a key that gets a bucket of its own.
    pub fn state(&self, key: Key) -> token_bucket::State {
        self.bucket(&self.places(key).map(|place| self.cells[place]))
    }

    /// Raises the cells of `key` to `state`, which is under the quota of the last decision. Cells are never lowered: other
    /// keys may depend on them.
    pub fn raise(&mut self, key: Key, state: &token_bucket::State, now: Timestamp) {
        let tat = now.saturating_add_ns(state.deficit_ns(&self.quota, now));
        for place in self.places(key) {
            self.cells[place] = self.cells[place].max(tat);
        }
        self.latest = self.latest.max(tat);
        self.charges += 1;
    }

    /// Undoes a charge, if all later charges have been undone. Otherwise other keys may depend on the cells. Returns the
    /// units that are given back.
    pub fn undo(&mut self, key: Key, receipt: &Receipt) -> u64 {
        if receipt.charges != self.charges {
            return 0;
        }
        for (place, before) in self.places(key).into_iter().zip(receipt.before) {
            self.cells[place] = before;
        }
        self.charges -= 1;
        receipt.cost
    }

    /// Carries spent units over to the interval of `quota`. If the interval differs, this is a pass over all cells.
    pub fn adopt(&mut self, quota: &Quota, now: Timestamp) {
        if self.quota.interval_ns() != quota.interval_ns() {
            for index in 0..self.cells.len() {
                let mut bucket = token_bucket::State::filling(self.cells[index], &self.quota);
                bucket.adopt(quota, now);
                self.cells[index] = bucket.idle_at();
            }
            self.latest = self.cells.iter().copied().max().unwrap_or(Timestamp::ZERO);
            self.charges += 1;
        }
        self.quota = *quota;
    }

    /// The instant from which every key is idle.
    pub fn idle_at(&self) -> Timestamp {
        self.latest
    }

    /// Cells in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    fn bucket(&self, cells: &[Timestamp; ROWS]) -> token_bucket::State {
        let tat = cells.iter().copied().min().unwrap_or(Timestamp::ZERO);
        token_bucket::State::filling(tat, &self.quota)
    }

    /// The index of the key's cell in each row, by four parts of the hash.
    fn places(&self, key: Key) -> [usize; ROWS] {
        let Key { first: low, second: high } = key;
        let mask = self.width as u64 - 1;
        let hashes = [low, low >> 32, high, high >> 32];
        std::array::from_fn(|row| row * self.width + usize::try_from(hashes[row] & mask).unwrap_or(0))
    }
}

/// The count of charges is not stored: receipts do not outlive their process.
impl Packed for Sketch {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64_le(self.quota.interval_ns());
        // A few rows of some thousand cells.
        bytes.put_u32_le(u32::try_from(self.width).unwrap_or(u32::MAX));
        self.cells.iter().for_each(|cell| put_instant(bytes, *cell));
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let quota = Quota::new(Rate { count: 1, period_ns: from.u64()? }, 1).ok()?;
        let width = usize::try_from(from.u32()?).ok().filter(|width| width.is_power_of_two())?;
        let cells: Option<Box<[_]>> = (0..width.checked_mul(ROWS)?).map(|_| from.instant()).collect();
        let cells = cells?;
        let latest = cells.iter().copied().max().unwrap_or(Timestamp::ZERO);
        Some(Self { cells, width, quota, latest, charges: 0 })
    }
}

#[cfg(test)]
mod tests;
