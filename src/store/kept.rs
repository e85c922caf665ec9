//! What a map of keys asks of the states in it, beside what all states can do.

use std::convert::Infallible;
use std::fmt::Debug;

use super::map::Map;
use super::shards::Shards;
use super::sketches::Sketches;
use super::slots::Slots;
use super::table::{Outcome, Receipt};
use crate::limit::state::State;
use crate::limit::token_bucket::{self, Answer};
use crate::limit::{Algorithm, AnyReceipt, AnyState, Decision, Key, Packed, Unpacker};
use crate::time::Timestamp;

/// A state that is kept. A charge is made under a lock, and worked out after it.
pub(super) trait Kept: State + Packed {
    /// Where they are kept.
    type Map: Map<Self>;

    /// What is known of a charge when the lock is let go.
    type Answer;

    /// Where keys are kept that cannot be remembered.
    type Sketches: Sketched<Self>;

    /// Decides a request of `cost` units and, if admitted, charges it.
    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Self::Answer;

    /// Whether the request may pass.
    fn is_admitted(answer: &Self::Answer) -> bool;

    /// A receipt as it is given out.
    fn charged(receipt: Self::Receipt, rule: &Self::Rule) -> Receipt;

    /// What the answer means.
    fn outcome(answer: Self::Answer, rule: &Self::Rule, cost: u64, now: Timestamp) -> Outcome;
}

/// The states of any number of keys in fixed memory.
pub(super) trait Sketched<S: State>: Packed + Debug {
    /// One without any key; none if there is none for this algorithm.
    fn new(rule: &S::Rule) -> Option<Self>;

    /// Decides a request of `cost` units and, if admitted, charges it.
    fn admit(&self, key: Key, rule: &S::Rule, cost: u64, now: Timestamp) -> Outcome;

    /// The state that `key` is taken to have.
    fn state(&self, key: Key, rule: &S::Rule, now: Timestamp) -> S;

    /// Changes the state of `key`, as far as more is spent.
    fn change<T>(&self, key: Key, rule: &S::Rule, now: Timestamp, change: impl FnOnce(&mut S) -> T) -> T;

    /// Whether every key is as good as new at `now`.
    fn is_idle(&self, now: Timestamp) -> bool;

    /// Decisions since this was last asked.
    fn take_decided(&self) -> u64;
}

/// There is no sketch.
impl Packed for Infallible {
    fn pack(&self, _: &mut Vec<u8>) {
        match *self {}
    }

    fn unpack(_: &mut Unpacker<'_>) -> Option<Self> {
        None
    }
}

/// There is no sketch.
impl Sketched<AnyState> for Infallible {
    fn new(_: &Algorithm) -> Option<Self> {
        None
    }

    fn admit(&self, _: Key, _: &Algorithm, _: u64, _: Timestamp) -> Outcome {
        match *self {}
    }

    fn state(&self, _: Key, _: &Algorithm, _: Timestamp) -> AnyState {
        match *self {}
    }

    fn change<T>(&self, _: Key, _: &Algorithm, _: Timestamp, _: impl FnOnce(&mut AnyState) -> T) -> T {
        match *self {}
    }

    fn is_idle(&self, _: Timestamp) -> bool {
        match *self {}
    }

    fn take_decided(&self) -> u64 {
        match *self {}
    }
}

impl Kept for token_bucket::State {
    type Map = Slots;
    type Sketches = Sketches;
    type Answer = Answer;

    #[inline]
    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Answer {
        Self::charge(self, rule, cost, now)
    }

    #[inline]
    fn is_admitted(answer: &Answer) -> bool {
        Answer::is_admitted(*answer)
    }

    #[inline]
    fn charged(receipt: Self::Receipt, rule: &Self::Rule) -> Receipt {
        Receipt::Bucket(receipt, rule.interval_ns())
    }

    #[inline]
    fn outcome(answer: Answer, rule: &Self::Rule, cost: u64, now: Timestamp) -> Outcome {
        let decision = answer.decision(rule, cost);
        let receipt = if answer.is_admitted() {
            Receipt::Bucket(answer.receipt(rule, cost, now), rule.interval_ns())
        } else {
            Receipt::None
        };
        Outcome { decision, receipt }
    }
}

impl Kept for AnyState {
    type Map = Shards<Self>;
    type Sketches = Infallible;
    type Answer = (Decision, Option<AnyReceipt>);

    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Self::Answer {
        let decision = self.admit(rule, cost, now);
        let receipt = decision.is_admitted().then(|| self.receipt(cost, now));
        (decision, receipt)
    }

    fn is_admitted((decision, _): &Self::Answer) -> bool {
        decision.is_admitted()
    }

    fn charged(receipt: AnyReceipt, rule: &Self::Rule) -> Receipt {
        Receipt::Any(Box::new((rule.clone(), receipt)))
    }

    fn outcome((decision, receipt): Self::Answer, rule: &Self::Rule, _cost: u64, _now: Timestamp) -> Outcome {
        let receipt = receipt.map_or(Receipt::None, |receipt| Self::charged(receipt, rule));
        Outcome { decision, receipt }
    }
}
