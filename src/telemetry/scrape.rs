//! The sums of the cells of all threads, as a Prometheus collector.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricType};

use super::cells::{
    DurationHistogram, ENDPOINT_RESULTS, EndpointCells, HistogramSnapshot, LIMIT_DECISIONS, LimitCells, OutcomeCells,
    as_float,
};
use super::outcome::Outcome;

/// The counters that every request changes.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    descriptions: [Desc; 7],
    pub(super) outcomes: OutcomeCells,
    pub(super) overhead: DurationHistogram,
    pub(super) upstream: DurationHistogram,
    by_limit: Arc<Mutex<HashMap<String, LimitCells>>>,
    by_store: Arc<Mutex<HashMap<String, DurationHistogram>>>,
    /// Keyed by the names of upstream and endpoint.
    by_endpoint: ByEndpoint,
}

type ByEndpoint = Arc<Mutex<Vec<([String; 2], EndpointCells)>>>;

/// 10 µs to 1 s, the range of Weir's overhead.
const OVERHEAD_BOUNDS_US: [u64; 12] = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];
/// 1 ms to 1 min, the range of upstream durations.
const UPSTREAM_BOUNDS_US: [u64; 12] =
    [1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 15_000_000, 60_000_000];

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
                describe("weir_overhead_seconds", "Time that Weir adds to requests that do not wait.", &[])?,
                describe(
                    "weir_upstream_duration_seconds",
                    "Time from the start of forwarding to the response head.",
                    &[],
                )?,
                describe("weir_limit_decisions_total", "Decisions of each limit.", &["limit", "decision"])?,
                describe("weir_limit_headroom_ratio", "Remaining / burst at decision time.", &["limit"])?,
                describe(
                    "weir_endpoint_requests_total",
                    "Requests sent to each endpoint, by result.",
                    &["upstream", "endpoint", "result"],
                )?,
                describe("weir_store_request_duration_seconds", "Time of the calls of stores.", &["store"])?,
            ],
            outcomes: OutcomeCells::new(),
            overhead: durations(OVERHEAD_BOUNDS_US),
            upstream: durations(UPSTREAM_BOUNDS_US),
            by_limit: Arc::default(),
            by_store: Arc::default(),
            by_endpoint: Arc::default(),
        })
    }

    /// The cells of the limit `name`. Equal names have the same cells.
    pub(super) fn limit(&self, name: &str) -> LimitCells {
        let mut by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        by_limit.entry(name.to_owned()).or_insert_with(LimitCells::new).clone()
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

    /// The cells of an endpoint. Equal names have the same cells.
    pub(super) fn endpoint(&self, upstream: &str, endpoint: &str) -> EndpointCells {
        let mut by_endpoint = self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cells)) = by_endpoint.iter().find(|(known, _)| *known == [upstream, endpoint]) {
            return cells.clone();
        }
        let cells = EndpointCells::new();
        by_endpoint.push(([upstream.to_owned(), endpoint.to_owned()], cells.clone()));
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
        let [requests, overhead, upstream, decisions, headroom, endpoints, stores] = &self.descriptions;
        let by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = |(name, cells): (&String, &LimitCells)| {
            let of = |(decided, text)| counter(&[("decision", text), ("limit", name)], cells.counted(decided));
            LIMIT_DECISIONS.map(of)
        };
        let by_endpoint = self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = |([upstream, endpoint], cells): &([String; 2], EndpointCells)| {
            let names = [("endpoint", endpoint.as_str()), ("upstream", upstream)];
            ENDPOINT_RESULTS
                .map(|(reached, text)| counter(&[names[0], ("result", text), names[1]], cells.counted(reached)))
        };
        let outcomes =
            Outcome::ALL.map(|outcome| counter(&[("verdict", outcome.label())], self.outcomes.counted(outcome)));
        let by_store = self.by_store.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = by_store.iter().map(|(name, durations)| histogram(&[("store", name)], durations.observed()));
        let headrooms = by_limit.iter().map(|(name, cells)| histogram(&[("limit", name)], cells.headroom()));
        vec![
            family(requests, MetricType::COUNTER, outcomes.into()),
            family(overhead, MetricType::HISTOGRAM, vec![histogram(&[], self.overhead.observed())]),
            family(upstream, MetricType::HISTOGRAM, vec![histogram(&[], self.upstream.observed())]),
            family(decisions, MetricType::COUNTER, by_limit.iter().flat_map(decided).collect()),
            family(headroom, MetricType::HISTOGRAM, headrooms.collect()),
            family(endpoints, MetricType::COUNTER, by_endpoint.iter().flat_map(reached).collect()),
            family(stores, MetricType::HISTOGRAM, calls.collect()),
        ]
    }
}

fn family(description: &Desc, kind: MetricType, metrics: Vec<proto::Metric>) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(description.fq_name.clone());
    family.set_help(description.help.clone());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn counter(labels: &[(&str, &str)], count: u64) -> proto::Metric {
    let mut counter = proto::Counter::default();
    counter.set_value(as_float(count));
    let mut metric = labelled(labels);
    metric.set_counter(counter);
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
