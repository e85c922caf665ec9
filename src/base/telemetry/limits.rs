//! The metrics of limits.

use prometheus::{GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::cells::LimitCells;
use super::factory::MetricFactory;
use super::gauge::LiveGauge;

#[derive(Debug)]
pub(super) struct LimitVecs {
    hold_duration: HistogramVec,
    held: IntGaugeVec,
    keys: IntGaugeVec,
    evicted: IntCounterVec,
    overflow: IntCounterVec,
    bans: IntCounterVec,
    banned: IntGaugeVec,
    pub(super) bound: IntGaugeVec,
    pub(super) adapted: GaugeVec,
    pub(super) streamed: IntCounterVec,
    stale_answers: IntCounterVec,
    stale_stored: IntCounterVec,
    stale_evicted: IntCounterVec,
    stale_count: IntGaugeVec,
    stale_bytes: IntGaugeVec,
    unreadable: IntCounterVec,
    cut: IntCounterVec,
}

/// The metrics of one limit.
#[derive(Clone, Debug)]
pub struct LimitMetrics {
    /// The counters of its decisions.
    pub cells: LimitCells,
    /// Seconds that requests waited, whatever the result.
    pub hold_duration: Histogram,
    /// Requests that wait now.
    pub held_now: LiveGauge,
    /// Keys in memory.
    pub keys: IntGauge,
    /// Keys evicted because their budget was whole again.
    pub evicted_idle: IntCounter,
    /// Decisions by the overflow, past `max_keys`.
    pub overflow: IntCounter,
    /// Started bans.
    pub bans: IntCounter,
    /// Banned keys.
    pub banned_keys: IntGauge,
    unreadable: IntCounterVec,
    cut: IntCounterVec,
}

impl LimitMetrics {
    /// Responses of the limit `name` without units, for this reason.
    pub fn unreadable(&self, name: &str, reason: &str) -> IntCounter {
        self.unreadable.with_label_values(&[name, reason])
    }

    /// Streams that the limit `name` has cut.
    pub fn cut(&self, name: &str) -> IntCounter {
        self.cut.with_label_values(&[name])
    }
}

/// The metrics of the stored answers of one limit.
#[derive(Clone, Debug)]
pub struct StaleMetrics {
    /// Stored answers that clients got, by cause.
    pub answers: [IntCounter; 3],
    /// Answers that were stored.
    pub stored: IntCounter,
    /// Stored answers evicted to make room.
    pub evicted_for_size: IntCounter,
    /// Stored answers evicted because they were too old.
    pub evicted_for_age: IntCounter,
    /// Stored answers.
    pub count: IntGauge,
    /// Bytes of stored answers, of those that are being stored, and of evicted ones that clients still get.
    pub bytes: IntGauge,
}

const HELD: &str = "weir_held_requests";

/// Bounds from 10 ms to 1 h, the range of waits.
const HOLD_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0];

impl LimitVecs {
    /// The metrics of the limit `name`, whose decisions `cells` count.
    pub(super) fn limit(&self, name: &str, cells: LimitCells) -> LimitMetrics {
        LimitMetrics {
            cells,
            hold_duration: self.hold_duration.with_label_values(&[name]),
            held_now: LiveGauge::new(self.held.with_label_values(&[name]), HELD, name),
            keys: self.keys.with_label_values(&[name]),
            evicted_idle: self.evicted.with_label_values(&[name, "idle"]),
            overflow: self.overflow.with_label_values(&[name]),
            bans: self.bans.with_label_values(&[name]),
            banned_keys: self.banned.with_label_values(&[name]),
            unreadable: self.unreadable.clone(),
            cut: self.cut.clone(),
        }
    }

    /// The metrics of the stored answers of the limit `name`, with these causes.
    pub(super) fn stale(&self, name: &str, causes: [&str; 3]) -> StaleMetrics {
        let [evicted_for_size, evicted_for_age] =
            ["size", "age"].map(|reason| self.stale_evicted.with_label_values(&[name, reason]));
        StaleMetrics {
            answers: causes.map(|cause| self.stale_answers.with_label_values(&[name, cause])),
            stored: self.stale_stored.with_label_values(&[name]),
            evicted_for_size,
            evicted_for_age,
            count: self.stale_count.with_label_values(&[name]),
            bytes: self.stale_bytes.with_label_values(&[name]),
        }
    }

    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        Ok(Self {
            hold_duration: make.histograms("weir_hold_duration_seconds", "How long requests waited.", &HOLD_BUCKETS)?,
            held: make.gauges(HELD, "Requests waiting now.", &["limit"])?,
            keys: make.gauges("weir_keys", "Keys remembered.", &["limit"])?,
            evicted: make.counters("weir_keys_evicted_total", "Keys forgotten.", &["limit", "reason"])?,
            overflow: make.counters("weir_overflow_decisions_total", "Decisions made past max_keys.", &["limit"])?,
            bans: make.counters("weir_bans_total", "Bans begun.", &["limit"])?,
            banned: make.gauges("weir_banned_keys", "Keys banned now.", &["limit"])?,
            bound: make.gauges(
                "weir_limit_bound",
                "Units in flight that a limit with `max = \"auto\"` admits now.",
                &["limit"],
            )?,
            adapted: make.float_gauges(
                "weir_limit_adapted_ratio",
                "Part of its written rate that a limit with `adapt` admits now.",
                &["limit"],
            )?,
            streamed: make.counters(
                "weir_streamed_units_total",
                "Units that other replicas charged, as streams brought them.",
                &["limit"],
            )?,
            stale_answers: make.counters(
                "weir_stale_answers_total",
                "Stored answers that clients got.",
                &["limit", "cause"],
            )?,
            stale_stored: make.counters("weir_stale_stored_total", "Answers that were stored.", &["limit"])?,
            stale_evicted: make.counters(
                "weir_stale_evicted_total",
                "Stored answers that were evicted.",
                &["limit", "reason"],
            )?,
            stale_count: make.gauges("weir_stale_stored", "Stored answers.", &["limit"])?,
            stale_bytes: make.gauges("weir_stale_bytes", "Bytes of stored answers.", &["limit"])?,
            unreadable: make.counters(
                "weir_unreadable_bodies_total",
                "Responses without the number that their limit settles by.",
                &["limit", "reason"],
            )?,
            cut: make.counters("weir_cut_streams_total", "Streams that ended because their budget did.", &["limit"])?,
        })
    }
}
