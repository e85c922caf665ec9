//! Whether one server of a store decides: its breaker, and what the metrics and the log say of it.
//!
//! Not here: connections and probes (`redis`, `service`).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::breaker::Breaker;
use super::charge::{KeyServer, Unavailable};
use super::connect::ConnectError;
use super::failure::{Failure, Weight};
use super::late_refunds::LateRefunds;
use super::outage_log::OutageLog;
use super::settings::OnFailure;
use crate::base::telemetry::{Counter, Gauge, StoreMetrics};
use crate::base::time::{Clock, Timestamp, instant_now};

/// What all servers of a store share.
pub(in crate::engine::store) struct StoreContext {
    pub(in crate::engine::store) name: Arc<str>,
    pub(in crate::engine::store) on_failure: OnFailure,
    pub(in crate::engine::store) timeout: Duration,
    pub(in crate::engine::store) clock: Clock,
    pub(in crate::engine::store) metrics: StoreMetrics,
    pub(in crate::engine::store) late_refunds: LateRefunds,
    /// The counters of [`Failure::ALL`].
    pub(in crate::engine::store) errors: [Counter; Failure::ALL.len()],
}

impl StoreContext {
    /// The context of the store `name`, whose metrics are `metrics`.
    pub(in crate::engine::store) fn new(
        name: &Arc<str>,
        (on_failure, timeout): (OnFailure, Duration),
        clock: Clock,
        metrics: StoreMetrics,
    ) -> Arc<Self> {
        let errors = Failure::ALL.map(|failure| metrics.errors(failure.label()));
        let late_refunds = LateRefunds::default();
        Arc::new(Self { name: Arc::clone(name), on_failure, timeout, clock, metrics, late_refunds, errors })
    }

    /// Counts the time of a call that began at `begun`.
    pub(in crate::engine::store) fn observe(&self, begun: Instant) {
        self.metrics.duration.observe(instant_now().saturating_duration_since(begun));
    }
}

/// The health of one server.
pub(in crate::engine::store) struct Health {
    context: Arc<StoreContext>,
    /// Its name in metrics and logs.
    pub(in crate::engine::store) label: Box<str>,
    /// Guards the state for the length of one change. Requests read `is_closed` instead.
    breaker: Mutex<Breaker>,
    is_closed: AtomicBool,
    /// Whether the server has its keys.
    is_warm: AtomicBool,
    /// Guards the log of outages for the length of one change.
    outages: Mutex<OutageLog>,
    /// The times from a loss of the keys until the server decides again. Guarded for the length of one change.
    losses: Mutex<OutageLog>,
    /// Whether a success has to reset the breaker.
    has_failed: AtomicBool,
    /// Changes when its breaker closes, and when its address changes.
    news: watch::Sender<()>,
    /// Notified when the breaker opens, and when the server turns out to be cold.
    trouble: Notify,
    up: Gauge,
}

impl Health {
    /// A server that is believed to be up, and whose keys are unknown.
    pub(in crate::engine::store) fn new(context: Arc<StoreContext>, label: &str) -> Self {
        let up = context.metrics.up(label);
        up.set(0);
        Self {
            context,
            label: label.into(),
            breaker: Mutex::new(Breaker::new()),
            is_closed: AtomicBool::new(true),
            is_warm: AtomicBool::new(false),
            outages: Mutex::default(),
            losses: Mutex::default(),
            has_failed: AtomicBool::new(false),
            news: watch::channel(()).0,
            trouble: Notify::new(),
            up,
        }
    }

    /// Whether requests go to the server.
    pub(in crate::engine::store) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Whether requests are decided by the server: it answers, and it is not cold.
    pub(in crate::engine::store) fn decides(&self) -> bool {
        self.is_closed() && self.is_warm.load(Ordering::Relaxed)
    }

    /// The server, and why it does not decide now.
    pub(in crate::engine::store) fn server(&self) -> KeyServer {
        let unavailable = match (self.is_closed(), self.decides()) {
            (false, _) => Some(Unavailable::Down),
            (true, false) => Some(Unavailable::Cold),
            (true, true) => None,
        };
        KeyServer { name: self.label.to_string(), unavailable }
    }

