//! The part of a rate that a limit admits, as a function of a signal: CPU, latency, failures or the wait for a connection.
//!
//! The target is absolute. The controller learns no baseline, so a drift of it changes no decision, and traffic is never
//! lowered to measure one. At the end of a window the signal is compared with the target. Above it the part falls by a
//! factor that grows with the distance, unless the signal falls already; the window after that does not count. Below it the
//! part rises by a small step, smaller near the target, near the part that was too high last, and if the limit was not used.
//! Between, and while the signal is not known well enough, the part stays.
//!
//! Bound: the part is always from the floor to the ceiling of its [`Rule`]; a window lowers it by at most `DECREASE`, and
//! raises it by at most `INCREASE` of the range. Not here: the clock and the lock (gate), the CPU (app), the rate (policy).

use crate::base::time::Timestamp;

/// The signal of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The busy part of the CPUs of the machine.
    Cpu,
    /// The time in which a service answers nine of ten requests of the limit.
    UpstreamP90,
    /// The part of the requests of the limit that a service fails to answer.
    UpstreamErrors,
    /// The time in which nine of ten requests of the limit get a connection to their service.
    QueueDelay,
}

impl Signal {
    /// The word of the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::UpstreamP90 => "upstream_p90",
            Self::UpstreamErrors => "upstream_errors",
            Self::QueueDelay => "queue_delay",
        }
    }

    /// Whether the signal is a duration, and not a part.
    pub const fn is_duration(self) -> bool {
        matches!(self, Self::UpstreamP90 | Self::QueueDelay)
    }
}

/// Parts of a rate are in thousandths.
pub const WHOLE: u64 = 1000;

/// How a rate follows a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The signal.
    pub signal: Signal,
    /// Nanoseconds of a duration, or thousandths; at least 1.
    pub target: u64,
    /// The least part of the rate, in thousandths; at least 1.
    pub floor: u64,
    /// The greatest part, and the first one; more than `floor`, at most [`WHOLE`].
    pub ceiling: u64,
}

/// The decisions of a limit in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All decisions.
    pub decided: u64,
    /// Requests that the limit refused or held, or that found at most half of their budget left.
    pub pressed: u64,
}

/// The largest decrease in a window, for a signal far above the target; the smallest one; and the largest increase, as a
/// part of the range.
const DECREASE: f64 = 0.3;
const DECREASE_MIN: f64 = 0.02;
const INCREASE: f64 = 0.02;

/// The parts of the largest increase: next to the target, and from `EXCEEDED_FROM` of the part that was too high last on.
/// With the last a constant load lowers the part once in half a minute; with a larger one more often.
const INCREASE_NEAR: f64 = 0.1;
const INCREASE_EXCEEDED: f64 = 0.03;
const EXCEEDED_FROM: f64 = 0.85;

/// The part of the largest increase while the limit was not used: a part that fell does not stay low for good.
const INCREASE_UNUSED: f64 = 0.2;

/// A signal so far above the target shows a fault, and no part that is too high without one.
const FAULT: f64 = 0.5;

/// Below this part of the target a signal is healthy.
const HEALTHY: f64 = 0.9;

/// The weight of earlier windows in the signal, the least weight of answers that make one, and the weight below which they
/// do not become fewer: a limit with few answers has a signal, too.
const DECAY: f64 = 0.75;
const ANSWERS_MIN: f64 = 10.0;
const ANSWERS_KEPT: f64 = 20.0;

/// Standard deviations of the sampling error: fewer answers make a wider band around the target. The longest of few
/// durations is not in it.
const CONFIDENCE: f64 = 2.0;
const RANK_MAX: f64 = 0.97;

/// A weight below this one counts as none.
const WEIGHT_MIN: f64 = 0.01;

/// A signal below the first multiple of the last one falls, one above the second rises.
const FALLING: f64 = 0.97;
const RISING: f64 = 1.1;

/// Durations beyond so many targets are those of long polls, unless they are half of all.
const LONG_TARGETS: u64 = 10;

/// A request without an answer counts as so many targets.
const FAILED_TARGETS: u64 = 2;

/// Buckets of the histogram: eight for each doubling from 2^16 ns (65 µs) to 2^38 ns (275 s).
const OCTAVE: usize = 8;
const FIRST_BITS: u32 = 16;
const BUCKETS: usize = OCTAVE * 22;

