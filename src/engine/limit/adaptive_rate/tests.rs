//! The controller: tables of windows, and a service in virtual time.

use super::*;

mod simulation;

const MS_NS: u64 = 1_000_000;

/// A rate from 20 % to 100 % that follows `signal`.
fn controller(signal: Signal, target: u64) -> Controller {
    Controller::new(Rule { signal, target, floor: 200, ceiling: WHOLE })
}

/// How clients use the limit in a window.
fn usage(word: &str) -> Usage {
    match word {
        "full" => Usage { decided: 100, pressed: 50 },
        "some" => Usage { decided: 100, pressed: 0 },
        "none" => Usage::default(),
        _ => panic!("{word}"),
    }
}

/// Runs rows of: windows, what `end` makes of a window, use of the limit, and the part after them: a number or a range.
fn check(mut controller: Controller, rows: &str, mut end: impl FnMut(&mut Controller, &str, Usage)) {
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<_> = row.split_whitespace().collect();
        let [windows, signal, used, part] = cells[..] else { panic!("{row}") };
        (0..windows.parse().unwrap()).for_each(|_| end(&mut controller, signal, usage(used)));
        let (least, greatest) = part.split_once('-').unwrap_or((part, part));
        let expected = least.parse().unwrap()..=greatest.parse().unwrap();
        assert!(expected.contains(&controller.part()), "{row}: {}", controller.part());
    }
}

/// Windows of 100 answers, each after `MS`, or `N*MS` for N of them and 10 ms for the others, or `-` for no answer.
#[test]
fn latency_moves_the_rate() {
    let rows = "
      # windows  ms       use   part
        9        100      full  1000
      # more than twice the target; the next window does not count
        1        500      full  700
        1        500      full  700
        1        500      full  490
        1        900      full  490
      # an unused limit falls, and rises slowly
        60       900      some  200
        60       100      some  370-400
        60       100      none  370-400
        60       -        full  370-400
        1        50       full  386-416
        10       50       full  546-576
        50       50       full  1000
      # near the target
        60       190      full  1000
        60       20*900   full  200
        60       20*300   full  200
        60       4*900    full  850-890
        400      4*900    full  1000
      # long polls, until they are half of all
        60       20*30000 full  1000
        60       60*30000 full  200
    ";
    let mut now = Timestamp::ZERO;
    check(controller(Signal::UpstreamP90, 200 * MS_NS), rows, |controller, ms, used| {
        now = now.saturating_add_ns(1000 * MS_NS);
        let (slow, ms) = ms.split_once('*').unwrap_or(("100", ms));
        let slow: u64 = slow.parse().unwrap();
        for index in 0..if ms == "-" { 0 } else { 100 } {
            let ms: u64 = if index < slow { ms.parse().unwrap() } else { 10 };
            // The time before the connection is not of the service.
            let sent = now.saturating_sub_ns(ms * MS_NS);
            controller.answered(sent.saturating_sub_ns(5000 * MS_NS), sent, now);
        }
        controller.end_window(used, None);
    });
}

#[test]
fn waits_for_a_connection_move_the_rate() {
    let rows = "
        9    10   full  1000
        1    200  full  700
        60   200  full  200
        60   0    full  1000
    ";
    let mut now = Timestamp::ZERO;
    check(controller(Signal::QueueDelay, 50 * MS_NS), rows, |controller, ms, used| {
        now = now.saturating_add_ns(1000 * MS_NS);
        let sent = now.saturating_sub_ns(800 * MS_NS);
        let began = sent.saturating_sub_ns(ms.parse::<u64>().unwrap() * MS_NS);
        (0..100).for_each(|_| controller.answered(began, sent, now));
        controller.end_window(used, None);
    });
}

