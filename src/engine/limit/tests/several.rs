//! Limits with several rates: late charges, debts, pace and tightness.

use super::{algorithm, at, retry};
use crate::engine::limit::state::State;
use crate::engine::limit::tightness::Tightness;
use crate::engine::limit::{Algorithm, AnyState, Pace, Retry};

const RULES: &str = "token_bucket 10/1m burst 10 + token_bucket 30/1h burst 30";

/// Settles one key, with a debt of 100 at most. Rows: instant, units, remaining units after it, and debt.
#[test]
fn every_window_is_settled_and_the_largest_debt_counts() {
    // Of 10 a minute and 30 an hour: 4, 12 and 37 are charged; a minute later the first has got 10 back, the second
    // half a unit. No window owes more than 100.
    let rule = algorithm(RULES);
    let mut state = AnyState::fresh(&rule);
    for (when, extra, remaining, debt) in [
        ("0s", 4, 6, 0),
        ("0s", 8, 0, 2),
        ("0s", 25, 0, 27),
        ("60s", 0, 0, 17),
        ("60s", 1000, 0, 100),
        ("60s", -1000, 10, 0),
    ] {
        let now = at(when);
        state.settle(&rule, extra, 100, now);
        let found = (state.peek(&rule, 0, now).remaining, state.over(&rule, now));
        assert_eq!(found, (remaining, debt), "{when} {extra}");
    }
}

/// A changed rule keeps spent units of each rate. The key is idle when its last rate is.
#[test]
fn every_window_adopts_its_rule() {
    let (rule, twice) = (algorithm(RULES), algorithm("token_bucket 20/1m burst 20 + token_bucket 60/1h burst 60"));
    let mut state = AnyState::fresh(&rule);
    assert!(state.admit(&rule, 8, at("0s")).is_admitted());
    assert_eq!(state.idle_at(), at("16m"), "8 units at 30 an hour");
    state.adopt(&twice, at("0s"));
    assert_eq!(state.idle_at(), at("8m"), "8 units at 60 an hour");
    assert_eq!(state.peek(&twice, 0, at("0s")).remaining, 12);
}

/// Rates keep their units wherever they stand. Rates with other numbers are those of before at their positions.
#[test]
fn rates_are_known_by_their_windows() {
    let bucket = |count, period| format!("token_bucket {count}/{period} burst {count}");
    let (minute, hour) = (bucket(10, "1m"), bucket(30, "1h"));
    let (log_minute, log_hour) = ("sliding_log 10/1m".to_owned(), "sliding_log 30/1h".to_owned());
    let second = bucket(5, "1s");
    // the rates of the charge, those in force, and the units that remain of each of them
    let rows: [(&[&String], &[&String], &[u64]); 8] = [
        (&[&minute, &hour], &[&second, &minute, &hour], &[5, 2, 22]),
        (&[&minute, &hour], &[&minute, &second, &hour], &[2, 5, 22]),
        (&[&minute, &hour], &[&hour, &minute], &[22, 2]),
        (&[&minute, &hour], &[&hour], &[22]),
        (&[&minute, &hour], &[&hour, &second], &[22, 0]),
        (&[&minute, &hour], &[&bucket(20, "1m"), &bucket(60, "1h")], &[12, 52]),
        (&[&log_minute, &log_hour], &[&log_hour, &log_minute], &[22, 2]),
        (&[&minute, &log_hour], &[&log_hour, &minute], &[22, 2]),
    ];
    for (charged, in_force, expected) in rows {
        let rule = |rates: &[&String]| Algorithm::Several(rates.iter().map(|rate| algorithm(rate)).collect());
        let (charged, in_force) = (rule(charged), rule(in_force));
        let mut state = AnyState::fresh(&charged);
        assert!(state.admit(&charged, 8, at("0s")).is_admitted());
        let remaining = |state: &AnyState| -> Vec<_> {
            state.remaining(&in_force, 0, at("0s")).iter().map(|rate| rate.units).collect()
        };
        assert_eq!(remaining(&state), expected, "{charged:?} {in_force:?}");
        let over = state.over(&in_force, at("0s"));
        state.adopt(&in_force, at("0s"));
        let adopted = (remaining(&state), state.over(&in_force, at("0s")));
        assert_eq!(adopted, (expected.to_vec(), over), "{charged:?} {in_force:?}");
    }
    // The hour keeps its units beside a new rate, and the minute, whose units are back, has none of it.
    let (day, both) = (bucket(100, "1day"), algorithm(&format!("{minute} + {hour}")));
    let in_force = algorithm(&format!("{hour} + {day}"));
    let mut state = AnyState::fresh(&both);
    for minutes in 0..3 {
        assert!(state.admit(&both, 9, at("0s").saturating_add_ns(minutes * 60_000_000_000)).is_admitted());
    }
    let remaining: Vec<_> = state.remaining(&in_force, 0, at("3m")).iter().map(|rate| rate.units).collect();
    assert_eq!(remaining, [4, 100]);
}

#[test]
fn a_charge_counts_in_no_window_that_has_ended() {
    let bucket = "token_bucket 10/1h burst 10";
    for (rule, from) in [
        (bucket, "59s"),
        ("fixed_window 5 per 1 min UTC", "60s"),
        ("fixed_window 5 per 1 min UTC + token_bucket 10/1h burst 10", "60s"),
        ("token_bucket 10/1h burst 10 + token_bucket 20/1h burst 20", "59s"),
        ("sub_window 10/10s in 5", "60s"),
    ] {
        assert_eq!(algorithm(rule).chargeable_from(at("59s"), at("61s")), at(from), "{rule}");
    }
}

