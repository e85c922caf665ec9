//! The closed set of algorithms, each with its rule, and the state of a key under any of them.
//!
//! A table of many keys should hold the states of one algorithm, which are smaller. [`AnyState`] is for all other uses,
//! such as limits with windows of different kinds, and simulations.

mod late;
mod order;
mod packed;
mod periods;
mod portable;

pub use portable::{PortableRate, Unportable};

use super::state;
use super::{Allowance, Decision, Quota, RemainingByRate, Retry, windows};
use super::{concurrency, fixed_window, leaky_bucket, sliding_log, sliding_window, sub_window, token_bucket};
use crate::base::time::Timestamp;

/// The algorithm of a limit, with its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// See [`token_bucket`].
    TokenBucket(Quota),
    /// See [`leaky_bucket`].
    LeakyBucket(leaky_bucket::Rule),
    /// See [`fixed_window`].
    FixedWindow(fixed_window::Rule),
    /// See [`sliding_log`].
    SlidingLog(sliding_log::Rule),
    /// See [`sliding_window`].
    SlidingWindow(Allowance),
    /// See [`sub_window`].
    SubWindow(sub_window::Rule),
    /// See [`concurrency`].
    Concurrency(concurrency::Rule),
    /// Several rules at once, see [`windows`]; at most [`windows::WINDOWS_MAX`].
    Several(Box<[Algorithm]>),
}

/// The state of one key under any algorithm.
#[derive(Clone, Debug)]
pub enum AnyState {
    /// Of [`Algorithm::TokenBucket`].
    TokenBucket(token_bucket::Bucket),
    /// Of [`Algorithm::LeakyBucket`].
    LeakyBucket(leaky_bucket::State),
    /// Of [`Algorithm::FixedWindow`].
    FixedWindow(fixed_window::State),
    /// Of [`Algorithm::SlidingLog`].
    SlidingLog(sliding_log::State),
    /// Of [`Algorithm::SlidingWindow`].
    SlidingWindow(sliding_window::State),
    /// Of [`Algorithm::SubWindow`].
    SubWindow(sub_window::State),
    /// Of [`Algorithm::Concurrency`].
    Concurrency(concurrency::State),
    /// Of [`Algorithm::Several`].
    Several(Several),
}

/// The proof of a charge under any algorithm.
#[derive(Clone, Debug)]
pub enum AnyReceipt {
    /// Of [`AnyState::TokenBucket`].
    TokenBucket(token_bucket::Receipt),
    /// Of [`AnyState::LeakyBucket`].
    LeakyBucket(token_bucket::Receipt),
    /// Of [`AnyState::FixedWindow`].
    FixedWindow(fixed_window::Receipt),
    /// Of [`AnyState::SlidingLog`].
    SlidingLog(sliding_log::Receipt),
    /// Of [`AnyState::SlidingWindow`].
    SlidingWindow(sliding_window::Receipt),
    /// Of [`AnyState::SubWindow`].
    SubWindow(sub_window::Receipt),
    /// Of [`AnyState::Concurrency`].
    Concurrency(concurrency::Receipt),
    /// Of [`AnyState::Several`].
    Several(Box<[AnyReceipt]>),
}

/// The states of one key under several rules, in the order of the rules.
#[derive(Clone, Debug)]
pub struct Several {
    states: Box<[AnyState]>,
}

impl Algorithm {
    /// Its name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingLog(_) => "sliding_log",
            Self::SlidingWindow(_) => "sliding_window",
            Self::SubWindow(_) => "sub_window",
            Self::Concurrency(_) => "concurrency",
            Self::Several(_) => "several",
        }
    }

    /// Units of a new key.
    #[inline]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.burst(),
            other => other.other_capacity(),
        }
    }

    fn other_capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.burst(),
            Self::LeakyBucket(rule) => rule.quota.burst(),
            Self::FixedWindow(rule) => rule.count(),
            Self::SlidingLog(rule) => rule.count(),
            Self::SlidingWindow(rule) => rule.count(),
            Self::SubWindow(rule) => rule.count(),
            Self::Concurrency(rule) => rule.max(),
            Self::Several(rules) => rules.iter().map(Self::capacity).min().unwrap_or(u64::MAX),
        }
    }

    /// `units` as a part of the capacity: whole percents, rounded down, at most 100.
    #[inline]
    pub fn percent(&self, units: u64) -> u64 {
        match self {
            Self::TokenBucket(quota) => quota.percent(units),
            other => units.saturating_mul(100).checked_div(other.capacity()).unwrap_or(0).min(100),
        }
    }

    /// Whether a charge lasts until the end of its request.
    #[inline]
    pub fn is_released(&self) -> bool {
        match self {
            Self::Concurrency(_) => true,
            Self::Several(rules) => rules.iter().any(Self::is_released),
            _ => false,
        }
    }
}

