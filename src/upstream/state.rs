//! What all workers know of an endpoint.
//!
//! It belongs to the name of the upstream and the address of the endpoint, and outlives reloads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::time::Instant;

use super::ceiling::Ceiling;
use super::ejection::{Eject, Ejection, Share};
use super::names::{Place, Rank};
use super::queue::Queue;
use super::settings::{Address, Endpoint, Resolve, Upstream};
use crate::policy::affinity;
use crate::telemetry::{EndpointMetrics, EndpointResult, Metrics};
use crate::time;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct EndpointState {
    /// As configured.
    pub(super) endpoint: Endpoint,
    /// One of the addresses of its name, once they are known.
    pub(super) resolved: Option<SocketAddr>,
    /// A hash of its address.
    pub(super) id: u64,
    /// Priority and weight among the places of a service, as one word.
    rank: AtomicU32,
    /// Requests in hand; counted only where that matters.
    in_flight: AtomicUsize,
    /// Connections to it.
    open: AtomicUsize,
    /// What the checks say.
    is_healthy: AtomicBool,
    /// The word of an [`Ejection`], in time since `since`.
    ejection: AtomicU64,
    since: Instant,
    metrics: EndpointMetrics,
}

/// What is known of the endpoints of one upstream, in the order of the configuration, each address of a name by itself.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamState {
    pub(super) name: Option<Box<str>>,
    pub(super) endpoints: Vec<Arc<EndpointState>>,
    /// Who waits for a connection.
    pub(super) queue: Arc<Queue>,
}

/// The name of `[upstream]` in metrics. `[upstreams.upstream]` cannot stand beside it.
const UNNAMED: &str = "upstream";

impl UpstreamState {
    /// That of each of `upstreams`; what is known of endpoints that were in `before` stays known.
    pub(crate) fn of_all(
        upstreams: &[Upstream],
        before: &[Self],
        metrics: &Metrics,
        ceiling: &Arc<Ceiling>,
    ) -> Vec<Self> {
        let all: Vec<_> = upstreams.iter().map(|upstream| Self::of(upstream, before, metrics, ceiling)).collect();
        forget(before, &all, metrics);
        all
    }

    fn of(upstream: &Upstream, before: &[Self], metrics: &Metrics, ceiling: &Arc<Ceiling>) -> Self {
        let name = upstream.name.clone();
        let label = name.as_deref().unwrap_or(UNNAMED);
        let before = before.iter().find(|state| state.label() == label);
        let known = before.map_or(&[][..], |state| &state.endpoints);
        let queue = before.map(|state| Arc::clone(&state.queue));
        let queue = queue.unwrap_or_else(|| Arc::new(Queue::new(metrics.upstream(label), Arc::clone(ceiling))));
        let states = |endpoint: &Endpoint| {
            // If names are only looked up when connecting, what was looked up before counts no more.
            let stays = |state: &&Arc<EndpointState>| upstream.resolve != Resolve::Off || state.resolved.is_none();
            let same = known.iter().filter(|state| state.endpoint == *endpoint).filter(stays);
            let mut same: Vec<_> = same.map(Arc::clone).collect();
            if same.is_empty() {
                same.push(Arc::new(EndpointState::new(label, endpoint, None, metrics)));
            }
            same
        };
        let endpoints = upstream.endpoints.iter().flat_map(states).collect();
        Self { name, endpoints, queue }
    }

    /// Its name in metrics.
    fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(UNNAMED)
    }
}

/// All of `before`, but that the name of `endpoint` has these places; none if it has these addresses already. What is
/// known of an address that stays is kept; a rank that changes does so for all at once.
pub(super) fn with_addresses(
    before: &[UpstreamState],
    upstream: &str,
    endpoint: &Endpoint,
    places: &[Place],
    metrics: &Metrics,
) -> Option<Vec<UpstreamState>> {
    let mut all = before.to_vec();
    let state = all.iter_mut().find(|state| state.name.as_deref() == Some(upstream))?;
    let known = &state.endpoints;
    let is_ours = |state: &Arc<EndpointState>| state.endpoint == *endpoint;
    let place = known.iter().position(is_ours)?;
    let resolved = |place: &Place| {
        let same = known.iter().find(|state| is_ours(state) && state.resolved == Some(place.address));
        let new = || Arc::new(EndpointState::new(upstream, endpoint, Some(place.address), metrics));
        let state = same.map_or_else(new, Arc::clone);
        state.rank.store(place.rank.word(), Ordering::Relaxed);
        state
    };
    let addresses: Vec<_> = places.iter().map(resolved).collect();
    if known.iter().filter(|state| is_ours(state)).map(Arc::as_ptr).eq(addresses.iter().map(Arc::as_ptr)) {
        return None;
    }
    state.endpoints.retain(|state| !is_ours(state));
    state.endpoints.splice(place..place, addresses);
    Some(all)
}

