//! Gauges that show the state of limits, brought up to date in intervals and by scrapes.

use std::sync::PoisonError;

use super::adaptation;
use super::state::{Gate, LimitState};

impl Gate {
    /// Brings the gauges up to date.
    pub fn publish(&self) {
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for state in known.values() {
            state.publish();
            self.publish_rule(state);
        }
    }

    /// Brings the gauges of its rule up to date, which a limit has as long as a policy has it.
    pub(super) fn publish_rule(&self, state: &LimitState) {
        self.metrics.set_fleet_bound(&state.name, state.bound().map(|bound| bound.ratio));
        let newest = state.newest.load();
        let bound = newest.as_ref().and_then(|newest| adaptation::bound(&newest.allowed.usual));
        self.metrics.set_limit_bound(&state.name, bound.map(|bound| bound.units()));
        let adapted = newest.as_ref().and_then(|newest| newest.adapt.map(|_| newest.adapted));
        self.metrics.set_adapted_part(&state.name, adapted);
    }
}

impl LimitState {
    pub(super) fn publish(&self) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.keys.set(gauge(self.table.len()));
        self.metrics.banned_keys.set(gauge(self.bans.banned(self.clock.now())));
        self.metrics.overflow.inc_by(self.table.take_overflowed());
        if let Some(gauge) = self.remote.load().as_ref().and_then(|remote| remote.metrics.lease_units.as_ref()) {
            gauge.set(i64::try_from(self.table.all_unspent()).unwrap_or(i64::MAX));
        }
    }
}
