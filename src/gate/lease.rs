//! A request whose limit is shared by leases: it spends borrowed units, or borrows more.
//!
//! Not here: the amount of a lease (`store::lease`), and the call to the store (`ask.rs`).

use super::check::Checked;
use super::remote::RemoteLimit;
use super::state::{LimitState, Live};
use crate::limit::Key;
use crate::policy::LeaseUnits;
use crate::store::redis::RemoteReceipt;
use crate::store::{Batch, Borrowing, Expired, Spend};
use crate::time::{Clock, Timestamp};

/// How far a charge got by borrowed units.
pub(super) enum Spent<'t> {
    /// It is decided.
    Done,
    /// The store is to be asked for units.
    Open(Borrowing<'t>),
}

/// Decides the charge at `index` by units that are borrowed. Waits for a call that is in flight for its key.
pub(super) async fn spend<'t, 'l: 't, C: Checked<'l>>(
    batch: &mut Batch<'t, C>,
    index: usize,
    (remote, units): (&RemoteLimit, LeaseUnits),
    clock: Clock,
) -> Spent<'t> {
    loop {
        let Some(charge) = batch.charges().get(index) else { return Spent::Done };
        let (state, table, key, cost) = (charge.check.state(), charge.table(), charge.key, charge.cost);
        let (now, mut expired) = (clock.now(), Expired::new());
        let spend = table.leases().spend(key, cost, units.fixed(), now, &mut expired);
        for grant in expired {
            state.return_units(remote, key, grant.receipt.of_units(grant.units), now);
        }
        match spend {
            Spend::Spent(unspent, call) => {
                batch.spend_lease(index, unspent, &state.name, &remote.store, now);
                return call.map_or(Spent::Done, |call| Spent::Open(Borrowing { call, cost: 0 }));
            }
            Spend::Borrow(call) => return Spent::Open(Borrowing { call, cost }),
            Spend::Denied(wait_ns) => {
                batch.deny_lease(index, wait_ns, now);
                return Spent::Done;
            }
            // An error says that the call has ended.
            Spend::Wait(mut in_flight) => drop(in_flight.changed().await),
        }
    }
}

impl LimitState {
    /// Gives borrowed units of `key` back to the store.
    fn return_units(&self, remote: &RemoteLimit, key: Key, receipt: RemoteReceipt, now: Timestamp) {
        remote.store.give_back(receipt);
        self.table.refunded(key, now);
    }

    /// Gives borrowed units back that were not spent in time, or all with `all`.
    pub(super) fn return_leases(&self, remote: &RemoteLimit, all: bool) {
        let now = self.clock.now();
        for (key, grant) in self.table.take_expired(all, now) {
            self.return_units(remote, key, grant.receipt.of_units(grant.units), now);
        }
    }
}

impl Live {
    /// Gives borrowed units back that were not spent in time, or all with `all`. To be called several times in
    /// [`LEASE_NS`](crate::store::LEASE_NS), by a thread that serves no requests.
    pub fn return_leases(&self, all: bool) {
        for state in &self.leasing {
            if let Some(remote) = &*state.remote.load() {
                state.return_leases(remote, all);
            }
        }
    }
}
