//! The closed set of algorithms, each with its rule, and the state of a key under any of them.
//!
//! A table of many keys should hold the states of one algorithm, which are smaller. [`AnyState`] is for all other uses,
//! such as limits with windows of different kinds, and simulations.

mod portable;
mod several;
mod table;

use std::ops::Deref;

use self::table::{algorithms, closed_set};
use super::late::units::LateByRate;
use super::packed::{Packed, Unpacker};
use super::portable::{Charged, Numbers, Portable, Unportable};
use super::rule::{Rule, Scale, Settings};
use super::state::{self, Receipt, State};
use super::{Allowance, Decision, Quota, QuotaError, Rate, RemainingByRate, Retry};
use super::{concurrency, fair_share, fixed_window, sliding_log, sliding_window, sub_window, token_bucket};
use crate::base::time::Timestamp;

algorithms! {
    /// See [`token_bucket`].
    1 "token_bucket" TokenBucket(token_bucket::Bucket),
    /// See [`token_bucket::Bucket`].
    2 "leaky_bucket" LeakyBucket(token_bucket::Bucket),
    /// See [`fixed_window`].
    3 "fixed_window" FixedWindow(fixed_window::State),
    /// See [`sliding_log`].
    4 "sliding_log" SlidingLog(sliding_log::State),
    /// See [`sliding_window`].
    5 "sliding_window" SlidingWindow(sliding_window::State),
    /// See [`sub_window`].
    6 "sub_window" SubWindow(sub_window::State),
    /// See [`concurrency`].
    7 "concurrency" Concurrency(concurrency::State),
}

impl AlgorithmName {
    /// The rule of these settings.
    ///
    /// # Errors
    /// [`QuotaError`] if the algorithm cannot compute with them.
    pub fn rule(self, settings: &Settings) -> Result<Algorithm, QuotaError> {
        let Settings { rate, burst, shapes, ref calendar, sub_windows } = *settings;
        let quota = || Quota::new(rate, burst);
        Ok(match self {
            Self::TokenBucket => Algorithm::TokenBucket(quota()?),
            Self::LeakyBucket => Algorithm::LeakyBucket(quota()?.shaping(shapes)),
            Self::FixedWindow => Algorithm::FixedWindow(match calendar {
                Some(calendar) => fixed_window::Rule::in_calendar(rate.count, calendar.clone())?,
                None => fixed_window::Rule::from_first(rate)?,
            }),
            Self::SlidingLog => Algorithm::SlidingLog(sliding_log::Rule::new(rate)?),
            Self::SlidingWindow => Algorithm::SlidingWindow(Allowance::new(rate)?),
            Self::SubWindow => Algorithm::SubWindow(sub_window::Rule::new(rate, sub_windows)?),
            Self::Concurrency => Algorithm::Concurrency(concurrency::Rule::new(rate.count)?),
        })
    }
}

/// The states of one key under several rules, in the order of the rules.
#[derive(Clone, Debug)]
pub struct Several {
    states: Box<[AnyState]>,
}

impl Algorithm {
    /// As [`Rule::capacity`].
    #[inline]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.burst(),
            other => (**other).capacity(),
        }
    }

    /// The rule of one of `replicas` that share this one: together they never admit more than it does. Units that do not
    /// divide evenly are lost.
    ///
    /// # Errors
    /// [`QuotaError::Zero`] if a replica would have no unit.
    pub fn share(&self, replicas: u64) -> Result<Self, QuotaError> {
        if self.capacity() < replicas { Err(QuotaError::Zero) } else { self.scaled(Scale::one_of(replicas)) }
    }

    /// `units` as a part of the capacity: whole percents, rounded down, at most 100.
    #[inline]
    pub fn percent(&self, units: u64) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.percent(units),
            other => units.saturating_mul(100).checked_div(other.capacity()).unwrap_or(0).min(100),
        }
    }

    /// As [`Rule::period_ns`]; of several rates, the period of the rate with the smallest capacity.
    #[inline]
    pub fn period_ns(&self) -> Option<u64> {
        match self {
            Self::TokenBucket(quota) => Some(quota.period_ns()),
            other => (**other).period_ns(),
        }
    }

    /// [`Rule::capacity`] and [`Rule::interval_ns`].
    #[inline]
    pub fn capacity_and_interval_ns(&self) -> (u64, u64) {
        match self {
            Self::TokenBucket(quota) => (quota.burst(), quota.interval_ns()),
            other => other.others_capacity_and_interval_ns(),
        }
    }

    fn others_capacity_and_interval_ns(&self) -> (u64, u64) {
        ((**self).capacity(), self.interval_ns())
    }

    /// As [`Rule::is_released`].
    #[inline]
    pub fn is_released(&self) -> bool {
        match self {
            Self::TokenBucket(_) => false,
            other => (**other).is_released(),
        }
    }

    /// The rates in the order of the configuration: the rules of [`Algorithm::Several`], or the rule itself.
    pub fn rates(&self) -> &[Self] {
        match self {
            Self::Several(rules) => rules,
            one => std::slice::from_ref(one),
        }
    }
}

