//! One store of Redis, as all workers share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;

use super::call::Late;
use super::connection::Connector;
use super::flights::Flights;
use super::node::{Common, Node};
use super::routes::{Routes, slot};
use super::script::{Caller, Names, decided};
use super::topology::{Map, Nodes};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::{Handling, RedisReceipt, RemoteCharge, RemoteReceipt, Settlement, Units};
use crate::fleet::stores::driver::{Kind, Login, Report, Shared, StoreContext, Topology, random_id};

/// Units in flight count for this long unless their replica renews them.
const FLIGHT: Duration = Duration::from_secs(10);

/// Late replies that are awaited at once. The charges of further ones stay.
const LATE_MAX: usize = 4096;

/// One `[store.NAME]` with `redis`.
pub(in crate::fleet::stores) type Store = Shared<Redis>;

/// What a store of Redis has besides the driver.
pub(in crate::fleet::stores) struct Redis {
    pub(super) topology: Topology,
    pub(super) common: Arc<Common>,
    /// For sentinels, which have a login of their own.
    pub(super) sentinels: Connector,
    /// Whether no node of a cluster tells its slots.
    pub(super) is_lost: AtomicBool,
    pub(super) names: Names,
    pub(super) caller: Caller,
    pub(super) flights: Flights,
    /// The number of the last correction.
    corrections: AtomicU64,
    late: AtomicUsize,
}

impl Store {
    /// The store with these servers.
    pub(in crate::fleet::stores) fn new(
        context: Arc<StoreContext>,
        tls: Option<Arc<ClientConfig>>,
        topology: Topology,
        login: &Login,
        prefix: &str,
    ) -> Arc<Self> {
        let replica = random_id();
        let client_name: Arc<str> = format!("weir-{replica:x}").into();
        let of_sentinels = match &topology {
            Topology::Sentinel { login, .. } => login,
            Topology::Ring(_) | Topology::Cluster(_) => login,
        };
        let sentinels = Connector::new(of_sentinels, tls.clone(), Arc::clone(&client_name));
        let connector = Connector::new(login, tls, client_name);
        let common =
            Arc::new(Common { replica: format!("{replica:x}").into(), context: Arc::clone(&context), connector });
        let nodes = Nodes::first(&topology, &common);
        let redis = Redis {
            topology,
            common,
            sentinels,
            is_lost: AtomicBool::new(false),
            names: Names::new(prefix),
            caller: Caller { replica, flight: FLIGHT, server_us: None },
            flights: Flights::default(),
            corrections: AtomicU64::new(0),
            late: AtomicUsize::new(0),
        };
        Self::of_kind(redis, context, nodes)
    }

    /// Gives back a charge of a call that had no answer in time. No mirror was told of it.
    pub(super) fn give_back_late(&self, receipt: RedisReceipt) {
        self.outbox.give_back(receipt, Timestamp::ZERO);
    }

    /// Lets the server keep the state of a charge under the rule of the charge, soon. A charge that is not made leaves the
    /// state under its old rule, at whose rate units would come back until the next charge.
    pub(super) fn adopt(&self, charge: &RemoteCharge<'_>) {
        let RemoteCharge { limit, key, rule, .. } = *charge;
        self.outbox.settle(Settlement::new(limit, key, rule, (0, 0), self.context.clock.now()));
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
            let answers = decided(&store.names, &store.caller, &charges, &reply, store.context.clock.now());
            for outcome in answers.into_iter().flat_map(|answers| answers.outcomes).flatten() {
                if let Some(receipt) = outcome.receipt.and_then(RemoteReceipt::into_redis) {
                    store.give_back_late(receipt);
                }
            }
        }))
    }
}

impl Kind for Redis {
    type Node = Node;
    type Map = Map;
    type Refund = RedisReceipt;
    type Session = ();

    fn node_of_key(&self, nodes: &Nodes, limit: &str, key: Key) -> Option<usize> {
        nodes.node_of(&self.names.of_key(limit, key))
    }

    fn node_of_report(&self, nodes: &Nodes, report: &Report<RedisReceipt>) -> Option<usize> {
        match report {
            Report::GiveBack(receipt, _) => nodes.node_of(&receipt.store_key),
            Report::Settle(settlement) => self.node_of_key(nodes, &settlement.limit, settlement.key),
        }
    }

    fn call_of(&self, nodes: &Nodes, charge: &RemoteCharge<'_>, _: usize) -> (Option<usize>, usize) {
        let routes = &nodes.map.routes;
        let slot = match routes {
            Routes::Slots(_) => slot(self.names.of_key(charge.limit, charge.key).as_bytes()),
            Routes::One | Routes::Ring(_) => 0,
        };
        (routes.node(charge.key, slot), slot.into())
    }

    fn seeds(&self) -> Vec<String> {
        self.topology.nodes().iter().map(ToString::to_string).collect()
    }

    fn refund(&self, receipt: RemoteReceipt) -> Option<RedisReceipt> {
        let receipt = receipt.into_redis()?;
        self.flights.ended(&receipt);
        Some(receipt)
    }

    fn settled(&self, settlement: &Settlement) {
        let Settlement { limit, key, rule, .. } = settlement;
        if rule.is_released() {
            self.flights.settled(&self.names.of_key(limit, *key), rule, settlement.units());
        }
    }

    fn forget(store: &Store, node: &Node) {
        let Ok(mut unanswered) = node.unanswered.try_lock() else { return };
        for batch in unanswered.drain(..) {
            // Another node may have made the corrections already. Charging twice admits no more, giving back twice does.
            let (settled, given): (Vec<_>, Vec<_>) = batch.reports.into_iter().partition(Report::is_charge);
            store.outbox.sent(given.len());
            store.outbox.park(settled);
        }
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
        let &RemoteCharge { limit, key, rule, units, handling, .. } = charge;
        Self { limit: limit.into(), key, rule: rule.clone(), units, handling }
    }

    fn charge(&self) -> RemoteCharge<'_> {
        let Self { limit, key, rule, units, handling } = self;
        RemoteCharge { limit, key: *key, rule, units: *units, handling: *handling, asked_again_until: None }
    }
}
