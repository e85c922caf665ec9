//! Settlements, and the account that a charge was made to. A charge may be settled long after it was made: then the rule of
//! the newest policy is in force for its key.

use std::sync::Arc;

use super::check::Checked;
use super::delta;
use super::named_charge::UNITS_MAX;
use super::standing::Standing;
use super::state::LimitState;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::policy::Variant;
use crate::engine::store::{Charge, Receipt};

/// The largest debt of a key, whatever a service reports: giving [`UNITS_MAX`] back ends it.
const DEBT_MAX: u64 = UNITS_MAX / 2;

impl LimitState {
    /// Charges `extra` units that no limit decides: at most `max_debt` beyond the limit, here and in the store. A negative
    /// number gives units back, and wakes a request that waits for them. Returns the units that are charged or, if negative,
    /// given back.
    pub(super) fn settle(&self, key: Key, rule: &Algorithm, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        let most = UNITS_MAX.cast_signed();
        let (extra, max_debt) = (extra.clamp(-most, most), max_debt.min(DEBT_MAX));
        let charged = self.table.settle(key, rule, extra, max_debt, now);
        self.report(key, rule, charged, now);
        self.refusal_log.charged(&self.name, key, charged, now);
        if let Some(remote) = &*self.remote.load() {
            self.table.tell(remote, key, rule, (extra, extra), max_debt, now);
            if extra < 0 {
                self.table.refunded(key, now);
            }
        }
        if extra < 0 {
            self.queues.wake_front(key);
        }
        charged
    }
}

/// The account of a charge.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) state: Arc<LimitState>,
    pub(super) key: Key,
    /// The rule of the charge.
    pub(super) rule: Algorithm,
    /// The instant of the charge.
    pub(super) at: Timestamp,
    origin: Origin,
}

/// The times in which a unit comes back, of the rates of `rule` whose units come back one by one.
fn intervals(rule: &Algorithm) -> impl Iterator<Item = u64> {
    rule.rates().iter().map(|rate| rate.interval_ns()).filter(|ns| *ns > 0)
}

/// What gave the key its rule.
#[derive(Clone, Debug)]
enum Origin {
    Usual,
    Plan(Box<str>),
    Override,
}

impl Account {
    /// The account of `charge`, which was made at `at`.
    pub(super) fn of<'l, C: Checked<'l>>(charge: &Charge<'_, C>, at: Timestamp) -> Self {
        let variant = charge.check.variant();
        let origin = match charge.check.limit().allowed.plan_of(variant) {
            Some(plan) => Origin::Plan(plan.into()),
            None if matches!(variant, Variant::Override(_)) => Origin::Override,
            None => Origin::Usual,
        };
        Self { state: Arc::clone(charge.check.state()), key: charge.key, rule: charge.rule.clone(), at, origin }
    }

    /// Calls `act` with the rule in force: that of the charge if the limit or its rule for the key is gone. `None` if the limit
    /// has another algorithm since the charge, under which it begins anew.
    pub(super) fn in_force<T>(&self, act: impl FnOnce(&Algorithm) -> T) -> Option<T> {
        let newest = self.state.newest.load();
        let rule = newest.as_ref().and_then(|newest| {
            let plan = if let Origin::Plan(plan) = &self.origin { Some(&**plan) } else { None };
            let variant = newest.variant(self.key, plan);
            // Without its override, the key may have a plan.
            let is_known = !matches!(self.origin, Origin::Override) || matches!(variant, Variant::Override(_));
            newest.allowed.rule(variant).filter(|_| is_known)
        });
        let rule = rule.unwrap_or(&self.rule);
        (rule.number() == self.rule.number()).then(|| act(rule))
    }

    /// The client's standing with the limit now, for requests of this cost.
    pub(super) fn standing(&self, cost: u64) -> Option<Standing<'_>> {
        let Self { ref state, key, .. } = *self;
        let (remote, now) = (state.remote.load(), state.clock.now());
        self.in_force(|rule| {
            let mut charge = Charge::new(&state.table, key, rule, 0, true, ());
            charge.set_remote(remote.as_ref());
            let decision = charge.peek_anywhere(now);
            charge.cost = cost;
            Standing::new(&state.name, &charge, &decision, now)
        })
    }

    /// Gives the charge back, and the `grown` units that its request was charged since.
    pub(super) fn give_back(&self, receipt: &Receipt, grown: u64) {
        if grown > 0 {
            return self.give_units_back(receipt, Receipt::WHOLE, grown);
        }
        let give_back = |rule: &Algorithm| _ = self.state.give_back(self.key, rule, receipt);
        self.in_force(give_back).unwrap_or_else(|| give_back(&self.rule));
    }

    /// Gives back the last `units` of the charge and of the `grown` units that its request was charged since, as far as they
    /// have not come back by themselves. Units of a window that has ended do not come back: the next has other units.
    pub(super) fn give_units_back(&self, receipt: &Receipt, units: u64, grown: u64) {
        let Self { state, key, at, .. } = self;
        let now = state.clock.now();
        if receipt.is_over(&self.rule, *at, now) {
            return;
        }
        let give_back = |rule: &Algorithm, is_same: bool| {
            let (mut part, mut rest) = receipt.part(units, grown);
            // A bucket in such a receipt gives nothing back at another rate.
            if is_same && matches!(receipt, Receipt::Any(_)) && !intervals(rule).eq(intervals(&self.rule)) {
                (part, rest) = (Receipt::None, if units < Receipt::WHOLE { units } else { grown });
            }
            let returned = state.give_back(*key, rule, &part);
            if state.listeners.has_successor() {
                state.report(*key, rule, -delta::units(returned), now);
            }
            // All units that time can have given back since the charge.
            let fastest_ns = intervals(rule).chain(intervals(&self.rule)).min();
            let left = rest.saturating_sub(fastest_ns.map_or(0, |ns| now.ns_since(*at).div_ceil(ns)));
            if is_same && left > 0 {
                state.settle(*key, rule, -delta::units(left), 0, now);
            }
        };
        self.in_force(|rule| give_back(rule, true)).unwrap_or_else(|| give_back(&self.rule, false));
    }

    /// Corrects a charge of `charged` units to `owed` units. At most `max_debt` units are charged beyond the limit. Returns the
    /// units that are charged or, if negative, given back.
    pub(super) fn correct(&self, (owed, charged): (u64, u64), max_debt: u64, now: Timestamp) -> i64 {
        let difference = i128::from(owed) - i128::from(charged);
        let extra = i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX });
        if extra == 0 {
            return 0;
        }
        let Self { state, key, .. } = self;
        self.in_force(|rule| state.settle(*key, rule, extra, max_debt, now)).unwrap_or(0)
    }
}
