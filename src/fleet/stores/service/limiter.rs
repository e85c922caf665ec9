//! One store that is the limiter service of another Weir, as all workers share it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_rustls::rustls::ClientConfig;

use super::message::CallOfCharges;
use super::node::Node;
use super::refund::Refund;
use super::undecided::UndecidedLimits;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::backend::{CallId, Failure, RemoteReceipt};
use crate::fleet::stores::driver::turn::Turn;
use crate::fleet::stores::driver::{Batch, Kind, Nodes, Server as _, Shared, StoreContext, random_id};

/// One `[store.NAME]` with `service`.
pub(in crate::fleet::stores) type Limiter = Shared<Service>;

/// What a store of a limiter has besides the driver.
pub(in crate::fleet::stores) struct Service {
    pub(super) node: Arc<Node>,
    /// Reports that were sent without an answer, by the one task that sends.
    pub(super) unanswered: tokio::sync::Mutex<VecDeque<Batch<Refund>>>,
    /// The number of the last batch.
    batches: AtomicU64,
    pub(super) undecided: UndecidedLimits,
}

impl Kind for Service {
    type Node = Node;
    type Map = ();
    type Refund = Refund;
    type Session = Session;

    fn refund(&self, receipt: RemoteReceipt) -> Option<Refund> {
        let RemoteReceipt::Limiter(receipt) = receipt else { return None };
        Some(Refund::Charge(*receipt))
    }

    fn undecided(&self, limit: &str, key: Option<Key>, now: Timestamp) -> Option<Failure> {
        self.undecided.failure(limit, key, now)
    }
}

impl Limiter {
    /// The store with the limiter at this host and port. `proof` shows that the secret is known.
    pub(in crate::fleet::stores) fn new(
        context: Arc<StoreContext>,
        tls: Option<Arc<ClientConfig>>,
        address: (Box<str>, u16),
        proof: Key,
    ) -> Arc<Self> {
        let node = Node::new(Arc::clone(&context), address, tls, (proof, random_id()));
        let service = Service {
            node: Arc::clone(&node),
            unanswered: tokio::sync::Mutex::default(),
            batches: AtomicU64::new(0),
            undecided: UndecidedLimits::default(),
        };
        Self::of_kind(service, context, Nodes { all: vec![node], map: () })
    }

    /// Gives back what a call charged whose answer is not known, or what it will charge. No mirror was told of it.
    pub(super) fn give_back_call(&self, call: CallId) {
        self.outbox.give_back(Refund::Call(call), Timestamp::ZERO);
    }

    pub(super) fn next_batch(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a charge to `key` that the limiter does not decide, because it has another configuration, and writes a line
    /// about it.
    pub(super) fn differs(&self, limit: &str, key: Key, failure: Failure) {
        let text = match failure {
            Failure::Limit => "the limiter has no limit of this name with a state of its own",
            _ => "the limiter has another rule for the key, or another plan or override",
        };
        self.node.failed(failure, text);
        if self.undecided.add(limit, key, failure, self.context.clock.now()) {
            let (node, on_failure) = (&self.node.label, self.context.settings.on_failure.word());
            tracing::warn!(
                store = %self.context.settings.name, %node, limit, kind = failure.label(), error = text, on_failure,
                "the limiter does not decide a limit; requests are decided without it"
            );
        }
    }
}

/// The calls of one worker.
pub(in crate::fleet::stores) struct Session {
    id: u64,
    /// The number of the last call.
    calls: Cell<u64>,
    pub(super) turn: Turn<CallOfCharges>,
}

impl Default for Session {
    fn default() -> Self {
        Self { id: random_id(), calls: Cell::new(0), turn: Turn::default() }
    }
}

impl Session {
    /// The next call of `process`, at `at`.
    pub(super) fn next_call(&self, process: u64, at: Timestamp) -> CallId {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        CallId { process, session: self.id, number, at }
    }
}
