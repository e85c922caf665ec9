//! What the gate says.

use std::sync::Arc;

use smallvec::SmallVec;

use super::budget::{Budgets, listed, told};
use super::case::{Cases, Took};
use super::settle::{Bill, Item, Terms};
use super::{LimitState, Standing};
use crate::limit::{Key, Retry};
use crate::store::Receipt;
use crate::time::Timestamp;

/// A request may be forwarded.
#[derive(Debug, Default)]
pub struct Pass<'l> {
    /// The tightest limit, if any applies.
    pub standing: Option<Standing<'l>>,
    /// What was charged for it; given back on drop.
    pub charged: Charged<'l>,
    /// The limit that made it wait, and for how many nanoseconds.
    pub held: Option<(&'l str, u64)>,
    /// What its answer lists, unless that is found in `charged`.
    pub(super) budgets: Budgets<'l>,
}

impl<'l> Pass<'l> {
    /// The budgets that its answer lists.
    pub fn budgets(&self) -> Budgets<'l> {
        if self.budgets.is_empty() { listed(&self.charged.cases) } else { self.budgets.clone() }
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
    /// What its answer lists.
    pub budgets: Budgets<'l>,
}

impl<'l> Refusal<'l> {
    /// The refusal of a request that limits of an earlier stage have charged. One of those that is exhausted for longer
    /// says when to come back.
    pub fn charged_before(mut self, standing: Option<Standing<'l>>, mut budgets: Budgets<'l>) -> Self {
        let is_beyond = matches!(self.cause, Cause::Limit | Cause::WaitTooLong | Cause::QueueFull);
        if let Some(wait) = standing.and_then(|standing| standing.wait)
            && is_beyond
            && (told(Some(self.retry)) < Some(wait))
        {
            (self.standing, self.retry) = (standing, wait);
        }
        budgets.append(&mut self.budgets);
        self.budgets = budgets;
        self
    }
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
            if let Some(mut terms) = terms {
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
        let item = |Taken { state, key, receipt, terms }: Taken<'l>| {
            terms.map(|terms| Item::new(Arc::clone(state), key, receipt, *terms))
        };
        Bill::of(self.others.take()?.into_iter().filter_map(item).collect())
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
