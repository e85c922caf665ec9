//! A table whose states are mirrors of a store: what the store said, and decisions while it says nothing.
//!
//! Not here: the question to the store (gate, `crate::fleet::stores`).

use std::io;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::dispatch::{Kind, Table, matched, unfit};
use super::map::Map as _;
use super::ranges::BLOCK_BYTES;
use super::receipt::{MirroredCharge, Origin};
use crate::base::time::Timestamp;
use crate::engine::limit::late::LateByRate;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, Decision, Key, OnFull, Retry};
use crate::engine::store::backend::{REFUND_NS, RemoteReceipt, Settlement};
use crate::engine::store::lease::{Grant, Leases};
use crate::engine::store::remote::{Borrowed, RemoteLimit};
use crate::engine::store::snapshot::blocks::{Emit, Tag};

/// For so long a mirror denies without a question to its store.
const TRUSTED_NS: u64 = 10_000_000_000;

impl Table {
    /// Overwrites the mirror of `key` with the state that its store had when it was asked at `queried_at`, unless the mirror
    /// is newer. A mirror that does not fit into the table is forgotten.
    pub(in crate::engine::store) fn hear(&self, key: Key, rule: &Algorithm, state: AnyState, queried_at: Timestamp) {
        let mirrors = self.mirrors.get_or_init(Box::default);
        if !mirrors.hear(key, queried_at, rule) {
            return;
        }
        let is_kept = match (&self.kind, state) {
            (Kind::Buckets(keys), AnyState::TokenBucket(state)) => keys.overwrite(key, state.state()),
            (Kind::Any(keys), state) => keys.overwrite(key, state),
            _ => false,
        };
        if !is_kept {
            mirrors.forget(key);
        }
    }

    /// The denial of a request by the mirror of its key, if the store would deny it too: the mirror has the units of the
    /// store, and the request can pass only after a known time, or never. Answers to questions before `asked_from`, old
    /// ones, and those under another rule are in doubt: another replica may have given units back.
    pub(in crate::engine::store) fn mirror_denial(
        &self,
        key: Key,
        rule: &Algorithm,
        cost: u64,
        (asked_from, now): (Timestamp, Timestamp),
    ) -> Option<Decision> {
        let peek = |cost| matched!(&self.kind, rule, |keys, rule| keys.peek_exact(key, rule, cost, now), else unfit());
        let mut decision = peek(cost);
        if decision.denied? != Retry::Never {
            // With borrowed units, those of the store may suffice.
            match (self.unspent(key, now), cost) {
                (at_hand, cost) if cost <= at_hand => return None,
                (0, _) => {}
                (at_hand, cost) => decision = peek(cost - at_hand),
            }
        }
        let is_certain = match decision.denied? {
            Retry::Never => true,
            Retry::ON_RELEASE => false,
            Retry::AfterNs(_) => self.mirrors.get().is_some_and(|mirrors| {
                // Another replica may return what it has borrowed. How often the store is asked is bounded by the lease.
                let may_come_back = decision.remaining == 0 && mirrors.leases.get().is_some();
                let since = asked_from.max(now.saturating_sub_ns(TRUSTED_NS));
                !may_come_back && mirrors.is_trusted(key, rule, since)
            }),
        };
        is_certain.then_some(decision)
    }

    /// The units that are borrowed for the keys of the limit.
    pub fn leases(&self) -> &Arc<Leases<Borrowed>> {
        self.mirrors.get_or_init(Box::default).leases.get_or_init(Arc::default)
    }

    /// Units of `key` that are borrowed and not spent.
    pub fn unspent(&self, key: Key, now: Timestamp) -> u64 {
        let leases = self.mirrors.get().and_then(|mirrors| mirrors.leases.get());
        leases.map_or(0, |leases| leases.unspent(key, now))
    }

    /// Units of all keys that are borrowed and not spent.
    pub fn all_unspent(&self) -> u64 {
        self.mirrors.get().and_then(|mirrors| mirrors.leases.get()).map_or(0, |leases| leases.units())
    }

    /// Gives borrowed units back to their store that have expired at `now`, or all with `all`. Calls `returned` with their
    /// keys.
    pub fn return_leases(&self, all: bool, now: Timestamp, returned: impl Fn(Key)) {
        let Some(leases) = self.mirrors.get().and_then(|mirrors| mirrors.leases.get()) else { return };
        for (key, Grant { units, receipt, .. }) in leases.sweep(all, now) {
            self.return_borrowed(key, &receipt, receipt.unspent(units), now);
            returned(key);
        }
    }

