//! Metrics of stores and their nodes, and of limits whose state is in a store.

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::cells::DurationHistogram;
use super::factory::MetricFactory;

/// The metrics of one store.
#[derive(Debug)]
pub struct StoreMetrics {
    /// The time from a call to its reply, or to its timeout.
    pub duration: DurationHistogram,
    /// Reports that were dropped at the bound.
    pub dropped: IntCounter,
    name: Box<str>,
    up: IntGaugeVec,
    errors: IntCounterVec,
    clock_ahead: GaugeVec,
    /// Whether another store may show series of the same names.
    is_retired: AtomicBool,
}

/// The metrics of one limit whose state is in a store.
#[derive(Clone, Debug)]
pub struct RemoteLimitMetrics {
    /// Decisions without the store.
    pub fallback: IntCounter,
    /// Units that this process has borrowed and not spent; `None` if the limit has no leases.
    pub lease_units: Option<IntGauge>,
}

impl StoreMetrics {
    /// 1 while requests go to the node; `None` for a retired store.
    pub fn up(&self, node: &str) -> Option<IntGauge> {
        (!self.is_retired()).then(|| self.up.with_label_values(&[&self.name, node]))
    }

    /// Calls that failed for one reason.
    pub fn errors(&self, kind: &str) -> IntCounter {
        self.errors.with_label_values(&[&self.name, kind])
    }

    /// Records by how many nanoseconds the time of the fleet is ahead of the clock of this process.
    #[allow(clippy::cast_precision_loss)] // seconds and their fractions
    pub fn clock_ahead(&self, ahead_ns: i64) {
        if !self.is_retired() {
            self.clock_ahead.with_label_values(&[&self.name]).set(ahead_ns as f64 / 1e9);
        }
    }

    /// Removes the series of a node.
    pub fn remove_node(&self, node: &str) {
        if !self.is_retired() {
            self.remove(node);
        }
    }

    /// Removes the series of these nodes. From now on the store shows nothing: another one may have its name.
    pub fn retire<'n>(&self, nodes: impl Iterator<Item = &'n String>) {
        self.is_retired.store(true, Ordering::Relaxed);
        nodes.for_each(|node| self.remove(node));
    }

    /// Whether the store is in force no more, and works only for requests that it has charged.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    fn remove(&self, node: &str) {
        // A missing series is no error.
        let _ = self.up.remove_label_values(&[&self.name, node]);
    }
}

#[derive(Debug)]
pub(super) struct StoreVecs {
    up: IntGaugeVec,
    errors: IntCounterVec,
    dropped: IntCounterVec,
    fallback: IntCounterVec,
    pub(super) lease_units: IntGaugeVec,
    clock_ahead: GaugeVec,
    pub(super) bound: GaugeVec,
}

impl StoreVecs {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        Ok(Self {
            up: make.gauges("weir_store_up", "1 while the node of the store decides.", &["store", "node"])?,
            errors: make.counters("weir_store_errors_total", "Failed calls of stores.", &["store", "kind"])?,
            dropped: make.counters(
                "weir_store_reports_dropped_total",
                "Refunds and settlements that a store never got, because too many waited.",
                &["store"],
            )?,
            fallback: make.counters(
                "weir_fallback_decisions_total",
                "Decisions of limits without their store.",
                &["limit"],
            )?,
            lease_units: make.gauges("weir_lease_units", "Borrowed units that are not spent.", &["limit"])?,
            clock_ahead: make.float_gauges(
                "weir_store_clock_ahead_seconds",
                "Seconds by which the time that replicas share is ahead of the clock of this one.",
                &["store"],
            )?,
            bound: make.float_gauges(
                "weir_fleet_bound_ratio",
                "Most that the fleet admits of the limit now, as a multiple of it.",
                &["limit"],
            )?,
        })
    }

    pub(super) fn store(&self, name: &str, duration: DurationHistogram) -> StoreMetrics {
        StoreMetrics {
            duration,
            dropped: self.dropped.with_label_values(&[name]),
            name: name.into(),
            up: self.up.clone(),
            errors: self.errors.clone(),
            clock_ahead: self.clock_ahead.clone(),
            is_retired: AtomicBool::new(false),
        }
    }

    pub(super) fn remove_store<'k>(&self, name: &str, kinds: impl Iterator<Item = &'k str>) {
        // A missing series is no error.
        let _ = self.dropped.remove_label_values(&[name]);
        let _ = self.clock_ahead.remove_label_values(&[name]);
        for kind in kinds {
            let _ = self.errors.remove_label_values(&[name, kind]);
        }
    }

    pub(super) fn limit(&self, name: &str, has_leases: bool) -> RemoteLimitMetrics {
        let lease_units = has_leases.then(|| self.lease_units.with_label_values(&[name]));
        RemoteLimitMetrics { fallback: self.fallback.with_label_values(&[name]), lease_units }
    }
}
