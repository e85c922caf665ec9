//! Whether one server of a store decides: its breaker, the generation of its keys, and what the metrics and the log say of
//! it.
//!
//! Not here: connections and probes (`redis`, `service`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::breaker::{Breaker, Weight};
use super::connect::ConnectError;
use super::late_refunds::LateRefunds;
use super::outage_log::OutageLog;
use super::settings::RemoteSettings;
use crate::base::telemetry::{Counter, Gauge, Metrics, StoreMetrics};
use crate::base::time::{Clock, Timestamp, instant_now};
use crate::engine::store::backend::{Failure, KeyServer, Unavailable};

/// What the log says of an outage.
const NO_ANSWER: &str = "a node of a store does not answer";

/// What all servers of a store share.
pub(in crate::fleet::stores) struct StoreContext {
    pub(in crate::fleet::stores) settings: RemoteSettings,
    pub(in crate::fleet::stores) clock: Clock,
    pub(in crate::fleet::stores) metrics: StoreMetrics,
    pub(in crate::fleet::stores) late_refunds: LateRefunds,
    /// The replicas that a server without keys waits for.
    pub(super) replicas: AtomicU64,
    /// Whether this process has states from other servers of the store.
    pub(super) brings_first: AtomicBool,
    /// The counters of [`Failure::ALL`].
    pub(in crate::fleet::stores) errors: [Counter; Failure::ALL.len()],
}

impl StoreContext {
    /// The context of the store with these settings. Its series begin.
    pub(in crate::fleet::stores) fn new(settings: RemoteSettings, clock: Clock, metrics: &Metrics) -> Arc<Self> {
        let metrics = metrics.store(&settings.name);
        let errors = Failure::ALL.map(|(_, label)| metrics.errors(label));
        let (late_refunds, replicas) = (LateRefunds::default(), AtomicU64::new(1));
        let brings_first = AtomicBool::new(false);
        Arc::new(Self { settings, clock, metrics, late_refunds, replicas, brings_first, errors })
    }

    /// Whether no server decides before it has the states of this process, whatever keys it has.
    pub(in crate::fleet::stores) fn brings_first(&self) -> bool {
        self.brings_first.load(Ordering::Relaxed)
    }

    /// Counts the time of a call that began at `begun`.
    pub(in crate::fleet::stores) fn observe(&self, begun: Instant) {
        self.metrics.duration.observe(instant_now().saturating_duration_since(begun));
    }
}

/// The keys of a server, from one loss of all keys to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// A number above 0 that no other generation of the server has.
    pub number: u64,
    /// The key that shows it; empty if a server shows it without one.
    pub marker: Box<str>,
}

impl Generation {
    /// A generation without a marker.
    pub(in crate::fleet::stores) fn of(number: u64) -> Self {
        Self { number, marker: "".into() }
    }
}

/// The health of one server.
pub(in crate::fleet::stores) struct Health {
    context: Arc<StoreContext>,
    /// Its name in metrics and logs.
    pub(in crate::fleet::stores) label: Arc<str>,
    /// Guards the state for the length of one change. Requests read `is_closed` instead.
    breaker: Mutex<Breaker>,
    is_closed: AtomicBool,
    /// The generation of the keys under which it decides; `None` while it is cold.
    generation: ArcSwapOption<Generation>,
    /// The last generation under which it decided; 0 if there was none.
    last_generation: AtomicU64,
    /// Guards the log of outages for the length of one change.
    outages: Mutex<OutageLog>,
    /// The times from a loss of the keys until the server decides again. Guarded for the length of one change.
    losses: Mutex<OutageLog>,
    /// Foreign values, each of which is an outage of one call. Guarded for the length of one change.
    foreign: Mutex<OutageLog>,
    /// Whether a success has to reset the breaker.
    has_failed: AtomicBool,
    /// Changes when its breaker closes, and when its address changes.
    news: watch::Sender<()>,
    /// Notified when the breaker opens, and when the server turns out to be cold.
    trouble: Notify,
    up: Option<Gauge>,
}