    /// Gives units of a lease back that a request took: to the lease, or if that has ended, to the store.
    pub(super) fn put_back(&self, key: Key, borrowed: &Arc<Borrowed>, units: u64, now: Timestamp) {
        if !self.leases().put_back(key, borrowed, units, now) {
            self.return_borrowed(key, borrowed, borrowed.spent(units), now);
        }
    }

    /// Gives borrowed units back to their store by `receipt`.
    fn return_borrowed(&self, key: Key, borrowed: &Borrowed, receipt: RemoteReceipt, now: Timestamp) {
        let Borrowed { remote, rule, .. } = borrowed;
        self.note_returned(key, rule, receipt.units(), remote.replicas, now);
        self.refunded(key, now);
        remote.store.give_back(receipt);
    }

    /// Notes that this replica, one of `replicas`, has borrowed `units` of `key`.
    pub(in crate::engine::store) fn note_borrowed(
        &self,
        key: Key,
        rule: &Algorithm,
        units: u64,
        replicas: u64,
        now: Timestamp,
    ) {
        let own = self.own.get_or_init(|| Box::new(Self::new(rule, self.max_keys(), OnFull::Allow)));
        // As much debt as can be returned: units beyond the share that are spent do not count for longer.
        let max_debt = self.unspent(key, now).saturating_mul(replicas);
        own.settle(key, rule, signed(units.saturating_mul(replicas)), max_debt, now);
    }

    /// Notes that this replica has returned `units` of `key`.
    fn note_returned(&self, key: Key, rule: &Algorithm, units: u64, replicas: u64, now: Timestamp) {
        if let Some(own) = self.own.get() {
            own.settle(key, rule, signed(units.saturating_mul(replicas)).saturating_neg(), 0, now);
        }
    }

    /// When the store was asked for the state that the mirror of `key` has; `None` if the key has no mirror.
    pub fn mirrored_at(&self, key: Key) -> Option<Timestamp> {
        self.mirrors.get()?.queried_at(key)
    }

    /// When the store is asked again about `key`, which is denied at `now`. A store that says nothing now may have been heard
    /// long ago.
    pub fn asks_again_at(&self, key: Key, now: Timestamp) -> Timestamp {
        let trusted_until = self.mirrored_at(key).map(|heard| heard.saturating_add_ns(TRUSTED_NS + 1));
        trusted_until.filter(|until| *until > now).unwrap_or(now.saturating_add_ns(TRUSTED_NS))
    }

    /// Notes `units` in flight that the store admitted.
    pub(in crate::engine::store) fn enter(&self, key: Key, rule: &Algorithm, units: u64) {
        if rule.is_released() {
            self.mirrors.get_or_init(Box::default).enter(key, units, |_| true);
        }
    }

    /// Decides a request while the store says nothing: as one of `replicas`, each of which assumes that all others spend
    /// as much as it does itself. Of keys that it borrows from, the replica takes no more than its share with what it has
    /// borrowed. Returns the decision, and the units that the mirror is charged.
    pub(in crate::engine::store) fn admit_share(
        &self,
        key: Key,
        rule: &Algorithm,
        cost: u64,
        replicas: u64,
        now: Timestamp,
    ) -> (Decision, u64) {
        if let Algorithm::Concurrency(rule) = rule {
            return self.enter_share(key, rule.max() / replicas.max(1), cost);
        }
        let scaled = scaled(rule, cost, replicas);
        let own = self.own_share(replicas).map(|own| (own, own.admit(key, rule, scaled, now)));
        let decision = match &own {
            Some((_, taken)) if !taken.is_admitted() => taken.decision,
            own => {
                let decision = self.admit(key, rule, scaled, now).decision;
                if let (Some((own, taken)), false) = (own, decision.is_admitted()) {
                    own.refund(key, &taken.receipt, now);
                }
                tighter(own.as_ref().map(|(_, taken)| taken.decision), decision)
            }
        };
        let charged = if decision.is_admitted() { scaled } else { 0 };
        self.assume(key, rule, (charged, cost.min(charged)), now);
        (Decision { remaining: decision.remaining / replicas.max(1), ..decision }, charged)
    }

    /// What this replica has taken, if it decides by its share.
    fn own_share(&self, replicas: u64) -> Option<&Self> {
        self.own.get().filter(|_| replicas > 1).map(|own| &**own)
    }

