//! Identities and a plan that an operator states, in place of those of a request.

use std::sync::Arc;

use super::state::Live;

/// Identities and a plan that an operator states.
#[derive(Clone, Debug, Default)]
pub(super) struct Stated {
    /// By the index of the identity.
    pub(super) identities: Vec<(usize, Arc<str>)>,
    pub(super) plan: Option<Arc<str>>,
}

impl Stated {
    /// Errs with the first identity that the policy does not have.
    pub(super) fn new(live: &Live, identities: &[(String, String)], plan: Option<&str>) -> Result<Self, String> {
        let known = &live.policy.identities;
        let index = |(name, text): &(String, String)| {
            let index = known.iter().position(|identity| *identity.name == **name);
            let index = index.ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|identity| format!("`{}`", identity.name)).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                format!("there is no identity `{name}`; the configuration has {names}")
            })?;
            if text.is_empty() { Err(format!("`{name}` is empty")) } else { Ok((index, text.as_str().into())) }
        };
        let identities = identities.iter().map(index).collect::<Result<_, _>>()?;
        Ok(Self { identities, plan: plan.map(Into::into) })
    }
}