/// Rows: rule, units, and their part of the capacity in whole percents.
#[test]
fn units_are_a_part_of_the_capacity() {
    for (rule, units, percent) in [
        ("token_bucket 5/1m burst 8", 0, 0),
        ("token_bucket 5/1m burst 8", 3, 37),
        ("token_bucket 5/1m burst 8", 8, 100),
        ("fixed_window 5 per 1 min UTC", 2, 40),
        ("fixed_window 5 per 1 min UTC", 9, 100),
        (RULES, 9, 90),
    ] {
        assert_eq!(algorithm(rule).percent(units), percent, "{rule}: {units}");
    }
}

#[test]
fn the_pace_of_each_algorithm() {
    for (rule, units, window_s) in [
        ("token_bucket 5/1m burst 5", 5, 60),
        ("token_bucket 10/1s burst 3", 10, 1),
        ("token_bucket 1/1m burst 3", 3, 180),
        ("sliding_log 10/1m", 10, 60),
        ("sub_window 10/1m in 6", 10, 60),
        ("sliding_window 5/1m", 5, 75),
        ("sliding_window 4/1m", 4, 80),
        ("sliding_window 1/1m", 1, 120),
    ] {
        assert_eq!(algorithm(rule).pace(at("0s")), Some(Pace { units, window_s }), "{rule}");
    }
    assert_eq!(algorithm("concurrency 5").pace(at("0s")), None);
    // At the end of a ramp to zero.
    assert_eq!(Pace::of_windows(0, 0).units, 0);
    assert_eq!(Pace::new(0, 0, (1, 100_000_000)), Pace { units: 0, window_s: 1 });
}

#[test]
fn the_pace_is_that_of_the_slowest_rate() {
    let (fast, slow) = ("token_bucket 5/1m burst 5", "token_bucket 100/24h burst 100");
    let pace = |rule: &str| format!("{:?}", algorithm(rule).pace(at("0s")));
    assert_ne!(pace(fast), pace(slow));
    for both in [format!("{fast}+{slow}"), format!("{slow}+{fast}")] {
        assert_eq!(pace(&both), pace(slow), "{both}");
    }
}

#[test]
fn the_tightest_has_the_longest_wait_or_the_smallest_fraction_left() {
    let second = |count: u64| Some(Retry::AfterNs(count * 1_000_000_000));
    let never = Some(Retry::Never);
    // of each: its retry if it denies, remaining units, capacity; then the index of the tightest
    for (decisions, expected) in [
        (&[][..], 0),
        (&[(None, 0, 10)], 0),
        (&[(None, 5, 10), (None, 5, 10)], 0),
        (&[(None, 5, 10), (None, 4, 10)], 1),
        (&[(None, 4, 10), (None, 5, 10)], 0),
        (&[(None, 5, 10), (None, 6, 100)], 1),
        (&[(None, 6, 100), (None, 5, 10)], 0),
        (&[(None, 3, 10), (None, 9, 10), (None, 2, 10), (None, 2, 10)], 2),
        (&[(None, 0, 10), (second(1), 9, 10)], 1),
        (&[(second(1), 9, 10), (None, 0, 10)], 0),
        (&[(second(1), 0, 10), (second(2), 9, 10)], 1),
        (&[(second(2), 9, 10), (second(1), 0, 10)], 0),
        (&[(second(1), 9, 10), (second(1), 0, 10)], 1),
        (&[(second(1), 0, 10), (second(1), 9, 10)], 0),
        (&[(second(9), 0, 10), (never, 9, 10)], 1),
    ] {
        let all: Vec<Tightness> =
            decisions.iter().map(|&(denied, remaining, capacity)| Tightness { denied, remaining, capacity }).collect();
        let tighter = |known: usize, index: usize| if all[index].is_tighter(all[known]) { index } else { known };
        assert_eq!((1..all.len()).fold(0, tighter), expected, "{decisions:?}");
    }
}

/// Rows: rates of a state that has spent one unit, those of a look, and its wait for two units behind two others.
#[test]
fn a_wait_counts_all_rates_of_the_rule() {
    const RATES: [&str; 2] = ["token_bucket 9/1s burst 9", "token_bucket 4/1h burst 4"];
    let both = RATES.join("+");
    for (was, rule, expected) in [
        (algorithm(&both), algorithm(&both), "15min"),
        (Algorithm::Several([algorithm(RATES[0])].into()), algorithm(&both), "0s"),
        (Algorithm::Several([algorithm(RATES[1])].into()), algorithm(&both), "15min"),
        (algorithm(&both), Algorithm::Several([algorithm(RATES[0])].into()), "0s"),
    ] {
        let mut state = AnyState::fresh(&was);
        assert!(state.admit(&was, 1, at("0s")).is_admitted());
        let mut adopted = state.clone();
        adopted.adopt(&rule, at("0s"));
        let wait = |state: &AnyState, ahead| state.wait(&rule, ahead, 2, at("0s"));
        assert_eq!(wait(&state, 2), retry(expected).unwrap(), "{was:?} {rule:?}");
        assert_eq!([0, 3, 9].map(|ahead| wait(&state, ahead)), [0, 3, 9].map(|ahead| wait(&adopted, ahead)));
    }
}
