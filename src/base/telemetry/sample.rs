//! Values of metrics for pages of operators.

use prometheus::proto::{Histogram, MetricType};

use super::histogram::as_float;
use super::metrics::Metrics;

/// The value of one series. A histogram is its mean; a histogram without observations has no sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the metric.
    pub metric: String,
    /// The values of the labels, in the order of their names.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}

impl Metrics {
    /// The series of the metrics with these names. Gathers all metrics, so it costs as much as a scrape.
    pub fn samples(&self, metrics: &[&str]) -> Vec<Sample> {
        let mut samples = Vec::new();
        for family in self.gather().iter().filter(|family| metrics.contains(&family.name())) {
            for series in family.get_metric() {
                let labels = series.get_label().iter().map(|pair| pair.value().to_owned()).collect();
                let value = match family.get_field_type() {
                    MetricType::COUNTER => series.get_counter().get_value(),
                    MetricType::HISTOGRAM => match mean(series.get_histogram()) {
                        Some(mean) => mean,
                        None => continue,
                    },
                    _ => series.get_gauge().get_value(),
                };
                samples.push(Sample { metric: family.name().to_owned(), labels, value });
            }
        }
        samples
    }
}

/// The mean of all observations; `None` without observations.
fn mean(histogram: &Histogram) -> Option<f64> {
    let count = histogram.get_sample_count();
    (count > 0).then(|| histogram.get_sample_sum() / as_float(count))
}

#[cfg(test)]
mod tests {
    use super::super::{LimitDecision, Outcome};
    use super::*;

    #[test]
    fn samples_are_counters_gauges_and_means() {
        let metrics = Metrics::new("", "").unwrap();
        metrics.count(Outcome::Held);
        metrics.operator_bans.set(3);
        let limit = metrics.limit("l");
        let names = ["weir_requests_total", "weir_operator_bans", "weir_limit_headroom_ratio"];
        let value = |metric: &str, labels: &[&str]| {
            let found = metrics.samples(&names).into_iter().find(|one| one.metric == metric && one.labels == labels);
            found.map(|one| one.value)
        };
        assert_eq!(value("weir_requests_total", &["held"]), Some(1.0));
        assert_eq!(value("weir_requests_total", &["refused"]), Some(0.0));
        assert_eq!(value("weir_operator_bans", &[]), Some(3.0));
        assert_eq!(value("weir_limit_headroom_ratio", &["l"]), None);
        limit.cells.decided(LimitDecision::Admitted, 100);
        limit.cells.decided(LimitDecision::Refused, 0);
        assert_eq!(value("weir_limit_headroom_ratio", &["l"]), Some(0.5));
        assert_eq!(value("weir_connections", &[]), None);
    }
}
