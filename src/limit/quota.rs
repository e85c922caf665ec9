//! A quota: `burst` units, one of which comes back every `interval`.
//!
//! Not here: how a quota is spent (one file per algorithm), and how it is written (config).

use std::{error, fmt};

use super::divisor::Divisor;

/// An allowance as people write it: `count` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units; at least 1.
    pub count: u64,
    /// Nanoseconds; at least 1.
    pub period_ns: u64,
}

/// Why a quota cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaError {
    /// A count, a period or a burst of zero.
    Zero,
    /// More than 10,000,000 units a second: an interval below 100 ns would be rounded by over 1 %.
    TooFast,
    /// `burst * interval` exceeds 2^62 ns (146 years), past which instants could not be told apart.
    TooLong,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "must be at least 1",
            Self::TooFast => "is faster than 10000000 a second",
            Self::TooLong => "takes more than 146 years to refill",
        })
    }
}

impl error::Error for QuotaError {}

/// Capacity and refill of one limit, in the form the algorithms use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    burst: u64,
    interval_ns: u64,
    period_ns: u64,
    by_interval: Divisor,
    by_burst: Divisor,
}

const INTERVAL_NS_MIN: u64 = 100;
const CAPACITY_NS_MAX: u64 = 1 << 62;

impl Quota {
    /// A quota of `burst` units refilled at `rate`. The interval is rounded up, so never too much is admitted.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        if rate.count == 0 || rate.period_ns == 0 || burst == 0 {
            return Err(QuotaError::Zero);
        }
        let interval_ns = rate.period_ns.div_ceil(rate.count);
        if interval_ns < INTERVAL_NS_MIN {
            return Err(QuotaError::TooFast);
        }
        match interval_ns.checked_mul(burst) {
            Some(capacity) if capacity <= CAPACITY_NS_MAX => Ok(Self {
                burst,
                interval_ns,
                period_ns: rate.period_ns,
                by_interval: Divisor::new(interval_ns),
                by_burst: Divisor::new(burst),
            }),
            _ => Err(QuotaError::TooLong),
        }
    }

    /// Units that a key never seen has.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Nanoseconds for one unit to come back.
    pub const fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Nanoseconds for an empty bucket to fill.
    pub const fn capacity_ns(&self) -> u64 {
        self.burst * self.interval_ns
    }

    /// Whole units that come back within `ns` nanoseconds, which are at most the capacity.
    pub const fn units_in(&self, ns: u64) -> u64 {
        self.by_interval.divide(ns)
    }

    /// What part of the burst `units`, at most all of it, are: whole percents, rounded down.
    pub const fn percent(&self, units: u64) -> u64 {
        // An interval is 100 ns at least, so this is no more than the capacity in nanoseconds.
        self.by_burst.divide(units * 100)
    }

    /// The period the rate was written with, in nanoseconds (the window shown to clients).
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }
}
