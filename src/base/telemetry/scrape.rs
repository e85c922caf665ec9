//! The sums of the cells of all threads, as a Prometheus collector.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricType};

use super::cells::{
    ByteCells, DurationHistogram, ENDPOINT_RESULTS, EndpointCells, EndpointResult, LIMIT_DECISIONS, LimitCells,
    OutcomeCells, StatusCells, UpstreamCells,
};
use super::histogram::{HistogramSnapshot, as_float};
use super::outcome::{Outcome, RefusedBy};

/// The counters that every request changes.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    descriptions: [Desc; 11],
    pub(super) outcomes: OutcomeCells,
    pub(super) statuses: StatusCells,
    pub(super) client_bytes: ByteCells,
    pub(super) overhead: DurationHistogram,
    by_limit: Arc<Mutex<HashMap<String, LimitCells>>>,
    by_store: Arc<Mutex<HashMap<String, DurationHistogram>>>,
    by_upstream: Arc<Mutex<HashMap<String, UpstreamCells>>>,
    /// Keyed by the names of upstream and endpoint.
    by_endpoint: ByEndpoint,
}

type ByEndpoint = Arc<Mutex<Vec<([String; 2], AddressCells)>>>;

/// The cells of all addresses of one endpoint.
#[derive(Debug, Default)]
struct AddressCells {
    in_use: Vec<EndpointCells>,
    /// The results at addresses that are no longer used.
    before: [u64; ENDPOINT_RESULTS.len()],
}

impl AddressCells {
    /// Keeps the counts of addresses that are no longer used, without their cells.
    fn retire(&mut self) {
        for cells in self.in_use.extract_if(.., |cells| cells.is_last()) {
            let results = ENDPOINT_RESULTS.iter().zip(&mut self.before);
            results.for_each(|((reached, _), before)| *before += cells.counted(*reached));
        }
    }

    /// How often this result was counted at all addresses.
    fn counted(&self, reached: EndpointResult) -> u64 {
        self.in_use.iter().fold(self.before[reached as usize], |sum, cells| sum + cells.counted(reached))
    }
}

/// 10 µs to 1 s, the range of Weir's overhead.
const OVERHEAD_BOUNDS_US: [u64; 12] = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];
/// 1 ms to 1 min, the range of upstream durations.
const UPSTREAM_BOUNDS_US: [u64; 12] =
    [1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 15_000_000, 60_000_000];
/// 1 ms to 10 s, the usual range of one address. Percentiles are exact to the distance of two bounds.
const ADDRESS_BOUNDS_US: [u64; 12] =
    [1000, 2500, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000];

