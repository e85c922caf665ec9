//! The decision of the charges of a request.

use std::sync::Arc;

use tokio::time::Instant;

use super::limiter::{Limiter, Service, Session};
use super::message::CallOfCharges;
use super::node::Node;
use super::proto::{self, KeyCharge, Outcome, Refusal, Verdict};
use crate::base::time::{Timestamp, instant_now};
use crate::engine::limit::{AnyState, Key};
use crate::engine::store::backend::{
    Answers, CallId, Failure, Handling, LimiterReceipt, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable,
};
use crate::fleet::stores::driver::{Ask, Link, Server as _, View};

/// A call without an answer. What it charges is given back on drop.
struct Unanswered<'s> {
    store: &'s Limiter,
    call: Option<CallId>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.store.give_back_call(call);
        }
    }
}

impl Ask for Service {
    async fn ask(
        store: &Arc<Limiter>,
        _: &View<Node, ()>,
        link: &Arc<Link<Node>>,
        session: &Session,
        charges: &[RemoteCharge<'_>],
        deadline: Instant,
    ) -> Result<Answers, Unavailable> {
        let node = &link.node;
        let (caller, generation) = link.ready(deadline).await?;
        let (process, now) = (generation.number, store.context.clock.now());
        let call = session.next_call(process, now);
        let begun = instant_now();
        let mut unanswered = Unanswered { store, call: Some(call) };
        let asked = CallOfCharges { of: call, charges: charges.iter().map(key_charge).collect() };
        let answer = session.turn.call(&caller, asked, deadline).await;
        store.context.observe(begun);
        let answer = answer.map_err(|error| {
            node.failed(error.failure, &error.text);
            if error.failure == Failure::Timeout { Unavailable::Timeout } else { Unavailable::Error(error.failure) }
        })?;
        let Some(verdict) = answer else {
            unanswered.call = None;
            node.is_cold(process);
            return Err(Unavailable::Cold);
        };
        let read = Reader { store, call, now: store.context.clock.now() }.answers(charges, &verdict);
        let Some(answers) = read else {
            node.failed(Failure::Reply, "an answer to another question");
            return Err(Unavailable::Error(Failure::Reply));
        };
        unanswered.call = None;
        node.succeeded();
        Ok(answers)
    }
}

/// A charge as a message has it.
fn key_charge(charge: &RemoteCharge<'_>) -> KeyCharge {
    let (handling, max_debt) = match charge.handling {
        Handling::Enforce => (proto::Handling::Enforce, 0),
        Handling::Shadow => (proto::Handling::Shadow, 0),
        Handling::Delay { max_debt } => (proto::Handling::Delay, max_debt),
    };
    KeyCharge {
        limit: charge.limit.into(),
        key: Some(charge.key.into()),
        rule: charge.rule.digest(),
        cost: charge.units.cost,
        handling: handling.into(),
        max_debt,
    }
}

impl From<Key> for proto::Key {
    fn from(key: Key) -> Self {
        Self { first: key.first, second: key.second }
    }
}

/// The context of an answer.
struct Reader<'s> {
    store: &'s Limiter,
    call: CallId,
    now: Timestamp,
}

impl Reader<'_> {
    /// The answers to all charges; `None` if they are not of this question.
    fn answers(&self, charges: &[RemoteCharge<'_>], verdict: &Verdict) -> Option<Answers> {
        if verdict.outcomes.len() != charges.len() {
            return None;
        }
        let each = charges.iter().zip(&verdict.outcomes).zip(0..);
        let outcomes = each.map(|((charge, outcome), index)| self.outcome(charge, outcome, index));
        let outcomes = outcomes.collect::<Option<_>>()?;
        Some(Answers { is_admitted: verdict.is_admitted, outcomes })
    }

    fn outcome(
        &self,
        charge: &RemoteCharge<'_>,
        outcome: &Outcome,
        index: u32,
    ) -> Option<Result<RemoteOutcome, Unavailable>> {
        let differs = match outcome.refusal() {
            Refusal::Unspecified => None,
            Refusal::Limit => Some(Failure::Limit),
            Refusal::Rule => Some(Failure::Rule),
        };
        if let Some(failure) = differs {
            self.store.differs(charge.limit, charge.key, failure);
            return Some(Err(Unavailable::Error(failure)));
        }
        self.store.undecided.remove(charge.limit, charge.key, self.now);
        let state = AnyState::import(charge.rule, &mut outcome.numbers.iter().copied(), self.now)?;
        let receipt = (outcome.charged > 0).then(|| LimiterReceipt {
            call: self.call,
            index,
            limit: charge.limit.into(),
            key: charge.key,
            rule: charge.rule.digest(),
            units: outcome.charged,
        });
        let receipt = receipt.map(|receipt| RemoteReceipt::Limiter(Box::new(receipt)));
        let admitted = if outcome.is_admitted { charge.units.cost } else { 0 };
        Some(Ok(RemoteOutcome { admitted, is_charged: outcome.charged > 0, is_outdated: false, state, receipt }))
    }
}
