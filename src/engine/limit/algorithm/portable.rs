//! Rules, and states under any rule, as integers below 2^53. A rule with larger numbers has no portable form.
//!
//! Not here: the numbers of the rule and the state of one algorithm (its file); their encoding, and the server that keeps
//! them (`stores`).

use std::iter::repeat;

use smallvec::SmallVec;

use super::{Algorithm, AnyState, Several};
use crate::base::split_mix::{STEP, mix};
use crate::base::time::Timestamp;
use crate::engine::limit::fixed_window::Windows;
use crate::engine::limit::portable::{NUMBER_END, Numbers, PortableRate, signed};
use crate::engine::limit::state::State as _;

impl Algorithm {
    /// The form of a rule of one rate at `now`, if [`Algorithm::to_portable`] returned it. Otherwise numbers are rounded.
    pub fn portable_rate(&self, now: Timestamp) -> PortableRate {
        PortableRate { algorithm: self.number(), numbers: (**self).portable_numbers(now) }
    }

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
        state.of_rates().iter().zip(rule.rates()).map(export).collect()
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
        let spent = |(state, rule): (&Self, &Algorithm)| {
            let free = state.peek(rule, 0, now).remaining;
            rule.capacity().saturating_sub(free).saturating_add(state.over(rule, now))
        };
        state.of_rates().iter().zip(rule.rates()).map(spent).collect()
    }

    /// The state of a key of which so many units were spent at `now` under each rate of `rule`. A rate without a number
    /// has the largest of them.
    pub fn with_spent(rule: &Algorithm, spent: &[u64], now: Timestamp) -> Self {
        let mut state = Self::fresh(rule);
        let most = spent.iter().copied().max().unwrap_or(0);
        for ((state, rule), units) in
            state.of_rates_mut().iter_mut().zip(rule.rates()).zip(spent.iter().copied().chain(repeat(most)))
        {
            state.settle(rule, i64::try_from(units).unwrap_or(i64::MAX), u64::MAX, now);
        }
        state
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
