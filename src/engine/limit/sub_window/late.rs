//! Late charges: units count in the sub-window of their charge.

use super::{Rule, State};
use crate::base::time::Timestamp;
use crate::engine::limit::late::units::{LateState, LateUnits};
use crate::engine::limit::rule::Rule as _;
use crate::engine::limit::state::{State as _, settled};

impl LateState for State {
    fn settle_late(&mut self, rule: &Rule, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.adopt(rule, now);
        for LateUnits { units, age_ns } in late {
            if *units < 0 {
                self.settle(rule, *units, max_debt, now);
                continue;
            }
            let (at, used) = (now.saturating_sub_ns(*age_ns), self.used(self.number(rule.sub_ns, now)));
            if rule.counts(at, now) {
                let number = at.as_ns() / rule.sub_ns;
                self.charge_earlier(rule, settled(used, *units, rule.count, max_debt) - used, number);
            }
        }
    }
}

impl State {
    /// Charges a sub-window that may be before the newest one.
    fn charge_earlier(&mut self, rule: &Rule, units: u64, number: u64) {
        if self.sum == 0 || number >= self.newest {
            self.charge(rule, units, number);
        } else if self.newest - number < self.n() {
            let slot = self.slot(number);
            self.ring[slot] = self.ring[slot].saturating_add(units);
            self.sum = self.sum.saturating_add(units);
        }
    }
}
