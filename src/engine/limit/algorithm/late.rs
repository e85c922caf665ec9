//! Late charges of a state under any rule.

use super::{Algorithm, AnyState, Several};
use crate::base::time::Timestamp;
use crate::engine::limit::late::units::{LateByRate, LateState as _, LateUnits};
use crate::engine::limit::state::State as _;

impl AnyState {
    /// Charges `late` units of each rate. At most `max_debt` units are charged beyond the limit.
    pub fn settle_late(&mut self, rule: &Algorithm, late: &LateByRate, max_debt: u64, now: Timestamp) {
        self.adopt(rule, now);
        let states = match self {
            Self::Several(Several { states }) => &mut **states,
            one => std::slice::from_mut(one),
        };
        for ((state, rule), late) in states.iter_mut().zip(rule.rates()).zip(late) {
            state.settle_late_rate(rule, late, max_debt, now);
        }
    }

    fn settle_late_rate(&mut self, rule: &Algorithm, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        match (self, rule) {
            (Self::TokenBucket(state), Algorithm::TokenBucket(rule)) => state.settle_late(rule, late, max_debt, now),
            (Self::LeakyBucket(state), Algorithm::LeakyBucket(rule)) => state.settle_late(rule, late, max_debt, now),
            (Self::FixedWindow(state), Algorithm::FixedWindow(rule)) => state.settle_late(rule, late, max_debt, now),
            (Self::SlidingLog(state), Algorithm::SlidingLog(rule)) => state.settle_late(rule, late, max_debt, now),
            (Self::SlidingWindow(state), Algorithm::SlidingWindow(rule)) => {
                state.settle_late(rule, late, max_debt, now);
            }
            (Self::SubWindow(state), Algorithm::SubWindow(rule)) => state.settle_late(rule, late, max_debt, now),
            (state, rule) => late.iter().for_each(|late| _ = state.settle(rule, late.units, max_debt, now)),
        }
    }
}