/// Finds the part. Its size does not depend on the load.
#[derive(Clone, Debug)]
pub struct Controller {
    rule: Rule,
    /// In thousandths.
    part: f64,
    /// The part before the last decreases, if there was no fault; else infinite.
    exceeded: f64,
    /// Whether the part has risen since the last decrease.
    has_risen: bool,
    /// Whether the part fell at the end of the last window.
    is_settling: bool,
    /// The signal of the last window that counts.
    last: Option<f64>,
    /// Weights of durations.
    durations: [f64; BUCKETS],
    /// Whether there was an answer in this window.
    has_answers: bool,
    /// Weights of answers and of failures.
    answers: f64,
    failures: f64,
    /// The mean of the busy part of the CPUs.
    cpu: Option<f64>,
}

/// A signal as it is known: the lowest and the highest value that it may have, and the value between.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    low: f64,
    value: f64,
    high: f64,
}

impl Controller {
    /// Begins at the ceiling of `rule`.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            part: float(rule.ceiling),
            exceeded: f64::INFINITY,
            has_risen: true,
            is_settling: false,
            last: None,
            durations: [0.0; BUCKETS],
            has_answers: false,
            answers: 0.0,
            failures: 0.0,
            cpu: None,
        }
    }

    /// Changes the rule. The part stays as far as the rule permits; what is known of another signal is forgotten.
    pub fn set_rule(&mut self, rule: Rule) {
        if self.rule.signal != rule.signal {
            self.forget();
            (self.last, self.exceeded) = (None, f64::INFINITY);
        }
        self.rule = rule;
        self.part = self.part.clamp(float(rule.floor), float(rule.ceiling));
    }

    /// The part of the rate in thousandths.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from the floor to the ceiling
    pub fn part(&self) -> u64 {
        self.part.round() as u64
    }

    /// The signal of the last window that counts, in nanoseconds or thousandths; `None` if it is not known.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative
    pub fn signal(&self) -> Option<u64> {
        self.last.map(|signal| signal.round() as u64)
    }

    /// Notes an answer at `now` to a request that began at `began` and was handed to a connection at `sent`.
    pub fn answered(&mut self, began: Timestamp, sent: Timestamp, now: Timestamp) {
        let duration_ns = match self.rule.signal {
            Signal::UpstreamP90 => now.ns_since(sent),
            Signal::QueueDelay => sent.ns_since(began),
            Signal::Cpu | Signal::UpstreamErrors => 0,
        };
        self.note(duration_ns, false);
    }

    /// Notes the failure of a request.
    pub fn failed(&mut self) {
        self.note(self.rule.target.saturating_mul(FAILED_TARGETS), true);
    }

    /// Notes that a client left at `now` before the answer to its request, which began at `began`. Less than the target says
    /// nothing.
    pub fn abandoned(&mut self, began: Timestamp, now: Timestamp) {
        let waited_ns = now.ns_since(began);
        if self.rule.signal == Signal::UpstreamP90 && waited_ns >= self.rule.target {
            self.note(waited_ns, false);
        }
    }

    fn note(&mut self, duration_ns: u64, has_failed: bool) {
        self.has_answers = true;
        self.answers += 1.0;
        self.failures += f64::from(u8::from(has_failed));
        if self.rule.signal.is_duration() {
            self.durations[bucket(duration_ns)] += 1.0;
        }
    }

    /// Ends a window, in which the limit was used so much and this part of the CPUs was busy, and changes the part.
    pub fn end_window(&mut self, usage: Usage, cpu: Option<f64>) {
        self.cpu = cpu.map(|cpu| {
            let mean = self.cpu.unwrap_or(cpu);
            mean + (cpu - mean) * (1.0 - DECAY)
        });
        let has_answers = std::mem::take(&mut self.has_answers);
        if std::mem::take(&mut self.is_settling) {
            return self.forget();
        }
        // Without an answer the earlier ones say nothing of this window.
        let estimate = self.estimate().filter(|_| has_answers || self.rule.signal == Signal::Cpu);
        if let Some(estimate) = estimate.filter(|_| usage.decided > 0) {
            self.step(estimate, usage.pressed > 0);
        }
        self.last = estimate.map(|estimate| estimate.value);
        if self.answers * DECAY >= ANSWERS_KEPT {
            let decayed = |weight: f64| if weight * DECAY < WEIGHT_MIN { 0.0 } else { weight * DECAY };
            (self.answers, self.failures) = (decayed(self.answers), decayed(self.failures));
            self.durations.iter_mut().for_each(|weight| *weight = decayed(*weight));
        }
    }

    fn step(&mut self, Estimate { low, value, high }: Estimate, is_used: bool) {
        let Rule { signal, target, floor, ceiling } = self.rule;
        let (target, floor, ceiling) = (float(target), float(floor), float(ceiling));
        let (falls, rises) = self.last.map_or((false, false), |last| (value < last * FALLING, value > last * RISING));
        if low > target && !falls {
            // The distance that counts as far: a signal that is a part is at most the whole.
            let far = if signal.is_duration() { target } else { target.min(float(WHOLE) - target) };
            let excess = ((low - target) / far).min(1.0);
            if std::mem::take(&mut self.has_risen) {
                self.exceeded = if excess < FAULT { self.part } else { f64::INFINITY };
            }
            self.part = (self.part * (1.0 - (DECREASE * excess * excess).max(DECREASE_MIN))).max(floor);
            self.is_settling = true;
            self.forget();
        } else if high < HEALTHY * target && !rises {
            self.has_risen = true;
            let near = (2.0 * (1.0 - high / (HEALTHY * target))).clamp(INCREASE_NEAR, 1.0);
            let was_exceeded = (self.exceeded * EXCEEDED_FROM..self.exceeded).contains(&self.part);
            let speed = if was_exceeded { INCREASE_EXCEEDED } else { near };
            let speed = if is_used { speed } else { speed.min(INCREASE_UNUSED) };
            self.part = (self.part + INCREASE * speed * (ceiling - floor)).min(ceiling);
        }
    }

    fn forget(&mut self) {
        self.durations = [0.0; BUCKETS];
        (self.answers, self.failures, self.cpu) = (0.0, 0.0, None);
    }

    fn estimate(&self) -> Option<Estimate> {
        match self.rule.signal {
            Signal::Cpu => self.cpu.map(|cpu| {
                let value = cpu * float(WHOLE);
                Estimate { low: value, value, high: value }
            }),
            _ if self.answers < ANSWERS_MIN => None,
            Signal::UpstreamErrors => {
                let part = self.failures / self.answers;
                let error = CONFIDENCE * (part * (1.0 - part) / self.answers).sqrt();
                let [low, value, high] = [part - error, part, part + error].map(|part| part * float(WHOLE));
                Some(Estimate { low, value, high })
            }
            Signal::UpstreamP90 | Signal::QueueDelay => self.p90(),
        }
    }

    /// The duration within which nine of ten are, without those of long polls.
    fn p90(&self) -> Option<Estimate> {
        let first_long = bucket(self.rule.target.saturating_mul(LONG_TARGETS)) + 1;
        let (usual, long) = self.durations.split_at(first_long.min(BUCKETS));
        let (of_usual, of_long): (f64, f64) = (usual.iter().sum(), long.iter().sum());
        let (counted, total) =
            if of_long < of_usual { (usual, of_usual) } else { (&self.durations[..], of_usual + of_long) };
        if total < ANSWERS_MIN {
            return None;
        }
        let error = CONFIDENCE * (0.9 * 0.1 / total).sqrt();
        let [low, value, high] =
            [0.9 - error, 0.9, (0.9 + error).min(RANK_MAX)].map(|part| quantile(counted, part * total));
        Some(Estimate { low, value, high })
    }
}

