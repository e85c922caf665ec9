//! A bound of requests in flight that follows the capacity of a service.
//!
//! The controller measures the elasticity of latency: the relative change of the mean latency, divided by the relative
//! change of the bound. Without a queue in the service it is 0: more requests in flight are answered as fast. In a queue it
//! is 1: they only wait longer. The bound moves to the point between. Two windows, in which the bound is a tenth higher and
//! a tenth lower, make one measurement.
//!
//! That is too slow when a service loses its workers. So a latency far above the lowest one is tested: in one window the
//! bound is lower by as much. If the latency falls with it, requests waited, and the bound stays low; if not, all requests
//! take longer, and the bound returns. No latency decides more than whether to test, and the test replaces it, so no drift
//! can mislead the controller.
//!
//! Bound: it is always from the least to the greatest bound of its [`Range`], and one pair of windows moves it by at most
//! the distance of its two bounds, or twice that at the start; failures lower it by a quarter in each window, and a test by
//! the rise of the latency. Not here: the lock and the clock (gate).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::time::Timestamp;

/// The least and the greatest bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// At least 1. The first bound.
    pub floor: u64,
    /// More than `floor`.
    pub ceiling: u64,
}

/// A bound that its [`Controller`] changes while requests read it.
#[derive(Debug)]
pub struct Bound {
    range: Range,
    units: AtomicU64,
}

impl Bound {
    /// The first bound of `range`.
    pub fn new(range: Range) -> Self {
        Self { range, units: AtomicU64::new(range.floor) }
    }

    /// The least and the greatest bound.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Units that may be in flight now.
    #[inline]
    pub fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }

    /// Sets the bound.
    pub fn set(&self, units: u64) {
        self.units.store(units, Ordering::Relaxed);
    }
}

/// Rules are equal if they have the same numbers in the configuration.
impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.range == other.range
    }
}

impl Eq for Bound {}

/// The wanted elasticity for a large bound, and what is added for a small one, divided by the bound: a few workers are busy
/// only if some requests wait for them.
const TARGET: (f64, f64) = (0.85, 0.6);

/// Half of the relative difference between the two bounds of a pair.
const DITHER: f64 = 0.1;

/// The rise of the logarithm of the mean latency that is tested, and what is added for a small bound, divided by the bound:
/// the latency of few workers varies more.
const RISE: (f64, f64) = (0.7, 1.5);

/// The greatest fall of the lowest latency in a pair, so that slow requests again and again are not tested each time.
const LOWEST_FALL: f64 = 0.03;

/// What a test leaves above the bound at which its line of latencies has the elasticity 0. The change is gradual.
const TEST_MARGIN: f64 = 0.3;

/// A window lasts this long at least, in nanoseconds, and so many mean latencies. Answers of the first part are of requests
/// from before the window, and do not count.
const WINDOW_NS_MIN: u64 = 250_000_000;
const WINDOW_MEANS: f64 = 12.0;
const SETTLE_MEANS: f64 = 3.0;

/// A latency counts as so many means at most, so that a few long polls do not hide the others.
const LATENCY_MEANS_MAX: f64 = 10.0;

/// A window lasts until the mean is known well enough: its relative variance is at most this part of the squared
/// difference of the bounds. After `WINDOW_NS_MAX` the step is smaller in place of that.
const VARIANCE_MAX: f64 = 0.125;
const WINDOW_NS_MAX: u64 = 10_000_000_000;

/// The part of the answers that must find the bound reached for a whole step upward.
const FULL_PART: f64 = 0.05;

/// A step downward is smaller: a bound too low costs answers, a bound too high costs a short queue.
const DOWNWARD: f64 = 0.4;

/// Steps become faster while they go in one direction. The last is for the time before the first two steps down.
const SPEED_FIRST: f64 = 0.3;
const SPEED_GROWTH: f64 = 1.5;
const SPEED_MAX: f64 = 1.0;
const SPEED_MAX_AT_START: f64 = 2.0;

/// Failures that lower the bound: so many in a window, and this part of all answers.
const FAILURES_MIN: f64 = 10.0;
const FAILED_PART: f64 = 0.1;

/// The steps of the logarithm of the bound: down in a window of failures, up in a window after them, and from the bound
/// before them to the one that is tried again.
const FAILED_STEP: f64 = 0.3;
const RETURN_STEP: f64 = 0.4;
const RETURN_MARGIN: f64 = 0.2;

/// What is known of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Timestamp,
    /// All answers, those that found the bound reached, and those that were failures.
    answers: f64,
    full: f64,
    failures: f64,
    /// Measured latencies: their number, sum and sum of squares.
    measured: f64,
    sum_ns: f64,
    squares: f64,
}

/// The first window of a pair, once it has ended.
#[derive(Clone, Copy, Debug)]
struct Measured {
    log_bound: f64,
    log_mean: f64,
    full_part: f64,
    trust: f64,
}

