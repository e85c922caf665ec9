//! The series of the last hour: differences of counters, bounded in length and number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::telemetry::{HistogramSnapshot, LimitDecision, Metrics, Outcome};
use crate::base::time::Timestamp;
use crate::engine::gate::Live;

/// Seconds between two samples.
pub(super) const EVERY_S: u64 = 5;
/// Samples of an hour.
pub(super) const SAMPLES_MAX: usize = 720;
/// Samples of a minute.
pub(super) const SAMPLES_OF_MINUTE: usize = SAMPLES_MAX / 60;
/// Most limits with series of their own: the first ones of the configuration.
const LIMITS_MAX: usize = 64;

/// The results of a limit that have a series. Those in shadow mode count as enforced ones: a limit has one mode.
const DECISIONS: [&[LimitDecision]; 3] = [
    &[LimitDecision::Admitted],
    &[LimitDecision::Held, LimitDecision::ShadowHeld],
    &[LimitDecision::Refused, LimitDecision::Banned, LimitDecision::ShadowRefused],
];

/// The last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<Series>);

/// The series so far, and the counters at their end.
#[derive(Debug, Default)]
struct Series {
    totals: Option<Totals>,
    samples: VecDeque<Sample>,
    limits: Vec<LimitSeries>,
    left_out: usize,
}

/// The counters of the process at one instant.
#[derive(Debug)]
pub(super) struct Totals {
    at: Timestamp,
    outcomes: Vec<(Outcome, u64)>,
    overhead: HistogramSnapshot,
    limits: Vec<LimitTotals>,
}

#[derive(Debug)]
struct LimitTotals {
    limit: Box<str>,
    decisions: [u64; DECISIONS.len()],
    headroom: HistogramSnapshot,
}

#[derive(Clone, Debug)]
struct Sample {
    at_s: u64,
    rates: Vec<(Outcome, f32)>,
    p50_us: Option<f32>,
    p99_us: Option<f32>,
}

/// The series of one limit. It ends with the newest sample, and may be shorter than others.
#[derive(Debug)]
struct LimitSeries {
    limit: Box<str>,
    samples: VecDeque<([f32; DECISIONS.len()], Option<f32>)>,
}

/// The last hour, oldest sample first. All series have the same length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = History)]
pub struct HistoryBody {
    /// Seconds between two samples.
    pub every_s: u64,
    /// The end of each sample in Unix seconds.
    pub at_s: Vec<u64>,
    /// Requests per second by verdict.
    pub requests: BTreeMap<String, Vec<f32>>,
    /// Refused requests per second by reason.
    pub refused_by: BTreeMap<String, Vec<f32>>,
    /// The median of the microseconds that Weir added to requests that did not wait; `null` without such requests.
    pub added_us_p50: Vec<Option<f32>>,
    /// The 99th percentile of these microseconds.
    pub added_us_p99: Vec<Option<f32>>,
    /// The first 64 limits, in the order of the configuration.
    pub limits: Vec<LimitHistoryBody>,
    /// The number of further limits.
    pub limits_left_out: usize,
}

/// The series of one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitHistory)]
pub struct LimitHistoryBody {
    /// The name of the limit.
    pub limit: String,
    /// The mean part of the burst that remained after a decision, from 0 to 1; `null` without decisions.
    pub headroom: Vec<Option<f32>>,
    /// Admitted requests per second.
    pub admitted: Vec<f32>,
    /// Held requests per second.
    pub held: Vec<f32>,
    /// Refused requests per second, those of banned keys included.
    pub refused: Vec<f32>,
}

impl Totals {
    /// The counters of `metrics`, and those of the limits of `live`.
    pub(super) fn of(metrics: &Metrics, live: &Live, at: Timestamp) -> Self {
        let limits = live.policy.limits().iter().map(|limit| {
            let cells = metrics.limit_cells(&limit.name);
            let decisions = DECISIONS.map(|decided| decided.iter().map(|decided| cells.counted(*decided)).sum());
            LimitTotals { limit: limit.name.clone(), decisions, headroom: cells.headroom() }
        });
        Self {
            at,
            outcomes: metrics.outcomes().into(),
            overhead: metrics.overhead.observed(),
            limits: limits.collect(),
        }
    }
}

