//! The running configuration, and the copy of it that each worker uses.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::settings::Settings;
use crate::base::telemetry::{AccessLog, AccessSettings, Metrics};
use crate::engine::gate::Live;
use crate::engine::store::RemoteStore;
use crate::transport::net::Timeouts;
use crate::transport::stale::AnswerCaches;
use crate::transport::upstream::settings::Upstream;
use crate::transport::upstream::{Ceiling, Endpoints, UpstreamState, WorkerResources};

/// The configuration that a reload replaces, for all workers at once.
#[derive(Debug)]
pub struct RunningConfig {
    /// The policy, and the state of its limits.
    pub live: Arc<Live>,
    /// Settings of the data path.
    pub settings: Settings,
    /// The requests to log.
    pub access_log: AccessSettings,
    /// Whether each request needs a record, for the log or for traces.
    pub(super) records_requests: bool,
    /// The stores of limits, in the order of the configuration.
    pub stores: Vec<RemoteStore>,
    /// The stored answers of limits; none if no limit stores answers.
    pub stale: Option<Arc<AnswerCaches>>,
    /// The state of the endpoints of each upstream, in the order of the settings.
    pub(super) upstreams: Vec<UpstreamState>,
}

impl RunningConfig {
    /// A configuration that keeps the state of endpoints, and the stored answers, which were in `before`.
    pub fn new(
        (live, stores): (Live, Vec<RemoteStore>),
        settings: Settings,
        access_log: AccessSettings,
        metrics: &Metrics,
        ceiling: &Arc<Ceiling>,
        before: Option<&Self>,
    ) -> Self {
        let known = before.map_or(&[][..], |before| &before.upstreams);
        let upstreams = UpstreamState::of_all(&settings.upstreams, known, metrics, ceiling);
        let records_requests = access_log.requests != AccessLog::Off || settings.traces.is_some();
        let stored = before.and_then(|before| before.stale.as_deref());
        let stale = AnswerCaches::new(live.policy.limits(), stored, metrics);
        Self { live: Arc::new(live), settings, access_log, records_requests, stores, stale, upstreams }
    }

    /// The requests at all upstreams or in wait for a connection, and the longest of these waits until `now`.
    pub fn upstream_load(&self, now: Instant) -> (usize, Duration) {
        let in_flight = self.upstreams.iter().map(UpstreamState::in_flight).sum();
        let delay = self.upstreams.iter().map(|upstream| upstream.queue_delay(now)).max();
        (in_flight, delay.unwrap_or_default())
    }

    /// This configuration with another policy.
    pub fn with_live(&self, live: Live, metrics: &Metrics, ceiling: &Arc<Ceiling>) -> Self {
        let parts = (live, self.stores.clone());
        Self::new(parts, self.settings.clone(), self.access_log, metrics, ceiling, Some(self))
    }
}

/// The running configuration with the connection pools of one worker. A request uses one from begin to end.
#[derive(Debug)]
pub(super) struct WorkerConfig {
    pub(super) running: Arc<RunningConfig>,
    pub(super) timeouts: Rc<Timeouts>,
    /// In the order of the settings.
    pub(super) upstreams: Vec<Rc<Endpoints>>,
}

/// Keeps the configuration of a worker up to date. Without a reload, a look costs one atomic load and no shared write.
#[derive(Debug)]
pub(super) struct ConfigWatch {
    newest: Arc<ArcSwap<RunningConfig>>,
    resources: WorkerResources,
    cached: RefCell<Rc<WorkerConfig>>,
}

impl ConfigWatch {
    pub(super) fn new(newest: Arc<ArcSwap<RunningConfig>>, resources: WorkerResources) -> Self {
        let cached = RefCell::new(Rc::new(WorkerConfig::new(newest.load_full(), None, &resources)));
        Self { newest, resources, cached }
    }

    /// The newest configuration.
    pub(super) fn current(&self) -> Rc<WorkerConfig> {
        let mut cached = self.cached.borrow_mut();
        let newest = self.newest.load();
        if !Arc::ptr_eq(&newest, &cached.running) {
            let next = Rc::new(WorkerConfig::new(Arc::clone(&newest), Some(&cached), &self.resources));
            for upstream in &cached.upstreams {
                upstream.close_unused(&next.upstreams);
            }
            *cached = next;
        }
        Rc::clone(&cached)
    }
}

impl WorkerConfig {
    /// Pools of unchanged endpoints are kept.
    fn new(running: Arc<RunningConfig>, before: Option<&Self>, resources: &WorkerResources) -> Self {
        let Settings { upstreams, timeouts, .. } = &running.settings;
        let upstream = |(settings, state): (&Upstream, &UpstreamState)| {
            let same_name = |known: &&Rc<Endpoints>| known.name() == settings.name.as_deref();
            let before = before.and_then(|before| before.upstreams.iter().find(same_name));
            if let Some(before) = before.filter(|before| before.is_same(settings, state, timeouts.connect)) {
                return Rc::clone(before);
            }
            let before = before.map(Rc::as_ref);
            Rc::new(Endpoints::new(settings, state, timeouts.connect, before, resources))
        };
        let upstreams = upstreams.iter().zip(&running.upstreams).map(upstream).collect();
        Self { timeouts: Rc::new(timeouts.clone()), upstreams, running }
    }
}
