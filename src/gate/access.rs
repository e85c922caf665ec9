//! Access lists and required plans, as far as they depend on the identity of a request.
//!
//! Lists of addresses and paths need no gate: see [`Access::on_arrival`].

use super::identify::{RequestIdentities, Unidentified};
use super::state::{Gate, Live};
use crate::policy::Facts;
use crate::policy::access::{Access, AccessRule, DenialReason};
use crate::time::Timestamp;

/// Why access control rejects a request.
#[derive(Clone, Copy, Debug)]
pub enum AccessError<'l> {
    /// A list denies the request, or its plan does not allow the path.
    Denied(DenialReason<'l>),
    /// The identity that has the plan is missing, or an identity of a list is wrong.
    Unidentified(Unidentified<'l>),
}

impl<'l> From<Unidentified<'l>> for AccessError<'l> {
    fn from(unidentified: Unidentified<'l>) -> Self {
        Self::Unidentified(unidentified)
    }
}

impl Gate {
    /// Whether the request's identity frees it from limits.
    ///
    /// A missing identity matches no entry, whatever its `on_missing` is: a list must not reject requests that it does
    /// not name.
    ///
    /// # Errors
    /// Why the request is rejected.
    pub fn enter<'l>(
        &self,
        live: &'l Live,
        access: &'l Access,
        facts: &Facts<'_>,
        now: Timestamp,
    ) -> Result<bool, AccessError<'l>> {
        enter_as(&mut RequestIdentities::new(self, live, facts, now), access)
    }
}

/// Whether these identities free a request from limits.
///
/// # Errors
/// Why the request is rejected.
pub(super) fn enter_as<'l>(
    request: &mut RequestIdentities<'_, 'l, '_>,
    access: &'l Access,
) -> Result<bool, AccessError<'l>> {
    let (live, facts) = (request.live, request.facts);
    let mut is_allowed = false;
    for index in access.identities() {
        let found = request.find(index)?;
        match found.and_then(|found| access.by_identity(index, &found.principal)) {
            Some(AccessRule::Deny) => {
                return Err(AccessError::Denied(DenialReason::Identity(&live.policy.identities[index].name)));
            }
            Some(AccessRule::Allow) => is_allowed = true,
            None => {}
        }
    }
    let required = access.required(facts.path);
    // A browser sends no credentials with a preflight (Fetch standard, section 4.8).
    if required.is_empty() || facts.is_free_preflight {
        return Ok(is_allowed);
    }
    let plan = request.plan()?;
    match required.into_iter().find(|one| !one.is_met_by(plan.as_deref())) {
        Some(unmet) => Err(AccessError::Denied(DenialReason::Plan(&unmet.plans))),
        None => Ok(is_allowed),
    }
}
