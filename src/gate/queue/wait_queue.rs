//! The requests that wait on one key, in order of arrival. Without I/O, clock or lock.
//!
//! Only the front arms a timer. The waiter behind it is woken when the front leaves. Waiting is not charged, so a
//! waiter that leaves takes no units, and all waiters behind it move up.

use std::collections::BTreeMap;

/// The order in which requests of the process began to wait. A request keeps its rank in every queue.
pub(in crate::gate) type Rank = u64;

/// The waiters of one key. `W` wakes a waiter.
#[derive(Debug)]
pub(super) struct WaitQueue<W> {
    waiters: BTreeMap<Rank, Waiter<W>>,
    units: u64,
    /// Whether other replicas have taken units that its front waited for.
    pub(super) is_contended: bool,
}

#[derive(Debug)]
struct Waiter<W> {
    cost: u64,
    wake: W,
}

/// The waiters in front of a new request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gate) struct Backlog {
    /// Number of requests.
    pub(in crate::gate) waiting: usize,
    /// Units that the requests will take.
    pub(in crate::gate) units: u64,
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
    pub(super) fn front(&self) -> Option<(Rank, &W)> {
        self.waiters.first_key_value().map(|(rank, waiter)| (*rank, &waiter.wake))
    }

    /// Adds a waiter at its rank. Returns the waiter that it displaces from the front, if any.
    pub(super) fn push(&mut self, rank: Rank, cost: u64, wake: W) -> Option<&W> {
        let displaced = self.front().map(|(front, _)| front).filter(|front| *front > rank);
        self.units = self.units.saturating_add(cost);
        self.waiters.insert(rank, Waiter { cost, wake });
        displaced.and_then(|rank| self.waiters.get(&rank)).map(|waiter| &waiter.wake)
    }

    /// Removes a waiter. Returns the new front if the waiter was the front.
    pub(super) fn cancel(&mut self, rank: Rank) -> Option<&W> {
        let was_front = self.front().is_some_and(|(front, _)| front == rank);
        let waiter = self.waiters.remove(&rank)?;
        self.units = self.units.saturating_sub(waiter.cost);
        self.front().filter(|_| was_front).map(|(_, wake)| wake)
    }

    /// All waiters, from the front.
    pub(super) fn wakes(&self) -> impl Iterator<Item = &W> {
        self.waiters.values().map(|waiter| &waiter.wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_front_displaces_the_old_one() {
        let mut queue = WaitQueue::default();
        for (rank, displaced, front) in [(5, None, 5), (7, None, 5), (3, Some(5), 3), (4, None, 3), (1, Some(3), 1)] {
            assert_eq!(queue.push(rank, 2, rank).copied(), displaced, "{rank}");
            assert_eq!(queue.front(), Some((front, &front)), "{rank}");
        }
        assert_eq!(queue.backlog(), Backlog { waiting: 5, units: 10 });
    }

    #[test]
    fn a_waiter_that_leaves_the_front_uncovers_the_next() {
        let mut queue = WaitQueue::default();
        for rank in [1, 2, 3, 4] {
            queue.push(rank, rank, rank);
        }
        for (rank, uncovered, units) in [(3, None, 7), (1, Some(2), 6), (9, None, 6), (2, Some(4), 4), (4, None, 0)] {
            assert_eq!(queue.cancel(rank).copied(), uncovered, "{rank}");
            assert_eq!(queue.backlog().units, units, "{rank}");
        }
    }
}
