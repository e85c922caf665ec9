//! Counters in cells. Each thread has cells of its own, and a scrape adds them up.
//!
//! A shared counter costs a transfer of a cache line between cores on every request, and an atomic addition even
//! without the transfer. A cell with one writer costs neither. Threads beyond the first [`ALONE`] share one set of
//! cells and pay for it. Not here: the form of these counters for Prometheus (`scrape.rs`).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::outcome::Outcome;
use crate::time::saturating_ns;

/// The result of one limit for a request, as `weir_limit_decisions_total` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitDecision {
    /// The limit admits the request, at once or after a wait.
    Admitted,
    /// The request waits.
    Held,
    /// The limit refuses the request.
    Rejected,
    /// A limit in shadow mode would refuse the request.
    ShadowRejected,
    /// A limit in shadow mode would hold the request.
    ShadowHeld,
}

/// All results in the order of their discriminants, with their labels.
pub(super) const LIMIT_DECISIONS: [(LimitDecision, &str); 5] = [
    (LimitDecision::Admitted, "admitted"),
    (LimitDecision::Held, "held"),
    (LimitDecision::Rejected, "rejected"),
    (LimitDecision::ShadowRejected, "shadow_rejected"),
    (LimitDecision::ShadowHeld, "shadow_held"),
];

/// Upper bounds of the buckets of the headroom, in percent.
const HEADROOM_PERCENT: [u64; 6] = [0, 10, 25, 50, 75, 90];

/// The bucket of each percent, looked up by every decision. The length is a power of two, so an index needs no check.
const HEADROOM_BUCKET: [u8; 128] = {
    let (mut buckets, mut percent, mut bucket) = ([0; 128], 0, 0);
    while percent < buckets.len() {
        if (bucket as usize) < HEADROOM_PERCENT.len() && HEADROOM_PERCENT[bucket as usize] < percent as u64 {
            bucket += 1;
        }
        buckets[percent] = bucket;
        percent += 1;
    }
    buckets
};

/// The counters of one limit.
#[derive(Clone, Debug)]
pub struct LimitCells(CellsByThread<LIMIT_CELLS>);

/// The results, the buckets of the headroom, a bucket above all bounds, and the sum of the percents.
const LIMIT_CELLS: usize = LIMIT_DECISIONS.len() + HEADROOM_PERCENT.len() + 2;

impl LimitCells {
    pub(super) fn new() -> Self {
        Self(CellsByThread::new())
    }

    /// Counts a result without a headroom.
    pub fn count(&self, decided: LimitDecision) {
        self.0.of_thread().add(decided as usize, 1);
    }

    /// Counts a result and its headroom, in percent of the burst, at most 100.
    #[inline]
    pub fn decided(&self, decided: LimitDecision, percent: u64) {
        let of_thread = self.0.of_thread();
        of_thread.add(decided as usize, 1);
        let bucket = HEADROOM_BUCKET[usize::try_from(percent).unwrap_or(0) % HEADROOM_BUCKET.len()];
        of_thread.add(LIMIT_DECISIONS.len() + usize::from(bucket), 1);
        of_thread.add(LIMIT_CELLS - 1, percent);
    }

    /// The number of times that this result was counted.
    pub fn counted(&self, decided: LimitDecision) -> u64 {
        self.0.sum(decided as usize)
    }

    /// The headroom, as a part of 1.
    pub fn headroom(&self) -> HistogramSnapshot {
        self.0.observed(LIMIT_DECISIONS.len(), &HEADROOM_PERCENT, 100.0)
    }
}

/// The counters of the outcomes of requests.
#[derive(Clone, Debug)]
pub(super) struct OutcomeCells(CellsByThread<{ Outcome::ALL.len() }>);

impl OutcomeCells {
    pub(super) fn new() -> Self {
        Self(CellsByThread::new())
    }

    #[inline]
    pub(super) fn count(&self, outcome: Outcome) {
        self.0.of_thread().add(outcome as usize, 1);
    }

    pub(super) fn counted(&self, outcome: Outcome) -> u64 {
        self.0.sum(outcome as usize)
    }
}