/// Evaluates `$do` with a state and a rule of the same algorithm; `$other` if the algorithms differ.
macro_rules! matched {
    ($state:expr, $rule:expr, |$one:ident, $numbers:ident| $do:expr, else $other:expr) => {
        match ($state, $rule) {
            (AnyState::TokenBucket($one), Algorithm::TokenBucket($numbers)) => $do,
            (AnyState::LeakyBucket($one), Algorithm::LeakyBucket($numbers)) => $do,
            (AnyState::FixedWindow($one), Algorithm::FixedWindow($numbers)) => $do,
            (AnyState::SlidingLog($one), Algorithm::SlidingLog($numbers)) => $do,
            (AnyState::SlidingWindow($one), Algorithm::SlidingWindow($numbers)) => $do,
            (AnyState::SubWindow($one), Algorithm::SubWindow($numbers)) => $do,
            (AnyState::Concurrency($one), Algorithm::Concurrency($numbers)) => $do,
            (AnyState::Several($one), Algorithm::Several($numbers)) => $do,
            _ => $other,
        }
    };
}

/// A rule of another algorithm replaces the state by a fresh one.
impl state::State for AnyState {
    type Rule = Algorithm;
    type Receipt = AnyReceipt;

    fn fresh(rule: &Algorithm) -> Self {
        match rule {
            Algorithm::TokenBucket(rule) => Self::TokenBucket(token_bucket::Bucket::fresh(rule)),
            Algorithm::LeakyBucket(rule) => Self::LeakyBucket(leaky_bucket::State::fresh(rule)),
            Algorithm::FixedWindow(rule) => Self::FixedWindow(fixed_window::State::fresh(rule)),
            Algorithm::SlidingLog(rule) => Self::SlidingLog(sliding_log::State::fresh(rule)),
            Algorithm::SlidingWindow(rule) => Self::SlidingWindow(sliding_window::State::fresh(rule)),
            Algorithm::SubWindow(rule) => Self::SubWindow(sub_window::State::fresh(rule)),
            Algorithm::Concurrency(rule) => Self::Concurrency(concurrency::State::fresh(rule)),
            Algorithm::Several(rules) => Self::Several(Several::fresh(rules)),
        }
    }