/// A test of a latency: the window before it, the logarithm of its bound, and its window once that has ended. Then one window
/// has the bound from before, so that slow requests which just ended do not look like an effect of the bound.
#[derive(Clone, Copy, Debug)]
struct Test {
    before: Measured,
    log_bound: f64,
    tested: Option<Measured>,
}

/// Finds the bound. It has the size of a few cache lines, whatever the load is.
#[derive(Clone, Debug)]
pub struct Controller {
    range: Range,
    /// The natural logarithm of the bound between those of a pair.
    log_bound: f64,
    /// Windows so far. The parity of its ones decides which bound is in force: low, high, high, low. In this order neither a
    /// trend nor a period of the load looks like an effect of the bound.
    index: u32,
    window: Window,
    first: Option<Measured>,
    test: Option<Test>,
    /// Whether the last window showed a latency to test. A second one confirms it.
    is_doubtful: bool,
    /// The logarithm of the lowest mean latency of a pair since the last test.
    log_lowest: Option<f64>,
    /// The mean latency of the last window.
    mean_ns: f64,
    last_step: f64,
    speed: f64,
    has_settled: bool,
    /// The logarithm of the bound to return to after failures.
    before_failures: Option<f64>,
}

impl Controller {
    /// Begins at the floor of `range`.
    pub fn new(range: Range, now: Timestamp) -> Self {
        Self {
            range,
            log_bound: float(range.floor).ln(),
            index: 0,
            window: Window { began: now, ..Window::default() },
            first: None,
            test: None,
            is_doubtful: false,
            log_lowest: None,
            mean_ns: 0.0,
            last_step: 0.0,
            speed: 1.0,
            has_settled: false,
            before_failures: None,
        }
    }

    /// Changes the least and the greatest bound. What is learnt stays.
    pub fn set_range(&mut self, range: Range, now: Timestamp) {
        if self.range != range {
            self.range = range;
            self.move_by(0.0);
            self.begin_pair(now);
        }
    }

    /// Units that may be in flight now.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from the floor to the bound before the test
    pub fn bound(&self) -> u64 {
        if let Some(Test { before, log_bound, tested }) = self.test {
            let log_bound = if tested.is_none() { log_bound } else { before.log_bound };
            return log_bound.exp().round() as u64;
        }
        let (high, low) = self.pair();
        if self.index.count_ones().is_multiple_of(2) { low } else { high }
    }

    /// The two bounds of a pair of windows, which differ.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from the floor to the ceiling
    fn pair(&self) -> (u64, u64) {
        let middle = self.log_bound.exp();
        let dither = (middle * DITHER).max(0.5);
        let Range { floor, ceiling } = self.range;
        let high = ((middle + dither).round() as u64).clamp(floor, ceiling);
        let low = ((middle - dither).round() as u64).clamp(floor, ceiling);
        match high > low {
            true => (high, low),
            false if high < ceiling => (low + 1, low),
            false => (high, high - 1),
        }
    }

    /// Notes an answer that took `latency_ns`. `is_full`: the bound was reached then.
    pub fn answered(&mut self, latency_ns: u64, is_full: bool, now: Timestamp) {
        self.forget_idle_time(now);
        let window = &mut self.window;
        window.answers += 1.0;
        window.full += f64::from(u8::from(is_full));
        if float(now.ns_since(window.began)) >= SETTLE_MEANS * self.mean_ns {
            let latency_max = if self.mean_ns > 0.0 { LATENCY_MEANS_MAX * self.mean_ns } else { f64::INFINITY };
            let latency_ns = float(latency_ns).min(latency_max);
            window.measured += 1.0;
            window.sum_ns += latency_ns;
            window.squares += latency_ns * latency_ns;
        }
        self.end_window(now);
    }

    /// Notes a request that the service failed to answer.
    pub fn failed(&mut self, now: Timestamp) {
        self.forget_idle_time(now);
        self.window.answers += 1.0;
        self.window.failures += 1.0;
        self.end_window(now);
    }

    /// Begins anew after a time with hardly an answer: the load of the first window of a pair is not that of the second.
    fn forget_idle_time(&mut self, now: Timestamp) {
        if now.ns_since(self.window.began) > 3 * WINDOW_NS_MAX
            && float(now.ns_since(self.window.began)) > 2.0 * WINDOW_MEANS * self.mean_ns
        {
            self.begin_pair(now);
        }
    }

    fn end_window(&mut self, now: Timestamp) {
        let (window, age_ns) = (self.window, now.ns_since(self.window.began));
        if age_ns < WINDOW_NS_MIN {
            return;
        }
        let age = float(age_ns);
        if window.failures >= FAILURES_MIN && window.failures >= FAILED_PART * window.answers && age >= self.mean_ns {
            self.before_failures.get_or_insert(self.log_bound - RETURN_MARGIN);
            (self.last_step, self.speed) = (0.0, SPEED_FIRST);
            self.move_by(-FAILED_STEP);
            self.begin_pair(now);
        } else if let Some(before) = self.before_failures {
            if age >= 2.0 * self.mean_ns {
                self.before_failures = Some(before).filter(|before| self.log_bound + RETURN_STEP < *before);
                self.move_by(RETURN_STEP.min((before - self.log_bound).max(0.0)));
                self.begin_pair(now);
            }
        } else if age >= WINDOW_MEANS * self.mean_ns && window.measured >= 2.0 {
            self.measure(age_ns, now);
        }
    }

