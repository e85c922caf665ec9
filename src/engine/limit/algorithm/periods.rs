//! The times of a rule: when units come back, and how long they count; and the window that a state has by itself.
//!
//! Not here: the units that count in it (`fixed_window`, `sliding_window`).

use super::{Algorithm, AnyState};
use crate::base::time::Timestamp;
use crate::engine::limit::{Allowance, Rate, fixed_window};

impl Algorithm {
    /// Nanoseconds in which one unit comes back; 0 if units do not come back one by one.
    #[inline]
    pub fn interval_ns(&self) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.interval_ns(),
            Self::LeakyBucket(rule) => rule.quota.interval_ns(),
            _ => 0,
        }
    }

    /// Nanoseconds in which `cost` units come back, about; 0 if units do not come back with time.
    pub fn refill_ns(&self, cost: u64) -> u64 {
        match (self, self.interval_ns()) {
            (Self::Several(rules), _) => rules.iter().map(|rule| rule.refill_ns(cost)).max().unwrap_or(0),
            (_, 0) => self.period_ns().unwrap_or(0),
            (_, interval_ns) => interval_ns.saturating_mul(cost),
        }
    }

    /// The longest time for which spent units count, in nanoseconds; 0 if units do not come back with time.
    pub fn memory_ns(&self) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.capacity_ns().max(quota.period_ns()),
            Self::LeakyBucket(rule) => rule.quota.capacity_ns().max(rule.quota.period_ns()),
            Self::Several(rules) => rules.iter().map(Self::memory_ns).max().unwrap_or(0),
            other => other.period_ns().unwrap_or(0),
        }
    }

    /// The first instant, not before `earliest`, as of which a request that passes at `now` may be charged. It is not in a
    /// window that has ended.
    pub fn chargeable_from(&self, earliest: Timestamp, now: Timestamp) -> Timestamp {
        match self {
            Self::FixedWindow(rule) => rule.first_in_window(earliest, now),
            Self::SubWindow(rule) => rule.first_in_window(earliest, now),
            Self::Several(rules) => rules.iter().fold(earliest, |from, rule| rule.chargeable_from(from, now)),
            _ => earliest,
        }
    }

    /// Whether a charge of `at` is in no window that has ended at `now`. Of one rate; units of buckets come back by themselves.
    pub(in crate::engine::limit) fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        match self {
            Self::FixedWindow(rule) => rule.first_in_window(at, now) <= at,
            Self::SubWindow(rule) => rule.counts(at, now),
            _ => true,
        }
    }

    /// The period of the rate in nanoseconds; of several rates, the period of the rate with the smallest capacity. `None`
    /// for [`Algorithm::Concurrency`].
    #[inline]
    pub fn period_ns(&self) -> Option<u64> {
        match self {
            Self::TokenBucket(quota) => Some(quota.period_ns()),
            other => other.other_period_ns(),
        }
    }

    fn other_period_ns(&self) -> Option<u64> {
        match self {
            Self::TokenBucket(quota) => Some(quota.period_ns()),
            Self::LeakyBucket(rule) => Some(rule.quota.period_ns()),
            Self::FixedWindow(rule) => Some(rule.period_ns()),
            Self::SlidingLog(rule) => Some(rule.period_ns()),
            Self::SlidingWindow(rule) => Some(rule.period_ns()),
            Self::SubWindow(rule) => Some(rule.period_ns()),
            Self::Concurrency(_) => None,
            Self::Several(rules) => rules.iter().min_by_key(|rule| rule.capacity()).and_then(Self::period_ns),
        }
    }
}

impl AnyState {
    /// A rule of `count` units under which the window of the state stays as it is; `None` for windows of a calendar, and
    /// for other algorithms.
    pub fn own_window(&self, count: u64) -> Option<Algorithm> {
        let rate = |period_ns| Rate { count, period_ns };
        match self {
            Self::FixedWindow(state) => {
                let rule = fixed_window::Rule::from_first(rate(state.length_ns()?));
                rule.map(Algorithm::FixedWindow).ok()
            }
            Self::SlidingWindow(state) => Allowance::new(rate(state.period_ns())).map(Algorithm::SlidingWindow).ok(),
            _ => None,
        }
    }
}
