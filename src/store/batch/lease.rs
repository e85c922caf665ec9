//! Charges of a batch that take units of a lease.
//!
//! Not here: the amount of a lease (`store::lease`), and the call that borrows it (gate).

use super::remote::decision;
use super::{Batch, Charge, Progress};
use crate::limit::state::State as _;
use crate::limit::{Algorithm, Decision, Retry};
use crate::store::lease::{Call, Grant, LEASE_NS};
use crate::store::redis::RemoteOutcome;
use crate::store::remote::Borrowed;
use crate::time::Timestamp;

/// A call that borrows units for a charge.
#[derive(Debug)]
pub struct Borrowing {
    /// The call.
    pub call: Call<Borrowed>,
    /// The units that the charge takes of them; 0 if it has its units already.
    pub cost: u64,
}

impl<C> Charge<'_, C> {
    /// Completes the charge, which took units of a lease, of which `left` units are left at hand.
    pub(super) fn spent(&mut self, left: u64, now: Timestamp) {
        let Decision { remaining, reset_after_ns, .. } = self.table.peek(self.key, self.rule, 0, now);
        self.decision = Decision { denied: None, remaining: remaining.saturating_add(left), reset_after_ns };
        self.progress = Progress::Leased;
    }

    /// Denies the charge, whose store has no units for `scarce_ns` nanoseconds.
    pub(super) fn deny_scarce(&mut self, scarce_ns: u64, now: Timestamp) {
        let Decision { denied, remaining, reset_after_ns } = self.table.peek(self.key, self.rule, self.cost, now);
        self.progress = Progress::Denied;
        self.decision = Decision { denied: denied.max(Some(Retry::AfterNs(scarce_ns))), remaining, reset_after_ns };
    }
}

impl<C> Batch<'_, C> {
    /// Completes the charge at `index`, which took units of a lease, of which `left` units are left at hand.
    pub fn spend_lease(&mut self, index: usize, left: u64, now: Timestamp) {
        if let Some(charge) = self.charges.get_mut(index) {
            charge.spent(left, now);
        }
    }

    /// Denies the charge at `index`, whose store has no units for `scarce_ns` nanoseconds.
    pub fn deny_lease(&mut self, index: usize, scarce_ns: u64, now: Timestamp) {
        if let Some(charge) = self.charges.get_mut(index) {
            charge.deny_scarce(scarce_ns, now);
        }
    }

    /// Completes the charge at `index` with the answer of its store to a question of `queried_at`, which borrowed units.
    pub fn hear_lease(
        &mut self,
        index: usize,
        outcome: RemoteOutcome,
        borrowing: Borrowing,
        queried_at: Timestamp,
        now: Timestamp,
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
        if let (Some(remote), Some(receipt)) = (charge.remote, receipt.filter(|_| is_charged)) {
            let expires = now.saturating_add_ns(lifetime_ns(charge, now));
            let receipt = Borrowed { remote: remote.clone(), receipt };
            call.granted(Grant { units: admitted, expires, receipt }, cost, now);
        }
        if cost == 0 {
            return;
        }
        if is_charged && admitted >= cost {
            let left = charge.table.unspent(charge.key, now);
            charge.spent(left, now);
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
