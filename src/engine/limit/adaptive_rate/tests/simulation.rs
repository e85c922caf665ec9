//! A limit in front of a service with a queue, in virtual time. The numbers are in `docs/decisions/algorithms.md`.
//!
//! Clients ask at random, whatever happens to their requests. What the limit does not admit is refused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::{Controller, Rule, Signal, Usage, WHOLE};
use crate::base::time::Timestamp;
use crate::engine::limit::tests::Times;
use crate::testing::picture::{self, Line};

/// The service: 20 workers with a mean of 50 ms have a capacity of 400 requests a second. Without a queue its p90 is 115 ms.
const WORKERS: usize = 20;
const SERVICE_S: f64 = 0.05;
const CAPACITY: f64 = 400.0;
const SEED: u64 = 20_261_128;
const TARGET_MS: f64 = 200.0;

/// What happens, as functions of the time in seconds.
#[derive(Clone, Copy)]
struct Course {
    seconds: u64,
    /// The least part of the rate, in thousandths.
    floor: u64,
    /// The written rate and the requests of clients, as parts of the capacity.
    rate: f64,
    load: fn(f64) -> f64,
    /// A multiple of the time of a request.
    slowness: fn(f64) -> f64,
}

/// A second: thousandths of the rate, answers, refusals, and the p90 in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Second {
    part: f64,
    answers: f64,
    refused: f64,
    p90_ms: f64,
}

struct Outcome(Vec<Second>);

impl Outcome {
    fn mean(&self, from: usize, to: usize, of: impl Fn(&Second) -> f64) -> f64 {
        let seconds = &self.0[from..to];
        seconds.iter().map(of).sum::<f64>() / seconds.iter().map(|_| 1.0).sum::<f64>()
    }

    /// Checks the picture of the course.
    #[track_caller]
    fn is_drawn(&self, file: &str, end: &str) {
        let line = |name, of: fn(&Second) -> f64| Line { name, values: self.0.iter().map(of).collect() };
        let part = line("part of the rate in %", |one| one.part / 10.0);
        let (answers, p90) = (line("answers per second", |one| one.answers), line("p90 in ms", |one| one.p90_ms));
        picture::shows(file, ("0", end), &[part, answers, p90]);
    }

