//! A request whose limits have their state in a store, which has to be asked.
//!
//! Its local limits are charged before, and given back if a store denies. If the request is dropped meanwhile, the call
//! to the store goes on without it, and its charge is given back when the answer comes.
//!
//! Not here: the call itself (`crate::fleet::stores`), and the decision of a mirror (`store::Batch`).

use std::future::Future;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use super::check::{Checked, enforce_rejection, is_refused};
use super::lease::{self, Refill, Supplied};
use super::pass::Pass;
use super::state::{Gate, Live};
use crate::base::time::{Clock, Timestamp, instant_now};
use crate::engine::policy::{Limit, Mode, OnLimit, Stage};
use crate::engine::store::backend::{Answers, Handling, RemoteCharge, Unavailable, Units, each};
use crate::engine::store::{Batch, Borrowed, Call, Charge, RemoteLimit, RemoteStore};

/// Asks stores. Each worker has one, with connections of its own.
pub trait Decider {
    /// The decision of `store` about all `charges` together. If the future is dropped, charges that the store makes are
    /// given back.
    fn decide(&self, store: &RemoteStore, charges: &[RemoteCharge<'_>]) -> impl Future<Output = Answers>;

    /// Makes the call of `refill` in the background.
    fn refill(&self, refill: Refill);
}

/// A request that waits for the decision of a store.
#[derive(Debug)]
pub struct Asking<'l> {
    pub(super) gate: &'l Gate,
    pub(super) live: &'l Live,
    pub(super) stage: Stage,
    /// The local charges. They are given back if the request is dropped.
    pub(super) pass: Pass<'l>,
}

/// A remote charge that is not decided yet.
struct Open<'t> {
    /// The index of the charge.
    index: usize,
    remote: &'t Arc<RemoteLimit>,
    /// The call that borrows units for it, if its limit has leases.
    call: Option<Call<Borrowed>>,
}

/// Remote charges that are not decided yet.
type Opens<'t> = SmallVec<[Open<'t>; 2]>;

/// Charges whose store says nothing, by index.
type Unanswered = SmallVec<[(usize, Unavailable); 2]>;

/// Open charges whose calls are to be made, and what is known before that.
struct Pending<'t> {
    open: Opens<'t>,
    unanswered: Unanswered,
    /// When the request began to wait for calls of other requests.
    waits_since: Option<Instant>,
}

/// Asks the stores about the open charges of `batch`. Returns whether every enforced charge is admitted. If not, nothing
/// is charged. If the request `is_waiting` already, a charge of a limit that holds is denied until it is due if its store
/// says nothing before.
pub(super) async fn ask<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    is_waiting: bool,
    clock: Clock,
) -> bool {
    let pending = supplied(batch, decider, clock).await;
    conclude(batch, decider, (pending, is_waiting), clock).await
}

/// Asks the stores about `looks` of one unit, so that the mirrors have the newest states, and decides them. No units are charged
/// or borrowed. Returns whether every enforced one is admitted.
pub(super) async fn look<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    looks: &mut Batch<'t, C>,
    decider: &D,
    clock: Clock,
) -> bool {
    let asked_at = clock.now();
    let remotes = looks.charges().iter().map(Charge::remote).enumerate();
    let open = remotes.filter_map(|(index, remote)| Some(Open { index, remote: remote?, call: None })).collect();
    let mut unanswered = Unanswered::new();
    // A question about no units has the state as its answer.
    looks.charges_mut().iter_mut().for_each(|look| look.cost = 0);
    ask_stores(looks, decider, (open, &mut unanswered), None, clock).await;
    looks.charges_mut().iter_mut().for_each(|look| look.cost = 1);
    let now = clock.now();
    looks.peek_answered(asked_at, now);
    for (index, why) in unanswered {
        if let Some(look) = looks.charges_mut().get_mut(index) {
            look.foresee_fallback(why, now);
        }
    }
    !looks.charges().iter().any(is_refused)
}

