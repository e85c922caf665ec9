//! Charges of a batch that a store decides.
//!
//! Local charges are made first. Remote ones are asked for only if no mirror denies, and are completed one by one with
//! the answers, or alone while the store says nothing. Then the batch stays as it is, or is undone as a whole.
//!
//! Not here: the question to the store (gate).

use std::sync::Arc;

use super::{Batch, Charge, Progress};
use crate::limit::slow_down::SlowDown;
use crate::limit::state::State as _;
use crate::limit::{AnyState, Decision, Retry};
use crate::store::redis::{OnFailure, RemoteOutcome, Store};
use crate::store::table::{MirroredCharge, Origin, Receipt};
use crate::time::Timestamp;

/// The decision about a charge whose store says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Fallback<'s> {
    /// The store, which hears of the charge later.
    pub store: &'s Arc<Store>,
    /// The name of the limit.
    pub limit: &'s str,
    /// What decides.
    pub by: OnFailure,
    /// The replicas that share the limit.
    pub replicas: u64,
}

/// The retry of a request that fails with its store, in nanoseconds.
const REJECT_RETRY_NS: u64 = 1_000_000_000;

/// The least retry of a request that a store denied, in nanoseconds.
const RETRY_NS_MIN: u64 = 1_000_000;

impl<C> Charge<'_, C> {
    /// Makes the charge one that a store decides.
    pub fn set_remote(&mut self, is_remote: bool) {
        self.is_remote = is_remote;
    }

    /// Whether a store decides the charge.
    #[inline]
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// The decision of the mirror: a denial only if the store would deny too.
    pub(super) fn peek_mirror(&self, now: Timestamp) -> Decision {
        let Self { table, key, rule, cost, .. } = *self;
        let denial = table.mirror_denial(key, rule, cost, now);
        denial.unwrap_or_else(|| {
            let Decision { remaining, reset_after_ns, .. } = table.peek(key, rule, cost, now);
            let remaining = remaining.saturating_add(table.unspent(key, now));
            Decision { denied: None, remaining, reset_after_ns }
        })
    }
}

impl<C> Batch<'_, C> {
    /// Whether a store decides some of the charges.
    pub fn has_remote(&self) -> bool {
        self.charges.iter().any(|charge| charge.is_remote)
    }

    /// Makes the local charges at `now`, if every enforced one is admitted and no mirror denies. Otherwise none is made.
    /// Remote charges are left open. Returns whether the stores are to be asked.
    pub fn admit_local(&mut self, now: Timestamp) -> bool {
        for charge in self.charges.iter_mut().filter(|charge| charge.is_remote) {
            charge.decision = charge.peek_mirror(now);
        }
        if self.charges.iter().any(|charge| charge.is_remote && charge.enforced && !charge.is_admitted()) {
            self.peek(now);
            return false;
        }
        self.at = now;
        for index in 0..self.charges.len() {
            let Some(charge) = self.charges.get_mut(index).filter(|charge| !charge.is_remote) else { continue };
            charge.admit(index, &mut self.receipts, now);
            if charge.enforced && !charge.is_admitted() {
                self.deny(index, now);
                return false;
            }
        }
        true
    }

    /// Completes the charge at `index` with the answer of `store` to a question of `queried_at`.
    pub fn hear(
        &mut self,
        index: usize,
        outcome: RemoteOutcome,
        store: &Arc<Store>,
        queried_at: Timestamp,
        now: Timestamp,
    ) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let RemoteOutcome { admitted, is_charged, state, receipt } = outcome;
        let is_admitted = admitted >= charge.cost;
        charge.decision = decision(charge, is_admitted, is_charged, &state, now);
        charge.table.hear(charge.key, charge.rule, state, queried_at);
        if !is_charged {
            charge.progress = if is_admitted { Progress::Open } else { Progress::Denied };
            return;
        }
        charge.progress = Progress::Receipt;
        let receipt = receipt.map_or(Receipt::None, |receipt| {
            let units = receipt.units();
            charge.table.enter(charge.key, charge.rule, units);
            let origin = Origin::Store(Arc::clone(store), receipt);
            Receipt::Remote(Box::new(MirroredCharge { rule: charge.rule.clone(), units, at: now, origin }))
        });
        self.receipts.get_or_insert_default().push((index, receipt));
    }

    /// Decides the charge at `index` without its store.
    pub fn fall_back(&mut self, index: usize, fallback: Fallback<'_>, now: Timestamp) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let Charge { table, key, rule, cost, .. } = *charge;
        let replicas = match fallback.by {
            OnFailure::Split => fallback.replicas,
            OnFailure::Local => 1,
            OnFailure::Reject => {
                let denied = Some(Retry::AfterNs(REJECT_RETRY_NS));
                charge.decision = Decision { denied, ..table.peek(key, rule, 0, now) };
                return;
            }
            OnFailure::Allow => {
                charge.decision = Decision { denied: None, ..table.peek(key, rule, 0, now) };
                charge.progress = Progress::Receipt;
                self.receipts.get_or_insert_default().push((index, Receipt::None));
                return;
            }
        };
        let (decision, units) = table.admit_share(key, rule, cost, replicas, now);
        charge.decision = decision;
        if decision.is_admitted() {
            let receipt = report(charge, (cost, units), fallback, now);
            charge.progress = Progress::Receipt;
            self.receipts.get_or_insert_default().push((index, receipt));
        }
    }

    /// Delays the request of the remote charge at `index`, which its limit denied. Makes the charge if no store was heard.
    /// Returns the delay in nanoseconds.
    pub fn slow_down_remote(&mut self, index: usize, by: &SlowDown, fallback: Fallback<'_>, now: Timestamp) -> u64 {
        let Some(charge) = self.charges.get_mut(index) else { return 0 };
        let Charge { table, key, rule, .. } = *charge;
        let receipts = self.receipts.get_or_insert_default();
        let delay_ns = if charge.progress == Progress::Open {
            let (delay_ns, receipt) = slow_down_alone(charge, by, fallback, now);
            receipts.push((index, receipt));
            delay_ns
        } else {
            if charge.progress == Progress::Denied {
                receipts.push((index, Receipt::None)); // its debt is as large as it can be
            }
            charge.decision = table.peek(key, rule, 0, now);
            by.delay_ns(table.over(key, rule, now).max(1))
        };
        charge.progress = Progress::Slowed;
        delay_ns
    }
}

