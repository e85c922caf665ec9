//! Clients that wait as `Retry-After` asks them to, and when they return.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::base::split_mix::{STEP, mix};

const CLIENTS: u64 = 10_000;
const BIN_NS: u64 = 100 * MS_NS;

/// Sends a request of each client within the first `spread_ns`, and again as often as it is refused. Returns the most
/// returns in 100 ms of each of the next `rounds` windows of a minute, and their mean over the time in which clients return.
fn peaks(rule: &str, jitter_percent: u8, spread_ns: u64, rounds: usize, seed: u64) -> Vec<(u64, u64)> {
    let clock = Clock::start_at(Timestamp::from_ns(seed << 50));
    let gate = gate_of(clock);
    let allowed = Allowed::to_all(algorithm(rule));
    let limit = Limit { key: Vec::new(), allowed, jitter_percent, ..limit("a", 1, "1s", 1, OnLimit::Reject) };
    let live = install(gate, [limit], CAPS);
    let words = headers(&["a=k"]);
    let began = clock.now();
    let facts = facts(&words);
    let random = |client: u64| mix(STEP.wrapping_mul(client + 1).wrapping_add(seed)) % spread_ns;
    let mut due: BinaryHeap<_> = (0..CLIENTS).map(|client| Reverse((random(client), false))).collect();
    let mut returns: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); rounds + 1];
    while let Some(Reverse((at_ns, has_waited))) = due.pop() {
        let window = usize::try_from(at_ns / 60_000_000_000).unwrap();
        if window > rounds {
            break;
        }
        if has_waited {
            *returns[window].entry(at_ns / BIN_NS).or_default() += 1;
        }
        match gate.admit(live, Stage::Identified, &facts, || 100, began.saturating_add_ns(at_ns)).unwrap() {
            Step::Pass(mut pass) => pass.charged.commit(true),
            Step::Refuse(refusal) => {
                let retry_ns = refusal.retry_after_s().unwrap() * 1_000_000_000;
                due.push(Reverse((at_ns + retry_ns, true)));
            }
            step => panic!("{step:?}"),
        }
    }
    let peak = |bins: &BTreeMap<u64, u64>| {
        let (first, last) = (bins.keys().next()?, bins.keys().next_back()?);
        Some((*bins.values().max()?, bins.values().sum::<u64>() / (last - first + 1)))
    };
    returns.iter().skip(1).filter_map(peak).collect()
}

/// Of 10,000 clients that one window refuses, no 100 ms bring back more than three times the mean. Without jitter they
/// do not keep apart.
#[tokio::test(start_paused = true)]
async fn clients_do_not_return_together() {
    const MINUTE_NS: u64 = 60_000_000_000;
    let rule = "fixed_window 1000/1min from first";
    for (seed, spread_ns) in [(30, MINUTE_NS), (31, MINUTE_NS / 60)] {
        let with = peaks(rule, 20, spread_ns, 4, seed);
        let without = peaks(rule, 0, spread_ns, 4, seed);
        assert_eq!((with.len(), without.len()), (4, 4));
        for ((peak, mean), (peak_without, _)) in with.into_iter().zip(without) {
            assert!(peak <= mean * 3, "{peak} of {mean}, spread {spread_ns}, seed {seed}");
            assert!(peak_without > peak * 3, "{peak_without} and {peak}, spread {spread_ns}, seed {seed}");
        }
    }
}

/// If a limit of an earlier stage has the longer wait, its part of that wait is added.
#[tokio::test(start_paused = true)]
async fn the_limit_with_the_wait_decides_the_jitter() {
    let gate = gate_of(Clock::start_at(Timestamp::from_ns(1 << 60)));
    let outer = Limit { stage: Stage::Arrival, ..limit("a", 1, "100s", 1, OnLimit::Reject) };
    let inner = Limit { jitter_percent: 100, ..limit("b", 1, "1s", 1, OnLimit::Reject) };
    let live = install(gate, [outer, inner], CAPS);
    let words = headers(&["a=k", "b=k"]);
    let step = |stage| gate.admit(live, stage, &facts(&words), || 100, gate.clock.now()).unwrap();
    let Step::Pass(mut arrival) = step(Stage::Arrival) else { panic!("refused") };
    arrival.charged.commit(true);
    let Step::Pass(mut first) = step(Stage::Identified) else { panic!("refused") };
    first.charged.commit(true);
    for (percent, most_s) in [(0, 100), (20, 121)] {
        let Step::Refuse(refusal) = step(Stage::Identified) else { panic!("admitted") };
        let refusal = refusal.charged_before(arrival.standing, Vec::new(), |limit| {
            assert_eq!(limit, "a");
            percent
        });
        assert_eq!(refusal.retry, Retry::AfterNs(100_000 * MS_NS));
        assert_eq!(refusal.jitter.ns > 0, percent > 0, "{refusal:?}");
        assert!((100..=most_s).contains(&refusal.retry_after_s().unwrap()), "{refusal:?}");
    }
}
