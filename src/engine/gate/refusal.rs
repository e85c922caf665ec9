//! A request that its limits refuse.

use smallvec::SmallVec;

use super::budget::{Budget, Budgets};
use super::check::Checked;
use super::standing::{Standing, known_wait};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::limit::Retry;
use crate::engine::store::Charge;

/// A request that is refused.
#[derive(Debug)]
pub struct Refusal<'l> {
    /// The standing with the denying limit that has the longest wait; `None` if that limit is gone.
    pub standing: Option<Standing<'l>>,
    /// The names of the limits that deny the request.
    pub violated: SmallVec<[&'l str; 2]>,
    /// When the request could pass.
    pub retry: Retry,
    /// Why the request does not wait until then.
    pub cause: Cause,
    /// The budgets that the answer lists.
    pub budgets: Budgets<'l>,
}

/// Why a request beyond a limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The limit rejects requests.
    Limit,
    /// The wait would be longer than the limit allows.
    WaitTooLong,
    /// Too many requests wait already.
    QueueFull,
    /// The key is banned, because the limit refused it too often.
    Banned,
    /// The request waited, and Weir is shutting down.
    ShuttingDown,
    /// A ramp has lowered the limit to zero.
    Gone,
}

impl<'l> Refusal<'l> {
    /// Counts a refusal by the limits of `denials`. The retry is `expected_ns` if that is known, else the longest wait.
    pub(super) fn of<'b, C: Checked<'l> + 'b>(
        denials: impl Iterator<Item = &'b Charge<'b, C>>,
        now: Timestamp,
        cause: Cause,
        expected_ns: Option<u64>,
    ) -> Self {
        let mut longest: Option<(Retry, Standing<'l>)> = None;
        let (mut violated, mut budgets, mut is_gone) = (SmallVec::new(), Budgets::new(), false);
        for charge in denials {
            let (state, decision) = (charge.check.state(), charge.decision());
            if cause != Cause::ShuttingDown {
                state.count_refusal(charge.check.limit(), charge.key, now);
            }
            state.metrics.cells.decided(LimitDecision::Refused, charge.rule.percent(decision.remaining));
            violated.push(&*state.name);
            is_gone |= charge.check.limit().is_gone();
            budgets.extend(Budget::of(charge));
            let retry = decision.denied.unwrap_or(Retry::AfterNs(0));
            let standing = Standing::new(&state.name, charge, &decision, now);
            // A known wait goes before an unknown one: a release by another request.
            if longest.as_ref().is_none_or(|(known, _)| known_wait(Some(retry)) > known_wait(Some(*known))) {
                longest = Some((retry, standing));
            }
        }
        let (retry, standing) = longest.map_or((Retry::AfterNs(0), None), |(retry, standing)| (retry, Some(standing)));
        let expected = known_wait(expected_ns.map(Retry::AfterNs));
        let cause = if is_gone && cause != Cause::ShuttingDown { Cause::Gone } else { cause };
        Self { standing, violated, retry: expected.unwrap_or(retry), cause, budgets }
    }

    /// The refusal of a request that limits of an earlier stage have charged. `standing` and `budgets` are those of that
    /// stage. If one of its limits is exhausted for longer, the retry is the wait for that limit.
    pub fn charged_before(mut self, standing: Option<Standing<'l>>, mut budgets: Budgets<'l>) -> Self {
        let is_beyond = matches!(self.cause, Cause::Limit | Cause::WaitTooLong | Cause::QueueFull);
        if let Some(wait) = standing.and_then(|standing| standing.wait)
            && is_beyond
            && (known_wait(Some(self.retry)) < Some(wait))
        {
            (self.standing, self.retry) = (standing, wait);
        }
        budgets.append(&mut self.budgets);
        self.budgets = budgets;
        self
    }
}
