//! The turns of a waiting request: the queues in which it stands, and which request passes before which.

use std::sync::Arc;

use super::locked::Joining;
use super::wait::{NewestLimits, WaitItem, Waiting};
use crate::base::time::Timestamp;
use crate::engine::gate::state::Newest;
use crate::engine::limit::Retry;
use crate::engine::policy::Mode;

impl Waiting<'_> {
    /// The index of another of its limits in whose queue an older request waits.
    pub(super) fn older_in_queue(&self, limits: &NewestLimits) -> Option<usize> {
        let has_older = |(index, limit): &&(usize, Arc<Newest>)| {
            let item = self.items[*index];
            *index != self.index
                && limit.mode_of(item.percentile) == Mode::Enforce
                && limit.on_limit.is_hold()
                && item.state.queues.has_older(item.key, self.rank)
        };
        limits.iter().find(has_older).map(|(index, _)| *index)
    }

    /// Moves to the queue of the item at `index`, and leaves all queues in which it may not keep its turn.
    pub(super) fn move_to(&mut self, index: usize) {
        let to = self.items[index];
        let is_next = !to.state.queues.has_older(to.key, self.rank);
        let refill_ns = self.refill_ns(index);
        let mut stood = std::mem::take(&mut self.reserved_turns);
        stood.push(std::mem::replace(&mut self.index, index));
        if !stood.contains(&index) {
            let joining = Joining { key: to.key, rank: self.rank, cost: to.cost, wake: &self.wake, timer: None };
            let joined: Result<(), ()> = to.state.queues.join(joining, |_| Ok(()));
            debug_assert!(joined.is_ok(), "a move is never refused");
        }
        for other in stood.into_iter().filter(|other| *other != index) {
            if is_next && self.refill_ns(other) >= refill_ns {
                self.reserved_turns.push(other);
            } else {
                self.leave(other, self.gate.clock.now());
            }
        }
    }

    /// Nanoseconds in which the request's units come back to the limit of an item; 0 if the limit is gone.
    fn refill_ns(&self, index: usize) -> u64 {
        let item = self.items[index];
        let limit = item.state.newest.load();
        let rule = limit.as_ref().and_then(|limit| limit.allowed.rule(self.variant(item, limit)));
        rule.map_or(0, |rule| rule.refill_ns(item.cost))
    }

    /// Leaves the queue of the item at `index`. The next request of the queue is woken if it has no timer, if its slot has
    /// come, or if its timer would fire after its slot, because requests have left before it, or units have come back.
    pub(super) fn leave(&self, index: usize, now: Timestamp) {
        let WaitItem { state, key, .. } = self.items[index];
        let Some(next) = state.queues.leave(key, self.rank) else { return };
        let is_in_time = |timer| {
            let slot = self.slot(index, next.cost, now);
            now < slot && timer <= slot
        };
        if !next.timer.is_some_and(is_in_time) {
            next.wake.notify_one();
        }
    }

    /// The instant at which a request of `cost` without a plan could pass the limit of an item.
    fn slot(&self, index: usize, cost: u64, now: Timestamp) -> Timestamp {
        let WaitItem { state, key, .. } = self.items[index];
        let limit = state.newest.load();
        let rule = limit.as_ref().and_then(|limit| limit.allowed.rule(limit.variant(key, None)));
        match rule.map(|rule| state.table.wait(key, rule, 0, cost, now)) {
            Some(Retry::AfterNs(ns)) => now.saturating_add_ns(ns),
            Some(Retry::Never) | None => now,
        }
    }
}
