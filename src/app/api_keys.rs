//! API keys across a reload: their last uses go on, and the log says whose keys changed.

use crate::config::listed;
use crate::engine::policy::Policy;

/// Most names of owners in a line of the log.
const LOGGED_MAX: usize = 10;

/// Prepares the keys of `policy`, which is about to replace `before`.
pub(super) fn adopt(policy: &Policy, before: &Policy) {
    for (identity, keys) in policy.api_keys() {
        let Some((_, known)) = before.api_keys().find(|(name, _)| *name == identity) else { continue };
        keys.adopt_uses(known);
        let changed = keys.changed_names(known);
        if !changed.is_empty() {
            tracing::info!(identity, owners = listed(&changed, LOGGED_MAX), "API keys changed");
        }
    }
}
