//! The metrics of the limiter service.

use prometheus::{Error, IntCounter, IntCounterVec};

use super::factory::MetricFactory;
use super::gauge::LiveGauge;

/// The metrics of the limiter service.
#[derive(Clone, Debug)]
pub struct CheckMetrics {
    /// Checks by `weir.v1.Limiter`.
    pub limiter: CheckCounters,
    /// Checks by Envoy's rate limit service.
    pub rate_limit: CheckCounters,
    /// Calls of other Weirs that charge keys; a limit that is not alike here counts as unmatched.
    pub charges: CheckCounters,
    /// Calls with invalid arguments.
    pub invalid: IntCounter,
    /// Open connections.
    pub connections: LiveGauge,
    /// Connections closed unserved at the bound.
    pub connections_refused: IntCounter,
}

/// The checks of one service by result.
#[derive(Clone, Debug)]
pub struct CheckCounters {
    /// All limits admitted it.
    pub allowed: IntCounter,
    /// A limit refused it.
    pub refused: IntCounter,
    /// No rule fitted it; of Envoy's descriptors each counts.
    pub unmatched: IntCounter,
}

impl CheckMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, Error> {
        let checks = make.counters(
            "weir_grpc_checks_total",
            "Checks of the limiter service, and descriptors that no rule fits.",
            &["service", "result"],
        )?;
        let of = |service| CheckCounters::new(&checks, service);
        Ok(Self {
            limiter: of("limiter"),
            rate_limit: of("rate_limit"),
            charges: of("charges"),
            invalid: make.counter("weir_grpc_invalid_total", "Invalid and overlong calls of the limiter service.")?,
            connections: make.live_gauge("weir_grpc_connections", "gRPC connections open now.")?,
            connections_refused: make
                .counter("weir_grpc_connections_refused_total", "gRPC connections closed unserved at the bound.")?,
        })
    }
}

impl CheckCounters {
    fn new(checks: &IntCounterVec, service: &str) -> Self {
        let [allowed, refused, unmatched] =
            ["allowed", "refused", "unmatched"].map(|result| checks.with_label_values(&[service, result]));
        Self { allowed, refused, unmatched }
    }
}
