//! Identities and a plan that an operator states, in place of those of a request.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::state::Live;
use crate::engine::policy::Policy;

/// Identities and a plan that an operator states.
#[derive(Clone, Debug, Default)]
pub(super) struct Stated {
    /// By the index of the identity.
    pub(super) identities: Vec<(usize, Arc<str>)>,
    pub(super) plan: Option<Arc<str>>,
}

impl Stated {
    /// Errs with the first identity or the plan that the policy does not have, and with the part of the question.
    pub(super) fn new(
        live: &Live,
        identities: &[(String, String)],
        plan: Option<&str>,
    ) -> Result<Self, (&'static str, String)> {
        let known = &live.policy.identities;
        let index = |(name, text): &(String, String)| {
            let index = known.iter().position(|identity| *identity.name == **name);
            let index = index.ok_or_else(|| absent("identity", name, known.iter().map(|identity| &*identity.name)))?;
            if text.is_empty() { Err(format!("`{name}` is empty")) } else { Ok((index, text.as_str().into())) }
        };
        let identities: Result<_, _> = identities.iter().map(index).collect();
        let identities = identities.map_err(|error| ("identities", error))?;
        let plans = plans(&live.policy);
        if let Some(plan) = plan.filter(|plan| !plans.contains(plan) && !live.policy.has_plan(plan)) {
            return Err(("plan", absent("plan", plan, plans.into_iter())));
        }
        Ok(Self { identities, plan: plan.map(Into::into) })
    }
}

/// The plans that limits and access lists name.
fn plans(policy: &Policy) -> BTreeSet<&str> {
    let of_limits = policy.limits().iter().flat_map(|limit| limit.allowed.plans.iter().map(|(plan, _)| &**plan));
    let requirements = policy.access.iter().flat_map(|access| access.requirements());
    of_limits.chain(requirements.flat_map(|one| one.plans.iter().map(|plan| &**plan))).collect()
}

/// The message about a name that is not among those that the configuration has.
fn absent<'n>(kind: &str, name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = known.map(|name| format!("`{name}`")).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("there is no {kind} `{name}`; the configuration has {names}")
}
