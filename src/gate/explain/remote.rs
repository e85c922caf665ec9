//! Which store would decide about a key, and how old its mirror is.

use std::sync::Arc;

use crate::gate::check::Check;
use crate::store::redis::OnFailure;
use crate::time::Timestamp;

/// The decision about a key of a remote limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteExplanation {
    /// The name of the store.
    pub store: Arc<str>,
    /// The server that has the key, if it is known.
    pub node: Option<String>,
    /// Whether the server decides now.
    pub is_up: bool,
    /// What decides otherwise.
    pub on_failure: OnFailure,
    /// The replicas that share the limit.
    pub replicas: u64,
    /// The age of the state that is explained, in nanoseconds; `None` if the store was not heard of the key.
    pub mirror_age_ns: Option<u64>,
}

/// The decision about the key of `check`, if a store has its state.
pub(super) fn explain(check: &Check<'_>, now: Timestamp) -> Option<RemoteExplanation> {
    let state = check.check.state;
    let remote = check.remote()?;
    let settings = remote.store.settings();
    let server = remote.store.server(&state.name, check.key);
    Some(RemoteExplanation {
        store: Arc::clone(&settings.name),
        is_up: server.as_ref().is_some_and(|server| server.is_up),
        node: server.map(|server| server.name),
        on_failure: settings.on_failure,
        replicas: remote.replicas,
        mirror_age_ns: state.table.mirrored_at(check.key).map(|queried_at| now.ns_since(queried_at)),
    })
}
