//! Random arrivals and departures, and threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::task::yield_now;
use tokio::time::{sleep, sleep_until, timeout};

use super::redis::NoStore;
use super::{CAPS, MS_NS, ask, assert_at_rest, bucket, headers, hold, install, limit, new_gate};
use crate::base::time::Timestamp;
use crate::engine::gate::{Cause, Gate, Live, Pass, Step};
use crate::engine::limit::{BACKDATE_NS_MAX, Quota};
use crate::engine::policy::{Cost, Limit};

/// A client: it arrives `gap_ms` after the client before, and leaves after `patience_ms` if it has not passed by then.
#[derive(Clone, Debug)]
struct Client {
    gap_ms: u64,
    /// Its headers: limits and keys.
    words: &'static str,
    patience_ms: Option<u64>,
    /// The milliseconds after which it gives its charge back, because its upstream cannot be reached.
    undo_ms: Option<u64>,
    /// Whether a reload that changes nothing precedes its arrival.
    reload: bool,
}

fn clients(words: &'static [&'static str], gap_ms_max: u64, undone: bool) -> impl Strategy<Value = Vec<Client>> {
    let gap_ms = prop_oneof![Just(0), 0..gap_ms_max].prop_map(|ms| ms * 10);
    let patience_ms = prop_oneof![2 => Just(None), 1 => (0_u64..400).prop_map(|ms| Some(ms * 10 + 5))];
    let undo_ms = if undone { prop::option::weighted(0.2, 0_u64..500).boxed() } else { Just(None).boxed() };
    let client = (gap_ms, prop::sample::select(words), patience_ms, undo_ms, prop::bool::weighted(0.05));
    let client = client.prop_map(|(gap_ms, words, patience_ms, undo_ms, reload)| Client {
        gap_ms,
        words,
        patience_ms,
        undo_ms,
        reload,
    });
    prop::collection::vec(client, 1..60)
}

/// The clients that passed, by index and in order, with their instants.
type Passed = Vec<(usize, Timestamp)>;

/// Runs all clients in virtual time. Panics if a client that stays never passes.
fn run(limits: &[Limit], clients: &[Client]) -> (Timestamp, Passed) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let gate = new_gate();
        let mut live = install(gate, limits.to_vec(), CAPS);
        let start = gate.clock.now();
        let passed: Arc<Mutex<Passed>> = Arc::default();
        let mut tasks = Vec::new();
        let mut now = start;
        for (index, client) in clients.iter().enumerate() {
            now = now.saturating_add_ns(client.gap_ms * MS_NS);
            sleep_until(gate.clock.instant(now)).await;
            if client.reload {
                live = install(gate, limits.to_vec(), CAPS);
            }
            tasks.push(come(gate, live, index, client, &passed));
        }
        for task in tasks {
            timeout(Duration::from_hours(24), task).await.unwrap_or_else(|_| panic!("one is stuck")).unwrap();
        }
        assert_at_rest(gate, live);
        let passed = passed.lock().unwrap().clone();
        (start, passed)
    })
}

fn come(
    gate: &'static Gate,
    live: &'static Live,
    index: usize,
    client: &Client,
    passed: &Arc<Mutex<Passed>>,
) -> JoinHandle<()> {
    let words: Vec<&str> = client.words.split(' ').collect();
    let waiting = match ask(gate, live, &headers(&words)) {
        Step::Pass(pass) => {
            passed.lock().unwrap().push((index, gate.clock.now()));
            return tokio::spawn(finish(*pass, client.undo_ms));
        }
        Step::Refuse(refusal) => panic!("{index}: {refusal:?}"),
        Step::Delay(_) | Step::Ask(_) => panic!("nothing delays"),
        Step::Wait(waiting) => waiting,
    };
    let (passed, client) = (Arc::clone(passed), client.clone());
    tokio::spawn(async move {
        let wait = async {
            let pass = waiting.wait(&NoStore).await.unwrap();
            passed.lock().unwrap().push((index, gate.clock.now()));
            pass
        };
        let pass = match client.patience_ms {
            None => Some(wait.await),
            Some(ms) => timeout(Duration::from_millis(ms), wait).await.ok(),
        };
        if let Some(pass) = pass {
            finish(*pass, client.undo_ms).await;
        }
    })
}

async fn finish(mut pass: Pass<'static>, undo_ms: Option<u64>) {
    match undo_ms {
        None => pass.charged.commit(true),
        Some(ms) => {
            sleep(Duration::from_millis(ms)).await;
            drop(pass);
        }
    }
}

/// Each unit of `slack` may have been given back twice. Charges of held requests may be backdated.
fn assert_bound(quota: &Quota, cost: u64, slack: u64, times: &[Timestamp]) {
    for (first, from) in times.iter().enumerate() {
        let mut units = 0;
        for to in &times[first..] {
            units += cost;
            assert!(
                units <= slack + quota.burst() + (to.ns_since(*from) + BACKDATE_NS_MAX) / quota.interval_ns(),
                "too many in a span"
            );
        }
    }
}