/// 100 µs to 1 s, the range of calls of a store.
const STORE_BOUNDS_US: [u64; 12] =
    [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

/// A histogram with bounds in microseconds.
fn durations(bounds_us: [u64; 12]) -> DurationHistogram {
    DurationHistogram::new(bounds_us.map(|us| us * 1000))
}

impl Scrape {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let describe = |name: &str, help: &str, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())
        };
        Ok(Self {
            descriptions: [
                describe("weir_requests_total", "Requests by verdict.", &["verdict"])?,
                describe("weir_refused_requests_total", "Refused requests by reason.", &["by"])?,
                describe("weir_overhead_seconds", "Time that Weir adds to requests that do not wait.", &[])?,
                describe(
                    "weir_upstream_duration_seconds",
                    "Time from the start of forwarding to the response head.",
                    &["upstream"],
                )?,
                describe(
                    "weir_upstream_responses_total",
                    "Responses of each upstream, by class of status.",
                    &["upstream", "class"],
                )?,
                describe("weir_responses_total", "Responses to clients, by class of status.", &["class"])?,
                describe("weir_client_bytes_total", "Bytes from and to clients, without TLS.", &["direction"])?,
                describe("weir_limit_decisions_total", "Decisions of each limit.", &["limit", "decision"])?,
                describe("weir_limit_headroom_ratio", "Remaining / burst at decision time.", &["limit"])?,
                describe(
                    "weir_endpoint_requests_total",
                    "Requests sent to each endpoint, by result.",
                    &["upstream", "endpoint", "result"],
                )?,
                describe("weir_store_request_duration_seconds", "Time of the calls of stores.", &["store"])?,
            ],
            outcomes: OutcomeCells::default(),
            overhead: durations(OVERHEAD_BOUNDS_US),
            statuses: StatusCells::default(),
            client_bytes: ByteCells::default(),
            by_upstream: Arc::default(),
            by_limit: Arc::default(),
            by_store: Arc::default(),
            by_endpoint: Arc::default(),
        })
    }

    /// The cells of the limit `name`. Equal names have the same cells.
    pub(super) fn limit(&self, name: &str) -> LimitCells {
        let mut by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        by_limit.entry(name.to_owned()).or_default().clone()
    }

    /// The cells of the upstream `name`. Equal names have the same cells.
    pub(super) fn upstream(&self, name: &str) -> UpstreamCells {
        let mut by_upstream = self.by_upstream.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || UpstreamCells { statuses: StatusCells::default(), duration: durations(UPSTREAM_BOUNDS_US) };
        by_upstream.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Removes the cells of an upstream.
    pub(super) fn remove_upstream(&self, name: &str) {
        self.by_upstream.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The durations of the calls of the store `name`. Equal names have the same cells.
    pub(super) fn store(&self, name: &str) -> DurationHistogram {
        let mut by_store = self.by_store.lock().unwrap_or_else(PoisonError::into_inner);
        by_store.entry(name.to_owned()).or_insert_with(|| durations(STORE_BOUNDS_US)).clone()
    }
}

impl Scrape {
    /// Removes the cells of a store.
    pub(super) fn remove_store(&self, name: &str) {
        self.by_store.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// New cells for one more address of an endpoint. The series of an endpoint is the sum of its addresses.
    pub(super) fn address(&self, upstream: &str, endpoint: &str) -> EndpointCells {
        let mut by_endpoint = self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = EndpointCells::new(durations(ADDRESS_BOUNDS_US));
        if let Some((_, known)) = by_endpoint.iter_mut().find(|(known, _)| *known == [upstream, endpoint]) {
            known.retire();
            known.in_use.push(cells.clone());
        } else {
            let names = [upstream.to_owned(), endpoint.to_owned()];
            by_endpoint.push((names, AddressCells { in_use: vec![cells.clone()], ..AddressCells::default() }));
        }
        cells
    }

    /// Removes the cells of an endpoint.
    pub(super) fn remove_endpoint(&self, upstream: &str, endpoint: &str) {
        let mut by_endpoint = self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        by_endpoint.retain(|(known, _)| *known != [upstream, endpoint]);
    }
}

impl Collector for Scrape {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let [requests, refused, overhead, upstream, answers, statuses, bytes, decisions, headroom, endpoints, stores] =
            &self.descriptions;
        let by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = |(name, cells): (&String, &LimitCells)| {
            let of = |(decided, text)| counter(&[("decision", text), ("limit", name)], cells.counted(decided));
            LIMIT_DECISIONS.map(of)
        };
        let mut by_endpoint = self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = |([upstream, endpoint], addresses): &mut ([String; 2], AddressCells)| {
            addresses.retire();
            let names = [("endpoint", endpoint.as_str()), ("upstream", upstream)];
            ENDPOINT_RESULTS
                .map(|(reached, text)| counter(&[names[0], ("result", text), names[1]], addresses.counted(reached)))
        };
        let refusals = RefusedBy::ALL.map(|by| (by, self.outcomes.counted(Outcome::Refused(by))));
        let verdicts = Outcome::VERDICTS.map(|verdict| {
            let outcomes = Outcome::ALL.into_iter().filter(|outcome| outcome.verdict() == verdict);
            counter(&[("verdict", verdict)], outcomes.map(|outcome| self.outcomes.counted(outcome)).sum())
        });
        let by_upstream = self.by_upstream.lock().unwrap_or_else(PoisonError::into_inner);
        let upstream_durations =
            by_upstream.iter().map(|(name, cells)| histogram(&[("upstream", name)], cells.duration.observed()));
        let upstream_answers = |(name, cells): (&String, &UpstreamCells)| {
            cells.statuses.counted().map(|(class, count)| counter(&[("class", class), ("upstream", name)], count))
        };
        let by_store = self.by_store.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = by_store.iter().map(|(name, durations)| histogram(&[("store", name)], durations.observed()));
        let headrooms = by_limit.iter().map(|(name, cells)| histogram(&[("limit", name)], cells.headroom()));
        vec![
            family(requests, MetricType::COUNTER, verdicts.into()),
            family(
                refused,
                MetricType::COUNTER,
                refusals.map(|(by, count)| counter(&[("by", by.label())], count)).into(),
            ),
            family(overhead, MetricType::HISTOGRAM, vec![histogram(&[], self.overhead.observed())]),
            family(upstream, MetricType::HISTOGRAM, upstream_durations.collect()),
            family(answers, MetricType::COUNTER, by_upstream.iter().flat_map(upstream_answers).collect()),
            family(
                statuses,
                MetricType::COUNTER,
                self.statuses.counted().map(|(of, count)| counter(&[("class", of)], count)).into(),
            ),
            family(
                bytes,
                MetricType::COUNTER,
                self.client_bytes.counted().map(|(of, count)| counter(&[("direction", of)], count)).into(),
            ),
            family(decisions, MetricType::COUNTER, by_limit.iter().flat_map(decided).collect()),
            family(headroom, MetricType::HISTOGRAM, headrooms.collect()),
            family(endpoints, MetricType::COUNTER, by_endpoint.iter_mut().flat_map(reached).collect()),
            family(stores, MetricType::HISTOGRAM, calls.collect()),
        ]
    }
}

pub(super) fn family(description: &Desc, kind: MetricType, metrics: Vec<proto::Metric>) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(description.fq_name.clone());
    family.set_help(description.help.clone());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn counter(labels: &[(&str, &str)], count: u64) -> proto::Metric {
    counter_of(labels, as_float(count))
}

pub(super) fn counter_of(labels: &[(&str, &str)], value: f64) -> proto::Metric {
    let mut counter = proto::Counter::default();
    counter.set_value(value);
    let mut metric = labelled(labels);
    metric.set_counter(counter);
    metric
}

/// A gauge without labels.
pub(super) fn gauge(value: f64) -> proto::Metric {
    let mut gauge = proto::Gauge::default();
    gauge.set_value(value);
    let mut metric = labelled(&[]);
    metric.set_gauge(gauge);
    metric
}

fn histogram(labels: &[(&str, &str)], observed: HistogramSnapshot) -> proto::Metric {
    let bucket = |(bound, count)| {
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(observed.buckets.into_iter().map(bucket).collect());
    histogram.set_sample_count(observed.count);
    histogram.set_sample_sum(observed.sum);
    let mut metric = labelled(labels);
    metric.set_histogram(histogram);
    metric
}

fn labelled(labels: &[(&str, &str)]) -> proto::Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    proto::Metric::from_label(labels.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_median_is_less_than_twice_the_latency() {
        for ms in [1, 12, 30, 60, 120, 300, 600, 1200, 3000, 6000] {
            let cells = Scrape::new().unwrap().address("app", "a");
            (0..20).for_each(|_| cells.latency.observe(Duration::from_millis(ms)));
            let median = cells.latency.observed().quantile(0.5).unwrap();
            assert!(median < 2.0 * Duration::from_millis(ms).as_secs_f64(), "{ms} ms: {median} s");
        }
    }
}
