//! API keys across a reload: their last uses go on, and the log says whose keys changed.

use crate::config::listed;
use crate::engine::policy::Policy;
use crate::engine::policy::api_keys::ApiKeys;

/// Most names of owners in a line of the log.
const LOGGED_MAX: usize = 10;

/// Prepares the keys of `policy`, which is about to replace `before`.
pub(super) fn adopt(policy: &Policy, before: &Policy) {
    in_both(policy, before).for_each(|(_, keys, known)| keys.adopt_uses(known));
}

/// Logs whose keys changed, once `policy` has replaced `before`: operators use a new key after that.
pub(super) fn log_changes(policy: &Policy, before: &Policy) {
    for (identity, keys, known) in in_both(policy, before) {
        let changed = keys.changed_names(known);
        if !changed.is_empty() {
            tracing::info!(identity, owners = listed(&changed, LOGGED_MAX), "API keys changed");
        }
    }
}

/// The identities that both policies have, with their keys in both.
fn in_both<'p>(policy: &'p Policy, before: &'p Policy) -> impl Iterator<Item = (&'p str, &'p ApiKeys, &'p ApiKeys)> {
    policy.api_keys().filter_map(|(identity, keys)| {
        let (_, known) = before.api_keys().find(|(name, _)| *name == identity)?;
        Some((identity, keys, known))
    })
}
