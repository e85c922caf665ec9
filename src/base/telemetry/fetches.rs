//! Metrics of what Weir fetches from other services: certificates by ACME, and keys behind URLs. A series exists once a
//! configuration has its name.

use prometheus::{GaugeVec, IntCounterVec};

use super::factory::MetricFactory;
use super::histogram::as_float;
use crate::base::time::Timestamp;

/// The results of a fetch.
const RESULTS: [&str; 2] = ["ok", "failed"];

/// The metrics of one kind of fetches, by name.
#[derive(Debug)]
pub struct FetchMetrics {
    fetches: IntCounterVec,
    time: GaugeVec,
}

impl FetchMetrics {
    pub(super) fn of_jwks(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        let fetches = ("weir_jwks_fetches_total", "Fetches of keys behind a URL.");
        let time = ("weir_jwks_last_success_timestamp_seconds", "When keys behind a URL were last fetched.");
        Self::new(make, "identity", fetches, time)
    }

    pub(super) fn of_acme(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        let fetches = ("weir_acme_orders_total", "Orders of certificates by ACME.");
        let time = "weir_acme_certificate_expiry_timestamp_seconds";
        Self::new(make, "domain", fetches, (time, "When the certificate by ACME expires; 0 without one."))
    }

    /// `label` is the label of the name. The fetches and the time have a metric each, with its help.
    fn new(
        make: &MetricFactory,
        label: &str,
        (fetches, fetches_help): (&str, &str),
        (time, time_help): (&str, &str),
    ) -> Result<Self, prometheus::Error> {
        let fetches = make.counters(fetches, fetches_help, &[label, "result"])?;
        Ok(Self { fetches, time: make.float_gauges(time, time_help, &[label])? })
    }

    /// Creates the series of `name` at 0.
    pub fn expose(&self, name: &str) {
        for result in RESULTS {
            self.fetches.with_label_values(&[name, result]);
        }
        self.time.with_label_values(&[name]);
    }

    /// Removes the series of `name`.
    pub fn remove(&self, name: &str) {
        // A missing series is no error.
        for result in RESULTS {
            let _ = self.fetches.remove_label_values(&[name, result]);
        }
        let _ = self.time.remove_label_values(&[name]);
    }

    /// Removes the times of all names.
    pub fn clear_times(&self) {
        self.time.reset();
    }

    /// Counts a fetch.
    pub fn count(&self, name: &str, is_good: bool) {
        let result = if is_good { "ok" } else { "failed" };
        self.fetches.with_label_values(&[name, result]).inc();
    }

    /// Records the time of `name`.
    pub fn set_time(&self, name: &str, at: Timestamp) {
        self.time.with_label_values(&[name]).set(as_float(at.as_secs()));
    }
}
