//! Quota: `burst` units, one of which comes back every `interval`. Allowance: `count` units in every window of `period`.
//!
//! Not here: how units are spent (one file per algorithm), and how quotas are written (config).

use super::Pace;
use super::portable::{NUMBER_END, Unportable, signed};
use super::rule::{QuotaError, Rate, Rule, Scale};
use crate::base::time::Timestamp;

/// Capacity and refill of one limit, in the form that the algorithms use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    burst: u64,
    interval_ns: u64,
    period_ns: u64,
    interval_tag: IntervalTag,
    by_interval: Divisor,
    by_burst: Divisor,
    shapes: bool,
}

const INTERVAL_NS_MIN: u64 = 100;
const CAPACITY_NS_MAX: u64 = 1 << 62;

/// An interval in half a word: its leading 26 bits, and the number of bits by which they were shifted. Tags have the order of
/// their intervals.
///
/// Two intervals with the same tag differ by less than 3 in 10^8: less than a unit in 30 million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IntervalTag(pub(super) u32);

const TAG_BITS: u32 = 26;

impl IntervalTag {
    /// The time of this many units is too short by less than a unit.
    pub(super) const UNITS_EXACT: u64 = 1 << (TAG_BITS - 1);

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
        match interval_ns.checked_mul(burst) {
            Some(capacity) if capacity <= CAPACITY_NS_MAX => Ok(Self {
                burst,
                interval_ns,
                period_ns,
                interval_tag: IntervalTag::new(interval_ns),
                by_interval: Divisor::new(interval_ns),
                by_burst: Divisor::new(burst),
                shapes: false,
            }),
            _ => Err(QuotaError::TooLong),
        }
    }

    /// Units of a new key; none of a quota times zero.
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

    /// Whether requests pass one by one, as in a leaky bucket that is a queue.
    pub const fn shapes(&self) -> bool {
        self.shapes
    }

    /// The quota of a bucket that shapes, or does not.
    pub const fn shaping(self, shapes: bool) -> Self {
        Self { shapes, ..self }
    }

    pub(super) const fn interval_tag(&self) -> IntervalTag {
        self.interval_tag
    }
}

/// The rule of token buckets and leaky buckets, see [`token_bucket`](super::token_bucket).
impl Rule for Quota {
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn period_ns(&self) -> Option<u64> {
        Some(self.period_ns)
    }

    fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    fn memory_ns(&self) -> u64 {
        self.capacity_ns().max(self.period_ns)
    }

    fn pace(&self, _: Timestamp) -> Option<Pace> {
        // Each interval is rounded up by less than 1 ns, which the burst makes up for.
        let window_ns = self.capacity_ns() - self.burst.saturating_sub(1);
        Some(Pace::new(self.burst, window_ns, (1, self.interval_ns)))
    }

    fn is_within(&self, other: &Self) -> bool {
        self.shapes == other.shapes && self.burst <= other.burst && self.interval_ns >= other.interval_ns
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        let interval_ns = scale.time_ns(self.interval_ns);
        if interval_ns < INTERVAL_NS_MIN {
            return Err(QuotaError::TooFast);
        }
        let scaled = Self::from_interval(interval_ns, scale.time_ns(self.period_ns), scale.units(self.burst))?;
        Ok(scaled.shaping(self.shapes))
    }

    fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable> {
        let is_short = self.portable_debt_max().is_some_and(|most| max_debt <= most);
        if is_short { Ok(*self) } else { Err(Unportable::TooLong) }
    }

    fn portable_debt_max(&self) -> Option<u64> {
        let free_ns = (NUMBER_END - 1).checked_sub(self.capacity_ns())?;
        free_ns.checked_div(self.interval_ns)
    }

    fn portable_numbers(&self, _: Timestamp) -> [i64; 5] {
        let tag = self.interval_tag;
        [self.burst, self.interval_ns, tag.interval_ns(), tag.interval_ns_ceil(), self.shapes.into()].map(signed)
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        self.burst + span_ns / self.interval_ns
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

/// Divides by a number that is known long before the dividend, exactly, as a multiplication.
///
/// A division of 64 bits takes several times as long as all else that a bucket computes. Granlund and
/// Montgomery, "Division by invariant integers using multiplication" (1994), theorem 4.2: with
/// `2^(l-1) < d <= 2^l` and `m = floor(2^(63+l) / d) + 1`, `floor(n / d) = floor(m * n / 2^(63+l))` for every
/// `n < 2^63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Divisor {
    magic: u64,
    shift: u32,
}

impl Divisor {
    /// Dividends are below this.
    const DIVIDEND_BITS: u32 = 63;

    /// `divisor` is from 1 to 2^62; 0 divides as 1 does.
    const fn new(divisor: u64) -> Self {
        let divisor = if divisor == 0 { 1 } else { divisor };
        let shift = if divisor == 1 { 0 } else { (divisor - 1).ilog2() + 1 };
        let quotient = (1_u128 << (Self::DIVIDEND_BITS + shift)) / divisor as u128;
        #[allow(clippy::cast_possible_truncation)] // it is below 2^64, because 2^shift < 2 * divisor
        let magic = quotient as u64 + 1;
        Self { magic, shift }
    }

    /// `dividend / divisor`, rounded down, for a dividend below 2^63.
    const fn divide(self, dividend: u64) -> u64 {
        // The dividend is doubled, so that the product is shifted by 64 first, which costs nothing. Tests check overflows.
        let product = (dividend * 2) as u128 * self.magic as u128;
        (product >> 64) as u64 >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Divisor;

    fn check(dividend: u64, divisor: u64) {
        assert_eq!(Divisor::new(divisor).divide(dividend), dividend / divisor, "{dividend} / {divisor}");
    }

    #[test]
    fn exact_where_it_turns() {
        let powers = (0..=62).map(|exponent| 1_u64 << exponent);
        let around = |number: u64| [number.saturating_sub(1).max(1), number, number + 1];
        for divisor in powers.clone().flat_map(around).filter(|divisor| *divisor <= 1 << 62) {
            for quotient in powers.clone().flat_map(around) {
                if let Some(multiple) = quotient.checked_mul(divisor).filter(|multiple| *multiple < 1 << 63) {
                    check(multiple, divisor);
                    check(multiple - 1, divisor);
                }
            }
            check((1 << 63) - 1, divisor);
            check(0, divisor);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_division(dividend in 0_u64..1 << 63, divisor in 1_u64..=1 << 62, fewer in 0_u32..62) {
            check(dividend, (divisor >> fewer).max(1));
            check(dividend >> fewer, divisor);
        }
    }
}
