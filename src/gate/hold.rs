//! Who waits on one key, in order of arrival. Without I/O, clock or lock.
//!
//! The front alone watches the clock: everyone behind it is woken when it leaves. Nothing is charged for
//! waiting, so one who leaves takes nothing away and everyone behind moves up.

use std::collections::BTreeMap;

/// When a request began to wait, relative to all others of the process; it keeps it wherever it waits.
pub(super) type Rank = u64;

/// The waiters of one key. `W` is how to wake one.
#[derive(Debug)]
pub(super) struct Queue<W> {
    waiters: BTreeMap<Rank, Waiter<W>>,
    units: u64,
}

#[derive(Debug)]
struct Waiter<W> {
    cost: u64,
    wake: W,
}

/// What stands before a newcomer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    /// Requests waiting.
    pub(super) waiting: usize,
    /// Units that they will take.
    pub(super) units: u64,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { waiters: BTreeMap::new(), units: 0 }
    }
}

impl<W> Queue<W> {
    /// What is waiting.
    pub(super) fn backlog(&self) -> Backlog {
        Backlog { waiting: self.waiters.len(), units: self.units }
    }

    /// The one whose turn comes next.
    pub(super) fn front(&self) -> Option<(Rank, &W)> {
        self.waiters.first_key_value().map(|(rank, waiter)| (*rank, &waiter.wake))
    }

    /// Adds a waiter at its rank. Gives back the one that it displaces from the front.
    pub(super) fn push(&mut self, rank: Rank, cost: u64, wake: W) -> Option<&W> {
        let displaced = self.front().map(|(front, _)| front).filter(|front| *front > rank);
        self.units = self.units.saturating_add(cost);
        self.waiters.insert(rank, Waiter { cost, wake });
        displaced.and_then(|rank| self.waiters.get(&rank)).map(|waiter| &waiter.wake)
    }

    /// Removes a waiter. Gives back the one that it uncovers at the front.
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
    fn a_waiter_displaces_only_those_behind_it() {
        let mut queue = Queue::default();
        for (rank, displaced, front) in [(5, None, 5), (7, None, 5), (3, Some(5), 3), (4, None, 3), (1, Some(3), 1)] {
            assert_eq!(queue.push(rank, 2, rank).copied(), displaced, "{rank}");
            assert_eq!(queue.front(), Some((front, &front)), "{rank}");
        }
        assert_eq!(queue.backlog(), Backlog { waiting: 5, units: 10 });
    }

    #[test]
    fn a_waiter_that_leaves_uncovers_the_next_only_at_the_front() {
        let mut queue = Queue::default();
        for rank in [1, 2, 3, 4] {
            queue.push(rank, rank, rank);
        }
        for (rank, uncovered, units) in [(3, None, 7), (1, Some(2), 6), (9, None, 6), (2, Some(4), 4), (4, None, 0)] {
            assert_eq!(queue.cancel(rank).copied(), uncovered, "{rank}");
            assert_eq!(queue.backlog().units, units, "{rank}");
        }
    }
}
