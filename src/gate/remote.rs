//! A limit whose state is in a store.

use std::sync::Arc;

use crate::policy::LeaseUnits;
use crate::store::Fallback;
use crate::store::redis::Store;
use crate::telemetry::RemoteLimitMetrics;

/// How a limit is shared by replicas through a store.
#[derive(Debug)]
pub(super) struct RemoteLimit {
    pub(super) store: Arc<Store>,
    /// The size of a lease; `None` if the store decides each request.
    pub(super) lease: Option<LeaseUnits>,
    /// The replicas of the fleet, for decisions while the store is down.
    pub(super) replicas: u64,
    pub(super) metrics: RemoteLimitMetrics,
}

impl RemoteLimit {
    /// The decision about a charge while the store is down.
    pub(super) fn fallback<'s>(&'s self, limit: &'s str) -> Fallback<'s> {
        Fallback { store: &self.store, limit, by: self.store.settings().on_failure, replicas: self.replicas }
    }
}
