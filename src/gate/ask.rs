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
use super::pass::Pass;
use super::remote::RemoteLimit;
use super::state::{Gate, Live};
use crate::policy::{Limit, Mode, OnLimit, Stage};
use crate::store::redis::{Answers, Handling, OnFailure, RemoteCharge, Store, Unavailable, Units};
use crate::store::{Batch, Charge};
use crate::time::{Clock, Timestamp};

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

/// Remote limits, by the indices of their charges.
type Remotes = SmallVec<[(usize, Arc<RemoteLimit>); 2]>;

/// Asks the stores about the remote charges of `batch`, whose local charges are made. Returns whether every enforced
/// charge is admitted. If not, nothing is charged.
pub(super) async fn ask<'l, C: Checked<'l>, D: Decider>(batch: &mut Batch<'_, C>, decider: &D, clock: Clock) -> bool {
    let charges = batch.charges().iter().enumerate().filter(|(_, charge)| charge.is_remote());
    let mut open: Remotes =
        charges.filter_map(|(index, charge)| Some((index, charge.check.state().remote.load_full()?))).collect();
    while let Some((_, first)) = open.first() {
        let store = Arc::clone(&first.store);
        let (asked, rest): (Remotes, Remotes) =
            open.into_iter().partition(|(_, remote)| Arc::ptr_eq(&remote.store, &store));
        open = rest;
        let queried_at = clock.now();
        let questions: SmallVec<[RemoteCharge<'_>; 2]> =
            asked.iter().filter_map(|(index, _)| batch.charges().get(*index).map(question)).collect();
        let answers = decider.decide(&store, &questions).await;
        let now = clock.now();
        let mut unanswered = SmallVec::<[_; 2]>::new();
        for ((index, remote), answer) in asked.into_iter().zip(answers.outcomes) {
            match answer {
                Ok(outcome) => batch.hear(index, outcome, &store, queried_at, now),
                Err(why) => unanswered.push((index, remote, why)),
            }
        }
        for (index, remote, why) in unanswered {
            if !batch.charges().iter().any(is_refused) {
                fall_back(batch, (index, &remote), why, now);
            }
        }
        if batch.charges().iter().any(is_refused) {
            batch.undo(now);
            return false;
        }
    }
    true
}

/// Decides the charge at `index` without its store.
fn fall_back<'l, C: Checked<'l>>(
    batch: &mut Batch<'_, C>,
    (index, remote): (usize, &RemoteLimit),
    why: Unavailable,
    now: Timestamp,
) {
    let Some(charge) = batch.charges().get(index) else { return };
    let state = charge.check.state();
    remote.metrics.fallback.inc();
    let mut fallback = remote.fallback(&state.name);
    if why == Unavailable::Cold {
        // The store has lost its keys, and asks all replicas for them.
        fallback.by = OnFailure::Split;
    }
    batch.fall_back(index, fallback, now);
}

/// What a store is asked about `charge`.
fn question<'t, 'l: 't, C: Checked<'l>>(charge: &Charge<'t, C>) -> RemoteCharge<'t> {
    let (limit, state) = (charge.check.limit(), charge.check.state());
    let handling = if charge.enforced { Handling::Enforce } else { unenforced(limit) };
    RemoteCharge {
        limit: &state.name,
        key: charge.key,
        rule: charge.rule,
        units: Units::exactly(charge.cost),
        handling,
    }
}

/// What follows from a denial by a limit that does not deny the request.
fn unenforced(limit: &Limit) -> Handling {
    match limit.on_limit {
        OnLimit::Delay(rule) if limit.mode == Mode::Enforce => Handling::Delay { max_debt: rule.slow_down.max_debt() },
        _ => Handling::Shadow,
    }
}
