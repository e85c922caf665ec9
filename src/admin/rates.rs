//! Rates in words: by their numbers, and by the signal that they follow.

use std::time::Duration;

use crate::engine::gate::AdaptedRate;
use crate::engine::limit::Algorithm;

/// The part of a rate that is in force, and its signal.
pub(super) fn adapted_in_words(AdaptedRate { rule, part, signal }: AdaptedRate) -> String {
    let shown = |value: u64| {
        if rule.signal.is_duration() {
            humantime::format_duration(Duration::from_millis(value / 1_000_000)).to_string()
        } else {
            percent(value)
        }
    };
    let now = signal.map_or_else(|| "unknown".to_owned(), shown);
    format!("{} of the rate; {} is {now}, target {}", percent(part), rule.signal.word(), shown(rule.target))
}

/// Thousandths in percent.
fn percent(thousandths: u64) -> String {
    match thousandths % 10 {
        0 => format!("{} %", thousandths / 10),
        tenth => format!("{}.{tenth} %", thousandths / 10),
    }
}

/// A rule by its numbers.
pub(super) fn described(rule: &Algorithm) -> String {
    let duration = |ns| humantime::format_duration(Duration::from_nanos(ns));
    match rule {
        Algorithm::Several(rules) => rules.iter().map(described).collect::<Vec<_>>().join(", and "),
        rule => {
            let (name, units) = (rule.name(), rule.capacity());
            match (rule.interval_ns(), rule.period_ns()) {
                (0, None) => format!("{name} of {units}"),
                (0, Some(period_ns)) => format!("{name} of {units} per {}", duration(period_ns)),
                (interval_ns, _) => format!("{name} of {units}, one back every {}", duration(interval_ns)),
            }
        }
    }
}
