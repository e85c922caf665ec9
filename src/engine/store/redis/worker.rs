//! The calls of one worker: its connections to all nodes of a store, and the decision of the charges of a request.
//!
//! Charges on one node are one call: all are made, or none. Charges on several nodes are decided at once; if one is denied,
//! the caller gives the others back.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use redis::Value;
use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use super::call::{Answer, Awaited, Preamble, send};
use super::node::Node;
use super::routes::{Routes, slot};
use super::script::{decide, decided};
use super::store::Store;
use super::view::View;
use crate::base::time::instant_now;
use crate::engine::store::backend::{
    Answers, Decided, Failure, Link, NodeAddress, Part, RemoteCharge, RemoteReceipt, Server as _, Unavailable, each,
};

/// Calls for one decision: the first, one for an unknown script, and redirections.
const CALLS_MAX: usize = 5;

/// The connections of one worker to the nodes of a store.
pub struct WorkerStore {
    store: Arc<Store>,
    view: RefCell<Rc<View>>,
}

/// The charges of a request that one call decides, with their positions in the request.
struct Group<'c> {
    node: Option<usize>,
    /// The slot of a cluster, else 0.
    slot: u16,
    charges: SmallVec<[RemoteCharge<'c>; 2]>,
    positions: SmallVec<[usize; 2]>,
}

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

