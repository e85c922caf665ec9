//! The state of all workers, and the state of one worker that its connections share.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::date::Date;
use super::error::ProblemLog;
use super::running_config::{ConfigWatch, RunningConfig};
use super::untaken::Untaken;
use crate::base::telemetry::{Metrics, Spans, Taps};
use crate::engine::gate::{Gate, WorkerStores};
use crate::transport::net::buffer::BufferPool;
use crate::transport::net::client_usage::ClientUsage;
use crate::transport::upstream::{Ceiling, Directory, InForce, UpstreamState};

/// The state that all workers share.
#[derive(Debug)]
pub struct SharedState {
    /// The gate of all requests.
    pub gate: Arc<Gate>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// Operators who watch requests.
    pub taps: Arc<Taps>,
    /// Sampled requests for the exporter of traces.
    pub spans: Spans,
    /// The running configuration.
    pub running_config: Arc<ArcSwap<RunningConfig>>,
    /// Notified of each reload, for tasks that do not check before each request.
    pub reloads: watch::Sender<()>,
    /// Open connections for requests.
    pub connections: ConnectionCount,
    /// Open connections for checks.
    pub checks: ConnectionCount,
    /// The connections and requests of each client.
    pub clients: Arc<ClientUsage>,
    /// The bound of connections to all upstreams.
    pub ceiling: Arc<Ceiling>,
    /// Whether connections must end after their request. Set before the lifecycle changes.
    pub draining: AtomicBool,
}

/// What a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// Requests, which Weir forwards.
    Requests,
    /// Requests over TLS, where other listeners have no TLS.
    TlsRequests,
    /// Checks: questions of other proxies whether a request may pass.
    Checks,
}

/// The part of the connections for checks that peers may hold that are no trusted proxies: a sixteenth, or one.
const UNTRUSTED_PART: usize = 16;

/// The number of open connections, with its bound.
#[derive(Debug)]
pub struct ConnectionCount {
    open: AtomicUsize,
    /// Those for checks of peers that are no trusted proxies.
    untrusted: AtomicUsize,
    /// The most open connections.
    pub max: usize,
}

impl ConnectionCount {
    /// No open connection, and at most `max`.
    pub fn new(max: usize) -> Self {
        Self { open: AtomicUsize::new(0), untrusted: AtomicUsize::new(0), max }
    }

    /// Counts a connection. Returns whether there are not too many: at most [`UNTRUSTED_PART`] of `max` are untrusted.
    fn enter(&self, is_untrusted: bool) -> bool {
        let mut is_within = self.open.fetch_add(1, Ordering::Relaxed) < self.max;
        if is_untrusted {
            is_within &= self.untrusted.fetch_add(1, Ordering::Relaxed) < (self.max / UNTRUSTED_PART).max(1);
        }
        if !is_within {
            self.leave(is_untrusted);
        }
        is_within
    }

    fn leave(&self, is_untrusted: bool) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.untrusted.fetch_sub(is_untrusted.into(), Ordering::Relaxed);
    }
}

impl SharedState {
    fn count_of(&self, kind: ListenerKind) -> &ConnectionCount {
        match kind {
            ListenerKind::Requests | ListenerKind::TlsRequests => &self.connections,
            ListenerKind::Checks => &self.checks,
        }
    }
}

impl Directory for SharedState {
    fn changes(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    fn in_force(&self) -> InForce {
        let RunningConfig { settings, upstreams, .. } = &**self.running_config.load();
        let name_servers = Arc::clone(&settings.name_servers);
        InForce { settings: settings.upstreams.clone(), states: upstreams.clone(), name_servers }
    }

    /// To be called on the runtime that reloads. Nothing waits here, so that no reload comes in between.
    fn replace_states(&self, states: Vec<UpstreamState>) {
        let before = self.running_config.load_full();
        let RunningConfig { live, settings, stores, access_log, records_requests, stale, .. } = &*before;
        let (live, settings, stores) = (Arc::clone(live), settings.clone(), stores.clone());
        let (access_log, records_requests, stale) = (*access_log, *records_requests, stale.clone());
        let next = RunningConfig { live, settings, access_log, records_requests, stores, stale, upstreams: states };
        self.running_config.store(Arc::new(next));
        self.reloads.send_replace(());
    }
}

/// The state of one worker, shared by its connections.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shared: Arc<SharedState>,
    pub(super) config: ConfigWatch,
    pub(super) problems: ProblemLog,
    pub(super) buffers: Rc<BufferPool>,
    pub(super) date: Date,
    /// Responses that wait for their clients.
    pub(super) untaken: Rc<Untaken>,
    pub(super) stores: Rc<WorkerStores>,
    /// Notified when a connection ends.
    ended: Notify,
    open: Cell<usize>,
}

impl Worker {
    /// A worker without connections.
    pub(super) fn new(shared: Arc<SharedState>, config: ConfigWatch, buffers: Rc<BufferPool>) -> Self {
        Self {
            shared,
            config,
            problems: ProblemLog::default(),
            buffers,
            date: Date::default(),
            untaken: Rc::default(),
            stores: Rc::default(),
            ended: Notify::new(),
            open: Cell::new(0),
        }
    }

    /// Whether connections must end after their current request.
    pub(super) fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// Waits until no connection is open.
    pub(super) async fn all_ended(&self) {
        while self.open.get() > 0 {
            self.ended.notified().await;
        }
    }
}

/// An open connection, counted until it is dropped.
pub(super) struct OpenConnection {
    worker: Rc<Worker>,
    kind: ListenerKind,
    is_untrusted: bool,
}

impl OpenConnection {
    /// Counts a connection of `peer`; none if there are too many.
    pub(super) fn new(worker: &Rc<Worker>, kind: ListenerKind, peer: IpAddr) -> Option<Self> {
        let shared = &worker.shared;
        let is_trusted = || worker.config.current().running.live.policy.client_ip.is_trusted(peer);
        let is_untrusted = kind == ListenerKind::Checks && !is_trusted();
        if !shared.count_of(kind).enter(is_untrusted) {
            return None;
        }
        shared.metrics.connections.inc();
        worker.open.set(worker.open.get() + 1);
        Some(Self { worker: Rc::clone(worker), kind, is_untrusted })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let Self { worker, kind, is_untrusted } = self;
        worker.shared.count_of(*kind).leave(*is_untrusted);
        worker.shared.metrics.connections.dec();
        worker.open.set(worker.open.get().saturating_sub(1));
        worker.ended.notify_one();
    }
}
