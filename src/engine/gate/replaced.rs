//! The state of a limit in place of one of another algorithm, and the way of waiting requests from one to the other.
//!
//! Both have the same queues, so that waiting requests keep their turns.

use std::sync::{Arc, OnceLock};

use super::state::{LimitState, Successor};

impl LimitState {
    /// This new state in place of `old`: another algorithm begins anew, but for bans and waiting requests.
    pub(super) fn in_place_of(mut self, old: &Self) -> Self {
        (self.bans, self.streamed) = (Arc::clone(&old.bans), old.streamed.clone());
        (self.queues, self.delays) = (Arc::clone(&old.queues), Arc::clone(&old.delays));
        self
    }

    /// Leads requests that wait on this state to `next`: also those that are still decided by the limits before a reload.
    /// Without such requests this state, which a tunnel may keep for days, does not keep the other one.
    pub(super) fn lead_to(&self, next: &Arc<Self>) {
        let next = Successor { state: Arc::downgrade(next), kept: OnceLock::new() };
        let _ = self.replaced_by.set(next); // once only
    }

    /// The state by which requests that wait on this one are decided now. It has no limit once the limit is gone.
    pub(super) fn current(self: &Arc<Self>) -> &Arc<Self> {
        let Some(next) = self.replaced_by.get() else { return self };
        if let Some(next) = next.kept.get_or_init(|| next.state.upgrade()) {
            return next.current();
        }
        self.newest.store(None);
        self
    }
}
