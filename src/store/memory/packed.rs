//! The keys of a limit as blocks of bytes, and back.

use std::hash::BuildHasher;
use std::io;

use dashmap::DashMap;

use super::{Crowd, Keys};
use crate::limit::{Key, Packed, Unpacker};
use crate::store::kept::Kept;
use crate::store::map::Map;
use crate::store::overflow::Overflow;
use crate::store::snapshot::{Emit, Tag, entry};
use crate::time::Timestamp;

/// Bytes that are packed before they are written. It bounds the memory that a snapshot takes, and how long a shard is
/// locked if its states are large: some milliseconds.
pub(in crate::store) const BLOCK_BYTES: usize = 8 << 20;

impl<S: Kept> Keys<S> {
    /// Packs all that is not as good as new at `now`.
    pub(in crate::store) fn pack(&self, now: Timestamp, emit: &mut Emit<'_>) -> io::Result<()> {
        let is_known = |state: &S| state.idle_at() > now;
        self.states.in_blocks(BLOCK_BYTES, is_known, |bytes| emit(Tag::Keys, bytes))?;
        match self.overflow.get() {
            None => Ok(()),
            Some(Crowd::Sketches(sketches)) => {
                let mut bytes = Vec::new();
                sketches.pack(&mut bytes);
                emit(Tag::Sketch, &bytes)
            }
            Some(Crowd::Shared(overflow)) => overflow.pack(now, BLOCK_BYTES, emit),
        }
    }

    /// Remembers those of the keys in a block that are not as good as new at `now`, whatever the bound.
    pub(in crate::store) fn unpack_keys(&self, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        while !from.is_empty() {
            let (key, state) = entry::<S>(from)?;
            if state.idle_at() > now {
                self.states.entry(key, |known| match known {
                    Some(known) => {
                        *known = state;
                        (None, ())
                    }
                    None => (Some(state), ()),
                });
            }
        }
        Some(())
    }

    pub(in crate::store) fn unpack_sketch(&self, from: &mut Unpacker<'_>) -> Option<()> {
        self.overflow.set(Crowd::Sketches(Packed::unpack(from)?)).ok()
    }

    pub(in crate::store) fn unpack_shared(&self, from: &mut Unpacker<'_>) -> Option<()> {
        match self.overflow.get_or_init(|| Crowd::Shared(Overflow::default())) {
            Crowd::Shared(overflow) => overflow.unpack(from),
            Crowd::Sketches(_) => None,
        }
    }
}

/// Packs what is `wanted` of `map`, some `most` bytes at a time. No shard is locked while a block is emitted.
///
/// A map is looked through from its beginning and cannot be left in between. So each block is of those keys whose
/// second half, which is uniform, lies in a range; a range is halved until it fits, and the next one doubled where
/// there was room to spare.
pub(in crate::store) fn in_blocks<S: Packed>(
    map: &DashMap<Key, S, impl BuildHasher + Clone>,
    most: usize,
    wanted: impl Fn(&S) -> bool,
    mut emit: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let (mut from, mut width) = (0, u64::MAX);
    loop {
        let to = u64::saturating_add(from, width);
        bytes.clear();
        let mut fits = true;
        for entry in map.iter().filter(|entry| (from..=to).contains(&entry.key().second) && wanted(entry)) {
            entry.key().pack(&mut bytes);
            entry.value().pack(&mut bytes);
            fits = bytes.len() <= most || width == 0;
            if !fits {
                break;
            }
        }
        if !fits {
            width /= 2;
            continue;
        }
        if !bytes.is_empty() {
            emit(&bytes)?;
        }
        if bytes.len() <= most / 2 {
            width = width.saturating_mul(2).saturating_add(1);
        }
        match to.checked_add(1) {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on says so
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::limit::Moved;

    proptest! {
        #[test]
        fn each_key_is_in_one_block_and_none_is_too_long(
            seconds in prop::collection::hash_set(any::<u64>(), 0..300), most in 1_usize..2000,
        ) {
            let map: DashMap<Key, Key> =
                seconds.into_iter().map(|second| Key { first: !second, second }).map(|key| (key, key)).collect();
            let mut found = BTreeMap::new();
            let is_wanted = |key: &Key| !key.second.is_multiple_of(5);
            in_blocks(&map, most, is_wanted, |bytes| {
                // A single key is written however long it is.
                assert!(bytes.len() <= most.max(32) && map.iter().all(|entry| entry.key() == entry.value()));
                let mut from = Unpacker::new(bytes, Moved::default());
                while !from.is_empty() {
                    let (key, state) = entry::<Key>(&mut from).unwrap();
                    assert!(found.insert(key, state).is_none());
                }
                Ok(())
            }).unwrap();
            let wanted = map.into_iter().filter(|(_, key)| is_wanted(key)).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn keys_of_one_hash_are_one_block() {
        let keys = (0..9).map(|first| Key { first, second: 7 });
        let map: DashMap<Key, Key> = keys.map(|key| (key, key)).collect();
        let mut lengths = Vec::new();
        let mut note = |bytes: &[u8]| {
            lengths.push(bytes.len());
            Ok(())
        };
        in_blocks(&map, 40, |_| true, &mut note).unwrap();
        assert_eq!(lengths, [9 * 32]);
    }
}