/// Takes borrowed units for the open charges of `batch`. Returns those that are open then.
async fn supplied<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    clock: Clock,
) -> Pending<'t> {
    let (mut open, mut unanswered, mut short) = (Opens::new(), Unanswered::new(), SmallVec::new());
    let mut waits_since = None;
    for (index, charge) in batch.charges().iter().enumerate() {
        let Some(remote) = charge.remote() else { continue };
        match remote.lease {
            None if charge.is_open() => open.push(Open { index, remote, call: None }),
            Some(_) if charge.is_open() => short.push(index),
            Some(units) if charge.is_charged() => {
                if let Some(refill) = Refill::of(charge, units, clock.now()) {
                    decider.refill(refill);
                }
            }
            _ => {}
        }
    }
    if !short.is_empty() {
        open.extend(supply(batch, decider, (short, &mut unanswered), &mut waits_since, clock).await);
    }
    Pending { open, unanswered, waits_since }
}

/// Makes the calls of `pending`. Returns whether every enforced charge is admitted. If not, nothing is charged.
async fn conclude<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    (pending, is_waiting): (Pending<'t>, bool),
    clock: Clock,
) -> bool {
    let Pending { open, mut unanswered, waits_since } = pending;
    if !batch.charges().iter().any(is_refused) {
        ask_stores(batch, decider, (open, &mut unanswered), waits_since, clock).await;
    }
    let now = clock.now();
    for (index, why) in unanswered {
        if batch.charges().iter().any(is_refused) {
            break;
        }
        if let Some(charge) = batch.charges_mut().get_mut(index) {
            if is_waiting && charge.check.limit().on_limit.is_hold() && charge.deny_until_due(why, now) {
                continue;
            }
            enforce_rejection(charge, why);
        }
        batch.fall_back(index, why, now);
    }
    let is_admitted = !batch.charges().iter().any(is_refused);
    if !is_admitted {
        batch.undo(now);
    }
    is_admitted
}

/// Decides the open charges at the indices `short` by borrowed units. Returns those whose calls are to be made. Adds those
/// that a store says nothing about to `unanswered`. Notes when the first wait begins: the timeout bounds all of them.
///
/// The request waits for a call of another request only after its own calls have ended. Otherwise two requests for units of
/// the same keys could wait for each other.
async fn supply<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    (mut short, unanswered): (SmallVec<[usize; 2]>, &mut Unanswered),
    waits_since: &mut Option<Instant>,
    clock: Clock,
) -> Opens<'t> {
    loop {
        let (mut calls, mut in_flight) = (Opens::new(), None);
        for index in std::mem::take(&mut short) {
            let Some(remote) = batch.charges().get(index).and_then(Charge::remote) else { continue };
            let Some(units) = remote.lease else { continue };
            match lease::supply(batch, index, units, clock.now()) {
                Supplied::Decided => {}
                Supplied::Borrow(call) => calls.push(Open { index, remote, call: Some(call) }),
                Supplied::InFlight(call) => {
                    in_flight = Some((index, &remote.store, call));
                    short.push(index);
                }
            }
        }
        let Some((index, store, in_flight)) = in_flight.filter(|_| !batch.charges().iter().any(is_refused)) else {
            return calls;
        };
        // The first call ends by its own timeout, which counts for the health of its server.
        let waited_since = *waits_since;
        let begun = *waits_since.get_or_insert_with(instant_now);
        if !calls.is_empty() {
            ask_stores(batch, decider, (calls, unanswered), waited_since, clock).await;
            continue;
        }
        let ended = timeout_at(begun + store.timeout(), in_flight.ended()).await;
        if let Some(why) = ended.unwrap_or(Some(Unavailable::Timeout)) {
            short.retain(|waiting| *waiting != index);
            unanswered.push((index, why));
        }
    }
}

/// The open charges of one store, and the questions about them.
struct Group<'t> {
    store: &'t RemoteStore,
    open: Opens<'t>,
    questions: SmallVec<[RemoteCharge<'t>; 2]>,
}

