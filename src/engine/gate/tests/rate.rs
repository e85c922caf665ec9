//! Waiting requests pass at the rate of their limits, in order and within every bound, although timers fire late.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::time::{sleep_until, timeout};

use super::redis::NoStore;
use super::{CAPS, MS_NS, Usage, ask, assert_at_rest, gate_of, headers, install, limit, ns};
use crate::base::time::{Clock, Timestamp};
use crate::engine::gate::{HoldCaps, Step};
use crate::engine::limit::fixed_window::Windows;
use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::properties::{Trace, instants, singles, traces};
use crate::engine::limit::tests::{START_NS, algorithm};
use crate::engine::limit::{Algorithm, AnyState, BACKDATE_NS_MAX, Calendar, Retry};
use crate::engine::policy::{Allowed, Cost, HoldRule, Limit, OnLimit};

/// By how much timers fire late in these tests.
const LATE_NS_MAX: u64 = 2 * MS_NS;

/// The additional delay by the millisecond ticks of the runtime.
const LATE_IN_ALL_NS_MAX: u64 = LATE_NS_MAX + MS_NS;

/// More requests than any test lets wait.
const ROOM: HoldCaps = HoldCaps { all: Usage { count: 1 << 20, bytes: 1 << 30 }, per_client: CAPS.per_client };
const EVERYBODY: HoldCaps = HoldCaps { per_client: ROOM.all, ..ROOM };

/// A limit that holds requests with the header `a`.
fn holding(rule: Algorithm, cost: u64, max_wait_ns: Option<u64>) -> Limit {
    let hold = OnLimit::Hold(HoldRule { max_wait_ns, max_waiting: 1 << 20 });
    Limit { allowed: Allowed::to_all(rule), cost: Cost::Units(cost), ..limit("a", 1, "1s", 1, hold) }
}

/// The instants at which a request arrived and passed, in nanoseconds since the start; the latter is missing if it was
/// refused.
type Ends = Vec<(u64, Result<u64, u64>)>;

/// Sends requests to one limit, each `(instant, key)` in order of time, under timers that fire late.
fn run(limit: &Limit, requests: &[(u64, u64)], seed: u64) -> Ends {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let exact = Clock::start_at(Timestamp::from_ns(START_NS));
        let gate = gate_of(exact.with_late_timers(seed, LATE_NS_MAX));
        let live = install(gate, [limit.clone()], EVERYBODY);
        let start = exact.now();
        let ends: Arc<Mutex<Ends>> = Arc::default();
        let mut tasks = Vec::new();
        for (came_ns, key) in requests {
            // An exact instant: the runtime's ticks are too coarse.
            let came = start.saturating_add_ns(*came_ns);
            sleep_until(exact.instant(came)).await;
            let came_ns = exact.now().ns_since(start);
            let ends = Arc::clone(&ends);
            let end = move |end: Result<(), ()>| {
                let now_ns = exact.now().ns_since(start);
                ends.lock().unwrap().push((came_ns, end.map(|()| now_ns).map_err(|()| now_ns)));
            };
            match ask(gate, live, &headers(&[&format!("a={key}")])) {
                Step::Pass(mut pass) => {
                    pass.charged.commit(true);
                    end(Ok(()));
                }
                Step::Refuse(_) => end(Err(())),
                Step::Wait(waiting) => tasks.push(tokio::spawn(async move {
                    let answer = waiting.wait(&NoStore).await;
                    end(answer.map(|mut pass| pass.charged.commit(true)).map_err(drop));
                })),
                Step::Delay(_) | Step::Ask(_) => panic!("nothing delays"),
            }
        }
        for task in tasks {
            timeout(Duration::from_hours(24 * 365), task).await.unwrap_or_else(|_| panic!("one is stuck")).unwrap();
        }
        assert_at_rest(gate, live);
        std::mem::take(&mut *ends.lock().unwrap())
    })
}

