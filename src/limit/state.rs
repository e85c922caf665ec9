//! What all algorithms have in common: the one interface that a store of states is written against.
//!
//! A table holds the states of one algorithm ([`State`] is generic, never a trait object), so each key costs
//! what its own algorithm needs and no more.

use std::fmt::Debug;

use smallvec::SmallVec;

use super::{Decision, Remaining, RemainingByRate, Retry};
use crate::time::Timestamp;

/// What is kept for one key under one algorithm.
///
/// All functions take the rule in force. One that differs from the rule the state was written under is
/// adopted on the way: what is spent stays spent, and the new numbers apply at once.
pub trait State: Clone + Debug {
    /// The algorithm's numbers.
    type Rule;
    /// What a charge must be known by to be given back.
    type Receipt: Clone + Debug;

    /// The state of a key never seen.
    fn fresh(rule: &Self::Rule) -> Self;

    /// Carries what is spent over to `rule`.
    fn adopt(&mut self, rule: &Self::Rule, now: Timestamp);

    /// Decides a request of `cost` units and, if admitted, charges it. A cost of 0 is admitted and takes nothing.
    fn admit(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Decision;

    /// Decides as [`State::admit`] would, charging nothing.
    fn peek(&self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Decision;

    /// What is left for a request of `cost` units, for each rate.
    fn remaining(&self, rule: &Self::Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        SmallVec::from_iter([Remaining::of(self, rule, cost, now)])
    }

    /// When a request of `cost` units could pass behind others that will take `ahead` units, each admitted as
    /// early as it can be. Exact where those ahead cost the same; algorithms say where it is exact for all.
    fn wait(&self, rule: &Self::Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry;

    /// What the charge just admitted at `now` must be known by. Only valid directly after [`State::admit`].
    fn receipt(&self, cost: u64, now: Timestamp) -> Self::Receipt;

    /// Gives back a charge, as far as it has not come back by itself. To be called at most once for each.
    ///
    /// Never too much: whatever is given back, and in which order, the charges that are not stay within the
    /// algorithm's bound. At the instant of the charge it is exact.
    fn refund(&mut self, rule: &Self::Rule, receipt: &Self::Receipt, now: Timestamp);

    /// Charges `extra` units whether there is room or not, or gives `-extra` back, but never above full.
    ///
    /// Beyond the limit at most `max_debt` units are charged; `remaining` is 0 until they are paid.
    fn settle(&mut self, rule: &Self::Rule, extra: i64, max_debt: u64, now: Timestamp);

    /// Units charged beyond the limit and not yet paid, rounded up.
    fn over(&self, rule: &Self::Rule, now: Timestamp) -> u64;

    /// The instant from which this state decides as [`State::fresh`] does, under any rule.
    fn idle_at(&self) -> Timestamp;
}

/// `used` with `extra` added or taken away, at most `max_debt` above `capacity` and never lowered by that bound.
pub(super) fn settled(used: u64, extra: i64, capacity: u64, max_debt: u64) -> u64 {
    if extra < 0 {
        return used.saturating_sub(extra.unsigned_abs());
    }
    let most = capacity.saturating_add(max_debt).max(used);
    used.saturating_add(extra.unsigned_abs()).min(most)
}