    /// Ends the window once its mean is known, and moves the bound at the end of a pair.
    fn measure(&mut self, age_ns: u64, now: Timestamp) {
        let window = self.window;
        let mean_ns = (window.sum_ns / window.measured).max(1.0);
        let variance = (window.squares / window.measured / (mean_ns * mean_ns) - 1.0).max(0.02) / window.measured;
        let (high, low) = self.pair();
        let difference = (float(high) / float(low)).ln();
        let variance_max = VARIANCE_MAX * difference * difference;
        if variance > variance_max && age_ns < WINDOW_NS_MAX {
            return;
        }
        let measured = Measured {
            log_bound: float(self.bound()).ln(),
            log_mean: mean_ns.ln(),
            full_part: window.full / window.answers,
            trust: (variance_max / variance).min(1.0),
        };
        self.window = Window { began: now, ..Window::default() };
        let rise = self.log_lowest.map_or(0.0, |lowest| measured.log_mean - lowest);
        let is_slow = rise > RISE.0 + RISE.1 / float(self.bound()) && measured.full_part > 0.0;
        if let Some(Test { before, tested, .. }) = self.test {
            let log_mean = measured.log_mean.min(before.log_mean);
            match tested {
                None => self.test = self.test.map(|test| Test { tested: Some(measured), ..test }),
                Some(tested) => self.end_test(Measured { log_mean, ..before }, tested, now),
            }
        } else if is_slow && self.bound() > self.range.floor {
            if std::mem::replace(&mut self.is_doubtful, true) {
                self.mean_ns = mean_ns;
                let log_bound = (measured.log_bound - rise).max(float(self.range.floor).ln());
                self.test = Some(Test { before: measured, log_bound, tested: None });
            }
        } else {
            self.mean_ns = mean_ns;
            self.is_doubtful = false;
            self.index = self.index.wrapping_add(1);
            match self.first.take() {
                None => self.first = Some(measured),
                Some(first) => self.step(first, measured),
            }
        }
    }

    /// Moves the bound to where the requests of a test began to wait.
    fn end_test(&mut self, around: Measured, tested: Measured, now: Timestamp) {
        let difference = tested.log_bound - around.log_bound;
        let elasticity = ((tested.log_mean - around.log_mean) / difference).clamp(0.0, 1.0);
        self.log_bound = around.log_bound + (elasticity * difference + TEST_MARGIN).min(0.0);
        self.log_lowest = Some(tested.log_mean);
        (self.last_step, self.speed) = (0.0, SPEED_FIRST);
        self.begin_pair(now);
    }

    /// Moves the bound by the elasticity that two windows show. An idle service shows none: the bound stays.
    fn step(&mut self, first: Measured, second: Measured) {
        let (log_mean, lowest) = (first.log_mean.midpoint(second.log_mean), self.log_lowest);
        self.log_lowest = lowest.map_or(log_mean, |lowest| log_mean.clamp(lowest - LOWEST_FALL, lowest)).into();
        let full_part = first.full_part.min(second.full_part);
        if full_part <= 0.0 {
            return;
        }
        let difference = second.log_bound - first.log_bound;
        let elasticity = (second.log_mean - first.log_mean) / difference;
        let target = TARGET.0 + TARGET.1 / self.log_bound.exp();
        let step = (target - elasticity).clamp(-1.0, 1.0);
        self.has_settled |= step < 0.0 && self.last_step < 0.0;
        let speed_max = if self.has_settled { SPEED_MAX } else { SPEED_MAX_AT_START };
        self.speed = if step * self.last_step < 0.0 { SPEED_FIRST } else { (self.speed * SPEED_GROWTH).min(speed_max) };
        self.last_step = step;
        let part = if step < 0.0 { DOWNWARD } else { (full_part / FULL_PART).min(1.0) };
        self.move_by(difference.abs() * self.speed * step * part * first.trust.min(second.trust));
    }

    fn move_by(&mut self, step: f64) {
        let Range { floor, ceiling } = self.range;
        self.log_bound = (self.log_bound + step).clamp(float(floor).ln(), float(ceiling).ln());
    }

    fn begin_pair(&mut self, now: Timestamp) {
        (self.first, self.test, self.is_doubtful) = (None, None, false);
        self.index = self.index.wrapping_add(self.index % 2);
        self.window = Window { began: now, ..Window::default() };
    }
}

#[expect(clippy::cast_precision_loss)] // 53 bits are enough for a statistic
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
