//! The `OpenMetrics` text format, version 1.0.0, without exemplars.
//!
//! Compared with the Prometheus format it adds `_created`, the start of each counter and histogram. Names of counter
//! families have no `_total`, and bounds of buckets are written as floats.

use std::fmt::Write as _;

use prometheus::proto::{Metric, MetricFamily, MetricType};

use crate::base::time::Timestamp;

/// The content type of the format.
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes families. All counters were 0 at `created`.
pub(super) fn encode(families: &[MetricFamily], created: Timestamp) -> String {
    let mut text = String::new();
    for family in families {
        encode_family(&mut text, family, created);
    }
    text.push_str("# EOF\n");
    text
}

fn encode_family(text: &mut String, family: &MetricFamily, created: Timestamp) {
    let (kind, name) = match family.get_field_type() {
        MetricType::COUNTER => ("counter", family.name().strip_suffix("_total").unwrap_or(family.name())),
        MetricType::HISTOGRAM => ("histogram", family.name()),
        _ => ("gauge", family.name()),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {}", escaped(family.help()));
    let created = Seconds(created);
    for metric in family.get_metric() {
        let labels = labels(metric);
        let set = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        match family.get_field_type() {
            MetricType::COUNTER => {
                let value = metric.get_counter().get_value();
                let _ = writeln!(text, "{name}_total{set} {value}\n{name}_created{set} {created}");
            }
            MetricType::HISTOGRAM => {
                encode_buckets(text, name, &labels, metric);
                let (count, sum) = (metric.get_histogram().get_sample_count(), metric.get_histogram().get_sample_sum());
                let _ =
                    writeln!(text, "{name}_count{set} {count}\n{name}_sum{set} {sum}\n{name}_created{set} {created}");
            }
            _ => {
                let _ = writeln!(text, "{name}{set} {}", metric.get_gauge().get_value());
            }
        }
    }
}

fn encode_buckets(text: &mut String, name: &str, labels: &str, metric: &Metric) {
    let histogram = metric.get_histogram();
    let finite = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let finite = finite.map(|bucket| (float(bucket.upper_bound()), bucket.cumulative_count()));
    let comma = if labels.is_empty() { "" } else { "," };
    for (bound, count) in finite.chain([("+Inf".to_owned(), histogram.get_sample_count())]) {
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
    }
}

fn labels(metric: &Metric) -> String {
    let pairs = metric.get_label().iter().map(|pair| format!("{}=\"{}\"", pair.name(), escaped(pair.value())));
    pairs.collect::<Vec<_>>().join(",")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

/// A bound in the form that the format requires: with a point, or with an exponent of two digits.
fn float(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-4 {
        let text = format!("{number:e}");
        return match text.split_once("e-") {
            Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
            None => text,
        };
    }
    format!("{number:?}")
}

/// A timestamp as unix seconds with milliseconds.
struct Seconds(Timestamp);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.0.as_ns() / 1_000_000;
        write!(f, "{}.{:03}", ms / 1000, ms % 1000)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

    use super::*;

    #[test]
    fn each_metric_type_has_its_series() {
        let registry = Registry::new();
        let counters = IntCounterVec::new(Opts::new("a_total", "Help with \"quotes\" and \\."), &["l"]).unwrap();
        counters.with_label_values(&["x\"\n"]).inc_by(3);
        let gauge = IntGauge::new("b", "A gauge.").unwrap();
        gauge.set(-2);
        let buckets = HistogramOpts::new("c_seconds", "DurationHistogram.").buckets(vec![0.00002, 0.0005, 1.0, 3600.0]);
        let histogram = Histogram::with_opts(buckets).unwrap();
        histogram.observe(0.25);
        registry.register(Box::new(counters)).unwrap();
        registry.register(Box::new(gauge)).unwrap();
        registry.register(Box::new(histogram)).unwrap();
        let text = encode(&registry.gather(), Timestamp::from_ns(1_700_000_000_042_000_000));
        insta::assert_snapshot!(text, @r#"
        # TYPE a counter
        # HELP a Help with \"quotes\" and \\.
        a_total{l="x\"\n"} 3
        a_created{l="x\"\n"} 1700000000.042
        # TYPE b gauge
        # HELP b A gauge.
        b -2
        # TYPE c_seconds histogram
        # HELP c_seconds DurationHistogram.
        c_seconds_bucket{le="2e-05"} 0
        c_seconds_bucket{le="0.0005"} 0
        c_seconds_bucket{le="1.0"} 1
        c_seconds_bucket{le="3600.0"} 1
        c_seconds_bucket{le="+Inf"} 1
        c_seconds_count 1
        c_seconds_sum 0.25
        c_seconds_created 1700000000.042
        # EOF
        "#);
    }
}
