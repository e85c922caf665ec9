//! What a run saw: counted by each thread, merged, and printed.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Everything longer counts as this long.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Three digits: a figure is off by at most 0.1 %.
const DIGITS: u8 = 3;
/// A request that starts this much after its time was late: no connection was free, or the generator had no CPU.
const LATE_NS: u64 = 1_000_000;

/// What one thread saw.
pub struct Record {
    /// From the intended start to the last byte of the answer, in nanoseconds.
    latency_ns: Histogram<u64>,
    /// From the intended start to the start, in nanoseconds.
    lateness_ns: Histogram<u64>,
    /// Answers with another status than is expected.
    unexpected: u64,
    /// Connections that broke, and answers that were not HTTP.
    errors: u64,
    /// Connections that an answer closed.
    closed: u64,
}

impl Record {
    /// An empty record.
    ///
    /// # Errors
    ///
    /// Only if the bounds above were wrong.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS);
        Ok(Self { latency_ns: histogram()?, lateness_ns: histogram()?, unexpected: 0, errors: 0, closed: 0 })
    }

    /// A request that was answered: how long after its intended start it started, and ended.
    pub fn answered(&mut self, lateness: Duration, latency: Duration) {
        self.lateness_ns.saturating_record(ns(lateness));
        self.latency_ns.saturating_record(ns(latency));
    }

    /// An answer had another status than it should.
    pub fn unexpected(&mut self) {
        self.unexpected += 1;
    }

    /// A connection broke, or said something that is not HTTP.
    pub fn error(&mut self) {
        self.errors += 1;
    }

    /// An answer said that its connection ends.
    pub fn closed(&mut self) {
        self.closed += 1;
    }

    /// Adds what another thread saw.
    ///
    /// # Errors
    ///
    /// Only if the histograms had different bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), hdrhistogram::AdditionError> {
        self.latency_ns.add(&other.latency_ns)?;
        self.lateness_ns.add(&other.lateness_ns)?;
        self.unexpected += other.unexpected;
        self.errors += other.errors;
        self.closed += other.closed;
        Ok(())
    }

    /// The figures, if `due` requests were due within `measured`, the last of which was answered `ended` after it
    /// began.
    pub fn report(&self, due: u64, rate: u32, measured: Duration, ended: Duration) -> Report {
        let us = |histogram: &Histogram<u64>, quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        let us = |histogram, quantile| us(histogram, quantile).as_secs_f64() * 1e6;
        let late = self.lateness_ns.iter_recorded().filter(|value| value.value_iterated_to() > LATE_NS);
        Report {
            rate,
            // Counts of requests are far below 2^52.
            #[allow(clippy::cast_precision_loss)]
            achieved_rate: self.latency_ns.len() as f64 / ended.max(measured).as_secs_f64(),
            requests: self.latency_ns.len(),
            unanswered: due.saturating_sub(self.latency_ns.len()),
            unexpected: self.unexpected,
            errors: self.errors,
            closed: self.closed,
            late: late.map(|value| value.count_at_value()).sum(),
            p50_us: us(&self.latency_ns, 0.5),
            p90_us: us(&self.latency_ns, 0.9),
            p99_us: us(&self.latency_ns, 0.99),
            p999_us: us(&self.latency_ns, 0.999),
            max_us: us(&self.latency_ns, 1.0),
            late_p50_us: us(&self.lateness_ns, 0.5),
            late_p99_us: us(&self.lateness_ns, 0.99),
            late_max_us: us(&self.lateness_ns, 1.0),
        }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The figures of a run. Latencies are microseconds from the intended start; all but `errors`, `unexpected` and
/// `closed` leave the warm-up out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Requests per second that were to be sent.
    rate: u32,
    /// Requests per second that were answered.
    achieved_rate: f64,
    /// Requests that were answered.
    requests: u64,
    /// Requests that were due and have no answer.
    unanswered: u64,
    /// Answers with another status than is expected.
    unexpected: u64,
    /// Connections that broke, and answers that were not HTTP.
    errors: u64,
    /// Connections that an answer closed.
    closed: u64,
    /// Requests that started more than a millisecond late.
    late: u64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    late_p50_us: f64,
    late_p99_us: f64,
    late_max_us: f64,
}

impl Report {
    /// Whether every request was answered as it should be.
    pub fn is_good(&self) -> bool {
        self.requests > 0 && self.unanswered + self.unexpected + self.errors == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "latency    p50 {:.0} us, p90 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, max {:.0} us",
            self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.max_us
        )?;
        writeln!(
            f,
            "lateness   p50 {:.0} us, p99 {:.0} us, max {:.0} us; {} by more than 1 ms",
            self.late_p50_us, self.late_p99_us, self.late_max_us, self.late
        )?;
        write!(
            f,
            "requests   {} answered, {:.0}/s of {}/s; {} unanswered, {} of another status, {} errors, {} closed",
            self.requests, self.achieved_rate, self.rate, self.unanswered, self.unexpected, self.errors, self.closed
        )
    }
}
