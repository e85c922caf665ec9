//! Slowing down: beyond the limit a request passes, but later: `step` for each unit over the limit, at most `max`.
//!
//! What passes is charged as a debt. So the delay grows while a client goes on, and falls as its debt is paid. No
//! more debt is taken on than the longest delay needs; beyond it requests pass uncounted, each after `max`.

use super::state::State;
use crate::time::Timestamp;

/// How much requests beyond a limit are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowDown {
    /// Nanoseconds for each unit over the limit.
    pub step_ns: u64,
    /// Nanoseconds at most.
    pub max_ns: u64,
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

    /// Charges a request of `cost` units in any case, and says how long to delay it; 0 within the limit.
    ///
    /// A request that the limit could never admit is over it as any other.
    pub fn admit<S: State>(&self, state: &mut S, rule: &S::Rule, cost: u64, now: Timestamp) -> u64 {
        if state.admit(rule, cost, now).is_admitted() {
            return 0;
        }
        state.settle(rule, i64::try_from(cost).unwrap_or(i64::MAX), self.max_debt(), now);
        self.delay_ns(state.over(rule, now).max(1))
    }
}

#[cfg(test)]
mod tests;
