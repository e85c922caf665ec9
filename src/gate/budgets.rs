//! The budgets of a request, found apart from its decision.

use super::admit::Requester;
use super::budget::{Budget, Budgets};
use super::check::{Check, Checks, is_limited};
use super::state::{Gate, Live};
use crate::policy::{Facts, Mode, Stage};
use crate::time::Timestamp;

impl Gate {
    /// The budgets of all enforced limits of `stage` that apply to a request, whether answers list them or not. None if
    /// the request has no key.
    pub fn budgets<'l>(&self, live: &'l Live, stage: Stage, facts: &Facts<'_>, now: Timestamp) -> Budgets<'l> {
        let mut checks = Checks::default();
        live.find(stage, facts, &mut checks);
        let needs_identity = stage == Stage::Identified && live.needs_identity;
        let identified = needs_identity.then(|| self.identify(live, facts, checks.charges(), now)).transpose();
        let Ok(identified) = identified else { return Budgets::new() };
        let (identities, plan) = identified.unwrap_or_default();
        let requester = Requester { facts, identities: &identities, plan: plan.as_deref() };
        if self.compute_keys(live, requester, checks.charges_mut(), now).is_err() {
            return Budgets::new();
        }
        let is_shown = |check: &&Check<'l>| check.check.applied.limit.mode == Mode::Enforce && is_limited(check);
        checks.charges().iter().filter(is_shown).map(Budget::new).collect()
    }
}