/// The milliseconds since the start at which each client of one queue should pass; none if it leaves before.
fn foreseen(quota: &Quota, cost: u64, clients: &[Client]) -> BTreeMap<usize, u64> {
    let (interval, capacity) = (quota.interval_ns() / MS_NS, quota.capacity_ns() / MS_NS);
    let (mut now, mut turn, mut full_at) = (0, 0, 0_u64);
    let mut passes = BTreeMap::new();
    for (index, client) in clients.iter().enumerate() {
        now += client.gap_ms;
        let at = (full_at + cost * interval).saturating_sub(capacity).max(turn).max(now);
        if client.patience_ms.is_none_or(|ms| now + ms > at) {
            (turn, full_at) = (at, full_at.max(at) + cost * interval);
            passes.insert(index, at);
        }
    }
    passes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn one_queue_passes_everyone_exactly_when_foreseen(
        clients in clients(&["a=k"], 20, false), burst in 1_u64..6, cost in 1_u64..4,
    ) {
        let cost = cost.min(burst);
        let limit = Limit { cost: Cost::Units(cost), ..limit("a", 10, "1s", burst, hold(None)) };
        let (start, passed) = run(std::slice::from_ref(&limit), &clients);
        let found: BTreeMap<usize, u64> =
            passed.iter().map(|(index, at)| (*index, at.ns_since(start) / MS_NS)).collect();
        prop_assert_eq!(found, foreseen(bucket(&limit).0, cost, &clients));
        prop_assert!(passed.is_sorted(), "in order of arrival");
    }

    #[test]
    fn several_limits_and_keys_pass_everyone_in_order(
        clients in clients(
            &["a=1", "a=2", "b=1", "b=2", "a=1 b=1", "a=1 b=2", "a=2 b=1", "b=1 c=1", "a=1 b=1 c=1", "c=1 a=2"], 30, true,
        ),
    ) {
        let limits = [
            Limit { cost: Cost::Units(2), ..limit("a", 7, "1s", 3, hold(None)) },
            limit("b", 3, "1s", 1, hold(None)),
            Limit { cost: Cost::Units(3), ..limit("c", 10, "1s", 5, hold(None)) },
        ];
        let (_, passed) = run(&limits, &clients);
        let mut by_words: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_key: HashMap<&str, (Vec<Timestamp>, u64)> = HashMap::new();
        for (index, at) in &passed {
            by_words.entry(clients[*index].words).or_default().push(*index);
            for key in clients[*index].words.split(' ') {
                let (kept, undone) = by_key.entry(key).or_default();
                if clients[*index].undo_ms.is_none() { kept.push(*at) } else { *undone += 1 }
            }
        }
        for (words, indexes) in by_words {
            prop_assert!(indexes.is_sorted(), "{} in order of arrival", words);
        }
        for limit in &limits {
            let keys = by_key.iter().filter(|(key, _)| key.starts_with(&*limit.name));
            for (_, (kept, undone)) in keys {
                // The first refund is exact; see `State::refund`.
                let (quota, cost) = bucket(limit);
                assert_bound(quota, cost, undone.saturating_sub(1) * cost, kept);
            }
        }
        let stayed = clients.iter().enumerate().filter(|(_, client)| client.patience_ms.is_none());
        for (index, _) in stayed {
            prop_assert!(passed.iter().any(|(who, _)| *who == index), "{} never passed", index);
        }
    }
}

/// Threads in real time. No instant is checked.
#[test]
fn two_threads_share_a_queue() {
    const EACH: usize = 250;
    let gate = new_gate();
    let limits = [limit("a", 5000, "1s", 5, hold(None)), limit("b", 6000, "1s", 5, hold(None))];
    let live = install(gate, limits, CAPS);
    let passed = AtomicUsize::new(0);
    // Every third request needs b as well, in turn with its own key and with the other thread's; every fifth leaves.
    let work = async |thread: usize| {
        let mut tasks = Vec::new();
        for number in 0..EACH {
            let other = format!("b={}", (thread + number) % 2);
            let words = if number % 3 == 0 { vec!["a=k", &other] } else { vec!["a=k"] };
            match ask(gate, live, &headers(&words)) {
                Step::Pass(mut pass) => {
                    pass.charged.commit(true);
                    passed.fetch_add(1, Ordering::Relaxed);
                }
                Step::Wait(waiting) => {
                    let task = tokio::spawn(async { waiting.wait(&NoStore).await.unwrap().charged.commit(true) });
                    tasks.push((number % 5 == 4, task));
                }
                Step::Refuse(refusal) => panic!("{refusal:?}"),
                Step::Delay(_) | Step::Ask(_) => panic!("nothing delays"),
            }
        }
        yield_now().await; // every task is polled, so that tasks that leave do so in mid-wait
        tasks.iter().filter(|(leaves, _)| *leaves).for_each(|(_, task)| task.abort());
        for (leaves, task) in tasks {
            let end = timeout(Duration::from_secs(30), task).await.unwrap_or_else(|_| panic!("one is stuck"));
            assert!(end.is_ok() || leaves);
            passed.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let work = &work;
            scope.spawn(move || Builder::new_current_thread().enable_time().build().unwrap().block_on(work(thread)));
        }
    });
    assert_eq!(passed.into_inner(), 2 * EACH);
    assert_at_rest(gate, live);
}

/// Regression: a reload removed every limit for a moment, and waiting requests passed.
#[test]
fn a_reload_admits_no_extra_request() {
    let gate = new_gate();
    let limits = [limit("a", 1, "1day", 1, hold(None))];
    let live = install(gate, limits.clone(), CAPS);
    let work = async || {
        let Step::Pass(mut pass) = ask(gate, live, &headers(&["a=k"])) else { panic!("not the first") };
        pass.charged.commit(true);
        let wait = || match ask(gate, live, &headers(&["a=k"])) {
            Step::Wait(waiting) => tokio::spawn(waiting.wait(&NoStore)),
            other => panic!("{other:?}"),
        };
        let tasks: Vec<_> = (0..20).map(|_| wait()).collect();
        std::thread::spawn(move || {
            (0..1000).for_each(|_| _ = install(gate, limits.clone(), CAPS));
            gate.close();
        });
        for task in tasks {
            let end = timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
            assert_eq!(end.unwrap_err().cause, Cause::ShuttingDown);
        }
    };
    Builder::new_current_thread().enable_time().build().unwrap().block_on(work());
    assert_at_rest(gate, live);
}
