//! The requests that wait on one key, by priority and in order of arrival. Without I/O, clock or lock.
//!
//! Waiting is not charged, so a waiter that leaves takes no units, and all waiters behind it move up. The new front has
//! to be woken, unless its own timer wakes it in time.
//!
//! With `min_share`, each unit that passes gives every lower priority that waits a part of a unit as credit. The first
//! waiter of a priority with credit for its cost is the front. So in any sequence of passes, a lower priority that waits
//! gets its share but for one waiter. A request that needs several limits attends the queues of all, so that it has credit
//! in each, wherever it stands.

use std::collections::BTreeMap;

use crate::base::time::Timestamp;
use crate::engine::policy::Priority;

/// The order of waiting requests of the process: their priority in the highest bits, then the order in which they began to
/// wait. A request keeps its rank in every queue.
pub(in crate::engine::gate) type Rank = u64;

/// The position of the priority in a rank.
const PRIORITY_BIT: u32 = 62;

/// The rank of the request with this priority and number.
pub(super) fn rank_of(priority: Priority, number: u64) -> Rank {
    (priority as u64) << PRIORITY_BIT | number
}

/// The priority of a rank.
pub(super) fn priority_of(rank: Rank) -> Priority {
    match rank >> PRIORITY_BIT {
        0 => Priority::Critical,
        1 => Priority::Normal,
        _ => Priority::Background,
    }
}

/// The waiters of one key. `W` wakes a waiter.
#[derive(Debug)]
pub(super) struct WaitQueue<W> {
    waiters: BTreeMap<Rank, Waiter<W>>,
    /// By priority.
    backlogs: [Backlog; Priority::ALL.len()],
    /// Credits of each priority below critical, in hundredths of units.
    credits: [u64; LOWER.len()],
    /// The requests of these priorities that wait here or for another limit, and need this one.
    attendance: [Attendance; LOWER.len()],
    /// The least part in percent that each of these gets of the units that pass.
    min_share: u64,
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

/// Requests that attend a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attendance {
    count: usize,
    /// The highest cost since the first of them.
    cost_max: u64,
}

/// The priorities that others overtake.
const LOWER: [Priority; 2] = [Priority::Normal, Priority::Background];

fn lower_index(rank: Rank) -> Option<usize> {
    LOWER.iter().position(|priority| *priority == priority_of(rank))
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        let (backlogs, credits, attendance) = Default::default();
        Self { waiters: BTreeMap::new(), backlogs, credits, attendance, min_share: 0, is_contended: false }
    }
}

impl<W> WaitQueue<W> {
    /// All waiters.
    pub(super) fn backlog(&self) -> Backlog {
        let units = self.backlogs.iter().fold(0_u64, |sum, backlog| sum.saturating_add(backlog.units));
        Backlog { waiting: self.waiters.len(), units }
    }

    /// The waiters of this priority and of higher ones, with the units that lower ones may take before them.
    pub(super) fn backlog_of(&self, priority: Priority) -> Backlog {
        let (before, lower) = self.backlogs.split_at(priority as usize + 1);
        let waiting = before.iter().map(|backlog| backlog.waiting).sum();
        let units = before.iter().fold(0_u64, |sum, backlog| sum.saturating_add(backlog.units));
        let sharing = lower.iter().filter(|backlog| backlog.waiting > 0).count() as u64 * self.min_share;
        let share = units.saturating_mul(self.min_share) / (100 - sharing.min(99));
        let units = lower.iter().fold(units, |sum, backlog| sum.saturating_add(backlog.units.min(share)));
        Backlog { waiting, units }
    }

    /// The waiter that passes next.
    pub(super) fn front(&self) -> Option<(Rank, &Waiter<W>)> {
        let rank = self.front_with(None)?;
        Some((rank, self.waiters.get(&rank)?))
    }

