//! The rule of sub-windows.

use crate::base::time::Timestamp;
use crate::engine::limit::portable::{NS_PER_US, Unportable, signed, us};
use crate::engine::limit::rule::{self, Scale};
use crate::engine::limit::{Allowance, Pace, QuotaError, Rate};

/// The largest number of sub-windows: 8 KB for one key.
pub const SUB_WINDOWS_MAX: u32 = 1024;

/// The rule of sub-windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) count: u64,
    pub(super) sub_ns: u64,
    pub(super) n: u64,
}

impl Rule {
    /// `rate.count` units in `rate.period_ns`, cut into `n` sub-windows.
    pub fn new(rate: Rate, n: u32) -> Result<Self, QuotaError> {
        let allowance = Allowance::new(rate)?;
        match n {
            0 => Err(QuotaError::Zero),
            1..=SUB_WINDOWS_MAX => {
                let n = u64::from(n);
                Ok(Self { count: allowance.count(), sub_ns: allowance.period_ns().div_ceil(n), n })
            }
            _ => Err(QuotaError::TooMany),
        }
    }

    /// The length of all sub-windows in nanoseconds.
    pub(super) const fn length_ns(&self) -> u64 {
        self.sub_ns * self.n
    }
}

impl rule::Rule for Rule {
    fn capacity(&self) -> u64 {
        self.count
    }

    fn period_ns(&self) -> Option<u64> {
        Some(self.length_ns())
    }

    fn pace(&self, _: Timestamp) -> Option<Pace> {
        Some(Pace::of_windows(self.count, self.length_ns()))
    }

    fn chargeable_from(&self, earliest: Timestamp, now: Timestamp) -> Timestamp {
        earliest.max(now.saturating_sub_ns(now.as_ns() % self.sub_ns))
    }

    fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        (now.as_ns() / self.sub_ns).saturating_sub(at.as_ns() / self.sub_ns) < self.n
    }

    fn is_within(&self, other: &Self) -> bool {
        (self.length_ns(), self.n) == (other.length_ns(), other.n) && self.count <= other.count
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        Ok(Self { count: scale.units(self.count), ..*self })
    }

    /// Sub-windows of whole microseconds, rounded up.
    fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable> {
        let is_few = self.portable_debt_max().is_some_and(|most| max_debt <= most);
        let sub_ns = self.sub_ns.next_multiple_of(NS_PER_US);
        if is_few { Ok(Self { sub_ns, ..*self }) } else { Err(Unportable::TooMany) }
    }

    fn portable_numbers(&self, _: Timestamp) -> [i64; 5] {
        [signed(self.count), us(self.length_ns()), us(self.sub_ns), 0, 0]
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        let met = span_ns.div_ceil(self.sub_ns) + 1;
        self.count * met.div_ceil(self.n)
    }
}
