//! Rows with time as a column for any algorithm, shared vectors, and properties of all algorithms.

mod packed;
mod portable;
pub(crate) mod properties;
mod refunds;
mod several;
mod shares;
mod vectors;

use std::time::Duration;

use super::state::{Receipt as _, State as _};
use super::{Algorithm, AlgorithmName, AnyState, Calendar, Decision, Rate, Retry, Settings, Unit};
use crate::base::split_mix::{STEP, mix};
use crate::base::time::Timestamp;

/// Midnight in UTC, 2023-11-14.
pub(crate) const START_NS: u64 = 1_699_920_000_000_000_000;

pub(in crate::engine::limit) fn ns(text: &str) -> u64 {
    let duration: Duration = humantime::parse_duration(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    u64::try_from(duration.as_nanos()).unwrap()
}

/// A time since the start, or a date such as `2024-03-31T01:59:59+01:00`.
pub(in crate::engine::limit) fn at(text: &str) -> Timestamp {
    if text.contains('T') {
        let at: jiff::Timestamp = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        return Timestamp::from_ns(u64::try_from(at.as_nanosecond()).unwrap());
    }
    Timestamp::from_ns(START_NS + ns(text))
}

/// `5/1s` as a rate.
pub(in crate::engine::limit) fn rate(text: &str) -> Rate {
    let (count, period) = text.split_once('/').unwrap_or_else(|| panic!("not a rate: {text}"));
    Rate { count: count.parse().unwrap(), period_ns: ns(period) }
}

/// A rule in the notation of rows: its name, its rate or count, and its options; several rates are joined by `+`.
pub(crate) fn algorithm(text: &str) -> Algorithm {
    if text.contains('+') {
        return Algorithm::Several(text.split('+').map(algorithm).collect());
    }
    let mut words = text.split_whitespace();
    let mut word = || words.next().unwrap_or_else(|| panic!("not an algorithm: {text}"));
    let (name, of) = (word(), word());
    let counted = of.parse().map(|count| Rate { count, period_ns: 1 });
    let mut settings = Settings::from(counted.unwrap_or_else(|_| rate(of)));
    while let Some(option) = words.next() {
        let mut word = || words.next().unwrap_or_else(|| panic!("not an algorithm: {text}"));
        match option {
            "burst" => settings.burst = word().parse().unwrap(),
            "from" => assert_eq!(word(), "first"),
            "shapes" => settings.shapes = true,
            "in" => settings.sub_windows = word().parse().unwrap(),
            "per" => settings.calendar = Some(calendar([word(), word(), word()])),
            _ => panic!("not an option: {option}"),
        }
    }
    named(name).rule(&settings).unwrap()
}

fn named(name: &str) -> AlgorithmName {
    let found = AlgorithmName::ALL.into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("not an algorithm: {name}")).1
}

fn calendar([every, unit, zone]: [&str; 3]) -> Calendar {
    let unit = match unit {
        "ms" => Unit::Millisecond,
        "s" => Unit::Second,
        "min" => Unit::Minute,
        "h" => Unit::Hour,
        "day" => Unit::Day,
        "week" => Unit::Week,
        "month" => Unit::Month,
        _ => panic!("not a unit: {unit}"),
    };
    Calendar::new(unit, every.parse().unwrap(), zone).unwrap()
}

/// This rate in the notation of each algorithm whose units come back with time, and then `more`.
pub(crate) fn each_algorithm(rate: &str, more: &[&str]) -> Vec<String> {
    let timed = AlgorithmName::ALL.into_iter().filter(|(_, name)| *name != AlgorithmName::Concurrency);
    timed.map(|(name, _)| format!("{name} {rate}")).chain(more.iter().map(|rule| (*rule).to_owned())).collect()
}

pub(in crate::engine::limit) fn retry(text: &str) -> Option<Retry> {
    match text {
        "-" => None,
        "never" => Some(Retry::Never),
        "release" => Some(Retry::ON_RELEASE),
        text => Some(Retry::AfterNs(ns(text))),
    }
}

/// Tests by name, each with tables for the function `check` of its module: a rule, if that takes one, and rows.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $($($argument:literal)=>+),+;)+) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $(check($($argument),+);)+
        }
    )+};
}
pub(in crate::engine::limit) use tables;

/// Runs rows against one key under `rule`:
///
/// - `rule ALGORITHM ...`: the rule from here on
/// - `AT COST DECISION REMAINING RESET RETRY`: a request, whose peek agrees; a reset of `?` is unknown
/// - `AT refund N`: gives back the `N`th of all charges so far, from 1; `AT refund N UNITS`: a part of it
/// - `AT settle EXTRA MAX_DEBT`
/// - `AT wait AHEAD COST RETRY`: the wait of a request behind others
pub(in crate::engine::limit) fn check(rule: &str, rows: &str) {
    let first = rule;
    let mut rule = algorithm(rule);
    let mut state = AnyState::fresh(&rule);
    let mut receipts = Vec::new();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let row = format!("{row}\nof {first}");
        match cells[..] {
            ["rule", ..] => rule = algorithm(&cells[1..].join(" ")),
            [when, "refund", number] => {
                let (rule, receipt) = &receipts[number.parse::<usize>().unwrap() - 1];
                state.refund(rule, receipt, at(when));
            }
            [when, "refund", number, units] => {
                let (rule, receipt) = &receipts[number.parse::<usize>().unwrap() - 1];
                state.refund(rule, &receipt.part(units.parse().unwrap(), 0).0, at(when));
            }
            [when, "settle", extra, max_debt] => {
                state.settle(&rule, extra.parse().unwrap(), max_debt.parse().unwrap(), at(when));
            }
            [when, "wait", ahead, cost, expected] => {
                let found = state.wait(&rule, ahead.parse().unwrap(), cost.parse().unwrap(), at(when));
                assert_eq!(Some(found), retry(expected), "wait: {row}");
            }
            [when, cost, decision, remaining, reset, expected] => {
                let (now, cost) = (at(when), cost.parse().unwrap());
                let peeked = state.peek(&rule, cost, now);
                let found = state.admit(&rule, cost, now);
                assert_eq!(peeked, found, "a peek differs: {row}");
                if found.is_admitted() && cost > 0 {
                    receipts.push((rule.clone(), state.receipt(cost, now)));
                }
                assert_eq!(if found.is_admitted() { "admit" } else { "deny" }, decision, "decision: {row}");
                assert_eq!(found.denied, retry(expected), "retry: {row}");
                assert_eq!(found.remaining, remaining.parse::<u64>().unwrap(), "remaining: {row}");
                let reset_ns = if reset == "?" { Decision::UNKNOWN_NS } else { ns(reset) };
                assert_eq!(found.reset_after_ns, reset_ns, "reset: {row}");
            }
            _ => panic!("not a row: {row}"),
        }
    }
}

/// Pseudo-random times with an exponential distribution.
pub(in crate::engine::limit) struct Times(pub(in crate::engine::limit) u64);

impl Times {
    #[expect(clippy::cast_precision_loss)]
    pub(in crate::engine::limit) fn next(&mut self, mean: f64) -> f64 {
        self.0 = self.0.wrapping_add(STEP);
        -mean * (((mix(self.0) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64).ln()
    }
}
