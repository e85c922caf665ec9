//! Whether an endpoint is healthy, and whether it is drained, with its part of the gauges of both.
//!
//! Endpoints may share a series: the addresses of a name, and an endpoint before and after a change of its TLS name. A
//! request may keep an endpoint that the configuration has no more, which must not count then.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::telemetry::LiveGauge;

/// See the [module](self). Only the control runtime changes it.
#[derive(Debug)]
pub(super) struct Availability {
    /// The result of the health checks.
    is_healthy: AtomicBool,
    /// Whether an operator drains it.
    is_draining: AtomicBool,
    /// Whether the gauges are without it.
    is_retired: AtomicBool,
    healthy: LiveGauge,
    draining: LiveGauge,
}

impl Availability {
    /// Healthy and not drained.
    pub(super) fn new(healthy: LiveGauge, draining: LiveGauge) -> Self {
        healthy.inc();
        let [is_draining, is_retired] = [(); 2].map(|()| AtomicBool::new(false));
        Self { is_healthy: AtomicBool::new(true), is_draining, is_retired, healthy, draining }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    /// Returns whether this is a change.
    pub(super) fn set_healthy(&self, is_healthy: bool) -> bool {
        self.set(&self.is_healthy, &self.healthy, is_healthy)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Returns whether this is a change.
    pub(super) fn set_draining(&self, is_draining: bool) -> bool {
        self.set(&self.is_draining, &self.draining, is_draining)
    }

    fn set(&self, flag: &AtomicBool, gauge: &LiveGauge, value: bool) -> bool {
        let is_change = flag.swap(value, Ordering::Relaxed) != value;
        if is_change && !self.is_retired.load(Ordering::Relaxed) {
            gauge.add(if value { 1 } else { -1 });
        }
        is_change
    }

    /// Takes it out of the gauges for good.
    pub(super) fn retire(&self) {
        if self.is_retired.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.is_healthy() {
            self.healthy.dec();
        }
        if self.is_draining() {
            self.draining.dec();
        }
    }
}

impl Drop for Availability {
    fn drop(&mut self) {
        self.retire();
    }
}
