//! The interface of all algorithms, against which a store of states is written.
//!
//! A table holds the states of one algorithm. [`State`] is generic and never a trait object, so a key takes no more memory
//! than its algorithm needs.

use std::cmp::Reverse;
use std::fmt::Debug;

use smallvec::SmallVec;

use super::late::units::LateUnits;
use super::{Decision, Remaining, RemainingByRate, Retry};
use crate::base::time::Timestamp;

/// The proof of a charge, with which it can be undone.
pub trait Receipt: Clone + Debug {
    /// The proof of the last `units` of the charge and of `grown` units that its request was charged since, and the units that
    /// it does not prove.
    fn part(&self, units: u64, grown: u64) -> (Self, u64);
}

/// Implements [`Receipt`] for a charge of `cost` units in a window or a log, where units that were charged since may be at
/// another place.
macro_rules! dated_receipt {
    ($Receipt:ty) => {
        impl state::Receipt for $Receipt {
            fn part(&self, units: u64, grown: u64) -> (Self, u64) {
                let mut part = *self;
                part.cost = units.min(self.cost);
                (part, (units - part.cost).min(grown))
            }
        }
    };
}

pub(super) use dated_receipt;

/// The state of one key under one algorithm.
///
/// All functions but [`State::refund`] take the rule in force. A rule that differs from that of the state is adopted
/// first: spent units stay spent, and the new rule applies at once.
pub trait State: Clone + Debug {
    /// The algorithm's parameters.
    type Rule;
    /// The proof of a charge, with which it can be undone.
    type Receipt: Receipt;

    /// The state of a new key.
    fn fresh(rule: &Self::Rule) -> Self;

    /// Whether its rule has the interval or the windows of `rule`, so that nothing is to be adopted.
    fn is_of(&self, rule: &Self::Rule) -> bool;

    /// Carries spent units over to `rule`.
    fn adopt(&mut self, rule: &Self::Rule, now: Timestamp);

    /// Decides a request of `cost` units and, if admitted, charges it. A cost of 0 is admitted and charges nothing.
    fn admit(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Decision;

    /// The decision that [`State::admit`] would make. Nothing is charged.
    fn peek(&self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Decision;

    /// As [`State::peek`], for someone who only looks.
    fn look(&self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        self.peek(rule, cost, now)
    }

    /// The units that remain for a request of `cost` units, for each rate.
    fn remaining(&self, rule: &Self::Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        SmallVec::from_iter([remaining_of(|cost| self.peek(rule, cost, now), cost)])
    }

    /// The wait of a request of `cost` units behind requests that take `ahead` units, each admitted as early as
    /// possible. Exact if all requests cost the same; each algorithm says whether it is exact for other costs.
    fn wait(&self, rule: &Self::Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry;

    /// The proof of the charge that was just admitted at `now`. Only valid directly after [`State::admit`].
    fn receipt(&self, cost: u64, now: Timestamp) -> Self::Receipt;

    /// Gives a charge back that was made under `rule`, or a [part](Receipt::part) of it, as far as its units have not come back
    /// by themselves. To be called at most once a charge. Adopts no rule: a charge under another one than that of the state
    /// may give nothing back.
    ///
    /// It never gives back too much: in any order of refunds, the other charges stay within the algorithm's bound. At the
    /// instant of the charge it is exact. Returns the units that are given back, rounded.
    fn refund(&mut self, rule: &Self::Rule, receipt: &Self::Receipt, now: Timestamp) -> u64;

    /// Charges `extra` units whether they fit or not. A negative number gives units back, up to the capacity. That is for
    /// units of no known charge: it also gives back what has come back by itself.
    ///
    /// At most `max_debt` units are charged beyond the limit. `remaining` is 0 until the debt is paid. Returns the units
    /// that are charged or, if negative, given back, rounded.
    fn settle(&mut self, rule: &Self::Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64;

    /// Charges `late` units of one rate. At most `max_debt` units are charged beyond the limit.
    fn settle_late(&mut self, rule: &Self::Rule, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        for late in late {
            self.settle(rule, late.units, max_debt, now);
        }
    }

    /// Becomes `other` if that has spent more under `rule`.
    fn raise(&mut self, rule: &Self::Rule, other: &Self, now: Timestamp) {
        raise(self, rule, other, now);
    }

    /// Units charged beyond the limit and not yet paid, rounded up.
    fn over(&self, rule: &Self::Rule, now: Timestamp) -> u64;

    /// The instant from which the key is idle: it decides as [`State::fresh`] does, under any rule.
    fn idle_at(&self) -> Timestamp;
}

/// Replaces `state` by `other` if that has spent more.
pub(super) fn raise<S: State>(state: &mut S, rule: &S::Rule, other: &S, now: Timestamp) {
    if spent(other, rule, now) > spent(state, rule, now) {
        state.clone_from(other);
    }
}

/// How much a state has spent, as an order: its debt, the units that do not remain, and the time until all are back.
fn spent<S: State>(state: &S, rule: &S::Rule, now: Timestamp) -> (u64, Reverse<u64>, u64) {
    let Decision { remaining, reset_after_ns, .. } = state.peek(rule, 0, now);
    (state.over(rule, now), Reverse(remaining), reset_after_ns)
}

/// The units that remain for a request of `cost` units, if `peek` decides. A cost of 0 counts as 1.
pub(super) fn remaining_of(peek: impl Fn(u64) -> Decision, cost: u64) -> Remaining {
    let Decision { remaining, reset_after_ns, .. } = peek(0);
    let denied = peek(cost.max(1)).denied;
    let one_more = || peek(remaining.saturating_add(1)).denied;
    let more = denied.or_else(one_more).filter(|retry| *retry != Retry::Never);
    Remaining { units: remaining, reset_after_ns, denied, more }
}

/// `used` plus `extra`, at most `capacity + max_debt`. The bound never lowers `used`.
pub(super) fn settled(used: u64, extra: i64, capacity: u64, max_debt: u64) -> u64 {
    if extra < 0 {
        return used.saturating_sub(extra.unsigned_abs());
    }
    let most = capacity.saturating_add(max_debt).max(used);
    used.saturating_add(extra.unsigned_abs()).min(most)
}

/// The units that are charged if `before` used units become `after`; negative if units are given back.
pub(super) fn charged(before: u64, after: u64) -> i64 {
    let (units, is_more) = (before.abs_diff(after), after >= before);
    i64::try_from(units).map_or(if is_more { i64::MAX } else { i64::MIN }, |units| if is_more { units } else { -units })
}
