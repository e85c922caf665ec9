//! A client's standing with one limit: what remains, and how long the next request would wait.

use crate::base::time::Timestamp;
use crate::engine::limit::tightness::Tightness;
use crate::engine::limit::{Algorithm, Decision, Retry};
use crate::engine::store::Charge;

/// A client's standing with one limit; if the limit has several rates, with the tightest rate.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'l> {
    /// The limit's name.
    pub limit: &'l str,
    /// Units that the rate allows at once.
    pub burst: u64,
    /// Whole units that remain.
    pub remaining: u64,
    /// Nanoseconds from `at` until the client has all units, or [`Decision::UNKNOWN_NS`].
    pub reset_after_ns: u64,
    /// The instant of the decision.
    pub at: Timestamp,
    /// The wait of another request of the same cost; `None` if it would pass, or the wait is unknown.
    pub wait: Option<Retry>,
    /// Units that the request took.
    cost: u64,
    /// Nanoseconds until these units are back.
    cost_ns: u64,
}

impl<'l> Standing<'l> {
    /// A standing without a charge, whose units are back at once.
    #[cfg(test)]
    pub(crate) fn of(limit: &'l str, burst: u64, remaining: u64) -> Self {
        let at = Timestamp::from_ns(0);
        Self { limit, burst, remaining, reset_after_ns: 0, at, wait: None, cost: 0, cost_ns: 0 }
    }

    /// The standing after `decision` about `charge`, which was made at `at`.
    #[inline]
    pub(super) fn new<C>(limit: &'l str, charge: &Charge<'_, C>, decision: &Decision, at: Timestamp) -> Self {
        let (rule, cost) = (charge.rule, charge.cost);
        let &Decision { denied, remaining, reset_after_ns } = decision;
        let charged = if decision.is_admitted() { cost } else { 0 };
        let (burst, interval_ns) = rule.capacity_and_interval_ns();
        let cost_ns = charged.saturating_mul(interval_ns);
        let mut standing =
            Self { limit, burst, remaining, reset_after_ns, at, wait: known_wait(denied), cost: charged, cost_ns };
        if matches!(rule, Algorithm::Several(_)) || (denied.is_none() && remaining < cost.max(1)) {
            standing.look(charge);
        }
        standing
    }

    /// Finds the tightest rate, and the wait of the next request.
    #[cold]
    #[inline(never)]
    fn look<C>(&mut self, charge: &Charge<'_, C>) {
        let by_rate = charge.table().remaining(charge.key, charge.rule, charge.cost, self.at);
        for (index, (rate, found)) in charge.rule.rates().iter().zip(by_rate).enumerate() {
            let (denied, capacity) = (known_wait(found.denied), rate.capacity());
            let tightness = Tightness { denied, remaining: found.units, capacity };
            if index == 0 || tightness.is_tighter(self.tightness()) {
                (self.wait, self.burst, self.remaining) = (denied, capacity, found.units);
                self.reset_after_ns = found.reset_after_ns;
                self.cost_ns = self.cost.saturating_mul(rate.interval_ns());
            }
        }
    }

    /// The standing after the request's units have been given back.
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

    /// The standing with the name of the limit from another place.
    pub(super) fn of_limit(self, limit: &str) -> Standing<'_> {
        let Self { burst, remaining, reset_after_ns, at, wait, cost, cost_ns, .. } = self;
        Standing { limit, burst, remaining, reset_after_ns, at, wait, cost, cost_ns }
    }

    /// Whether the limit is tighter than that of `other`; see [`Tightness`].
    pub(super) fn is_tighter(&self, other: &Self) -> bool {
        self.tightness().is_tighter(other.tightness())
    }

    /// How near the limit is to denying the next request.
    pub(super) fn tightness(&self) -> Tightness {
        Tightness { denied: self.wait, remaining: self.remaining, capacity: self.burst }
    }

    /// The tighter of two; `self` if they are equal.
    pub fn tighter(self, other: Self) -> Self {
        if other.is_tighter(&self) { other } else { self }
    }

    /// The tighter of two standings that may be missing.
    pub fn tightest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.tighter(other)),
            (one, other) => one.or(other),
        }
    }
}

/// The wait, if its length is known. A wait that ends when another request does has no known length.
pub(super) fn known_wait(denied: Option<Retry>) -> Option<Retry> {
    denied.filter(|retry| *retry != Retry::ON_RELEASE)
}
