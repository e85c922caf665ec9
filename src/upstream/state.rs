//! The state of upstreams and endpoints that all workers share.
//!
//! It is identified by the name of the upstream and the address of the endpoint, and survives reloads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::time::Instant;

use super::balance::ejection::{Eject, Ejection, TrafficFraction};
use super::dns::address::{Preference, ResolvedAddress};
use super::pool::ceiling::Ceiling;
use super::pool::queue::Queue;
use super::settings::{Address, Endpoint, Resolve, Upstream};
use crate::policy::affinity;
use crate::telemetry::{EndpointMetrics, EndpointResult, Metrics};
use crate::time;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EndpointState {
    /// As configured.
    pub(super) endpoint: Endpoint,
    /// The address that a lookup of its name returned; none before the first answer, or if it needs no lookup.
    pub(super) resolved: Option<SocketAddr>,
    /// A hash of its address.
    pub(super) id: u64,
    /// Priority and weight of its SRV record, as the word of a [`Preference`].
    preference: AtomicU32,
    /// Active requests; counted only if the balancing needs the count.
    in_flight: AtomicUsize,
    /// Open connections to it.
    open: AtomicUsize,
    /// The result of the health checks.
    is_healthy: AtomicBool,
    /// The word of an [`Ejection`], in time since `created`.
    ejection: AtomicU64,
    created: Instant,
    metrics: EndpointMetrics,
}

/// The endpoints of one upstream in the order of the configuration. Each address of a name is an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamState {
    pub(super) name: Option<Box<str>>,
    pub(super) endpoints: Vec<Arc<EndpointState>>,
    /// The requests that wait for a connection.
    pub(super) queue: Arc<Queue>,
}

/// The name of `[upstream]` in metrics. `[upstreams.upstream]` cannot stand beside it.
const UNNAMED: &str = "upstream";

