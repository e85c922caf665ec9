//! Charges of a batch that take units of a lease.
//!
//! Not here: the amount of a lease (`store::lease`), and the call that borrows it (gate).

use std::sync::Arc;

use super::remote::decision;
use super::{Batch, Charge, Progress};
use crate::limit::state::State as _;
use crate::limit::{Algorithm, Decision, Retry};
use crate::store::lease::{Call, Grant, LEASE_NS};
use crate::store::redis::{RemoteOutcome, RemoteReceipt, Store};
use crate::store::table::{MirroredCharge, Origin, Receipt};
use crate::time::Timestamp;

/// A call that borrows units for a charge.
#[derive(Debug)]
pub struct Borrowing<'t> {
    /// The call.
    pub call: Call<'t, RemoteReceipt>,
    /// The units that the charge takes of them; 0 if it has its units already.
    pub cost: u64,
}

impl<C> Batch<'_, C> {
    /// Completes the charge at `index` by units of a lease, of which `unspent` units are left.
    pub fn spend_lease(&mut self, index: usize, unspent: u64, limit: &str, store: &Arc<Store>, now: Timestamp) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let Charge { table, key, rule, cost, .. } = *charge;
        let Decision { remaining, reset_after_ns, .. } = table.peek(key, rule, 0, now);
        charge.decision = Decision { denied: None, remaining: remaining.saturating_add(unspent), reset_after_ns };
        if cost == 0 {
            return;
        }
        charge.progress = Progress::Receipt;
        let origin = Origin::Lease { store: Arc::clone(store), limit: limit.into(), units: cost };
        let receipt = Receipt::Remote(Box::new(MirroredCharge { rule: rule.clone(), units: cost, at: now, origin }));
        self.receipts.get_or_insert_default().push((index, receipt));
    }

    /// Denies the charge at `index`, whose store is not asked for `wait_ns` nanoseconds.
    pub fn deny_lease(&mut self, index: usize, wait_ns: u64, now: Timestamp) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let Decision { denied, remaining, reset_after_ns } =
            charge.table.peek(charge.key, charge.rule, charge.cost, now);
        charge.progress = Progress::Denied;
        charge.decision = Decision { denied: denied.max(Some(Retry::AfterNs(wait_ns))), remaining, reset_after_ns };
    }

    /// Completes the charge at `index` with the answer of `store` to a question of `queried_at`, which borrowed units.
    pub fn hear_lease(
        &mut self,
        index: usize,
        outcome: RemoteOutcome,
        borrowing: Borrowing<'_>,
        (limit, store): (&str, &Arc<Store>),
        (queried_at, now): (Timestamp, Timestamp),
    ) {
        let Some(charge) = self.charges.get_mut(index) else { return };
        let Borrowing { call, cost } = borrowing;
        let RemoteOutcome { admitted, is_charged, state, receipt } = outcome;
        let Decision { remaining, .. } = state.peek(charge.rule, 0, now);
        if remaining == 0 {
            call.is_scarce(now);
        }
        let denial = decision(charge, admitted >= cost, is_charged, &state, now);
        charge.table.hear(charge.key, charge.rule, state, queried_at);
        if let Some(receipt) = receipt.filter(|_| is_charged) {
            let expires = now.saturating_add_ns(lifetime_ns(charge, now));
            call.granted(Grant { units: admitted, expires, receipt }, cost, now);
        }
        if cost == 0 {
            return;
        }
        if is_charged && admitted >= cost {
            let unspent = charge.table.unspent(charge.key, now);
            self.spend_lease(index, unspent, limit, store, now);
        } else {
            charge.decision = denial;
            charge.progress = if admitted >= cost { Progress::Open } else { Progress::Denied };
        }
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