/// The decision about a charge that its store answered with `state`.
pub(super) fn decision<C>(
    charge: &Charge<'_, C>,
    is_admitted: bool,
    is_charged: bool,
    state: &AnyState,
    now: Timestamp,
) -> Decision {
    let decision = state.peek(charge.rule, if is_charged { 0 } else { charge.cost }, now);
    if is_admitted {
        return Decision { denied: None, ..decision };
    }
    // Time has passed since the store denied the charge.
    let denied = match state.peek(charge.rule, charge.cost, now).denied {
        Some(Retry::Never) => Retry::Never,
        Some(Retry::AfterNs(ns)) => Retry::AfterNs(ns.max(RETRY_NS_MIN)),
        None => Retry::AfterNs(RETRY_NS_MIN),
    };
    Decision { denied: Some(denied), ..decision }
}

/// Charges the mirror although it denies. Returns the delay of the request in nanoseconds, and the receipt.
fn slow_down_alone<C>(
    charge: &mut Charge<'_, C>,
    by: &SlowDown,
    fallback: Fallback<'_>,
    now: Timestamp,
) -> (u64, Receipt) {
    let Charge { table, key, rule, cost, .. } = *charge;
    let replicas = if fallback.by == OnFailure::Local { 1 } else { fallback.replicas.max(1) };
    let scaled = SlowDown { step_ns: by.step_ns / replicas, ..*by };
    let spent = || (table.peek(key, rule, 0, now).remaining, table.over(key, rule, now));
    let (remaining, over) = spent();
    let slowed = table.slow_down(key, rule, &scaled, cost.saturating_mul(replicas), now);
    let (remaining_after, over_after) = spent();
    let units = remaining.saturating_sub(remaining_after) + over_after.saturating_sub(over);
    table.assume(key, rule, units, now);
    charge.decision = slowed.decision;
    let delay_ns = if slowed.delay_ns == 0 { 0 } else { by.delay_ns(over_after.div_ceil(replicas).max(1)) };
    (delay_ns, report(charge, (units / replicas, units), fallback, now))
}

/// Reports `charged` units to the store, for which the mirror was charged `mirrored` units. Returns the receipt.
fn report<C>(
    charge: &Charge<'_, C>,
    (charged, mirrored): (u64, u64),
    fallback: Fallback<'_>,
    now: Timestamp,
) -> Receipt {
    if charged == 0 {
        return Receipt::None;
    }
    let Charge { key, rule, .. } = *charge;
    let Fallback { store, limit, .. } = fallback;
    let extra = i64::try_from(charged).unwrap_or(i64::MAX);
    store.settle(limit, key, rule, extra, rule.capacity());
    let origin = Origin::Report { store: Arc::clone(store), limit: limit.into(), units: charged };
    Receipt::Remote(Box::new(MirroredCharge { rule: rule.clone(), units: mirrored, at: now, origin }))
}
