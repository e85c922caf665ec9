//! The controller over a service whose latency is exact, and over simulated ones.

use std::ops::RangeInclusive;

use super::{Controller, Range};
use crate::base::time::Timestamp;

mod simulation;

const MS_NS: u64 = 1_000_000;

/// Answers of a service with so many workers to so many requests at once: in a queue they take longer.
struct Answers {
    workers: u64,
    ms: u64,
    /// Whether all requests come that the bound admits.
    is_full: bool,
    is_failing: bool,
}

/// Lets `answers` come for so many seconds.
fn run(controller: &mut Controller, now: &mut u64, seconds: u64, answers: &Answers) {
    let end = *now + seconds * 1000 * MS_NS;
    while *now < end {
        let in_flight = controller.bound();
        let latency_ns = answers.ms * MS_NS * in_flight.max(answers.workers) / answers.workers;
        *now += latency_ns.div_ceil(in_flight);
        let at = Timestamp::from_ns(*now);
        if answers.is_failing { controller.failed(at) } else { controller.answered(latency_ns, answers.is_full, at) }
    }
}

#[test]
fn the_bound_follows_the_workers() {
    let (mut controller, mut now) = (Controller::new(Range { floor: 10, ceiling: 100 }, Timestamp::ZERO), 0);
    let rows = "
        # for   workers  ms    load   bound
          60s   40       100   idle   10..11
          60s   40       100   full   36..70
          600s  20       100   full   18..30
          60s   20       100   idle   18..30
        # slower answers are no queue
          99s   20       300   full   18..30
          99s   20       900   full   18..30
        # a failure of the service, and its end
          9s    20       100   fails  10..11
          9s    20       100   full   14..30
        # many workers, and few
          300s  1000     100   full   90..100
          900s  1        1     full   10..12
        # answers in no time
          60s   20       0     full   10..100
    ";
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<_> = row.split_whitespace().collect();
        let number = |text: &str| text.trim_end_matches('s').parse::<u64>().unwrap();
        let [seconds, workers, ms, load, bound] = cells[..] else { panic!("{row}") };
        let answers =
            Answers { workers: number(workers), ms: number(ms), is_full: load == "full", is_failing: load == "fails" };
        if answers.ms == 0 {
            // The clock goes on by itself.
            let step = |_| {
                now += MS_NS;
                controller.answered(0, true, Timestamp::from_ns(now));
            };
            (0..number(seconds) * 1000).for_each(step);
        } else {
            run(&mut controller, &mut now, number(seconds), &answers);
        }
        let (least, greatest) = bound.split_once("..").unwrap();
        let expected: RangeInclusive<u64> = number(least)..=number(greatest);
        assert!(expected.contains(&controller.bound()), "{row}: {}", controller.bound());
    }
}

#[test]
fn the_bound_begins_at_the_floor() {
    for (floor, ceiling) in [(1, 2), (4, 100), (10, 11), (100, 1_000_000)] {
        let controller = Controller::new(Range { floor, ceiling }, Timestamp::ZERO);
        assert_eq!(controller.bound(), floor, "to {ceiling}");
    }
}

/// While the clock stands still, nothing moves.
#[test]
fn no_time_is_no_window() {
    let mut controller = Controller::new(Range { floor: 4, ceiling: 9 }, Timestamp::from_ns(7));
    let before = controller.bound();
    for _ in 0..1000 {
        controller.answered(u64::MAX, true, Timestamp::from_ns(7));
        controller.failed(Timestamp::from_ns(7));
        controller.answered(0, true, Timestamp::ZERO);
    }
    assert_eq!(controller.bound(), before);
}

/// A new range applies at once, and keeps what is known.
#[test]
fn the_bound_stays_in_its_range() {
    let (mut controller, mut now) = (Controller::new(Range { floor: 1, ceiling: 2 }, Timestamp::ZERO), 0);
    let answers = Answers { workers: 40, ms: 100, is_full: true, is_failing: false };
    run(&mut controller, &mut now, 60, &answers);
    assert!(controller.bound() <= 2);
    controller.set_range(Range { floor: 1, ceiling: 100 }, Timestamp::from_ns(now));
    run(&mut controller, &mut now, 120, &answers);
    let known = controller.bound();
    assert!(known >= 30, "{known}");
    controller.set_range(Range { floor: 5, ceiling: 90 }, Timestamp::from_ns(now));
    assert!(controller.bound().abs_diff(known) <= known / 4, "{} from {known}", controller.bound());
    controller.set_range(Range { floor: 5, ceiling: 9 }, Timestamp::from_ns(now));
    assert!((5..=9).contains(&controller.bound()));
    controller.set_range(Range { floor: 70, ceiling: 90 }, Timestamp::from_ns(now));
    assert!((70..=90).contains(&controller.bound()));
}
