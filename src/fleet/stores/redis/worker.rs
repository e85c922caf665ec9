//! The decision of charges on one node: the call, and redirections to others.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::call::{Answer, Awaited, Preamble, send};
use super::node::Node;
use super::script::{decide, decided};
use super::store::{Redis, Store};
use super::topology::Map;
use crate::base::time::instant_now;
use crate::engine::store::backend::{Answers, Failure, RemoteCharge, RemoteReceipt, Unavailable};
use crate::fleet::stores::driver::{Ask, Link, NodeAddress, Server as _, View};

/// Calls for one decision: the first, one for an unknown script, and redirections.
const CALLS_MAX: usize = 5;

impl Ask for Redis {
    /// Asks a node, and follows its redirections.
    async fn ask(
        store: &Arc<Store>,
        view: &View<Node, Map>,
        mut link: &Arc<Link<Node>>,
        (): &(),
        charges: &[RemoteCharge<'_>],
        deadline: Instant,
    ) -> Result<Answers, Unavailable> {
        let mut preamble = Preamble::default();
        for _ in 0..CALLS_MAX {
            let node = &link.node;
            let (connection, generation) = link.ready(deadline).await?;
            let begun = instant_now();
            let call = decide(&store.names, &store.caller, Some(&generation), charges, store.context.clock.now());
            let late = || store.late(charges);
            let answer = Awaited::new(send(connection, &call, preamble), &late).finish(deadline).await;
            store.context.observe(begun);
            match answer {
                Answer::Value(reply) => return read_reply(store, node, charges, &reply, generation.number),
                Answer::UnknownScript => preamble.loads_script = true,
                Answer::Moved { host, port, only_now } => {
                    let host = host.or_else(|| node.address()?.host().map(Into::into)).unwrap_or_default();
                    store.lost.notify_one();
                    let moved = view.link(&NodeAddress::tcp(host, port));
                    link = moved.ok_or(Unavailable::Error(Failure::Moving))?;
                    preamble = Preamble { loads_script: false, is_asking: only_now };
                }
                Answer::Failed(failure, text) => {
                    node.failed(failure, &text);
                    note_unanswered(store, charges);
                    return Err(Unavailable::Error(failure));
                }
                Answer::Late => {
                    node.failed(Failure::Timeout, "no reply in time");
                    note_unanswered(store, charges);
                    return Err(Unavailable::Timeout);
                }
            }
        }
        Err(Unavailable::Error(Failure::Moving))
    }
}

/// Notes keys for which a node may have charged units in flight without a reply.
fn note_unanswered(store: &Store, charges: &[RemoteCharge<'_>]) {
    for charge in charges.iter().filter(|charge| charge.rule.is_released()) {
        store.flights.settled(&store.names.of_key(charge.limit, charge.key), charge.rule, 0);
    }
}

/// Reads the reply of a node under a generation.
fn read_reply(
    store: &Store,
    node: &Node,
    charges: &[RemoteCharge<'_>],
    reply: &Value,
    generation: u64,
) -> Result<Answers, Unavailable> {
    let answers = decided(&store.names, &store.caller, charges, reply, store.context.clock.now());
    match &answers {
        Ok(answers) => {
            node.succeeded();
            for (outcome, charge) in answers.outcomes.iter().zip(charges) {
                let Ok(outcome) = outcome else { continue };
                if let Some(RemoteReceipt::Redis(receipt)) = &outcome.receipt {
                    store.flights.begun(receipt);
                }
                if outcome.is_outdated {
                    store.adopt(charge);
                }
            }
        }
        Err(Unavailable::Error(failure)) => node.failed(*failure, "a reply that is none of the script"),
        Err(_) => node.is_cold(generation),
    }
    answers
}
