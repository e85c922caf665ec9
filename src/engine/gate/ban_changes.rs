//! Changes of the bans that operators set, the requests that bans of addresses refuse, and the list of bans by limits.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::keys::{FoundKey, KeyName};
use super::operator_bans::{BanInForce, BanTarget, OperatorBan, retry};
use super::refusal::{Cause, Refusal};
use super::refusal_log::Receipt;
use super::state::{Gate, LimitState, Live};
use super::top_keys::TopKeys;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::access::canonical;
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::policy::{KeyPart, Limit, Mode};

/// The bans that one limit set itself.
#[derive(Debug)]
pub struct LimitBans<'l> {
    /// The name of the limit.
    pub limit: &'l str,
    /// The longest bans: the key, its name if that is known, and the nanoseconds that are left.
    pub longest: Vec<(Key, Option<Box<str>>, u64)>,
    /// The number of all other bans.
    pub more: usize,
}

impl Gate {
    /// The bans that operators set.
    pub fn operator_bans(&self) -> Vec<BanInForce> {
        self.operator_bans.set.load().all.iter().filter(|one| !one.ban.is_lifted).cloned().collect()
    }

    /// The bans that operators set, and those that they lifted and that other replicas may not know to be lifted.
    pub fn all_operator_bans(&self) -> Vec<OperatorBan> {
        self.operator_bans.set.load().all.iter().map(|one| one.ban.clone()).collect()
    }

    /// Sets bans, or lifts those of `bans` that are lifted, here and on all replicas. Requests that wait on a newly banned
    /// key are refused.
    pub fn change_operator_bans(&self, live: &Live, bans: impl IntoIterator<Item = OperatorBan>, now: Timestamp) {
        let replica = self.listeners.replica();
        let mut changed = Vec::new();
        {
            let _changing = self.operator_bans.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let bans: Vec<_> = bans.into_iter().map(|ban| self.in_force(live, ban)).collect();
            let clients: HashSet<_> = bans.iter().map(BanInForce::clients).collect();
            let (known, mut all): (Vec<_>, Vec<_>) =
                self.operator_bans.set.load().all.iter().cloned().partition(|one| clients.contains(&one.clients()));
            let mut known: HashMap<_, _> = known.into_iter().map(|one| (one.clients(), one)).collect();
            for mut ban in bans {
                let known = known.remove(&ban.clients());
                let earliest = known.as_ref().map_or(Timestamp::ZERO, |known| known.ban.since.saturating_add_ns(1));
                (ban.ban.since, ban.ban.replica) = (whole_ms(now.max(earliest)), replica.unwrap_or(0));
                let latest = now.saturating_add_ns(REMEMBERED_NS_MAX);
                let replaced_until = known.map(|known| known.ban.remembered_until().unwrap_or(latest).min(latest));
                if ban.ban.is_lifted {
                    ban.ban.until = Some(replaced_until.unwrap_or(latest));
                } else if replica.is_some() {
                    let outlasts = |replaced: &Timestamp| ban.ban.until.is_some_and(|until| until < *replaced);
                    ban.ban.replaced_until = replaced_until.filter(outlasts);
                }
                if !ban.ban.is_lifted || replica.is_some() {
                    all.push(ban.clone());
                }
                changed.push(ban);
            }
            make_room(&mut all);
            self.store_operator_bans(all);
        }
        for one in &changed {
            wake(live, one);
            self.tell_operator_ban(one);
        }
    }

    /// Takes changes over that other replicas made, except those that were changed again since. Returns their number.
    pub(super) fn merge_operator_bans(&self, live: &Live, changes: Vec<OperatorBan>, now: Timestamp) -> usize {
        let mut made = Vec::new();
        {
            let _changing = self.operator_bans.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all: HashMap<_, _> =
                self.operator_bans.set.load().all.iter().map(|one| (one.clients(), one.clone())).collect();
            for ban in changes {
                let ban = self.in_force(live, ban);
                if all.get(&ban.clients()).is_none_or(|known| ban.stamp() > known.stamp()) {
                    all.insert(ban.clients(), ban.clone());
                    made.push(ban);
                }
            }
            let mut all: Vec<_> = all.into_values().collect();
            all.sort_by_key(BanInForce::stamp);
            make_room(&mut all);
            // All replicas leave the same ones out.
            let newest = all.get(KNOWN_MAX).map(BanInForce::stamp);
            if let Some(newest) = newest {
                tracing::warn!(bans = all.len() - KNOWN_MAX, "the newest bans are ignored: there are too many");
                all.truncate(KNOWN_MAX);
                made.retain(|one| one.stamp() < newest);
            }
            self.store_operator_bans(all);
        }
        for one in &made {
            let (limit, target) = (limit_of(&one.ban.target), shown_target(&one.ban.target, one.shown.as_deref()));
            let left_ms = one.ban.until.map(|until| until.ns_since(now) / 1_000_000);
            let what = if one.ban.is_lifted { "lifted" } else { "set" };
            tracing::info!(limit, target, left_ms, "a ban was {what} at another replica");
            wake(live, one);
        }
        made.len()
    }

