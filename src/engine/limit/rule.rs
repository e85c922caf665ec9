//! The interface of all rules: the numbers of one algorithm, and the times at which units count under them.
//!
//! A limit has one rule, or several at once ([`Algorithm`](super::Algorithm)). Not here: what a key has spent
//! ([`State`](super::State)).

use super::portable::{COUNT_MAX, NS_PER_US, Unportable, signed, us};
use super::{Calendar, Pace};
use crate::base::time::Timestamp;

/// A rate as configured: `count` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units; at least 1.
    pub count: u64,
    /// Nanoseconds; at least 1.
    pub period_ns: u64,
}

/// A part of a rule, or a multiple of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Zero for nothing.
    pub numerator: u64,
    /// At least 1.
    pub denominator: u64,
}

impl Scale {
    /// The share of one of `replicas`.
    pub fn one_of(replicas: u64) -> Self {
        Self { numerator: 1, denominator: replicas.max(1) }
    }

    /// `units` times the scale, rounded down; at least one unless the scale is zero.
    pub fn units(self, units: u64) -> u64 {
        if self.numerator == 0 { 0 } else { multiplied(units, self.numerator, self.denominator, 0).max(1) }
    }

    /// The time in which a unit comes back, if it is `ns` without the scale. Rounded up.
    pub(super) fn time_ns(self, ns: u64) -> u64 {
        if self.numerator == 0 { ns } else { multiplied(ns, self.denominator, self.numerator, self.numerator - 1) }
    }
}

/// `(number * by + more) / of`, at most the largest number.
fn multiplied(number: u64, by: u64, of: u64, more: u64) -> u64 {
    let product = u128::from(number) * u128::from(by) + u128::from(more);
    u64::try_from(product / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// Why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// A count, a period or a burst of zero.
    #[error("must be at least 1")]
    Zero,
    /// More than 10,000,000 units a second: an interval below 100 ns would be rounded by over 1 %.
    #[error("is faster than 10000000 a second")]
    TooFast,
    /// `burst * interval`, or a period, exceeds 2^62 ns (146 years), beyond which instants would overflow.
    #[error("takes more than 146 years to refill")]
    TooLong,
    /// More than the algorithm can count for one key.
    #[error("is more than this algorithm can count")]
    TooMany,
}

/// What a rule is made of. An algorithm ignores the settings that it does not have.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The units, and the time in which they come back. Of `concurrency`, the count alone: units in flight.
    pub rate: Rate,
    /// The units of a full bucket.
    pub burst: u64,
    /// Whether a leaky bucket queues requests.
    pub shapes: bool,
    /// The calendar of a fixed window, in place of the period; `None` if windows begin with a request.
    pub calendar: Option<Calendar>,
    /// Parts of a window of sub-windows.
    pub sub_windows: u32,
}

/// The usual settings for this rate.
impl From<Rate> for Settings {
    fn from(rate: Rate) -> Self {
        Self { rate, burst: rate.count, shapes: false, calendar: None, sub_windows: 10 }
    }
}

/// The rule of one algorithm.
pub trait Rule {
    /// Units of a new key.
    fn capacity(&self) -> u64;

    /// The period of the rate in nanoseconds; `None` if units do not come back with time.
    fn period_ns(&self) -> Option<u64>;

    /// Nanoseconds in which one unit comes back; 0 if units do not come back one by one.
    fn interval_ns(&self) -> u64 {
        0
    }

    /// Nanoseconds in which `cost` units come back, about; 0 if units do not come back with time.
    fn refill_ns(&self, cost: u64) -> u64 {
        match self.interval_ns() {
            0 => self.period_ns().unwrap_or(0),
            interval_ns => interval_ns.saturating_mul(cost),
        }
    }

    /// The longest time for which spent units count, in nanoseconds; 0 if units do not come back with time.
    fn memory_ns(&self) -> u64 {
        self.period_ns().unwrap_or(0)
    }

    /// The pace at `now`; `None` if units do not come back with time.
    fn pace(&self, now: Timestamp) -> Option<Pace>;

    /// Whether a charge lasts until the end of its request.
    fn is_released(&self) -> bool {
        false
    }

    /// The first instant, not before `earliest`, as of which a request that passes at `now` may be charged. It is not in a
    /// window that has ended.
    fn chargeable_from(&self, earliest: Timestamp, _now: Timestamp) -> Timestamp {
        earliest
    }

    /// Whether a charge of `at` may count at `now`: not in a window that has ended. Units of buckets come back by themselves.
    fn counts(&self, _at: Timestamp, _now: Timestamp) -> bool {
        true
    }

    /// Whether this rule is at least as strict as `other`: if both charge a key, this one at least as much, then `other`
    /// admits whatever this one admits. `false` also if that is unknown.
    fn is_within(&self, other: &Self) -> bool
    where
        Self: Sized;

    /// This rule times `scale`: the units, and of a bucket the pace too. A rule times zero has no units, so it admits no
    /// request that costs any.
    ///
    /// # Errors
    /// If the algorithm cannot compute with the numbers.
    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError>
    where
        Self: Sized;

    /// This rule in a form that a store can compute with. `max_debt` are the units that may be charged beyond it.
    ///
    /// # Errors
    /// If there is no such form.
    fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable>
    where
        Self: Sized + Clone,
    {
        let is_whole = self.period_ns().is_none_or(|period_ns| period_ns.is_multiple_of(NS_PER_US));
        let is_few = self.portable_debt_max().is_some_and(|most| max_debt <= most);
        match (is_whole, is_few) {
            (false, _) => Err(Unportable::Fraction),
            (_, false) => Err(Unportable::TooMany),
            _ => Ok(self.clone()),
        }
    }

    /// The most units beyond this rule with which it has a portable form; `None` if it has none.
    fn portable_debt_max(&self) -> Option<u64> {
        COUNT_MAX.checked_sub(self.capacity())
    }

    /// The numbers of the rule at `now` in its portable form, followed by zeros. Without such a form they are rounded.
    fn portable_numbers(&self, _now: Timestamp) -> [i64; 5] {
        [signed(self.capacity()), us(self.period_ns().unwrap_or(0)), 0, 0, 0]
    }

    /// The most units that are admitted in a span of `span_ns`, from the first request to the last.
    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64;
}
