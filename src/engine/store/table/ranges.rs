//! A concurrent map as blocks of bytes.

use std::hash::BuildHasher;
use std::io;

use dashmap::DashMap;

use crate::engine::limit::{Key, Packed};

/// Bytes of a block, about. This bounds the memory of a snapshot, and the time for which a shard with large states is
/// locked to some milliseconds.
pub(in crate::engine::store) const BLOCK_BYTES: usize = 8 << 20;

/// Packs the `wanted` entries of `map` in blocks of about `most` bytes. No shard is locked while a block is emitted.
///
/// An iteration over a map cannot be interrupted without a lock. So each block has the keys whose second half, which is
/// uniform, lies in one range. A range is halved until its block fits, and doubled after a block that was half empty.
pub(in crate::engine::store) fn in_blocks<S: Packed>(
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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::limit::{ClockShift, Unpacker};
    use crate::engine::store::snapshot::blocks::entry;

    proptest! {
        #[test]
        fn each_key_is_in_one_block_and_none_is_too_long(
            seconds in prop::collection::hash_set(any::<u64>(), 0..300), most in 1_usize..2000,
        ) {
            let map: DashMap<Key, Key> =
                seconds.into_iter().map(|second| Key::of_hash(!second, second)).map(|key| (key, key)).collect();
            let mut found = BTreeMap::new();
            let is_wanted = |key: &Key| !key.second.is_multiple_of(5);
            in_blocks(&map, most, is_wanted, |bytes| {
                // A single key is written however long it is.
                assert!(bytes.len() <= most.max(32) && map.iter().all(|entry| entry.key() == entry.value()));
                let mut from = Unpacker::new(bytes, ClockShift::default());
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
        let keys = (0..9).map(|first| Key::of_hash(4 * first, 7));
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
