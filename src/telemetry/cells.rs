//! What every decision counts, in cells of which each thread has its own, summed when they are scraped.
//!
//! A shared counter costs a cache line that moves between cores on every request; these cost two additions
//! in a line that stays. Threads beyond [`THREADS`] share cells with earlier ones, which costs time but no count.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto;

/// What a limit said to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It let it pass, at once or after a wait.
    Admitted,
    /// It made it wait.
    Held,
    /// It refused it.
    Rejected,
    /// It would have refused it, were it not in shadow mode.
    ShadowRejected,
}

const DECIDED: [(Decided, &str); 4] = [
    (Decided::Admitted, "admitted"),
    (Decided::Held, "held"),
    (Decided::Rejected, "rejected"),
    (Decided::ShadowRejected, "shadow_rejected"),
];

/// Upper bounds of the parts that may remain, in percent; the last bucket has none.
const HEADROOM_PERCENT: [u64; 6] = [0, 10, 25, 50, 75, 90];
const BUCKETS: usize = HEADROOM_PERCENT.len() + 1;

/// Threads that count without touching each other.
const THREADS: usize = 16;

/// The cells of one limit.
#[derive(Clone, Debug)]
pub struct LimitCells(Arc<PerThread>);

type PerThread = [ThreadCells; THREADS];

/// Two cache lines, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadCells {
    decided: [AtomicU64; DECIDED.len()],
    headroom: [AtomicU64; BUCKETS],
    /// Percents that remained, added up.
    percents: AtomicU64,
}

impl LimitCells {
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Counts a decision.
    pub fn count(&self, decided: Decided) {
        self.mine().decided[decided as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what remained of `burst`, which is at least 1.
    pub fn headroom(&self, remaining: u64, burst: u64) {
        let percent = remaining.saturating_mul(100) / burst.max(1);
        let bucket = HEADROOM_PERCENT.iter().position(|bound| percent <= *bound).unwrap_or(BUCKETS - 1);
        let mine = self.mine();
        mine.headroom[bucket].fetch_add(1, Ordering::Relaxed);
        mine.percents.fetch_add(percent, Ordering::Relaxed);
    }

    /// How often this was decided.
    pub fn counted(&self, decided: Decided) -> u64 {
        self.sum(|cells| &cells.decided[decided as usize])
    }

    fn sum(&self, cell: impl Fn(&ThreadCells) -> &AtomicU64) -> u64 {
        self.0.iter().map(|cells| cell(cells).load(Ordering::Relaxed)).sum()
    }

    fn mine(&self) -> &ThreadCells {
        &self.0[thread_number() % THREADS]
    }
}

/// Threads are numbered in the order in which they first count.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The cells of all limits, as a scrape sees them.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    descriptions: [Desc; 2],
    by_limit: Arc<Mutex<Vec<(String, LimitCells)>>>,
}

impl Cells {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let describe = |name: &str, help: &str, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(name.to_owned(), help.to_owned(), labels, std::collections::HashMap::new())
        };
        let decisions = describe("weir_limit_decisions_total", "Decisions of each limit.", &["limit", "decision"])?;
        let headroom = describe("weir_limit_headroom_ratio", "Remaining / burst at decision time.", &["limit"])?;
        Ok(Self { descriptions: [decisions, headroom], by_limit: Arc::default() })
    }

    /// The cells of the limit `name`; the same for the same name.
    pub(super) fn limit(&self, name: &str) -> LimitCells {
        let mut by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cells)) = by_limit.iter().find(|(known, _)| known == name) {
            return cells.clone();
        }
        let cells = LimitCells::new();
        by_limit.push((name.to_owned(), cells.clone()));
        cells
    }
}

impl Collector for Cells {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut decisions = family(&self.descriptions[0], proto::MetricType::COUNTER);
        let mut headrooms = family(&self.descriptions[1], proto::MetricType::HISTOGRAM);
        for (name, cells) in &*by_limit {
            for (decided, text) in DECIDED {
                let mut counter = proto::Counter::default();
                counter.set_value(as_float(cells.counted(decided)));
                let mut metric = labelled(&[("decision", text), ("limit", name)]);
                metric.set_counter(counter);
                decisions.mut_metric().push(metric);
            }
            let mut metric = labelled(&[("limit", name)]);
            metric.set_histogram(headroom(cells));
            headrooms.mut_metric().push(metric);
        }
        vec![decisions, headrooms]
    }
}

fn headroom(cells: &LimitCells) -> proto::Histogram {
    let mut histogram = proto::Histogram::default();
    let mut count = 0;
    let mut buckets = Vec::with_capacity(HEADROOM_PERCENT.len());
    for (index, percent) in HEADROOM_PERCENT.into_iter().enumerate() {
        count += cells.sum(|cells| &cells.headroom[index]);
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(as_float(percent) / 100.0);
        bucket.set_cumulative_count(count);
        buckets.push(bucket);
    }
    histogram.set_bucket(buckets);
    histogram.set_sample_count(count + cells.sum(|cells| &cells.headroom[BUCKETS - 1]));
    histogram.set_sample_sum(as_float(cells.sum(|cells| &cells.percents)) / 100.0);
    histogram
}

fn family(description: &Desc, kind: proto::MetricType) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(description.fq_name.clone());
    family.set_help(description.help.clone());
    family.set_field_type(kind);
    family
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

#[allow(clippy::cast_precision_loss)] // Prometheus has no other numbers
fn as_float(count: u64) -> f64 {
    count as f64
}