/// The result of a request at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointResult {
    /// The endpoint sent a response with a status other than 502, 503 and 504.
    Answered,
    /// The endpoint was unreachable, broke off, or sent 502, 503 or 504.
    Failed,
}

/// All results in the order of their discriminants, with their labels.
pub(super) const ENDPOINT_RESULTS: [(EndpointResult, &str); 2] =
    [(EndpointResult::Answered, "answered"), (EndpointResult::Failed, "failed")];

/// The counters of one endpoint.
#[derive(Clone, Debug)]
pub struct EndpointCells(CellsByThread<{ ENDPOINT_RESULTS.len() }>);

impl EndpointCells {
    pub(super) fn new() -> Self {
        Self(CellsByThread::new())
    }

    /// Counts a request.
    pub fn count(&self, reached: EndpointResult) {
        self.0.of_thread().add(reached as usize, 1);
    }

    pub(super) fn counted(&self, reached: EndpointResult) -> u64 {
        self.0.sum(reached as usize)
    }
}

/// The number of upper bounds of a histogram.
const DURATION_BOUNDS: usize = 12;

/// A histogram of durations, without labels.
#[derive(Clone, Debug)]
pub struct DurationHistogram {
    /// A bucket for each bound, a bucket above all bounds, and the sum in nanoseconds.
    cells: CellsByThread<{ DURATION_BOUNDS + 2 }>,
    bounds_ns: [u64; DURATION_BOUNDS],
}

impl DurationHistogram {
    /// An empty histogram with these upper bounds in nanoseconds.
    pub(super) fn new(bounds_ns: [u64; DURATION_BOUNDS]) -> Self {
        Self { cells: CellsByThread::new(), bounds_ns }
    }

    /// Adds a duration.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        self.cells.of_thread().observe(0, &self.bounds_ns, saturating_ns(duration));
    }

    /// The histogram in seconds.
    pub fn observed(&self) -> HistogramSnapshot {
        self.cells.observed(0, &self.bounds_ns, 1e9)
    }
}

/// The values of a histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// Each upper bound, and the number of values up to it.
    pub buckets: Vec<(f64, u64)>,
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: f64,
}

impl HistogramSnapshot {
    /// The values that came after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let bucket =
            |((bound, count), (_, before)): (&(f64, u64), &(f64, u64))| (*bound, count.saturating_sub(*before));
        Self {
            buckets: self.buckets.iter().zip(&before.buckets).map(bucket).collect(),
            count: self.count.saturating_sub(before.count),
            sum: self.sum - before.sum,
        }
    }

    /// The mean of the values; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / as_float(self.count))
    }

    /// The value below which `part` of the values are, with even distances between the values of a bucket; the last
    /// bound if it is above that. `None` without values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = part * as_float(self.count);
        let (mut from, mut below) = (0.0, 0);
        for (bound, count) in &self.buckets {
            if as_float(*count) >= rank && *count > below {
                return Some(from + (bound - from) * (rank - as_float(below)) / as_float(count - below));
            }
            (from, below) = (*bound, *count);
        }
        (self.count > 0).then_some(from)
    }
}

/// The number of threads that have cells of their own: the first threads that count, which are the workers.
const ALONE: usize = 15;

/// `N` cells for each thread. All later threads share the last set.
#[derive(Clone, Debug)]
struct CellsByThread<const N: usize>(Arc<[Cells<N>; ALONE + 1]>);

/// Cells two cache lines apart from those of other threads, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Cells<const N: usize>([AtomicU64; N]);

/// The cells of the current thread, and whether no other thread writes to them.
struct ThreadCells<'c> {
    cells: &'c [AtomicU64],
    is_alone: bool,
}

