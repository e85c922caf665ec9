//! What the gate says.

use std::sync::Arc;

use smallvec::SmallVec;

use super::LimitState;
use super::settle::{Bill, Item, Terms};
use crate::limit::{Decision, Key, Retry};
use crate::store::{Charge, Receipt};
use crate::time::Timestamp;

/// Where a client stands with one limit.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'l> {
    /// The limit's name.
    pub limit: &'l str,
    /// Units that it allows at once.
    pub burst: u64,
    /// Nanoseconds of the period its rate was written with; 0 if it has none.
    pub period_ns: u64,
    /// Whole units left.
    pub remaining: u64,
    /// Nanoseconds from `at` until the client has all of them, or [`Decision::UNKNOWN_NS`].
    pub reset_after_ns: u64,
    /// When this was true.
    pub at: Timestamp,
    /// Units that the request took.
    cost: u64,
    /// Nanoseconds that these take to come back.
    cost_ns: u64,
}

impl<'l> Standing<'l> {
    #[inline]
    pub(super) fn new(limit: &'l str, charge: &Charge<'_>, decision: &Decision, at: Timestamp) -> Self {
        let &Charge { rule, cost, .. } = charge;
        let cost = if decision.is_admitted() { cost } else { 0 };
        let &Decision { remaining, reset_after_ns, .. } = decision;
        let (cost_ns, period_ns) = (cost.saturating_mul(rule.interval_ns()), rule.period_ns().unwrap_or(0));
        Self { limit, burst: rule.capacity(), period_ns, remaining, reset_after_ns, at, cost, cost_ns }
    }

    /// Whether it is with this limit.
    pub(super) fn is_of(&self, state: &LimitState) -> bool {
        *self.limit == *state.name
    }

    /// The same once the request's units have been given back.
    pub fn refunded(self) -> Self {
        Self {
            remaining: self.remaining.saturating_add(self.cost).min(self.burst),
            reset_after_ns: self.reset_after_ns.saturating_sub(self.cost_ns),
            cost: 0,
            cost_ns: 0,
            ..self
        }
    }

    /// The one of two with the smaller part left.
    pub fn tighter(self, other: Self) -> Self {
        let part = |a: &Self, b: &Self| u128::from(a.remaining) * u128::from(b.burst);
        if part(&other, &self) < part(&self, &other) { other } else { self }
    }

    /// The tighter of those that exist.
    pub fn tightest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.tighter(other)),
            (one, other) => one.or(other),
        }
    }
}

/// A request may be forwarded.
#[derive(Debug)]
pub struct Pass<'l> {
    /// The tightest limit, if any applies.
    pub standing: Option<Standing<'l>>,
    /// What was charged for it; given back on drop.
    pub charged: Charged<'l>,
    /// The limit that made it wait, and for how many nanoseconds.
    pub held: Option<(&'l str, u64)>,
}

impl Pass<'_> {
    /// Of a request that no limit applies to.
    pub(super) fn free() -> Self {
        Self { standing: None, charged: Charged::default(), held: None }
    }
}

/// A request is refused.
#[derive(Debug)]
pub struct Refusal<'l> {
    /// Of the limits that deny it, the one with the longest wait; none if it is gone by now.
    pub standing: Option<Standing<'l>>,
    /// The names of the limits that deny it.
    pub violated: SmallVec<[&'l str; 2]>,
    /// When it could pass.
    pub retry: Retry,
    /// Why it does not wait for that.
    pub cause: Cause,
}

/// Why a request beyond a limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The limit refuses.
    Limit,
    /// It would wait, but longer than it may.
    WaitTooLong,
    /// It would wait, but too many do already.
    QueueFull,
    /// The limit refused its key too often, and refuses it everything for a time.
    Banned,
    /// It waited, and Weir is shutting down.
    ShuttingDown,
}

/// What was charged for a request, given back on drop unless it is to be kept.
#[derive(Debug, Default)]
pub struct Charged<'l> {
    /// Apart from the others, so that the usual request with one limit needs no memory for it.
    first: Option<Taken<'l>>,
    rest: Vec<Taken<'l>>,
    kept: bool,
}

/// What one limit charged.
#[derive(Debug)]
pub(super) struct Taken<'l> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) key: Key,
    pub(super) receipt: Receipt,
    /// How it is settled, if it does not simply stay.
    pub(super) terms: Option<Box<Terms>>,
}

impl<'l> Charged<'l> {
    #[inline]
    pub(super) fn new(first: Option<Taken<'l>>, rest: Vec<Taken<'l>>) -> Self {
        Self { first, rest, kept: false }
    }

    /// Whether bytes of the request may have reached the upstream, so that what was charged stays charged.
    pub fn keep(&mut self, kept: bool) {
        self.kept = kept;
    }

    /// Whether it stays charged.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Adds another charge.
    pub(super) fn push(&mut self, taken: Taken<'l>) {
        self.rest.push(taken);
    }

    #[cold]
    fn give_back(&mut self) {
        for Taken { state, key, receipt, terms } in self.first.take().into_iter().chain(self.rest.drain(..)) {
            state.table.refund(key, &receipt, state.clock.now());
            if let Some(terms) = terms {
                terms.undo(state, key);
            }
            state.line.wake_front(key);
        }
    }

    /// What of it is settled by the answer or at its end, to be kept until then. What is not kept has no bill.
    #[inline]
    pub fn bill(&mut self) -> Option<Bill> {
        let is_simple = |taken: &Taken<'_>| taken.terms.is_none();
        if !self.kept || (self.first.iter().all(is_simple) && self.rest.iter().all(is_simple)) {
            return None;
        }
        let taken = self.first.take().into_iter().chain(self.rest.drain(..));
        let item = |Taken { state, key, receipt, terms }: Taken<'l>| {
            terms.map(|terms| Item { state: Arc::clone(state), key, receipt, terms: *terms })
        };
        Bill::of(taken.filter_map(item).collect())
    }
}

impl Drop for Charged<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.kept {
            drop(self.bill());
        } else if self.first.is_some() || !self.rest.is_empty() {
            self.give_back();
        }
    }
}