    fn adopt(&mut self, rule: &Algorithm, now: Timestamp) {
        matched!(&mut *self, rule, |state, rule| state.adopt(rule, now), else *self = Self::fresh(rule));
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

    fn remaining(&self, rule: &Algorithm, cost: u64, now: Timestamp) -> RemainingByRate {
        matched!(self, rule, |state, rule| state.remaining(rule, cost, now), else Self::fresh(rule).remaining(rule, cost, now))
    }

    fn wait(&self, rule: &Algorithm, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        matched!(self, rule, |state, rule| state.wait(rule, ahead, cost, now), else {
            Self::fresh(rule).wait(rule, ahead, cost, now)
        })
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> AnyReceipt {
        match self {
            Self::TokenBucket(state) => AnyReceipt::TokenBucket(state.receipt(cost, now)),
            Self::LeakyBucket(state) => AnyReceipt::LeakyBucket(state.receipt(cost, now)),
            Self::FixedWindow(state) => AnyReceipt::FixedWindow(state.receipt(cost, now)),
            Self::SlidingLog(state) => AnyReceipt::SlidingLog(state.receipt(cost, now)),
            Self::SlidingWindow(state) => AnyReceipt::SlidingWindow(state.receipt(cost, now)),
            Self::SubWindow(state) => AnyReceipt::SubWindow(state.receipt(cost, now)),
            Self::Concurrency(state) => AnyReceipt::Concurrency(state.receipt(cost, now)),
            Self::Several(state) => AnyReceipt::Several(state.receipt(cost, now)),
        }
    }

    /// A charge of another algorithm gives nothing back.
    fn refund(&mut self, rule: &Algorithm, receipt: &AnyReceipt, now: Timestamp) -> u64 {
        use {Algorithm as Of, AnyReceipt as From};
        match (&mut *self, rule, receipt) {
            (Self::TokenBucket(state), Of::TokenBucket(rule), From::TokenBucket(it)) => state.refund(rule, it, now),
            (Self::LeakyBucket(state), Of::LeakyBucket(rule), From::LeakyBucket(it)) => state.refund(rule, it, now),
            (Self::FixedWindow(state), Of::FixedWindow(rule), From::FixedWindow(it)) => state.refund(rule, it, now),
            (Self::SlidingLog(state), Of::SlidingLog(rule), From::SlidingLog(it)) => state.refund(rule, it, now),
            (Self::SlidingWindow(state), Of::SlidingWindow(rule), From::SlidingWindow(it)) => {
                state.refund(rule, it, now)
            }
            (Self::SubWindow(state), Of::SubWindow(rule), From::SubWindow(it)) => state.refund(rule, it, now),
            (Self::Concurrency(state), Of::Concurrency(rule), From::Concurrency(it)) => state.refund(rule, it, now),
            (Self::Several(state), Of::Several(rules), From::Several(it)) => state.refund(rules, it, now),
            _ => {
                self.adopt(rule, now);
                0
            }
        }
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
        match self {
            Self::TokenBucket(state) => state.idle_at(),
            Self::LeakyBucket(state) => state.idle_at(),
            Self::FixedWindow(state) => state.idle_at(),
            Self::SlidingLog(state) => state.idle_at(),
            Self::SlidingWindow(state) => state.idle_at(),
            Self::SubWindow(state) => state.idle_at(),
            Self::Concurrency(state) => state.idle_at(),
            Self::Several(state) => state.idle_at(),
        }
    }
}

impl AnyState {
    /// Charges `units` that were spent at `at`, or gives them back if the number is negative. They make a debt if they do
    /// not fit. Units of a window that has ended by `now` do not count.
    pub fn charge_as_of(&mut self, rule: &Algorithm, units: i64, at: Timestamp, now: Timestamp) {
        match rule {
            Algorithm::Several(rules) => {
                state::State::adopt(self, rule, at);
                let Self::Several(Several { states }) = self else { return };
                let each = states.iter_mut().zip(rules);
                each.for_each(|(state, rule)| state.charge_as_of(rule, units, at, now));
            }
            rule if rule.counts(at, now) => {
                state::State::settle(self, rule, units, u64::MAX, at);
            }
            _ => {}
        }
    }

    /// Gives `units` back that another replica gave back of its charges, as of `at`. No settlement: refunds of other charges
    /// return no less for it.
    pub fn take_back(&mut self, rule: &Algorithm, units: u64, at: Timestamp, now: Timestamp) {
        match (&mut *self, rule) {
            (Self::TokenBucket(state), Algorithm::TokenBucket(quota)) => state.take_back(quota, units, at),
            (Self::LeakyBucket(state), Algorithm::LeakyBucket(rule)) => state.take_back(rule, units, at),
            (Self::Several(state), Algorithm::Several(rules)) => {
                state::State::adopt(state, rules, at);
                let each = state.states.iter_mut().zip(rules);
                each.for_each(|(state, rule)| state.take_back(rule, units, at, now));
            }
            _ => self.charge_as_of(rule, i64::try_from(units).map_or(i64::MIN, |units| -units), at, now),
        }
    }
}

/// See [`windows`]. Rules are identified by their positions.
impl state::State for Several {
    type Rule = Box<[Algorithm]>;
    type Receipt = Box<[AnyReceipt]>;

    fn fresh(rules: &Self::Rule) -> Self {
        Self { states: rules.iter().map(AnyState::fresh).collect() }
    }

    fn adopt(&mut self, rules: &Self::Rule, now: Timestamp) {
        if self.states.len() != rules.len() {
            let known = self.states.iter().cloned();
            let fresh = rules.iter().skip(self.states.len()).map(AnyState::fresh);
            self.states = known.take(rules.len()).chain(fresh).collect();
        }
        self.states.iter_mut().zip(rules).for_each(|(state, rule)| state.adopt(rule, now));
    }

    fn admit(&mut self, rules: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        self.adopt(rules, now);
        windows::admit(&mut self.states, rules, cost, now)
    }

    fn peek(&self, rules: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        if self.states.len() == rules.len() {
            return windows::peek(&self.states, rules, cost, now);
        }
        let mut adopted = self.clone();
        adopted.adopt(rules, now);
        adopted.peek(rules, cost, now)
    }

    fn remaining(&self, rules: &Self::Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        if self.states.len() == rules.len() {
            let each = self.states.iter().zip(rules);
            return each.flat_map(|(state, rule)| state.remaining(rule, cost, now)).collect();
        }
        let mut adopted = self.clone();
        adopted.adopt(rules, now);
        adopted.remaining(rules, cost, now)
    }

    fn wait(&self, rules: &Self::Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        let waits = self.states.iter().zip(rules).map(|(state, rule)| state.wait(rule, ahead, cost, now));
        waits.max().unwrap_or(Retry::AfterNs(0))
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> Self::Receipt {
        self.states.iter().map(|state| state.receipt(cost, now)).collect()
    }

    /// Returns the units that every rate gives back.
    fn refund(&mut self, rules: &Self::Rule, receipts: &Self::Receipt, now: Timestamp) -> u64 {
        let each = self.states.iter_mut().zip(rules).zip(receipts);
        each.map(|((state, rule), receipt)| state.refund(rule, receipt, now)).min().unwrap_or(0)
    }

    /// Returns the most units that a rate charges, or the units that every rate gives back.
    fn settle(&mut self, rules: &Self::Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.adopt(rules, now);
        let each = self.states.iter_mut().zip(rules);
        each.map(|(state, rule)| state.settle(rule, extra, max_debt, now)).max().unwrap_or(0)
    }

    fn raise(&mut self, rules: &Self::Rule, other: &Self, now: Timestamp) {
        self.adopt(rules, now);
        let others = self.states.iter_mut().zip(rules).zip(&other.states);
        others.for_each(|((state, rule), other)| state.raise(rule, other, now));
    }

    fn over(&self, rules: &Self::Rule, now: Timestamp) -> u64 {
        self.states.iter().zip(rules).map(|(state, rule)| state.over(rule, now)).max().unwrap_or(0)
    }

    fn idle_at(&self) -> Timestamp {
        self.states.iter().map(AnyState::idle_at).max().unwrap_or(Timestamp::ZERO)
    }
}
