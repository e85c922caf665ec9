//! Token buckets of keys beyond the bound, in fixed memory.
//!
//! Each key has one of a few sketches by its hash, so that threads seldom contend. Not here: why a sketch never admits
//! too much (`limit::sketch`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::receipt::{Outcome, Receipt};
use super::state::SketchStates;
use crate::base::time::Timestamp;
use crate::engine::limit::sketch::{self, ROWS, Sketch};
use crate::engine::limit::{Key, Packed, Quota, Unpacker, token_bucket};

const SKETCHES: usize = 16;
/// 16384 cells of 8 bytes in each sketch: 2 MiB for a limit that overflows, nothing for others. Each row has 65536 cells
/// in all, so that ten thousand keys that spend at once seldom collide.
const CELLS: usize = 1 << 14;

/// The sketches of one limit. A lock guards one of them for the length of one decision, or of a pass over its cells
/// when the rate has changed.
#[derive(Debug)]
pub(super) struct Sketches(Box<[Mutex<CountedSketch>]>);

#[derive(Debug)]
struct CountedSketch {
    sketch: Sketch,
    /// Decisions, counted here because threads would contend for one counter.
    decided: u64,
}

impl Sketches {
    /// Undoes a charge, unless its cells have been charged since. Returns the units that are given back.
    pub(super) fn undo(&self, key: Key, receipt: &sketch::Receipt) -> u64 {
        self.lock(key).sketch.undo(key, receipt)
    }

    fn lock(&self, key: Key) -> MutexGuard<'_, CountedSketch> {
        // Bits that the sketch does not use: it takes the lower bits of each quarter of the key.
        let index = (key.second >> 28) % SKETCHES as u64;
        self.0[usize::try_from(index).unwrap_or(0)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> impl Iterator<Item = MutexGuard<'_, CountedSketch>> {
        self.0.iter().map(|one| one.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Packed for Sketches {
    /// Locks one sketch at a time.
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.all().for_each(|one| one.sketch.pack(bytes));
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let one = |_| {
            let sketch = Sketch::unpack(from).filter(|sketch| sketch.width() * ROWS == CELLS)?;
            Some(Mutex::new(CountedSketch { sketch, decided: 0 }))
        };
        (0..SKETCHES).map(one).collect::<Option<_>>().map(Self)
    }
}

impl SketchStates<token_bucket::State> for Sketches {
    fn new(quota: &Quota) -> Option<Self> {
        let empty = |_| Mutex::new(CountedSketch { sketch: Sketch::new(CELLS, quota), decided: 0 });
        Some(Self((0..SKETCHES).map(empty).collect()))
    }

    fn admit(&self, key: Key, quota: &Quota, cost: u64, now: Timestamp) -> Outcome {
        let mut one = self.lock(key);
        one.decided += 1;
        let (decision, receipt) = one.sketch.admit(key, quota, cost, now);
        Outcome { decision, receipt: receipt.map_or(Receipt::None, |receipt| Receipt::Sketch(Box::new(receipt))) }
    }

    fn state(&self, key: Key, quota: &Quota, now: Timestamp) -> token_bucket::State {
        let mut one = self.lock(key);
        one.sketch.adopt(quota, now);
        one.sketch.state(key)
    }

    fn change<T>(
        &self,
        key: Key,
        quota: &Quota,
        now: Timestamp,
        change: impl FnOnce(&mut token_bucket::State) -> T,
    ) -> T {
        let mut one = self.lock(key);
        one.sketch.adopt(quota, now);
        let mut state = one.sketch.state(key);
        let changed = change(&mut state);
        one.sketch.raise(key, &state, now);
        changed
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.all().all(|one| one.sketch.idle_at() <= now)
    }

    fn take_decided(&self) -> u64 {
        self.all().map(|mut one| std::mem::take(&mut one.decided)).sum()
    }
}
