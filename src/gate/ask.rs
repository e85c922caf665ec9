//! A request whose limits have their state in a store, which has to be asked.
//!
//! Its local limits are charged before, and given back if a store denies. If the request is dropped meanwhile, the call
//! to the store goes on without it, and its charge is given back when the answer comes.
//!
//! Not here: the call itself (`store::redis`), and the decision of a mirror (`store::Batch`).

use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;

use super::check::{Checked, is_refused};
use super::lease::{self, Refill, Supplied};
use super::pass::Pass;
use super::state::{Gate, Live};
use crate::policy::{Limit, Mode, OnLimit, Stage};
use crate::store::redis::{Answers, Handling, RemoteCharge, Store, Unavailable, Units};
use crate::store::{Batch, Borrowed, Call, Charge, RemoteLimit};
use crate::time::Clock;

/// Asks stores. Each worker has one, with connections of its own.
pub trait Decider {
    /// The decision of `store` about all `charges` together. If the future is dropped, charges that the store makes are
    /// given back.
    fn decide(&self, store: &Arc<Store>, charges: &[RemoteCharge<'_>]) -> impl Future<Output = Answers>;

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

/// Asks the stores about the open charges of `batch`. Returns whether every enforced charge is admitted. If not, nothing
/// is charged.
pub(super) async fn ask<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    clock: Clock,
) -> bool {
    let (mut open, mut unanswered) = (Opens::new(), Unanswered::new());
    for index in 0..batch.charges().len() {
        let Some(charge) = batch.charges().get(index) else { continue };
        let Some(remote) = charge.remote() else { continue };
        match remote.lease {
            None if charge.is_open() => open.push(Open { index, remote, call: None }),
            Some(units) if charge.is_open() => match lease::supply(batch, index, units, clock).await {
                Supplied::Decided => {}
                Supplied::Borrow(call) => open.push(Open { index, remote, call: Some(call) }),
                Supplied::Unavailable(why) => unanswered.push((index, why)),
            },
            Some(units) if charge.is_charged() => {
                if let Some(refill) = Refill::of(charge, units, clock.now()) {
                    decider.refill(refill);
                }
            }
            _ => {}
        }
    }
    while !batch.charges().iter().any(is_refused) {
        let Some(first) = open.first() else { break };
        let store = Arc::clone(&first.remote.store);
        let (questions, rest) = open.into_iter().partition(|open| Arc::ptr_eq(&open.remote.store, &store));
        open = rest;
        unanswered.append(&mut ask_store(batch, decider, (&store, questions), clock).await);
    }
    let now = clock.now();
    for (index, why) in unanswered {
        if !batch.charges().iter().any(is_refused) {
            batch.fall_back(index, why, now);
        }
    }
    let is_admitted = !batch.charges().iter().any(is_refused);
    if !is_admitted {
        batch.undo(now);
    }
    is_admitted
}

/// Asks one store, and completes the charges with its answers. Returns the charges that it says nothing about.
async fn ask_store<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    (store, open): (&Arc<Store>, Opens<'t>),
    clock: Clock,
) -> Unanswered {
    let queried_at = clock.now();
    let questions: SmallVec<[RemoteCharge<'_>; 2]> =
        open.iter().filter_map(|open| Some(question(batch.charges().get(open.index)?, open.call.as_ref()))).collect();
    let answers = decider.decide(store, &questions).await;
    let now = clock.now();
    let mut unanswered = Unanswered::new();
    for (Open { index, call, .. }, answer) in open.into_iter().zip(answers.outcomes) {
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
    unanswered
}

/// What a store is asked about `charge`.
fn question<'t, 'l: 't, C: Checked<'l>>(charge: &Charge<'t, C>, call: Option<&Call<Borrowed>>) -> RemoteCharge<'t> {
    let (limit, state) = (charge.check.limit(), charge.check.state());
    let handling = if charge.enforced { Handling::Enforce } else { unenforced(limit) };
    let want = call.map_or(charge.cost, |call| call.want);
    let units = Units { cost: charge.cost, want, divisor: 1 };
    RemoteCharge { limit: &state.name, key: charge.key, rule: charge.rule, units, handling }
}

/// What follows from a denial by a limit that does not deny the request.
fn unenforced(limit: &Limit) -> Handling {
    match limit.on_limit {
        OnLimit::Delay(rule) if limit.mode == Mode::Enforce => Handling::Delay { max_debt: rule.slow_down.max_debt() },
        _ => Handling::Shadow,
    }
}
