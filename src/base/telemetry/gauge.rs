//! Gauges whose changes are events of the log.

use std::sync::Arc;

use prometheus::IntGauge;
use prometheus::core::{Atomic, GenericGaugeVec};

/// A number of things that exist now. Each change is an event of the log at level `trace`, after the change.
///
/// At a less detailed level, an event costs one relaxed load.
#[derive(Clone, Debug)]
pub struct LiveGauge {
    gauge: IntGauge,
    /// The name of the metric.
    metric: &'static str,
    /// The name of the limit, upstream or endpoint; empty for a gauge of the process.
    of: Arc<str>,
}

impl LiveGauge {
    pub(super) fn new(gauge: IntGauge, metric: &'static str, of: &str) -> Self {
        Self { gauge, metric, of: of.into() }
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away.
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Adds `change`, which may be negative.
    pub fn add(&self, change: i64) {
        self.gauge.add(change);
        if change != 0 {
            tracing::trace!(metric = self.metric, of = &*self.of, change, "gauge");
        }
    }

    /// The current number.
    pub fn get(&self) -> i64 {
        self.gauge.get()
    }
}

/// Sets the series of a limit; removes it if there is no value.
pub(super) fn set_or_remove<P: Atomic>(gauges: &GenericGaugeVec<P>, limit: &str, value: Option<P::T>) {
    match value {
        Some(value) => gauges.with_label_values(&[limit]).set(value),
        // A missing series is no error.
        None => _ = gauges.remove_label_values(&[limit]),
    }
}
