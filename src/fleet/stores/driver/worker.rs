//! The calls of one worker: its connections to all nodes of a store, and the decision of the charges of a request.
//!
//! Charges of one call are all made, or none. Several calls are made at once; if one is denied, the caller gives the
//! others back. Not here: the calls (`Ask::ask`).

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use super::link::persist;
use super::nodes::View;
use super::store::{Driven, Shared, ViewOf};
use crate::base::time::instant_now;
use crate::engine::store::backend::{
    Answers, Backend as _, Connections, Failure, Part, RemoteCharge, Unavailable, each,
};

/// The connections of one worker to the nodes of a store.
pub(super) struct Worker<K: Driven> {
    store: Arc<Shared<K>>,
    view: RefCell<Arc<ViewOf<K>>>,
    session: K::Session,
}

/// The charges of a request that one call decides, with their positions in the request.
struct Group<'c> {
    call: (Option<usize>, usize),
    charges: SmallVec<[RemoteCharge<'c>; 2]>,
    positions: SmallVec<[usize; 2]>,
}

impl<K: Driven> Worker<K> {
    /// Begins to connect to all nodes. To be called on the runtime that decides.
    pub(super) fn new(store: Arc<Shared<K>>) -> Self {
        let view = RefCell::new(View::new(store.nodes()));
        Self { store, view, session: K::Session::default() }
    }

    async fn decide(&self, charges: &[RemoteCharge<'_>]) -> Answers {
        let view = self.view();
        let groups = self.groups(&view, charges);
        if let [group] = groups.as_slice() {
            return self.ask(&view, group).await;
        }
        let parts = groups.iter().map(|group| -> Part<'_, _> { Box::pin(self.ask(&view, group)) }).collect();
        let mut unmerged = Unmerged { store: &self.store, answers: groups.iter().map(|_| None).collect() };
        each(parts, |index, answers| unmerged.answers[index] = Some(answers)).await;
        unmerged.merge(&groups, charges.len())
    }

    fn view(&self) -> Arc<ViewOf<K>> {
        let mut view = self.view.borrow_mut();
        *view = view.follow(self.store.nodes());
        Arc::clone(&view)
    }

    /// The charges by call.
    fn groups<'c>(&self, view: &ViewOf<K>, charges: &[RemoteCharge<'c>]) -> SmallVec<[Group<'c>; 1]> {
        let mut groups: SmallVec<[Group<'c>; 1]> = SmallVec::new();
        for (position, charge) in charges.iter().enumerate() {
            let call = self.store.call_of(&view.nodes, charge, position);
            match groups.iter_mut().find(|group| group.call == call) {
                Some(group) => {
                    group.charges.push(*charge);
                    group.positions.push(position);
                }
                None => groups.push(Group { call, charges: smallvec![*charge], positions: smallvec![position] }),
            }
        }
        groups
    }

    /// Makes the call of `group`. A store that denies units which came back a moment ago is asked once more when it knows of
    /// them.
    async fn ask(&self, view: &ViewOf<K>, group: &Group<'_>) -> Answers {
        let deadline = instant_now() + self.store.context.settings.timeout;
        let answers = self.call(view, group, deadline).await;
        if answers.is_admitted || !group.charges.iter().any(|charge| charge.is_doubted) {
            return answers;
        }
        if timeout_at(deadline, self.store.outbox.drained()).await.is_err() {
            return answers;
        }
        let newer = self.call(view, group, deadline).await;
        let (answers, unused) =
            if newer.outcomes.iter().any(Result::is_err) { (answers, newer) } else { (newer, answers) };
        undo(&self.store, unused);
        answers
    }

    async fn call(&self, view: &ViewOf<K>, group: &Group<'_>, deadline: Instant) -> Answers {
        let answers = match group.call.0.and_then(|node| view.links.get(node)) {
            Some(link) => {
                // Without the node, a replica would admit what others may have from it. So another connection is tried first.
                let ask = || K::ask(&self.store, view, link, &self.session, &group.charges, deadline);
                persist(ask, |why| *why == Unavailable::Error(Failure::Broken)).await
            }
            None => Err(Unavailable::Down),
        };
        let none = |why| Answers { is_admitted: true, outcomes: group.charges.iter().map(|_| Err(why)).collect() };
        answers.unwrap_or_else(none)
    }
}

/// The answers to several calls for a request. What they charged is given back on drop.
struct Unmerged<'s, K: Driven> {
    store: &'s Shared<K>,
    /// In the order of the groups; `None` before there is an answer.
    answers: SmallVec<[Option<Answers>; 2]>,
}

impl<K: Driven> Unmerged<'_, K> {
    /// The answers in the order of the charges.
    fn merge(mut self, groups: &[Group<'_>], charges: usize) -> Answers {
        let mut outcomes: SmallVec<[_; 2]> = (0..charges).map(|_| Err(Unavailable::Down)).collect();
        let mut is_admitted = true;
        for (group, answers) in groups.iter().zip(self.answers.drain(..)) {
            let Some(answers) = answers else { continue };
            is_admitted &= answers.is_admitted;
            for (position, outcome) in group.positions.iter().zip(answers.outcomes) {
                outcomes[*position] = outcome;
            }
        }
        Answers { is_admitted, outcomes }
    }
}

impl<K: Driven> Drop for Unmerged<'_, K> {
    fn drop(&mut self) {
        self.answers.drain(..).flatten().for_each(|answers| undo(self.store, answers));
    }
}

/// Gives back what `answers` charged.
fn undo<K: Driven>(store: &Shared<K>, answers: Answers) {
    let receipts = answers.outcomes.into_iter().filter_map(|outcome| outcome.ok()?.receipt);
    receipts.for_each(|receipt| store.give_back(receipt));
}

impl<K: Driven> Connections for Worker<K> {
    fn decide<'a>(&'a self, charges: &'a [RemoteCharge<'a>]) -> Part<'a, Answers> {
        Box::pin(self.decide(charges))
    }
}

impl<K: Driven> fmt::Debug for Worker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("store", &self.store).finish_non_exhaustive()
    }
}
