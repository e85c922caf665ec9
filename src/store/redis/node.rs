//! One node of a store, as all workers share it: its address, its breaker, and the generation of its keys.
//!
//! Not here: connections to it (`link`), and probes (`monitor`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::breaker::Breaker;
use super::connection::{CONNECT_MAX, ConnectError, Connector, Opened};
use super::failure::{Failure, Weight};
use super::generation::Generation;
use super::outage_log::OutageLog;
use super::outbox::Batch;
use super::settings::{NodeAddress, OnFailure};
use crate::telemetry::{Counter, Gauge, StoreMetrics};
use crate::time::{Clock, Timestamp};

/// What all nodes of a store share.
pub(super) struct Common {
    pub(super) name: Arc<str>,
    pub(super) on_failure: OnFailure,
    pub(super) timeout: Duration,
    pub(super) clock: Clock,
    pub(super) connector: Connector,
    pub(super) metrics: StoreMetrics,
    /// The counters of [`Failure::ALL`].
    pub(super) errors: [Counter; Failure::ALL.len()],
}

/// One node.
pub(super) struct Node {
    common: Arc<Common>,
    /// Its name in metrics and logs.
    pub(super) label: Box<str>,
    address: Mutex<Option<NodeAddress>>,
    /// Guards the state for the length of one change. Requests read `is_closed` instead.
    breaker: Mutex<Breaker>,
    is_closed: AtomicBool,
    /// Guards the log of outages for the length of one change.
    outages: Mutex<OutageLog>,
    /// The times from a loss of the keys until the node decides again. Guarded for the length of one change.
    losses: Mutex<OutageLog>,
    /// Whether a success has to reset the breaker.
    has_failed: AtomicBool,
    /// The generation of the keys under which it decides; `None` if it does not decide yet.
    generation: ArcSwapOption<Generation>,
    /// The last generation under which it decided; 0 if there was none.
    last_generation: AtomicU64,
    /// Whether replies may have been lost with their charges.
    has_lost: AtomicBool,
    /// Reports that were sent without a reply, by the one task that sends.
    pub(super) unanswered: tokio::sync::Mutex<VecDeque<Batch>>,
    /// Changes when its breaker closes, and when its address changes.
    news: watch::Sender<()>,
    /// Notified when the breaker opens, and when the node turns out to be cold.
    trouble: Notify,
    up: Gauge,
}

impl Node {
    /// A node that is believed to be up, and whose keys are unknown.
    pub(super) fn new(common: Arc<Common>, label: &str, address: Option<NodeAddress>) -> Arc<Self> {
        let up = common.metrics.up(label);
        up.set(0);
        Arc::new(Self {
            common,
            label: label.into(),
            address: Mutex::new(address),
            breaker: Mutex::new(Breaker::new()),
            is_closed: AtomicBool::new(true),
            outages: Mutex::default(),
            losses: Mutex::default(),
            has_failed: AtomicBool::new(false),
            generation: ArcSwapOption::empty(),
            last_generation: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            unanswered: tokio::sync::Mutex::default(),
            news: watch::channel(()).0,
            trouble: Notify::new(),
            up,
        })
    }

    /// Whether requests go to the node.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The generation under which the node decides; `None` while it is cold.
    pub(super) fn generation(&self) -> Option<Arc<Generation>> {
        self.generation.load_full()
    }

    /// Lets the node decide under this generation.
    pub(super) fn warmed(&self, generation: Generation) {
        self.last_generation.store(generation.begun_us, Ordering::Relaxed);
        self.generation.store(Some(Arc::new(generation)));
        self.show();
        if self.losses().ended() {
            tracing::info!(store = %self.common.name, node = %self.label, "a node of a store decides with new keys");
        }
    }

    /// The node has a generation that this process does not know. Logs it, unless it is the first one.
    pub(super) fn lost_keys(&self) {
        if self.last_generation() == 0 {
            return;
        }
        let Some(skipped) = self.losses().began(self.common.clock.now()) else { return };
        tracing::warn!(
            store = %self.common.name, node = %self.label, losses_not_logged = Some(skipped).filter(|skipped| *skipped > 0),
            "a node of a store has lost its keys; requests are decided without it"
        );
    }

    /// The last generation under which the node decided; 0 if there was none.
    pub(super) fn last_generation(&self) -> u64 {
        self.last_generation.load(Ordering::Relaxed)
    }

    /// The node answered that `begun_us` is not the generation of its keys.
    pub(super) fn is_cold(&self, begun_us: u64) {
        let known = self.generation.load();
        if known.as_ref().is_some_and(|known| known.begun_us == begun_us) {
            self.generation.store(None);
            self.show();
            self.trouble.notify_one();
        }
    }

    /// Whether requests are decided by the node: it answers, and it is not cold.
    pub(super) fn decides(&self) -> bool {
        self.is_closed() && self.generation.load().is_some()
    }

