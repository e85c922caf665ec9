//! The limits, keys and budgets of a request, found apart from its decision.

use super::admit::Requester;
use super::budget::{Budget, Budgets};
use super::check::{Check, Checked as _, Checks, is_limited};
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::policy::{Facts, Mode, Stage};

impl Gate {
    /// The budgets of all enforced limits of `stage` that apply to a request, whether answers list them or not. None if
    /// the request has no key.
    pub fn budgets<'l>(&self, live: &'l Live, stage: Stage, facts: &Facts<'_>, now: Timestamp) -> Budgets<'l> {
        let Some(checks) = self.keyed_checks(live, stage, facts, now) else { return Budgets::new() };
        let is_shown = |check: &&Check<'l>| check.check.mode() == Mode::Enforce && is_limited(check);
        checks.charges().iter().filter(is_shown).map(Budget::new).collect()
    }

    /// The limits of `stage` that apply to a request, with its keys. `None` if the request has no key.
    pub(super) fn keyed_checks<'l>(
        &self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        now: Timestamp,
    ) -> Option<Checks<'l>> {
        let mut checks = Checks::default();
        live.find(stage, facts, &mut checks);
        let (identities, plan) = self.identify((live, stage), facts, checks.charges(), now).ok()?;
        let requester = Requester { facts, identities: &identities, plan: plan.as_deref() };
        self.compute_keys(live, requester, checks.charges_mut(), now).ok()?;
        Some(checks)
    }
}
