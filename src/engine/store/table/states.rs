//! The states that a table can hold: token buckets, and any other state.

use std::convert::Infallible;

use super::receipt::{Outcome, Receipt};
use super::shards::Shards;
use super::sketches::Sketches;
use super::slots::Slots;
use super::state::{SketchStates, TableState};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State;
use crate::engine::limit::token_bucket::{self, Answer};
use crate::engine::limit::{Algorithm, AnyReceipt, AnyState, Decision, Key, Packed, Unpacker};

/// The sketch of an algorithm that has none.
impl Packed for Infallible {
    fn pack(&self, _: &mut Vec<u8>) {
        match *self {}
    }

    fn unpack(_: &mut Unpacker<'_>) -> Option<Self> {
        None
    }
}

/// The sketch of an algorithm that has none.
impl SketchStates<AnyState> for Infallible {
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

impl TableState for token_bucket::State {
    type Map = Slots;
    type Sketches = Sketches;
    type Answer = Answer;

    #[inline]
    fn is_under(&self, rule: &Self::Rule) -> bool {
        Self::is_under(self, rule)
    }

    fn shorter_interval_ns(&self, rule: &Self::Rule) -> u64 {
        Self::shorter_interval_ns(self, rule)
    }

    #[inline]
    fn is_released(_: &Self::Rule) -> bool {
        false
    }

    fn adopt_rate(&mut self, rule: &Self::Rule, now: Timestamp) {
        self.adopt(rule, now);
    }

    #[inline]
    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Answer {
        Self::charge(self, rule, cost, now)
    }

    #[inline]
    fn stays(&self, answer: &Answer) -> bool {
        answer.is_admitted()
    }

    #[inline]
    fn table_receipt(receipt: Self::Receipt, rule: &Self::Rule) -> Receipt {
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

impl TableState for AnyState {
    type Map = Shards<Self>;
    type Sketches = Infallible;
    type Answer = (Decision, Option<AnyReceipt>);

    fn is_under(&self, _: &Self::Rule) -> bool {
        true
    }

    fn shorter_interval_ns(&self, _: &Self::Rule) -> u64 {
        0
    }

    fn is_released(rule: &Self::Rule) -> bool {
        rule.is_released()
    }

    fn adopt_rate(&mut self, rule: &Self::Rule, now: Timestamp) {
        Self::adopt_rate(self, rule, now);
    }

    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Self::Answer {
        let decision = self.admit(rule, cost, now);
        let receipt = decision.is_admitted().then(|| self.receipt(cost, now));
        (decision, receipt)
    }

    /// A refused sharer counts.
    fn stays(&self, (decision, _): &Self::Answer) -> bool {
        decision.is_admitted() || matches!(self, Self::FairShare(_))
    }

    fn table_receipt(receipt: AnyReceipt, rule: &Self::Rule) -> Receipt {
        Receipt::Any(Box::new((rule.clone(), receipt)))
    }

    fn outcome((decision, receipt): Self::Answer, rule: &Self::Rule, _cost: u64, _now: Timestamp) -> Outcome {
        let receipt = receipt.map_or(Receipt::None, |receipt| Self::table_receipt(receipt, rule));
        Outcome { decision, receipt }
    }
}
