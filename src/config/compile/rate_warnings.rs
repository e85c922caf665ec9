//! Warnings about the rates of one limit: rates without an effect, plans below the limit, waits without an end, and
//! windows that a restart forgets.
//!
//! Not here: limits compared with other limits, and with the rest of the configuration (`warnings`).

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::config::reader::lists::items_of;
use crate::config::reader::time_units::{self, WrittenRate};
use crate::config::reader::{Fault, Table};
use crate::engine::limit::Algorithm;
use crate::engine::policy::{HoldRule, Limit, Mode, OnLimit, Strategy};

/// Warns about the rates of `limit`, which `table` has. `has_snapshot` says whether a restart keeps spent units.
pub(super) fn of(table: &Table<'_>, limit: &Limit, has_snapshot: bool) {
    let rates = rates(table);
    of_idle_rates(table, limit, &rates);
    of_low_plans(table, limit);
    of_endless_waits(table, limit, &rates);
    if !has_snapshot {
        of_forgotten_windows(table, limit, &rates);
    }
}

/// The rates of a limit, each with its position.
fn rates(table: &Table<'_>) -> Vec<(WrittenRate, Range<usize>)> {
    table.get("rate").map(rates_of).unwrap_or_default()
}

fn rates_of(value: &Spanned<DeValue<'_>>) -> Vec<(WrittenRate, Range<usize>)> {
    let read = |item: &Spanned<DeValue<'_>>| Some((time_units::rate(item.get_ref().as_str()?).ok()?, item.span()));
    items_of(value).iter().filter_map(read).collect()
}

/// The rates of plans and overrides, each with its position.
fn exceptional_rates(table: &Table<'_>) -> Vec<(WrittenRate, Range<usize>)> {
    let tables = ["plans", "overrides"].into_iter().filter_map(|key| table.get(key)?.get_ref().as_table());
    let rules = tables.flat_map(|table| table.iter().map(|(_, rule)| rule));
    let mut rates: Vec<_> = rules
        .filter_map(|rule| rule.get_ref().as_table().map_or(Some(rule), |rule| rule.get("rate")))
        .flat_map(rates_of)
        .collect();
    rates.sort_by_key(|(_, span)| span.start);
    rates
}

/// Warns of rates that never refuse, because another rate of the list refuses first.
fn of_idle_rates(table: &Table<'_>, limit: &Limit, rates: &[(WrittenRate, Range<usize>)]) {
    let Algorithm::Several(windows) = &limit.allowed.usual else { return };
    if windows.len() != rates.len() {
        return;
    }
    for (index, (window, (_, span))) in windows.iter().zip(rates).enumerate() {
        // Of two equal rates the later one is reported.
        let is_first = |(other, stricter): (usize, &Algorithm)| {
            other != index && stricter.is_within(window) && (other < index || !window.is_within(stricter))
        };
        if windows.iter().enumerate().any(is_first) {
            let fault = Fault::new("this rate never refuses a request, because another rate of the list does first");
            let help = "its COUNT must be above that of each shorter period, and its rate below";
            table.warn("rate", span.clone(), "idle_rate", fault.help(help));
        }
    }
}

/// Warns of plans that allow less than requests without a plan may do.
fn of_low_plans(table: &Table<'_>, limit: &Limit) {
    let usual = &limit.allowed.usual;
    let written = table.get("plans").and_then(|plans| plans.get_ref().as_table());
    for (name, rule) in &limit.allowed.plans {
        let Some((rule, (key, value))) = rule.as_ref().zip(written.and_then(|plans| plans.get_key_value(&**name)))
        else {
            continue;
        };
        let has_burst = value.get_ref().as_table().is_some_and(|plan| plan.contains_key("burst"));
        let (own, burst) = (rule.capacity(), usual.capacity());
        let fault: Fault = if is_below(rule, usual) {
            let help = "give `rate` of the limit to requests without a plan: the lowest of all";
            (format!("the plan `{name}` allows less than a request without a plan has"), help).into()
        } else if !has_burst && has_lower_burst(rule, usual) {
            let what = format!("the plan `{name}` allows {own} units at once, and requests without a plan {burst}");
            let help = format!("`burst` of a plan is the COUNT of its rate by default; add `burst = {burst}`");
            (what, help).into()
        } else {
            continue;
        };
        table.warn("plans", key.span(), "low_plan", fault);
    }
}

/// Whether a rule, or one of its rates, is stricter than the usual rule or one of its rates.
fn is_below(rule: &Algorithm, usual: &Algorithm) -> bool {
    fn all(rule: &Algorithm) -> &[Algorithm] {
        if let Algorithm::Several(rates) = rule { rates } else { std::slice::from_ref(rule) }
    }
    let is_stricter = |one: &Algorithm, other: &Algorithm| one.is_within(other) && !other.is_within(one);
    is_stricter(rule, usual) || all(usual).iter().any(|usual| all(rule).iter().any(|rule| is_stricter(rule, usual)))
}

fn has_lower_burst(rule: &Algorithm, usual: &Algorithm) -> bool {
    let has_burst = |rule: &Algorithm| matches!(rule, Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
    has_burst(rule) && has_burst(usual) && rule.capacity() < usual.capacity()
}

/// The longest time between two units after which requests should not wait without an end.
const WAIT_NS_MAX: u64 = 60 * 1_000_000_000;

/// Warns of requests that wait for minutes, as long as their client does.
fn of_endless_waits(table: &Table<'_>, limit: &Limit, rates: &[(WrittenRate, Range<usize>)]) {
    let is_endless = matches!(limit.on_limit, OnLimit::Hold(HoldRule { max_wait_ns: None, .. }));
    if !is_endless || limit.mode == Mode::Off || table.table("hold").has("max_wait") {
        return;
    }
    let is_slow = |(rate, _): &&(WrittenRate, Range<usize>)| {
        let period_ns = rate.rate().map_or(rate.every.saturating_mul(MONTH_NS), |rate| rate.period_ns);
        period_ns / rate.count.max(1) > WAIT_NS_MAX
    };
    if let Some((_, span)) = rates.iter().find(is_slow) {
        let fault = Fault::new("less than one request a minute passes, and the others wait without an end");
        let help = "set `hold.max_wait`; `\"forever\"` says that this is intended";
        table.warn("rate", span.clone(), "endless_wait", fault.help(help));
    }
}

const DAY_NS: u64 = 86_400 * 1_000_000_000;
const MONTH_NS: u64 = 31 * DAY_NS;

/// Warns of windows of a day or more that begin anew with each process.
fn of_forgotten_windows(table: &Table<'_>, limit: &Limit, rates: &[(WrittenRate, Range<usize>)]) {
    let is_kept = matches!(limit.strategy, Strategy::Redis { .. } | Strategy::Service { .. } | Strategy::Lease { .. });
    if is_kept || limit.mode != Mode::Enforce || table.has("persist") {
        return;
    }
    let is_long = |rate: &WrittenRate| rate.rate().map_or(true, |rate| rate.period_ns >= DAY_NS);
    let exceptional = exceptional_rates(table);
    if let Some((_, span)) = rates.iter().chain(&exceptional).find(|(rate, _)| is_long(rate)) {
        let fault = Fault::new("a restart gives all units back, because there is no `[snapshot]`");
        let help = "add `[snapshot] path = \"/var/lib/weir/state\"`, or say `persist = false` if that is intended";
        table.warn("rate", span.clone(), "forgotten_window", fault.help(help));
    }
}
