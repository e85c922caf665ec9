//! The bound in force: how much of a limit its fleet may admit now, as far as this replica knows.
//!
//! Not here: why each strategy has its bound, and what charges that are on the way add to it (`docs/fleet/bounds.md`).

use super::state::{Gate, LimitState, Live};
use crate::engine::policy::Strategy;
use crate::engine::store::RemoteLimit;
use crate::engine::store::backend::{OnFailure, Unavailable};

/// What a fleet may admit of a limit that its replicas share.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The name of the limit.
    pub limit: Box<str>,
    /// How the replicas share it.
    pub strategy: &'static str,
    /// The most that the fleet admits, as a multiple of the limit. Infinite if replicas admit all, or if their number is
    /// unknown.
    pub ratio: f64,
}

impl Gate {
    /// The bounds of the limits that replicas share, in the order of the limits.
    pub fn bounds(&self, live: &Live) -> Vec<Bound> {
        live.states.iter().filter_map(|state| state.bound()).collect()
    }
}

impl LimitState {
    /// The bound in force; `None` if each replica decides by the whole limit.
    pub(super) fn bound(&self) -> Option<Bound> {
        let newest = self.newest.load_full()?;
        let ratio = match newest.strategy {
            Strategy::Local => return None,
            Strategy::Split(_) => self.listeners.link.unmet().map_or(f64::INFINITY, |_| 1.0),
            Strategy::Stream => self.listeners.link.unmet().map_or(f64::INFINITY, |unmet| whole(1 + unmet)),
            Strategy::Redis { .. } | Strategy::Service { .. } | Strategy::Lease { .. } => {
                let remote = newest.remote.as_deref()?;
                let each = remote.store.unavailable(&remote.name).into_iter().map(|why| without_store(remote, why));
                each.fold(1.0, f64::max)
            }
        };
        Some(Bound { limit: self.name.clone(), strategy: newest.strategy.name(), ratio })
    }
}

/// The bound while a server of the store does not decide for this replica, and may decide for all others.
fn without_store(remote: &RemoteLimit, why: Unavailable) -> f64 {
    let others = whole(remote.replicas.max(1) - 1);
    match remote.on_failure(why) {
        OnFailure::Reject => 1.0,
        OnFailure::Split => 1.0 + others / (others + 1.0),
        OnFailure::Local => 1.0 + others,
        OnFailure::Allow => f64::INFINITY,
    }
}

#[allow(clippy::cast_precision_loss)] // replicas are few
fn whole(number: u64) -> f64 {
    number as f64
}
