//! Metrics of certificates by ACME. A series exists once a configuration has its host.

use prometheus::{GaugeVec, IntCounterVec};

use super::factory::MetricFactory;
use crate::base::time::Timestamp;

/// The metrics of certificates by ACME, by their first host.
#[derive(Debug)]
pub struct AcmeMetrics {
    orders: IntCounterVec,
    expiry: GaugeVec,
}

impl AcmeMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        Ok(Self {
            orders: make.counters(
                "weir_acme_orders_total",
                "Orders of certificates by ACME.",
                &["domain", "result"],
            )?,
            expiry: make.float_gauges(
                "weir_acme_certificate_expiry_timestamp_seconds",
                "When the certificate by ACME expires; 0 without one.",
                &["domain"],
            )?,
        })
    }

    /// Creates the series of a certificate at 0.
    pub fn expose(&self, domain: &str) {
        for result in ["ok", "failed"] {
            self.orders.with_label_values(&[domain, result]);
        }
        self.expiry.with_label_values(&[domain]);
    }

    /// Removes the end of a certificate that is no longer configured.
    pub fn clear(&self) {
        self.expiry.reset();
    }

    /// Counts an order.
    pub fn ordered(&self, domain: &str, is_good: bool) {
        let result = if is_good { "ok" } else { "failed" };
        self.orders.with_label_values(&[domain, result]).inc();
    }

    /// Records the end of the certificate in use.
    #[allow(clippy::cast_precision_loss)] // seconds, exact to the year 285 million
    pub fn expires(&self, domain: &str, at: Timestamp) {
        self.expiry.with_label_values(&[domain]).set(at.as_secs() as f64);
    }
}
