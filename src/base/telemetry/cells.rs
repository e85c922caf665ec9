//! Counters in cells. Each thread has cells of its own, and a scrape adds them up.
//!
//! A shared counter costs a transfer of a cache line between cores on every request, and an atomic addition even
//! without the transfer. A cell with one writer costs neither. Threads beyond the first [`ALONE`] share one set of
//! cells and pay for it. Not here: the form of these counters for Prometheus (`scrape.rs`).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::histogram::{HistogramSnapshot, as_float};
use super::outcome::Outcome;
use crate::base::time::saturating_ns;

/// The result of one limit for a request, as `weir_limit_decisions_total` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitDecision {
    /// The limit admits the request, at once or after a wait.
    Admitted,
    /// The request waits.
    Held,
    /// The limit refuses the request.
    Refused,
    /// The limit refuses the request, because its key is banned.
    Banned,
    /// A limit in shadow mode would refuse the request.
    ShadowRefused,
    /// A limit in shadow mode would hold the request.
    ShadowHeld,
}

/// All results in the order of their discriminants, with their labels.
pub(super) const LIMIT_DECISIONS: [(LimitDecision, &str); 6] = [
    (LimitDecision::Admitted, "admitted"),
    (LimitDecision::Held, "held"),
    (LimitDecision::Refused, "refused"),
    (LimitDecision::Banned, "banned"),
    (LimitDecision::ShadowRefused, "shadow_refused"),
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
#[derive(Clone, Debug, Default)]
pub struct LimitCells(CellsByThread<LIMIT_CELLS>);

/// The results, the buckets of the headroom, a bucket above all bounds, and the sum of the percents.
const LIMIT_CELLS: usize = LIMIT_DECISIONS.len() + HEADROOM_PERCENT.len() + 2;

impl LimitCells {
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
#[derive(Clone, Debug, Default)]
pub(super) struct OutcomeCells(CellsByThread<{ Outcome::ALL.len() }>);

impl OutcomeCells {
    #[inline]
    pub(super) fn count(&self, outcome: Outcome) {
        self.0.of_thread().add(outcome.index(), 1);
    }

    pub(super) fn counted(&self, outcome: Outcome) -> u64 {
        self.0.sum(outcome.index())
    }
}

/// The labels of classes of statuses.
pub(super) const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of responses by class of status.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusCells(CellsByThread<{ STATUS_CLASSES.len() }>);

impl StatusCells {
    /// Counts a response. A status above 599 counts as 5xx.
    #[inline]
    pub(super) fn count(&self, status: u16) {
        self.0.of_thread().add(usize::from(status / 100).clamp(1, STATUS_CLASSES.len()) - 1, 1);
    }

    /// The responses of each class, with its label.
    pub(super) fn counted(&self) -> [(&'static str, u64); STATUS_CLASSES.len()] {
        std::array::from_fn(|class| (STATUS_CLASSES[class], self.0.sum(class)))
    }
}

/// The counters of the responses of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamCells {
    pub(super) statuses: StatusCells,
    pub(super) duration: DurationHistogram,
}

impl UpstreamCells {
    /// Counts a response head with this status, which came `duration` after the start of forwarding.
    #[inline]
    pub fn answered(&self, status: u16, duration: Duration) {
        self.statuses.count(status);
        self.duration.observe(duration);
    }
}

/// The directions of bytes, with their labels.
pub(super) const DIRECTIONS: [&str; 2] = ["received", "sent"];

/// The counters of the bytes that clients send and receive, TLS not included.
#[derive(Clone, Debug, Default)]
pub struct ByteCells(CellsByThread<{ DIRECTIONS.len() }>);

impl ByteCells {
    /// Counts bytes that were received.
    #[inline]
    pub fn received(&self, bytes: usize) {
        self.0.of_thread().add(0, bytes as u64);
    }

    /// Counts bytes that were sent.
    #[inline]
    pub fn sent(&self, bytes: usize) {
        self.0.of_thread().add(1, bytes as u64);
    }

    pub(super) fn counted(&self) -> [(&'static str, u64); DIRECTIONS.len()] {
        std::array::from_fn(|direction| (DIRECTIONS[direction], self.0.sum(direction)))
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

/// The counters of one address of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointCells {
    counts: CellsByThread<ENDPOINT_CELLS>,
    /// The time from the start of forwarding to the response head.
    pub latency: DurationHistogram,
}

/// The results, and the requests that began and that ended.
const ENDPOINT_CELLS: usize = ENDPOINT_RESULTS.len() + 2;
const BEGUN: usize = ENDPOINT_RESULTS.len();
const ENDED: usize = BEGUN + 1;

impl EndpointCells {
    pub(super) fn new(latency: DurationHistogram) -> Self {
        Self { counts: CellsByThread::default(), latency }
    }

    /// Counts a result.
    pub fn count(&self, reached: EndpointResult) {
        self.counts.of_thread().add(reached as usize, 1);
    }

    /// Counts a request as active, until [`EndpointCells::end`].
    #[inline]
    pub fn begin(&self) {
        self.counts.of_thread().add(BEGUN, 1);
    }

    /// Ends the count of an active request.
    #[inline]
    pub fn end(&self) {
        self.counts.of_thread().add(ENDED, 1);
    }

    /// The active requests.
    pub fn active(&self) -> u64 {
        // The ends first: a request that begins and ends in between counts as active.
        let ended = self.counts.sum(ENDED);
        self.counts.sum(BEGUN).saturating_sub(ended)
    }

    /// How often this result was counted.
    pub fn counted(&self, reached: EndpointResult) -> u64 {
        self.counts.sum(reached as usize)
    }

    /// Whether no other handle counts in these cells.
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.counts.0) == 1
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
        Self { cells: CellsByThread::default(), bounds_ns }
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

impl<const N: usize> Default for CellsByThread<N> {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Cells(std::array::from_fn(|_| AtomicU64::new(0))))))
    }
}

impl<const N: usize> CellsByThread<N> {
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
    fn headroom_is_a_ratio() {
        let cells = LimitCells::default();
        for percent in [0, 1, 10, 90, 91, 100] {
            cells.decided(LimitDecision::Admitted, percent);
        }
        let expected = [(0.0, 1), (0.1, 3), (0.25, 3), (0.5, 3), (0.75, 3), (0.9, 4)];
        assert_eq!(cells.headroom(), HistogramSnapshot { buckets: expected.to_vec(), count: 6, sum: 2.92 });
        assert_eq!(cells.counted(LimitDecision::Admitted), 6);
    }

    #[test]
    fn statuses_have_classes() {
        let cells = StatusCells::default();
        for status in [0, 99, 101, 200, 206, 304, 404, 429, 499, 500, 599, 600, 999, u16::MAX] {
            cells.count(status);
        }
        assert_eq!(cells.counted().map(|(_, count)| count), [3, 2, 1, 3, 5]);
    }

    #[test]
    fn counts_of_many_threads_add_up() {
        let cells = OutcomeCells::default();
        let count = || (0..1000).for_each(|_| cells.count(Outcome::Forwarded));
        std::thread::scope(|scope| (0..2 * ALONE).for_each(|_| _ = scope.spawn(count)));
        assert_eq!(cells.counted(Outcome::Forwarded), 2 * 1000 * ALONE as u64);
    }
}
