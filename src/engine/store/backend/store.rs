//! A store that replicas share, as the engine knows it: whatever its kind, it decides charges and hears of corrections.
//!
//! Not here: the kinds of stores, their connections and their settings.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::charge::{Answers, KeyServer, OnFailure, RemoteCharge, Unavailable};
use super::failure::Failure;
use super::mirrors::Mirrors;
use super::parts::{Part, SendPart};
use super::receipt::RemoteReceipt;
use super::settlement::Settlement;
use crate::base::telemetry::{Metrics, StoreMetrics};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// Nanoseconds in which a refund reaches its store, if the store is up.
pub const REFUND_NS: u64 = 100_000_000;

/// A store of some kind, as all workers share it.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What it was made from.
    fn settings(&self) -> &dyn Any;

    /// Its name.
    fn name(&self) -> &Arc<str>;

    /// What decides while a server is down.
    fn on_failure(&self) -> OnFailure;

    /// The longest time for which a request waits for it.
    fn timeout(&self) -> Duration;

    /// Begins to connect. To be called on the runtime that decides.
    fn connect(self: Arc<Self>) -> Rc<dyn Connections>;

    /// Gives a charge back, soon. Never waits.
    fn give_back(&self, receipt: RemoteReceipt);

    /// Charges units, or gives them back, soon. Never waits.
    fn settle(&self, settlement: Settlement);

    /// Answers to questions that were asked earlier may lack a late refund.
    fn late_refund_at(&self) -> Timestamp;

    /// The server that has `key` of a limit; `None` if no server is known for it.
    fn server(&self, limit: &str, key: Key) -> Option<KeyServer>;

    /// Why servers do not decide a limit: one reason for each that is down, and one if some keys differ in those that are up.
    fn unavailable(&self, limit: &str) -> Vec<Unavailable>;

    /// Sets the number of replicas that a server without keys waits for.
    fn set_replicas(&self, _replicas: u64) {}

    /// Lets no server of Redis decide before it has the states of this process. To be called before it runs.
    fn bring_first(&self) {}

    /// Does the work of the store besides decisions, until dropped. To be run once.
    fn run(self: Arc<Self>, mirrors: Arc<dyn Mirrors>) -> SendPart<'static, ()>;

    /// Waits until every refund and settlement was sent, as far as servers answer.
    fn flushed(&self) -> SendPart<'_, ()>;

    /// The labels that its servers have in metrics, or may have had.
    fn labels(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a server has this label now.
    fn has_node(&self, label: &str) -> bool {
        self.labels().iter().any(|known| known == label)
    }

    /// The metrics of its servers.
    fn metrics(&self) -> &StoreMetrics;
}

/// The connections of one worker to the servers of a store.
pub trait Connections: fmt::Debug {
    /// Decides all charges of a request, each within the timeout of the store. What servers charge after the timeout, or
    /// after this was dropped, is given back. If one of several servers denies, the others may have charged: the caller
    /// gives that back by the receipts.
    fn decide<'a>(&'a self, charges: &'a [RemoteCharge<'a>]) -> Part<'a, Answers>;
}

/// A store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    backend: Arc<dyn Backend>,
    /// Counts the clones. The work of the store, and its connections, have the backend alone.
    clones: Arc<()>,
}

impl RemoteStore {
    /// A store of some kind.
    pub fn new(store: Arc<impl Backend>) -> Self {
        Self { backend: store, clones: Arc::default() }
    }

    /// Whether both are the same store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    /// Whether there is another clone: a limit, a worker, or the receipt of a request that runs.
    pub fn has_clones(&self) -> bool {
        Arc::strong_count(&self.clones) > 1
    }

    /// Begins to connect. To be called on the runtime that decides.
    pub fn connect(&self) -> Rc<dyn Connections> {
        Arc::clone(&self.backend).connect()
    }

    /// Does the work of the store besides decisions, until dropped. To be run once.
    pub fn run(&self, mirrors: Arc<dyn Mirrors>) -> SendPart<'static, ()> {
        Arc::clone(&self.backend).run(mirrors)
    }

    /// Removes the series of metrics that no store `in_force` has. From now on the store shows nothing.
    pub fn retire(&self, in_force: &[Self], metrics: &Metrics) {
        let namesakes = || in_force.iter().filter(|store| store.name() == self.name());
        let labels = self.labels();
        self.metrics().retire(labels.iter().filter(|label| !namesakes().any(|store| store.has_node(label))));
        if namesakes().next().is_none() {
            metrics.remove_store(self.name(), Failure::ALL.iter().map(|(_, label)| *label));
        }
    }
}

impl Deref for RemoteStore {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.backend
    }
}