impl Health {
    /// A server that is believed to be up, and whose keys are unknown.
    pub(in crate::fleet::stores) fn new(context: Arc<StoreContext>, label: &str) -> Self {
        let up = context.metrics.up(label);
        if let Some(up) = &up {
            up.set(0);
        }
        Self {
            context,
            label: label.into(),
            breaker: Mutex::new(Breaker::new()),
            is_closed: AtomicBool::new(true),
            generation: ArcSwapOption::empty(),
            last_generation: AtomicU64::new(0),
            outages: Mutex::default(),
            losses: Mutex::default(),
            foreign: Mutex::default(),
            has_failed: AtomicBool::new(false),
            news: watch::channel(()).0,
            trouble: Notify::new(),
            up,
        }
    }

    /// Whether requests go to the server.
    pub(in crate::fleet::stores) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Whether requests are decided by the server: it answers, and it is not cold.
    pub(in crate::fleet::stores) fn decides(&self) -> bool {
        self.is_closed() && self.generation.load().is_some()
    }

    /// The server, and why it does not decide now.
    pub(in crate::fleet::stores) fn server(&self) -> KeyServer {
        let unavailable = match (self.is_closed(), self.decides()) {
            (false, _) => Some(Unavailable::Down),
            (true, false) => Some(Unavailable::Cold),
            (true, true) => None,
        };
        KeyServer { name: Arc::clone(&self.label), unavailable }
    }

    /// The generation under which the server decides; `None` while it is cold.
    pub(in crate::fleet::stores) fn generation(&self) -> Option<Arc<Generation>> {
        self.generation.load_full()
    }

    /// The last generation under which the server decided; 0 if there was none.
    pub(in crate::fleet::stores) fn last_generation(&self) -> u64 {
        self.last_generation.load(Ordering::Relaxed)
    }

    /// Lets the server decide under this generation.
    pub(in crate::fleet::stores) fn warmed(&self, generation: Generation) {
        self.last_generation.store(generation.number, Ordering::Relaxed);
        self.generation.store(Some(Arc::new(generation)));
        self.show();
        if self.losses().ended() {
            tracing::info!(
                store = %self.context.settings.name, node = %self.label,
                "a node of a store decides with new keys"
            );
        }
    }

    /// The server does not have the generation `number`, or not any more.
    pub(in crate::fleet::stores) fn is_cold(&self, number: u64) {
        let known = self.generation.load();
        if known.as_ref().is_some_and(|known| known.number == number) {
            self.generation.store(None);
            self.show();
            self.trouble.notify_one();
        }
    }

    /// The server has a generation that this process does not know. Logs it, unless it is the first one.
    pub(in crate::fleet::stores) fn lost_keys(&self) {
        if self.last_generation() == 0 || self.context.metrics.is_retired() {
            return;
        }
        let Some(skipped) = self.losses().began(self.context.clock.now()) else { return };
        tracing::warn!(
            store = %self.context.settings.name, node = %self.label,
            losses_not_logged = Some(skipped).filter(|skipped| *skipped > 0),
            "a node of a store has lost its keys; requests are decided without it"
        );
    }

    /// Shows in the metrics whether the server decides. The lock keeps an older answer from being the last one.
    fn show(&self) {
        let _breaker = self.breaker();
        if let Some(up) = self.up.as_ref().filter(|_| !self.context.metrics.is_retired()) {
            up.set(i64::from(self.decides()));
        }
    }

    /// The time after which a call has failed.
    pub(in crate::fleet::stores) fn timeout(&self) -> Duration {
        self.context.settings.timeout
    }

    /// The replicas that the server waits for while it has no keys.
    pub(in crate::fleet::stores) fn replicas(&self) -> u64 {
        self.context.replicas.load(Ordering::Relaxed)
    }

    /// Receives a message whenever the breaker closes or the address changes.
    pub(in crate::fleet::stores) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The address has changed, or connections may not answer.
    pub(in crate::fleet::stores) fn moved(&self) {
        self.news.send_replace(());
    }

