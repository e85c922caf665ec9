//! The calls of one worker: its connection to etcd, and the loans for its requests.
//!
//! Each charge is a transaction. If the limit of one lends nothing, the caller gives back what the others lent.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::node::Node;
use super::receipt::EtcdReceipt;
use super::store::EtcdStore;
use super::transact::Transaction;
use crate::base::time::instant_now;
use crate::engine::store::backend::grpc::{CallError, Caller};
use crate::engine::store::backend::{
    Answers, Failure, Handling, Link, Part, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, each,
};

/// The connection of one worker to etcd.
pub struct WorkerEtcd {
    store: Arc<EtcdStore>,
    link: Link<Node>,
}

/// The answers to the charges of a request. What was lent is given back on drop.
struct Unmerged<'s> {
    store: &'s EtcdStore,
    outcomes: SmallVec<[Result<RemoteOutcome, Unavailable>; 2]>,
}

impl WorkerEtcd {
    /// Begins to connect. To be called on the runtime that decides.
    pub fn new(store: Arc<EtcdStore>) -> Self {
        let link = Link::new(Arc::clone(&store.node));
        Self { store, link }
    }

    /// Borrows units for all charges of a request, each within the timeout of the store. What is lent after the timeout, or
    /// after this was dropped, goes back. If one limit lends nothing, the caller gives back what the others lent by the
    /// receipts.
    pub async fn decide(&self, charges: &[RemoteCharge<'_>]) -> Answers {
        let outcomes = charges.iter().map(|_| Err(Unavailable::Down)).collect();
        let mut unmerged = Unmerged { store: &self.store, outcomes };
        let parts = charges.iter().map(|charge| -> Part<'_, _> { Box::pin(self.ask(charge)) }).collect();
        each(parts, |index, outcome| unmerged.outcomes[index] = outcome).await;
        unmerged.merge(charges)
    }

    async fn ask(&self, charge: &RemoteCharge<'_>) -> Result<RemoteOutcome, Unavailable> {
        let (store, node) = (&*self.store, &*self.store.node);
        if !node.is_closed() {
            return Err(Unavailable::Down);
        }
        store.lease().ok_or(Unavailable::Cold)?;
        let begun = instant_now();
        let deadline = begun + store.context.timeout;
        let borrowed = timeout_at(deadline, self.borrow(charge, deadline)).await;
        store.context.observe(begun);
        match borrowed.unwrap_or(Err(None)) {
            Ok(outcome) => {
                node.succeeded();
                Ok(outcome)
            }
            Err(Some(error)) => {
                node.failed(error.failure, &error.text);
                let is_late = error.failure == Failure::Timeout;
                Err(if is_late { Unavailable::Timeout } else { Unavailable::Error(error.failure) })
            }
            Err(None) => {
                node.failed(Failure::Timeout, "no answer in time");
                Err(Unavailable::Timeout)
            }
        }
    }

    /// Borrows the units of a charge. Errs without a reason if there is no connection in time.
    async fn borrow(&self, charge: &RemoteCharge<'_>, deadline: Instant) -> Result<RemoteOutcome, Option<CallError>> {
        let store = &*self.store;
        let caller: Caller = match self.link.connection() {
            Some(caller) => caller,
            None => timeout_at(deadline, self.link.opened()).await.map_err(|_| None)?,
        };
        let RemoteCharge { limit, key, rule, units, .. } = *charge;
        let of = (Box::from(limit), key);
        let held = store.ledger.holding(&of);
        let mut locked = held.lock().await;
        let transaction = Transaction { store, caller: &caller, of: &of, rule };
        let made = transaction.make(&mut locked, Some(units)).await;
        let (plan, loan) = made.map_err(Some)?;
        let (units, at) = (plan.borrowed, plan.now);
        let receipt =
            (units > 0).then(|| EtcdReceipt { limit: limit.into(), key, rule: rule.clone(), loan, at, units });
        Ok(RemoteOutcome {
            admitted: units,
            is_charged: units > 0,
            is_outdated: false,
            state: plan.state,
            receipt: receipt.map(|receipt| RemoteReceipt::Etcd(Box::new(receipt))),
        })
    }
}

impl Unmerged<'_> {
    /// The answers in the order of the charges.
    fn merge(mut self, charges: &[RemoteCharge<'_>]) -> Answers {
        let is_denied = |(charge, outcome): (&RemoteCharge<'_>, &Result<RemoteOutcome, Unavailable>)| {
            let lent = outcome.as_ref().map_or(u64::MAX, |outcome| outcome.admitted);
            charge.handling == Handling::Enforce && lent < charge.units.cost
        };
        let is_admitted = !charges.iter().zip(&self.outcomes).any(is_denied);
        Answers { is_admitted, outcomes: std::mem::take(&mut self.outcomes) }
    }
}

impl Drop for Unmerged<'_> {
    fn drop(&mut self) {
        let receipts = self.outcomes.drain(..).flatten().filter_map(|outcome| outcome.receipt);
        receipts.for_each(|receipt| self.store.give_back(receipt));
    }
}

impl fmt::Debug for WorkerEtcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerEtcd").field("store", &self.store).finish_non_exhaustive()
    }
}
