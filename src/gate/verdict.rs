//! What the gate says.

use std::sync::Arc;

use smallvec::SmallVec;

use super::LimitState;
use super::case::{Cases, Took};
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
#[derive(Debug, Default)]
pub struct Pass<'l> {
    /// The tightest limit, if any applies.
    pub standing: Option<Standing<'l>>,
    /// What was charged for it; given back on drop.
    pub charged: Charged<'l>,
    /// The limit that made it wait, and for how many nanoseconds.
    pub held: Option<(&'l str, u64)>,
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
    /// The limits that were decided. Of those that are charged to buckets, to stay, this is all that is known: by far
    /// the most.
    pub(super) cases: Cases<'l>,
    /// When.
    pub(super) at: Timestamp,
    /// Boxed, because few have any.
    pub(super) others: Option<Box<Others<'l>>>,
    kept: bool,
}

pub(super) type Others<'l> = SmallVec<[Taken<'l>; 2]>;

/// What one limit charged, if more has to be known of that.
#[derive(Debug)]
pub(super) struct Taken<'l> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) key: Key,
    pub(super) receipt: Receipt,
    /// How it is settled, if it does not simply stay.
    pub(super) terms: Option<Box<Terms>>,
}

impl<'l> Charged<'l> {
    pub(super) fn new(others: Others<'l>) -> Self {
        let others = (!others.is_empty()).then(|| Box::new(others));
        Self { cases: Cases::new(), at: Timestamp::ZERO, others, kept: false }
    }

    /// Whether bytes of the request may have reached the upstream, so that what was charged stays charged.
    pub fn keep(&mut self, kept: bool) {
        self.kept = kept;
    }

    /// Whether it stays charged.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Gives everything back at `now`, as if it had not been charged.
    #[cold]
    pub(super) fn undo(&mut self, now: Timestamp) {
        self.give_back(|_| now, |_, _| ());
    }

    /// Gives everything back at the time that `now` says, and tells of each.
    fn give_back(&mut self, now: impl Fn(&LimitState) -> Timestamp, given_back: impl Fn(&LimitState, Key)) {
        let at = self.at;
        for case in self.cases.iter_mut().filter(|case| case.taken == Took::Plain) {
            let receipt = Receipt::of_known(case.rule, case.cost, case.reset_after_ns, case.given_back, at);
            case.taken = Took::Nothing;
            case.state.table.refund(case.key, &receipt, now(case.state));
            given_back(case.state, case.key);
        }
        for Taken { state, key, receipt, terms } in self.others.take().into_iter().flat_map(|others| *others) {
            state.table.refund(key, &receipt, now(state));
            if let Some(terms) = terms {
                terms.undo(state, key);
            }
            given_back(state, key);
        }
    }

    /// What of it is settled by the answer or at its end, to be kept until then. What is not kept has no bill.
    #[inline]
    pub fn bill(&mut self) -> Option<Bill> {
        if !self.kept {
            return None;
        }
        self.others.as_ref()?.iter().find(|taken| taken.terms.is_some())?;
        let taken = self.others.take()?.into_iter();
        let item = |Taken { state, key, receipt, terms }: Taken<'l>| {
            terms.map(|terms| Item { state: Arc::clone(state), key, receipt, terms: *terms })
        };
        Bill::of(taken.filter_map(item).collect())
    }
}

impl Charged<'_> {
    #[cold]
    fn give_back_late(&mut self) {
        self.give_back(|state| state.clock.now(), |state, key| state.line.wake_front(key));
    }
}

impl Drop for Charged<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.kept {
            drop(self.bill());
        } else if !(self.cases.is_empty() && self.others.is_none()) {
            self.give_back_late();
        }
    }
}