/// A rule of another algorithm replaces the state by a fresh one.
impl State for AnyState {
    type Rule = Algorithm;
    type Receipt = AnyReceipt;

    fn fresh(rule: &Algorithm) -> Self {
        Self::new(rule)
    }

    fn adopt(&mut self, rule: &Algorithm, now: Timestamp) {
        matched!(&mut *self, rule, |state, rule| state.adopt(rule, now), else *self = Self::fresh(rule));
    }

    fn is_of(&self, rule: &Algorithm) -> bool {
        matched!(self, rule, |state, rule| state.is_of(rule), else false)
    }

    fn admit(&mut self, rule: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        matched!(&mut *self, rule, |state, rule| state.admit(rule, cost, now), else {
            *self = Self::fresh(rule);
            self.admit(rule, cost, now)
        })
    }

    fn peek(&self, rule: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        matched!(self, rule, |state, rule| state.peek(rule, cost, now), else Self::fresh(rule).peek(rule, cost, now))
    }

    fn look(&self, rule: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        matched!(self, rule, |state, rule| state.look(rule, cost, now), else Self::fresh(rule).look(rule, cost, now))
    }

    fn remaining(&self, rule: &Algorithm, cost: u64, now: Timestamp) -> RemainingByRate {
        matched!(self, rule, |state, rule| state.remaining(rule, cost, now), else Self::fresh(rule).remaining(rule, cost, now))
    }

    fn wait(&self, rule: &Algorithm, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        matched!(self, rule, |state, rule| state.wait(rule, ahead, cost, now), else {
            Self::fresh(rule).wait(rule, ahead, cost, now)
        })
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> AnyReceipt {
        self.receipt_of(cost, now)
    }

    /// A charge of another algorithm gives nothing back.
    fn refund(&mut self, rule: &Algorithm, receipt: &AnyReceipt, now: Timestamp) -> u64 {
        self.give_back(rule, receipt, now).unwrap_or(0)
    }

    fn settle(&mut self, rule: &Algorithm, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        matched!(&mut *self, rule, |state, rule| state.settle(rule, extra, max_debt, now), else {
            *self = Self::fresh(rule);
            self.settle(rule, extra, max_debt, now)
        })
    }

    fn raise(&mut self, rule: &Algorithm, other: &Self, now: Timestamp) {
        match (&mut *self, rule, other) {
            (Self::Several(state), Algorithm::Several(rules), Self::Several(other)) => state.raise(rules, other, now),
            (state, ..) => state::raise(state, rule, other, now),
        }
    }

    fn over(&self, rule: &Algorithm, now: Timestamp) -> u64 {
        matched!(self, rule, |state, rule| state.over(rule, now), else 0)
    }

    fn idle_at(&self) -> Timestamp {
        self.idle_from()
    }
}

impl AnyReceipt {
    /// Whether the units of the charge of `at` count nowhere any more, in any rate of `rule`, so that none can come back.
    pub fn is_over(&self, rule: &Algorithm, at: Timestamp, now: Timestamp) -> bool {
        match (rule, self) {
            (Algorithm::FixedWindow(_), Self::FixedWindow(receipt)) => receipt.is_over(now),
            (Algorithm::Several(rules), Self::Several(receipts)) => {
                rules.iter().zip(receipts).all(|(rule, receipt)| receipt.is_over(rule, at, now))
            }
            _ => !rule.counts(at, now),
        }
    }
}

impl AnyState {
    /// Charges `units` that were spent at `at`, or gives them back if the number is negative. They make a debt if they do
    /// not fit. Units of a window that has ended by `now` do not count.
    pub fn charge_as_of(&mut self, rule: &Algorithm, units: i64, at: Timestamp, now: Timestamp) {
        match rule {
            Algorithm::Several(rules) => {
                State::adopt(self, rule, at);
                let Self::Several(Several { states }) = self else { return };
                let each = states.iter_mut().zip(rules);
                each.for_each(|(state, rule)| state.charge_as_of(rule, units, at, now));
            }
            rule if rule.counts(at, now) => {
                State::settle(self, rule, units, u64::MAX, at);
            }
            _ => {}
        }
    }

