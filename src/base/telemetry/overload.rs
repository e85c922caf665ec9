//! The metrics of `[overload]`.

use prometheus::{Gauge, IntCounter};

use super::factory::MetricFactory;

/// The metrics of requests that are shed.
#[derive(Debug)]
pub struct OverloadMetrics {
    /// Requests that were shed, by priority from critical on. No critical request is shed.
    pub shed: [IntCounter; 3],
    /// The level of shedding, from 0 to 2.
    pub level: Gauge,
}

impl OverloadMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        let shed =
            make.counters("weir_shed_requests_total", "Requests refused under overload, by priority.", &["priority"])?;
        Ok(Self {
            shed: ["critical", "normal", "background"].map(|priority| shed.with_label_values(&[priority])),
            level: make.float_gauge(
                "weir_overload_level",
                "0: sheds nothing; 1: background requests; 2: normal ones too. Between, it sheds a part.",
            )?,
        })
    }
}
