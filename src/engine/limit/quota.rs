//! Quota: `burst` units, one of which comes back every `interval`. Allowance: `count` units in every window of `period`.
//!
//! Not here: how units are spent (one file per algorithm), and how quotas are written (config).

use std::{error, fmt};

use super::divisor::Divisor;

/// A rate as configured: `count` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units; at least 1.
    pub count: u64,
    /// Nanoseconds; at least 1.
    pub period_ns: u64,
}

/// Why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaError {
    /// A count, a period or a burst of zero.
    Zero,
    /// More than 10,000,000 units a second: an interval below 100 ns would be rounded by over 1 %.
    TooFast,
    /// `burst * interval`, or a period, exceeds 2^62 ns (146 years), beyond which instants would overflow.
    TooLong,
    /// More than the algorithm can count for one key.
    TooMany,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "must be at least 1",
            Self::TooFast => "is faster than 10000000 a second",
            Self::TooLong => "takes more than 146 years to refill",
            Self::TooMany => "is more than this algorithm can count",
        })
    }
}

impl error::Error for QuotaError {}

/// Capacity and refill of one limit, in the form that the algorithms use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    burst: u64,
    interval_ns: u64,
    period_ns: u64,
    interval_tag: IntervalTag,
    by_interval: Divisor,
    by_burst: Divisor,
}

const INTERVAL_NS_MIN: u64 = 100;
const CAPACITY_NS_MAX: u64 = 1 << 62;

/// An interval in half a word: its leading 26 bits, and the number of bits by which they were shifted.
///
/// Two intervals with the same tag differ by less than 3 in 10^8: less than a unit in 30 million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IntervalTag(pub(super) u32);

const TAG_BITS: u32 = 26;

impl IntervalTag {
    const fn new(interval_ns: u64) -> Self {
        let shift = (u64::BITS - interval_ns.leading_zeros()).saturating_sub(TAG_BITS);
        #[allow(clippy::cast_possible_truncation)] // 26 bits are left
        Self(shift << TAG_BITS | (interval_ns >> shift) as u32)
    }

    /// The tag of these bits. `None` if no interval has it.
    pub(super) const fn from_bits(bits: u32) -> Option<Self> {
        if bits >> TAG_BITS <= u64::BITS - TAG_BITS { Some(Self(bits)) } else { None }
    }

    /// The interval, rounded up.
    pub(super) const fn interval_ns_ceil(self) -> u64 {
        self.interval_ns() + ((1 << (self.0 >> TAG_BITS)) - 1)
    }

    /// The interval, rounded down.
    pub(super) const fn interval_ns(self) -> u64 {
        ((self.0 & ((1 << TAG_BITS) - 1)) as u64) << (self.0 >> TAG_BITS)
    }
}

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
        Self::from_interval(interval_ns, rate.period_ns, burst)
    }

    fn from_interval(interval_ns: u64, period_ns: u64, burst: u64) -> Result<Self, QuotaError> {
        if burst == 0 {
            return Err(QuotaError::Zero);
        }
        match interval_ns.checked_mul(burst) {
            Some(capacity) if capacity <= CAPACITY_NS_MAX => Ok(Self {
                burst,
                interval_ns,
                period_ns,
                interval_tag: IntervalTag::new(interval_ns),
                by_interval: Divisor::new(interval_ns),
                by_burst: Divisor::new(burst),
            }),
            _ => Err(QuotaError::TooLong),
        }
    }

    /// The quota of one of `replicas` that share this one: an equal part of the burst, rounded down, and of the rate.
    ///
    /// # Errors
    /// [`QuotaError::Zero`] if the part of the burst is none.
    pub fn share(&self, replicas: u64) -> Result<Self, QuotaError> {
        let replicas = replicas.max(1);
        let burst = self.burst / replicas;
        let interval_ns = self.interval_ns.checked_mul(replicas).ok_or(QuotaError::TooLong)?;
        let period_ns = self.period_ns.saturating_mul(replicas);
        Self::from_interval(interval_ns, period_ns, burst)
    }

    /// Units of a new key.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Nanoseconds in which one unit comes back.
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

    /// `units`, which are at most the burst, as a part of it: whole percents, rounded down.
    pub const fn percent(&self, units: u64) -> u64 {
        // An interval is 100 ns at least, so this is no more than the capacity in nanoseconds.
        self.by_burst.divide(units * 100)
    }

    /// The period the rate was written with, in nanoseconds.
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    pub(super) const fn interval_tag(&self) -> IntervalTag {
        self.interval_tag
    }
}

/// `count` units in every window of `period_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    count: u64,
    period_ns: u64,
}

impl Allowance {
    /// An allowance of `rate.count` units in every `rate.period_ns`.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        match rate {
            Rate { count: 0, .. } | Rate { period_ns: 0, .. } => Err(QuotaError::Zero),
            Rate { period_ns, .. } if period_ns > CAPACITY_NS_MAX => Err(QuotaError::TooLong),
            Rate { count, period_ns } => Ok(Self { count, period_ns }),
        }
    }

    /// The allowance of one of `replicas` that share this one: an equal part of the units, rounded down, in the same period.
    ///
    /// # Errors
    /// [`QuotaError::Zero`] if that is none.
    pub fn share(&self, replicas: u64) -> Result<Self, QuotaError> {
        Self::new(Rate { count: self.count / replicas.max(1), period_ns: self.period_ns })
    }

    /// An allowance of numbers that [`Allowance::new`] has accepted before.
    pub(super) const fn unchecked(count: u64, period_ns: u64) -> Self {
        Self { count, period_ns }
    }

    /// Units in a window.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds.
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }
}

/// The units of a time, rounded: a refund loses the moment in which the request ran, and few lose half a unit.
pub(super) fn rounded_units(ns: u64, interval_ns: u64) -> u64 {
    let interval_ns = interval_ns.max(1);
    ns / interval_ns + u64::from(ns % interval_ns >= interval_ns.div_ceil(2))
}