    /// The server has its keys now, or has lost them.
    pub(in crate::engine::store) fn set_warm(&self, is_warm: bool) {
        self.is_warm.store(is_warm, Ordering::Relaxed);
        self.show();
        if !is_warm {
            self.trouble.notify_one();
        } else if self.losses().ended() {
            tracing::info!(
                store = %self.context.name, node = %self.label,
                "a node of a store decides with new keys"
            );
        }
    }

    /// The server has other keys than those of which this process knows. Logs it.
    pub(in crate::engine::store) fn lost_keys(&self) {
        let Some(skipped) = self.losses().began(self.context.clock.now()) else { return };
        tracing::warn!(
            store = %self.context.name, node = %self.label, losses_not_logged = Some(skipped).filter(|skipped| *skipped > 0),
            "a node of a store has lost its keys; requests are decided without it"
        );
    }

    /// Shows in the metrics whether the server decides. The lock keeps an older answer from being the last one.
    fn show(&self) {
        let _breaker = self.breaker();
        self.up.set(i64::from(self.decides()));
    }

    /// The time after which a call has failed.
    pub(in crate::engine::store) fn timeout(&self) -> Duration {
        self.context.timeout
    }

    /// Receives a message whenever the breaker closes or the address changes.
    pub(in crate::engine::store) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The address has changed.
    pub(in crate::engine::store) fn moved(&self) {
        self.news.send_replace(());
    }

    /// Waits until the breaker opens or the server turns out to be cold.
    pub(in crate::engine::store) async fn trouble(&self) {
        self.trouble.notified().await;
    }

    /// A call succeeded.
    pub(in crate::engine::store) fn succeeded(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            self.has_failed.store(false, Ordering::Relaxed);
            self.breaker().succeeded();
        }
    }

    /// A call failed.
    pub(in crate::engine::store) fn failed(&self, failure: Failure, text: &str) {
        self.fail(failure, failure.weight(), text);
    }

    /// No connection could be opened. So no call can succeed.
    pub(in crate::engine::store) fn unreachable(&self, error: &ConnectError) {
        self.fail(error.failure, Weight::All, &error.text);
    }

    fn fail(&self, failure: Failure, weight: Weight, text: &str) {
        self.context.errors[failure as usize].inc();
        self.has_failed.store(true, Ordering::Relaxed);
        let (mut breaker, now) = (self.breaker(), self.context.clock.now());
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
        let StoreContext { name, on_failure, .. } = &*self.context;
        tracing::warn!(
            store = %name, node = %self.label, kind = failure.label(), error = text, on_failure = on_failure.word(),
            outages_not_logged = Some(skipped).filter(|skipped| *skipped > 0),
            "a node of a store does not answer; requests are decided without it"
        );
    }

    /// When to send the next probe; `None` if the breaker is closed.
    pub(in crate::engine::store) fn probe_at(&self) -> Option<Timestamp> {
        self.breaker().probe_at()
    }

    /// Sends the next probe at `at`. Closes the breaker if it succeeds.
    pub(in crate::engine::store) async fn probe(
        &self,
        at: Timestamp,
        probe: impl Future<Output = Result<(), ConnectError>>,
    ) {
        sleep_until(self.context.clock.instant(at)).await;
        self.breaker().probing();
        let probed = probe.await;
        if let Err(error) = &probed {
            tracing::debug!(store = %self.context.name, node = %self.label, error = error.text, "a probe failed");
        }
        self.probed(probed.as_ref().err());
    }

    /// A probe got its answer, or failed with an error.
    fn probed(&self, error: Option<&ConnectError>) {
        let (mut breaker, now) = (self.breaker(), self.context.clock.now());
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
            tracing::info!(store = %self.context.name, node = %self.label, after_ms, "a node of a store answers again");
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

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("label", &self.label).field("breaker", &self.breaker()).finish_non_exhaustive()
    }
}