    /// Waits until the breaker opens or the server turns out to be cold.
    pub(in crate::fleet::stores) async fn trouble(&self) {
        self.trouble.notified().await;
    }

    /// A call succeeded.
    pub(in crate::fleet::stores) fn succeeded(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            self.has_failed.store(false, Ordering::Relaxed);
            self.breaker().succeeded();
        }
    }

    /// Counts a call that failed.
    pub(in crate::fleet::stores) fn call_failed(&self, failure: Failure, text: &str) {
        self.fail(failure, failure.weight(), text);
        if failure == Failure::Value && self.is_foreign_logged(self.context.clock.now()) {
            self.log_outage(Some(0), failure, text, "a key of a store has a foreign value");
        }
    }

    /// Whether a foreign value that is found at `now` gets a line.
    fn is_foreign_logged(&self, now: Timestamp) -> bool {
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.began(now);
        foreign.ended()
    }

    /// Counts a connection that could not be opened.
    pub(in crate::fleet::stores) fn connection_failed(&self, error: &ConnectError) {
        // No call can succeed, unless the network breaks some connections only.
        let weight = if error.is_of_connection() { Weight::One } else { Weight::All };
        self.fail(error.failure, weight, &error.text);
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
        self.log_outage(skipped, failure, text, NO_ANSWER);
        self.trouble.notify_one();
    }

    /// Writes the line about an outage, if it gets one. `skipped` outages before it had none. A retired store decides
    /// nothing, so nothing is decided without it.
    fn log_outage(&self, skipped: Option<u64>, failure: Failure, text: &str, what: &str) {
        let Some(skipped) = skipped.filter(|_| !self.context.metrics.is_retired()) else { return };
        let RemoteSettings { name, on_failure, .. } = &self.context.settings;
        tracing::warn!(
            store = %name, node = %self.label, kind = failure.label(), error = text, on_failure = on_failure.word(),
            outages_not_logged = Some(skipped).filter(|skipped| *skipped > 0),
            "{what}; requests are decided without it"
        );
    }

    /// When to send the next probe; `None` if the breaker is closed.
    pub(in crate::fleet::stores) fn probe_at(&self) -> Option<Timestamp> {
        self.breaker().probe_at()
    }

    /// Sends the next probe at `at`. Closes the breaker if it succeeds.
    pub(in crate::fleet::stores) async fn probe(
        &self,
        at: Timestamp,
        probe: impl Future<Output = Result<(), ConnectError>>,
    ) {
        sleep_until(self.context.clock.instant(at)).await;
        self.breaker().probing();
        let probed = probe.await;
        if let Err(error) = &probed {
            let (store, node) = (&self.context.settings.name, &self.label);
            tracing::debug!(%store, %node, error = error.text, "a probe failed");
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
            return self.log_outage(skipped, error.failure, &error.text, NO_ANSWER);
        }
        let Some(open_ns) = closed else { return };
        self.has_failed.store(false, Ordering::Relaxed);
        self.is_closed.store(true, Ordering::Relaxed);
        let is_logged = self.outages().ended();
        drop(breaker);
        self.show();
        if is_logged {
            let after_ms = open_ns / 1_000_000;
            let (store, node) = (&self.context.settings.name, &self.label);
            tracing::info!(%store, %node, after_ms, "a node of a store answers again");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::store::backend::OnFailure;

    #[test]
    fn foreign_values_have_a_line_in_a_minute() {
        let context = StoreContext::of_test(OnFailure::Split, Duration::from_millis(10), Clock::start());
        let health = Health::new(context, "node");
        for (at_s, is_logged) in [(0, true), (0, false), (59, false), (60, true), (61, false), (3600, true)] {
            let now = Timestamp::from_ns((1_000_000 + at_s) * 1_000_000_000);
            assert_eq!(health.is_foreign_logged(now), is_logged, "{at_s}");
        }
    }
}
