//! One store that is the limiter service of another Weir, as all workers share it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio_rustls::rustls::ClientConfig;

use super::node::Node;
use super::receipt::{CallId, Refund};
use super::settings::LimiterSettings;
use crate::base::telemetry::Metrics;
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::{
    Batch, Failure, Health, Link, Outbox, RemoteReceipt, Settlement, StoreContext, random_id,
};

/// The shortest time from one line about a limit that the limiter does not decide to the next.
const LINE_PAUSE_NS: u64 = 60_000_000_000;

/// One `[store.NAME]` with `service`.
pub struct Limiter {
    settings: LimiterSettings,
    pub(super) context: Arc<StoreContext>,
    pub(super) node: Arc<Node>,
    /// The connection of the control runtime; `None` until it runs.
    pub(super) background: ArcSwapOption<Link<Node>>,
    pub(super) outbox: Outbox<Refund>,
    /// Reports that were sent without an answer, by the one task that sends.
    pub(super) unanswered: tokio::sync::Mutex<VecDeque<Batch<Refund>>>,
    /// The number of the last batch.
    batches: AtomicU64,
    /// When the last line about each limit was written that the limiter does not decide. Held for one look.
    logged: Mutex<HashMap<Box<str>, Timestamp>>,
}

impl Limiter {
    /// The store with these settings. `tls` is what `net` makes of `settings.tls`. `proof` shows that the secret is known.
    pub fn new(
        settings: LimiterSettings,
        tls: Option<Arc<ClientConfig>>,
        proof: Key,
        clock: Clock,
        metrics: &Metrics,
    ) -> Arc<Self> {
        let metrics = metrics.store(&settings.name);
        let outbox = Outbox::new(metrics.dropped.clone());
        let on_failure = (settings.on_failure, settings.timeout);
        let context = StoreContext::new(&settings.name, on_failure, clock, metrics);
        Arc::new(Self {
            node: Node::new(Arc::clone(&context), (&settings.host, settings.port), tls, (proof, random_id())),
            context,
            background: ArcSwapOption::empty(),
            outbox,
            unanswered: tokio::sync::Mutex::default(),
            batches: AtomicU64::new(0),
            logged: Mutex::default(),
            settings,
        })
    }

    /// The settings that it was made from.
    pub fn settings(&self) -> &LimiterSettings {
        &self.settings
    }

    /// Sets the number of replicas that a limiter without states waits for.
    pub fn set_replicas(&self, replicas: u64) {
        self.node.set_replicas(replicas);
    }

    /// Gives a charge back, soon. Never waits.
    pub fn give_back(&self, receipt: RemoteReceipt) {
        if let RemoteReceipt::Limiter(receipt) = receipt {
            self.outbox.give_back(Refund::Charge(*receipt), self.context.clock.now());
        }
    }

    /// Gives back what a call charged whose answer is not known, or what it will charge. No mirror was told of it.
    pub(super) fn give_back_call(&self, call: CallId) {
        self.outbox.give_back(Refund::Call(call), Timestamp::ZERO);
    }

    /// Charges `extra` units, or gives them back if they are negative, soon. At most `max_debt` units are charged beyond the
    /// limit. Never waits.
    pub fn settle(&self, limit: &str, key: Key, rule: &Algorithm, extra: i64, max_debt: u64) {
        if extra != 0 {
            self.outbox.settle(Settlement::new(limit, key, rule, (extra, max_debt), self.context.clock.now()));
        }
    }

    /// Waits until every refund and settlement was sent, as far as the limiter answers.
    pub async fn flushed(&self) {
        while self.outbox.len() > self.outbox.parked() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(in crate::engine::store) fn health(&self) -> &Health {
        &self.node
    }

    pub(in crate::engine::store) fn context(&self) -> &StoreContext {
        &self.context
    }

    pub(super) fn next_batch(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a charge that the limiter does not decide, because it has another configuration, and writes a line about it.
    pub(super) fn differs(&self, limit: &str, failure: Failure) {
        let text = match failure {
            Failure::Limit => "the limiter has no limit of this name with a state of its own",
            _ => "the limiter has another rule for the key, or another plan or override",
        };
        self.node.failed(failure, text);
        let now = self.context.clock.now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.get(limit).is_none_or(|at| now.ns_since(*at) >= LINE_PAUSE_NS);
        if is_due {
            logged.insert(limit.into(), now);
            drop(logged);
            let (node, on_failure) = (&self.node.label, self.context.on_failure.word());
            tracing::warn!(
                store = %self.context.name, %node, limit, kind = failure.label(), error = text, on_failure,
                "the limiter does not decide a limit; requests are decided without it"
            );
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("settings", &self.settings).field("node", &self.node).finish_non_exhaustive()
    }
}