    /// Gives `units` back that another replica gave back of its charges, as of `at`. No settlement: refunds of other charges
    /// return no less for it.
    pub fn take_back(&mut self, rule: &Algorithm, units: u64, at: Timestamp, now: Timestamp) {
        match (&mut *self, rule) {
            (Self::TokenBucket(state), Algorithm::TokenBucket(quota))
            | (Self::LeakyBucket(state), Algorithm::LeakyBucket(quota)) => state.take_back(quota, units, at),
            (Self::Several(state), Algorithm::Several(rules)) => {
                State::adopt(state, rules, at);
                let each = state.states.iter_mut().zip(rules);
                each.for_each(|(state, rule)| state.take_back(rule, units, at, now));
            }
            _ => self.charge_as_of(rule, i64::try_from(units).map_or(i64::MIN, |units| -units), at, now),
        }
    }

    /// Charges `late` units of each rate. At most `max_debt` units are charged beyond the limit.
    pub fn settle_late(&mut self, rule: &Algorithm, late: &LateByRate, max_debt: u64, now: Timestamp) {
        self.adopt(rule, now);
        for ((state, rule), late) in self.of_rates_mut().iter_mut().zip(rule.rates()).zip(late) {
            matched!(state, rule, |state, rule| state.settle_late(rule, late, max_debt, now), else {});
        }
    }

    /// Adopts the rates of buckets. The other states decide under any rule without that.
    pub fn adopt_rate(&mut self, rule: &Algorithm, now: Timestamp) {
        match (self, rule) {
            (Self::TokenBucket(state), Algorithm::TokenBucket(quota))
            | (Self::LeakyBucket(state), Algorithm::LeakyBucket(quota)) => state.adopt(quota, now),
            (Self::Several(several), Algorithm::Several(rules)) if several.is_paired(rules) => {
                several.states.iter_mut().zip(rules).for_each(|(state, rule)| state.adopt_rate(rule, now));
            }
            _ => {}
        }
    }

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

    /// How near the state is to the states under `rule`: the number of its rates whose window or rate stays as it is, and
    /// one; 0 if `rule` has another number of rates.
    pub fn likeness(&self, rule: &Algorithm, now: Timestamp) -> usize {
        let mut adopted = self.clone();
        adopted.adopt(rule, now);
        let (own, adopted) = (self.of_rates(), adopted.of_rates());
        let stays = own.iter().zip(adopted).filter(|(own, adopted)| own.idle_at() == adopted.idle_at());
        if own.len() == adopted.len() { 1 + stays.count() } else { 0 }
    }

    /// The states under each rate.
    fn of_rates(&self) -> &[Self] {
        match self {
            Self::Several(several) => &several.states,
            one => std::slice::from_ref(one),
        }
    }

    fn of_rates_mut(&mut self) -> &mut [Self] {
        match self {
            Self::Several(several) => &mut several.states,
            one => std::slice::from_mut(one),
        }
    }

    /// As [`Portable::export`], of a state under one rate.
    fn export_rate(&self, rule: &Algorithm, now: Timestamp, numbers: &mut Numbers) {
        matched!(self, rule, |state, rule| state.export(rule, now, numbers), else {});
    }

    /// A packed state that is not [`AnyState::Several`].
    fn unpack_one(from: &mut Unpacker<'_>) -> Option<Self> {
        let mut ahead = *from;
        if ahead.u8()? == SEVERAL { None } else { Self::unpack(from) }
    }
}

#[cfg(test)]
mod tests;
