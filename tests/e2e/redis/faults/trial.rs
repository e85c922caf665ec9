//! Load on three replicas before, during and after a fault, and what the clients saw of it.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::Fault;
use crate::ops::{count_lines, until};
use crate::redis::{REPLICAS, shared};
use crate::support::{Fleet, Samples, Upstream, Weir};

/// The words of the log when a replica begins to decide without a node, or with it again.
const CHANGE: &str = "a node of a store ";

/// The longest time from the end of a fault until Redis decides.
pub const RECOVERY: Duration = Duration::from_secs(2);

/// The sizes of a trial.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Clients at once.
    pub clients: usize,
    /// The least time between two requests of a client.
    pub pace_ms: u64,
    /// The time before the fault.
    pub before_ms: u64,
    /// The shortest time from the begin of the fault to its end. The fault also lasts until enough requests have passed.
    pub during_ms: u64,
    /// The timeout of the store.
    pub timeout_ms: u64,
    /// The delay of a slow server.
    pub slow_ms: u64,
    /// The units of all keys. Load must not spend all of them before the end of the fault.
    pub budget: u64,
}

impl Sizes {
    /// The requests that pass in such a time of a fault at least: twice as many as if each waited for the timeout, but no
    /// more than a busy machine answers.
    fn passes_min(&self, time: Duration) -> f64 {
        let of_requests_each = |ms: u64| self.clients as f64 * time.as_secs_f64() * 1000.0 / ms as f64;
        (2.0 * of_requests_each(self.timeout_ms)).min(of_requests_each(self.pace_ms) / 4.0)
    }
}

/// What the clients saw.
#[derive(Clone, Debug)]
pub struct Report {
    pub requests: usize,
    /// Requests without an answer, or with a status other than 200 and 429.
    pub errors: usize,
    /// Requests that passed beyond the budget of their keys.
    pub over: u64,
    /// Units that no request got.
    pub unused: u64,
    /// From the end of the fault to the instant from which all replicas say that Redis decides.
    pub noticed: Duration,
    /// From the end of the fault to the last decision without Redis, also if only a machine that is busy made it late.
    pub recovery: Duration,
    /// The slowest request of the first half second of the fault.
    pub learning: Duration,
    /// Requests that may pass beyond the budget, or lose their unit: those in flight each time that a replica began to
    /// decide without a node, or with it again. It does not know yet what the others have charged.
    pub in_flight: u64,
    /// Percentiles 50 and 99 before the fault.
    pub before: [Duration; 2],
    /// Percentiles 50 and 99 during the fault, after its first half second.
    pub during: [Duration; 2],
    /// Percentiles 50 and 99 after the recovery.
    pub after: [Duration; 2],
    /// Decisions without Redis.
    pub fallbacks: f64,
}

/// Runs the trial of a fault.
pub fn trial(fault: &mut dyn Fault, upstream: &Upstream, sizes: &Sizes) -> Report {
    let budget = sizes.budget / fault.keys() as u64;
    let store = format!("{}\ntimeout = \"{}ms\"\n", fault.store(), sizes.timeout_ms);
    let limit = fault.limit().replace("BUDGET", &budget.to_string());
    let limit = format!("[[limit]]\nname = \"each\"\nkey = [\"path\"]\n{limit}\n");
    let fleet = fault.fleet(&Weir::config(upstream, "", &shared(&store, &limit)));
    fleet.wait_for_stores(true);
    let targets: Vec<String> = (0..fault.keys()).map(|key| format!("/{key}")).collect();
    let all = || fleet.fallbacks();

    let start = Instant::now();
    let (mut begun, mut ended, mut noticed, mut last, mut quiet) = (start, start, start, start, start);
    let pace = Duration::from_millis(sizes.pace_ms);
    let samples = fleet.during(sizes.clients, pace, &targets, || {
        wait(Duration::from_millis(sizes.before_ms));
        begun = Instant::now();
        let before = upstream.received_count();
        fault.begin();
        wait(Duration::from_millis(sizes.during_ms).saturating_sub(begun.elapsed()));
        until("requests do not wait for the timeout", || {
            wait(Duration::from_millis(20));
            (upstream.received_count() - before) as f64 > sizes.passes_min(begun.elapsed())
        });
        fault.end();
        ended = Instant::now();
        fleet.wait_for_stores(true);
        noticed = Instant::now();
        last = last_change(all, ended);
        // Nobody reads metrics now, as before the fault.
        quiet = Instant::now();
        wait(Duration::from_millis(sizes.before_ms));
    });
    let fallbacks = all();
    let rest = spend_rest(&fleet, sizes, &targets, fault.lends_for());
    let half = begun + Duration::from_millis(500);
    let changes: usize = fleet.weirs.iter().map(|weir| count_lines(weir, CHANGE)).sum();
    let percentiles = |samples: Samples| [50, 99].map(|percent| samples.percentile(percent));
    let mut passed = HashMap::<String, u64>::new();
    for target in upstream.targets() {
        *passed.entry(target).or_default() += 1;
    }
    let wrong = |samples: &Samples| samples.0.len() - samples.count(200) - samples.count(429);
    Report {
        requests: samples.0.len() + rest.0.len(),
        errors: wrong(&samples) + wrong(&rest),
        over: passed.values().map(|passed| passed.saturating_sub(budget)).sum(),
        unused: passed.values().map(|passed| budget.saturating_sub(*passed)).sum(),
        noticed: noticed - ended,
        recovery: last - ended,
        learning: samples.between(begun, half).percentile(100),
        in_flight: (sizes.clients * changes.max(2 * REPLICAS)) as u64,
        before: percentiles(samples.between(start + Duration::from_millis(sizes.before_ms / 3), begun)),
        during: percentiles(samples.between(half.min(ended), ended)),
        after: percentiles(samples.between(quiet, quiet + Duration::from_millis(sizes.before_ms))),
        fallbacks,
    }
}

/// Spends what is left.
fn spend_rest(fleet: &Fleet, sizes: &Sizes, targets: &[String], lends_for: Duration) -> Samples {
    let mut rest = Samples::default();
    let step = (8 * targets.len()).max(usize::try_from(sizes.budget / 10).unwrap());
    let mut spends = || {
        let more = fleet.ask(step, sizes.clients, targets);
        let has_passed = more.passed() > 0;
        rest.0.extend(more.0);
        has_passed
    };
    loop {
        while spends() {}
        // What replicas have borrowed goes back.
        wait(lends_for);
        if lends_for.is_zero() || !spends() {
            return rest;
        }
    }
}

/// Reads a count until it has not changed for a while, and returns the instant of its last change, or `since`.
fn last_change(count: impl Fn() -> f64, since: Instant) -> Instant {
    const QUIET: Duration = Duration::from_millis(900);
    const LONGEST: Duration = Duration::from_secs(10);
    let (mut before, mut last) = (count(), since);
    while last.elapsed().max(since.elapsed().saturating_sub(LONGEST)) < QUIET {
        wait(Duration::from_millis(100));
        let now = count();
        if now != before {
            (before, last) = (now, Instant::now());
        }
    }
    last
}

fn wait(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, errors, over, unused, noticed, recovery, learning, .. } = self;
        let Self { before, during, after, fallbacks, .. } = self;
        write!(
            f,
            "{requests} requests, {errors} errors, {over} over, {unused} unused, {fallbacks} without Redis, noticed \
             after {noticed:.1?}, recovery {recovery:.1?}, learning {learning:.1?}, before {before:.1?}, during {during:.1?}, after {after:.1?}"
        )
    }
}
