//! The members: which address leads to which replica, and how many replicas there are.
//!
//! A listed address counts as a replica, also if nobody answers there. So the replicas of a partition do not take the
//! share of those behind it. A connected replica counts, also if it is not listed yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::time::Timestamp;

/// What answers at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    /// Nothing has answered yet.
    #[default]
    Unknown,
    /// This process, or the one that it takes over from.
    Itself,
    /// The replica with this instance.
    Instance(u64),
}

/// The members by address.
#[derive(Debug, Default)]
pub(super) struct Roster {
    listed: BTreeMap<Box<str>, Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    target: Target,
    /// Whether the last connection was refused: the host is there, but no replica.
    is_refusing: bool,
    /// When the address left the list.
    left_at: Option<Timestamp>,
}

impl Roster {
    /// Replaces the list of addresses. `own` is the address of this replica, if it is known.
    pub(super) fn list(&mut self, addresses: &[Box<str>], own: Option<&str>, now: Timestamp) {
        for listed in self.listed.values_mut() {
            listed.left_at.get_or_insert(now);
        }
        for address in addresses {
            let listed = self.listed.entry(address.clone()).or_default();
            listed.left_at = None;
            if own == Some(address) {
                listed.target = Target::Itself;
            }
        }
    }

    /// Notes what answers at `address`. Returns the instance that did before, if it is another one.
    pub(super) fn found(&mut self, address: &str, target: Target) -> Option<u64> {
        let listed = self.listed.get_mut(address)?;
        listed.is_refusing = false;
        match std::mem::replace(&mut listed.target, target) {
            Target::Instance(before) if target != Target::Instance(before) => Some(before),
            _ => None,
        }
    }

    /// Notes whether `address` refuses connections.
    pub(super) fn refuses(&mut self, address: &str, is_refusing: bool) {
        if let Some(listed) = self.listed.get_mut(address) {
            listed.is_refusing = is_refusing;
        }
    }

    /// What answered last at the addresses that refuse connections.
    pub(super) fn refusing(&self) -> impl Iterator<Item = Target> {
        self.listed.values().filter(|listed| listed.is_refusing).map(|listed| listed.target)
    }

    /// Forgets addresses that left the list `grace_ns` ago.
    pub(super) fn expire(&mut self, grace_ns: u64, now: Timestamp) {
        self.listed.retain(|_, listed| listed.left_at.is_none_or(|at| now.ns_since(at) < grace_ns));
    }

    /// The replicas, this one included. `instances` are connected, or were a short time ago.
    pub(super) fn replicas(&self, instances: impl Iterator<Item = u64>) -> u64 {
        let mut known: BTreeSet<u64> = instances.collect();
        let mut unknown = 0;
        for listed in self.listed.values() {
            match listed.target {
                Target::Unknown => unknown += 1,
                Target::Itself => {}
                Target::Instance(instance) => _ = known.insert(instance),
            }
        }
        1 + unknown + known.len() as u64
    }

    /// An address that leads to a replica, one that is in the list if there is any.
    pub(super) fn address_of(&self, instance: u64) -> Option<&str> {
        let leading = self.listed.iter().filter(|(_, listed)| listed.target == Target::Instance(instance));
        leading.min_by_key(|(_, listed)| listed.left_at.is_some()).map(|(address, _)| &**address)
    }

    /// All addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.listed.keys().map(|address| &**address)
    }

    /// The addresses at which no replica has answered yet.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        let unknown = self.listed.iter().filter(|(_, listed)| listed.target == Target::Unknown);
        unknown.map(|(address, _)| &**address)
    }
}

#[cfg(test)]
mod tests {
    use super::Target::{Instance, Itself};
    use super::*;

    const GRACE_NS: u64 = 30;

    /// An event, and the replicas after it.
    enum Event {
        List(&'static str),
        Found(&'static str, Target),
        /// These instances are connected.
        Connected(&'static [u64]),
        Wait(u64),
    }
    use Event::{Connected, Found, List, Wait};

    #[test]
    fn replicas_join_at_once_and_leave_after_the_grace_period() {
        let (mut roster, mut connected, mut now) = (Roster::default(), &[][..], Timestamp::ZERO);
        for (row, (event, expected)) in [
            (Wait(0), 1),
            (List("a b c"), 4), // this replica may be another one
            (Found("a", Itself), 3),
            (Found("b", Instance(7)), 3),
            (Connected(&[7]), 3),
            (Connected(&[7, 8]), 4), // not listed yet
            (Found("c", Instance(8)), 3),
            (Found("c", Instance(7)), 3), // two addresses of one replica, and the other is connected
            (Connected(&[7]), 2),
            (Connected(&[]), 2), // listed, but cut off
            (Found("c", Instance(9)), 3),
            (List("a b d"), 4),
            (Found("d", Instance(9)), 3), // the replica has another address
            (List("a b"), 3),
            (Wait(29), 3),
            (Wait(1), 2),
            (Found("d", Instance(9)), 2),
            (List(""), 2),
            (Wait(30), 1),
            (Connected(&[7]), 2),
        ]
        .into_iter()
        .enumerate()
        {
            match event {
                List(text) => {
                    let all: Vec<Box<str>> = text.split_whitespace().map(Into::into).collect();
                    roster.list(&all, None, now);
                }
                Found(address, target) => _ = roster.found(address, target),
                Connected(instances) => connected = instances,
                Wait(ns) => now = now.saturating_add_ns(ns),
            }
            roster.expire(GRACE_NS, now);
            assert_eq!(roster.replicas(connected.iter().copied()), expected, "row {row}");
        }
    }

    #[test]
    fn the_own_address_is_no_other_replica() {
        let mut roster = Roster::default();
        roster.list(&["a".into(), "b".into()], Some("b"), Timestamp::ZERO);
        assert_eq!((roster.replicas([].into_iter()), roster.unknown().collect::<Vec<_>>()), (2, vec!["a"]));
        assert_eq!(roster.found("a", Instance(1)), None);
        assert_eq!(roster.found("a", Instance(2)), Some(1));
        assert_eq!((roster.address_of(2), roster.address_of(1)), (Some("a"), None));
    }
}
