//! The requests that wait on one key, in order of arrival. Without I/O, clock or lock.
//!
//! Waiting is not charged, so a waiter that leaves takes no units, and all waiters behind it move up. The new front has
//! to be woken, unless its own timer wakes it in time.

use std::collections::BTreeMap;

use crate::base::time::Timestamp;

/// The order in which requests of the process began to wait. A request keeps its rank in every queue.
pub(in crate::engine::gate) type Rank = u64;

/// The waiters of one key. `W` wakes a waiter.
#[derive(Debug)]
pub(super) struct WaitQueue<W> {
    waiters: BTreeMap<Rank, Waiter<W>>,
    units: u64,
    /// Whether other replicas have taken units that its front waited for.
    pub(super) is_contended: bool,
}

/// A waiter.
#[derive(Clone, Debug)]
pub(super) struct Waiter<W> {
    pub(super) cost: u64,
    pub(super) wake: W,
    /// The instant at which its own timer wakes it, if it has one.
    pub(super) timer: Option<Timestamp>,
}

/// The waiters in front of a new request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::gate) struct Backlog {
    /// Number of requests.
    pub(in crate::engine::gate) waiting: usize,
    /// Units that the requests will take.
    pub(in crate::engine::gate) units: u64,
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self { waiters: BTreeMap::new(), units: 0, is_contended: false }
    }
}

impl<W> WaitQueue<W> {
    /// All waiters.
    pub(super) fn backlog(&self) -> Backlog {
        Backlog { waiting: self.waiters.len(), units: self.units }
    }

    /// The waiter with the lowest rank.
    pub(super) fn front(&self) -> Option<(Rank, &Waiter<W>)> {
        self.waiters.first_key_value().map(|(rank, waiter)| (*rank, waiter))
    }

    /// Adds a waiter at its rank. Returns the waiter that it displaces from the front, if any.
    pub(super) fn push(&mut self, rank: Rank, waiter: Waiter<W>) -> Option<&W> {
        let displaced = self.front().map(|(front, _)| front).filter(|front| *front > rank);
        self.units = self.units.saturating_add(waiter.cost);
        self.waiters.insert(rank, waiter);
        displaced.and_then(|rank| self.waiters.get(&rank)).map(|waiter| &waiter.wake)
    }

    /// Removes a waiter. Returns the new front if the waiter was the front.
    pub(super) fn cancel(&mut self, rank: Rank) -> Option<&Waiter<W>> {
        let was_front = self.is_front(rank);
        let waiter = self.waiters.remove(&rank)?;
        self.units = self.units.saturating_sub(waiter.cost);
        self.front().filter(|_| was_front).map(|(_, front)| front)
    }

    /// Whether `rank` is at the front.
    pub(super) fn is_front(&self, rank: Rank) -> bool {
        self.front().is_some_and(|(front, _)| front == rank)
    }

    /// The timer of a waiter. A timer that has fired by `now` is forgotten.
    pub(super) fn timer(&mut self, rank: Rank, now: Timestamp) -> Option<Timestamp> {
        let waiter = self.waiters.get_mut(&rank)?;
        waiter.timer = waiter.timer.filter(|timer| *timer > now);
        waiter.timer
    }

    /// All waiters, from the front.
    pub(super) fn wakes(&self) -> impl Iterator<Item = &W> {
        self.waiters.values().map(|waiter| &waiter.wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(cost: u64, wake: Rank) -> Waiter<Rank> {
        Waiter { cost, wake, timer: None }
    }

    #[test]
    fn a_new_front_displaces_the_old_one() {
        let mut queue = WaitQueue::default();
        for (rank, displaced, front) in [(5, None, 5), (7, None, 5), (3, Some(5), 3), (4, None, 3), (1, Some(3), 1)] {
            assert_eq!(queue.push(rank, waiter(2, rank)).copied(), displaced, "{rank}");
            assert_eq!(queue.front().map(|(rank, waiter)| (rank, waiter.wake)), Some((front, front)), "{rank}");
        }
        assert_eq!(queue.backlog(), Backlog { waiting: 5, units: 10 });
    }

    #[test]
    fn a_waiter_that_leaves_the_front_uncovers_the_next() {
        let mut queue = WaitQueue::default();
        for rank in [1, 2, 3, 4] {
            queue.push(rank, waiter(rank, rank));
        }
        for (rank, uncovered, units) in [(3, None, 7), (1, Some(2), 6), (9, None, 6), (2, Some(4), 4), (4, None, 0)] {
            assert_eq!(queue.cancel(rank).map(|waiter| waiter.wake), uncovered, "{rank}");
            assert_eq!(queue.backlog().units, units, "{rank}");
        }
    }

    #[test]
    fn a_timer_that_has_fired_is_forgotten() {
        let mut queue = WaitQueue::default();
        let at = Timestamp::from_ns;
        queue.push(1, waiter(1, 1));
        queue.push(2, Waiter { timer: Some(at(20)), ..waiter(1, 2) });
        for (rank, now_ns, timer) in [(1, 0, None), (2, 19, Some(20)), (2, 20, None), (2, 19, None), (3, 0, None)] {
            assert_eq!(queue.timer(rank, at(now_ns)), timer.map(at), "{rank} at {now_ns}");
        }
    }
}
