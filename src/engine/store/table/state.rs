//! The interface between a table and the states in it, beyond the interface of all states.

use std::fmt::Debug;

use super::map::Map;
use super::receipt::{Outcome, Receipt};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State;
use crate::engine::limit::{Key, Packed};

/// A state that a table can hold. It is charged under a lock; the decision is computed after the lock is released.
pub(super) trait TableState: State + Packed {
    /// The map of the states.
    type Map: Map<Self>;

    /// The raw result of a charge.
    type Answer;

    /// The sketch of keys beyond the bound.
    type Sketches: SketchStates<Self>;

    /// Whether the instants of receipts from before count after the state has adopted `rule`, as far as the state does not
    /// know this itself.
    fn is_under(&self, rule: &Self::Rule) -> bool;

    /// The shorter one of its interval and that of `rule`, if it is not under `rule`.
    fn shorter_interval_ns(&self, rule: &Self::Rule) -> u64;

    /// Adopts `rule` if units come back at its rate from now on, for a request that waits. Windows and logs stay as they are:
    /// a look may be by another rule than requests, such as the usual one of a key with a plan, and must forget no units.
    fn adopt_rate(&mut self, rule: &Self::Rule, now: Timestamp);

    /// Whether units come back only when they are given back.
    fn is_released(rule: &Self::Rule) -> bool;

    /// Decides a request of `cost` units and, if admitted, charges it.
    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Self::Answer;

    /// Whether the state of a new key may have changed by a decision with this answer.
    fn stays(&self, answer: &Self::Answer) -> bool;

    /// A receipt of this state as a receipt of any table.
    fn table_receipt(receipt: Self::Receipt, rule: &Self::Rule) -> Receipt;

    /// The decision and the receipt of an answer.
    fn outcome(answer: Self::Answer, rule: &Self::Rule, cost: u64, now: Timestamp) -> Outcome;
}

/// The states of any number of keys in fixed memory.
pub(super) trait SketchStates<S: State>: Packed + Debug {
    /// An empty sketch; `None` if the algorithm has none.
    fn new(rule: &S::Rule) -> Option<Self>;

    /// Decides a request of `cost` units and, if admitted, charges it.
    fn admit(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome;

    /// The state of `key`. It has spent at least as much as the key.
    fn state(&self, key: Key, rule: &S::Rule, now: Timestamp) -> S;

    /// Changes the state of `key`, as far as more is spent.
    fn change<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, change: impl FnOnce(&mut S) -> T) -> T;

    /// Whether every key is idle at `now`.
    fn is_idle(&self, now: Timestamp) -> bool;

    /// Decisions since the last call.
    fn take_decided(&self) -> u64;
}
