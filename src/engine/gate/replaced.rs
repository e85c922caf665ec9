//! The state of a limit in place of one of another algorithm, and the way of waiting requests from one to the other.
//!
//! Both have the same queues, so that waiting requests keep their turns.

use std::sync::Arc;

use super::state::LimitState;

impl LimitState {
    /// This new state in place of `old`: another algorithm begins anew, but for bans and waiting requests.
    pub(super) fn in_place_of(mut self, old: &Self) -> Self {
        (self.bans, self.streamed) = (Arc::clone(&old.bans), old.streamed.clone());
        (self.queues, self.delays) = (Arc::clone(&old.queues), Arc::clone(&old.delays));
        self
    }

    /// Leads requests that wait on this state to `next`. Without them this state, which a tunnel may keep for days, does not
    /// keep the other one.
    pub(super) fn lead_to(&self, next: &Arc<Self>) {
        if !self.queues.is_empty() || !self.delays.is_empty() {
            let _ = self.replaced_by.set(Arc::clone(next)); // once only
        }
    }

    /// The state by which requests that wait on this one are decided now.
    pub(super) fn current(self: &Arc<Self>) -> &Arc<Self> {
        self.replaced_by.get().map_or(self, Self::current)
    }
}
