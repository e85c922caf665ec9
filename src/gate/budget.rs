//! All budgets of a request, as its answer lists them: an item for each rate of each limit.

use std::borrow::Cow;

use super::LimitState;
use super::case::Case;
use crate::limit::{Algorithm, Key, Left, Pace, Retry};
use crate::policy::{Limit, Mode};
use crate::store::Charge;

/// One budget that a request was charged to, or would have been.
#[derive(Clone, Debug)]
pub struct Budget<'l> {
    state: &'l LimitState,
    key: Key,
    rule: Algorithm,
    cost: u64,
}

/// The budgets of one request.
pub type Budgets<'l> = Vec<Budget<'l>>;

/// One rate of a budget.
#[derive(Clone, Debug)]
pub struct BudgetItem<'l> {
    /// The name of its limit.
    pub limit: &'l str,
    /// Its place among the rates of its limit, from 1; `None` if there is no other.
    pub place: Option<usize>,
    /// Units at once.
    pub capacity: u64,
    /// How fast it may be spent; `None` if it is not a matter of time.
    pub pace: Option<Pace>,
    /// What is left.
    pub left: Left,
}

impl<'l> Budget<'l> {
    /// The budget of a charge, if answers list the limit.
    pub(super) fn of(state: &'l LimitState, limit: &Limit, charge: &Charge<'_>) -> Option<Self> {
        let &Charge { key, rule, cost, .. } = charge;
        let is_listed = limit.is_listed && limit.mode == Mode::Enforce;
        is_listed.then(|| Self { state, key, rule: rule.clone(), cost })
    }

    pub(super) fn of_case(case: &Case<'l>) -> Option<Self> {
        Self::of(case.state, case.applied.limit, &case.charge())
    }

    /// Its rates as they are now, in the order of the configuration.
    pub fn items(&self) -> impl Iterator<Item = BudgetItem<'l>> {
        let Self { state, key, ref rule, cost } = *self;
        let now = state.clock.now();
        let lefts = state.table.left(key, rule, cost, now);
        let rates = rule.rates();
        let is_one = rates.len() == 1;
        rates.iter().enumerate().filter_map(move |(index, rate)| {
            // A key that is not counted has one answer for all rates.
            let left = *lefts.get(index).or(lefts.first())?;
            let place = (!is_one).then_some(index + 1);
            Some(BudgetItem { limit: &state.name, place, capacity: rate.capacity(), pace: rate.pace(now), left })
        })
    }
}

impl<'l> BudgetItem<'l> {
    /// Its name in the IETF fields: that of its limit, with its place if it has one. No name of a limit has a slash.
    pub fn policy(&self) -> Cow<'l, str> {
        match self.place {
            None => Cow::Borrowed(self.limit),
            Some(place) => Cow::Owned(format!("{}/{place}", self.limit)),
        }
    }

    /// Whether it stops the client sooner than `other`, or for longer.
    pub fn is_tighter(&self, other: &Self) -> bool {
        let tightness = |item: &Self| (told(item.left.denied), item.left.remaining, item.capacity);
        is_tighter(tightness(self), tightness(other))
    }
}

/// A wait that a client can be told: not one that ends when another request does.
pub(super) fn told(denied: Option<Retry>) -> Option<Retry> {
    denied.filter(|retry| *retry != Retry::ON_RELEASE)
}

/// Whether the first of two limits is tighter. Each says why it would deny a request like this one, what is left, and of
/// how much. The longest wait goes before the smallest part left.
pub(super) fn is_tighter(one: (Option<Retry>, u64, u64), other: (Option<Retry>, u64, u64)) -> bool {
    let (denied, remaining, capacity) = one;
    let (other_denied, other_remaining, other_capacity) = other;
    // remaining / capacity, compared without dividing
    let part = u128::from(remaining) * u128::from(other_capacity);
    let other_part = u128::from(other_remaining) * u128::from(capacity);
    denied > other_denied || (denied == other_denied && part < other_part)
}

/// The budgets of `cases`, if answers list them.
pub(super) fn listed<'l>(cases: &[Case<'l>]) -> Budgets<'l> {
    cases.iter().filter_map(Budget::of_case).collect()
}