/// The duration below which the weight `rank` is.
fn quantile(weights: &[f64], rank: f64) -> f64 {
    let mut below = 0.0;
    let mut last = 0.0;
    for (index, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        let (from, to) = (begin_ns(index), begin_ns(index + 1));
        if below + weight >= rank {
            return from + (to - from) * ((rank - below) / weight).max(0.0);
        }
        (below, last) = (below + weight, to);
    }
    last
}

/// The bucket of a duration.
fn bucket(ns: u64) -> usize {
    let bits = (u64::BITS - ns.leading_zeros()).saturating_sub(1);
    let Some(octave) = bits.checked_sub(FIRST_BITS) else { return 0 };
    // The three bits after the first one.
    let part = (ns >> (bits - 3)) & 0b111;
    let index = usize::try_from(u64::from(octave) * 8 + part).unwrap_or(BUCKETS);
    index.min(BUCKETS - 1)
}

/// The shortest duration of a bucket.
fn begin_ns(bucket: usize) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let (octave, part) = (bucket / OCTAVE, bucket % OCTAVE);
    let octave = u32::try_from(octave).unwrap_or(u32::MAX);
    float(8 + part as u64) * 2_f64.powi(i32::try_from(octave + FIRST_BITS).unwrap_or(i32::MAX) - 3)
}

#[expect(clippy::cast_precision_loss)] // 53 bits are enough for a statistic
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
