//! `limit.adapt`: the signal that a rate follows, and what does not go with it.

use std::sync::Arc;

use super::allowed::Capacity;
use super::fleet::Sharing;
use crate::base::fields::decimal;
use crate::base::time::saturating_ns;
use crate::config::reader::{Fault, Optional, Table, time_units};
use crate::config::schema::words;
use crate::engine::limit::adaptive_rate::{Rule, Signal, WHOLE};
use crate::engine::limit::{Algorithm, Scale};
use crate::engine::policy::{AfterResponse, Allowed, KeyPart, Stage, Strategy};

/// Units of a longer window come back too late to follow a signal.
const WINDOW_NS_MAX: u64 = 5_000_000_000;

/// The thousandths of a percent.
const PERCENT: u64 = WHOLE / 100;

/// The parts of a limit on which its signal depends.
pub(super) struct Measured<'a> {
    pub(super) stage: Option<Stage>,
    pub(super) key: Option<&'a [KeyPart]>,
    pub(super) allowed: Option<&'a Allowed>,
    pub(super) sharing: Option<&'a Sharing>,
}

/// Compiles how the limit `table` follows a signal. Lowers the `capacities`, within which costs must be, to the floor.
pub(super) fn adapt(table: &Table<'_>, measured: &Measured<'_>, capacities: &mut [Capacity]) -> Optional<Rule> {
    table.table("adapt").if_present(|adapt| {
        let signal = adapt.choice("by", &words::SIGNALS);
        let target = target(adapt, signal);
        let (floor, ceiling) = (adapt.percent("floor", 1, None), adapt.percent("ceiling", 1, None));
        check(table, measured);
        if signal.is_some_and(|signal| signal != Signal::Cpu) {
            check_answers(adapt, measured);
        }
        let (signal, target, floor, ceiling) = (signal?, target?, floor?, ceiling?);
        if floor >= ceiling {
            adapt.fault_at("floor", "must be less than `ceiling`");
            return None;
        }
        let [floor, ceiling] = [floor, ceiling].map(|percent| u64::from(percent) * PERCENT);
        let scale = Scale { numerator: floor, denominator: WHOLE };
        if measured.allowed.is_some_and(|allowed| allowed.rules().any(|rule| rule.scaled(scale).is_err())) {
            adapt.fault_at("floor", ("makes numbers that this limit cannot count", "choose a greater one"));
            return None;
        }
        for Capacity { units, name, .. } in capacities {
            *units = scale.units(*units);
            name.push_str(" at `adapt.floor`");
        }
        Some(Rule { signal, target, floor, ceiling })
    })
}

/// The target in the unit of the signal. Without a known signal only its presence is checked.
fn target(adapt: &Table<'_>, signal: Option<Signal>) -> Option<u64> {
    adapt.parsed("target", |text| {
        let Some(signal) = signal else { return Ok(0) };
        let needs =
            |what: &str| Fault::new(format!("`{text}` is not {what}, which `by = \"{}\"` needs", signal.word()));
        if signal.is_duration() {
            let is_percent = text.trim_end().ends_with('%');
            let duration = time_units::duration(text);
            return if is_percent { Err(needs("a duration such as `200ms`")) } else { duration.map(saturating_ns) };
        }
        let percent = text.strip_suffix('%').and_then(|digits| decimal(digits.as_bytes()));
        let percent = percent.filter(|percent| (1..=99).contains(percent));
        percent.map(|percent| percent * PERCENT).ok_or_else(|| needs("a whole percentage from `1%` to `99%`"))
    })
}

/// Notes what has other numbers than a rate that this replica scales alone.
fn check(table: &Table<'_>, Measured { allowed, sharing, .. }: &Measured<'_>) {
    for option in ["ramp", "candidate"] {
        table.fault_if_present(option, "does not go with `adapt`, which changes the numbers of the limit");
    }
    let rules = || allowed.iter().flat_map(|allowed| allowed.rules()).flat_map(Algorithm::rates);
    let is_long = |rule: &Algorithm| rule.interval_ns() == 0 && rule.period_ns().is_some_and(|ns| ns > WINDOW_NS_MAX);
    if rules().any(|rule| matches!(rule, Algorithm::Concurrency(_))) {
        let help = "write `max = \"auto\"`, which follows the service";
        table.fault_at("algorithm", ("`adapt` changes a rate, and `concurrency` has none", help));
    } else if rules().any(is_long) {
        let help = "write a bucket, or a limit of its own for the longer window";
        table.fault_at("rate", ("a window of more than five seconds cannot follow `adapt`", help));
    }
    if sharing.is_some_and(|sharing| !matches!(sharing.strategy, Strategy::Local | Strategy::Split(_))) {
        let help = "write `strategy = \"split\"` or `\"local\"`";
        table.fault_at("strategy", ("each replica adapts its own share by `adapt`", help));
    }
}

/// What follows an answer to a request of the limit: also a sample, if its rate follows answers.
pub(super) fn sampled(adapt: Option<Rule>, after: Option<Arc<AfterResponse>>) -> Option<Arc<AfterResponse>> {
    let sampled = adapt.filter(|rule| rule.signal != Signal::Cpu);
    after.or_else(|| sampled.map(|_| Arc::new(AfterResponse { counts: None, settle: None })))
}

/// Notes a limit that sees no answers.
fn check_answers(adapt: &Table<'_>, Measured { stage, key, .. }: &Measured<'_>) {
    let help = "write `by = \"cpu\"`";
    if *stage == Some(Stage::Arrival) {
        adapt.fault_at("by", ("needs answers, which a limit of stage `arrival` does not see", help));
    }
    if key.is_some_and(|key| key.iter().any(|part| matches!(part, KeyPart::Named(_)))) {
        adapt.fault_at("by", ("needs answers, which a limit for callers does not see", help));
    }
}
