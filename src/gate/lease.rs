//! A request whose limit is shared by leases, and for which too few borrowed units are at hand.
//!
//! Not here: the amount of a lease (`store::lease`), and the call to the store (`ask.rs`).

use std::sync::Arc;

use super::check::Checked;
use super::state::{LimitState, Live};
use crate::limit::LeaseUnits;
use crate::store::{Batch, Borrowing, Charge, RemoteLimit, Supply};
use crate::time::{Clock, Timestamp};

/// Decides the open charge at `index` by units that are borrowed meanwhile. Waits for a call that is in flight for its key.
/// Returns the call that is to be made, if the charge is still open.
pub(super) async fn supply<'l, C: Checked<'l>>(
    batch: &mut Batch<'_, C>,
    index: usize,
    units: LeaseUnits,
    clock: Clock,
) -> Option<Borrowing> {
    loop {
        let charge = batch.charges().get(index)?;
        let now = clock.now();
        match charge.table().leases().supply(charge.key, charge.cost, units, now) {
            Supply::Spent(left) => batch.spend_lease(index, left, now),
            Supply::Denied(scarce_ns) => batch.deny_lease(index, scarce_ns, now),
            Supply::Borrow(call) => return Some(Borrowing { call, cost: charge.cost }),
            // An error says that the call has ended.
            Supply::Wait(mut in_flight) => {
                drop(in_flight.changed().await);
                continue;
            }
        }
        return None;
    }
}

/// The call that borrows more units for the key of `charge`, if few are at hand.
pub(super) fn refill<C>(charge: &Charge<'_, C>, units: LeaseUnits, now: Timestamp) -> Option<Borrowing> {
    let call = charge.table().leases().refill(charge.key, units, now)?;
    Some(Borrowing { call, cost: 0 })
}

impl LimitState {
    /// Gives borrowed units back that were not spent in time, or all with `all`.
    pub(super) fn return_leases(&self, all: bool) {
        let now = self.clock.now();
        for (key, grant) in self.table.take_expired(all, now) {
            grant.receipt.give_back(grant.units);
            self.table.refunded(key, now);
        }
    }
}

impl Live {
    /// Gives borrowed units back that were not spent in time, or all with `all`. To be called several times in
    /// [`LEASE_NS`](crate::store::LEASE_NS), by a thread that serves no requests.
    pub fn return_leases(&self, all: bool) {
        let has_leases =
            |remote: &Option<_>| remote.as_ref().is_some_and(|remote: &Arc<RemoteLimit>| remote.lease.is_some());
        let states = self.states.iter().zip(&self.remotes).filter(|(_, remote)| has_leases(remote));
        states.for_each(|(state, _)| state.return_leases(all));
    }
}
