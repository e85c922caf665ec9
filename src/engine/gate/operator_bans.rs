//! Bans that operators set: of a key of one limit, or of addresses for all limits.
//!
//! While there is no such ban, a request reads one flag for keys and one for addresses. While there are bans of keys, it
//! also reads a flag of each limit: a ban costs the requests of other limits no look-up. Bans of keys are kept by the texts
//! of their parts, so that they outlive a policy and the secret of keys.
//!
//! Not here: changes of bans (`ban_changes`, `shared_bans`), bans that follow from refusals (`store::Bans`), and the file
//! of bans (admin).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use tokio::sync::Notify;

use super::top_keys::RefusedKeys;
use crate::base::time::Timestamp;
use crate::engine::limit::{Key, Retry};

/// A ban that an operator set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorBan {
    /// The clients that it bans.
    pub target: BanTarget,
    /// The end; `None` for a ban for good.
    pub until: Option<Timestamp>,
    /// When it was set or lifted. Of several changes of one ban, the last by (`since`, `replica`) counts.
    pub since: Timestamp,
    /// The number of the replica that set or lifted it.
    pub replica: u64,
    /// Whether it is lifted. That is remembered until `until`, for replicas that hear of it late.
    pub is_lifted: bool,
    /// The end of a longer ban that it replaced. The change is remembered until then, so that replicas which hear of it
    /// late do not bring the longer one back.
    pub replaced_until: Option<Timestamp>,
    /// The reason that the operator gave.
    pub reason: Option<Box<str>>,
    /// The name of the operator's token, if tokens are required.
    pub token: Option<Box<str>>,
}

/// The clients that a ban refuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BanTarget {
    /// A key of a limit, by the texts of its parts.
    Key(Box<str>, Vec<String>),
    /// A key of a limit, by its hash.
    Hash(Box<str>, Key),
    /// Addresses, for all limits.
    Network(IpNet),
}

/// A ban under the policy in force.
#[derive(Clone, Debug)]
pub struct BanInForce {
    /// The ban.
    pub ban: OperatorBan,
    /// The key that it bans; `None` for addresses, or if there is no such key.
    pub key: Option<Key>,
    /// The names and texts of the key's parts without secrets; `None` if they are not known.
    pub shown: Option<Vec<(String, String)>>,
    /// Why it does not apply.
    pub rejection: Option<String>,
}

/// The clients of a ban as they are compared: the same key may be known by its texts or by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum BannedClients {
    Key(Box<str>, Key),
    Target(BanTarget),
}

impl OperatorBan {
    /// The ban from `now` on; `None` if it is over. One that has replaced a longer one then continues as a lifted one.
    pub fn continuing(self, now: Timestamp) -> Option<Self> {
        if self.until.is_none_or(|until| until > now) {
            return Some(self);
        }
        let until = self.replaced_until.filter(|until| *until > now)?;
        Some(Self { until: Some(until), is_lifted: true, replaced_until: None, ..self })
    }

    /// The ban in a process that starts at `now`. If it was set later, the clock was set back, and no time has passed.
    /// Replicas have other clocks, and know a change by its instant; so a ban of a fleet stays as it is.
    pub fn at_start(mut self, now: Timestamp) -> Self {
        if self.replica == 0 {
            let back_ns = self.since.ns_since(now);
            let instants = [Some(&mut self.since), self.until.as_mut(), self.replaced_until.as_mut()];
            instants.into_iter().flatten().for_each(|at| *at = at.saturating_sub_ns(back_ns));
        }
        self
    }

    /// The instant until which replicas need to know of the change; `None` for ever.
    pub(super) fn remembered_until(&self) -> Option<Timestamp> {
        Some(self.until?.max(self.replaced_until.unwrap_or(Timestamp::ZERO)))
    }
}

impl BanInForce {
    /// The order of changes of one ban.
    pub(super) fn stamp(&self) -> (Timestamp, u64) {
        (self.ban.since, self.ban.replica)
    }

    /// Whether it is over at `now`.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ban.until.is_some_and(|until| until <= now)
    }

    /// The clients that the ban is about.
    pub(super) fn clients(&self) -> BannedClients {
        match (&self.ban.target, self.key) {
            (BanTarget::Key(limit, _) | BanTarget::Hash(limit, _), Some(key)) => BannedClients::Key(limit.clone(), key),
            (target, _) => BannedClients::Target(target.clone()),
        }
    }
}

/// Nanoseconds of a ban for good.
pub(super) const FOR_GOOD_NS: u64 = u64::MAX;