/// Shows no more what has been `before` and is not in `next`.
fn forget(before: &[UpstreamState], next: &[UpstreamState], metrics: &Metrics) {
    for gone in before {
        let name = gone.label();
        let next = next.iter().find(|state| state.label() == name);
        if next.is_none() {
            metrics.remove_upstream(name);
        }
        let is_gone = |known: &&Arc<EndpointState>| {
            next.is_none_or(|next| next.endpoints.iter().all(|state| state.endpoint != known.endpoint))
        };
        for state in gone.endpoints.iter().filter(is_gone) {
            metrics.remove_endpoint(name, &state.endpoint.to_string());
        }
    }
}

impl EndpointState {
    fn new(upstream: &str, endpoint: &Endpoint, resolved: Option<SocketAddr>, metrics: &Metrics) -> Self {
        let text = endpoint.to_string();
        let id = resolved.map_or_else(|| text.clone(), |address| format!("{text} {address}"));
        let metrics = metrics.endpoint(upstream, &text);
        metrics.healthy.inc();
        Self {
            resolved,
            id: affinity::text(id.as_bytes()),
            rank: AtomicU32::new(Rank::default().word()),
            in_flight: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            is_healthy: AtomicBool::new(true),
            ejection: AtomicU64::new(0),
            since: time::instant_now(),
            metrics,
            endpoint: endpoint.clone(),
        }
    }

    /// Counts what became of a request, and draws the conclusions of `rule`.
    pub(super) fn count(&self, reached: EndpointResult, rule: Option<Eject>) {
        self.metrics.cells.count(reached);
        let Some(rule) = rule else { return };
        match reached {
            // Nothing to forget: the usual case, which writes nothing.
            EndpointResult::Answered if self.ejection().answered() == self.ejection() => {}
            EndpointResult::Answered => _ = self.update(|ejection| (ejection.answered(), false)),
            EndpointResult::Failed => {
                let now_ms = self.now_ms();
                if self.update(|ejection| ejection.failed(rule, now_ms)) {
                    self.metrics.ejections.inc();
                    tracing::warn!(endpoint = %self.endpoint, "an endpoint keeps failing and is passed by");
                }
            }
        }
    }

    /// Changes how it fares by `next`, and gives what that says beside it.
    fn update(&self, next: impl Fn(Ejection) -> (Ejection, bool)) -> bool {
        let mut before = self.ejection.load(Ordering::Relaxed);
        loop {
            let (after, said) = next(Ejection::of(before));
            match self.ejection.compare_exchange_weak(before, after.word(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return said,
                Err(now) => before = now,
            }
        }
    }

    fn ejection(&self) -> Ejection {
        Ejection::of(self.ejection.load(Ordering::Relaxed))
    }

    /// What share of its requests it gets. No clock is read for one that has never been out.
    pub(super) fn share(&self, rule: Option<Eject>) -> Share {
        let ejection = self.ejection();
        match rule {
            _ if !self.is_healthy() => Share::Nothing,
            Some(rule) if ejection.was_out() => ejection.share(rule, self.now_ms()),
            _ => Share::All,
        }
    }

    fn now_ms(&self) -> u64 {
        time::saturating_ns(time::instant_now().saturating_duration_since(self.since)) / 1_000_000
    }

    /// What the checks said last.
    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    /// What they say now.
    pub(super) fn set_healthy(&self, is_healthy: bool) {
        if self.is_healthy.swap(is_healthy, Ordering::Relaxed) != is_healthy {
            self.metrics.healthy.add(if is_healthy { 1 } else { -1 });
        }
    }

    /// Its priority and its weight.
    pub(super) fn rank(&self) -> Rank {
        Rank::of(self.rank.load(Ordering::Relaxed))
    }

    /// Whether its rank means something: it is a place of a service.
    pub(super) fn is_ranked(&self) -> bool {
        matches!(self.endpoint.address, Address::Srv(_))
    }

    /// Requests that it has in hand.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether one more connection may be opened, which it then counts as; see [`Slot`](super::queue::Slot).
    pub(super) fn open(&self, at_most: usize) -> bool {
        let more = |open: usize| Some(open + 1).filter(|open| *open <= at_most);
        let is_open = self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok();
        if is_open {
            self.metrics.connections.inc();
        }
        is_open
    }

    /// A connection was closed.
    pub(super) fn close(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.metrics.connections.dec();
    }

    /// Whether it has fewer connections than this.
    pub(super) fn has_room(&self, at_most: usize) -> bool {
        self.open.load(Ordering::SeqCst) < at_most
    }

    /// A request goes to it.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that went to it has ended.
    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for EndpointState {
    fn drop(&mut self) {
        self.set_healthy(false); // others may be shown under the same name
    }
}
