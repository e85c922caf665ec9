//! Rules and states as a few integers, for a store that decides by the same arithmetic elsewhere.
//!
//! No instant is among the numbers of a state, because clocks differ: all times count from the present. Those of buckets
//! are nanoseconds, all others microseconds. Every number is below 2^53, so that a double holds it. A rule with larger
//! numbers has no portable form.
//!
//! Not here: the numbers of states under any rule (`algorithm/portable.rs`); the encoding of the numbers, and the server
//! that keeps them (`stores`).

use smallvec::SmallVec;

use super::state::State;
use crate::base::time::Timestamp;

/// The numbers of a state under one rate.
pub type Numbers = SmallVec<[u64; 4]>;

/// The first number that is too large.
pub(super) const NUMBER_END: u64 = 1 << 53;
/// The most units of a window, so that sums stay below [`NUMBER_END`].
pub(super) const COUNT_MAX: u64 = 1 << 52;
pub(super) const NS_PER_US: u64 = 1000;

/// One rate of a rule: the number of its algorithm, and its numbers.
///
/// | Algorithm | Numbers |
/// |---|---|
/// | 1 token bucket, 2 leaky bucket | burst, interval in ns, the interval's tag rounded down and up, whether it shapes |
/// | 3 fixed window from the first request | count, period in us |
/// | 3 fixed window of a calendar | count, a negative hash, and in us: begin and end of the window, end of the next |
/// | 4 sliding log, 6 sub-windows | count, period in us, length of a sub-window in us or 0 |
/// | 5 sliding window | count, period in us |
/// | 7 concurrency | max |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortableRate {
    /// The algorithm.
    pub algorithm: u8,
    /// Zeros follow the numbers of the algorithm.
    pub numbers: [i64; 5],
}

/// Why a rule has no portable form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unportable {
    /// A bucket that fills, or a debt that is paid, in more than 2^53 ns.
    #[error("takes more than 104 days to refill, with its debt")]
    TooLong,
    /// More than 2^52 units.
    #[error("is more than 4503599627370496, with its debt")]
    TooMany,
    /// A period that is no whole number of microseconds.
    #[error("has a period that is no whole number of microseconds")]
    Fraction,
}

/// A charge by a store.
#[derive(Clone, Copy, Debug)]
pub struct Charged {
    /// The clock of the store, in microseconds.
    pub at_us: u64,
    /// The replica that asked.
    pub replica: u64,
}

/// A state that has a portable form.
pub(super) trait Portable: State {
    /// Appends the numbers of the state under `rule`.
    fn export(&self, rule: &Self::Rule, now: Timestamp, numbers: &mut Numbers);

    /// The state under `rule` with these numbers, each of which is below 2^53. `None` if no state has them.
    fn import(rule: &Self::Rule, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self>;

    /// How many of `numbers` are those of the state after a charge, and the numbers by which the store undoes the charge.
    fn proof(rule: &Self::Rule, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])>;
}

/// As [`Portable::proof`], of a number of entries and of each its age in microseconds and its units.
pub(super) fn proof_of_entries(numbers: &[u64], sub_us: u64, charged: Charged) -> Option<(usize, [u64; 5])> {
    let [entries, of_entries @ ..] = numbers else { return None };
    let width = usize::try_from(*entries).unwrap_or(0).saturating_mul(2);
    let age_us = width.checked_sub(2).and_then(|newest| of_entries.get(newest)).copied().unwrap_or(0);
    Some((width + 1, [charged.at_us.saturating_sub(age_us), sub_us, 0, 0, 0]))
}

/// A number of a rule; one that is too large becomes the largest.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number.min(NUMBER_END - 1)).unwrap_or(i64::MAX)
}

/// Microseconds of a rule.
pub(super) fn us(ns: u64) -> i64 {
    signed(to_us(ns))
}

/// Nanoseconds of a number of microseconds.
pub(super) const fn from_us(us: u64) -> u64 {
    us.saturating_mul(NS_PER_US)
}

/// Microseconds, rounded down.
pub(super) const fn to_us(ns: u64) -> u64 {
    ns / NS_PER_US
}

/// Microseconds, rounded up.
pub(super) const fn to_us_ceil(ns: u64) -> u64 {
    ns.div_ceil(NS_PER_US)
}
