//! The keys of a limit as blocks of bytes, and back.

use std::io;

use super::keys::{Keys, Overflow};
use super::map::Map;
use super::ranges::BLOCK_BYTES;
use super::shared::SharedBuckets;
use super::state::TableState;
use crate::base::time::Timestamp;
use crate::engine::limit::{ClockShift, Key, Packed, Unpacker};
use crate::engine::store::snapshot::blocks::{Emit, Tag, entry};

/// Bytes of states that are copied at once, about.
const COPY_BYTES: usize = 64 << 10;

impl<S: TableState> Keys<S> {
    /// Packs all keys that are not idle at `now`.
    pub(in crate::engine::store) fn pack(&self, now: Timestamp, emit: &mut Emit<'_>) -> io::Result<()> {
        let is_known = |state: &S| state.idle_at() > now;
        self.states.in_blocks(BLOCK_BYTES, is_known, |bytes| emit(Tag::Keys, bytes))?;
        match self.overflow.get() {
            None => Ok(()),
            Some(Overflow::Sketches(sketches)) => {
                let mut bytes = Vec::new();
                sketches.pack(&mut bytes);
                emit(Tag::Sketch, &bytes)
            }
            Some(Overflow::Shared(buckets)) => buckets.pack(now, BLOCK_BYTES, emit),
        }
    }

    /// Packs the state of `key`, if it has one, as it is after a settlement at `now` that is not made.
    pub(super) fn pack_settled(&self, key: Key, rule: &S::Rule, extra: i64, now: Timestamp, bytes: &mut Vec<u8>) {
        if let Ok(mut state) = self.states.find(key, |state| state.clone()) {
            state.settle(rule, extra, 0, now);
            key.pack(bytes);
            state.pack(bytes);
        }
    }

    /// Calls `seen` with a copy of each state that is remembered exactly and not idle at `now`. No lock is held then.
    pub(in crate::engine::store) fn each(&self, now: Timestamp, mut seen: impl FnMut(Key, S)) {
        let is_known = |state: &S| state.idle_at() > now;
        // Nothing is written, so nothing fails.
        let _ = self.states.in_blocks(COPY_BYTES, is_known, |bytes| {
            let mut from = Unpacker::new(bytes, ClockShift::default());
            while let Some((key, state)) = entry::<S>(&mut from) {
                seen(key, state);
            }
            Ok(())
        });
    }

    /// Adds the keys of a block that are not idle at `now`, whatever the bound. The last state of a key counts.
    pub(in crate::engine::store) fn unpack_keys(&self, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        while !from.is_empty() {
            let (key, state) = entry::<S>(from)?;
            self.states.entry(key, |known| match known {
                Some(known) => {
                    *known = state;
                    (None, ())
                }
                None => ((state.idle_at() > now).then_some(state), ()),
            });
        }
        Some(())
    }

    pub(in crate::engine::store) fn unpack_sketch(&self, from: &mut Unpacker<'_>) -> Option<()> {
        self.overflow.set(Overflow::Sketches(Packed::unpack(from)?)).ok()
    }

    pub(in crate::engine::store) fn unpack_shared(&self, from: &mut Unpacker<'_>) -> Option<()> {
        match self.overflow.get_or_init(|| Overflow::Shared(SharedBuckets::default())) {
            Overflow::Shared(buckets) => buckets.unpack(from),
            Overflow::Sketches(_) => None,
        }
    }
}
