//! Metrics of upstreams and their endpoints.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};

use super::cells::{EndpointCells, UpstreamCells};
use super::factory::MetricFactory;
use super::gauge::LiveGauge;

/// The metrics of one address of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointMetrics {
    /// Requests that were sent to the address.
    pub cells: EndpointCells,
    /// Addresses of the endpoint, except those whose health checks fail.
    pub healthy: LiveGauge,
    /// Addresses of the endpoint that operators drain.
    pub draining: LiveGauge,
    /// Ejections, each after repeated failures.
    pub ejections: IntCounter,
    /// Open connections to the endpoint.
    pub connections: LiveGauge,
}

/// The metrics of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    /// Responses and their durations.
    pub cells: UpstreamCells,
    /// Requests that wait for a connection.
    pub queued: LiveGauge,
    /// Requests refused because the queue was full.
    pub queue_full: IntCounter,
    /// Requests refused because no connection became free in time.
    pub queue_timeout: IntCounter,
}

const CONNECTIONS: &str = "weir_endpoint_connections";
const HEALTHY: &str = "weir_endpoint_healthy";
const DRAINING: &str = "weir_endpoint_draining";
const QUEUED: &str = "weir_upstream_queued";

#[derive(Debug)]
pub(super) struct EndpointVecs {
    healthy: IntGaugeVec,
    draining: IntGaugeVec,
    ejections: IntCounterVec,
    connections: IntGaugeVec,
    queued: IntGaugeVec,
    queue_refused: IntCounterVec,
}

impl EndpointVecs {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        let labels = ["upstream", "endpoint"];
        Ok(Self {
            healthy: make.gauges(HEALTHY, "Healthy addresses of each endpoint.", &labels)?,
            draining: make.gauges(DRAINING, "Addresses of each endpoint that operators drain.", &labels)?,
            ejections: make.counters(
                "weir_endpoint_ejections_total",
                "Ejections of each endpoint after repeated failures.",
                &labels,
            )?,
            connections: make.gauges(CONNECTIONS, "Connections to each endpoint.", &labels)?,
            queued: make.gauges(QUEUED, "Requests that wait for a connection.", &["upstream"])?,
            queue_refused: make.counters(
                "weir_upstream_queue_refused_total",
                "Requests without a connection, because the queue was full or the wait too long.",
                &["upstream", "reason"],
            )?,
        })
    }

    pub(super) fn endpoint(&self, upstream: &str, endpoint: &str, cells: EndpointCells) -> EndpointMetrics {
        let labels = [upstream, endpoint];
        EndpointMetrics {
            cells,
            healthy: LiveGauge::new(self.healthy.with_label_values(&labels), HEALTHY, endpoint),
            draining: LiveGauge::new(self.draining.with_label_values(&labels), DRAINING, endpoint),
            ejections: self.ejections.with_label_values(&labels),
            connections: LiveGauge::new(self.connections.with_label_values(&labels), CONNECTIONS, endpoint),
        }
    }

    pub(super) fn upstream(&self, name: &str, cells: UpstreamCells) -> UpstreamMetrics {
        let refused = |reason| self.queue_refused.with_label_values(&[name, reason]);
        UpstreamMetrics {
            cells,
            queued: LiveGauge::new(self.queued.with_label_values(&[name]), QUEUED, name),
            queue_full: refused("full"),
            queue_timeout: refused("timeout"),
        }
    }

    pub(super) fn remove_upstream(&self, name: &str) {
        // A missing series is no error.
        let _ = self.queued.remove_label_values(&[name]);
        for reason in ["full", "timeout"] {
            let _ = self.queue_refused.remove_label_values(&[name, reason]);
        }
    }

    pub(super) fn remove_endpoint(&self, upstream: &str, endpoint: &str) {
        // A missing series is no error.
        let _ = self.healthy.remove_label_values(&[upstream, endpoint]);
        let _ = self.draining.remove_label_values(&[upstream, endpoint]);
        let _ = self.ejections.remove_label_values(&[upstream, endpoint]);
        let _ = self.connections.remove_label_values(&[upstream, endpoint]);
    }
}
