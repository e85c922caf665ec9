//! The order of waiters, their shares, and the changes of the front.

use super::*;
use crate::base::split_mix::mix;
use crate::engine::limit::tests::algorithm;

fn waiter(cost: u64, wake: Rank) -> Waiter<Rank> {
    Waiter { cost, wake, timer: None }
}

#[test]
fn a_new_front_displaces_the_old_one() {
    let mut queue = WaitQueue::new(0);
    for (rank, displaced, front) in [(5, None, 5), (7, None, 5), (3, Some(5), 3), (4, None, 3), (1, Some(3), 1)] {
        assert_eq!(queue.push(rank, waiter(2, rank)).copied(), displaced, "{rank}");
        assert_eq!(queue.front().map(|(rank, waiter)| (rank, waiter.wake)), Some((front, front)), "{rank}");
    }
    assert_eq!(queue.backlog(), Backlog { waiting: 5, units: 10, passing: 5, cost_max: 2 });
}

#[test]
fn a_waiter_that_leaves_the_front_uncovers_the_next() {
    let mut queue = WaitQueue::new(0);
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
        let (mut queue, mut passed) = (WaitQueue::new(min_share), [0_u64; 3]);
        for number in 0..1000 {
            for (priority, cost) in Priority::ALL.into_iter().zip(costs) {
                queue.push(rank_of(priority, number), waiter(cost, 0));
                queue.attend(rank_of(priority, number), cost);
            }
        }
        for _ in 0..900 {
            let (rank, cost) = queue.front().map(|(rank, waiter)| (rank, waiter.cost)).unwrap();
            queue.pass(rank, cost);
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
fn a_backlog_is_that_of_its_priority_and_what_others_may_take_before() {
    let mut queue = WaitQueue::new(0);
    for (priority, count) in Priority::ALL.into_iter().zip([2, 3, 5]) {
        (0..count).for_each(|number| _ = queue.push(rank_of(priority, number), waiter(10, 0)));
    }
    let backlogs = |queue: &WaitQueue<_>| Priority::ALL.map(|priority| queue.backlog_of(priority, 1));
    assert_eq!(
        backlogs(&queue),
        [(2, 20, 2), (3, 50, 5), (5, 100, 10)].map(|(waiting, units, passing)| Backlog {
            waiting,
            units,
            passing,
            cost_max: 10
        })
    );
    assert_eq!(queue.backlog(), Backlog { waiting: 10, units: 100, passing: 10, cost_max: 10 });
    // Equal costs leave no units of windows unused, whatever their priorities.
    let window = algorithm("fixed_window 20/1s");
    let before = |queue: &WaitQueue<_>| {
        Priority::ALL
            .map(|priority| queue.backlog_of(priority, 10))
            .map(|one| (one.units_before(&window, 10), one.units))
    };
    assert_eq!(before(&queue), [20, 50, 100].map(|units| (units, units)));
    // With shares, lower ones may take units before: of 20 units 10 % of all twice, which are 2.5 units each.
    queue.set_min_share(10);
    assert_eq!(backlogs(&queue).map(|backlog| backlog.units), [24, 55, 100]);
    assert!(before(&queue).iter().all(|(before, units)| before == units), "{:?}", before(&queue));
    // 10 million units of critical ones: of 100 units a priority gets 10, so others get 9 for each of its own.
    queue.push(rank_of(Priority::Critical, 9), waiter(10_000_000, 0));
    assert_eq!(backlogs(&queue).map(|backlog| backlog.units), [10_000_100, 30 + 31 * 9, 50 + 51 * 9]);
    assert_eq!(queue.backlog_of(Priority::Background, 11).units, 50 + 61 * 9);
}

/// Rows: the costs ahead, the own cost, and the units before it in windows of 5 units.
#[test]
fn units_that_windows_leave_unused_count_unless_costs_are_equal() {
    let rows: [(&[u64], u64, u64); 7] = [
        (&[], 3, 0),
        (&[3, 3, 3], 3, 9),
        (&[1, 1, 1], 1, 3),
        // At most 2 of 5 units are left twice.
        (&[3, 3, 3], 1, 9 + 4),
        (&[1, 1, 1], 3, 3 + 2),
        // Only the first leaves units, 3 at most, and it does so once.
        (&[4, 1, 1, 1, 1, 1, 1, 1, 1], 1, 12 + 3),
        (&[1, 1, 1], 2, 3),
    ];
    let bucket = algorithm("token_bucket 5/1s");
    for (costs, cost, units) in rows {
        let mut queue = WaitQueue::new(0);
        (1..).zip(costs).for_each(|(rank, cost)| _ = queue.push(rank, waiter(*cost, rank)));
        for rule in ["fixed_window 5/1s", "sliding_log 5/1s", "sub_window 5/1s", "sliding_log 5/1s+token_bucket 9/1s"] {
            assert_eq!(queue.backlog().units_before(&algorithm(rule), cost), units, "{rule} {costs:?} {cost}");
        }
        assert_eq!(queue.backlog().units_before(&bucket, cost), costs.iter().sum::<u64>(), "{costs:?}");
    }
}

/// A request that would become the front has nobody before it; all others have. Each change of the front wakes a request.
#[test]
fn the_front_has_nobody_before_it() {
    let mut bits = 7;
    let mut next = |most: u64| {
        bits = mix(bits + 1);
        bits % most
    };
    for _ in 0..4000 {
        let mut queue = WaitQueue::new(25);
        let mut ranks = Vec::new();
        for number in 0..next(12) {
            let rank = rank_of(
                Priority::ALL[usize::try_from(next(3)).unwrap()],
                [number, 50 - number][usize::try_from(next(2)).unwrap()],
            );
            let cost = next(4);
            let front = queue.front_with(None);
            let woken = match next(6) {
                0 | 1 => {
                    let has_before = queue.has_before(rank, cost);
                    let woken = queue.push(rank, waiter(cost, rank)).copied();
                    queue.attend(rank, cost);
                    ranks.push(rank);
                    assert_eq!(has_before, !queue.is_front(rank), "{queue:?}");
                    assert_eq!(queue.has_before(rank, cost), has_before, "{queue:?}");
                    // It looks at its turn itself, and the front before learns that it is none.
                    if queue.is_front(rank) { Some(rank).filter(|_| woken == front) } else { woken }
                }
                2 | 3 => queue.pass(rank, cost + 1).map(|front| front.wake),
                4 => queue.set_min_share([0, 5, 25][usize::try_from(next(3)).unwrap()]).map(|front| front.wake),
                _ if ranks.is_empty() => None,
                _ => {
                    let rank = ranks.swap_remove(usize::try_from(next(ranks.len() as u64)).unwrap());
                    let left = queue.cancel(rank).map(|front| front.wake);
                    let now = queue.front_with(None);
                    assert_eq!(left, now.filter(|_| now != front), "{queue:?} without {rank}");
                    let unattended = queue.unattend(rank).map(|front| front.wake);
                    unattended.or(left.filter(|_| queue.front_with(None) == left))
                }
            };
            let now = queue.front_with(None);
            assert_eq!(woken, now.filter(|_| now != front), "{queue:?} before {front:?}");
        }
    }
}

/// The first waiter of a priority leaves, and the next one costs no more than the credit.
#[test]
fn a_waiter_behind_the_front_can_uncover_another_front() {
    let mut queue = WaitQueue::new(25);
    let [critical, dear, cheap] = [(Priority::Critical, 1), (Priority::Normal, 2), (Priority::Normal, 3)]
        .map(|(priority, number)| rank_of(priority, number));
    for (rank, cost) in [(critical, 1), (dear, 9), (cheap, 1)] {
        queue.push(rank, waiter(cost, rank));
        queue.attend(rank, cost);
    }
    assert!((0..4).all(|_| queue.pass(rank_of(Priority::Critical, 0), 1).is_none()) && queue.is_front(critical));
    assert_eq!(queue.cancel(dear).map(|front| front.wake), Some(cheap));
    // Without shares, credits count no more.
    assert_eq!(queue.set_min_share(0).map(|front| front.wake), Some(critical));
    assert_eq!(queue.set_min_share(25).map(|front| front.wake), None, "credits are gone");
}

#[test]
fn a_timer_that_has_fired_is_forgotten() {
    let mut queue = WaitQueue::new(0);
    let at = Timestamp::from_ns;
    queue.push(1, waiter(1, 1));
    queue.push(2, Waiter { timer: Some(at(20)), ..waiter(1, 2) });
    for (rank, now_ns, timer) in [(1, 0, None), (2, 19, Some(20)), (2, 20, None), (2, 19, None), (3, 0, None)] {
        assert_eq!(queue.timer(rank, at(now_ns)), timer.map(at), "{rank} at {now_ns}");
    }
}
