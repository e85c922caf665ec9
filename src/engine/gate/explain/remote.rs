//! Which store would decide about a key, and how old its mirror is.

use std::sync::Arc;

use crate::base::time::Timestamp;
use crate::engine::gate::check::Check;
use crate::engine::store::backend::OnFailure;

/// The decision about a key of a remote limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteExplanation {
    /// The name of the store.
    pub store: Arc<str>,
    /// The server that has the key, if it is known.
    pub node: Option<String>,
    /// Whether the server decides now.
    pub is_up: bool,
    /// What decides, or would decide, without it.
    pub on_failure: OnFailure,
    /// The replicas that share the limit.
    pub replicas: u64,
    /// The age of the state that is explained, in nanoseconds; `None` if the store was not heard of the key.
    pub mirror_age_ns: Option<u64>,
}

/// The decision about the key of `check`, if a store has its state.
pub(super) fn explain(check: &Check<'_>, now: Timestamp) -> Option<RemoteExplanation> {
    let remote = check.remote()?;
    let unavailable = check.unavailable();
    Some(RemoteExplanation {
        store: Arc::clone(remote.store.name()),
        is_up: unavailable.is_none(),
        node: remote.store.server(&remote.name, check.key).map(|server| server.name.to_string()),
        on_failure: unavailable.map_or(remote.store.on_failure(), |why| remote.on_failure(why)),
        replicas: remote.replicas,
        mirror_age_ns: check.table().mirrored_at(check.key).map(|queried_at| now.ns_since(queried_at)),
    })
}