    /// Replaces all bans of operators. Requests that wait on a newly banned key are refused.
    pub fn set_operator_bans(&self, live: &Live, bans: Vec<OperatorBan>) {
        let _changing = self.operator_bans.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = bans.into_iter().map(|ban| self.in_force(live, ban)).collect();
        let keys: Vec<_> =
            all.iter().filter_map(|one| Some((limit_of(&one.ban.target)?.to_owned(), one.key?))).collect();
        self.store_operator_bans(all);
        for (limit, key) in keys {
            if let Some(state) = live.states.iter().find(|state| *state.name == *limit) {
                state.queues.wake_front(key);
            }
        }
    }

    /// Finds the keys of all bans under another policy.
    pub(super) fn adopt_operator_bans(&self, live: &Live) {
        let bans = self.all_operator_bans();
        if !bans.is_empty() {
            self.set_operator_bans(live, bans);
        }
    }

    /// Ends the bans that are over, each with a line of the log, and halves old counts of banned addresses.
    pub(super) fn end_operator_bans(&self, now: Timestamp) {
        self.operator_bans.refused.age(now);
        if !self.operator_bans.set.load().all.iter().any(|one| one.is_over(now)) {
            return;
        }
        let over = {
            let _changing = self.operator_bans.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let (over, stay) = self.operator_bans.split_over(now);
            self.store_operator_bans(stay);
            over
        };
        for BanInForce { ban, shown, .. } in over.into_iter().filter(|one| !one.ban.is_lifted) {
            let (limit, target) = (limit_of(&ban.target), shown_target(&ban.target, shown.as_deref()));
            tracing::info!(limit, target, reason = ban.reason.as_deref(), "a ban has ended");
        }
    }

    /// The refusal of a request from a banned address.
    #[inline]
    pub fn refuse_address<'l>(&self, address: IpAddr, now: Timestamp) -> Option<Refusal<'l>> {
        let ban_ns = self.operator_bans.address_ns(address, now)?;
        Some(self.refuse_banned(address, ban_ns, now))
    }

    #[cold]
    fn refuse_banned<'l>(&self, address: IpAddr, ban_ns: u64, now: Timestamp) -> Refusal<'l> {
        self.metrics.banned_addresses.inc();
        let key = self.secret.of_address(address, Prefixes::WHOLE);
        self.operator_bans.refused.count(key, || address.to_string());
        self.refused_networks.count(&self.secret, address);
        let receipt = self.logs_refusals().then(|| Box::new(Receipt::of_address(now, key, address.to_string())));
        Refusal { retry: retry(ban_ns), cause: Cause::Banned, receipt, ..Refusal::default() }
    }

    /// The banned addresses with the most requests.
    pub fn top_banned(&self, n: usize) -> TopKeys {
        self.operator_bans.refused.top("", n)
    }

