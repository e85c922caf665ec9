//! Where a client stands with one limit.

use super::LimitState;
use super::budget::{is_tighter, told};
use crate::limit::{Algorithm, Decision, Retry};
use crate::store::Charge;
use crate::time::Timestamp;

/// Where a client stands with one limit; of several rates, with the tightest.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'l> {
    /// The limit's name.
    pub limit: &'l str,
    /// Units that the rate allows at once.
    pub burst: u64,
    /// Whole units left.
    pub remaining: u64,
    /// Nanoseconds from `at` until the client has all of them, or [`Decision::UNKNOWN_NS`].
    pub reset_after_ns: u64,
    /// When this was true.
    pub at: Timestamp,
    /// How long another request like this one would have to wait; `None` if it would pass, or the wait is unknown.
    pub wait: Option<Retry>,
    /// Units that the request took.
    cost: u64,
    /// Nanoseconds that these take to come back.
    cost_ns: u64,
}

impl<'l> Standing<'l> {
    /// What `decision` about `charge` means, made at `at`.
    #[inline]
    pub(super) fn new(limit: &'l str, charge: &Charge<'_>, decision: &Decision, at: Timestamp) -> Self {
        let &Charge { rule, cost, .. } = charge;
        let &Decision { denied, remaining, reset_after_ns } = decision;
        let taken = if decision.is_admitted() { cost } else { 0 };
        let cost_ns = taken.saturating_mul(rule.interval_ns());
        let burst = rule.capacity();
        let mut standing =
            Self { limit, burst, remaining, reset_after_ns, at, wait: told(denied), cost: taken, cost_ns };
        if matches!(rule, Algorithm::Several(_)) || (denied.is_none() && remaining < cost.max(1)) {
            standing.look(charge);
        }
        standing
    }

    /// Finds the tightest rate, and the wait of the next request.
    #[cold]
    #[inline(never)]
    fn look(&mut self, charge: &Charge<'_>) {
        let lefts = charge.table.left(charge.key, charge.rule, charge.cost, self.at);
        let mut is_first = true;
        for (rate, left) in charge.rule.rates().iter().zip(lefts) {
            let (wait, burst) = (told(left.denied), rate.capacity());
            if is_first || is_tighter((wait, left.remaining, burst), (self.wait, self.remaining, self.burst)) {
                (self.wait, self.burst, self.remaining) = (wait, burst, left.remaining);
                self.reset_after_ns = left.reset_after_ns;
                self.cost_ns = self.cost.saturating_mul(rate.interval_ns());
            }
            is_first = false;
        }
    }

    /// Whether it is with this limit.
    pub(super) fn is_of(&self, state: &LimitState) -> bool {
        *self.limit == *state.name
    }

    /// The standing once the request's units have been given back.
    pub fn refunded(self) -> Self {
        Self {
            remaining: self.remaining.saturating_add(self.cost).min(self.burst),
            reset_after_ns: self.reset_after_ns.saturating_sub(self.cost_ns),
            wait: None,
            cost: 0,
            cost_ns: 0,
            ..self
        }
    }

    /// Whether it has the longer wait of two, or else the smaller part left.
    pub(super) fn is_tighter(&self, other: &Self) -> bool {
        let tightness = |standing: &Self| (standing.wait, standing.remaining, standing.burst);
        is_tighter(tightness(self), tightness(other))
    }

    /// The tighter of two.
    pub fn tighter(self, other: Self) -> Self {
        if other.is_tighter(&self) { other } else { self }
    }

    /// The tighter of those that exist.
    pub fn tightest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.tighter(other)),
            (one, other) => one.or(other),
        }
    }
}
