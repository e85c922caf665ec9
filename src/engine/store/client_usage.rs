//! Per-client usage: the things that each client has at once, so that no client takes all of them.
//!
//! The counts are exact. A client has an entry only as long as it has something, so there are no more entries than
//! counted things, whose number is bounded elsewhere. Not here: what is counted, and how clients are told apart.

use std::net::IpAddr;

use dashmap::{DashMap, Entry};

/// The usage of each client. A lock is held for one lookup.
#[derive(Debug, Default)]
pub struct ClientUsage(DashMap<IpAddr, Usage>);

/// A number of things and of their bytes: the usage of a client, or its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of things.
    pub count: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

impl ClientUsage {
    /// Adds one thing of `bytes` bytes to `client`. Returns `false`, and adds nothing, if the usage would exceed `most`.
    pub fn add(&self, client: IpAddr, bytes: usize, most: Usage) -> bool {
        self.increase(client, |usage| {
            let sum = Usage { count: usage.count + 1, bytes: usage.bytes.saturating_add(bytes) };
            usage.allows(bytes, most).then_some(sum)
        })
    }

    /// Adds bytes to the things of `client`. Returns `false`, and adds nothing, if the usage would exceed `most_bytes`.
    pub fn add_bytes(&self, client: IpAddr, bytes: usize, most_bytes: usize) -> bool {
        self.increase(client, |usage| {
            let sum = usage.bytes.checked_add(bytes).filter(|sum| *sum <= most_bytes);
            sum.map(|bytes| Usage { bytes, ..usage })
        })
    }

    /// Whether [`ClientUsage::add`] would succeed.
    pub fn fits(&self, client: IpAddr, bytes: usize, most: Usage) -> bool {
        self.0.get(&client).map(|usage| *usage).unwrap_or_default().allows(bytes, most)
    }

    /// Removes one thing of `bytes` bytes from `client`.
    pub fn remove(&self, client: IpAddr, bytes: usize) {
        self.reduce(client, Usage { count: 1, bytes });
    }

    /// Removes bytes that [`ClientUsage::add_bytes`] added.
    pub fn remove_bytes(&self, client: IpAddr, bytes: usize) {
        self.reduce(client, Usage { count: 0, bytes });
    }

    fn increase(&self, client: IpAddr, sum: impl FnOnce(Usage) -> Option<Usage>) -> bool {
        let entry = self.0.entry(client);
        let usage = match &entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) => Usage::default(),
        };
        let sum = sum(usage);
        sum.map(|sum| entry.insert(sum)).is_some()
    }

    fn reduce(&self, client: IpAddr, by: Usage) {
        let Entry::Occupied(mut known) = self.0.entry(client) else { return };
        let Usage { count, bytes } = *known.get();
        let left = Usage { count: count.saturating_sub(by.count), bytes: bytes.saturating_sub(by.bytes) };
        if left == Usage::default() {
            known.remove();
        } else {
            known.insert(left);
        }
    }

    /// The number of clients that have something.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no client has anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Usage {
    fn allows(self, bytes: usize, most: Self) -> bool {
        self.count < most.count && self.bytes.saturating_add(bytes) <= most.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Usage = Usage { count: 2, bytes: 100 };

    #[test]
    fn each_client_has_its_own_bound_and_leaves_nothing_behind() {
        let usage = ClientUsage::default();
        let [a, b] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0; 16])];
        // client, bytes, whether they fit
        for (client, bytes, fits) in [
            (a, 60, true),
            (a, 41, false),
            (a, 40, true),
            (a, 0, false),
            (b, 101, false),
            (b, usize::MAX, false),
            (b, 100, true),
        ] {
            assert_eq!(usage.fits(client, bytes, MOST), fits, "{client} {bytes}");
            assert_eq!(usage.add(client, bytes, MOST), fits, "{client} {bytes}");
        }
        assert_eq!(usage.len(), 2);
        usage.remove(a, 60);
        assert!(!usage.fits(a, 61, MOST) && usage.add(a, 60, MOST));
        for (client, bytes) in [(a, 40), (a, 60), (b, 100), (b, 100)] {
            usage.remove(client, bytes);
        }
        assert!(usage.is_empty());
    }

    #[test]
    fn bytes_of_a_thing_may_grow_within_the_bound_of_its_client() {
        let (usage, a) = (ClientUsage::default(), IpAddr::from([192, 0, 2, 1]));
        assert!(usage.add(a, 60, MOST) && !usage.add_bytes(a, 41, 100) && usage.add_bytes(a, 40, 100));
        assert!(!usage.add_bytes(a, usize::MAX, 100) && !usage.add(a, 1, MOST));
        // The thing may leave before its later bytes.
        usage.remove(a, 60);
        assert!(usage.add(a, 60, MOST) && !usage.add(a, 1, MOST));
        usage.remove_bytes(a, 40);
        usage.remove(a, 60);
        assert!(usage.is_empty() && !usage.add_bytes(a, 101, 100) && usage.is_empty());
    }
}
