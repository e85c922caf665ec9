//! A request whose limit is shared by leases, and for which few borrowed units or none are at hand.
//!
//! Not here: the amount of a lease (`store::lease`), and the calls to the store (`ask.rs`).

use std::sync::Arc;

use super::check::Checked;
use super::state::{LimitState, Live};
use crate::base::time::{Timestamp, instant_now};
use crate::engine::limit::{Algorithm, Key, LeaseUnits};
use crate::engine::store::backend::{Answers, Handling, RemoteCharge};
use crate::engine::store::{Batch, Borrowed, Call, Charge, InFlight, RemoteLimit, RemoteStore, Supply};

/// How an open charge goes on that borrowed units decide.
pub(super) enum Supplied {
    /// It is decided.
    Decided,
    /// Its request is to make a call.
    Borrow(Call<Borrowed>),
    /// Another request makes a call for its key.
    InFlight(InFlight),
}

/// A call that borrows more units of a key. No request waits for it.
#[derive(Debug)]
pub struct Refill {
    state: Arc<LimitState>,
    remote: Arc<RemoteLimit>,
    key: Key,
    rule: Algorithm,
    call: Call<Borrowed>,
    queried_at: Timestamp,
}

/// Decides the open charge at `index` by units that are borrowed meanwhile.
pub(super) fn supply<'l, C: Checked<'l>>(
    batch: &mut Batch<'_, C>,
    index: usize,
    units: LeaseUnits,
    now: Timestamp,
) -> Supplied {
    let Some(charge) = batch.charges().get(index) else { return Supplied::Decided };
    match charge.table().leases().supply(charge.key, charge.cost, units, now) {
        Supply::Spent(units) => batch.spend_lease(index, units, now),
        Supply::Denied(scarce_ns) => batch.deny_lease(index, scarce_ns, now),
        Supply::Borrow(call) => return Supplied::Borrow(call),
        Supply::Wait(in_flight) => return Supplied::InFlight(in_flight),
    }
    Supplied::Decided
}

impl Refill {
    /// The call that borrows more units for the key of `charge`, if few are at hand.
    pub(super) fn of<'l, C: Checked<'l>>(charge: &Charge<'_, C>, units: LeaseUnits, now: Timestamp) -> Option<Self> {
        let call = charge.table().leases().refill(charge.key, units, now)?;
        let (state, remote) = (Arc::clone(charge.check.state()), Arc::clone(charge.remote()?));
        Some(Self { state, remote, key: charge.key, rule: charge.rule.clone(), call, queried_at: now })
    }

    /// The store that lends the units.
    pub fn store(&self) -> &RemoteStore {
        &self.remote.store
    }

    /// The question to the store.
    pub fn charge(&self) -> RemoteCharge<'_> {
        let Self { state, remote, key, rule, call, queried_at } = self;
        let (units, handling) = (call.units(), Handling::Enforce);
        let is_doubted = state.table.is_doubted(*key, *queried_at);
        let asked_again_until = is_doubted.then(|| instant_now() + remote.store.timeout());
        RemoteCharge { limit: &remote.name, key: *key, rule, units, handling, asked_again_until }
    }

    /// Completes the call with the answer to [`Refill::charge`].
    pub fn complete(self, answers: Answers) {
        let Self { state, remote, key, rule, call, queried_at } = self;
        let mut charge = Charge::new(&state.table, key, &rule, 0, false, ());
        charge.set_remote(Some(&remote));
        match answers.outcomes.into_iter().next() {
            Some(Ok(outcome)) => charge.refill(outcome, &call, queried_at, state.clock.now()),
            Some(Err(why)) => call.failed(why),
            None => {}
        }
    }
}

impl LimitState {
    /// Gives borrowed units back that were not spent in time, or all with `all`. Wakes requests that wait for them.
    pub(super) fn return_leases(&self, all: bool) {
        self.table.return_leases(all, self.clock.now(), |key| self.queues.wake_front(key));
    }
}

impl Live {
    /// Gives borrowed units back that were not spent in time, or all with `all`. To be called several times in
    /// [`LEASE_NS`](crate::engine::store::LEASE_NS), by a thread that serves no requests.
    pub fn return_leases(&self, all: bool) {
        for (state, remote) in self.states.iter().zip(&self.remotes) {
            if remote.as_ref().is_some_and(|remote| remote.lease.is_some()) {
                state.return_leases(all);
            }
        }
    }
}