    /// The least and the greatest part of the rate, in percent.
    fn parts(&self, from: usize, to: usize) -> (f64, f64) {
        let parts = self.0[from..to].iter().map(|second| second.part / 10.0);
        (parts.clone().fold(f64::INFINITY, f64::min), parts.fold(0.0, f64::max))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn at(seconds: f64) -> Timestamp {
    Timestamp::from_ns((seconds * 1e9) as u64)
}

#[expect(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}

/// Lets clients ask for the whole course.
fn run(course: &Course, seed: u64) -> Outcome {
    let target = at(TARGET_MS / 1000.0).as_ns();
    let rule = Rule { signal: Signal::UpstreamP90, target, floor: course.floor, ceiling: WHOLE };
    let (mut controller, mut part) = (Controller::new(rule), WHOLE);
    let (mut arrivals, mut times) = (Times(seed), Times(!seed));
    let mut free = BinaryHeap::from(vec![Reverse(0); WORKERS]);
    let mut answers: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let (mut outcome, mut arrival, mut tokens, mut filled) = (Vec::new(), 0.0, 1.0, 0.0);
    for second in 0..course.seconds {
        let end = float(second + 1);
        let (mut usage, mut latencies, mut refused) = (Usage::default(), Vec::new(), 0.0);
        while arrival < end {
            let rate = CAPACITY * course.rate * float(part) / float(WHOLE);
            let burst = rate / 10.0;
            tokens = f64::min(tokens + rate * (arrival - filled), burst);
            filled = arrival;
            usage.decided += 1;
            if tokens < burst / 2.0 {
                usage.pressed += 1;
            }
            if tokens >= 1.0 {
                tokens -= 1.0;
                let Some(Reverse(worker)) = free.pop() else { return Outcome(outcome) };
                let time = times.next(SERVICE_S * (course.slowness)(arrival));
                let done = at(time).as_ns() + at(arrival).as_ns().max(worker);
                free.push(Reverse(done));
                answers.push(Reverse((done, at(arrival).as_ns())));
            } else {
                refused += 1.0;
            }
            arrival += arrivals.next(1.0 / CAPACITY / (course.load)(arrival));
        }
        while let Some(Reverse((done, began))) = answers.peek().copied().filter(|one| one.0.0 < at(end).as_ns()) {
            answers.pop();
            let [began, done] = [began, done].map(Timestamp::from_ns);
            controller.answered(began, began, done);
            latencies.push(done.ns_since(began) / 1_000_000);
        }
        latencies.sort_unstable();
        let p90_ms = latencies.get(latencies.len() * 9 / 10).map_or(0.0, |ms| float(*ms));
        let answers = latencies.iter().map(|_| 1.0).sum();
        outcome.push(Second { part: float(part), answers, refused, p90_ms });
        controller.end_window(usage, None);
        part = controller.part();
    }
    Outcome(outcome)
}

/// A row of the table in the documentation.
fn row(name: &str, outcome: &Outcome, from: usize, to: usize) {
    let (least, greatest) = outcome.parts(from, to);
    let mean = |of: fn(&Second) -> f64| outcome.mean(from, to, of);
    let (answers, refused) = (mean(|one| one.answers), mean(|one| one.refused));
    let p90 = mean(|one| one.p90_ms);
    println!("| {name} | {from}-{to} s | {least:.0} to {greatest:.0} % | {answers:.0} | {refused:.0} | {p90:.0} ms |");
}

/// The written rate is twice the capacity; clients ask for one and a half times as much.
const STEADY: Course = Course { seconds: 1200, floor: 100, rate: 2.0, load: |_| 1.5, slowness: |_| 1.0 };

const SEEDS: [u64; 4] = [SEED, 1, 2, 3];

/// Nine of ten seconds have a rate within a tenth of the mean, at more than nine tenths of the capacity.
#[test]
fn a_constant_load_makes_no_oscillation() {
    for seed in SEEDS {
        let found = run(&STEADY, seed);
        row("constant", &found, 120, 1200);
        let mut parts: Vec<f64> = found.0[120..].iter().map(|second| second.part).collect();
        let mean = parts.iter().sum::<f64>() / 1080.0;
        parts.sort_by(f64::total_cmp);
        let (low, high) = (parts[54] / mean, parts[1026] / mean);
        let falls = found.0[120..].windows(2).filter(|two| two[1].part < two[0].part).count();
        println!("nine of ten seconds: {low:.2} to {high:.2} of the mean {mean:.0}, {falls} decreases");
        assert!(low > 0.88 && high < 1.12, "{low} {high}");
        assert!(falls <= 54, "{falls}: more than one in 20 s");
        let (answers, p90_ms) = (found.mean(120, 1200, |one| one.answers), found.mean(120, 1200, |one| one.p90_ms));
        assert!(answers > 0.9 * CAPACITY && p90_ms < TARGET_MS, "{answers} {p90_ms}");
    }
}

/// Without overload nothing changes, also if the limit refuses requests by its own rate.
#[test]
fn a_healthy_service_gets_the_whole_rate() {
    for (rate, load) in [(2.0, (|_| 0.5) as fn(f64) -> f64), (0.5, |_| 0.7)] {
        for seed in SEEDS {
            let found = run(&Course { rate, load, ..STEADY }, seed);
            assert_eq!(found.parts(0, 1200), (100.0, 100.0), "{rate}");
        }
    }
}

/// A service that is eight times as slow for a minute has its whole load again two minutes after that.
#[test]
fn a_fault_lowers_the_rate_and_its_end_raises_it() {
    let slowness = |at: f64| if (300.0..360.0).contains(&at) { 8.0 } else { 1.0 };
    let course = Course { seconds: 600, floor: 100, rate: 0.75, load: |_| 0.6, slowness };
    let fixed = run(&Course { floor: WHOLE - 1, ..course }, SEED);
    row("fault, fixed rate", &fixed, 360, 420);
    row("fault, fixed rate", &fixed, 420, 480);
    assert!(fixed.mean(420, 480, |one| one.p90_ms) > 10.0 * TARGET_MS);
    for seed in SEEDS {
        let found = run(&course, seed);
        let spans = [(0, 300), (300, 310), (310, 360), (360, 420), (420, 480), (480, 600)];
        for (from, to) in spans {
            row("fault", &found, from, to);
        }
        if seed == SEED {
            found.is_drawn("adapt-fault", "600 s: the service is eight times as slow from 300 to 360 s");
        }
        assert_eq!(found.parts(0, 300), (100.0, 100.0));
        assert!(found.parts(320, 360).1 <= 20.0, "{:?}", found.parts(320, 360));
        let [before, after] = [(0, 300), (480, 600)].map(|(from, to)| found.mean(from, to, |one| one.answers));
        assert!(after > 0.97 * before, "{before} {after}");
    }
}

/// A service that becomes slower by 60 % within half an hour gets the load that meets the target, and gets it all back in the
/// next half hour. A target that followed the baseline would admit more and more.
#[test]
fn a_drift_does_not_ratchet() {
    let slowness = |at: f64| 1.0 + 0.6 * (1.0 - ((at - 300.0) / 1800.0 - 1.0).abs()).max(0.0);
    let found = run(&Course { seconds: 4500, slowness, ..STEADY }, SEED);
    let spans = [(100, 300), (1100, 1400), (1950, 2250), (2900, 3200), (3900, 4500)];
    for (from, to) in spans {
        row("drift", &found, from, to);
    }
    found.is_drawn("adapt-drift", "75 min: the service becomes slower by 60 %, and fast again, from 5 to 65 min");
    let part = |(from, to): (usize, usize)| found.mean(from, to, |one| one.part);
    let parts = spans.map(part);
    assert!(parts[0] > parts[1] && parts[1] > parts[2] && parts[2] < parts[3] && parts[3] < parts[4], "{parts:?}");
    for (from, to) in spans {
        let p90_ms = found.mean(from, to, |one| one.p90_ms);
        assert!(p90_ms < TARGET_MS, "{from}: {p90_ms}");
    }
    assert!((0.9..1.1).contains(&(parts[4] / parts[0])), "{parts:?}");
}