/// Rows: a limit, the keys that share its load, and how many requests of each key come at once.
#[test]
fn a_queue_keeps_the_rate_of_its_limit() {
    let rows = "
        token_bucket 1/1s burst 1              keys 1   each 20
        token_bucket 10/1s burst 1             keys 1   each 50
        token_bucket 100/1s burst 1            keys 1   each 200
        token_bucket 500/1s burst 1            keys 1   each 500
        token_bucket 1000/1s burst 1           keys 1   each 1000
        token_bucket 2000/1s burst 1           keys 1   each 2000
        token_bucket 10000/1s burst 1          keys 1   each 10000
        token_bucket 4000/1s burst 100         keys 1   each 4000
        token_bucket 60/1min burst 1           keys 50  each 20
        token_bucket 1000/1s burst 1           keys 4   each 1000
        token_bucket 3333/1s burst 1           keys 3   each 1500
        leaky_bucket 1/1s burst 99 shapes      keys 1   each 20
        leaky_bucket 100/1s burst 999 shapes   keys 1   each 200
        leaky_bucket 1000/1s burst 999 shapes  keys 2   each 900
        leaky_bucket 4000/1s burst 99 shapes   keys 2   each 2000
        sliding_log 1/1s                       keys 1   each 20
        sliding_log 1/10ms                     keys 2   each 200
        sliding_log 1/1ms                      keys 2   each 1000
        sliding_log 20/10ms                    keys 1   each 2000
        fixed_window 1/10ms from first         keys 2   each 200
        fixed_window 1/1ms from first          keys 2   each 1000
        fixed_window 10 per 20 ms UTC          keys 2   each 1000
        sliding_window 10/10ms                 keys 2   each 1000
        sub_window 10/100ms in 10              keys 2   each 1000
    ";
    for (row, seed) in rows.lines().map(str::trim).filter(|row| !row.is_empty()).zip(1..) {
        let (rule, load) = row.split_once("keys").unwrap();
        let rule = algorithm(rule);
        let (keys, each) = load.split_once("each").unwrap();
        let (keys, each): (u64, u64) = (keys.trim().parse().unwrap(), each.trim().parse().unwrap());
        let requests: Vec<_> = (0..keys * each).map(|number| (0, number % keys)).collect();
        let passed = run(&holding(rule.clone(), 1, None), &requests, seed);
        let last_ns = passed.iter().map(|(_, end)| end.unwrap()).max().unwrap();
        let due_ns = due(&rule, &requests[..usize::try_from(each).unwrap()].iter().map(|_| (0, 1)).collect::<Vec<_>>());
        let due_ns = *due_ns.last().unwrap();
        assert!(last_ns * 99 <= due_ns * 100 + 99 * LATE_IN_ALL_NS_MAX, "{row}, seed {seed}: {last_ns} for {due_ns}");
        assert!(last_ns >= due_ns, "{row}, seed {seed}: too fast, {last_ns} for {due_ns}");
    }
}

/// When requests of one key pass if timers are exact, for the nanoseconds at which they come and their costs.
fn due(rule: &Algorithm, requests: &[(u64, u64)]) -> Vec<u64> {
    let (mut state, start, mut at_ns) = (AnyState::fresh(rule), Timestamp::from_ns(START_NS), 0);
    let pass = |(came_ns, cost): &(u64, u64)| {
        at_ns = at_ns.max(*came_ns);
        if let Some(Retry::AfterNs(ns)) = state.peek(rule, *cost, start.saturating_add_ns(at_ns)).denied {
            at_ns += ns;
        }
        assert!(state.admit(rule, *cost, start.saturating_add_ns(at_ns)).is_admitted());
        at_ns
    };
    requests.iter().map(pass).collect()
}

/// 900 requests at once, which a limit of 1000/s may hold for a second.
#[test]
fn nobody_is_queued_who_is_refused_later() {
    for (rate, max_wait, came, served) in [
        ("1000/1s", "1s", 900, 900),
        ("1000/1s", "1s", 5000, 1001),
        ("100/1s", "250ms", 60, 26),
        ("10000/1s", "200ms", 2500, 2001),
        ("7/1s", "1s", 20, 7),
    ] {
        for (kind, seed) in ["token_bucket RATE burst 1", "leaky_bucket RATE burst 9999 shapes"].iter().zip(7..) {
            let rule = algorithm(&kind.replace("RATE", rate));
            let ends = run(&holding(rule, 1, Some(ns(max_wait))), &vec![(0, 0); came], seed);
            let refused = || ends.iter().filter_map(|(_, end)| end.err());
            assert_eq!(refused().max().unwrap_or(0), 0, "{kind} {rate}, seed {seed}: refused after a wait");
            assert_eq!(ends.len() - refused().count(), served, "{kind} {rate}, seed {seed}");
        }
    }
}