impl WorkerStore {
    /// Begins to connect to all nodes. To be called on the runtime that decides.
    pub fn new(store: Arc<Store>) -> Self {
        let view = RefCell::new(Rc::new(View::new(store.nodes())));
        Self { store, view }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Decides all charges of a request, each within the timeout of the store. What nodes charge after the timeout, or after
    /// this was dropped, is given back. If one of several nodes denies, the others may have charged: the caller gives that
    /// back by the receipts.
    pub async fn decide(&self, charges: &[RemoteCharge<'_>]) -> Answers {
        let view = self.view();
        let groups = self.groups(&view, charges);
        if let [group] = groups.as_slice() {
            return match self.ask(&view, group).await {
                Ok(Decided { is_admitted, outcomes }) => {
                    Answers { is_admitted, outcomes: outcomes.into_iter().map(Ok).collect() }
                }
                Err(unavailable) => {
                    Answers { is_admitted: true, outcomes: charges.iter().map(|_| Err(unavailable)).collect() }
                }
            };
        }
        let parts = groups.iter().map(|group| -> Part<'_, _> { Box::pin(self.ask(&view, group)) }).collect();
        let mut unmerged = Unmerged { store: &self.store, decided: groups.iter().map(|_| None).collect() };
        each(parts, |index, decided| unmerged.decided[index] = Some(decided)).await;
        unmerged.merge(&groups, charges.len())
    }

    fn view(&self) -> Rc<View> {
        let nodes = self.store.nodes();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(&view.nodes, &nodes) {
            let mut newer = View::clone(&view);
            newer.follow(&nodes);
            *view = Rc::new(newer);
        }
        Rc::clone(&view)
    }

    /// The charges by node; in a cluster by slot.
    fn groups<'c>(&self, view: &View, charges: &[RemoteCharge<'c>]) -> SmallVec<[Group<'c>; 1]> {
        let mut groups: SmallVec<[Group<'c>; 1]> = SmallVec::new();
        let routes = &view.nodes.routes;
        for (position, charge) in charges.iter().enumerate() {
            let slot = match routes {
                Routes::Slots(_) => slot(self.store.names.of_key(charge.limit, charge.key).as_bytes()),
                Routes::One | Routes::Ring(_) => 0,
            };
            let node = routes.node(charge.key, slot);
            match groups.iter_mut().find(|group| group.node == node && group.slot == slot) {
                Some(group) => {
                    group.charges.push(*charge);
                    group.positions.push(position);
                }
                None => groups.push(Group { node, slot, charges: smallvec![*charge], positions: smallvec![position] }),
            }
        }
        groups
    }

    /// Asks the node of a group, and follows its redirections.
    async fn ask(&self, view: &View, group: &Group<'_>) -> Result<Decided, Unavailable> {
        let mut link = group.node.and_then(|node| view.links.get(node)).ok_or(Unavailable::Down)?;
        let deadline = instant_now() + self.store.common.timeout;
        let mut preamble = Preamble::default();
        for _ in 0..CALLS_MAX {
            match self.call(link, &group.charges, preamble, deadline).await {
                Ok(decided) => return Ok(decided),
                Err(Detour::Unavailable(unavailable)) => return Err(unavailable),
                Err(Detour::UnknownScript) => preamble.loads_script = true,
                Err(Detour::Moved { to, only_now }) => {
                    self.store.lost.notify_one();
                    link = view.link(&to).ok_or(Unavailable::Error(Failure::Moving))?;
                    preamble = Preamble { loads_script: false, is_asking: only_now };
                }
            }
        }
        Err(Unavailable::Error(Failure::Moving))
    }

    /// Asks a node once.
    async fn call(
        &self,
        link: &Link<Node>,
        charges: &[RemoteCharge<'_>],
        preamble: Preamble,
        deadline: Instant,
    ) -> Result<Decided, Detour> {
        let (store, node) = (&self.store, &link.node);
        if !node.is_closed() {
            return Err(Unavailable::Down.into());
        }
        let generation = node.generation().ok_or(Unavailable::Cold)?;
        let connection = match link.connection() {
            Some(connection) => connection,
            None => timeout_at(deadline, link.opened()).await.map_err(|_| no_connection(node))?,
        };
        let begun = instant_now();
        let call = decide(&store.names, &store.caller, Some(&generation), charges, store.common.clock.now());
        let late = || store.late(charges);
        let answer = Awaited::new(send(connection, &call, preamble), &late).finish(deadline).await;
        store.common.observe(begun);
        match answer {
            Answer::Value(reply) => Ok(self.read_reply(node, charges, &reply, generation.begun_us)?),
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
        &self,
        node: &Node,
        charges: &[RemoteCharge<'_>],
        reply: &Value,
        generation: u64,
    ) -> Result<Decided, Unavailable> {
        let store = &self.store;
        let decided = decided(&store.names, &store.caller, charges, reply, store.common.clock.now());
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
}

/// The answers of several nodes to the charges of a request. What they charged is given back on drop.
struct Unmerged<'s> {
    store: &'s Store,
    /// In the order of the groups; `None` before a node has answered.
    decided: SmallVec<[Option<Result<Decided, Unavailable>>; 2]>,
}

impl Unmerged<'_> {
    /// The answers in the order of the charges.
    fn merge(mut self, groups: &[Group<'_>], charges: usize) -> Answers {
        let is_admitted = self.decided.iter().flatten().flatten().all(|decided| decided.is_admitted);
        let decided = std::mem::take(&mut self.decided);
        let mut outcomes: SmallVec<[_; 2]> = (0..charges).map(|_| Err(Unavailable::Down)).collect();
        for (group, decided) in groups.iter().zip(decided) {
            match decided {
                Some(Ok(decided)) => {
                    for (position, outcome) in group.positions.iter().zip(decided.outcomes) {
                        outcomes[*position] = Ok(outcome);
                    }
                }
                Some(Err(why)) => group.positions.iter().for_each(|position| outcomes[*position] = Err(why)),
                None => {}
            }
        }
        Answers { is_admitted, outcomes }
    }
}

impl Drop for Unmerged<'_> {
    fn drop(&mut self) {
        let outcomes = self.decided.drain(..).flatten().flatten().flat_map(|decided| decided.outcomes);
        outcomes.filter_map(|outcome| outcome.receipt).for_each(|receipt| self.store.give_back(receipt));
    }
}

fn no_connection(node: &Node) -> Unavailable {
    node.failed(Failure::Timeout, "no connection in time");
    Unavailable::Timeout
}

impl fmt::Debug for WorkerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerStore").field("store", &self.store).finish_non_exhaustive()
    }
}
