//! The loans for requests. Each charge is a transaction.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::node::Node;
use super::step::Step;
use super::store::{Etcd, EtcdStore};
use super::transact::Transaction;
use crate::base::time::instant_now;
use crate::engine::store::backend::{
    Answers, Failure, Handling, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, Units,
};
use crate::fleet::stores::driver::grpc::CallError;
use crate::fleet::stores::driver::turn::Turn;
use crate::fleet::stores::driver::{Ask, Link, Server as _, View};

impl Ask for Etcd {
    async fn ask(
        store: &Arc<EtcdStore>,
        _: &View<Node, ()>,
        link: &Arc<Link<Node>>,
        turn: &Turn<Step>,
        charges: &[RemoteCharge<'_>],
        deadline: Instant,
    ) -> Result<Answers, Unavailable> {
        // There is one charge, because each is a call of its own. If it fails, nothing is lent.
        let mut answers = Answers { is_admitted: true, outcomes: SmallVec::new() };
        for charge in charges {
            let outcome = lend(store, link, turn, charge, deadline).await?;
            answers.is_admitted &= charge.handling != Handling::Enforce || outcome.admitted >= charge.units.cost;
            answers.outcomes.push(Ok(outcome));
        }
        Ok(answers)
    }
}

/// Borrows the units of a charge.
async fn lend(
    store: &EtcdStore,
    link: &Link<Node>,
    turn: &Turn<Step>,
    charge: &RemoteCharge<'_>,
    deadline: Instant,
) -> Result<RemoteOutcome, Unavailable> {
    let (node, begun) = (&link.node, instant_now());
    let (caller, _) = link.ready(deadline).await?;
    let of = (Box::from(charge.limit), charge.key);
    let transaction = Transaction { store, caller: &caller, turn, deadline, of: &of, rule: charge.rule };
    let borrowed = timeout_at(deadline, borrow(&transaction, charge.units)).await;
    store.context.observe(begun);
    let failed = |error: CallError| {
        node.failed(error.failure, &error.text);
        if error.failure == Failure::Timeout { Unavailable::Timeout } else { Unavailable::Error(error.failure) }
    };
    let outcome = borrowed.unwrap_or_else(|_| Err(CallError::late())).map_err(failed)?;
    node.succeeded();
    Ok(outcome)
}

async fn borrow(transaction: &Transaction<'_>, units: Units) -> Result<RemoteOutcome, CallError> {
    let Transaction { store, of, rule, .. } = *transaction;
    let held = store.ledger.holding(of);
    let mut locked = held.lock().await;
    let (plan, loan) = transaction.make(&mut locked, Some(units)).await?;
    let units = plan.borrowed;
    let receipt = (units > 0).then(|| transaction.receipt(loan, (plan.now, units)));
    Ok(RemoteOutcome {
        admitted: units,
        is_charged: units > 0,
        is_outdated: false,
        state: store.by_own_clock(plan.state, rule, plan.now),
        receipt: receipt.map(|receipt| RemoteReceipt::Etcd(Box::new(receipt))),
    })
}