    /// The waiter that would pass next if a request of this rank and cost waited too.
    fn front_with(&self, joining: Option<(Rank, u64)>) -> Option<Rank> {
        let joining_rank = joining.map(|(rank, _)| rank);
        let first = self.waiters.first_key_value().map(|(rank, _)| *rank).into_iter().chain(joining_rank).min();
        if self.credits == [0; LOWER.len()] {
            return first;
        }
        let first_of = |priority| {
            let own = self.waiters.range(rank_of(priority, 0)..).next().map(|(rank, waiter)| (*rank, waiter.cost));
            own.into_iter().chain(joining).filter(|(rank, _)| priority_of(*rank) == priority).min()
        };
        let due = LOWER.iter().zip(self.credits).find_map(|(priority, credit)| {
            let (rank, cost) = first_of(*priority)?;
            (credit > 0 && credit >= self.turn(cost)).then_some(rank)
        });
        due.or(first)
    }

    /// The credit for which a waiter of this cost passes before higher priorities.
    fn turn(&self, cost: u64) -> u64 {
        cost.saturating_mul(100 - self.min_share)
    }

    /// Notes that a request of this rank and cost passes, and sets the least share in percent. Returns the new front if
    /// another waiter is the front then.
    pub(super) fn pass(&mut self, rank: Rank, cost: u64, min_share: u64) -> Option<&W> {
        let before = self.front_with(None);
        self.min_share = min_share;
        for ((priority, credit), attending) in LOWER.iter().zip(&mut self.credits).zip(self.attendance) {
            *credit = if priority_of(rank) == *priority {
                credit.saturating_sub(cost.saturating_mul(100 - min_share))
            } else {
                credit.saturating_add(cost.saturating_mul(min_share))
            };
            // One turn, and the rest of one pass.
            let most = attending.cost_max.saturating_add(cost).saturating_mul(100);
            *credit = if attending.count > 0 { (*credit).min(most) } else { 0 };
        }
        self.front().filter(|(rank, _)| before != Some(*rank)).map(|(_, front)| &front.wake)
    }

    /// Notes that a request of this rank needs `cost` units, wherever it waits, and sets the least share in percent.
    pub(super) fn attend(&mut self, rank: Rank, cost: u64, min_share: u64) {
        self.min_share = min_share;
        if let Some(index) = lower_index(rank) {
            let attending = &mut self.attendance[index];
            (attending.count, attending.cost_max) = (attending.count + 1, attending.cost_max.max(cost));
        }
    }

    /// Notes that a request of this rank waits no more. Returns the new front if another waiter is the front then.
    pub(super) fn unattend(&mut self, rank: Rank) -> Option<&W> {
        let (index, before) = (lower_index(rank)?, self.front_with(None));
        let attending = &mut self.attendance[index];
        attending.count = attending.count.saturating_sub(1);
        if attending.count == 0 {
            (attending.cost_max, self.credits[index]) = (0, 0);
        }
        self.front().filter(|(rank, _)| before != Some(*rank)).map(|(_, front)| &front.wake)
    }

    /// Whether no request waits here.
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether no request waits here, and none attends.
    pub(super) fn is_unused(&self) -> bool {
        self.is_empty() && self.attendance.iter().all(|attending| attending.count == 0)
    }

    /// Whether others pass before a request of this rank and cost, which may wait here.
    pub(super) fn has_before(&self, rank: Rank, cost: u64) -> bool {
        !self.waiters.is_empty() && self.front_with(Some((rank, cost))) != Some(rank)
    }

    /// Adds a waiter at its rank. Returns the waiter to wake, if the front changes: the one that was the front, or another
    /// one that is the front now.
    pub(super) fn push(&mut self, rank: Rank, waiter: Waiter<W>) -> Option<&W> {
        let front = self.front_with(None);
        let backlog = &mut self.backlogs[priority_of(rank) as usize];
        backlog.waiting += 1;
        backlog.units = backlog.units.saturating_add(waiter.cost);
        self.waiters.insert(rank, waiter);
        let next = self.front_with(None);
        let changed = if next == Some(rank) { front } else { next.filter(|_| next != front) };
        changed.and_then(|rank| self.waiters.get(&rank)).map(|waiter| &waiter.wake)
    }

