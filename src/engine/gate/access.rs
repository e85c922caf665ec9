//! Access lists and requirements, as far as they depend on the identity of a request.
//!
//! Authentication follows from no decision of a limit: the identities that limits need are verified here for requests
//! that these limits do not decide. Lists of addresses and paths need no gate: see [`Access::on_arrival`].

use smallvec::SmallVec;

use super::assigned_plans::assigned_plans;
use super::identify::{IdentityError, RequestIdentities, Unidentified, wrong};
use super::shed::Shed;
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::policy::access::{Access, AccessRule, DenialReason, Requirement};
use crate::engine::policy::{Facts, KeyPart, Limit, Stage};

/// Why access control rejects a request.
#[derive(Clone, Copy, Debug)]
pub enum AccessError<'l> {
    /// A list denies the request, or it has no required plan.
    Denied(DenialReason<'l>),
    /// A required identity is missing, or an identity is wrong.
    Unidentified(Unidentified<'l>),
}

/// Why a request does not enter the stage of identified requests.
#[derive(Clone, Copy, Debug)]
pub enum EntryError<'l> {
    /// Access control rejects it.
    Access(AccessError<'l>),
    /// It is shed.
    Shed(Shed),
}

impl<'l> From<AccessError<'l>> for EntryError<'l> {
    fn from(error: AccessError<'l>) -> Self {
        Self::Access(error)
    }
}

impl<'l> From<Unidentified<'l>> for AccessError<'l> {
    fn from(unidentified: Unidentified<'l>) -> Self {
        Self::Unidentified(unidentified)
    }
}

impl Gate {
    /// Whether the request is free from limits: it was free on arrival (`is_free`), or its identity frees it. `required`
    /// are the identities of which its route needs one.
    ///
    /// A missing identity matches no entry of a list, whatever its `on_missing` is: a list must not reject requests that
    /// it does not name.
    ///
    /// # Errors
    /// Why the request is rejected, or that it is shed.
    #[inline]
    pub fn enter<'l>(
        &self,
        live: &'l Live,
        required: &[usize],
        facts: &Facts<'_>,
        is_free: bool,
        now: Timestamp,
    ) -> Result<bool, EntryError<'l>> {
        if required.is_empty() && !live.policy.looks_beyond_limits(is_free) {
            return Ok(is_free);
        }
        let mut request = RequestIdentities::new(self, live, facts, now);
        let is_free = enter_as(&mut request, required, is_free)?;
        if live.policy.overload.is_some()
            && self.is_overloaded()
            && !facts.is_free_preflight // it names neither the method nor the plan of the request after it
            && let Some(shed) = self.draw_shed(request.priority(false))
        {
            // As for a free request: what limits would verify later.
            verify_guards(&mut request, true).map_err(AccessError::Unidentified)?;
            return Err(EntryError::Shed(shed));
        }
        Ok(is_free)
    }

    /// Tests a request that an earlier policy admitted by the access lists of `live`, and by all identities that `live`
    /// needs of it. `required` are those of which its route needs one.
    ///
    /// # Errors
    /// Why `live` rejects the request.
    pub fn check_admitted<'l>(
        &self,
        live: &'l Live,
        required: &[usize],
        facts: &Facts<'_>,
        now: Timestamp,
    ) -> Result<(), AccessError<'l>> {
        if let Some(access) = live.policy.access.as_deref() {
            access.on_arrival(facts.client_ip, facts.path).map_err(AccessError::Denied)?;
        }
        // As for a free request: the limits do not decide again, so their identities are verified here.
        enter_as(&mut RequestIdentities::new(self, live, facts, now), required, true).map(drop)
    }
}

/// [`Gate::enter`] for a request with these identities.
///
/// # Errors
/// Why the request is rejected.
pub(super) fn enter_as<'l>(
    request: &mut RequestIdentities<'_, 'l, '_>,
    required: &[usize],
    mut is_free: bool,
) -> Result<bool, AccessError<'l>> {
    let (live, facts) = (request.live, request.facts);
    let access = live.policy.access.as_deref();
    if let Some(access) = access {
        is_free |= is_allowed(request, access)?;
    }
    // A browser sends no credentials with a preflight (Fetch standard, section 4.8).
    if !facts.is_free_preflight {
        meet_identities(request, required)?;
        for one in access.map(|access| access.required(facts)).unwrap_or_default() {
            meet(request, one)?;
        }
    }
    verify_guards(request, is_free)?;
    Ok(is_free)
}

/// Whether the lists exempt an identity of the request from limits.
fn is_allowed<'l>(request: &mut RequestIdentities<'_, 'l, '_>, access: &Access) -> Result<bool, AccessError<'l>> {
    let mut is_allowed = false;
    for index in access.identities() {
        let found = request.find(index)?;
        match found.and_then(|found| access.by_identity(index, &found.principal)) {
            Some(AccessRule::Deny) => {
                let name = &request.live.policy.identities[index].name;
                return Err(AccessError::Denied(DenialReason::Identity(name)));
            }
            Some(AccessRule::Allow) => is_allowed = true,
            None => {}
        }
    }
    Ok(is_allowed)
}

fn meet<'l>(request: &mut RequestIdentities<'_, 'l, '_>, one: &'l Requirement) -> Result<(), AccessError<'l>> {
    meet_identities(request, &one.identities)?;
    if one.plans.is_empty() || has_plan(request, one)? {
        return Ok(());
    }
    Err(AccessError::Denied(DenialReason::Plan(&one.plans)))
}

/// Whether the request has a plan that `one` requires. As in a limit, plans that overrides assign to its keys go before
/// its own plan.
fn has_plan<'l>(request: &mut RequestIdentities<'_, 'l, '_>, one: &Requirement) -> Result<bool, Unidentified<'l>> {
    let assigned = assigned_plans(request);
    if !assigned.is_empty() {
        return Ok(assigned.into_iter().any(|plan| one.is_met_by(Some(plan))));
    }
    Ok(one.is_met_by(request.proven_plan()?.as_deref()))
}

/// Tests that the request has one of the identities, if there are any. Several of them may be in one header, so a wrong
/// one says nothing about the others.
fn meet_identities<'l>(request: &mut RequestIdentities<'_, 'l, '_>, any: &[usize]) -> Result<(), Unidentified<'l>> {
    let mut rejected = None;
    for index in any {
        match request.find(*index) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) => rejected = Some(error.after(rejected)),
        }
    }
    let first = any.first().and_then(|index| request.live.policy.identities.get(*index));
    let missing = || first.map(|identity| wrong(identity, IdentityError::Missing));
    rejected.or_else(missing).map_or(Ok(()), Err)
}

/// Verifies the identities of limits that guard the request and do not decide about it, because they are off or because
/// the client is exempt. If the request is free, these are all limits.
fn verify_guards<'l>(request: &mut RequestIdentities<'_, 'l, '_>, is_free: bool) -> Result<(), Unidentified<'l>> {
    let (policy, facts) = (&request.live.policy, request.facts);
    let mut guards: SmallVec<[&'l Limit; 4]> = SmallVec::new();
    policy.for_each_guard(facts, |limit| guards.push(limit));
    if is_free {
        policy.for_each_applied(Stage::Identified, facts, |applied| guards.push(applied.limit));
    }
    for limit in guards {
        if limit.allowed.has_plans() {
            request.plan()?;
        }
        for part in &limit.key {
            if let KeyPart::Identity(index) = part {
                request.identity(*index)?;
            }
        }
    }
    Ok(())
}
