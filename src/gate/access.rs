//! Who may ask at all, and whom no limit concerns, once it is known who asks.
//!
//! What address and path say needs no gate: see [`Access::on_arrival`].

use super::identify::{Asked, Unidentified};
use super::{Gate, Live};
use crate::policy::Facts;
use crate::policy::access::{Access, Ground, Rule};
use crate::time::Timestamp;

/// A request that is let through by no limit's fault.
#[derive(Clone, Copy, Debug)]
pub enum Shut<'l> {
    /// It is denied.
    Denied(Ground<'l>),
    /// It lacks the identity that its plan would come with, or one that matters is wrong.
    Unidentified(Unidentified<'l>),
}

impl<'l> From<Unidentified<'l>> for Shut<'l> {
    fn from(unidentified: Unidentified<'l>) -> Self {
        Self::Unidentified(unidentified)
    }
}

impl Gate {
    /// Whether a request is freed from limits by who it is from, or why it is shut out.
    ///
    /// An identity that the request lacks matches no entry, whatever its `on_missing` says: that it is named in a
    /// list should not keep others out.
    pub fn enter<'l>(
        &self,
        live: &'l Live,
        access: &'l Access,
        facts: &Facts<'_>,
        now: Timestamp,
    ) -> Result<bool, Shut<'l>> {
        let mut asked = Asked::new(self, live, facts, now);
        let mut is_allowed = false;
        for index in access.identities() {
            let found = asked.find(index)?;
            match found.and_then(|found| access.by_identity(index, &found.who)) {
                Some(Rule::Deny) => return Err(Shut::Denied(Ground::Identity(&live.policy.identities[index].name))),
                Some(Rule::Allow) => is_allowed = true,
                None => {}
            }
        }
        let required = access.required(facts.path);
        // A browser sends no credentials with a preflight (Fetch standard, section 4.8).
        if required.is_empty() || facts.is_free_preflight {
            return Ok(is_allowed);
        }
        let plan = asked.plan()?;
        match required.into_iter().find(|one| !one.is_met_by(plan.as_deref())) {
            Some(unmet) => Err(Shut::Denied(Ground::Plan(&unmet.plans))),
            None => Ok(is_allowed),
        }
    }
}
