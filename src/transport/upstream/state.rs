//! The state of upstreams and endpoints that all workers share.
//!
//! It is identified by the name of the upstream and the address of the endpoint, and survives reloads.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::availability::Availability;
use super::balance::ejection::{Eject, Ejection, TrafficFraction};
use super::dns::address::{Preference, ResolvedAddress};
use super::observations::Observations;
use super::orders::{EndpointOrder, Orders};
use super::pool::ceiling::Ceiling;
use super::pool::queue::Queue;
use super::settings::{Endpoint, Resolve, Upstream};
use crate::base::telemetry::{EndpointCells, EndpointMetrics, EndpointResult, Metrics};
use crate::base::time;
use crate::engine::policy::affinity;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EndpointState {
    /// The name of its upstream in metrics.
    pub(super) upstream: Box<str>,
    /// As configured.
    pub(super) endpoint: Endpoint,
    /// The address that a lookup of its name returned; none before the first answer, or if it needs no lookup.
    pub(super) resolved: Option<SocketAddr>,
    /// Its address if a lookup returned one, else as configured.
    pub(super) label: Box<str>,
    /// A hash of its address.
    pub(super) id: u64,
    /// Its priority and weight, as the word of a [`Preference`].
    preference: AtomicU32,
    /// Those that the DNS gives it. Only the control runtime uses them.
    dns_preference: AtomicU32,
    availability: Availability,
    /// Active requests; counted only if the balancing needs the count.
    in_flight: AtomicUsize,
    /// Those of its active requests that have changed their connections to another protocol.
    upgraded: AtomicUsize,
    /// Open connections to it.
    open: AtomicUsize,
    /// The word of an [`Ejection`], in time since `created`.
    ejection: AtomicU64,
    created: Instant,
    metrics: EndpointMetrics,
    pub(super) observations: Observations,
}

/// The endpoints of one upstream in the order of the configuration. Each address of a name is an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamState {
    pub(super) name: Option<Box<str>>,
    pub(super) endpoints: Vec<Arc<EndpointState>>,
    /// The requests that wait for a connection.
    pub(super) queue: Arc<Queue>,
    /// The orders of operators about its endpoints.
    pub(super) orders: Arc<Orders>,
}

/// The name of `[upstream]` in metrics. `[upstreams.upstream]` cannot stand beside it.
pub(super) const UNNAMED: &str = "upstream";

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
        let endpoints: Vec<_> = upstream.endpoints.iter().flat_map(states).collect();
        let orders = before.map(|state| Arc::clone(&state.orders)).unwrap_or_default();
        let is_known =
            |order: &EndpointOrder| endpoints.iter().any(|state| state.names().any(|name| *name == *order.endpoint));
        for EndpointOrder { upstream, endpoint, .. } in orders.remove(|order| !is_known(order)) {
            let why = "the configuration has the endpoint no more, so an order of an operator about it ends";
            tracing::warn!(%upstream, %endpoint, "{why}");
        }
        for state in &endpoints {
            state.obey(&orders);
            // The rule may have changed.
            _ = upstream.eject.map(|rule| state.update(|before| (before.limited(rule, state.now_ms()), false)));
        }
        Self { name, endpoints, queue, orders }
    }

    /// Puts the orders in force, and wakes requests that may go elsewhere now.
    pub(super) fn obey(&self) {
        for state in &self.endpoints {
            state.obey(&self.orders);
        }
        self.queue.wake_all();
    }

    /// Its requests: at its endpoints, and in wait for a connection. Upgraded connections may be idle, and are none.
    pub(crate) fn in_flight(&self) -> usize {
        let active: usize = self.endpoints.iter().map(|state| state.active()).sum();
        self.queue.waiting().saturating_add(active)
    }

    /// The longest wait for a connection until `now`.
    pub(crate) fn queue_delay(&self, now: Instant) -> Duration {
        self.queue.longest_wait(now)
    }

    /// Its name in metrics.
    pub(super) fn label(&self) -> &str {
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
    let (known, orders) = (&state.endpoints, &state.orders);
    let is_ours = |state: &Arc<EndpointState>| state.endpoint == *endpoint;
    let index = known.iter().position(is_ours)?;
    let endpoint_state = |new: &ResolvedAddress| {
        let same = known.iter().find(|state| is_ours(state) && state.resolved == Some(new.address));
        let create = || Arc::new(EndpointState::new(upstream, endpoint, Some(new.address), metrics));
        let state = same.map_or_else(create, Arc::clone);
        state.dns_preference.store(new.preference.to_word(), Ordering::Relaxed);
        state.obey(orders);
        state
    };
    let states: Vec<_> = addresses.iter().map(endpoint_state).collect();
    if known.iter().filter(|state| is_ours(state)).map(Arc::as_ptr).eq(states.iter().map(Arc::as_ptr)) {
        return None;
    }
    state.endpoints.retain(|state| !is_ours(state));
    state.endpoints.splice(index..index, states);
    retire(before, &all);
    Some(all)
}

/// The known addresses of the name of `endpoint`.
pub(super) fn addresses(states: &[UpstreamState], upstream: &str, endpoint: &Endpoint) -> Vec<ResolvedAddress> {
    let state = states.iter().find(|state| state.name.as_deref() == Some(upstream));
    let endpoints = state.into_iter().flat_map(|state| &state.endpoints).filter(|state| state.endpoint == *endpoint);
    let resolved = endpoints.filter_map(|state| {
        let preference = Preference::from_word(state.dns_preference.load(Ordering::Relaxed));
        Some(ResolvedAddress { preference, address: state.resolved? })
    });
    resolved.collect()
}