    /// The decision that [`Table::admit_share`] would make. Nothing is charged.
    pub(in crate::engine::store) fn peek_share(
        &self,
        key: Key,
        rule: &Algorithm,
        cost: u64,
        replicas: u64,
        now: Timestamp,
    ) -> Decision {
        if let Algorithm::Concurrency(rule) = rule {
            let in_flight = self.mirrors.get().map_or(0, |mirrors| mirrors.in_flight(key));
            return in_flight_share(rule.max() / replicas.max(1), in_flight, cost);
        }
        let peek = |table: &Self| table.peek(key, rule, scaled(rule, cost, replicas), now);
        let decision = tighter(self.own_share(replicas).map(peek), peek(self));
        Decision { remaining: decision.remaining / replicas.max(1), ..decision }
    }

    /// Notes that the mirror of `key` is charged units without the store, which hears of a part of them later.
    pub(in crate::engine::store) fn assume(&self, key: Key, rule: &Algorithm, units: (u64, u64), now: Timestamp) {
        self.mirrors.get_or_init(Box::default).assume(key, units, rule.memory_ns(), now);
    }

    /// Tells the store of `remote` that `extra` units of `key` were charged, or given back if they are negative, for which
    /// the mirror was charged `assumed` units. At most `max_debt` of them are beyond the limit.
    pub fn tell(
        &self,
        remote: &RemoteLimit,
        key: Key,
        rule: &Algorithm,
        (extra, assumed): (i64, i64),
        max_debt: u64,
        now: Timestamp,
    ) {
        if extra == 0 {
            return;
        }
        let after_ns: SmallVec<[u64; 1]> = match rule {
            Algorithm::Several(_) => self.remaining(key, rule, 0, now).iter().map(|rate| rate.reset_after_ns).collect(),
            rule => smallvec![self.peek(key, rule, 0, now).reset_after_ns],
        };
        let idle_at: SmallVec<[_; 1]> = after_ns.into_iter().map(|ns| now.saturating_add_ns(ns)).collect();
        let settlement = Settlement::on_mirror(&remote.name, key, rule, (extra, assumed, &idle_at), max_debt, now);
        remote.store.settle(settlement);
    }

    /// Charges `late` units of each rate, at most `max_debt` beyond the limit.
    pub fn settle_late(&self, key: Key, rule: &Algorithm, late: &LateByRate, max_debt: u64, now: Timestamp) {
        match (&self.kind, rule) {
            (Kind::Buckets(keys), Algorithm::TokenBucket(quota)) => {
                let late = late.first().map_or(&[][..], |late| late);
                keys.change(key, quota, now, |state| state.settle_late(quota, late, max_debt, now));
            }
            (Kind::Any(keys), rule) => {
                keys.change(key, rule, now, |state| state.settle_late(rule, late, max_debt, now));
            }
            _ => {}
        }
    }