impl<const N: usize> CellsByThread<N> {
    fn new() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Cells(std::array::from_fn(|_| AtomicU64::new(0))))))
    }

    #[inline]
    fn of_thread(&self) -> ThreadCells<'_> {
        let number = thread_number();
        ThreadCells { cells: &self.0[number.min(ALONE)].0, is_alone: number < ALONE }
    }

    fn sum(&self, cell: usize) -> u64 {
        self.0.iter().map(|Cells(cells)| cells[cell].load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// The histogram whose cells begin at `first`. `unit` of its stored values are 1.
    fn observed(&self, first: usize, bounds: &[u64], unit: f64) -> HistogramSnapshot {
        let mut count = 0;
        let mut bucket = |(index, bound): (usize, &u64)| {
            count += self.sum(first + index);
            (as_float(*bound) / unit, count)
        };
        let buckets = bounds.iter().enumerate().map(&mut bucket).collect();
        let above = first + bounds.len();
        HistogramSnapshot { buckets, count: count + self.sum(above), sum: as_float(self.sum(above + 1)) / unit }
    }
}

impl ThreadCells<'_> {
    /// Adds to a cell. A plain store is enough if no other thread writes to it.
    #[inline]
    fn add(&self, cell: usize, amount: u64) {
        let cell = &self.cells[cell];
        if self.is_alone {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        } else {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds to the histogram whose cells begin at `first`: a cell for each bound, one above them, and one for the sum.
    #[inline]
    fn observe(&self, first: usize, bounds: &[u64], value: u64) {
        let bucket: usize = bounds.iter().map(|bound| usize::from(value > *bound)).sum(); // without a branch
        self.add(first + bucket, 1);
        self.add(first + bounds.len() + 1, value);
    }
}

/// The number of the current thread. Threads are numbered in the order in which they first count.
#[inline]
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

#[allow(clippy::cast_precision_loss)] // Prometheus has floats alone
pub(super) fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_buckets_are_inclusive() {
        let durations =
            DurationHistogram::new([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1_000_000_000].map(|bound| bound * 100));
        for ns in [0, 100, 101, 1200, 100_000_000_000, 100_000_000_001] {
            durations.observe(Duration::from_nanos(ns));
        }
        let observed = durations.observed();
        let counts: Vec<u64> = observed.buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 5]);
        assert_eq!((observed.buckets[0].0, observed.buckets[11].0, observed.count), (1e-7, 100.0, 6));
        assert!((observed.sum - 200.000_001_402).abs() < 1e-12, "{}", observed.sum);
    }

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let of = |counts: [u64; 3], count| HistogramSnapshot {
            buckets: [1.0, 2.0, 4.0].into_iter().zip(counts).collect(),
            count,
            sum: as_float(count),
        };
        for (counts, count, part, expected) in [
            ([10, 10, 10], 10, 0.5, Some(0.5)),
            ([0, 10, 10], 10, 0.5, Some(1.5)),
            ([50, 99, 100], 100, 0.5, Some(1.0)),
            ([50, 99, 100], 100, 0.99, Some(2.0)),
            ([0, 0, 4], 4, 0.99, Some(3.98)),
            ([0, 0, 0], 4, 0.5, Some(4.0)),
            ([0, 0, 0], 0, 0.5, None),
        ] {
            assert_eq!(of(counts, count).quantile(part), expected, "{counts:?} {count} {part}");
        }
        assert_eq!(of([5, 7, 9], 12).since(&of([1, 2, 3], 3)), of([4, 5, 6], 9));
        assert_eq!((of([1, 1, 1], 2).mean(), of([0, 0, 0], 0).mean()), (Some(1.0), None));
    }

    #[test]
    fn headroom_is_a_ratio() {
        let cells = LimitCells::new();
        for percent in [0, 1, 10, 90, 91, 100] {
            cells.decided(LimitDecision::Admitted, percent);
        }
        let expected = [(0.0, 1), (0.1, 3), (0.25, 3), (0.5, 3), (0.75, 3), (0.9, 4)];
        assert_eq!(cells.headroom(), HistogramSnapshot { buckets: expected.to_vec(), count: 6, sum: 2.92 });
        assert_eq!(cells.counted(LimitDecision::Admitted), 6);
    }

    #[test]
    fn counts_of_many_threads_add_up() {
        let cells = OutcomeCells::new();
        let count = || (0..1000).for_each(|_| cells.count(Outcome::Forwarded));
        std::thread::scope(|scope| (0..2 * ALONE).for_each(|_| _ = scope.spawn(count)));
        assert_eq!(cells.counted(Outcome::Forwarded), 2 * 1000 * ALONE as u64);
    }
}
