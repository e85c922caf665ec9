//! One store, as all workers share it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;
use tokio_rustls::rustls::ClientConfig;

use super::call::Late;
use super::connection::Connector;
use super::flights::Flights;
use super::node::{Common, Node};
use super::receipt::RedisReceipt;
use super::script::{Caller, Names, decided};
use super::settings::{StoreSettings, Topology};
use super::topology::Nodes;
use super::view::View;
use crate::base::telemetry::Metrics;
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::{
    Handling, Outbox, RemoteCharge, RemoteReceipt, Report, Settlement, StoreContext, Units, random_id,
};

/// Units in flight count for this long unless their replica renews them.
const FLIGHT: Duration = Duration::from_secs(10);

/// Late replies that are awaited at once. The charges of further ones stay.
const LATE_MAX: usize = 4096;

/// One `[store.NAME]`.
pub struct Store {
    settings: StoreSettings,
    pub(super) common: Arc<Common>,
    /// For sentinels, which have a login of their own.
    pub(super) sentinels: Connector,
    nodes: ArcSwap<Nodes>,
    /// The connections of the control runtime; `None` until it runs.
    pub(super) background: ArcSwapOption<View>,
    /// Whether no node of a cluster tells its slots.
    pub(super) is_lost: AtomicBool,
    /// Notified when the nodes should be looked for again.
    pub(super) lost: Notify,
    /// Notified when the nodes have changed.
    pub(super) found: Notify,
    pub(super) names: Names,
    pub(super) caller: Caller,
    pub(super) outbox: Outbox<RedisReceipt>,
    pub(super) flights: Flights,
    /// The number of the last correction.
    corrections: AtomicU64,
    replicas: AtomicU64,
    late: AtomicUsize,
}

impl Store {
    /// The store with these settings. `tls` is what `net` makes of `settings.tls`.
    pub fn new(settings: StoreSettings, tls: Option<Arc<ClientConfig>>, clock: Clock, metrics: &Metrics) -> Arc<Self> {
        let replica = random_id();
        let client_name: Arc<str> = format!("weir-{replica:x}").into();
        let login = match &settings.topology {
            Topology::Sentinel { login, .. } => login,
            Topology::Ring(_) | Topology::Cluster(_) => &settings.login,
        };
        let sentinels = Connector::new(login, tls.clone(), Arc::clone(&client_name));
        let metrics = metrics.store(&settings.name);
        let outbox = Outbox::new(metrics.dropped.clone());
        let on_failure = (settings.on_failure, settings.timeout);
        let context = StoreContext::new(&settings.name, on_failure, clock, metrics);
        let common = Arc::new(Common { context, connector: Connector::new(&settings.login, tls, client_name) });
        Arc::new(Self {
            nodes: ArcSwap::from_pointee(Nodes::first(&settings.topology, &common)),
            background: ArcSwapOption::empty(),
            sentinels,
            is_lost: AtomicBool::new(false),
            lost: Notify::new(),
            found: Notify::new(),
            names: Names::new(&settings.prefix),
            caller: Caller { replica, flight: FLIGHT, server_us: None },
            outbox,
            flights: Flights::default(),
            corrections: AtomicU64::new(0),
            replicas: AtomicU64::new(1),
            late: AtomicUsize::new(0),
            settings,
            common,
        })
    }

    /// The settings that it was made from.
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// Sets the number of replicas that a node without keys waits for.
    pub fn set_replicas(&self, replicas: u64) {
        self.replicas.store(replicas.max(1), Ordering::Relaxed);
    }

    pub(super) fn replicas(&self) -> u64 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// Gives a charge back, soon. Never waits.
    pub fn give_back(&self, receipt: RemoteReceipt) {
        let Some(receipt) = receipt.into_redis() else { return };
        self.flights.ended(&receipt);
        self.outbox.give_back(receipt, self.common.clock.now());
    }

    /// Gives back a charge of a call that had no answer in time. No mirror was told of it.
    pub(super) fn give_back_late(&self, receipt: RedisReceipt) {
        self.outbox.give_back(receipt, Timestamp::ZERO);
    }

    /// Charges `extra` units, or gives them back if they are negative, soon. At most `max_debt` units are charged beyond the
    /// limit. Never waits.
    pub fn settle(&self, limit: &str, key: Key, rule: &Algorithm, extra: i64, max_debt: u64) {
        if extra != 0 {
            self.outbox.settle(Settlement::new(limit, key, rule, (extra, max_debt), self.common.clock.now()));
        }
    }

