//! What a map of keys asks of the states in it, beside what all states can do.

use super::table::{Outcome, Receipt};
use crate::limit::state::State;
use crate::limit::token_bucket::{self, Answer};
use crate::limit::{AnyReceipt, AnyState, Decision};
use crate::time::Timestamp;

/// A state that is kept. A charge is made under a lock, and worked out after it.
pub(super) trait Kept: State {
    /// What is known of a charge when the lock is let go.
    type Answer;

    /// Decides a request of `cost` units and, if admitted, charges it.
    fn charge(&mut self, rule: &Self::Rule, cost: u64, now: Timestamp) -> Self::Answer;

    /// Whether the request may pass.
    fn is_admitted(answer: &Self::Answer) -> bool;

    /// A receipt as it is given out.
    fn charged(receipt: Self::Receipt, rule: &Self::Rule) -> Receipt;

    /// What the answer means.
    fn outcome(answer: Self::Answer, rule: &Self::Rule, cost: u64, now: Timestamp) -> Outcome;
}

impl Kept for token_bucket::State {
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
