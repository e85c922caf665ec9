//! A limit whose state is in a store, and the proof of units that were borrowed from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::backend::{OnFailure, RemoteReceipt, RemoteStore, Unavailable};
use crate::base::telemetry::RemoteLimitMetrics;
use crate::engine::limit::{Algorithm, LeaseUnits};

/// How replicas share a limit through a store.
#[derive(Debug)]
pub struct RemoteLimit {
    /// The name of the limit.
    pub name: Box<str>,
    /// The store that has the state.
    pub store: RemoteStore,
    /// The size of a lease; `None` if the store decides each request.
    pub lease: Option<LeaseUnits>,
    /// The replicas of the fleet, for decisions while the store is down.
    pub replicas: u64,
    /// The metrics of the limit.
    pub metrics: RemoteLimitMetrics,
}

impl RemoteLimit {
    /// What decides while the store says nothing for the reason `why`.
    pub fn on_failure(&self, why: Unavailable) -> OnFailure {
        match why {
            // The store has lost its keys, and asks all replicas for them.
            Unavailable::Cold => OnFailure::Split,
            Unavailable::Down | Unavailable::Timeout | Unavailable::Error(_) => self.store.on_failure(),
        }
    }

    /// Whether units that were borrowed under `before` can be spent under this: both borrow from one store.
    pub fn lends_as(&self, before: &Self) -> bool {
        self.lease.is_some() && self.store.is(&before.store)
    }
}

/// The proof of a charge that borrowed units.
#[derive(Debug)]
pub struct Borrowed {
    /// The limit of the charge, with its store.
    pub(in crate::engine::store) remote: Arc<RemoteLimit>,
    /// The rule of the charge.
    pub(in crate::engine::store) rule: Algorithm,
    /// The proof.
    pub(in crate::engine::store) receipt: RemoteReceipt,
    /// Spent units that were given back to the store.
    returned: AtomicU64,
}

impl Borrowed {
    /// Units that `remote` lent under `rule`.
    pub(in crate::engine::store) fn new(remote: Arc<RemoteLimit>, rule: Algorithm, receipt: RemoteReceipt) -> Self {
        Self { remote, rule, receipt, returned: AtomicU64::new(0) }
    }

    /// The receipt for the units that were not spent: the last ones of the charge.
    pub(in crate::engine::store) fn unspent(&self, units: u64) -> RemoteReceipt {
        self.receipt.clone().of_units(units)
    }

    /// The receipt for spent units: the first ones of the charge that were not given back before.
    pub(in crate::engine::store) fn spent(&self, units: u64) -> RemoteReceipt {
        let before = self.returned.fetch_add(units, Ordering::Relaxed);
        self.receipt.clone().of_first(before.saturating_add(units)).of_units(units)
    }
}