    /// Shows in the metrics whether the node decides. The lock keeps an older answer from being the last one.
    fn show(&self) {
        let _breaker = self.breaker();
        self.up.set(i64::from(self.decides()));
    }

    /// Whether replies may have been lost since the last call.
    pub(super) fn take_lost(&self) -> bool {
        self.has_lost.swap(false, Ordering::Relaxed)
    }

    /// The time after which a call has failed.
    pub(super) fn timeout(&self) -> Duration {
        self.common.timeout
    }

    /// The address; `None` if it is not known yet.
    pub(super) fn address(&self) -> Option<NodeAddress> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows the node to another address. Returns whether it is another one.
    pub(super) fn move_to(&self, address: &NodeAddress) -> bool {
        let mut known = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.as_ref() != Some(address);
        *known = Some(address.clone());
        drop(known);
        if is_new {
            self.news.send_replace(());
        }
        is_new
    }

    /// Opens a connection, once the address is known.
    pub(super) async fn open(&self) -> Result<Opened, ConnectError> {
        let mut news = self.news();
        if self.address().is_none() {
            let _ = timeout(CONNECT_MAX, news.changed()).await;
        }
        let address = self.address().ok_or_else(ConnectError::no_address)?;
        let opened = timeout(CONNECT_MAX, self.common.connector.open(&address)).await;
        opened.unwrap_or_else(|_| Err(ConnectError::timeout()))
    }

    /// Receives a message whenever the breaker closes or the address changes.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Waits until the breaker opens or the node turns out to be cold.
    pub(super) async fn trouble(&self) {
        self.trouble.notified().await;
    }

    /// A call succeeded.
    pub(super) fn succeeded(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            self.has_failed.store(false, Ordering::Relaxed);
            self.breaker().succeeded();
        }
    }

    /// A call failed.
    pub(super) fn failed(&self, failure: Failure, text: &str) {
        self.fail(failure, failure.weight(), text);
    }

    /// No connection could be opened. So no call can succeed.
    pub(super) fn unreachable(&self, error: &ConnectError) {
        self.fail(error.failure, Weight::All, &error.text);
    }

    fn fail(&self, failure: Failure, weight: Weight, text: &str) {
        self.common.errors[failure as usize].inc();
        self.has_failed.store(true, Ordering::Relaxed);
        if matches!(failure, Failure::Timeout | Failure::Connection) {
            self.has_lost.store(true, Ordering::Relaxed);
        }
        let (mut breaker, now) = (self.breaker(), self.common.clock.now());
        if !breaker.failed(weight, now) {
            return;
        }
        self.is_closed.store(false, Ordering::Relaxed);
        let skipped = self.outages().began(now);
        drop(breaker);
        self.show();
        self.log_outage(skipped, failure, text);
        self.trouble.notify_one();
    }

    /// Writes the line about an outage, if it gets one. `skipped` outages before it had none.
    fn log_outage(&self, skipped: Option<u64>, failure: Failure, text: &str) {
        let Some(skipped) = skipped else { return };
        let Common { name, on_failure, .. } = &*self.common;
        tracing::warn!(
            store = %name, node = %self.label, kind = failure.label(), error = text, on_failure = on_failure.word(),
            outages_not_logged = Some(skipped).filter(|skipped| *skipped > 0),
            "a node of a store does not answer; requests are decided without it"
        );
    }

    /// When to send the next probe; `None` if the breaker is closed.
    pub(super) fn probe_at(&self) -> Option<Timestamp> {
        self.breaker().probe_at()
    }

    /// A probe is sent.
    pub(super) fn probing(&self) {
        self.breaker().probing();
    }

    /// A probe got its answer, or failed with an error.
    pub(super) fn probed(&self, error: Option<&ConnectError>) {
        let (mut breaker, now) = (self.breaker(), self.common.clock.now());
        let closed = breaker.probed(error.is_none(), now);
        if let Some(error) = error {
            let skipped = self.outages().goes_on(now);
            drop(breaker);
            return self.log_outage(skipped, error.failure, &error.text);
        }
        let Some(open_ns) = closed else { return };
        self.has_failed.store(false, Ordering::Relaxed);
        self.is_closed.store(true, Ordering::Relaxed);
        let is_logged = self.outages().ended();
        drop(breaker);
        self.show();
        if is_logged {
            let after_ms = open_ns / 1_000_000;
            tracing::info!(store = %self.common.name, node = %self.label, after_ms, "a node of a store answers again");
        }
        self.news.send_replace(());
    }

    fn losses(&self) -> MutexGuard<'_, OutageLog> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outages(&self) -> MutexGuard<'_, OutageLog> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("label", &self.label).field("breaker", &self.breaker()).finish_non_exhaustive()
    }
}
