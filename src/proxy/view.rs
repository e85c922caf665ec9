//! What the requests of one worker go by: the newest policy and settings, and the worker's pools.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::settings::Settings;
use crate::gate::Live;
use crate::net::Timeouts;
use crate::telemetry::{AccessLog, Metrics};
use crate::upstream::settings::Upstream;
use crate::upstream::{Ceiling, Endpoints, UpstreamState, WorkerResources};

/// What a reload replaces, for all workers at once.
#[derive(Debug)]
pub struct Current {
    /// Policy and the state of its limits.
    pub live: Arc<Live>,
    /// The data path's settings.
    pub settings: Settings,
    /// Which requests are logged.
    pub access_log: AccessLog,
    /// What is known of the endpoints of each upstream, in the order of the settings.
    pub(super) upstreams: Vec<UpstreamState>,
}

impl Current {
    /// One that takes over from `before` what is known of endpoints that stay.
    pub fn new(
        live: Live,
        settings: Settings,
        access_log: AccessLog,
        metrics: &Metrics,
        ceiling: &Arc<Ceiling>,
        before: Option<&Self>,
    ) -> Self {
        let known = before.map_or(&[][..], |before| &before.upstreams);
        let upstreams = UpstreamState::of_all(&settings.upstreams, known, metrics, ceiling);
        Self { live: Arc::new(live), settings, access_log, upstreams }
    }
}

/// A worker's view of [`Current`]. A request keeps the one it began with.
#[derive(Debug)]
pub(super) struct View {
    pub(super) current: Arc<Current>,
    pub(super) timeouts: Rc<Timeouts>,
    /// In the order of the settings.
    pub(super) upstreams: Vec<Rc<Endpoints>>,
}

/// Keeps a worker's view up to date. The common case, nothing new, costs one atomic load and no shared write.
#[derive(Debug)]
pub(super) struct Views {
    newest: Arc<ArcSwap<Current>>,
    resources: WorkerResources,
    view: RefCell<Rc<View>>,
}

impl Views {
    pub(super) fn new(newest: Arc<ArcSwap<Current>>, resources: WorkerResources) -> Self {
        let view = RefCell::new(Rc::new(View::new(newest.load_full(), None, &resources)));
        Self { newest, resources, view }
    }

    /// The view as of now.
    pub(super) fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        let newest = self.newest.load();
        if !Arc::ptr_eq(&newest, &view.current) {
            let next = Rc::new(View::new(Arc::clone(&newest), Some(&view), &self.resources));
            for upstream in &view.upstreams {
                upstream.close_unused(&next.upstreams);
            }
            *view = next;
        }
        Rc::clone(&view)
    }
}

impl View {
    /// Pools of endpoints that stay go on.
    fn new(current: Arc<Current>, before: Option<&View>, resources: &WorkerResources) -> Self {
        let Settings { upstreams, timeouts, .. } = &current.settings;
        let upstream = |(settings, state): (&Upstream, &UpstreamState)| {
            let before =
                before.and_then(|view| view.upstreams.iter().find(|known| known.name() == settings.name.as_deref()));
            if let Some(before) = before.filter(|before| before.is_same(settings, state, timeouts.connect)) {
                return Rc::clone(before);
            }
            let before = before.map(Rc::as_ref);
            Rc::new(Endpoints::new(settings, state, timeouts.connect, before, resources))
        };
        let upstreams = upstreams.iter().zip(&current.upstreams).map(upstream).collect();
        Self { timeouts: Rc::new(timeouts.clone()), upstreams, current }
    }
}