/// Takes the endpoints that are in `before` and not in `next` out of the gauges.
fn retire(before: &[UpstreamState], next: &[UpstreamState]) {
    let states = |all| <[UpstreamState]>::iter(all).flat_map(|upstream| &upstream.endpoints);
    let kept: HashSet<_> = states(next).map(Arc::as_ptr).collect();
    for state in states(before).filter(|state| !kept.contains(&Arc::as_ptr(state))) {
        state.availability.retire();
    }
}

/// Removes the metrics of upstreams and endpoints that are in `before` and not in `next`.
fn forget(before: &[UpstreamState], next: &[UpstreamState], metrics: &Metrics) {
    retire(before, next);
    for removed in before {
        let name = removed.label();
        let next = next.iter().find(|state| state.label() == name);
        if next.is_none() {
            metrics.remove_upstream(name);
        }
        // Endpoints that differ in their TLS name only have the same series.
        let texts = |state: &UpstreamState| state.endpoints.iter().map(|state| state.endpoint.to_string()).collect();
        let kept: HashSet<String> = next.map(texts).unwrap_or_default();
        for endpoint in texts(removed).difference(&kept) {
            metrics.remove_endpoint(name, endpoint);
        }
    }
}

impl EndpointState {
    fn new(upstream: &str, endpoint: &Endpoint, resolved: Option<SocketAddr>, metrics: &Metrics) -> Self {
        let text = endpoint.to_string();
        let id = resolved.map_or_else(|| text.clone(), |address| format!("{text} {address}"));
        let metrics = metrics.endpoint(upstream, &text);
        Self {
            resolved,
            label: resolved.map_or_else(|| text.as_str().into(), |address| address.to_string().into()),
            id: affinity::text(id.as_bytes()),
            preference: AtomicU32::new(Preference::default().to_word()),
            dns_preference: AtomicU32::new(Preference::default().to_word()),
            availability: Availability::new(metrics.healthy.clone(), metrics.draining.clone()),
            in_flight: AtomicUsize::new(0),
            upgraded: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            ejection: AtomicU64::new(0),
            created: time::instant_now(),
            observations: Observations::new(&metrics.cells),
            metrics,
            upstream: upstream.into(),
            endpoint: endpoint.clone(),
        }
    }

    /// Counts the outcome of a request, and applies `rule`. `failure` says why the request failed.
    pub(super) fn count(&self, reached: EndpointResult, rule: Option<Eject>, failure: impl FnOnce() -> String) {
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
                    let (upstream, endpoint, failure) = (&*self.upstream, &self.endpoint, failure());
                    tracing::warn!(upstream, %endpoint, failure, "an endpoint keeps failing and is ejected");
                    self.observations.observed().ejection = Some((time::instant_now(), failure));
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

    /// The end of the last ejection, and when its full traffic is back; none if it was never ejected.
    pub(super) fn ejected_until(&self, rule: Option<Eject>) -> Option<(Instant, Instant)> {
        let until = self.created + self.ejection().until()?;
        Some((until, until + rule?.duration))
    }

    fn now_ms(&self) -> u64 {
        time::saturating_ns(time::instant_now().saturating_duration_since(self.created)) / 1_000_000
    }

    /// The last result of the health checks; true if there are none.
    pub(super) fn is_healthy(&self) -> bool {
        self.availability.is_healthy()
    }

    /// Sets the result of the health checks: the failure if it is unhealthy.
    pub(super) fn set_health(&self, failure: Option<String>) {
        if self.availability.set_healthy(failure.is_none()) {
            self.observations.observed().health = (time::instant_now(), failure);
        }
    }

    /// Its counters.
    pub(super) fn cells(&self) -> &EndpointCells {
        &self.metrics.cells
    }

    /// Its priority and weight.
    pub(super) fn preference(&self) -> Preference {
        Preference::from_word(self.preference.load(Ordering::Relaxed))
    }

    /// Whether an operator drains it: it gets no new request.
    pub(super) fn is_draining(&self) -> bool {
        self.availability.is_draining()
    }

    /// The texts that name it in orders: its address, if its name was looked up, and its text in the configuration.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let address = self.resolved.map(|address| address.to_string());
        address.into_iter().chain([self.endpoint.to_string()])
    }

    /// Puts the orders about it in force: whether it is drained, and the weight in place of that of the DNS.
    fn obey(&self, orders: &Orders) {
        let orders = orders.about(self.names());
        let weight = orders.iter().find_map(|order| order.weight);
        let is_draining = orders.iter().any(EndpointOrder::is_drain);
        let of_dns = Preference::from_word(self.dns_preference.load(Ordering::Relaxed));
        let preference = Preference { weight: weight.unwrap_or(of_dns.weight), ..of_dns };
        self.preference.store(preference.to_word(), Ordering::Relaxed);
        if self.availability.set_draining(is_draining) && !is_draining {
            self.observations.observed().undrained = time::instant_now();
        }
    }

    /// Its open connections.
    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Its active requests, if the balancing needs the count.
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

    /// Its active requests without upgraded connections.
    fn active(&self) -> usize {
        let upgraded = self.upgraded.load(Ordering::Relaxed);
        usize::try_from(self.cells().active()).unwrap_or(usize::MAX).saturating_sub(upgraded)
    }

    /// Notes that an active request has changed its connection to another protocol.
    pub(super) fn upgrade(&self) {
        self.upgraded.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an upgraded connection is closed.
    pub(super) fn end_upgrade(&self) {
        self.upgraded.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one more active request; `is_balanced`: the balancing needs the count.
    pub(super) fn begin(&self, is_balanced: bool) {
        self.metrics.cells.begin();
        if is_balanced {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the count of one active request.
    pub(super) fn end(&self, is_balanced: bool) {
        self.metrics.cells.end();
        if is_balanced {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