/// The open charges by store. Their request waits since `waits_since`, if it does.
fn groups<'t, 'l: 't, C: Checked<'l>>(
    batch: &Batch<'t, C>,
    open: Opens<'t>,
    waits_since: Option<Instant>,
    now: Timestamp,
) -> SmallVec<[Group<'t>; 1]> {
    let mut groups: SmallVec<[Group<'t>; 1]> = SmallVec::new();
    for open in open {
        let Some(charge) = batch.charges().get(open.index) else { continue };
        let store = &open.remote.store;
        let until = || waits_since.unwrap_or_else(instant_now) + store.timeout();
        let question = question(charge, open.call.as_ref(), until, now);
        match groups.iter_mut().find(|group| group.store.is(store)) {
            Some(group) => {
                group.open.push(open);
                group.questions.push(question);
            }
            None => groups.push(Group { store, open: smallvec![open], questions: smallvec![question] }),
        }
    }
    groups
}

/// Asks all stores at once, and completes the charges with their answers. The request waits since `waits_since`, if it
/// does. Adds those that a store says nothing about to `unanswered`.
async fn ask_stores<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    (open, unanswered): (Opens<'t>, &mut Unanswered),
    waits_since: Option<Instant>,
    clock: Clock,
) {
    let queried_at = clock.now();
    let groups = groups(batch, open, waits_since, queried_at);
    let (mut open, asked): (SmallVec<[_; 1]>, SmallVec<[_; 1]>) =
        groups.into_iter().map(|Group { store, open, questions }| (open, (store, questions))).unzip();
    // At once, so that what a store has charged is given back if the request ends before another store answers.
    let mut complete = |index: usize, answers: Answers| {
        let now = clock.now();
        for (Open { index, call, .. }, answer) in std::mem::take(&mut open[index]).into_iter().zip(answers.outcomes) {
            match (answer, call) {
                (Ok(outcome), None) => batch.hear(index, outcome, queried_at, now),
                (Ok(outcome), Some(call)) => batch.hear_lease(index, outcome, &call, queried_at, now),
                (Err(why), call) => {
                    if let Some(call) = call {
                        call.failed(why);
                    }
                    unanswered.push((index, why));
                }
            }
        }
    };
    if let [(store, questions)] = asked.as_slice() {
        return complete(0, decide(decider, store, questions, waits_since).await);
    }
    let asked = asked.iter().map(|(store, questions)| Box::pin(decide(decider, store, questions, waits_since)));
    each(asked.collect(), complete).await;
}

/// The answers of `store`. A request that waits already does not wait for longer than the timeout in all.
async fn decide<D: Decider>(
    decider: &D,
    store: &RemoteStore,
    questions: &[RemoteCharge<'_>],
    waits_since: Option<Instant>,
) -> Answers {
    let Some(begun) = waits_since else { return decider.decide(store, questions).await };
    let answers = timeout_at(begun + store.timeout(), decider.decide(store, questions)).await;
    let none = |_: &RemoteCharge<'_>| Err(Unavailable::Timeout);
    answers.unwrap_or_else(|_| Answers { is_admitted: true, outcomes: questions.iter().map(none).collect() })
}

/// What a store is asked about `charge` at `now`. The request waits for it until `until`.
fn question<'t, 'l: 't, C: Checked<'l>>(
    charge: &Charge<'t, C>,
    call: Option<&Call<Borrowed>>,
    until: impl FnOnce() -> Instant,
    now: Timestamp,
) -> RemoteCharge<'t> {
    let (limit, state) = (charge.check.limit(), charge.check.state());
    let handling = if charge.enforced { Handling::Enforce } else { unenforced(limit, charge.check.mode()) };
    let units = call.map_or(Units::exactly(charge.cost), Call::units);
    let asked_again_until = charge.table().is_doubted(charge.key, now).then(until);
    RemoteCharge { limit: &state.name, key: charge.key, rule: charge.rule, units, handling, asked_again_until }
}

/// What follows from a denial by a limit that does not deny the request.
fn unenforced(limit: &Limit, mode: Mode) -> Handling {
    match limit.on_limit {
        OnLimit::Delay(rule) if mode == Mode::Enforce => Handling::Delay { max_debt: rule.slow_down.max_debt() },
        _ => Handling::Shadow,
    }
}
