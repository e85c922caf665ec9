//! The members: which address leads to which replica, and how many replicas there are.
//!
//! A listed address counts as a replica, also if nobody answers there. So the replicas of a partition do not take the
//! share of those behind it. A connected replica counts, also if it is not listed yet. A replica counts once: it may be at
//! an address that has not answered since it connected, and so may this replica until all addresses were tried.

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
    /// Since when a replica that is not at a known address may be here; `None` once an attempt has failed since.
    open_since: Option<Timestamp>,
}

/// The replicas of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// All, this one included.
    pub(super) replicas: u64,
    /// Those that are only addresses at which none has answered.
    pub(super) unknown: u64,
}

impl Roster {
    /// Replaces the list of addresses. `own` is the address of this replica, if it is known.
    pub(super) fn list(&mut self, addresses: &[Box<str>], own: Option<&str>, now: Timestamp) {
        for listed in self.listed.values_mut() {
            listed.left_at.get_or_insert(now);
        }
        for address in addresses {
            let listed = || Listed { open_since: Some(now), ..Listed::default() };
            let listed = self.listed.entry(address.clone()).or_insert_with(listed);
            listed.left_at = None;
            if own == Some(address) {
                listed.target = Target::Itself;
            }
        }
    }

    /// Notes what answers at `address`. Returns the instance that did before, if it is another one.
    pub(super) fn found(&mut self, address: &str, target: Target) -> Option<u64> {
        let listed = self.listed.get_mut(address)?;
        (listed.is_refusing, listed.open_since) = (false, None);
        match std::mem::replace(&mut listed.target, target) {
            Target::Instance(before) if target != Target::Instance(before) => Some(before),
            _ => None,
        }
    }

    /// Notes that an attempt to reach `address` that began at `began` has failed, and whether it was refused.
    pub(super) fn failed(&mut self, address: &str, is_refusing: bool, began: Timestamp) {
        if let Some(listed) = self.listed.get_mut(address) {
            listed.is_refusing = is_refusing;
            listed.open_since = listed.open_since.filter(|since| *since > began);
        }
    }

