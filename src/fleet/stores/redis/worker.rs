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
use crate::engine::store::backend::{Answers, Decided, Failure, RemoteCharge, RemoteReceipt, Unavailable};
use crate::fleet::stores::driver::{Ask, Link, NodeAddress, Server as _, View};

/// Calls for one decision: the first, one for an unknown script, and redirections.
const CALLS_MAX: usize = 5;

/// Why a call has no decision.
enum Detour {
    /// There will be none.
    Unavailable(Unavailable),
    /// The script must be loaded.
    UnknownScript,
    /// Another node must be asked: for good, or for this call only.
    Moved { to: NodeAddress, only_now: bool },
}

impl From<Unavailable> for Detour {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

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
            match call(store, link, charges, preamble, deadline).await {
                Ok(Decided { is_admitted, outcomes }) => {
                    return Ok(Answers { is_admitted, outcomes: outcomes.into_iter().map(Ok).collect() });
                }
                Err(Detour::Unavailable(unavailable)) => return Err(unavailable),
                Err(Detour::UnknownScript) => preamble.loads_script = true,
                Err(Detour::Moved { to, only_now }) => {
                    store.lost.notify_one();
                    link = view.link(&to).ok_or(Unavailable::Error(Failure::Moving))?;
                    preamble = Preamble { loads_script: false, is_asking: only_now };
                }
            }
        }
        Err(Unavailable::Error(Failure::Moving))
    }
}

/// Asks a node once.
async fn call(
    store: &Arc<Store>,
    link: &Link<Node>,
    charges: &[RemoteCharge<'_>],
    preamble: Preamble,
    deadline: Instant,
) -> Result<Decided, Detour> {
    let node = &link.node;
    let (connection, generation) = link.ready(deadline).await?;
    let begun = instant_now();
    let call = decide(&store.names, &store.caller, Some(&generation), charges, store.context.clock.now());
    let late = || store.late(charges);
    let answer = Awaited::new(send(connection, &call, preamble), &late).finish(deadline).await;
    store.context.observe(begun);
    match answer {
        Answer::Value(reply) => Ok(read_reply(store, node, charges, &reply, generation.number)?),
        Answer::UnknownScript => Err(Detour::UnknownScript),
        Answer::Moved { host, port, only_now } => {
            let host = host.or_else(|| node.address()?.host().map(Into::into)).unwrap_or_default();
            Err(Detour::Moved { to: NodeAddress::tcp(host, port), only_now })
        }
        Answer::Failed(failure, text) => {
            node.failed(failure, &text);
            Err(Unavailable::Error(failure).into())
        }
        Answer::Late => {
            node.failed(Failure::Timeout, "no reply in time");
            Err(Unavailable::Timeout.into())
        }
    }
}

/// Reads the reply of a node under a generation.
fn read_reply(
    store: &Store,
    node: &Node,
    charges: &[RemoteCharge<'_>],
    reply: &Value,
    generation: u64,
) -> Result<Decided, Unavailable> {
    let decided = decided(&store.names, &store.caller, charges, reply, store.context.clock.now());
    match &decided {
        Ok(decided) => {
            node.succeeded();
            for (outcome, charge) in decided.outcomes.iter().zip(charges) {
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
    decided
}
