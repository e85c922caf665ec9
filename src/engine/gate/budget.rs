//! All budgets of a request, as its answer lists them: an item for each rate of each limit.

use std::borrow::Cow;
use std::sync::Arc;

use super::check::Checked;
use super::standing::known_wait;
use super::state::LimitState;
use crate::engine::limit::tightness::Tightness;
use crate::engine::limit::{Algorithm, Key, Pace, Remaining};
use crate::engine::policy::{Mode, Retirement, Unit};
use crate::engine::store::Charge;

/// A budget that a request was charged to, or would have been.
#[derive(Clone, Debug)]
pub struct Budget<'l> {
    state: &'l LimitState,
    key: Key,
    rule: Algorithm,
    cost: u64,
    unit: Option<Unit>,
    retirement: Option<Arc<Retirement>>,
}

/// The budgets of one request.
pub type Budgets<'l> = Vec<Budget<'l>>;

/// One rate of a budget.
#[derive(Clone, Debug)]
pub struct BudgetItem<'l> {
    /// The name of the limit.
    pub limit: &'l str,
    /// The position of the rate in its limit, from 1; `None` if the limit has one rate.
    pub position: Option<usize>,
    /// Units that can be spent at once.
    pub capacity: u64,
    /// The sustained rate; `None` if units do not come back with time.
    pub pace: Option<Pace>,
    /// The units that remain.
    pub remaining: Remaining,
    /// What the units are, if that is known.
    pub unit: Option<Unit>,
}

impl<'l> Budget<'l> {
    /// The budget of a charge, if answers list the limit.
    pub(super) fn of<C: Checked<'l>>(charge: &Charge<'_, C>) -> Option<Self> {
        let is_listed = charge.check.limit().is_listed && charge.check.mode() == Mode::Enforce;
        is_listed.then(|| Self::new(charge))
    }

    /// The budget of a charge, whether answers list the limit or not.
    pub(super) fn new<C: Checked<'l>>(charge: &Charge<'_, C>) -> Self {
        let (key, rule, cost) = (charge.key, charge.rule.clone(), charge.cost);
        let limit = charge.check.limit();
        let (unit, retirement) = (limit.unit(), limit.retirement().cloned());
        Self { state: charge.check.state(), key, rule, cost, unit, retirement }
    }

    /// The name of the limit.
    pub fn limit(&self) -> &'l str {
        &self.state.name
    }

    /// What clients are told of a limit that ends at zero.
    pub fn retirement(&self) -> Option<&Retirement> {
        self.retirement.as_deref()
    }

    /// The rates as they are now, in the order of the configuration.
    pub fn items(&self) -> impl Iterator<Item = BudgetItem<'l>> {
        let Self { state, key, ref rule, cost, ref unit, .. } = *self;
        let now = state.clock.now();
        let by_rate = state.table.remaining(key, rule, cost, now);
        let rates = rule.rates();
        let is_one = rates.len() == 1;
        rates.iter().enumerate().filter_map(move |(index, rate)| {
            // A key that is not counted has one answer for all rates.
            let remaining = *by_rate.get(index).or(by_rate.first())?;
            let position = (!is_one).then_some(index + 1);
            let (capacity, pace) = (rate.capacity(), rate.pace(now));
            Some(BudgetItem { limit: &state.name, position, capacity, pace, remaining, unit: unit.clone() })
        })
    }
}

impl<'l> BudgetItem<'l> {
    /// The name in the IETF fields: that of the limit, with the position if there is one. Names of limits have no slash.
    pub fn policy(&self) -> Cow<'l, str> {
        match self.position {
            None => Cow::Borrowed(self.limit),
            Some(position) => Cow::Owned(format!("{}/{position}", self.limit)),
        }
    }

    /// Whether the rate is tighter than `other`; see [`Tightness`].
    pub fn is_tighter(&self, other: &Self) -> bool {
        let tightness = |item: &Self| Tightness {
            denied: known_wait(item.remaining.denied),
            remaining: item.remaining.units,
            capacity: item.capacity,
        };
        tightness(self).is_tighter(tightness(other))
    }
}