    /// Removes a waiter. Returns the new front if the waiter was the front.
    pub(super) fn cancel(&mut self, rank: Rank) -> Option<&Waiter<W>> {
        let was_front = self.is_front(rank);
        let waiter = self.waiters.remove(&rank)?;
        let backlog = &mut self.backlogs[priority_of(rank) as usize];
        backlog.waiting -= 1;
        backlog.units = backlog.units.saturating_sub(waiter.cost);
        self.front().filter(|_| was_front).map(|(_, front)| front)
    }

    /// Whether `rank` is at the front.
    pub(super) fn is_front(&self, rank: Rank) -> bool {
        self.front_with(None) == Some(rank)
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
    use crate::base::split_mix::mix;

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

    /// Requests of all priorities wait all the time. Rows: the least share, the costs by priority, and the units in 1000
    /// passes that each priority gets at least.
    #[test]
    fn each_lower_priority_gets_its_share_and_no_more() {
        for (min_share, costs) in [(0, [1, 1, 1]), (10, [1, 1, 1]), (25, [1, 1, 1]), (10, [3, 1, 7]), (1, [1, 2, 3])] {
            let (mut queue, mut passed) = (WaitQueue::default(), [0_u64; 3]);
            for number in 0..1000 {
                for (priority, cost) in Priority::ALL.into_iter().zip(costs) {
                    queue.push(rank_of(priority, number), waiter(cost, 0));
                    queue.attend(rank_of(priority, number), cost, min_share);
                }
            }
            for _ in 0..900 {
                let (rank, cost) = queue.front().map(|(rank, waiter)| (rank, waiter.cost)).unwrap();
                queue.pass(rank, cost, min_share);
                queue.cancel(rank);
                queue.unattend(rank);
                passed[priority_of(rank) as usize] += cost;
            }
            let all: u64 = passed.iter().sum();
            for (priority, cost) in LOWER.into_iter().zip(&costs[1..]) {
                let (got, due) = (passed[priority as usize], all * min_share / 100);
                assert!(got + 2 * cost >= due && got <= due + 2 * cost, "{min_share} {costs:?}: {passed:?}");
            }
        }
    }

    #[test]
    fn a_backlog_is_that_of_its_priority_and_of_higher_ones() {
        let mut queue = WaitQueue::default();
        for (priority, count) in Priority::ALL.into_iter().zip([2, 3, 5]) {
            (0..count).for_each(|number| _ = queue.push(rank_of(priority, number), waiter(10, 0)));
        }
        let backlogs = |queue: &WaitQueue<_>| Priority::ALL.map(|priority| queue.backlog_of(priority));
        let exact = [(2, 20), (5, 50), (10, 100)].map(|(waiting, units)| Backlog { waiting, units });
        assert_eq!(backlogs(&queue), exact);
        assert_eq!(queue.backlog(), exact[2]);
        // With shares, others may take units before: of 20 units 10 % of all twice, which are 2.5 units each.
        queue.pass(rank_of(Priority::Background, 9), 0, 10);
        assert_eq!(backlogs(&queue).map(|backlog| backlog.units), [24, 55, 100]);
    }

    /// Whoever is the front once it joins sees nobody before it, and nobody else does.
    #[test]
    fn the_front_has_nobody_before_it() {
        let mut bits = 7;
        let mut next = |most: u64| {
            bits = mix(bits + 1);
            bits % most
        };
        for _ in 0..2000 {
            let mut queue = WaitQueue::default();
            for number in 1..next(6) {
                let priority = Priority::ALL[usize::try_from(next(3)).unwrap()];
                let cost = next(4);
                queue.push(rank_of(priority, number), waiter(cost, 0));
                queue.attend(rank_of(priority, number), cost, 25);
            }
            for _ in 0..next(6) {
                queue.pass(rank_of(Priority::Critical, 99), next(5), 25);
            }
            let rank =
                rank_of(Priority::ALL[usize::try_from(next(3)).unwrap()], [0, 50][usize::try_from(next(2)).unwrap()]);
            let cost = next(4);
            let has_before = queue.has_before(rank, cost);
            queue.push(rank, waiter(cost, 0));
            assert_eq!(has_before, !queue.is_front(rank), "{queue:?}");
            assert_eq!(queue.has_before(rank, cost), has_before, "{queue:?}");
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
