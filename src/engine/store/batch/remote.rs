//! Charges of a batch that a store decides.
//!
//! Local charges are made first. Remote ones are asked for only if no mirror denies, and are completed one by one with
//! the answers, or alone while the store says nothing. Then the batch stays as it is, or is undone as a whole.
//!
//! Not here: the question to the store (gate).

use std::sync::Arc;

use super::{Batch, Charge, Progress, Receipts};
use crate::base::time::Timestamp;
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{AnyState, Decision, Retry};
use crate::engine::store::backend::{OnFailure, RemoteOutcome, Unavailable};
use crate::engine::store::lease::Spend;
use crate::engine::store::remote::RemoteLimit;
use crate::engine::store::table::{MirroredCharge, Origin, Receipt, scaled};

/// The decision about a batch, as far as this process can make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalDecision {
    /// An enforced charge is denied, and none is made.
    Denied,
    /// All charges are decided.
    Admitted,
    /// Stores are to be asked.
    Open,
}

/// The retry of a request that fails with its store, in nanoseconds.
const REJECT_RETRY_NS: u64 = 1_000_000_000;

/// The least retry of a request that a store denied, in nanoseconds.
const RETRY_NS_MIN: u64 = 1_000_000;

impl<'t, C> Charge<'t, C> {
    /// Makes the charge one that a store decides; `None` for one that this process decides.
    #[inline]
    pub fn set_remote(&mut self, remote: Option<&'t Arc<RemoteLimit>>) {
        self.remote = remote;
    }

