//! The turns of a waiting request: the queues in which it stands, which request passes before which, and how long it stays.

use std::convert::Infallible;
use std::sync::Arc;

use super::locked::Joining;
use super::wait::{NewestLimits, WaitItem, Waiting};
use super::wait_queue::priority_of;
use crate::base::time::Timestamp;
use crate::engine::gate::state::Newest;
use crate::engine::limit::{BACKDATE_NS_MAX, Retry};
use crate::engine::policy::Mode;

impl Waiting<'_> {
    /// The instant at which the request has waited too long, if `slot` is too late. A short delay beyond `max_wait`
    /// does not refuse it: it was accepted for a shorter wait, so the delay is Weir's own.
    pub(super) fn deadline_before(&self, slot: Timestamp) -> Option<Timestamp> {
        let (deadline, latest) = self.deadline()?;
        (latest < slot).then_some(deadline)
    }

    /// The end of `max_wait`, and the latest slot for which the request stays.
    fn deadline(&self) -> Option<(Timestamp, Timestamp)> {
        let max_ns = self.max_wait_ns?;
        let deadline = self.since.saturating_add_ns(max_ns);
        Some((deadline, deadline.saturating_add_ns((max_ns / 10).saturating_add(BACKDATE_NS_MAX))))
    }

    /// Whether requests that began to wait later may overtake it, by the newest policy.
    pub(super) fn may_be_overtaken(&self) -> bool {
        self.items[self.index].state.queues.may_be_overtaken(priority_of(self.rank))
    }

    /// The instant until which a request that others may overtake waits behind them.
    pub(super) fn patience(&self) -> Option<Timestamp> {
        self.deadline().filter(|_| self.may_be_overtaken()).map(|(_, latest)| latest)
    }

    /// The index of another of its limits in whose queue a request waits that passes before this one.
    pub(super) fn before_in_queue(&self, limits: &NewestLimits) -> Option<usize> {
        let has_before = |(index, limit): &&(usize, Arc<Newest>)| {
            let item = self.items[*index];
            *index != self.index
                && limit.mode_of(item.percentile) == Mode::Enforce
                && limit.on_limit.is_hold()
                && item.state.queues.has_before(item.key, self.rank, item.cost)
        };
        limits.iter().find(has_before).map(|(index, _)| *index)
    }

    /// Moves to the queue of the item at `index`, and leaves all queues in which it may not keep its turn.
    pub(super) fn move_to(&mut self, index: usize) {
        let to = self.items[index];
        let is_next = !to.state.queues.has_before(to.key, self.rank, to.cost);
        let refill_ns = self.refill_ns(index);
        let mut stood = std::mem::take(&mut self.reserved_turns);
        stood.push(std::mem::replace(&mut self.index, index));
        if !stood.contains(&index) {
            let joining = Joining { key: to.key, rank: self.rank, cost: to.cost, wake: &self.wake, timer: None };
            let Ok(()) = to.state.queues.join::<Infallible>(joining, |_| Ok(()));
        }
        for other in stood.into_iter().filter(|other| *other != index) {
            if is_next && self.refill_ns(other) >= refill_ns {
                self.reserved_turns.push(other);
            } else {
                self.leave(other, self.gate.clock.now());
            }
        }
    }

    /// Leaves the queues in which the request keeps its turn: others may have overtaken it where it stands, and those behind
    /// it there must not wait for that.
    pub(super) fn leave_reserved_turns(&mut self, now: Timestamp) {
        for index in std::mem::take(&mut self.reserved_turns) {
            self.leave(index, now);
        }
    }

    /// Attends the queues of all limits, so that it gets shares in each.
    pub(super) fn attend(&mut self) {
        let attending =
            self.items.iter().enumerate().filter(|(_, item)| item.state.queues.attend(item.key, self.rank, item.cost));
        self.attended = attending.map(|(index, _)| index).collect();
    }

    /// Attends no queue any more.
    pub(super) fn unattend(&mut self) {
        for index in std::mem::take(&mut self.attended) {
            let WaitItem { state, key, .. } = self.items[index];
            state.queues.unattend(key, self.rank);
        }
    }

    /// Notes that the request passes, for the shares of lower priorities.
    pub(super) fn note_pass(&self) {
        for WaitItem { state, key, cost, .. } in &self.items {
            state.queues.pass(*key, self.rank, *cost);
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
