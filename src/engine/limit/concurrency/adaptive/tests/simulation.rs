//! A service in virtual time behind a bound, next to fixed bounds of half, all and twice its capacity.
//!
//! Clients ask at random, whatever happens to their requests. What the bound does not admit is refused.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::LazyLock;

use super::super::{Controller, Range};
use crate::base::time::Timestamp;
use crate::engine::limit::tests::Times;
use crate::testing::picture::{self, Line};

/// The capacity in requests at once, and the mean time of a request without a queue.
const WORKERS: f64 = 20.0;
const SERVICE_S: f64 = 0.05;
const SEED: u64 = 20_261_128;

/// How the service treats more requests than it has workers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// They wait in a queue.
    Queue,
    /// All get slower.
    Sharing,
}

/// What happens, as functions of the time in seconds. Multiples of the capacity, and of the time of a request.
#[derive(Clone, Copy)]
struct Course {
    seconds: f64,
    load: fn(f64) -> f64,
    workers: fn(f64) -> f64,
    slowness: fn(f64) -> f64,
    is_failing: fn(f64) -> bool,
}

const STEADY: Course =
    Course { seconds: 120.0, load: |_| 1.5, workers: |_| 1.0, slowness: |_| 1.0, is_failing: |_| false };

enum Bound {
    Fixed(u64),
    Found(Box<Controller>),
}

impl Bound {
    fn units(&self) -> u64 {
        match self {
            Self::Fixed(units) => *units,
            Self::Found(controller) => controller.bound(),
        }
    }
}

/// The answers: the second of each, and its latency as a multiple of the mean time without a queue. The bound in each
/// second.
#[derive(Default)]
struct Outcome {
    answers: Vec<(f64, f64)>,
    bounds: Vec<f64>,
}

impl Outcome {
    /// The answers from one second to another.
    fn between(&self, from: f64, to: f64) -> &[(f64, f64)] {
        let [from, to] = [from, to].map(|second| self.answers.partition_point(|(at, _)| *at < second));
        &self.answers[from..to]
    }

    fn goodput(&self, from: f64, to: f64) -> f64 {
        count(self.between(from, to).len()) / (to - from)
    }

    fn p99(&self, from: f64, to: f64) -> f64 {
        percentile(self.between(from, to).iter().map(|(_, latency)| *latency).collect())
    }

    /// Checks the picture of a course.
    #[track_caller]
    fn is_drawn(&self, end: &str) {
        let seconds = (0..self.bounds.len()).map(|second| (count(second), count(second + 1)));
        let answers = seconds.map(|(from, to)| self.goodput(from, to)).collect();
        let bound = Line { name: "bound", values: self.bounds.clone() };
        picture::shows("auto-step", ("0", end), &[bound, Line { name: "answers per second", values: answers }]);
    }

    /// The mean of the bound, as a multiple of the capacity.
    fn mean_bound(&self, from: usize, to: usize) -> f64 {
        let bounds = &self.bounds[from..to];
        bounds.iter().sum::<f64>() / bounds.iter().map(|_| 1.0).sum::<f64>() / WORKERS
    }
}