    /// How replicas share the limit; `None` if this process decides the charge.
    #[inline]
    pub fn remote(&self) -> Option<&'t Arc<RemoteLimit>> {
        self.remote
    }

    /// Whether a store decides the charge, and has not done so.
    pub fn is_open(&self) -> bool {
        self.remote.is_some() && self.progress == Progress::Open
    }

    /// The decision of the mirror: a denial only if the store would deny too.
    pub(super) fn peek_mirror(&self, now: Timestamp) -> Decision {
        let Self { table, key, rule, cost, .. } = *self;
        let asked_from = self.remote.map_or(Timestamp::ZERO, |remote| remote.store.late_refund_at());
        let denial = table.mirror_denial(key, rule, cost, (asked_from, now));
        denial.unwrap_or_else(|| {
            let Decision { remaining, reset_after_ns, .. } = table.peek(key, rule, cost, now);
            let remaining = remaining.saturating_add(table.unspent(key, now));
            Decision { denied: None, remaining, reset_after_ns }
        })
    }

    /// The receipt of a charge for which the mirror was charged `units` at `at`.
    pub(super) fn mirrored(&self, units: u64, origin: Origin, at: Timestamp) -> Receipt {
        let Some(remote) = self.remote.map(Arc::clone) else { return Receipt::None };
        Receipt::Remote(Box::new(MirroredCharge { remote, rule: self.rule.clone(), units, at, origin }))
    }

    /// Whether the charge is denied because its store says nothing.
    pub fn is_rejected(&self) -> bool {
        self.progress == Progress::Rejected
    }

    /// Denies an enforced charge until it is due, if its mirror says that it is not due at `now`, and [`Batch::fall_back`] would
    /// not look. Returns whether it does.
    pub fn deny_until_due(&mut self, why: Unavailable, now: Timestamp) -> bool {
        let looks = |on_failure| matches!(on_failure, OnFailure::Split | OnFailure::Local);
        if !self.enforced || self.remote.is_none_or(|remote| looks(remote.on_failure(why))) {
            return false;
        }
        let decision = self.peek_lacking(now);
        let is_early = !matches!(decision.denied, None | Some(Retry::Never | Retry::ON_RELEASE));
        if is_early {
            (self.decision, self.progress) = (decision, Progress::Denied);
        }
        is_early
    }

    /// Whether the limit borrows units of its store.
    fn borrows(&self) -> bool {
        self.remote.is_some_and(|remote| remote.lease.is_some())
    }

    /// The borrowed units at hand.
    pub(super) fn at_hand(&self, now: Timestamp) -> u64 {
        if self.borrows() { self.table.unspent(self.key, now) } else { 0 }
    }

    /// Units that the charge needs beside the borrowed ones at hand.
    pub(super) fn lacking(&self, now: Timestamp) -> u64 {
        self.cost.saturating_sub(self.at_hand(now))
    }

    /// The decision by the mirror about the units that the charge needs beside the borrowed ones at hand.
    pub(super) fn peek_lacking(&self, now: Timestamp) -> Decision {
        self.table.peek(self.key, self.rule, self.lacking(now), now)
    }

    /// Takes over the decision of [`Charge::peek_fallback`]. Nothing is charged.
    pub fn foresee_fallback(&mut self, why: Unavailable, now: Timestamp) {
        self.decision = self.peek_fallback(why, now);
        let rejects = self.remote.is_some_and(|remote| remote.on_failure(why) == OnFailure::Reject);
        if rejects && !self.decision.is_admitted() {
            self.progress = Progress::Rejected;
        }
    }

    /// Why the store of the limit does not decide now; `None` if it does, or no store has the limit.
    pub fn unavailable(&self) -> Option<Unavailable> {
        let remote = self.remote?;
        match remote.store.server(&remote.name, self.key) {
            Some(server) => server.unavailable,
            None => Some(Unavailable::Down),
        }
    }

    /// The decision now, by the store or without it.
    pub fn peek_anywhere(&self, now: Timestamp) -> Decision {
        self.unavailable().map_or_else(|| self.peek(now), |why| self.peek_fallback(why, now))
    }

    /// The decision that [`Batch::fall_back`] would make. Borrowed units, if there are any, are spent first.
    pub fn peek_fallback(&self, why: Unavailable, now: Timestamp) -> Decision {
        let Charge { table, key, rule, cost, .. } = *self;
        let Some(remote) = self.remote else { return self.peek(now) };
        if cost.max(1) <= self.at_hand(now) {
            return self.peek_mirror(now);
        }
        let denied = match remote.on_failure(why) {
            OnFailure::Split => return table.peek_share(key, rule, cost, remote.replicas, now),
            OnFailure::Local => return table.peek_share(key, rule, cost, 1, now),
            OnFailure::Reject => Some(Retry::AfterNs(REJECT_RETRY_NS)),
            OnFailure::Allow => None,
        };
        Decision { denied, ..table.peek(key, rule, 0, now) }
    }

    /// The units that [`Batch::fall_back`] would charge to the mirror for the share of this replica. `None` if anything else
    /// would decide.
    pub fn foreseen_share(&self, now: Timestamp) -> Option<u64> {
        let remote = self.remote.filter(|_| self.cost.max(1) > self.at_hand(now))?;
        let is_split = remote.on_failure(self.unavailable()?) == OnFailure::Split;
        is_split.then(|| scaled(self.rule, self.cost, remote.replicas))
    }

    /// Decides a remote charge by borrowed units, or else by the mirror. Returns whether its store is to be asked.
    fn admit_mirrored(
        &mut self,
        index: usize,
        remote: &RemoteLimit,
        receipts: &mut Option<Box<Receipts>>,
        now: Timestamp,
    ) -> bool {
        // Units that were borrowed under an earlier rule do not pay for what this one never admits.
        let lease = remote.lease.filter(|_| self.cost <= self.rule.capacity());
        let spend = lease.map(|units| self.table.leases().spend(self.key, self.cost, units, now));
        match spend {
            Some(Spend::Spent { spent, are_few }) => {
                self.spent(index, spent, receipts, now);
                are_few
            }
            Some(Spend::Denied(scarce_ns)) => {
                self.deny_scarce(scarce_ns, now);
                false
            }
            Some(Spend::Short) | None => {
                self.decision = self.peek_mirror(now);
                true
            }
        }
    }
}

