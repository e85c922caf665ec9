//! Rules, and states under any rule, as integers below 2^53. A rule with larger numbers has no portable form.
//!
//! Not here: the numbers of the state of one algorithm (its file); their encoding, and the server that keeps them (`stores`).

use std::iter::repeat;
use std::{error, fmt};

use smallvec::SmallVec;

use super::{Algorithm, AnyState, Several};
use crate::base::split_mix::{STEP, mix};
use crate::base::time::Timestamp;
use crate::engine::limit::Quota;
use crate::engine::limit::fixed_window::{self, Windows};
use crate::engine::limit::portable::{Numbers, Portable};
use crate::engine::limit::state::State as _;

/// The first number that is too large.
const NUMBER_END: u64 = 1 << 53;
/// The most units of a window, so that sums stay below [`NUMBER_END`].
const COUNT_MAX: u64 = 1 << 52;
const NS_PER_US: u64 = 1000;
/// How far clocks of replicas and servers may differ near the end of a calendar's window.
const SKEW_NS: u64 = 3_600_000_000_000;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unportable {
    /// A bucket that fills, or a debt that is paid, in more than 2^53 ns.
    TooLong,
    /// More than 2^52 units.
    TooMany,
    /// A period that is no whole number of microseconds.
    Fraction,
}

impl fmt::Display for Unportable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "takes more than 104 days to refill, with its debt",
            Self::TooMany => "is more than 4503599627370496, with its debt",
            Self::Fraction => "has a period that is no whole number of microseconds",
        })
    }
}

impl error::Error for Unportable {}

impl Algorithm {
    /// This rule with sub-windows of whole microseconds, rounded up. `max_debt` are the units that may be charged beyond it.
    ///
    /// # Errors
    /// If the rule has no portable form.
    pub fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable> {
        let whole =
            |period_ns: u64| if period_ns.is_multiple_of(NS_PER_US) { Ok(()) } else { Err(Unportable::Fraction) };
        let few = |count: u64| match count.checked_add(max_debt) {
            Some(most) if most <= COUNT_MAX => Ok(()),
            _ => Err(Unportable::TooMany),
        };
        Ok(match self {
            Self::TokenBucket(quota) => fits(quota, max_debt).map(|()| self.clone())?,
            Self::LeakyBucket(rule) => fits(&rule.quota, max_debt).map(|()| self.clone())?,
            Self::FixedWindow(rule) => whole(rule.period_ns()).and(few(rule.count())).map(|()| self.clone())?,
            Self::SlidingLog(rule) => whole(rule.period_ns()).and(few(rule.count())).map(|()| self.clone())?,
            Self::SlidingWindow(rule) => whole(rule.period_ns()).and(few(rule.count())).map(|()| self.clone())?,
            Self::SubWindow(rule) => few(rule.count()).map(|()| Self::SubWindow(rule.in_steps_of(NS_PER_US)))?,
            Self::Concurrency(rule) => few(rule.max()).map(|()| self.clone())?,
            Self::Several(rules) => {
                Self::Several(rules.iter().map(|rule| rule.to_portable(max_debt)).collect::<Result<_, _>>()?)
            }
        })
    }

    /// The most units beyond this rule with which it has a portable form; `None` if it has none.
    pub fn portable_debt_max(&self) -> Option<u64> {
        let of_bucket = |quota: &Quota| {
            let free_ns = (NUMBER_END - 1).checked_sub(quota.capacity_ns())?;
            free_ns.checked_div(quota.interval_ns())
        };
        let of_count = |count: u64| COUNT_MAX.checked_sub(count);
        match self {
            Self::TokenBucket(quota) => of_bucket(quota),
            Self::LeakyBucket(rule) => of_bucket(&rule.quota),
            Self::FixedWindow(rule) => of_count(rule.count()),
            Self::SlidingLog(rule) => of_count(rule.count()),
            Self::SlidingWindow(rule) => of_count(rule.count()),
            Self::SubWindow(rule) => of_count(rule.count()),
            Self::Concurrency(rule) => of_count(rule.max()),
            Self::Several(rules) => {
                let each = rules.iter().map(Self::portable_debt_max);
                each.reduce(|one, other| Some(one?.min(other?))).flatten()
            }
        }
    }

    /// The numbers of a rule of one rate at `now`, if [`Algorithm::to_portable`] returned it. Otherwise they are rounded.
    pub fn portable_rate(&self, now: Timestamp) -> PortableRate {
        let (algorithm, numbers) = match self {
            Self::TokenBucket(quota) => (1, bucket(quota, false)),
            Self::LeakyBucket(rule) => (2, bucket(&rule.quota, rule.shapes)),
            Self::FixedWindow(rule) => (3, window(rule, now)),
            Self::SlidingLog(rule) => (4, [signed(rule.count()), us(rule.period_ns()), 0, 0, 0]),
            Self::SlidingWindow(rule) => (5, [signed(rule.count()), us(rule.period_ns()), 0, 0, 0]),
            Self::SubWindow(rule) => {
                let sub_us = us(rule.period_ns() / rule.sub_windows());
                (6, [signed(rule.count()), us(rule.period_ns()), sub_us, 0, 0])
            }
            Self::Concurrency(rule) => (7, [signed(rule.max()), 0, 0, 0, 0]),
            // A rate has no rates.
            Self::Several(rules) => return rules.first().map_or(NO_RATE, |rule| rule.portable_rate(now)),
        };
        PortableRate { algorithm, numbers }
    }
}