fn percentile(mut values: Vec<f64>) -> f64 {
    let at = values.len() * 99 / 100;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

/// A time or an amount of work, in order.
#[derive(PartialEq)]
struct Due(f64);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A service with requests in it. `work` is what each of its busy workers has done so far, in seconds.
struct Simulation {
    service: Service,
    now: f64,
    work: f64,
    busy: BinaryHeap<Reverse<(Due, usize)>>,
    queue: VecDeque<(usize, f64)>,
    failing: BinaryHeap<Reverse<(Due, usize)>>,
    /// The begins of all requests, by their ids, and the number of those that have not ended.
    began: Vec<f64>,
    open: usize,
}

impl Simulation {
    fn has_worker(&self, workers: f64) -> bool {
        self.service == Service::Sharing || count(self.busy.len()) + 1.0 <= workers
    }

    /// The work of each request in a second.
    fn speed(&self, workers: f64) -> f64 {
        match self.service {
            Service::Queue => 1.0,
            Service::Sharing => (workers / count(self.busy.len()).max(1.0)).min(1.0),
        }
    }

    fn start_waiting(&mut self, workers: f64) {
        while self.has_worker(workers) {
            let Some((id, time)) = self.queue.pop_front() else { return };
            self.busy.push(Reverse((Due(self.work + time), id)));
        }
    }

    fn accept(&mut self, time: f64, course: &Course) {
        let id = self.began.len();
        self.began.push(self.now);
        self.open += 1;
        if (course.is_failing)(self.now) {
            self.failing.push(Reverse((Due(self.now + 0.002), id)));
        } else {
            self.queue.push_back((id, time));
            self.start_waiting((course.workers)(self.now) * WORKERS);
        }
    }
}

#[expect(clippy::cast_precision_loss)]
fn count(number: usize) -> f64 {
    number as f64
}

/// Lets clients ask for the whole course.
#[expect(clippy::float_cmp)] // the next instant is one of them
fn run(service: Service, course: &Course, mut bound: Bound, seed: u64) -> Outcome {
    let (mut arrivals, mut times) = (Times(seed), Times(!seed));
    let mut sim = Simulation {
        service,
        now: 0.0,
        work: 0.0,
        busy: BinaryHeap::new(),
        queue: VecDeque::new(),
        failing: BinaryHeap::new(),
        began: Vec::new(),
        open: 0,
    };
    let (mut outcome, mut arrival, mut second) = (Outcome::default(), 0.0, 0.0);
    while sim.now < course.seconds {
        let workers = (course.workers)(sim.now) * WORKERS;
        let speed = sim.speed(workers);
        let done =
            sim.busy.peek().map_or(f64::INFINITY, |Reverse((work, _))| sim.now + (work.0 - sim.work).max(0.0) / speed);
        let failed = sim.failing.peek().map_or(f64::INFINITY, |Reverse((at, _))| at.0);
        let next = done.min(failed).min(arrival).min(second);
        sim.work += (next - sim.now) * speed;
        sim.now = next;
        if next == second {
            outcome.bounds.push(units(bound.units()));
            second += 1.0;
            sim.start_waiting(workers);
        } else if next == arrival {
            arrival += arrivals.next(SERVICE_S / WORKERS / (course.load)(next));
            let time = times.next(SERVICE_S * (course.slowness)(next));
            if count(sim.open) < units(bound.units()) {
                sim.accept(time, course);
            }
        } else {
            let from = if next == failed { &mut sim.failing } else { &mut sim.busy };
            let Some(Reverse((_, ended))) = from.pop() else { break };
            sim.start_waiting(workers);
            answer(&mut sim, &mut bound, &mut outcome, (ended, next == failed), course);
        }
    }
    outcome
}

#[expect(clippy::cast_precision_loss)]
fn units(bound: u64) -> f64 {
    bound as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn answer(
    sim: &mut Simulation,
    bound: &mut Bound,
    outcome: &mut Outcome,
    (id, has_failed): (usize, bool),
    course: &Course,
) {
    let is_full = count(sim.open) >= units(bound.units());
    sim.open -= 1;
    let began = sim.began[id];
    let (latency, now) = (sim.now - began, Timestamp::from_ns(ns(sim.now)));
    match bound {
        Bound::Found(controller) if has_failed => controller.failed(now),
        Bound::Found(controller) => controller.answered(ns(latency), is_full, now),
        Bound::Fixed(_) => {}
    }
    if !has_failed {
        outcome.answers.push((sim.now, latency / SERVICE_S / (course.slowness)(began)));
    }
}

/// The bound begins at three quarters of the capacity, and may fall to a quarter.
fn found(service: Service, course: &Course, seed: u64) -> Outcome {
    let mut controller = Controller::new(Range { floor: 15, ceiling: 400 }, Timestamp::ZERO);
    controller.set_range(Range { floor: 5, ceiling: 400 }, Timestamp::ZERO);
    run(service, course, Bound::Found(Box::new(controller)), seed)
}

/// The 99th percentile of a service without load.
static IDLE_P99: LazyLock<f64> = LazyLock::new(|| {
    let mut times = Times(SEED);
    percentile((0..100_000).map(|_| times.next(1.0)).collect())
});

/// At least 95 % of the goodput of the best fixed bound, with a p99 of at most twice that of the idle service.
fn compare(service: Service) {
    let courses: [(&str, Course); 7] = [
        ("constant", STEADY),
        (
            "step",
            Course { seconds: 180.0, workers: |at| if (60.0..120.0).contains(&at) { 0.5 } else { 1.0 }, ..STEADY },
        ),
        ("loss", Course { seconds: 180.0, workers: |at| if at < 60.0 { 1.0 } else { 0.25 }, ..STEADY }),
        ("step of the load", Course { load: |at| if (40.0..80.0).contains(&at) { 2.0 } else { 0.5 }, ..STEADY }),
        ("ramp", Course { workers: |at| 1.0 - 0.5 * (1.0 - (at - 60.0).abs() / 40.0).max(0.0), ..STEADY }),
        ("leak", Course { seconds: 330.0, workers: |at| 1.0 - 0.5 * (at / 300.0).min(1.0), ..STEADY }),
        ("drift", Course { seconds: 330.0, slowness: |at| 1.0 + (at / 300.0).min(1.0), ..STEADY }),
    ];
    for (name, course) in courses {
        compare_in(service, name, &course, SEED);
    }
    let (_, loss) = courses[2];
    for seed in 1..=3 {
        compare_in(service, "loss", &loss, seed);
    }
}

fn compare_in(service: Service, name: &str, course: &Course, seed: u64) {
    let all = course.seconds;
    let fixed = [10, 20, 40].map(|units| run(service, course, Bound::Fixed(units), seed).goodput(0.0, all));
    let (best, found) = (fixed.into_iter().fold(0.0, f64::max), found(service, course, seed));
    let (goodput, p99) = (found.goodput(0.0, all) / best, found.p99(0.0, all) / *IDLE_P99);
    println!(
        "{service:?}, {name}, seed {seed}: fixed {fixed:.0?}, goodput {goodput:.3}, p99 {p99:.2}, bound {:.2}",
        found.mean_bound(20, found.bounds.len())
    );
    if (service, name, seed) == (Service::Queue, "step", SEED) {
        found.is_drawn("180 s: from 60 to 120 s the service has half of its workers");
    }
    assert!(goodput >= 0.95, "{service:?}, {name}, seed {seed}: {goodput}");
    assert!(p99 <= 2.0, "{service:?}, {name}, seed {seed}: {p99}");
}

/// All requests take three times as long for five seconds, again and again. Tests of that cost a tenth at most.
#[test]
fn spells_of_slow_answers_are_no_queue() {
    let slowness = |at: f64| if at % 15.0 < 5.0 { 3.0 } else { 1.0 };
    let course = Course { seconds: 180.0, slowness, ..STEADY };
    for service in [Service::Queue, Service::Sharing] {
        let fixed = run(service, &course, Bound::Fixed(20), SEED).goodput(0.0, 180.0);
        let found = found(service, &course, SEED).goodput(0.0, 180.0);
        println!("{service:?}: goodput {:.3}", found / fixed);
        assert!(found >= 0.9 * fixed, "{service:?}: {found} {fixed}");
    }
}

#[test]
fn a_service_with_a_queue_is_used_and_not_filled() {
    compare(Service::Queue);
}

#[test]
fn a_service_whose_requests_share_its_workers_is_used_and_not_filled() {
    compare(Service::Sharing);
}

#[test]
fn ten_minutes_of_mild_overload_end_where_they_began() {
    let load = |at| if (60.0..660.0).contains(&at) { 1.1 } else { 0.5 };
    for service in [Service::Queue, Service::Sharing] {
        let found = found(service, &Course { seconds: 720.0, load, ..STEADY }, SEED);
        let (first, last) = (found.mean_bound(120, 180), found.mean_bound(600, 660));
        let p99 = [(0.0, 60.0), (120.0, 180.0), (600.0, 660.0), (660.0, 720.0)]
            .map(|(from, to)| found.p99(from, to) / *IDLE_P99);
        let goodput = [(120.0, 180.0), (600.0, 660.0)].map(|(from, to)| found.goodput(from, to));
        println!("{service:?}: bound {first:.2} {last:.2}, p99 {p99:.2?}, goodput {goodput:.0?}");
        assert!((0.6..1.6).contains(&(last / first)), "{service:?}: {first} {last}");
        assert!(p99[2] <= 2.0 && p99[3] <= p99[0] * 1.2, "{service:?}: {p99:?}");
        assert!(goodput[1] >= 0.95 * goodput[0], "{service:?}: {goodput:?}");
    }
}

/// The bound stays near the capacity under constant load.
#[test]
fn a_constant_load_makes_no_oscillation() {
    for service in [Service::Queue, Service::Sharing] {
        let found = found(service, &Course { seconds: 300.0, ..STEADY }, SEED);
        let bounds = &found.bounds[60..];
        let [least, greatest] = [f64::min, f64::max].map(|of| bounds.iter().copied().reduce(of).unwrap() / WORKERS);
        println!("{service:?}: bound {least:.2} to {greatest:.2}");
        assert!(least >= 0.8 && greatest <= 2.5, "{service:?}: {least} {greatest}");
    }
}

/// After ten seconds of errors, and of no answer at all, the service gets its load again.
#[test]
fn a_service_is_used_again_after_a_fault() {
    let failing = Course { is_failing: |at| (60.0..70.0).contains(&at), ..STEADY };
    let hanging = Course { workers: |at| if (60.0..70.0).contains(&at) { 0.0 } else { 1.0 }, ..STEADY };
    for (name, course) in [("errors", failing), ("no answers", hanging)] {
        let found = found(Service::Queue, &course, SEED);
        let (before, after) = (found.goodput(40.0, 60.0), found.goodput(80.0, 100.0));
        println!("{name}: goodput {before:.0} {after:.0}");
        assert!(after >= 0.95 * before, "{name}: {before} {after}");
    }
}