impl<C> Batch<'_, C> {
    /// Whether a store decides some of the charges.
    pub fn has_remote(&self) -> bool {
        self.charges.iter().any(|charge| charge.remote.is_some())
    }

    /// Finds the decisions as [`Batch::peek`] does. If the store of a charge has answered a question of `asked_at` or later,
    /// its answer decides, with the borrowed units at hand.
    pub fn peek_answered(&mut self, asked_at: Timestamp, now: Timestamp) -> bool {
        self.peek(now);
        for charge in &mut self.charges {
            if charge.borrows() && charge.table.mirrored_at(charge.key).is_some_and(|queried_at| queried_at >= asked_at)
            {
                charge.decision.denied = charge.peek_lacking(now).denied;
            }
        }
        self.charges.iter().all(|charge| charge.is_admitted() || !charge.enforced)
    }

    /// Makes at `now` the local charges, and those that borrowed units suffice for, if every enforced one is admitted and no
    /// mirror denies. Otherwise none is made. The others are left open.
    pub fn admit_local(&mut self, now: Timestamp) -> LocalDecision {
        self.at = now;
        let mut decision = LocalDecision::Admitted;
        for index in 0..self.charges.len() {
            let Some(charge) = self.charges.get_mut(index) else { continue };
            let Some(remote) = charge.remote else { continue };
            if charge.admit_mirrored(index, remote, &mut self.receipts, now) {
                decision = LocalDecision::Open;
            }
            if charge.enforced && !charge.is_admitted() {
                self.undo(now);
                let others = self.charges.iter_mut().enumerate().filter(|(other, _)| *other != index);
                others.for_each(|(_, charge)| charge.decision = charge.peek(now));
                return LocalDecision::Denied;
            }
        }
        for index in 0..self.charges.len() {
            let Some(charge) = self.charges.get_mut(index).filter(|charge| charge.remote.is_none()) else { continue };
            charge.admit(index, &mut self.receipts, now);
            if charge.enforced && !charge.is_admitted() {
                self.deny(index, now);
                return LocalDecision::Denied;
            }
        }
        decision
    }

    /// Completes the charge at `index` with the answer of its store to a question of `queried_at`.
    pub fn hear(&mut self, index: usize, outcome: RemoteOutcome, queried_at: Timestamp, now: Timestamp) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let RemoteOutcome { admitted, is_charged, is_outdated, state, receipt } = outcome;
        let is_admitted = admitted >= charge.cost;
        charge.decision = decision(charge, (is_admitted, is_charged), charge.cost, &state, now);
        charge.table.hear(charge.key, charge.rule, state, queried_at);
        if is_outdated {
            // Another replica may not have the rule yet, and change the state back for a moment.
            charge.table.refunded(charge.key, now);
        }
        if !is_charged {
            charge.progress = match charge.cost {
                _ if !is_admitted => Progress::Denied,
                0 => Progress::Taken,
                _ => Progress::Open,
            };
            return;
        }
        charge.progress = Progress::Receipt;
        let receipt = receipt.map_or(Receipt::None, |receipt| {
            let units = receipt.units();
            charge.table.enter(charge.key, charge.rule, units);
            charge.mirrored(units, Origin::Store(receipt), now)
        });
        self.receipts.get_or_insert_default().push((index, receipt));
    }

    /// Decides the charge at `index` without its store, which says nothing for the reason `why`.
    pub fn fall_back(&mut self, index: usize, why: Unavailable, now: Timestamp) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let Charge { table, key, rule, cost, .. } = *charge;
        let Some(remote) = charge.remote else { return };
        remote.metrics.fallback.inc();
        let replicas = match remote.on_failure(why) {
            OnFailure::Split => remote.replicas,
            OnFailure::Local => 1,
            OnFailure::Reject => return charge.foresee_fallback(why, now),
            OnFailure::Allow => {
                charge.foresee_fallback(why, now);
                // Without a receipt nothing is settled either.
                charge.progress = Progress::Taken;
                return;
            }
        };
        let (decision, units) = table.admit_share(key, rule, cost, replicas, now);
        charge.decision = decision;
        if decision.is_admitted() {
            let receipt = report(charge, (cost, units), now);
            charge.progress = Progress::Receipt;
            self.receipts.get_or_insert_default().push((index, receipt));
        }
    }

    /// Delays the request of the remote charge at `index`, which its limit denied. Makes the charge if no store was heard.
    /// Returns the delay in nanoseconds, and the units that are charged.
    pub fn slow_down_remote(&mut self, index: usize, by: &SlowDown, now: Timestamp) -> (u64, u64) {
        let Some(charge) = self.charges.get_mut(index) else { return (0, 0) };
        let Charge { table, key, rule, .. } = *charge;
        let receipts = self.receipts.get_or_insert_default();
        let delay_ns = if charge.progress == Progress::Open {
            let (delay_ns, receipt) = slow_down_alone(charge, by, now);
            receipts.push((index, receipt));
            delay_ns
        } else {
            if charge.progress == Progress::Denied {
                receipts.push((index, Receipt::None)); // its debt is as large as it can be
            }
            charge.decision = table.peek(key, rule, 0, now);
            by.delay_ns(table.over(key, rule, now).max(1))
        };
        let charged = receipts.iter().find(|(of, _)| *of == index).map_or(0, |(_, receipt)| match receipt {
            Receipt::Remote(charge) => charge.in_store(),
            _ => 0,
        });
        (charge.cost, charge.progress) = (charged, Progress::Slowed);
        (delay_ns, charged)
    }
}

