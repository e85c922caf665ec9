//! Rates in words: by their numbers, and by the signal that they follow.

use std::time::Duration;

use crate::engine::gate::AdaptedRate;
use crate::engine::limit::Algorithm;
use crate::engine::policy::Unit;

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

/// Units of a limit with their name; money also in dollars.
pub fn units_in_words(units: u64, unit: Option<&str>) -> String {
    match unit {
        Some(unit) if unit == Unit::MicroUsd.name() => format!("{units} ({})", dollars(units)),
        Some(unit) if unit != Unit::ContentBytes.name() => format!("{units} {unit}"),
        _ => units.to_string(),
    }
}

/// What the units of a rule are, if they have a name; of money also the most of it.
pub fn unit_in_words(unit: Option<&Unit>, rule: &Algorithm) -> String {
    match unit {
        Some(Unit::MicroUsd) => format!(" (micro-USD, at most {})", dollars(rule.capacity())),
        Some(Unit::Named(name)) => format!(" ({name})"),
        _ => String::new(),
    }
}

/// Millionths of a dollar, such as `$0.0025`.
fn dollars(micros: u64) -> String {
    let decimals = format!("{:06}", micros % 1_000_000);
    let (cents, rest) = decimals.split_at(2);
    format!("${}.{cents}{}", micros / 1_000_000, rest.trim_end_matches('0'))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_cents_and_its_other_decimals() {
        for (micros, expected) in [
            (0, "0 ($0.00)"),
            (1, "1 ($0.000001)"),
            (2500, "2500 ($0.0025)"),
            (200_000_000, "200000000 ($200.00)"),
            (1_234_560, "1234560 ($1.23456)"),
            (u64::MAX, "18446744073709551615 ($18446744073709.551615)"),
        ] {
            assert_eq!(units_in_words(micros, Some("micro-usd")), expected);
        }
        assert_eq!(units_in_words(2500, None), "2500");
        assert_eq!(units_in_words(2500, Some("content-bytes")), "2500");
        assert_eq!(units_in_words(2500, Some("tokens")), "2500 tokens");
    }
}
