//! `limit.ramp`: the instants at which a limit changes, and what clients are told.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::fleet::Sharing;
use super::rule::{Scheme, time_zone};
use crate::base::time::{Timestamp, saturating_ns};
use crate::config::reader::time_units::{self, WrittenRate};
use crate::config::reader::{Fault, Located, Optional, Table};
use crate::config::schema::words;
use crate::engine::limit::{Algorithm, Scale, Zone};
use crate::engine::policy::{Allowed, Ramp, Retirement, Strategy};

/// The most steps of a ramp, and the steps of a ramp without `step`.
const STEPS_MAX: u64 = 1000;
const DAY: Duration = Duration::from_hours(24);
const SECOND_NS: u64 = 1_000_000_000;

/// Compiles the ramp of the limit `table`, which has these rules.
pub(super) fn ramp(
    table: &Table<'_>,
    scheme: &Scheme,
    allowed: Option<&Allowed>,
    sharing: Option<&Sharing>,
) -> Optional<Arc<Ramp>> {
    let strategy = sharing.map(|sharing| sharing.strategy);
    table.table("ramp").if_present(|table| written(table, scheme.usual_rates(), allowed?, strategy?).map(Arc::new))
}

fn written(table: &Table<'_>, rates: &[Located<WrittenRate>], allowed: &Allowed, strategy: Strategy) -> Option<Ramp> {
    let zone = table.parsed("time_zone", time_zone).and_then(|name| Zone::new(&name));
    let instant = |key: &str| {
        let zone = zone.as_ref()?;
        table.parsed_at(key, |text| {
            let help = "write it like \"2027-01-01\" or \"2027-01-01T08:00:00Z\"";
            zone.instant(text).ok_or_else(|| Fault::new(format!("`{text}` is not a date or a time")).help(help))
        })
    };
    let (from, to) = (instant("from"), instant("to"));
    let to_rate = table.parsed_at("to_rate", rate_or_zero);
    let step = table.optional("step", |key| table.duration_at(key));
    let is_gone = table.choice("at_zero", &words::AT_ZERO);
    let successor = table.optional("successor", |key| table.parsed(key, successor));
    let (zone, from, to, to_rate) = (zone?, from?, to?, to_rate?);
    let (is_gone, successor) = (is_gone?, successor?);
    if to.get_ref() <= from.get_ref() {
        table.fault("to", to.span(), "is not after `from`");
        return None;
    }
    let target = target(table, rates, &to_rate)?;
    let begins = begins(&zone, *from.get_ref(), *to.get_ref(), step?.map(|step| (step.span(), *step.get_ref())));
    let begins = begins.map_err(|(span, fault)| table.fault("step", span, fault)).ok()?;
    let is_zero = target.numerator == 0;
    if !is_zero {
        for option in ["at_zero", "successor"] {
            table.fault_if_present(option, ("has an effect only at zero", "write `to_rate = \"0/s\"`"));
        }
    }
    let retirement = is_zero.then(|| retirement(*from.get_ref(), *to.get_ref(), successor.as_deref(), is_gone));
    let ramp = Ramp::new(begins, target, retirement)?;
    check(table, &to_rate, &ramp, allowed, strategy)?;
    Some(ramp)
}

/// `None` is zero.
fn rate_or_zero(text: &str) -> Result<Option<WrittenRate>, Fault> {
    match text.split_once('/') {
        Some((count, period)) if count.trim() == "0" => time_units::rate(&format!("1/{period}")).map(|_| None),
        _ => time_units::rate(text).map(Some),
    }
}

fn successor(text: &str) -> Result<String, Fault> {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"');
    if !text.is_empty() && text.bytes().all(is_valid) {
        return Ok(text.to_owned());
    }
    Err(Fault::new(format!("`{text}` is not a URL or a path")).help("write it like \"https://api.example.com/v2\""))
}

