//! Bans that the replicas of a fleet share: which changes peers hear of, and what follows from theirs.
//!
//! Of several changes of one ban the last one counts, by its instant and then by the number of the replica. A change is
//! later than all that its replica knew, whatever its clock says. So replicas agree, in whatever order they hear changes.
//!
//! Not here: the bans themselves (`operator_bans`, `store::Bans`), and the messages (`store::stream`).

use super::operator_bans::{BanInForce, BanTarget, OperatorBan};
use super::state::{Gate, LimitState, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::{Limit, Strategy};
use crate::engine::store::stream::message::{BanChange, LimitCharges};
use crate::engine::store::{Bans, KeyBan};

/// Changes of bans in one part of the states. They may contain texts.
const PART_CHANGES: usize = 1024;

impl LimitState {
    /// The number of this replica, if replicas share the bans that the limit sets.
    fn ban_replica(&self) -> Option<u64> {
        self.streamed.get().filter(|streamed| streamed.is_on())?;
        self.listeners.replica()
    }

    /// Counts a refusal towards a ban.
    pub(super) fn count_refusal(&self, limit: &Limit, key: Key, now: Timestamp) {
        let Some(rule) = &limit.ban else { return };
        let is_shared = self.ban_replica().is_some();
        let count = if is_shared { Bans::refused_here } else { Bans::refused };
        if count(&self.bans, key, rule, limit.max_keys, now).is_some() {
            self.banned(key, now);
        }
    }

    /// Tells peers and waiting requests that the limit has banned `key`.
    fn banned(&self, key: Key, now: Timestamp) {
        self.metrics.bans.inc();
        self.tell_banned(key, now);
        self.queues.wake_front(key); // waiting requests are refused one after another
    }

    /// Tells peers that the limit has banned `key`.
    #[cold]
    fn tell_banned(&self, key: Key, now: Timestamp) {
        let Some(replica) = self.ban_replica() else { return };
        self.bans.stamp(key, replica, now);
        self.tell_ban_of(key, now);
    }

    /// The refusals that peers have not heard of; `None` if there are none.
    pub(super) fn take_refusals(&self) -> Option<LimitCharges> {
        let mut refusals = LimitCharges::of(&self.name, None);
        self.bans.take_untold(|key, count| refusals.push_refused(key, count));
        (!refusals.refused.is_empty()).then_some(refusals)
    }

    /// Counts refusals by a peer, from before `at`.
    pub(super) fn count_refusals(&self, limit: &Limit, refusals: &LimitCharges, at: Timestamp, now: Timestamp) {
        let Some(rule) = &limit.ban else { return };
        for (key, count) in refusals.each_refused() {
            if self.bans.refused_there(key, (count, at), rule, limit.max_keys, now).is_some() {
                self.banned(key, now);
            }
        }
    }

    fn tell_ban_of(&self, key: Key, now: Timestamp) {
        if let Some(ban) = self.bans.change(key, now) {
            self.listeners.tell_ban(of_limit(&self.name, &ban));
        }
    }

    /// Ends the ban that the limit set for `key`, on all replicas. Returns the nanoseconds that were left.
    pub(super) fn pardon(&self, key: Key, now: Timestamp) -> Option<u64> {
        let replica = self.ban_replica();
        let left_ns = self.bans.pardon(key, replica, now)?;
        if replica.is_some() {
            self.tell_ban_of(key, now);
        }
        Some(left_ns)
    }
}

impl Gate {
    /// Shares bans with the other replicas of a fleet from now on, as the replica with this number.
    pub fn share_bans(&self, replica: u64) {
        if self.listeners.share_bans(replica) {
            self.operator_bans.set.load().all.iter().for_each(|one| self.tell_operator_ban(one));
        }
    }

    /// Tells peers of a change by an operator.
    pub(super) fn tell_operator_ban(&self, ban: &BanInForce) {
        if self.listeners.replica().is_some() {
            self.listeners.tell_ban(of_operator(ban));
        }
    }

    /// Takes changes over that other replicas made.
    pub(super) fn hear_bans(&self, live: &Live, changes: &[BanChange], now: Timestamp) {
        let mut by_operators = Vec::new();
        for change in changes {
            if change.by_limit {
                hear_of_limit(live, change, now);
            } else if let Some(ban) =
                operator_ban(change).filter(|ban| ban.remembered_until().is_none_or(|until| until > now))
            {
                by_operators.push(ban);
            }
        }
        if !by_operators.is_empty() && self.merge_operator_bans(live, by_operators, now) > 0 {
            self.operator_bans.heard.notify_one();
        }
    }

    /// Waits until another replica has changed a ban of an operator.
    pub async fn bans_received(&self) {
        self.operator_bans.heard.notified().await;
    }

    /// All bans that a newcomer needs to know of, from the changes at `from` on: the instant, and a number of the key or the
    /// network. Returns a part of them, and where the next part begins.
    pub(super) fn shared_bans(
        &self,
        live: &Live,
        from: (u64, u64),
        now: Timestamp,
    ) -> (Vec<BanChange>, Option<(u64, u64)>) {
        let mut changes: Vec<BanChange> = self.operator_bans.set.load().all.iter().map(of_operator).collect();
        for (state, limit) in live.states.iter().zip(live.policy.limits()) {
            if limit.ban.is_some() && limit.strategy == Strategy::Stream {
                state.bans.each_change(now, |ban| changes.push(of_limit(&state.name, &ban)));
            }
        }
        let place = |change: &BanChange| match &*change.network {
            "" => (change.at, change.second),
            network => (change.at, crc32fast::hash(network.as_bytes()).into()),
        };
        changes.retain(|change| place(change) >= from);
        changes.sort_unstable_by_key(place);
        // Changes at one place are in one part.
        let last = changes.get(PART_CHANGES).map(place);
        let Some(last) = last else { return (changes, None) };
        let next = changes.iter().map(place).find(|at| *at > last);
        changes.retain(|change| place(change) <= last);
        (changes, next)
    }
}

fn hear_of_limit(live: &Live, change: &BanChange, now: Timestamp) {
    let Some(applied) = live.policy.by_name(&change.limit) else { return };
    let (limit, state) = (applied.limit, live.states.get(applied.index));
    let (Some(rule), Some(state)) = (limit.ban.as_ref().filter(|_| limit.strategy == Strategy::Stream), state) else {
        return;
    };
    let key = Key::of_hash(change.first, change.second);
    let (changed, until) = ((Timestamp::from_ns(change.at), change.replica), Timestamp::from_ns(change.until));
    let ban = KeyBan { key, changed, until, bans: (!change.is_lifted).then_some(change.bans) };
    if state.bans.hear(&ban, rule, limit.max_keys, now) {
        state.queues.wake_front(key);
    }
}

/// The message about a ban that a limit set.
fn of_limit(limit: &str, ban: &KeyBan) -> BanChange {
    BanChange {
        limit: limit.to_owned(),
        first: ban.key.first,
        second: ban.key.second,
        at: ban.changed.0.as_ns(),
        replica: ban.changed.1,
        until: ban.until.as_ns(),
        is_lifted: ban.bans.is_none(),
        by_limit: true,
        bans: ban.bans.unwrap_or(0),
        ..BanChange::default()
    }
}

/// The message about a ban of an operator.
fn of_operator(one: &BanInForce) -> BanChange {
    let OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason, token } = one.ban.clone();
    let key = one.key.unwrap_or(Key { first: 0, second: 0 });
    let of_key = |limit: Box<str>, key: Key| BanChange {
        limit: limit.into(),
        first: key.first,
        second: key.second,
        ..BanChange::default()
    };
    let change = match target {
        BanTarget::Key(limit, parts) => BanChange { parts, ..of_key(limit, key) },
        BanTarget::Hash(limit, key) => of_key(limit, key),
        BanTarget::Network(network) => BanChange { network: network.to_string(), ..BanChange::default() },
    };
    BanChange {
        at: since.as_ns(),
        replica,
        until: until.map_or(0, Timestamp::as_ns),
        is_lifted,
        replaced_until: replaced_until.map_or(0, Timestamp::as_ns),
        reason: reason.unwrap_or_default().into(),
        token: token.unwrap_or_default().into(),
        ..change
    }
}

/// The ban of an operator in a message; `None` if the message makes no sense.
fn operator_ban(change: &BanChange) -> Option<OperatorBan> {
    let BanChange { limit, parts, first, second, network, at, replica, is_lifted, reason, token, .. } = change;
    let target = match (&**limit, &parts[..]) {
        ("", _) => BanTarget::Network(network.parse().ok()?),
        (limit, []) => BanTarget::Hash(limit.into(), Key::of_hash(*first, *second)),
        (limit, parts) => BanTarget::Key(limit.into(), parts.to_vec()),
    };
    let text = |text: &str| (!text.is_empty()).then(|| text.into());
    let instant = |ns: u64| (ns > 0).then(|| Timestamp::from_ns(ns));
    let (until, replaced_until) = (instant(change.until), instant(change.replaced_until));
    let (since, replica, is_lifted) = (Timestamp::from_ns(*at), *replica, *is_lifted);
    let (reason, token) = (text(reason), text(token));
    Some(OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason, token })
}