impl History {
    /// The last `n` samples.
    pub fn last(&self, n: usize) -> HistoryBody {
        let series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = || series.samples.iter().skip(series.samples.len().saturating_sub(n));
        // The sum of the outcomes that have a label, by label and sample.
        let by_label = |label: fn(Outcome) -> Option<&'static str>| {
            let mut by_label: BTreeMap<String, Vec<f32>> = BTreeMap::new();
            for (index, sample) in samples().enumerate() {
                for (label, rate) in sample.rates.iter().filter_map(|(outcome, rate)| Some((label(*outcome)?, rate))) {
                    let series = by_label.entry(label.to_owned()).or_default();
                    series.resize(index + 1, 0.0);
                    series[index] = rounded(series[index] + rate);
                }
            }
            by_label
        };
        HistoryBody {
            every_s: EVERY_S,
            at_s: samples().map(|sample| sample.at_s).collect(),
            requests: by_label(|outcome| Some(outcome.verdict())),
            refused_by: by_label(|outcome| Some(outcome.refused_by()?.label())),
            added_us_p50: samples().map(|sample| sample.p50_us).collect(),
            added_us_p99: samples().map(|sample| sample.p99_us).collect(),
            limits: series.limits.iter().map(|limit| limit.last(samples().count())).collect(),
            limits_left_out: series.left_out,
        }
    }

    /// Adds the sample between the last totals and these. The first totals only begin the history.
    pub(super) fn add(&self, mut totals: Totals) {
        let mut series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        series.left_out = totals.limits.len().saturating_sub(LIMITS_MAX);
        totals.limits.truncate(LIMITS_MAX);
        if let Some(before) = series.totals.take() {
            series.extend(&before, &totals);
        }
        series.totals = Some(totals);
    }
}

impl Series {
    fn extend(&mut self, before: &Totals, now: &Totals) {
        let per_second = Duration::from_nanos(now.at.ns_since(before.at)).as_secs_f64().recip();
        let per_second = if per_second.is_finite() { per_second } else { 0.0 };
        let rate = |now: u64, before: u64| as_f32(as_f64(now.saturating_sub(before)) * per_second);
        let overhead = now.overhead.since(&before.overhead);
        let added_us = |part| overhead.quantile(part).map(|seconds| as_f32(seconds * 1e6));
        let rates = now.outcomes.iter().zip(&before.outcomes);
        let rates = rates.map(|((outcome, now), (_, before))| (*outcome, rate(*now, *before))).collect();
        push(
            &mut self.samples,
            Sample { at_s: now.at.as_secs(), rates, p50_us: added_us(0.5), p99_us: added_us(0.99) },
        );

        let mut old = std::mem::take(&mut self.limits);
        for limit in &now.limits {
            let known = old.iter().position(|series| series.limit == limit.limit).map(|index| old.swap_remove(index));
            let mut series =
                known.unwrap_or_else(|| LimitSeries { limit: limit.limit.clone(), samples: VecDeque::new() });
            if let Some(before) = before.limits.iter().find(|before| before.limit == limit.limit) {
                let mut rates = [0.0; DECISIONS.len()];
                for (to, (now, before)) in rates.iter_mut().zip(limit.decisions.iter().zip(before.decisions)) {
                    *to = rate(*now, before);
                }
                push(&mut series.samples, (rates, limit.headroom.since(&before.headroom).mean().map(as_f32)));
            }
            self.limits.push(series);
        }
    }
}

impl LimitSeries {
    /// The last `n` samples. Samples from before the limit are 0, with no headroom.
    fn last(&self, n: usize) -> LimitHistoryBody {
        let missing = n.saturating_sub(self.samples.len());
        let rest = self.samples.iter().skip(self.samples.len().saturating_sub(n)).copied();
        let samples: Vec<_> = std::iter::repeat_n(([0.0; 3], None), missing).chain(rest).collect();
        let rates = |index: usize| samples.iter().map(|(rates, _)| rates[index]).collect();
        LimitHistoryBody {
            limit: self.limit.to_string(),
            headroom: samples.iter().map(|(_, headroom)| *headroom).collect(),
            admitted: rates(0),
            held: rates(1),
            refused: rates(2),
        }
    }
}

