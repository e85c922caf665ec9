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
use crate::engine::limit::Algorithm;
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
    /// Units that they, and requests of other priorities, will take.
    pub(in crate::engine::gate) units: u64,
    /// The number of requests that take these.
    pub(in crate::engine::gate) passing: usize,
    /// The highest cost since the first of them.
    pub(in crate::engine::gate) cost_max: u64,
}

impl Backlog {
    /// This backlog without one of its requests.
    pub(super) fn without(self, cost: u64) -> Self {
        let [waiting, passing] = [self.waiting, self.passing].map(|count| count.saturating_sub(1));
        Self { waiting, passing, units: self.units.saturating_sub(cost), ..self }
    }

    /// The units that pass before a request of `cost` units. Those that a window has left unused, because the next request
    /// needs more, count too, as many as there may be; none if all costs are equal, which the rule takes into account.
    pub(in crate::engine::gate) fn units_before(self, rule: &Algorithm, cost: u64) -> u64 {
        let Self { units, cost_max, passing, .. } = self;
        let passing = passing as u64;
        let has_windows = |rule: &Algorithm| {
            matches!(rule, Algorithm::FixedWindow(_) | Algorithm::SlidingLog(_) | Algorithm::SubWindow(_))
        };
        let are_equal = cost_max == cost && units.checked_div(cost) == Some(passing);
        if units == 0 || are_equal || !rule.rates().iter().any(has_windows) {
            return units;
        }
        // A request leaves fewer units unused than it costs, and does so once. The last window need not be full.
        let in_window = cost_max.max(cost).saturating_sub(1);
        let all = units.saturating_add(cost);
        let in_all = all.saturating_sub(passing.saturating_add(1));
        let windows = all.saturating_sub(rule.capacity()).div_ceil(rule.capacity().saturating_sub(in_window).max(1));
        units.saturating_add(windows.saturating_mul(in_window).min(in_all))
    }
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

/// The waiters of several priorities together.
fn sum(backlogs: &[Backlog]) -> Backlog {
    backlogs.iter().fold(Backlog::default(), |sum, one| Backlog {
        waiting: sum.waiting + one.waiting,
        passing: sum.passing + one.waiting,
        units: sum.units.saturating_add(one.units),
        cost_max: sum.cost_max.max(one.cost_max),
    })
}

impl<W> WaitQueue<W> {
    /// A queue without waiters, and with this least share in percent.
    pub(super) fn new(min_share: u64) -> Self {
        let (backlogs, credits, attendance) = Default::default();
        Self { waiters: BTreeMap::new(), backlogs, credits, attendance, min_share, is_contended: false }
    }

    /// All waiters.
    pub(super) fn backlog(&self) -> Backlog {
        let Backlog { units, cost_max, .. } = sum(&self.backlogs);
        Backlog { waiting: self.waiters.len(), passing: self.waiters.len(), units, cost_max }
    }

    /// What a new request of this priority and cost would wait for: the number of waiters of its priority, and the units
    /// that they and others may take before it. Its share bounds the units of others.
    pub(super) fn backlog_of(&self, priority: Priority, cost: u64) -> Backlog {
        let own = self.backlogs[priority as usize];
        let (before, lower) = self.backlogs.split_at(priority as usize + 1);
        let ahead = sum(before);
        let units = ahead.units;
        let sharing = lower.iter().filter(|backlog| backlog.waiting > 0).count() as u64 * self.min_share;
        let share = units.saturating_mul(self.min_share) / (100 - sharing.min(99));
        let units = lower.iter().fold(units, |sum, backlog| sum.saturating_add(backlog.units.min(share)));
        let others = self.turn(own.units.saturating_add(cost)).checked_div(self.min_share);
        let others = others.filter(|_| priority != Priority::Critical);
        let most = others.map_or(u64::MAX, |others| own.units.saturating_add(others));
        let units = units.min(most);
        let all = if self.min_share > 0 { sum(&self.backlogs) } else { ahead };
        let are_equal = all.units == (all.waiting as u64).saturating_mul(all.cost_max);
        // A share cuts off a part of the requests.
        let passing = if are_equal { units.checked_div(all.cost_max).unwrap_or(0) } else { ahead.waiting as u64 };
        let passing = usize::try_from(passing).unwrap_or(usize::MAX);
        Backlog { waiting: own.waiting, passing, units, cost_max: all.cost_max }
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

    /// Applies `change`. Returns the new front if another waiter is the front then.
    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Option<&Waiter<W>> {
        let before = self.front_with(None);
        change(self);
        self.front().filter(|(rank, _)| before != Some(*rank)).map(|(_, front)| front)
    }

    /// Sets the least share in percent. Returns the new front if another waiter is the front then.
    pub(super) fn set_min_share(&mut self, min_share: u64) -> Option<&Waiter<W>> {
        self.change(|queue| {
            queue.min_share = min_share;
            if min_share == 0 {
                queue.credits = Default::default();
            }
        })
    }

    /// Notes that a request of this rank and cost passes. Returns the new front if another waiter is the front then.
    pub(super) fn pass(&mut self, rank: Rank, cost: u64) -> Option<&Waiter<W>> {
        self.change(|queue| {
            let (turn, part) = (queue.turn(cost), cost.saturating_mul(queue.min_share));
            for ((priority, credit), attending) in LOWER.iter().zip(&mut queue.credits).zip(queue.attendance) {
                *credit = if priority_of(rank) == *priority {
                    credit.saturating_sub(turn)
                } else {
                    credit.saturating_add(part)
                };
                // One turn, and the rest of one pass.
                let most = attending.cost_max.saturating_add(cost).saturating_mul(100);
                *credit = if attending.count > 0 { (*credit).min(most) } else { 0 };
            }
        })
    }

    /// Notes that a request of this rank needs `cost` units, wherever it waits.
    pub(super) fn attend(&mut self, rank: Rank, cost: u64) {
        if let Some(index) = lower_index(rank) {
            let attending = &mut self.attendance[index];
            (attending.count, attending.cost_max) = (attending.count + 1, attending.cost_max.max(cost));
        }
    }

    /// Notes that a request of this rank waits no more. Returns the new front if another waiter is the front then.
    pub(super) fn unattend(&mut self, rank: Rank) -> Option<&Waiter<W>> {
        let index = lower_index(rank)?;
        self.change(|queue| {
            let attending = &mut queue.attendance[index];
            attending.count = attending.count.saturating_sub(1);
            if attending.count == 0 {
                (attending.cost_max, queue.credits[index]) = (0, 0);
            }
        })
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
        backlog.cost_max = backlog.cost_max.max(waiter.cost);
        self.waiters.insert(rank, waiter);
        let next = self.front_with(None);
        let changed = if next == Some(rank) { front } else { next.filter(|_| next != front) };
        changed.and_then(|rank| self.waiters.get(&rank)).map(|waiter| &waiter.wake)
    }

    /// Removes a waiter. Returns the new front if another waiter is the front then: also if the waiter was not the front, as
    /// one behind it may cost no more than its priority has credit for.
    pub(super) fn cancel(&mut self, rank: Rank) -> Option<&Waiter<W>> {
        self.change(|queue| {
            let Some(waiter) = queue.waiters.remove(&rank) else { return };
            let backlog = &mut queue.backlogs[priority_of(rank) as usize];
            *backlog = if backlog.waiting > 1 { backlog.without(waiter.cost) } else { Backlog::default() };
        })
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
mod tests;
