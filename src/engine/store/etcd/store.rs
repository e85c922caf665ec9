//! One store that is an etcd, as all workers share it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio_rustls::rustls::ClientConfig;

use super::GRANT;
use super::ledger::Ledger;
use super::node::Node;
use super::proto::etcdserverpb::{LeaseGrantRequest, LeaseGrantResponse};
use super::receipt::EtcdReceipt;
use super::settings::EtcdSettings;
use crate::base::telemetry::Metrics;
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::grpc::{CallError, Caller};
use crate::engine::store::backend::{
    Failure, Health, Link, Outbox, RemoteReceipt, Settlement, StoreContext, random_id,
};

const NS_PER_S: u64 = 1_000_000_000;

/// How far clocks may be behind that of the replica that attached a counter to its lease, in seconds.
const SKEW_S: u64 = 60;

/// A lease of etcd.
#[derive(Clone, Copy, Debug)]
pub(super) struct EtcdLease {
    pub(super) id: i64,
    /// It has not ended before.
    pub(super) until: Timestamp,
}

/// One `[store.NAME]` with `etcd`.
pub struct EtcdStore {
    settings: EtcdSettings,
    pub(super) context: Arc<StoreContext>,
    pub(super) node: Arc<Node>,
    /// The connection of the control runtime; `None` until it runs.
    pub(super) background: ArcSwapOption<Link<Node>>,
    pub(super) outbox: Outbox<EtcdReceipt>,
    pub(super) ledger: Ledger,
    /// The number of this process, by which etcd tells its loans from those of others.
    pub(super) replica: u64,
    /// The lease that this process keeps alive. Held for one look.
    lease: Mutex<Option<EtcdLease>>,
    /// The leases of counters, by the binary logarithm of their seconds. Held during a call that makes one.
    counter_leases: tokio::sync::Mutex<HashMap<u32, EtcdLease>>,
    /// The number of the last transaction or loan.
    numbers: AtomicU64,
    /// Whether loans end at once, because the process ends.
    pub(super) is_ending: AtomicBool,
}

impl EtcdStore {
    /// The store with these settings. `tls` is what `net` makes of `settings.tls`.
    pub fn new(settings: EtcdSettings, tls: Option<Arc<ClientConfig>>, clock: Clock, metrics: &Metrics) -> Arc<Self> {
        let metrics = metrics.store(&settings.name);
        let outbox = Outbox::new(metrics.dropped.clone());
        let on_failure = (settings.on_failure, settings.timeout);
        let context = StoreContext::new(&settings.name, on_failure, clock, metrics);
        Arc::new(Self {
            node: Node::new(Arc::clone(&context), &settings, tls),
            context,
            background: ArcSwapOption::empty(),
            outbox,
            ledger: Ledger::default(),
            replica: random_id(),
            lease: Mutex::default(),
            counter_leases: tokio::sync::Mutex::default(),
            numbers: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            settings,
        })
    }

    /// The settings that it was made from.
    pub fn settings(&self) -> &EtcdSettings {
        &self.settings
    }

    /// Gives units back, soon. Never waits.
    pub fn give_back(&self, receipt: RemoteReceipt) {
        if let RemoteReceipt::Etcd(receipt) = receipt {
            self.outbox.give_back(*receipt, self.context.clock.now());
        }
    }

    /// Charges `extra` units, or gives them back if they are negative, soon. At most `max_debt` units are charged beyond the
    /// limit. Never waits.
    pub fn settle(&self, limit: &str, key: Key, rule: &Algorithm, extra: i64, max_debt: u64) {
        if extra != 0 {
            self.outbox.settle(Settlement::new(limit, key, rule, (extra, max_debt), self.context.clock.now()));
        }
    }

    /// Waits until etcd knows of all refunds, settlements and spent units, as far as it answers. From now on, borrowed units
    /// count as spent at once.
    pub async fn flushed(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.ledger.added.notify_one();
        while self.outbox.len() > self.outbox.parked() || (self.node.decides() && !self.ledger.is_empty()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(in crate::engine::store) fn health(&self) -> &Health {
        &self.node
    }

    pub(in crate::engine::store) fn context(&self) -> &StoreContext {
        &self.context
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The lease to which loans are attached; `None` if there is none.
    pub(super) fn lease(&self) -> Option<EtcdLease> {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches further loans to this lease, or makes none without one.
    pub(super) fn set_lease(&self, lease: Option<EtcdLease>) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
        self.node.set_warm(lease.is_some());
    }

    /// No lease that this process knows is sure to exist.
    pub(super) async fn lost_leases(&self) {
        self.set_lease(None);
        self.counter_leases.lock().await.clear();
    }

    /// A lease for a counter that is needed until `needed`. A lease is used for about half of its time, so there are few.
    pub(super) async fn counter_lease(&self, caller: &Caller, needed: Timestamp) -> Result<i64, CallError> {
        let now = self.context.clock.now();
        let seconds = needed.ns_since(now).div_ceil(NS_PER_S).saturating_add(SKEW_S);
        let lasting = seconds.saturating_mul(2).checked_next_power_of_two().unwrap_or(1 << 32).min(1 << 32);
        let mut leases = self.counter_leases.lock().await;
        let known = leases.get(&lasting.ilog2()).filter(|lease| lease.until.ns_since(now) / NS_PER_S >= seconds);
        if let Some(lease) = known {
            return Ok(lease.id);
        }
        let lease = grant(caller, lasting, now).await?;
        leases.insert(lasting.ilog2(), lease);
        Ok(lease.id)
    }
}

/// Begins a lease of so many seconds.
pub(super) async fn grant(caller: &Caller, seconds: u64, now: Timestamp) -> Result<EtcdLease, CallError> {
    let question = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX), id: 0 };
    let answer: LeaseGrantResponse = caller.call(GRANT, &question).await?;
    if answer.id == 0 {
        return Err(CallError { failure: Failure::Other, text: answer.error });
    }
    Ok(EtcdLease { id: answer.id, until: now.saturating_add_ns(seconds.saturating_mul(NS_PER_S)) })
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("settings", &self.settings).field("node", &self.node).finish_non_exhaustive()
    }
}