/// The part of the rate of the limit at the end.
fn target(table: &Table<'_>, rates: &[Located<WrittenRate>], to_rate: &Located<Option<WrittenRate>>) -> Option<Scale> {
    let fault = |fault: Fault| table.fault("to_rate", to_rate.span(), fault);
    let Some(to) = to_rate.get_ref() else { return Some(Scale { numerator: 0, denominator: 1 }) };
    let [rate] = rates else {
        let help = "write one `[[limit]]` for each rate; \"0/s\" lowers all";
        fault(Fault::new("needs a limit with one rate").help(help));
        return None;
    };
    let scale = to.as_part_of(rate.get_ref());
    if scale.is_none() {
        let help = "write it with the same period, and less than 4294967296 times the rate";
        fault(Fault::new(format!("cannot be compared with `{}`", rate.get_ref())).help(help));
    }
    scale.map(|(numerator, denominator)| Scale { numerator, denominator })
}

/// The begin of the ramp and its steps. Steps of whole days keep the local time. Errs at the position of the step.
fn begins(
    zone: &Zone,
    from: Timestamp,
    to: Timestamp,
    step: Option<(Range<usize>, Duration)>,
) -> Result<Vec<Timestamp>, (Range<usize>, Fault)> {
    let span_ns = to.ns_since(from);
    let mut begins = vec![from];
    let Some((span, step)) = step else {
        let steps = (span_ns / SECOND_NS).clamp(1, STEPS_MAX);
        let after_ns = |step: u64| u64::try_from(u128::from(span_ns) * u128::from(step) / u128::from(steps));
        begins.extend((1..=steps).map(|step| from.saturating_add_ns(after_ns(step).unwrap_or(span_ns))));
        return Ok(begins);
    };
    let (step_ns, days) = (saturating_ns(step), step.as_nanos() / DAY.as_nanos());
    let days = u32::try_from(days).ok().filter(|_| step_ns.is_multiple_of(saturating_ns(DAY)));
    for number in 1.. {
        let next = match days {
            Some(days) => zone.days_after(from, days.saturating_mul(number)),
            None => Some(from.saturating_add_ns(step_ns.saturating_mul(number.into()))),
        };
        let next = next.unwrap_or(to).min(to);
        begins.push(next);
        if next == to {
            break;
        }
        if u64::from(number) >= STEPS_MAX {
            let help = "write a longer step; without `step` there are 1000";
            return Err((span, Fault::new("makes more than 1000 steps").help(help)));
        }
    }
    Ok(begins)
}

/// What clients are told of a ramp to zero.
fn retirement(from: Timestamp, to: Timestamp, successor: Option<&str>, is_gone: bool) -> Retirement {
    let sunset = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_nanos(to.as_ns()));
    Retirement {
        deprecation: format!("@{}", from.as_ns() / SECOND_NS).into(),
        sunset: sunset.into(),
        link: successor.map(|url| format!("<{url}>; rel=\"successor-version\"").into()),
        is_gone,
    }
}

/// Checks that all rules can be computed with at both ends of the steps.
fn check(
    table: &Table<'_>,
    to_rate: &Located<Option<WrittenRate>>,
    ramp: &Ramp,
    allowed: &Allowed,
    strategy: Strategy,
) -> Option<()> {
    let scales: Vec<_> = ramp.schedule().map(|(_, scale)| scale).filter(|scale| scale.numerator > 0).collect();
    let fits = |rule: &Algorithm| {
        let scaled = scales.last().map_or(Ok(rule.clone()), |scale| rule.scaled(*scale));
        scaled.is_ok_and(|rule| strategy.counts_alone() || rule.to_portable(0).is_ok())
    };
    if allowed.rules().all(fits) {
        return Some(());
    }
    let help = "choose a rate nearer to that of the limit, or fewer steps";
    table.fault("to_rate", to_rate.span(), ("makes a step with numbers that this limit cannot count", help));
    None
}