/// The instants of a trace, in nanoseconds since the start.
fn one_key(rule: &Algorithm, trace: &Trace) -> Vec<u64> {
    let start = Timestamp::from_ns(START_NS);
    instants(rule, trace, start).into_iter().map(|(at, _)| at.ns_since(start)).collect()
}

/// Whether windows are the same for all keys, so that a late request may fall into a later window.
fn has_grid(rule: &Algorithm) -> bool {
    matches!(rule, Algorithm::SubWindow(_)) || calendar(rule).is_some()
}

fn calendar(rule: &Algorithm) -> Option<&Calendar> {
    let Algorithm::FixedWindow(rule) = rule else { return None };
    match rule.windows() {
        Windows::Calendar(calendar) => Some(calendar),
        Windows::FromFirst(_) => None,
    }
}

/// Requests join while those before them are overdue, because timers are late.
#[test]
fn a_waiter_whose_slot_has_come_passes_with_those_before_it() {
    let rule = algorithm("fixed_window 1/100us from first");
    let steps = [57, 37, 41, 6, 4, 8, 0, 0, 0, 2, 0, 0, 0, 0, 5];
    let requests: Vec<_> =
        one_key(&rule, &steps.map(|step| (step, 0)).to_vec()).into_iter().map(|at_ns| (at_ns, 0)).collect();
    for seed in (0..200).chain([6_048_047_629_898_033_411]) {
        let ends = run(&holding(rule.clone(), 1, None), &requests, seed);
        let came: Vec<_> = ends.iter().map(|(came_ns, _)| (*came_ns, 1)).collect();
        for ((_, end), due_ns) in ends.iter().zip(due(&rule, &came)) {
            let passed_ns = end.unwrap();
            assert!(
                (due_ns..=due_ns + LATE_IN_ALL_NS_MAX).contains(&passed_ns),
                "{due_ns} at {passed_ns}, seed {seed}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn late_timers_change_neither_order_nor_rate_nor_bound(
        rule in singles(), trace in traces(), cost in 1_u64..4, seed in any::<u64>(),
    ) {
        let cost = cost.min(rule.capacity());
        let requests: Vec<_> = one_key(&rule, &trace).into_iter().map(|at_ns| (at_ns, 0)).collect();
        let ends = run(&holding(rule.clone(), cost, None), &requests, seed);
        let passed: Vec<_> = ends.iter().map(|(came_ns, end)| (*came_ns, end.unwrap())).collect();
        prop_assert_eq!(passed.len(), requests.len());
        prop_assert!(passed.is_sorted(), "in order of arrival");
        let back_ns = if has_grid(&rule) { 0 } else { BACKDATE_NS_MAX };
        for (first, (_, from_ns)) in passed.iter().enumerate() {
            for (number, (_, to_ns)) in (1..).zip(&passed[first..]) {
                let most = rule.bound(to_ns - from_ns + back_ns);
                prop_assert!(number * cost <= most, "{} from {} to {}", number, from_ns, to_ns);
            }
        }
        if let Some(calendar) = calendar(&rule) {
            let window = |(_, ns): &(u64, u64)| calendar.end(Timestamp::from_ns(START_NS + ns));
            let windows = passed.chunk_by(|one, next| window(one) == window(next));
            let fullest = windows.map(<[_]>::len).max().unwrap_or(0) as u64 * cost;
            prop_assert!(fullest <= rule.capacity(), "{} in one window", fullest);
        }
        if !has_grid(&rule) {
            let came: Vec<_> = passed.iter().map(|(came_ns, _)| (*came_ns, cost)).collect();
            for ((_, passed_ns), due_ns) in passed.iter().zip(due(&rule, &came)) {
                prop_assert!((due_ns..=due_ns + LATE_IN_ALL_NS_MAX).contains(passed_ns), "{} at {}", due_ns, passed_ns);
            }
        }
    }
}