    /// Replaces all bans of operators, and flags the limits whose keys they ban. For a caller that holds `changing`.
    fn store_operator_bans(&self, all: Vec<BanInForce>) {
        let before = self.operator_bans.replace(all);
        let after = self.operator_bans.set.load();
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for name in before.limits.union(&after.limits) {
            if let Some(state) = known.get(name) {
                state.has_operator_bans.store(after.limits.contains(name), Ordering::Relaxed);
            }
        }
        let count = after.all.iter().filter(|one| !one.ban.is_lifted).count();
        self.metrics.operator_bans.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The bans that limits set, of each limit the `n` longest, with the names of keys that are known; and the number of
    /// the others.
    pub fn bans_by_limits<'l>(&self, live: &'l Live, n: usize, now: Timestamp) -> Vec<LimitBans<'l>> {
        let of_limit = |(state, limit): (&'l Arc<LimitState>, &'l Limit)| {
            if limit.ban.is_none() || limit.mode != Mode::Enforce {
                return None;
            }
            let mut longest = BTreeSet::new();
            let mut count = 0;
            state.bans.each_banned(now, |key, ban_ns| {
                count += 1;
                longest.insert((Reverse(ban_ns), key));
                if longest.len() > n {
                    longest.pop_last();
                }
            });
            let mut names = state.refused.names();
            let more = count - longest.len();
            let longest = longest.into_iter().map(|(Reverse(ban_ns), key)| (key, names.remove(&key), ban_ns)).collect();
            Some(LimitBans { limit: &limit.name, longest, more })
        };
        live.states.iter().zip(live.policy.limits()).filter_map(of_limit).collect()
    }

    /// Ends the ban that its limit set for a key, and forgets the refusals. Returns the nanoseconds that were left.
    pub fn pardon(&self, live: &Live, found: &FoundKey, now: Timestamp) -> Option<u64> {
        live.states.get(found.limit)?.pardon(found.key, now)
    }

    /// Ends all bans that this limit set, and forgets their refusals. Returns the number of ended bans; `None` if there is
    /// no such limit.
    pub fn pardon_all(&self, live: &Live, limit: &str, now: Timestamp) -> Option<usize> {
        let state = live.states.get(live.policy.by_name(limit)?.index)?;
        let mut banned = Vec::new();
        state.bans.each_banned(now, |key, _| banned.push(key));
        Some(banned.into_iter().filter_map(|key| state.pardon(key, now)).count())
    }

    fn in_force(&self, live: &Live, ban: OperatorBan) -> BanInForce {
        let (limit, name) = match &ban.target {
            BanTarget::Network(network) => {
                let target = BanTarget::Network(canonical(*network).trunc());
                return BanInForce { ban: OperatorBan { target, ..ban }, key: None, shown: None, rejection: None };
            }
            BanTarget::Key(limit, texts) => (limit, name_of(live, limit, texts)),
            BanTarget::Hash(limit, key) => (limit, KeyName::Hash(*key)),
        };
        match self.find_key(live, limit, &name) {
            Ok(found) => {
                let mode = live.policy.limits().get(found.limit).map(|limit| limit.mode);
                let rejection = match mode {
                    Some(Mode::Shadow) => Some("the limit has the mode `shadow`".to_owned()),
                    Some(Mode::Off) => Some("the limit has the mode `off`".to_owned()),
                    Some(Mode::Enforce) | None => None,
                };
                BanInForce { ban, key: Some(found.key), shown: found.shown, rejection }
            }
            Err(error) => BanInForce { ban, key: None, shown: None, rejection: Some(error.to_string()) },
        }
    }
}

/// The time for which it is remembered that a ban was lifted or shortened, at most: 30 days.
const REMEMBERED_NS_MAX: u64 = 30 * 24 * 3600 * 1_000_000_000;

/// Bans in force and lifted ones at most. The admin API sets fewer.
const KNOWN_MAX: usize = 20_000;

/// The next whole millisecond: the file of bans has no other instants, and a ban keeps its order over a restart.
fn whole_ms(at: Timestamp) -> Timestamp {
    Timestamp::from_ns(at.as_ns().div_ceil(1_000_000).saturating_mul(1_000_000))
}

/// Forgets the oldest lifted bans as far as there are too many bans.
fn make_room(all: &mut Vec<BanInForce>) {
    let Some(surplus @ 1..) = all.len().checked_sub(KNOWN_MAX) else { return };
    let mut lifted: Vec<_> = all.iter().filter(|one| one.ban.is_lifted).map(BanInForce::stamp).collect();
    lifted.sort_unstable();
    lifted.truncate(surplus);
    if let Some(last) = lifted.last() {
        all.retain(|one| !one.ban.is_lifted || one.stamp() > *last);
    }
}

/// Wakes requests that wait on a key whose ban has changed.
fn wake(live: &Live, changed: &BanInForce) {
    let Some((limit, key)) = limit_of(&changed.ban.target).zip(changed.key) else { return };
    if let Some(state) = live.states.iter().find(|state| *state.name == *limit) {
        state.queues.wake_front(key);
    }
}

/// The parts of a key by name.
fn name_of(live: &Live, limit: &str, texts: &[String]) -> KeyName {
    let parts = live.policy.by_name(limit).map_or(&[][..], |applied| &applied.limit.key);
    if parts.len() != texts.len() {
        return KeyName::Text(texts.join("|"));
    }
    let named = |(part, text): (&KeyPart, &String)| (live.policy.part_name(part).into_owned(), text.clone());
    KeyName::Parts(parts.iter().zip(texts).map(named).collect())
}

fn limit_of(target: &BanTarget) -> Option<&str> {
    match target {
        BanTarget::Key(limit, _) | BanTarget::Hash(limit, _) => Some(limit),
        BanTarget::Network(_) => None,
    }
}

/// The target of a ban without secrets. `shown` are the parts of its key, if they are known.
fn shown_target(target: &BanTarget, shown: Option<&[(String, String)]>) -> String {
    match target {
        BanTarget::Network(network) => network.to_string(),
        _ => shown.unwrap_or_default().iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("|"),
    }
}