/// The decision about a charge that its store answered with `state`. It needs `cost` units of the store.
pub(super) fn decision<C>(
    charge: &Charge<'_, C>,
    (is_admitted, is_charged): (bool, bool),
    cost: u64,
    state: &AnyState,
    now: Timestamp,
) -> Decision {
    let decision = state.peek(charge.rule, if is_charged { 0 } else { cost }, now);
    if is_admitted {
        return Decision { denied: None, ..decision };
    }
    // Time has passed since the store denied the charge.
    let denied = match state.peek(charge.rule, cost, now).denied {
        Some(Retry::Never) => Retry::Never,
        Some(Retry::AfterNs(ns)) => Retry::AfterNs(ns.max(RETRY_NS_MIN)),
        None => Retry::AfterNs(RETRY_NS_MIN),
    };
    Decision { denied: Some(denied), ..decision }
}

/// Charges the mirror although it denies. Returns the delay of the request in nanoseconds, and the receipt.
fn slow_down_alone<C>(charge: &mut Charge<'_, C>, by: &SlowDown, now: Timestamp) -> (u64, Receipt) {
    let Charge { table, key, rule, cost, .. } = *charge;
    let is_whole = |remote: &&Arc<RemoteLimit>| remote.store.on_failure() == OnFailure::Local;
    let replicas = charge.remote.filter(|remote| !is_whole(remote)).map_or(1, |remote| remote.replicas.max(1));
    let scaled = SlowDown { step_ns: by.step_ns / replicas, ..*by };
    let owed = table.owed(key, rule, now);
    let slowed = table.slow_down(key, rule, &scaled, cost.saturating_mul(replicas), now);
    let units = table.owed(key, rule, now).saturating_sub(owed);
    table.assume(key, rule, (units, units / replicas), now);
    charge.decision = slowed.decision;
    let delay_ns =
        if slowed.delay_ns == 0 { 0 } else { by.delay_ns(table.over(key, rule, now).div_ceil(replicas).max(1)) };
    (delay_ns, report(charge, (units / replicas, units), now))
}

/// Reports `charged` units to the store, for which the mirror was charged `units`. Returns the receipt.
fn report<C>(charge: &Charge<'_, C>, (charged, units): (u64, u64), now: Timestamp) -> Receipt {
    let Some(remote) = charge.remote.filter(|_| charged > 0) else { return Receipt::None };
    let [extra, assumed] = [charged, units].map(|units| i64::try_from(units).unwrap_or(i64::MAX));
    charge.table.tell(remote, charge.key, charge.rule, (extra, assumed), charge.rule.capacity(), now);
    charge.mirrored(units, Origin::Report(charged), now)
}
