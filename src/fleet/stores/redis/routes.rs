//! Which node has a key: rendezvous hashing over independent nodes, or the slots of a Redis Cluster.
//!
//! Pure. Not here: how the nodes and their slots are found.

use crate::base::split_mix::mix;
use crate::engine::limit::Key;
use crate::fleet::stores::driver::NodeAddress;

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Which of several nodes has a key. All replicas with equal addresses agree, also those of other versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Routes {
    /// One node has all keys.
    One,
    /// Independent nodes, by the seeds of their addresses. A key goes to the node with the highest weight, so it stays
    /// when other nodes come or go.
    Ring(Box<[u64]>),
    /// A cluster: the node of each slot, or [`Routes::NOBODY`].
    Slots(Box<[u16]>),
}

impl Routes {
    /// The node of a slot that no master serves.
    pub(super) const NOBODY: u16 = u16::MAX;

    /// The routes to independent nodes.
    pub(super) fn ring(nodes: &[NodeAddress]) -> Self {
        match nodes {
            [_] => Self::One,
            nodes => Self::Ring(nodes.iter().map(|node| seed(&node.to_string())).collect()),
        }
    }

    /// The index of the node with `key`, which is in `slot` if the store is a cluster. `None` if no node serves it.
    pub(super) fn node(&self, key: Key, slot: u16) -> Option<usize> {
        match self {
            Self::One => Some(0),
            Self::Ring(seeds) => {
                let weight = |seed: u64| mix(seed ^ mix(key.first ^ mix(key.second)));
                let heaviest = seeds.iter().enumerate().max_by_key(|(_, seed)| weight(**seed));
                heaviest.map(|(index, _)| index)
            }
            Self::Slots(nodes) => {
                let node = *nodes.get(usize::from(slot))?;
                (node != Self::NOBODY).then_some(usize::from(node))
            }
        }
    }
}

/// The slot of a key: CRC16 of its hash tag, the first text in braces, or else of the whole name.
pub(super) fn slot(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % SLOTS
}

fn tag(name: &[u8]) -> Option<&[u8]> {
    let rest = name.split_at(memchr::memchr(b'{', name)? + 1).1;
    rest.get(..memchr::memchr(b'}', rest)?).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM, as the specification of Redis Cluster says.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let (mut table, mut index) = ([0; 256], 0_u16);
        while index < 256 {
            let (mut crc, mut bit) = (index << 8, 0);
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
                bit += 1;
            }
            table[index as usize] = crc;
            index += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ *byte)])
}

/// FNV-1a, 64 bits.
fn seed(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(ports: impl Iterator<Item = u16>) -> (Vec<u16>, Routes) {
        let ports: Vec<u16> = ports.collect();
        let nodes: Vec<_> = ports.iter().map(|port| NodeAddress::tcp("10.0.0.1", *port)).collect();
        (ports, Routes::ring(&nodes))
    }

    fn keys() -> impl Iterator<Item = Key> {
        (0..30_000).map(|n| Key { first: mix(n), second: mix(!n) })
    }

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` of Redis 7.0 says.
        for (name, expected) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("weir:{foo}:x", 12_182),
            ("{foo}", 12_182),
            ("foo{}", 5542),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
        ] {
            assert_eq!(slot(name.as_bytes()), expected, "{name}");
        }
    }

    /// Replicas of several versions share a ring during an update, so no version may move a key.
    #[test]
    fn nodes_of_keys_are_pinned() {
        let node = |host: &str, port| NodeAddress::tcp(host, port);
        let nodes = [node("redis-a", 6379), node("10.0.0.2", 6379), node("2001:db8::3", 6380)];
        let mut reversed = nodes.clone();
        reversed.reverse();
        let (routes, reversed) = (Routes::ring(&nodes), Routes::ring(&reversed));
        for (first, second, expected) in [
            (0, 0, 0),
            (0, 1, 0),
            (4, 0, 1),
            (0x0123_4567_89ab_cdec, 0xfedc_ba98_7654_3210, 2),
            (0xfedc_ba98_7654_3210, 0x0123_4567_89ab_cdef, 1),
            (0xee00_ddb7_aaf5_b108, 0x5d1f_0c2a_77e9_b3c6, 0),
            (0xffff_ffff_ffff_fffc, 0xffff_ffff_ffff_ffff, 1),
        ] {
            let key = Key { first, second };
            assert_eq!(routes.node(key, 0), Some(expected), "{key:x?}");
            assert_eq!(reversed.node(key, 0), Some(2 - expected), "{key:x?}");
        }
    }

    /// As the specification of FNV gives them for 64 bits.
    #[test]
    fn seeds_are_those_of_fnv_1a() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(seed(text), expected, "{text}");
        }
    }

    #[test]
    fn a_ring_spreads_keys_evenly() {
        let (ports, routes) = ring(6379..6384);
        let mut counts = vec![0; ports.len()];
        keys().for_each(|key| counts[routes.node(key, 0).unwrap()] += 1);
        assert!(counts.iter().all(|count| (5700..6300).contains(count)), "{counts:?}");
    }

    #[test]
    fn only_the_keys_of_a_removed_node_move() {
        let (before, all) = ring(6379..6384);
        let (after, fewer) = ring((6379..6384).filter(|port| *port != 6381).rev());
        for key in keys() {
            let was = before[all.node(key, 0).unwrap()];
            let is = after[fewer.node(key, 0).unwrap()];
            assert!(was == is || was == 6381, "{was} {is}");
        }
    }

    #[test]
    fn slots_without_a_master_have_no_node() {
        let mut nodes = vec![Routes::NOBODY; SLOTS.into()];
        nodes[12_182] = 2;
        let routes = Routes::Slots(nodes.into());
        assert_eq!(routes.node(Key::default(), slot(b"weir:{foo}")), Some(2));
        assert_eq!(routes.node(Key::default(), slot(b"weir:{bar}")), None);
    }
}