    /// Packs the states of keys that were charged without the store once more. In these, a charge that counted for every
    /// replica counts once. They go behind the other keys, and replace them. A key without a rule stays as it is.
    pub(in crate::engine::store) fn pack_mirrors<'r>(
        &self,
        rule_of: impl Fn(Key) -> Option<&'r Algorithm>,
        now: Timestamp,
        emit: &mut Emit<'_>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (key, assumed, reported) in self.mirrors.get().map_or_else(Vec::new, |mirrors| mirrors.unheard()) {
            let Some(rule) = rule_of(key) else { continue };
            // Time has given some of them back: of the others, the same part is of this replica.
            let surplus =
                u128::from(self.owed(key, rule, now).min(assumed)) * u128::from(assumed.saturating_sub(reported));
            let surplus = u64::try_from(surplus / u128::from(assumed)).unwrap_or(u64::MAX);
            matched!(&self.kind, rule, |keys, rule| {
                keys.pack_settled(key, rule, signed(surplus).saturating_neg(), now, &mut bytes);
            }, else {});
            if bytes.len() > BLOCK_BYTES {
                emit(Tag::Keys, &bytes)?;
                bytes.clear();
            }
        }
        if bytes.is_empty() { Ok(()) } else { emit(Tag::Keys, &bytes) }
    }

    /// The state of `key` as its store knew it: without the units that were charged since without the store.
    pub fn state_of_store(&self, key: Key, rule: &Algorithm, state: &AnyState, now: Timestamp) -> AnyState {
        let mut state = state.clone();
        let assumed = self.mirrors.get().map_or(0, |mirrors| mirrors.assumed(key));
        if assumed > 0 {
            state.settle(rule, signed(assumed).saturating_neg(), 0, now);
        }
        state
    }

    /// Decides a request in flight while the store says nothing. Requests of other replicas end unheard, so only those of
    /// this process count.
    fn enter_share(&self, key: Key, most: u64, cost: u64) -> (Decision, u64) {
        let mirrors = self.mirrors.get_or_init(Box::default);
        let is_admitted = mirrors.enter(key, cost, |own| own.saturating_add(cost) <= most.max(1));
        let decision = in_flight_share(most, mirrors.in_flight(key), if is_admitted { 0 } else { cost });
        (decision, if is_admitted { cost } else { 0 })
    }

    /// Forgets requests in flight of other replicas, which end unheard once no store has the limit.
    pub fn leave_store(&self) {
        if let Some(mirrors) = self.mirrors.get() {
            mirrors.forget_all(|key, own| self.end_flights(key, own));
        }
    }

    /// Releases the units of `key` in flight but `own`: the others are of other replicas, whose requests end unheard.
    pub(super) fn end_flights(&self, key: Key, own: u64) {
        if let Kind::Any(keys) = &self.kind {
            _ = keys.states.find(key, |state| {
                if let AnyState::Concurrency(state) = state {
                    state.retain(own);
                }
            });
        }
    }

    /// Calls `seen` with each key that is not idle at `now`, and a copy of its state. Requests in flight are left out: each
    /// process knows its own.
    pub fn each_state(&self, now: Timestamp, mut seen: impl FnMut(Key, &AnyState)) {
        match &self.kind {
            Kind::Buckets(keys) => keys.each(now, |key, state| seen(key, &AnyState::TokenBucket(state.into()))),
            Kind::Any(keys) => keys.each(now, |key, state| {
                if !matches!(state, AnyState::Concurrency(_)) {
                    seen(key, &state);
                }
            }),
        }
    }

    /// Notes that units of `key` go back to the store, or that it hears of its rule. It may still decide as before.
    pub fn refunded(&self, key: Key, now: Timestamp) {
        let Some(mirrors) = self.mirrors.get() else { return };
        mirrors.doubt(key, now.saturating_add_ns(REFUND_NS));
        if let Some(leases) = mirrors.leases.get() {
            leases.end_scarcity(key);
        }
    }

    /// Whether units of `key` went back a moment before `now`, of which the store may not know yet.
    pub fn is_doubted(&self, key: Key, now: Timestamp) -> bool {
        self.mirrors.get().is_some_and(|mirrors| mirrors.is_doubted(key, now))
    }

    /// Gives a charge of a remote limit back: to the mirror at once, and to the store in the background.
    pub(super) fn take_back(&self, key: Key, charge: &MirroredCharge, now: Timestamp) {
        let MirroredCharge { remote, rule, units, at, origin } = charge;
        if let Some(mirrors) = self.mirrors.get().filter(|_| rule.is_released()) {
            mirrors.leave(key, *units);
        }
        // Units of a window that has ended are back already.
        let counts = rule.counts(*at, now);
        if counts {
            self.settle(key, rule, signed(*units).saturating_neg(), 0, now);
        }
        self.refunded(key, now);
        if let (Some(mirrors), Origin::Report(reported)) = (self.mirrors.get(), origin) {
            mirrors.forgive(key, *units, *reported);
        }
        match origin {
            Origin::Store(receipt) => remote.store.give_back(receipt.clone()),
            Origin::Report(_) if !counts => {}
            Origin::Report(reported) => {
                if units > reported {
                    self.note_returned(key, rule, *units, 1, now);
                }
                let [reported, assumed] = [*reported, *units].map(|units| signed(units).saturating_neg());
                self.tell(remote, key, rule, (reported, assumed), 0, now);
            }
        }
    }
}

/// The decision of two tables, both of which have to admit a request.
fn tighter(one: Option<Decision>, other: Decision) -> Decision {
    one.map_or(other, |one| Decision {
        denied: one.denied.max(other.denied),
        remaining: one.remaining.min(other.remaining),
        reset_after_ns: one.reset_after_ns.max(other.reset_after_ns),
    })
}

/// The decision about `cost` units beside `in_flight` ones, of which there may be `most`, and at least one.
fn in_flight_share(most: u64, in_flight: u64, cost: u64) -> Decision {
    let most = most.max(1);
    let remaining = most.saturating_sub(in_flight);
    let denied = (cost > remaining).then_some(if cost > most { Retry::Never } else { Retry::ON_RELEASE });
    let reset_after_ns = if remaining == most { 0 } else { Decision::UNKNOWN_NS };
    Decision { denied, remaining, reset_after_ns }
}

/// The units that a mirror is charged if all of `replicas` spend `cost`. A request that takes more than its share passes
/// if nothing is spent.
pub(in crate::engine::store) fn scaled(rule: &Algorithm, cost: u64, replicas: u64) -> u64 {
    cost.saturating_mul(replicas.max(1)).min(rule.capacity()).max(cost)
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
