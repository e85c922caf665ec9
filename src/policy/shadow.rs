//! Limits that can never refuse a request, because another one is stricter wherever they apply.

use super::route::covers;
use super::{Cost, Limit, Mode, OnLimit, Stage};
use crate::limit::OnFull;

impl Limit {
    /// Whether this limit admits no request that `other` refuses. `false` also if that is not known.
    pub fn shadows(&self, other: &Self) -> bool {
        let refuses_all_beyond = self.mode == Mode::Enforce
            && !matches!(self.on_limit, OnLimit::Delay(_))
            && self.on_full != OnFull::Allow
            && !self.allowed.is_special()
            && self.after.is_none();
        // A coarser key is charged for at least as much.
        let is_charged_as_much = self.key.iter().all(|part| other.key.contains(part))
            && match (&self.cost, &other.cost) {
                (Cost::Units(own), Cost::Units(other)) => own >= other,
                _ => false,
            };
        let sees_as_much = (self.stage == other.stage || self.stage == Stage::Arrival)
            && self.except.iter().all(|network| other.except.contains(network))
            && covers(&self.matches, &other.matches);
        let is_plain = other.mode == Mode::Enforce && !other.allowed.is_special() && other.after.is_none();
        refuses_all_beyond
            && is_plain
            && is_charged_as_much
            && sees_as_much
            && self.allowed.usual.is_within(&other.allowed.usual)
    }
}
