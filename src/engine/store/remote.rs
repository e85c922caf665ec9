//! A limit whose state is in a store, and the stores of all kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::backend::{Failure, KeyServer, Mirrors, OnFailure, RemoteReceipt, StoreContext, Unavailable};
use super::etcd::EtcdStore;
use super::etcd::settings::EtcdSettings;
use super::redis::Store;
use super::redis::settings::StoreSettings;
use super::service::Limiter;
use super::service::settings::LimiterSettings;
use crate::base::telemetry::{Metrics, RemoteLimitMetrics};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key, LeaseUnits};

/// The settings of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteSettings {
    /// Of Redis.
    Redis(StoreSettings),
    /// Of the limiter service of another Weir.
    Service(LimiterSettings),
    /// Of etcd.
    Etcd(EtcdSettings),
}

/// A store. Clones are the same store.
#[derive(Clone, Debug)]
pub enum RemoteStore {
    /// Redis.
    Redis(Arc<Store>),
    /// The limiter service of another Weir.
    Service(Arc<Limiter>),
    /// etcd, of which replicas only borrow.
    Etcd(Arc<EtcdStore>),
}

impl RemoteSettings {
    /// The name of the store.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Redis(settings) => &settings.name,
            Self::Service(settings) => &settings.name,
            Self::Etcd(settings) => &settings.name,
        }
    }
}

impl RemoteStore {
    /// Whether both are the same store.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Redis(one), Self::Redis(other)) => Arc::ptr_eq(one, other),
            (Self::Service(one), Self::Service(other)) => Arc::ptr_eq(one, other),
            (Self::Etcd(one), Self::Etcd(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether it was made from these settings.
    pub fn has(&self, settings: &RemoteSettings) -> bool {
        match (self, settings) {
            (Self::Redis(store), RemoteSettings::Redis(settings)) => store.settings() == settings,
            (Self::Service(store), RemoteSettings::Service(settings)) => store.settings() == settings,
            (Self::Etcd(store), RemoteSettings::Etcd(settings)) => store.settings() == settings,
            _ => false,
        }
    }

    /// What all servers of the store share.
    fn context(&self) -> &StoreContext {
        match self {
            Self::Redis(store) => store.context(),
            Self::Service(store) => store.context(),
            Self::Etcd(store) => store.context(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.context().name
    }

    /// What decides while a server is down.
    pub fn on_failure(&self) -> OnFailure {
        self.context().on_failure
    }

    /// Gives a charge back, soon. Never waits.
    pub fn give_back(&self, receipt: RemoteReceipt) {
        match self {
            Self::Redis(store) => store.give_back(receipt),
            Self::Service(store) => store.give_back(receipt),
            Self::Etcd(store) => store.give_back(receipt),
        }
    }

    /// Charges `extra` units, or gives them back if they are negative, soon. At most `max_debt` units are charged beyond the
    /// limit. Never waits.
    pub fn settle(&self, limit: &str, key: Key, rule: &Algorithm, extra: i64, max_debt: u64) {
        match self {
            Self::Redis(store) => store.settle(limit, key, rule, extra, max_debt),
            Self::Service(store) => store.settle(limit, key, rule, extra, max_debt),
            Self::Etcd(store) => store.settle(limit, key, rule, extra, max_debt),
        }
    }

    /// Answers to questions that were asked earlier may lack a late refund.
    pub(in crate::engine::store) fn late_refund_at(&self) -> Timestamp {
        self.context().late_refunds.last_at()
    }

    /// The server that has `key` of a limit; `None` if no server is known for it.
    pub fn server(&self, limit: &str, key: Key) -> Option<KeyServer> {
        match self {
            Self::Redis(store) => store.server(limit, key),
            Self::Service(store) => Some(store.health().server()),
            Self::Etcd(store) => Some(store.health().server()),
        }
    }

    /// Sets the number of replicas that a server without keys waits for.
    pub fn set_replicas(&self, replicas: u64) {
        match self {
            Self::Redis(store) => store.set_replicas(replicas),
            Self::Service(store) => store.set_replicas(replicas),
            // etcd keeps its keys, so it waits for no replica.
            Self::Etcd(_) => {}
        }
    }

    /// Does the work of the store besides decisions, until dropped. To be run once.
    pub async fn run(self, mirrors: Arc<dyn Mirrors>) {
        match self {
            Self::Redis(store) => store.run(mirrors).await,
            Self::Service(store) => store.run(mirrors).await,
            Self::Etcd(store) => store.run(mirrors).await,
        }
    }

    /// Waits until every refund and settlement was sent, as far as servers answer.
    pub async fn flushed(&self) {
        match self {
            Self::Redis(store) => store.flushed().await,
            Self::Service(store) => store.flushed().await,
            Self::Etcd(store) => store.flushed().await,
        }
    }

    /// Removes the series of metrics that no store `in_force` has.
    pub fn retire(&self, in_force: &[Self], metrics: &Metrics) {
        let namesakes = || in_force.iter().filter(|store| store.name() == self.name());
        let labels = match self {
            Self::Redis(store) => store.labels(),
            Self::Service(store) => vec![store.health().label.to_string()],
            Self::Etcd(store) => vec![store.health().label.to_string()],
        };
        for label in labels.iter().filter(|label| !namesakes().any(|store| store.has_node(label))) {
            self.context().metrics.remove_node(label);
        }
        if namesakes().next().is_none() {
            metrics.remove_store(self.name(), Failure::ALL.iter().map(|failure| failure.label()));
        }
    }

    fn has_node(&self, label: &str) -> bool {
        match self {
            Self::Redis(store) => store.has_node(label),
            Self::Service(store) => *store.health().label == *label,
            Self::Etcd(store) => *store.health().label == *label,
        }
    }
}

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