/// All bans of operators.
#[derive(Debug, Default)]
pub(super) struct OperatorBans {
    has_keys: AtomicBool,
    has_networks: AtomicBool,
    pub(super) set: ArcSwap<BanSet>,
    /// Taken by changes only.
    pub(super) changing: Mutex<()>,
    pub(super) refused: RefusedKeys,
    /// Notified when another replica has changed a ban.
    pub(super) heard: Notify,
}

/// Bans in a form for look-ups. The end of a ban for good is the end of time.
#[derive(Debug, Default)]
pub(super) struct BanSet {
    pub(super) all: Vec<BanInForce>,
    /// The names of the limits with banned keys.
    pub(super) limits: HashSet<Box<str>>,
    /// By key; several limits may have the same key.
    keys: HashMap<Key, Vec<KeyBan>>,
    networks: HashMap<IpNet, Timestamp>,
    /// The lengths of the networks' prefixes, of both families.
    prefixes: Vec<u8>,
}

/// The ban of a key of one limit.
#[derive(Debug)]
struct KeyBan {
    limit: Box<str>,
    until: Timestamp,
}

impl BanSet {
    fn new(all: Vec<BanInForce>) -> Self {
        let mut set = Self::default();
        for BanInForce { ban, key, .. } in all.iter().filter(|one| !one.ban.is_lifted) {
            let until = ban.until.unwrap_or(END_OF_TIME);
            match &ban.target {
                BanTarget::Key(limit, _) | BanTarget::Hash(limit, _) => {
                    if let Some(key) = key {
                        set.limits.insert(limit.clone());
                        set.keys.entry(*key).or_default().push(KeyBan { limit: limit.clone(), until });
                    }
                }
                BanTarget::Network(network) => {
                    set.networks.insert(network.trunc(), until);
                    set.prefixes.push(network.prefix_len());
                }
            }
        }
        set.prefixes.sort_unstable();
        set.prefixes.dedup();
        set.all = all;
        set
    }
}

const END_OF_TIME: Timestamp = Timestamp::from_ns(u64::MAX);

/// Nanoseconds from `now` to the end of a ban; `None` if it is over.
fn left_ns(until: Timestamp, now: Timestamp) -> Option<u64> {
    if until == END_OF_TIME { Some(FOR_GOOD_NS) } else { Some(until.ns_since(now)).filter(|ns| *ns > 0) }
}

/// The retry of a request that is banned for `ban_ns`.
pub(super) fn retry(ban_ns: u64) -> Retry {
    if ban_ns == FOR_GOOD_NS { Retry::Never } else { Retry::AfterNs(ban_ns) }
}

impl OperatorBans {
    /// Whether any key may be banned.
    #[inline]
    pub(super) fn has_keys(&self) -> bool {
        self.has_keys.load(Ordering::Relaxed)
    }

    /// Nanoseconds until the ban of `key` of `limit` ends; `None` if it is not banned.
    #[cold]
    pub(super) fn key_ns(&self, limit: &str, key: Key, now: Timestamp) -> Option<u64> {
        let set = self.set.load();
        let of_limit = set.keys.get(&key)?.iter().filter(|ban| *ban.limit == *limit);
        of_limit.filter_map(|ban| left_ns(ban.until, now)).max()
    }

    /// Nanoseconds until the ban of an address ends; `None` if it is not banned.
    #[inline]
    pub(super) fn address_ns(&self, address: IpAddr, now: Timestamp) -> Option<u64> {
        if self.has_networks.load(Ordering::Relaxed) { self.look_up_address(address, now) } else { None }
    }

    #[cold]
    fn look_up_address(&self, address: IpAddr, now: Timestamp) -> Option<u64> {
        let (set, address) = (self.set.load(), address.to_canonical());
        let networks = set.prefixes.iter().filter_map(|prefix| IpNet::new(address, *prefix).ok());
        networks.filter_map(|network| left_ns(*set.networks.get(&network.trunc())?, now)).max()
    }

    /// Replaces all bans, and returns those before. For a caller that holds `changing`.
    pub(super) fn replace(&self, all: Vec<BanInForce>) -> Arc<BanSet> {
        let set = BanSet::new(all);
        let (has_keys, has_networks) = (!set.keys.is_empty(), !set.networks.is_empty());
        let before = self.set.swap(Arc::new(set));
        self.has_keys.store(has_keys, Ordering::Relaxed);
        self.has_networks.store(has_networks, Ordering::Relaxed);
        before
    }

    /// The bans that are over at `now`, and those that continue.
    pub(super) fn split_over(&self, now: Timestamp) -> (Vec<BanInForce>, Vec<BanInForce>) {
        let all = &self.set.load().all;
        let stays = |one: &BanInForce| Some(BanInForce { ban: one.ban.clone().continuing(now)?, ..one.clone() });
        (all.iter().filter(|one| one.is_over(now)).cloned().collect(), all.iter().filter_map(stays).collect())
    }
}
