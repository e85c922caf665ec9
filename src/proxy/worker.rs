//! What workers share, and what the connections of one worker share.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::date::Date;
use super::error::ProblemLog;
use super::untaken::Untaken;
use super::view::{Current, Views};
use crate::gate::Gate;
use crate::net::buffer::Buffers;
use crate::net::clients::Clients;
use crate::telemetry::Metrics;
use crate::upstream::{Ceiling, Directory, InForce, UpstreamState};

/// What all workers share.
#[derive(Debug)]
pub struct Shared {
    /// Decides.
    pub gate: Arc<Gate>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The newest policy and settings.
    pub current: Arc<ArcSwap<Current>>,
    /// Told when there is a newer one, for whoever does not look by itself.
    pub reloads: watch::Sender<()>,
    /// Connections open now.
    pub connections: AtomicUsize,
    /// How many there may be.
    pub max_connections: usize,
    /// How many each client has.
    pub clients: Arc<Clients>,
    /// How many connections to all upstreams there may be.
    pub ceiling: Arc<Ceiling>,
    /// Whether the present requests are the last ones. Set before the stage changes.
    pub draining: AtomicBool,
}

impl Directory for Shared {
    fn changes(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    fn in_force(&self) -> InForce {
        let Current { settings, upstreams, .. } = &**self.current.load();
        let name_servers = Arc::clone(&settings.name_servers);
        InForce { settings: settings.upstreams.clone(), states: upstreams.clone(), name_servers }
    }

    /// To be called on the runtime that reloads: nothing here waits, so no reload comes in between.
    fn replace_states(&self, states: Vec<UpstreamState>) {
        let before = self.current.load_full();
        let Current { live, settings, access_log, .. } = &*before;
        let (live, settings) = (Arc::clone(live), settings.clone());
        self.current.store(Arc::new(Current { live, settings, access_log: *access_log, upstreams: states }));
        self.reloads.send_replace(());
    }
}

/// What the connections of one worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) views: Views,
    pub(super) problems: ProblemLog,
    pub(super) buffers: Rc<Buffers>,
    pub(super) date: Date,
    /// Answers whose clients are waited for.
    pub(super) untaken: Rc<Untaken>,
    /// Told whenever a connection ends.
    ended: Notify,
    open: Cell<usize>,
}

impl Worker {
    /// A worker without connections.
    pub(super) fn new(shared: Arc<Shared>, views: Views, buffers: Rc<Buffers>) -> Self {
        Self {
            shared,
            views,
            problems: ProblemLog::default(),
            buffers,
            date: Date::default(),
            untaken: Rc::default(),
            ended: Notify::new(),
            open: Cell::new(0),
        }
    }

    /// Whether connections end after the request in hand.
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

/// A connection that is counted as open.
pub(super) struct Open(Rc<Worker>);

impl Open {
    /// None if there are too many already.
    pub(super) fn new(worker: &Rc<Worker>) -> Option<Self> {
        let shared = &worker.shared;
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= shared.max_connections {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        shared.metrics.connections.inc();
        worker.open.set(worker.open.get() + 1);
        Some(Self(Rc::clone(worker)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let worker = &self.0;
        worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        worker.shared.metrics.connections.dec();
        worker.open.set(worker.open.get().saturating_sub(1));
        worker.ended.notify_one();
    }
}