/// Failures of 100 requests, and of 12, which show no small part.
#[test]
fn failures_move_the_rate() {
    let rows = "
        60   0    full  1000
        60   2    full  1000
        1    50   full  700
        60   50   full  200
        60   0    full  1000
        60   1/12 full  1000
        60   6/12 full  200
    ";
    check(controller(Signal::UpstreamErrors, 20), rows, |controller, failures, used| {
        let (failures, all) = failures.split_once('/').unwrap_or((failures, "100"));
        let failures: u64 = failures.parse().unwrap();
        (0..failures).for_each(|_| controller.failed());
        (failures..all.parse().unwrap())
            .for_each(|_| controller.answered(Timestamp::ZERO, Timestamp::ZERO, Timestamp::ZERO));
        controller.end_window(used, None);
    });
}

/// All CPUs busy are far above a target of 80 %.
#[test]
fn cpus_move_the_rate() {
    let rows = "
        60   79   full  1000
        60   81   none  1000
        1    100  full  975-980
        1    100  full  975-980
        1    100  full  680-690
        60   100  full  200
        60   50   some  370-400
        60   -    full  370-400
      # slower near the part that was too high
        60   20   full  850-890
        400  20   full  1000
    ";
    check(controller(Signal::Cpu, 800), rows, |controller, percent, used| {
        controller.end_window(used, percent.parse().ok().map(|percent: f64| percent / 100.0));
    });
}

/// A limit with few answers has a signal too, and one slow answer of many does not keep the part low.
#[test]
fn few_answers_raise_the_rate() {
    for windows_per_answer in [1, 3] {
        let mut controller = controller(Signal::UpstreamP90, 200 * MS_NS);
        let mut now = Timestamp::ZERO;
        let mut end = |controller: &mut Controller, window: u64, slow: bool| {
            now = now.saturating_add_ns(1000 * MS_NS);
            if window.is_multiple_of(windows_per_answer) {
                let ms = if slow { 900 } else { 20 };
                controller.answered(now.saturating_sub_ns(ms * MS_NS), now.saturating_sub_ns(ms * MS_NS), now);
            }
            controller.end_window(usage("full"), None);
        };
        (0..600).for_each(|window| end(&mut controller, window, true));
        assert_eq!(controller.part(), 200, "{windows_per_answer}");
        (0..1800).for_each(|window| end(&mut controller, window, window == 60));
        assert_eq!(controller.part(), 1000, "{windows_per_answer}");
    }
}

/// A failure is slower than the target, and a failed answer is not fast.
#[test]
fn failures_are_slow_answers() {
    for signal in [Signal::UpstreamP90, Signal::QueueDelay] {
        let mut controller = controller(signal, 200 * MS_NS);
        (0..100).for_each(|_| controller.failed());
        controller.end_window(usage("full"), None);
        assert!(controller.part() < 750, "{}", controller.part());
    }
}

/// A new rule applies at once, and keeps the part.
#[test]
fn the_part_stays_in_its_range() {
    let mut controller = controller(Signal::Cpu, 500);
    let rule = Rule { signal: Signal::Cpu, target: 500, floor: 200, ceiling: 900 };
    controller.set_rule(rule);
    assert_eq!(controller.part(), 900);
    controller.end_window(usage("full"), Some(1.0));
    assert_eq!((controller.part(), controller.signal()), (630, Some(1000)));
    controller.set_rule(Rule { floor: 700, ..rule });
    assert_eq!(controller.part(), 700);
    controller.set_rule(Rule { signal: Signal::UpstreamP90, ..rule });
    assert_eq!((controller.part(), controller.signal()), (700, None));
}

/// Buckets are in order, and an eighth wide.
#[test]
fn buckets_hold_their_durations() {
    for ns in (0..63).flat_map(|bits| [1, 9, 13, 15].map(|part| part << bits >> 3)).filter(|ns| *ns < 1 << 38) {
        let index = bucket(ns);
        assert!(begin_ns(index) <= float(ns) && float(ns) < begin_ns(index + 1), "{ns}");
        assert!(index == 0 || begin_ns(index + 1) <= begin_ns(index) * 1.13, "{ns}");
    }
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}