impl Algorithm {
    /// Of `units` that were charged at `since`, at most `max_debt` beyond the rule: those that time has not given back by
    /// `now`.
    pub fn left_of(&self, units: u64, max_debt: u64, since: Timestamp, now: Timestamp) -> u64 {
        let mut state = AnyState::fresh(self);
        state.settle(self, i64::try_from(units).unwrap_or(i64::MAX), max_debt, since);
        let left = self.capacity().saturating_sub(state.peek(self, 0, now).remaining);
        left.saturating_add(state.over(self, now)).min(units)
    }

    /// A number by which two processes know that they have the same rule. Rules whose portable forms are equal have the
    /// same number.
    pub fn digest(&self) -> u64 {
        let add = |digest: u64, number: u64| mix(digest.wrapping_add(STEP) ^ number);
        self.rates().iter().fold(0, |digest, rate| {
            let (algorithm, numbers) = match rate {
                // The bounds of the present window are no part of the rule.
                Self::FixedWindow(rule) if let Windows::Calendar(calendar) = rule.windows() => {
                    (u8::MAX, [signed(rule.count()), signed(calendar.id() >> 12), 0, 0, 0])
                }
                rate => {
                    let PortableRate { algorithm, numbers } = rate.portable_rate(Timestamp::ZERO);
                    (algorithm, numbers)
                }
            };
            numbers.iter().fold(add(digest, algorithm.into()), |digest, number| add(digest, number.unsigned_abs()))
        })
    }
}

/// The form of no rule.
const NO_RATE: PortableRate = PortableRate { algorithm: 0, numbers: [0; 5] };

fn fits(quota: &Quota, max_debt: u64) -> Result<(), Unportable> {
    let most_ns =
        quota.interval_ns().checked_mul(max_debt).and_then(|debt_ns| debt_ns.checked_add(quota.capacity_ns()));
    most_ns.filter(|most_ns| *most_ns < NUMBER_END).map(|_| ()).ok_or(Unportable::TooLong)
}

fn bucket(quota: &Quota, shapes: bool) -> [i64; 5] {
    let tag = quota.interval_tag();
    let numbers = [quota.burst(), quota.interval_ns(), tag.interval_ns(), tag.interval_ns_ceil(), shapes.into()];
    numbers.map(signed)
}

