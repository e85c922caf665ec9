//! Slowing down: a request beyond the limit passes later, by `step` for each unit over the limit, at most `max`.
//!
//! The request is charged as a debt. So the delay grows with further requests, and falls as the debt is paid. The debt is
//! at most that of the longest delay. Beyond it requests are not charged, and each passes after `max`.

use super::Decision;
use super::state::State;
use crate::base::time::Timestamp;

/// The delay of requests beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowDown {
    /// Nanoseconds for each unit over the limit.
    pub step_ns: u64,
    /// The longest delay in nanoseconds.
    pub max_ns: u64,
}

/// The result of a request under a limit that slows down.
#[derive(Clone, Debug)]
pub struct Slowed<R> {
    /// The delay in nanoseconds; 0 within the limit.
    pub delay_ns: u64,
    /// The decision about the key after the charge.
    pub decision: Decision,
    /// The units that are charged: fewer than the cost if the debt would be too large.
    pub charged: u64,
    /// The proof of the charge.
    pub receipt: R,
}

impl SlowDown {
    /// The delay in nanoseconds of a request that is `over` units over the limit.
    pub const fn delay_ns(&self, over: u64) -> u64 {
        let delay_ns = self.step_ns.saturating_mul(over);
        if delay_ns < self.max_ns { delay_ns } else { self.max_ns }
    }

    /// The debt in units from which the delay no longer grows.
    pub const fn max_debt(&self) -> u64 {
        if self.step_ns == 0 { 0 } else { self.max_ns.div_ceil(self.step_ns) }
    }

    /// Charges a request of `cost` units although the limit may deny it.
    ///
    /// A request whose cost exceeds the capacity is delayed like any other.
    pub fn admit<S: State>(&self, state: &mut S, rule: &S::Rule, cost: u64, now: Timestamp) -> Slowed<S::Receipt> {
        let decision = state.admit(rule, cost, now);
        if decision.is_admitted() {
            return Slowed { delay_ns: 0, decision, charged: cost, receipt: state.receipt(cost, now) };
        }
        let stands = |state: &S| (state.peek(rule, 0, now), state.over(rule, now));
        let (before, over_before) = stands(state);
        let charged = state.settle(rule, i64::try_from(cost).unwrap_or(i64::MAX), self.max_debt(), now);
        let (decision, over) = stands(state);
        // The bound on the debt may allow less than the cost. A fraction of a unit counts as none. Of several rates each
        // may have charged another number, and all give as many units back.
        let returnable = before.remaining.saturating_sub(decision.remaining) + over.saturating_sub(over_before);
        Slowed {
            delay_ns: self.delay_ns(over.max(1)),
            decision,
            charged: u64::try_from(charged).unwrap_or(0),
            receipt: state.receipt(returnable.min(cost), now),
        }
    }
}

#[cfg(test)]
mod tests;
