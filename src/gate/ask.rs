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
use super::lease;
use super::pass::Pass;
use super::state::{Gate, Live};
use crate::policy::{Limit, Mode, OnLimit, Stage};
use crate::store::redis::{Answers, Handling, RemoteCharge, Store, Unavailable, Units};
use crate::store::{Batch, Borrowing, Charge, RemoteLimit};
use crate::time::Clock;

/// Asks stores. Each worker has one, with connections of its own.
pub trait Decider {
    /// The decision of `store` about all `charges` together. If the future is dropped, charges that the store makes are
    /// given back.
    fn decide(&self, store: &Arc<Store>, charges: &[RemoteCharge<'_>]) -> impl Future<Output = Answers>;
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
    /// The units to borrow for it, if its limit has leases.
    borrowing: Option<Borrowing>,
}

/// Remote charges that are not decided yet.
type Opens<'t> = SmallVec<[Open<'t>; 2]>;

/// Asks the stores about the open charges of `batch`. Returns whether every enforced charge is admitted. If not, nothing
/// is charged.
pub(super) async fn ask<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    clock: Clock,
) -> bool {
    let mut open = Opens::new();
    for index in 0..batch.charges().len() {
        let Some(charge) = batch.charges().get(index) else { continue };
        let Some(remote) = charge.remote() else { continue };
        let borrowing = match remote.lease {
            None if charge.is_open() => None,
            Some(units) if charge.is_open() => lease::supply(batch, index, units, clock).await,
            Some(units) if charge.is_charged() => lease::refill(charge, units, clock.now()),
            _ => continue,
        };
        if borrowing.is_some() || remote.lease.is_none() {
            open.push(Open { index, remote, borrowing });
        }
    }
    loop {
        if batch.charges().iter().any(is_refused) {
            batch.undo(clock.now());
            return false;
        }
        let Some(first) = open.first() else { return true };
        let store = Arc::clone(&first.remote.store);
        let (questions, rest) = open.into_iter().partition(|open| Arc::ptr_eq(&open.remote.store, &store));
        open = rest;
        ask_store(batch, decider, (&store, questions), clock).await;
    }
}

/// Asks one store, and completes the charges with its answers.
async fn ask_store<'t, 'l: 't, C: Checked<'l>, D: Decider>(
    batch: &mut Batch<'t, C>,
    decider: &D,
    (store, open): (&Arc<Store>, Opens<'t>),
    clock: Clock,
) {
    let queried_at = clock.now();
    let questions: SmallVec<[RemoteCharge<'_>; 2]> = open
        .iter()
        .filter_map(|open| Some(question(batch.charges().get(open.index)?, open.borrowing.as_ref())))
        .collect();
    let answers = decider.decide(store, &questions).await;
    let now = clock.now();
    let mut unanswered = SmallVec::<[(usize, Unavailable); 2]>::new();
    for (Open { index, borrowing, .. }, answer) in open.into_iter().zip(answers.outcomes) {
        match (answer, borrowing) {
            (Ok(outcome), None) => batch.hear(index, outcome, queried_at, now),
            (Ok(outcome), Some(borrowing)) => batch.hear_lease(index, outcome, borrowing, queried_at, now),
            // It has its units already.
            (Err(_), Some(Borrowing { cost: 0, .. })) => {}
            (Err(why), _) => unanswered.push((index, why)),
        }
    }
    for (index, why) in unanswered {
        if !batch.charges().iter().any(is_refused) {
            batch.fall_back(index, why, now);
        }
    }
}

/// What a store is asked about `charge`.
fn question<'t, 'l: 't, C: Checked<'l>>(charge: &Charge<'t, C>, borrowing: Option<&Borrowing>) -> RemoteCharge<'t> {
    let (limit, state) = (charge.check.limit(), charge.check.state());
    let handling = if charge.enforced { Handling::Enforce } else { unenforced(limit) };
    let units = borrowing.map_or(Units::exactly(charge.cost), |borrowing| Units {
        cost: borrowing.cost,
        want: borrowing.call.want,
        divisor: 1,
    });
    RemoteCharge { limit: &state.name, key: charge.key, rule: charge.rule, units, handling }
}

/// What follows from a denial by a limit that does not deny the request.
fn unenforced(limit: &Limit) -> Handling {
    match limit.on_limit {
        OnLimit::Delay(rule) if limit.mode == Mode::Enforce => Handling::Delay { max_debt: rule.slow_down.max_debt() },
        _ => Handling::Shadow,
    }
}
