//! What every request counts, in cells of which each thread has its own, summed when they are scraped.
//!
//! A shared counter costs a cache line that moves between cores on every request, and an atomic addition even
//! when it does not. A cell with one writer costs neither. Threads beyond the first [`ALONE`] share one set of
//! cells, and pay for it. Not here: how they look to Prometheus (`scrape.rs`).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Outcome;
use crate::time::saturating_ns;

/// What a limit said to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitDecision {
    /// It let it pass, at once or after a wait.
    Admitted,
    /// It made it wait.
    Held,
    /// It refused it.
    Rejected,
    /// It would have refused it, were it not in shadow mode.
    ShadowRejected,
    /// It would have made it wait, were it not in shadow mode.
    ShadowHeld,
}

/// All of them, in their order.
pub(super) const LIMIT_DECISIONS: [(LimitDecision, &str); 5] = [
    (LimitDecision::Admitted, "admitted"),
    (LimitDecision::Held, "held"),
    (LimitDecision::Rejected, "rejected"),
    (LimitDecision::ShadowRejected, "shadow_rejected"),
    (LimitDecision::ShadowHeld, "shadow_held"),
];

/// Upper bounds of the parts that may remain, in percent.
const HEADROOM_PERCENT: [u64; 6] = [0, 10, 25, 50, 75, 90];

/// The bucket of each percent: every decision needs it. A power of two of them, so that an index need not be checked.
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

/// The cells of one limit.
#[derive(Clone, Debug)]
pub struct LimitCells(CellsByThread<LIMIT_CELLS>);

/// Decisions; what remained, with a bucket for all above; the percents that remained, added up.
const LIMIT_CELLS: usize = LIMIT_DECISIONS.len() + HEADROOM_PERCENT.len() + 2;

impl LimitCells {
    pub(super) fn new() -> Self {
        Self(CellsByThread::new())
    }

    /// Counts a decision of which nothing else is known.
    pub fn count(&self, decided: LimitDecision) {
        self.0.of_thread().add(decided as usize, 1);
    }

    /// Counts a decision and what remained at it, in percent of the burst, at most 100.
    #[inline]
    pub fn decided(&self, decided: LimitDecision, percent: u64) {
        let of_thread = self.0.of_thread();
        of_thread.add(decided as usize, 1);
        let bucket = HEADROOM_BUCKET[usize::try_from(percent).unwrap_or(0) % HEADROOM_BUCKET.len()];
        of_thread.add(LIMIT_DECISIONS.len() + usize::from(bucket), 1);
        of_thread.add(LIMIT_CELLS - 1, percent);
    }

    /// How often this was decided.
    pub fn counted(&self, decided: LimitDecision) -> u64 {
        self.0.sum(decided as usize)
    }

    /// What remained, as parts of 1.
    pub(super) fn headroom(&self) -> HistogramSnapshot {
        self.0.observed(LIMIT_DECISIONS.len(), &HEADROOM_PERCENT, 100.0)
    }
}

/// What became of all requests.
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

/// What became of a request at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointResult {
    /// It answered; not with 502, 503 or 504.
    Answered,
    /// It could not be reached, broke off, or gave no answer of its own.
    Failed,
}

/// All of them, in their order.
pub(super) const ENDPOINT_RESULTS: [(EndpointResult, &str); 2] =
    [(EndpointResult::Answered, "answered"), (EndpointResult::Failed, "failed")];

/// The cells of one endpoint.
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

/// Upper bounds of durations.
const DURATION_BOUNDS: usize = 12;

/// How long something took each time, without labels.
#[derive(Clone, Debug)]
pub struct DurationHistogram {
    /// A bucket for each bound and one above; nanoseconds, added up.
    cells: CellsByThread<{ DURATION_BOUNDS + 2 }>,
    bounds_ns: [u64; DURATION_BOUNDS],
}

impl DurationHistogram {
    /// None yet, to be sorted by these upper bounds in nanoseconds.
    pub(super) fn new(bounds_ns: [u64; DURATION_BOUNDS]) -> Self {
        Self { cells: CellsByThread::new(), bounds_ns }
    }

    /// Counts one.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        self.cells.of_thread().observe(0, &self.bounds_ns, saturating_ns(duration));
    }

    /// In seconds.
    pub(super) fn observed(&self) -> HistogramSnapshot {
        self.cells.observed(0, &self.bounds_ns, 1e9)
    }
}

/// A histogram, as Prometheus has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HistogramSnapshot {
    /// Upper bounds, and how many were at most that.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

/// Threads that have cells for themselves; the first to count, which are the workers.
const ALONE: usize = 15;

/// `N` cells of each thread. The last of them are for all threads that come later.
#[derive(Clone, Debug)]
struct CellsByThread<const N: usize>(Arc<[Cells<N>; ALONE + 1]>);

/// Apart from those of other threads by two cache lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Cells<const N: usize>([AtomicU64; N]);

/// The cells of this thread, and whether nobody else writes to them.
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

    /// The histogram whose cells begin at `first`, with `unit` of its values for 1.
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
    /// Adds to a cell; by a plain store if no addition of another thread can be lost.
    #[inline]
    fn add(&self, cell: usize, amount: u64) {
        let cell = &self.cells[cell];
        if self.is_alone {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        } else {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds to the histogram whose cells begin at `first`: one for each bound, one above, and one for the sum.
    #[inline]
    fn observe(&self, first: usize, bounds: &[u64], value: u64) {
        let bucket: usize = bounds.iter().map(|bound| usize::from(value > *bound)).sum(); // without a branch
        self.add(first + bucket, 1);
        self.add(first + bounds.len() + 1, value);
    }
}

/// Threads are numbered in the order in which they first count.
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

#[allow(clippy::cast_precision_loss)] // Prometheus has no other numbers
pub(super) fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_below_its_bound_or_on_it() {
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
    fn headroom_is_a_part_of_one() {
        let cells = LimitCells::new();
        for percent in [0, 1, 10, 90, 91, 100] {
            cells.decided(LimitDecision::Admitted, percent);
        }
        let expected = [(0.0, 1), (0.1, 3), (0.25, 3), (0.5, 3), (0.75, 3), (0.9, 4)];
        assert_eq!(cells.headroom(), HistogramSnapshot { buckets: expected.to_vec(), count: 6, sum: 2.92 });
        assert_eq!(cells.counted(LimitDecision::Admitted), 6);
    }

    #[test]
    fn no_count_of_many_threads_is_lost() {
        let cells = OutcomeCells::new();
        let count = || (0..1000).for_each(|_| cells.count(Outcome::Forwarded));
        std::thread::scope(|scope| (0..2 * ALONE).for_each(|_| _ = scope.spawn(count)));
        assert_eq!(cells.counted(Outcome::Forwarded), 2 * 1000 * ALONE as u64);
    }
}
