//! One store that is an etcd, as all workers share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::rustls::ClientConfig;

use super::GRANT;
use super::clock::SharedClock;
use super::ledger::Ledger;
use super::node::Node;
use super::proto::etcdserverpb::{LeaseGrantRequest, LeaseGrantResponse};
use super::step::Step;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, AnyState};
use crate::engine::store::backend::{EtcdReceipt, Failure, RemoteCharge, RemoteReceipt};
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::turn::Turn;
use crate::fleet::stores::driver::{Kind, Login, NodeAddress, Nodes, Shared, StoreContext, random_id};

const NS_PER_S: u64 = 1_000_000_000;

/// How far the shared time may move forward while a counter is attached to its lease, in seconds.
const SKEW_S: u64 = 60;

/// A lease of etcd.
#[derive(Clone, Copy, Debug)]
pub(super) struct EtcdLease {
    pub(super) id: i64,
    /// It has not ended before this shared time.
    pub(super) until: Timestamp,
}

/// etcd keeps its data, so its keys have one generation. Without a lease, this process does not know one.
pub(super) const GENERATION: u64 = 1;

/// One `[store.NAME]` with `etcd`.
pub(in crate::fleet::stores) type EtcdStore = Shared<Etcd>;

/// What a store of etcd has besides the driver.
pub(in crate::fleet::stores) struct Etcd {
    pub(super) node: Arc<Node>,
    /// The first part of every key.
    pub(super) prefix: Arc<str>,
    pub(super) ledger: Ledger,
    /// The time of loans and counters.
    pub(super) clock: SharedClock,
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

impl Kind for Etcd {
    type Node = Node;
    type Map = ();
    type Refund = EtcdReceipt;
    type Session = Turn<Step>;

    /// Each charge is a transaction.
    fn call_of(&self, _: &Nodes<Node, ()>, _: &RemoteCharge<'_>, position: usize) -> (Option<usize>, usize) {
        (Some(0), position)
    }

    fn refund(&self, receipt: RemoteReceipt) -> Option<EtcdReceipt> {
        let RemoteReceipt::Etcd(receipt) = receipt else { return None };
        Some(*receipt)
    }

    /// From now on, borrowed units count as spent at once.
    fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.ledger.added.notify_one();
    }

    fn is_settled(&self) -> bool {
        !self.node.decides() || self.ledger.is_empty()
    }
}

impl EtcdStore {
    /// The store with these members.
    pub(in crate::fleet::stores) fn new(
        context: Arc<StoreContext>,
        tls: Option<Arc<ClientConfig>>,
        servers: (Vec<NodeAddress>, Login),
        prefix: Arc<str>,
    ) -> Arc<Self> {
        let node = Node::new(Arc::clone(&context), tls, servers, &prefix);
        let etcd = Etcd {
            node: Arc::clone(&node),
            prefix,
            ledger: Ledger::default(),
            clock: SharedClock::default(),
            replica: random_id(),
            lease: Mutex::default(),
            counter_leases: tokio::sync::Mutex::default(),
            numbers: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
        };
        Self::of_kind(etcd, context, Nodes { all: vec![node], map: () })
    }

    /// The present that all replicas share.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.at(self.context.clock.now())
    }

    /// A state that holds at `now` of the shared time, with the instants of the clock of this process.
    pub(super) fn by_own_clock(&self, state: AnyState, rule: &Algorithm, now: Timestamp) -> AnyState {
        if self.clock.ahead_ns() == 0 {
            return state;
        }
        let mut numbers = state.export(rule, now).into_iter().flatten();
        AnyState::import(rule, &mut numbers, self.clock.own(now)).unwrap_or(state)
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
        if lease.is_none() {
            self.node.is_cold(GENERATION);
        }
    }

    /// No lease that this process knows is sure to exist.
    pub(super) async fn lost_leases(&self) {
        self.set_lease(None);
        self.counter_leases.lock().await.clear();
    }

    /// A lease for a counter that is needed until `needed`. A lease is used for about half of its time, so there are few.
    pub(super) async fn counter_lease(&self, caller: &Caller, needed: Timestamp) -> Result<i64, CallError> {
        let now = self.now();
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