fn window(rule: &fixed_window::Rule, now: Timestamp) -> [i64; 5] {
    let count = signed(rule.count());
    match rule.windows() {
        Windows::FromFirst(period_ns) => [count, us(*period_ns), 0, 0, 0],
        Windows::Calendar(calendar) => {
            let earliest = now.saturating_sub_ns(calendar.nominal_ns().min(SKEW_NS));
            let begins = rule.first_in_window(earliest, now);
            let ends = calendar.end(now);
            // 52 bits, so that the negative number is not 0.
            let hash = -1 - signed(calendar.id() >> 12);
            [count, hash, us(begins.as_ns()), us(ends.as_ns()), us(calendar.end(ends).as_ns())]
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number.min(NUMBER_END - 1)).unwrap_or(i64::MAX)
}

fn us(ns: u64) -> i64 {
    signed(ns / NS_PER_US)
}

impl AnyState {
    /// The numbers of the state under each rate of `rule`.
    pub fn export(&self, rule: &Algorithm, now: Timestamp) -> SmallVec<[Numbers; 1]> {
        let mut state = self.clone();
        state.adopt(rule, now);
        let export = |(state, rule): (&Self, &Algorithm)| {
            let mut numbers = Numbers::new();
            state.export_rate(rule, now, &mut numbers);
            numbers.iter_mut().for_each(|number| *number = (*number).min(NUMBER_END - 1));
            numbers
        };
        let states = match &state {
            Self::Several(several) => &*several.states,
            one => std::slice::from_ref(one),
        };
        states.iter().zip(rule.rates()).map(export).collect()
    }

    /// The state under `rule` with the numbers of all its rates, one after another. `None` if no state has them.
    pub fn import(rule: &Algorithm, numbers: &mut impl Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        let mut valid = numbers.by_ref().take_while(|number| *number < NUMBER_END);
        match rule {
            Algorithm::Several(rules) => rules
                .iter()
                .map(|rule| Self::import_rate(rule, &mut valid, now))
                .collect::<Option<_>>()
                .map(|states| Self::Several(Several { states })),
            rule => Self::import_rate(rule, &mut valid, now),
        }
    }

    /// The units that are spent under each rate of `rule`, with debts.
    pub fn spent(&self, rule: &Algorithm, now: Timestamp) -> SmallVec<[u64; 1]> {
        let mut state = self.clone();
        state.adopt(rule, now);
        let states = match &state {
            Self::Several(several) => &*several.states,
            one => std::slice::from_ref(one),
        };
        let spent = |(state, rule): (&Self, &Algorithm)| {
            let free = state.peek(rule, 0, now).remaining;
            rule.capacity().saturating_sub(free).saturating_add(state.over(rule, now))
        };
        states.iter().zip(rule.rates()).map(spent).collect()
    }

    /// The state of a key of which so many units were spent at `now` under each rate of `rule`. A rate without a number
    /// has the largest of them.
    pub fn with_spent(rule: &Algorithm, spent: &[u64], now: Timestamp) -> Self {
        let mut state = Self::fresh(rule);
        let states = match &mut state {
            Self::Several(several) => &mut *several.states,
            one => std::slice::from_mut(one),
        };
        let most = spent.iter().copied().max().unwrap_or(0);
        for ((state, rule), units) in states.iter_mut().zip(rule.rates()).zip(spent.iter().copied().chain(repeat(most)))
        {
            state.settle(rule, i64::try_from(units).unwrap_or(i64::MAX), u64::MAX, now);
        }
        state
    }

    fn export_rate(&self, rule: &Algorithm, now: Timestamp, numbers: &mut Numbers) {
        match (self, rule) {
            (Self::TokenBucket(state), Algorithm::TokenBucket(rule)) => state.export(rule, now, numbers),
            (Self::LeakyBucket(state), Algorithm::LeakyBucket(rule)) => state.export(rule, now, numbers),
            (Self::FixedWindow(state), Algorithm::FixedWindow(rule)) => state.export(rule, now, numbers),
            (Self::SlidingLog(state), Algorithm::SlidingLog(rule)) => state.export(rule, now, numbers),
            (Self::SlidingWindow(state), Algorithm::SlidingWindow(rule)) => state.export(rule, now, numbers),
            (Self::SubWindow(state), Algorithm::SubWindow(rule)) => state.export(rule, now, numbers),
            (Self::Concurrency(state), Algorithm::Concurrency(rule)) => state.export(rule, now, numbers),
            // The state has adopted the rule, and a rate has no rates.
            _ => {}
        }
    }

    fn import_rate(rule: &Algorithm, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        Some(match rule {
            Algorithm::TokenBucket(rule) => Self::TokenBucket(Portable::import(rule, numbers, now)?),
            Algorithm::LeakyBucket(rule) => Self::LeakyBucket(Portable::import(rule, numbers, now)?),
            Algorithm::FixedWindow(rule) => Self::FixedWindow(Portable::import(rule, numbers, now)?),
            Algorithm::SlidingLog(rule) => Self::SlidingLog(Portable::import(rule, numbers, now)?),
            Algorithm::SlidingWindow(rule) => Self::SlidingWindow(Portable::import(rule, numbers, now)?),
            Algorithm::SubWindow(rule) => Self::SubWindow(Portable::import(rule, numbers, now)?),
            Algorithm::Concurrency(rule) => Self::Concurrency(Portable::import(rule, numbers, now)?),
            Algorithm::Several(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Quota, QuotaError, Rate};
    use super::*;

    #[test]
    fn numbers_end_before_two_to_the_53() -> Result<(), QuotaError> {
        assert_eq!([0, (1 << 53) - 1, 1 << 53, u64::MAX].map(signed), [0, (1 << 53) - 1, (1 << 53) - 1, (1 << 53) - 1]);
        // One unit in 128 ns: 2^46 intervals are one nanosecond more than the largest number.
        let quota = Quota::new(Rate { count: 1, period_ns: 128 }, 10)?;
        assert_eq!(Algorithm::TokenBucket(quota).portable_debt_max(), Some((1 << 46) - 11));
        Ok(())
    }

    /// Another rule takes the spent units over.
    #[test]
    fn spent_units_are_kept_by_another_rule() -> Result<(), QuotaError> {
        let now = Timestamp::from_ns(1_000_000_000_000);
        let bucket = |count| Quota::new(Rate { count, period_ns: 1_000_000_000 }, count).map(Algorithm::TokenBucket);
        let several = |counts: [u64; 2]| -> Result<_, QuotaError> {
            Ok(Algorithm::Several([bucket(counts[0])?, bucket(counts[1])?].into()))
        };
        for (before, charged, after, expected) in [
            (bucket(10)?, 4, bucket(100)?, &[4][..]),
            (bucket(100)?, 40, bucket(10)?, &[40]),
            (several([10, 100])?, 4, several([20, 50])?, &[4, 4]),
            (bucket(10)?, 3, several([20, 50])?, &[3, 3]),
            (several([10, 100])?, 5, bucket(10)?, &[5]),
        ] {
            let mut state = AnyState::fresh(&before);
            state.settle(&before, charged, u64::MAX, now);
            let taken_over = AnyState::with_spent(&after, &state.spent(&before, now), now);
            assert_eq!(taken_over.spent(&after, now).as_slice(), expected, "{before:?} {after:?}");
        }
        Ok(())
    }
}
