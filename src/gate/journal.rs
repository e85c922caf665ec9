//! Tells what is charged from some instant on, to whoever has been given the state of that instant.
//!
//! It is for a process that gives its state away and still has requests in hand. Not told is what comes back: charges
//! that are given back whole, and requests in flight. So who is told may count too much, and never too little.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use super::{Gate, LimitState, Live};
use crate::limit::{Algorithm, Key};

/// A charge as another gate is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The limit's name.
    pub limit: Box<str>,
    /// Whose budget.
    pub key: Key,
    /// The plan by whose numbers the limit goes, if there is one.
    pub plan: Option<Box<str>>,
    /// Units charged, or, below zero, given back by a settlement.
    pub units: i64,
}

/// Charges that may wait to be told; beyond them they are lost, and counted. A process that drains makes few.
const WAITING_MAX: usize = 1 << 16;

/// Where charges are told; shared by all limits.
#[derive(Debug, Default)]
pub(super) struct Journal {
    is_on: AtomicBool,
    to: Mutex<Option<SyncSender<Told>>>,
    lost: AtomicU64,
}

impl Journal {
    /// Whether anything is told. A charge that a packed state does not hold finds this on: both were under the lock of
    /// its key, and this was set before the state was packed.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn set(&self, to: Option<SyncSender<Told>>) {
        let is_on = to.is_some();
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.is_on.store(is_on, Ordering::Release);
    }

    fn tell(&self, told: Told) {
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if to.as_ref().is_some_and(|to| to.try_send(told).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A cost as it is told.
pub(super) fn units(cost: u64) -> i64 {
    i64::try_from(cost).unwrap_or(i64::MAX)
}

impl LimitState {
    /// Tells of a charge under `rule`, if anybody is told.
    #[inline]
    pub(super) fn tell(&self, key: Key, rule: &Algorithm, units: i64) {
        if self.journal.is_on() {
            self.tell_of(key, rule, units);
        }
    }

    #[cold]
    fn tell_of(&self, key: Key, rule: &Algorithm, units: i64) {
        if units == 0 || rule.is_released() {
            return;
        }
        let limit = self.rule.load();
        let plans = limit.as_ref().map_or(&[][..], |limit| &limit.allowed.plans);
        let plan = plans.iter().find(|(_, planned)| planned.as_ref() == Some(rule)).map(|(name, _)| name.clone());
        self.journal.tell(Told { limit: self.name.clone(), key, plan, units });
    }
}

impl Gate {
    /// Tells of all charges from now on.
    pub fn begin_telling(&self) -> Receiver<Told> {
        let (to, told) = sync_channel(WAITING_MAX);
        self.journal.set(Some(to));
        told
    }

    /// Tells of none any more, and says how many could not be told of.
    pub fn end_telling(&self) -> u64 {
        self.journal.set(None);
        self.journal.lost.swap(0, Ordering::Relaxed)
    }

    /// Charges what another gate charged, whether there is room or not: at most the limit's largest debt beyond it, or its
    /// capacity, whichever is more.
    /// A limit that is not there, or has none for this key, charges nothing.
    pub fn charge_told(&self, live: &Live, told: &Told) {
        let Some(applied) = live.policy.named(&told.limit) else { return };
        let state = &live.states[applied.index];
        let Some(rule) = applied.limit.allowed.rule(live.variant(&applied, told.key, told.plan.as_deref())) else {
            return;
        };
        if rule.is_released() {
            return;
        }
        // What was admitted is within the capacity; a settlement may go deeper.
        let settle = applied.limit.after.as_ref().and_then(|after| after.settle.as_ref());
        let max_debt = settle.map_or(0, |settle| settle.max_debt).max(rule.capacity());
        state.table.settle(told.key, rule, told.units, max_debt, self.clock.now());
    }
}
