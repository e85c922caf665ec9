//! The batches that peers may lack.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message as _;

use super::message::{BanChange, Charges, LimitCharges};
use crate::base::time::Timestamp;

/// Charges in one batch at most: about 80 KB.
pub(super) const BATCH_CHARGES_MAX: usize = 4096;

/// Changes of bans in one batch at most. They may contain texts.
const BATCH_BANS_MAX: usize = 1024;

/// Charges in all batches together at most: about 10 MB.
const CHARGES_MAX: usize = 1 << 19;

/// The newest batches of this replica, encoded.
#[derive(Debug)]
pub(super) struct History {
    batches: VecDeque<MadeBatch>,
    /// The sequence number of the first batch, or of the next one if there is none.
    oldest: u64,
    /// The charges of all batches.
    charges: usize,
}

#[derive(Debug)]
struct MadeBatch {
    at: Timestamp,
    charges: usize,
    encoded: Bytes,
}

impl Default for History {
    fn default() -> Self {
        Self { batches: VecDeque::new(), oldest: 1, charges: 0 }
    }
}

impl History {
    /// The sequence number of the oldest batch that is left.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The sequence number of the next batch.
    pub(super) fn next(&self) -> u64 {
        self.oldest + self.batches.len() as u64
    }

    /// The encoded batch, and when it was made.
    pub(super) fn batch(&self, sequence: u64) -> Option<(Bytes, Timestamp)> {
        let index = usize::try_from(sequence.checked_sub(self.oldest)?).ok()?;
        self.batches.get(index).map(|batch| (batch.encoded.clone(), batch.at))
    }

    /// Adds `limits` in as few batches as possible, and `bans` in batches of their own.
    pub(super) fn add(&mut self, limits: Vec<LimitCharges>, bans: &[BanChange], now: Timestamp) {
        for bans in bans.chunks(BATCH_BANS_MAX) {
            self.push((Vec::new(), bans.to_vec()), bans.len(), now);
        }
        let (mut batch, mut charges) = (Vec::new(), 0);
        for mut limit in limits {
            while let Some(rest) = limit.split_off(BATCH_CHARGES_MAX - charges) {
                batch.push(limit);
                self.push((std::mem::take(&mut batch), Vec::new()), BATCH_CHARGES_MAX, now);
                (limit, charges) = (rest, 0);
            }
            charges += limit.len();
            batch.push(limit);
        }
        if charges > 0 {
            self.push((batch, Vec::new()), charges, now);
        }
    }

    fn push(&mut self, (limits, bans): (Vec<LimitCharges>, Vec<BanChange>), charges: usize, now: Timestamp) {
        let batch = Charges { sequence: self.next(), limits, bans };
        self.batches.push_back(MadeBatch { at: now, charges, encoded: batch.encode_to_vec().into() });
        self.charges += charges;
        while self.charges > CHARGES_MAX {
            self.forget_first();
        }
    }

    /// Leaves a sequence number out, and forgets all before it: charges were lost, so every peer has a gap.
    pub(super) fn leave_gap(&mut self) {
        *self = Self { oldest: self.next() + 1, ..Self::default() };
    }

    /// Forgets batches that were made before `earliest`.
    pub(super) fn forget_before(&mut self, earliest: Timestamp) {
        while self.batches.front().is_some_and(|batch| batch.at < earliest) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.batches.pop_front() {
            self.oldest += 1;
            self.charges -= first.charges;
        }
    }
}