    /// Lets the server keep the state of a charge under the rule of the charge, soon. A charge that is not made leaves the
    /// state under its old rule, at whose rate units would come back until the next charge.
    pub(super) fn adopt(&self, charge: &RemoteCharge<'_>) {
        let RemoteCharge { limit, key, rule, .. } = *charge;
        self.outbox.settle(Settlement::new(limit, key, rule, (0, 0), self.common.clock.now()));
    }

    /// The labels that nodes of the store may have in metrics.
    pub(in crate::engine::store) fn labels(&self) -> Vec<String> {
        let seeds = self.settings.topology.nodes().iter().map(ToString::to_string);
        self.nodes().all.iter().map(|node| node.label.to_string()).chain(seeds).collect()
    }

    /// Whether a node has this label.
    pub(in crate::engine::store) fn has_node(&self, label: &str) -> bool {
        self.nodes().all.iter().any(|node| *node.label == *label)
    }

    pub(in crate::engine::store) fn context(&self) -> &StoreContext {
        &self.common.context
    }

    /// Waits until every refund and settlement was sent, as far as nodes answer.
    pub async fn flushed(&self) {
        while self.outbox.len() > self.outbox.parked() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn nodes(&self) -> Arc<Nodes> {
        self.nodes.load_full()
    }

    /// Puts other nodes into force.
    pub(super) fn replace_nodes(&self, nodes: Nodes) {
        self.nodes.store(Arc::new(nodes));
        self.found.notify_one();
    }

    /// A node is no node of the store any more.
    pub(super) fn forget(&self, node: &Node) {
        self.common.metrics.remove_node(&node.label);
        let Ok(mut unanswered) = node.unanswered.try_lock() else { return };
        for batch in unanswered.drain(..) {
            // Another node may have made the corrections already. Charging twice admits no more, giving back twice does.
            let (settled, given): (Vec<_>, Vec<_>) = batch.reports.into_iter().partition(Report::is_charge);
            self.outbox.sent(given.len());
            self.outbox.park(settled);
        }
    }

    /// A number that is larger by `count` than that of the correction before.
    pub(super) fn number_corrections(&self, count: usize) -> u64 {
        self.corrections.fetch_add(count as u64, Ordering::Relaxed)
    }

    /// Makes the receiver of a late reply to `charges`, which gives back what they charge. `None` if there are too many.
    pub(super) fn late(self: &Arc<Self>, charges: &[RemoteCharge<'_>]) -> Option<Late> {
        let ticket = LateTicket::new(Arc::clone(self))?;
        let charges: Vec<LateCharge> = charges.iter().map(LateCharge::new).collect();
        Some(Box::new(move |reply| {
            let store = &ticket.0;
            let charges: Vec<RemoteCharge<'_>> = charges.iter().map(LateCharge::charge).collect();
            let decided = decided(&store.names, &store.caller, &charges, &reply, store.common.clock.now());
            for outcome in decided.into_iter().flat_map(|decided| decided.outcomes) {
                if let Some(receipt) = outcome.receipt.and_then(RemoteReceipt::into_redis) {
                    store.give_back_late(receipt);
                }
            }
        }))
    }
}

/// A late reply that is awaited.
struct LateTicket(Arc<Store>);

impl LateTicket {
    fn new(store: Arc<Store>) -> Option<Self> {
        let before = store.late.fetch_add(1, Ordering::Relaxed);
        let ticket = Self(store);
        (before < LATE_MAX).then_some(ticket)
    }
}

impl Drop for LateTicket {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A charge that outlives its request.
struct LateCharge {
    limit: Box<str>,
    key: Key,
    rule: Algorithm,
    units: Units,
    handling: Handling,
}

impl LateCharge {
    fn new(charge: &RemoteCharge<'_>) -> Self {
        let &RemoteCharge { limit, key, rule, units, handling } = charge;
        Self { limit: limit.into(), key, rule: rule.clone(), units, handling }
    }

    fn charge(&self) -> RemoteCharge<'_> {
        let Self { limit, key, rule, units, handling } = self;
        RemoteCharge { limit, key: *key, rule, units: *units, handling: *handling }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("settings", &self.settings).field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}
