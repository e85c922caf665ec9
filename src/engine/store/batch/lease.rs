//! Charges of a batch that take units of a lease.
//!
//! Not here: the amount of a lease (`store::lease`), and the call that borrows it (gate).

use std::sync::Arc;

use super::remote::decision;
use super::{Batch, Charge, Progress, Receipts};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, Decision, Retry};
use crate::engine::store::backend::{REFUND_NS, RemoteOutcome};
use crate::engine::store::lease::{Call, Grant, INTERVAL_NS, LEASE_NS, SpentUnits};
use crate::engine::store::remote::Borrowed;
use crate::engine::store::table::Receipt;

impl<C> Charge<'_, C> {
    /// Takes the units that `call` borrowed in the background by a question of `queried_at`.
    pub fn refill(&self, outcome: RemoteOutcome, call: &Call<Borrowed>, queried_at: Timestamp, now: Timestamp) {
        self.note_scarcity(&outcome, call, outcome.admitted < call.least, queried_at, now);
        self.borrow(outcome, (call, 0), queried_at, now);
    }

    /// Takes the units that a call borrowed, and spends `cost` units. Returns `None` if the store lent nothing, or others spent
    /// what was at hand.
    fn borrow(
        &self,
        outcome: RemoteOutcome,
        (call, cost): (&Call<Borrowed>, u64),
        queried_at: Timestamp,
        now: Timestamp,
    ) -> Option<SpentUnits<Borrowed>> {
        let RemoteOutcome { admitted, is_charged, state, receipt, .. } = outcome;
        self.table.hear(self.key, self.rule, state, queried_at);
        let (remote, receipt) = (self.remote?, receipt.filter(|_| is_charged)?);
        let expires = now.saturating_add_ns(lifetime_ns(self, now).max(1));
        let receipt = Arc::new(Borrowed::new(Arc::clone(remote), self.rule.clone(), receipt));
        self.table.note_borrowed(self.key, self.rule, admitted, remote.replicas, now);
        call.granted(Grant { units: admitted, expires, receipt }, cost, now)
    }

    /// Notes if the store has no more units, or has denied `call` because it has too few. Units that came back may not be in
    /// the answer. But a store that denies was asked again when it knew of those from before the question.
    fn note_scarcity(
        &self,
        outcome: &RemoteOutcome,
        call: &Call<Borrowed>,
        is_denied: bool,
        queried_at: Timestamp,
        now: Timestamp,
    ) {
        let known_at = if is_denied { queried_at.saturating_add_ns(REFUND_NS) } else { queried_at };
        if self.table.is_doubted(self.key, known_at) {
            return;
        }
        let peek = |cost| outcome.state.peek(self.rule, cost, now);
        match (peek(0).remaining, peek(call.least).denied) {
            (0, _) => call.is_scarce(0, u64::MAX, now),
            (left, Some(Retry::AfterNs(retry_ns))) if is_denied => call.is_scarce(left, retry_ns, now),
            _ => {}
        }
    }

    /// Completes the charge at `index` of its batch, which took units of a lease.
    pub(super) fn spent(
        &mut self,
        index: usize,
        units: SpentUnits<Borrowed>,
        receipts: &mut Option<Box<Receipts>>,
        now: Timestamp,
    ) {
        let SpentUnits { taken, left } = units;
        let Decision { remaining, reset_after_ns, .. } = self.table.peek(self.key, self.rule, 0, now);
        self.decision = Decision { denied: None, remaining: remaining.saturating_add(left), reset_after_ns };
        self.progress = if taken.is_empty() { Progress::Taken } else { Progress::Receipt };
        if !taken.is_empty() {
            receipts.get_or_insert_default().push((index, Receipt::Lease(taken)));
        }
    }

    /// Denies the charge, whose store has no units for `scarce_ns` nanoseconds.
    pub(super) fn deny_scarce(&mut self, scarce_ns: u64, now: Timestamp) {
        let Decision { denied, remaining, reset_after_ns } = self.peek_lacking(now);
        self.progress = Progress::Denied;
        self.decision = Decision { denied: denied.max(Some(Retry::AfterNs(scarce_ns))), remaining, reset_after_ns };
    }
}

impl<C> Batch<'_, C> {
    /// Completes the charge at `index`, which took units of a lease.
    pub fn spend_lease(&mut self, index: usize, units: SpentUnits<Borrowed>, now: Timestamp) {
        if let Some(charge) = self.charges.get_mut(index) {
            charge.spent(index, units, &mut self.receipts, now);
        }
    }

    /// Denies the charge at `index`, whose store has no units for `scarce_ns` nanoseconds.
    pub fn deny_lease(&mut self, index: usize, scarce_ns: u64, now: Timestamp) {
        if let Some(charge) = self.charges.get_mut(index) {
            charge.deny_scarce(scarce_ns, now);
        }
    }

    /// Completes the charge at `index` with the answer of its store to a question of `queried_at`, by which `call` borrowed
    /// units for it.
    pub fn hear_lease(
        &mut self,
        index: usize,
        outcome: RemoteOutcome,
        call: &Call<Borrowed>,
        queried_at: Timestamp,
        now: Timestamp,
    ) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let (is_admitted, is_charged) = (outcome.admitted >= call.least, outcome.is_charged);
        let denial = decision(charge, (is_admitted, is_charged), charge.lacking(now), &outcome.state, now);
        charge.note_scarcity(&outcome, call, charge.enforced && !is_admitted, queried_at, now);
        let spent = charge.borrow(outcome, (call, charge.cost), queried_at, now);
        if is_charged && is_admitted {
            return match spent {
                Some(units) => charge.spent(index, units, &mut self.receipts, now),
                None => charge.deny_scarce(INTERVAL_NS, now),
            };
        }
        charge.decision = denial;
        charge.progress = if is_admitted { Progress::Open } else { Progress::Denied };
    }
}

/// Nanoseconds for which units may be spent. Units of a fixed window are spent in that window.
fn lifetime_ns<C>(charge: &Charge<'_, C>, now: Timestamp) -> u64 {
    let rates = match charge.rule {
        Algorithm::Several(rules) => &**rules,
        rule => std::slice::from_ref(rule),
    };
    let remaining = charge.table.remaining(charge.key, charge.rule, 0, now);
    let windows = rates.iter().zip(&remaining).filter(|(rule, _)| matches!(rule, Algorithm::FixedWindow(_)));
    windows.map(|(_, rate)| rate.reset_after_ns).fold(LEASE_NS, u64::min)
}
