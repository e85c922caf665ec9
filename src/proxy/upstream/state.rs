//! What all workers know of an endpoint.
//!
//! It belongs to the name of the upstream and the address of the endpoint, and outlives reloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::settings::{Endpoint, Upstream};
use crate::policy::affinity;
use crate::telemetry::{EndpointMetrics, Metrics, Reached};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) endpoint: Endpoint,
    /// A hash of its address.
    pub(super) id: u64,
    /// Requests in hand; counted only where that matters.
    in_flight: AtomicUsize,
    pub(super) metrics: EndpointMetrics,
}

/// What is known of the endpoints of one upstream, in the order of the configuration; none are kept of `[upstream]`.
#[derive(Debug)]
pub(in super::super) struct UpstreamState {
    pub(super) name: Option<Box<str>>,
    pub(super) endpoints: Vec<Arc<EndpointState>>,
}

impl UpstreamState {
    /// That of each of `upstreams`; what is known of endpoints that were in `before` stays known.
    pub(in super::super) fn of_all(upstreams: &[Upstream], before: &[Self], metrics: &Metrics) -> Vec<Self> {
        let all: Vec<_> = upstreams.iter().map(|upstream| Self::of(upstream, before, metrics)).collect();
        for gone in before {
            let name = gone.name.as_deref().unwrap_or_default();
            let next = all.iter().find(|state| state.name == gone.name);
            let is_gone = |known: &&Arc<EndpointState>| {
                next.is_none_or(|next| next.endpoints.iter().all(|state| !Arc::ptr_eq(state, known)))
            };
            for state in gone.endpoints.iter().filter(is_gone) {
                metrics.forget_endpoint(name, &state.endpoint.to_string());
            }
        }
        all
    }

    fn of(upstream: &Upstream, before: &[Self], metrics: &Metrics) -> Self {
        let name = upstream.name.clone();
        let Some(label) = &name else { return Self { name, endpoints: Vec::new() } };
        let known = before.iter().find(|state| state.name == name).map_or(&[][..], |state| &state.endpoints);
        let state = |endpoint: &Endpoint| {
            let same = known.iter().find(|state| state.endpoint == *endpoint);
            same.map_or_else(|| Arc::new(EndpointState::new(label, endpoint, metrics)), Arc::clone)
        };
        let endpoints = upstream.endpoints.iter().map(state).collect();
        Self { name, endpoints }
    }
}

impl EndpointState {
    fn new(upstream: &str, endpoint: &Endpoint, metrics: &Metrics) -> Self {
        let text = endpoint.to_string();
        Self {
            id: affinity::text(text.as_bytes()),
            in_flight: AtomicUsize::new(0),
            metrics: metrics.endpoint(upstream, &text),
            endpoint: endpoint.clone(),
        }
    }

    /// Counts what became of a request.
    pub(super) fn count(&self, reached: Reached) {
        self.metrics.cells.count(reached);
    }

    /// Requests that it has in hand.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
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