    /// Notes that the replica `instance` has connected. If its address is not known, it may have taken the address of one
    /// that is not among the `connected`.
    pub(super) fn joined(&mut self, instance: u64, connected: &BTreeSet<u64>, now: Timestamp) {
        if self.address_of(instance).is_some() {
            return;
        }
        for listed in self.listed.values_mut() {
            if matches!(listed.target, Target::Instance(before) if !connected.contains(&before)) {
                (listed.is_refusing, listed.open_since) = (false, Some(now));
            }
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

    /// The replicas. `instances` are connected, or were a short time ago; `connected` are now.
    pub(super) fn count(&self, instances: &BTreeSet<u64>, connected: &BTreeSet<u64>) -> Count {
        let (mut own, mut may_be_own, mut unknown, mut open) = (0, false, 0, BTreeSet::new());
        let mut at_address = BTreeSet::new();
        for listed in self.listed.values() {
            match listed.target {
                Target::Unknown => {
                    unknown += 1;
                    may_be_own |= listed.open_since.is_some();
                }
                Target::Itself => own = 1,
                Target::Instance(one) if listed.open_since.is_some() && !connected.contains(&one) => {
                    open.insert(one);
                }
                Target::Instance(one) => {
                    at_address.insert(one);
                }
            }
        }
        let open: BTreeSet<u64> = open.difference(&at_address).copied().collect();
        let elsewhere = instances.iter().filter(|one| !at_address.contains(one) && !open.contains(one)).count() as u64;
        let (places, known) = (unknown + open.len() as u64, at_address.len() as u64);
        let replicas =
            if own == 0 && may_be_own { known + places.max(elsewhere + 1) } else { 1 + known + places.max(elsewhere) };
        Count { replicas, unknown: unknown.saturating_sub(elsewhere) }
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
    #[derive(Clone, Copy)]
    enum Event {
        List(&'static str),
        Found(&'static str, Target),
        /// No replica answers at the address.
        Failed(&'static str),
        /// These instances are connected, the last one since now.
        Connected(&'static [u64]),
        Wait(u64),
    }
    use Event::{Connected, Failed, Found, List, Wait};

    /// `gone` has been connected, and is remembered.
    #[track_caller]
    fn check(gone: &[u64], rows: &[(Event, u64)]) {
        let (mut roster, mut connected, mut now) = (Roster::default(), BTreeSet::new(), Timestamp::from_ns(1));
        for (row, (event, expected)) in rows.iter().enumerate() {
            match event {
                List(text) => {
                    let all: Vec<Box<str>> = text.split_whitespace().map(Into::into).collect();
                    roster.list(&all, None, now);
                }
                Found(address, target) => _ = roster.found(address, *target),
                Failed(address) => roster.failed(address, true, now),
                Connected(instances) => {
                    connected = instances.iter().copied().collect();
                    instances.last().iter().for_each(|last| roster.joined(**last, &connected, now));
                }
                Wait(ns) => now = now.saturating_add_ns(*ns),
            }
            roster.expire(GRACE_NS, now);
            let instances = connected.iter().chain(gone).copied().collect();
            assert_eq!(roster.count(&instances, &connected).replicas, *expected, "row {row}");
        }
    }

    #[test]
    fn replicas_join_at_once_and_leave_after_the_grace_period() {
        check(
            &[],
            &[
                (Wait(0), 1),
                (List("a b c"), 3), // one may be this replica
                (Found("a", Itself), 3),
                (Found("b", Instance(7)), 3),
                (Connected(&[7]), 3),
                (Found("c", Instance(8)), 3),
                (Connected(&[7, 8]), 3),
                (Connected(&[7, 8, 5]), 4), // not listed yet
                (Connected(&[7, 8]), 3),
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
            ],
        );
    }

    #[test]
    fn a_replica_that_connects_before_its_address_answers_counts_once() {
        let rows = [Found("a", Itself), Found("b", Instance(7)), Found("c", Instance(8))].map(|event| (event, 3));
        check(&[], &[&[(List("a b c"), 3), (Connected(&[7]), 3), (Connected(&[7, 8]), 3)], &rows[..]].concat());
        // Another order, and an address that nobody reaches.
        check(
            &[],
            &[
                (List("a b c"), 3),
                (Connected(&[8]), 3),
                (Found("b", Instance(7)), 3),
                (Failed("c"), 3),
                (Found("a", Itself), 3),
                (Connected(&[7]), 3),
                (Wait(30), 3),
            ],
        );
    }

    #[test]
    fn a_list_without_this_replica_has_one_less() {
        check(
            &[],
            &[
                (List("b c"), 2), // one may be this replica
                (Failed("b"), 2),
                (Failed("c"), 3),
                (Connected(&[8]), 3),
                (Found("c", Instance(8)), 3),
                (Found("b", Instance(7)), 3),
            ],
        );
    }

    #[test]
    fn a_process_may_have_the_address_of_one_that_is_gone_until_an_attempt_fails() {
        let met = || [(List("a b"), 2), (Found("a", Itself), 2), (Found("b", Instance(7)), 2), (Connected(&[7]), 2)];
        let restarted = [(Connected(&[]), 2), (Failed("b"), 2), (Connected(&[9]), 2)];
        let back = [(Found("b", Instance(9)), 2), (Wait(30), 2)];
        check(&[], &[&met()[..], &restarted[..], &back[..]].concat());
        let elsewhere = [(Failed("b"), 3), (Wait(30), 3), (Found("b", Instance(7)), 3)];
        check(&[7], &[&met()[..], &restarted[..], &elsewhere[..]].concat());
    }

    #[test]
    fn the_own_address_is_no_other_replica() {
        let mut roster = Roster::default();
        roster.list(&["a".into(), "b".into()], Some("b"), Timestamp::ZERO);
        let count = roster.count(&BTreeSet::new(), &BTreeSet::new());
        assert_eq!((count.replicas, roster.unknown().collect::<Vec<_>>()), (2, vec!["a"]));
        assert_eq!(roster.found("a", Instance(1)), None);
        assert_eq!(roster.found("a", Instance(2)), Some(1));
        assert_eq!((roster.address_of(2), roster.address_of(1)), (Some("a"), None));
    }
}