/// Appends a sample. At the bound it removes the oldest one.
fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() >= SAMPLES_MAX {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[allow(clippy::cast_precision_loss)] // a rate
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// The number with three digits after the point, which is enough for a chart.
#[allow(clippy::cast_possible_truncation)]
fn as_f32(number: f64) -> f32 {
    ((number * 1000.0).round() / 1000.0) as f32
}

/// A sum of such numbers as one of them.
fn rounded(sum: f32) -> f32 {
    as_f32(f64::from(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: u64, sum: f64) -> HistogramSnapshot {
        HistogramSnapshot { buckets: vec![(0.001, count), (0.01, count)], count, sum }
    }

    fn totals(at_s: u64, forwarded: u64, limits: &[(&str, u64)]) -> Totals {
        let of_limit = |(limit, refused): &(&str, u64)| LimitTotals {
            limit: (*limit).into(),
            decisions: [0, 0, *refused],
            headroom: histogram(*refused, 0.0),
        };
        Totals {
            at: Timestamp::from_ns(at_s * 1_000_000_000),
            outcomes: Outcome::ALL.map(|outcome| (outcome, forwarded)).into(),
            overhead: histogram(forwarded, 1.0),
            limits: limits.iter().map(of_limit).collect(),
        }
    }

    #[test]
    fn samples_are_differences_per_second() {
        let history = History::default();
        assert_eq!((history.last(9).at_s.len(), history.last(9).limits.len()), (0, 0));
        history.add(totals(100, 1000, &[("a", 0)]));
        assert_eq!(history.last(9).at_s, [0; 0]);
        history.add(totals(105, 1010, &[("a", 5)]));
        history.add(totals(115, 1010, &[("b", 7), ("a", 5)]));
        history.add(totals(120, 1015, &[("b", 9), ("a", 6)]));
        let body = history.last(9);
        assert_eq!((&body.at_s[..], &body.requests["forwarded"][..]), (&[105, 115, 120][..], &[2.0, 0.0, 1.0][..]));
        assert_eq!(
            (&body.requests["refused"][..], &body.refused_by["ban"][..]),
            (&[12.0, 0.0, 6.0][..], &[2.0, 0.0, 1.0][..])
        );
        assert_eq!((&body.added_us_p50[..], body.every_s), (&[Some(500.0), None, Some(500.0)][..], 5));
        let names: Vec<_> = body.limits.iter().map(|limit| &*limit.limit).collect();
        assert_eq!(names, ["b", "a"]);
        // A limit that came later has no earlier samples.
        assert_eq!(
            (&body.limits[0].refused[..], &body.limits[1].refused[..]),
            (&[0.0, 0.0, 0.4][..], &[1.0, 0.0, 0.2][..])
        );
        assert_eq!(body.limits[1].headroom, [Some(0.0), None, Some(0.0)]);
        let last = history.last(1);
        assert_eq!((&last.at_s[..], &last.limits[1].refused[..]), (&[120][..], &[0.2][..]));
        // A limit that is gone has no series.
        history.add(totals(125, 1015, &[("b", 9)]));
        assert_eq!(history.last(9).limits.len(), 1);
    }

    #[test]
    fn series_are_bounded() {
        let history = History::default();
        let names: Vec<String> = (0..=LIMITS_MAX).map(|number| number.to_string()).collect();
        let limits: Vec<_> = names.iter().map(|name| (&**name, 1)).collect();
        for at in 0..=SAMPLES_MAX as u64 + 10 {
            history.add(totals(at, at, &limits));
        }
        let body = history.last(usize::MAX);
        assert_eq!((body.at_s.len(), body.limits.len(), body.limits_left_out), (SAMPLES_MAX, LIMITS_MAX, 1));
        assert_eq!((body.at_s[0], body.limits[63].held.len()), (11, SAMPLES_MAX));
        assert!(body.requests["forwarded"].iter().all(|rate| (rate - 1.0).abs() < 1e-6));
    }
}