impl UpstreamState {
    /// The state of each of `upstreams`. Endpoints that are also in `before` keep their state.
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
            // If the system resolves names for each connection, earlier lookups are obsolete.
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

/// A copy of `before` in which the name of `endpoint` has these addresses; none if it has them already. An address that
/// stays keeps its state. A changed preference takes effect in `before` too.
pub(super) fn with_addresses(
    before: &[UpstreamState],
    upstream: &str,
    endpoint: &Endpoint,
    addresses: &[ResolvedAddress],
    metrics: &Metrics,
) -> Option<Vec<UpstreamState>> {
    let mut all = before.to_vec();
    let state = all.iter_mut().find(|state| state.name.as_deref() == Some(upstream))?;
    let known = &state.endpoints;
    let is_ours = |state: &Arc<EndpointState>| state.endpoint == *endpoint;
    let index = known.iter().position(is_ours)?;
    let endpoint_state = |new: &ResolvedAddress| {
        let same = known.iter().find(|state| is_ours(state) && state.resolved == Some(new.address));
        let create = || Arc::new(EndpointState::new(upstream, endpoint, Some(new.address), metrics));
        let state = same.map_or_else(create, Arc::clone);
        state.preference.store(new.preference.to_word(), Ordering::Relaxed);
        state
    };
    let states: Vec<_> = addresses.iter().map(endpoint_state).collect();
    if known.iter().filter(|state| is_ours(state)).map(Arc::as_ptr).eq(states.iter().map(Arc::as_ptr)) {
        return None;
    }
    state.endpoints.retain(|state| !is_ours(state));
    state.endpoints.splice(index..index, states);
    Some(all)
}

/// Removes the metrics of upstreams and endpoints that are in `before` and not in `next`.
fn forget(before: &[UpstreamState], next: &[UpstreamState], metrics: &Metrics) {
    for removed in before {
        let name = removed.label();
        let next = next.iter().find(|state| state.label() == name);
        if next.is_none() {
            metrics.remove_upstream(name);
        }
        let is_removed = |known: &&Arc<EndpointState>| {
            next.is_none_or(|next| next.endpoints.iter().all(|state| state.endpoint != known.endpoint))
        };
        for state in removed.endpoints.iter().filter(is_removed) {
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
            preference: AtomicU32::new(Preference::default().to_word()),
            in_flight: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            is_healthy: AtomicBool::new(true),
            ejection: AtomicU64::new(0),
            created: time::instant_now(),
            metrics,
            endpoint: endpoint.clone(),
        }
    }

    /// Counts the outcome of a request, and applies `rule`.
    pub(super) fn count(&self, reached: EndpointResult, rule: Option<Eject>) {
        self.metrics.cells.count(reached);
        let Some(rule) = rule else { return };
        match reached {
            // No failures to reset: the usual case, which writes nothing.
            EndpointResult::Answered if self.ejection().answered() == self.ejection() => {}
            EndpointResult::Answered => _ = self.update(|ejection| (ejection.answered(), false)),
            EndpointResult::Failed => {
                let now_ms = self.now_ms();
                if self.update(|ejection| ejection.failed(rule, now_ms)) {
                    self.metrics.ejections.inc();
                    tracing::warn!(endpoint = %self.endpoint, "an endpoint keeps failing and is ejected");
                }
            }
        }
    }

    /// Replaces the ejection by the first result of `next`, and returns the second.
    fn update(&self, next: impl Fn(Ejection) -> (Ejection, bool)) -> bool {
        let mut before = self.ejection.load(Ordering::Relaxed);
        loop {
            let (after, result) = next(Ejection::from_word(before));
            match self.ejection.compare_exchange_weak(before, after.to_word(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(now) => before = now,
            }
        }
    }

    fn ejection(&self) -> Ejection {
        Ejection::from_word(self.ejection.load(Ordering::Relaxed))
    }

    /// The part of its usual traffic that it gets. Reads no clock if it was never ejected.
    pub(super) fn traffic(&self, rule: Option<Eject>) -> TrafficFraction {
        let ejection = self.ejection();
        match rule {
            _ if !self.is_healthy() => TrafficFraction::Nothing,
            Some(rule) if ejection.was_ejected() => ejection.traffic(rule, self.now_ms()),
            _ => TrafficFraction::Full,
        }
    }

    fn now_ms(&self) -> u64 {
        time::saturating_ns(time::instant_now().saturating_duration_since(self.created)) / 1_000_000
    }

    /// The last result of the health checks; true if there are none.
    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    /// Sets the result of the health checks.
    pub(super) fn set_healthy(&self, is_healthy: bool) {
        if self.is_healthy.swap(is_healthy, Ordering::Relaxed) != is_healthy {
            self.metrics.healthy.add(if is_healthy { 1 } else { -1 });
        }
    }

    /// Its priority and weight.
    pub(super) fn preference(&self) -> Preference {
        Preference::from_word(self.preference.load(Ordering::Relaxed))
    }

    /// Whether it comes from an SRV record and so has a preference.
    pub(super) fn has_preference(&self) -> bool {
        matches!(self.endpoint.address, Address::Srv(_))
    }

    /// Its active requests.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts one more connection. Returns false if it has `at_most` already; see
    /// [`ConnectionPermit`](super::pool::permit::ConnectionPermit).
    pub(super) fn open(&self, at_most: usize) -> bool {
        let more = |open: usize| Some(open + 1).filter(|open| *open <= at_most);
        let is_open = self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok();
        if is_open {
            self.metrics.connections.inc();
        }
        is_open
    }

    /// Ends the count of one connection.
    pub(super) fn close(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.metrics.connections.dec();
    }

    /// Whether it has fewer connections than this.
    pub(super) fn has_capacity(&self, at_most: usize) -> bool {
        self.open.load(Ordering::SeqCst) < at_most
    }

    /// Counts one more active request.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the count of one active request.
    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for EndpointState {
    fn drop(&mut self) {
        self.set_healthy(false); // other endpoints may have the same metric labels
    }
}
