//! Settlement of charges after the response: `count`, `settle` and `max_debt` of a limit.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::identity::header_name;
use crate::base::fields::decimal;
use crate::config::diagnostics::Problem;
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::engine::policy::{AfterResponse, Settle, SettleBy, Stage, StatusSet};

/// The source of the actual cost, without its options.
#[derive(Clone, Debug, PartialEq)]
enum By {
    ElapsedMs,
    ResponseBytes,
    Status,
    Header(http::HeaderName),
}

/// Compiles the three options. Notes an error and returns `None`.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn after(table: &Table<'_>, stage: Option<Stage>) -> Option<Option<Arc<AfterResponse>>> {
    let (counted, settled) = (table.table("count"), table.table("settle"));
    let counts = counted.is_present().then(|| statuses(&counted));
    let max_debt = table.count::<u64>("max_debt");
    if table.has("max_debt") && !settled.is_present() {
        let fault = Fault::new("has no effect without `settle`: only settlement can create debt")
            .help(Some("add `settle`".to_owned()));
        table.fault("max_debt", max_debt.as_ref().map_or(table.span(), Spanned::span), fault);
    }
    let settle = settled.is_present().then(|| settle(&settled, max_debt.map_or(u64::MAX, Spanned::into_inner)));
    for part in [&counted, &settled].into_iter().filter(|part| part.is_present() && stage == Some(Stage::Arrival)) {
        let title = "a limit of stage `arrival` cannot change its charges after the response";
        table.context.note(Problem::new(part.span(), title).absence());
    }
    let (counts, settle) =
        (counts.map_or(Some(None), |read| read.map(Some))?, settle.map_or(Some(None), |read| read.map(Some))?);
    let is_any = counts.is_some() || settle.is_some();
    Some(is_any.then(|| Arc::new(AfterResponse { counts, settle })))
}

fn statuses(table: &Table<'_>) -> Option<StatusSet> {
    let Some(value) = table.get("status") else {
        table.fault(
            "status",
            table.span(),
            Fault { absence: true, ..Fault::new("is missing: list the statuses that count") },
        );
        return None;
    };
    let items: Vec<_> = match value.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![value],
    };
    if items.is_empty() {
        table.fault("status", value.span(), Fault::new("must not be empty"));
    }
    // Reads all items before it stops, so that each error is noted.
    let read: Vec<_> = items.into_iter().map(|item| status(table, "status", item)).collect();
    let ranges: Option<Vec<_>> = read.into_iter().collect();
    ranges.filter(|ranges| !ranges.is_empty()).map(StatusSet)
}

/// Reads `404`, `"404"` or `"4xx"`, and returns its first and last status.
fn status(table: &Table<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<(u16, u16)> {
    let range = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => range(number.as_str()),
        DeValue::String(text) => range(text),
        _ => None,
    };
    if range.is_none() {
        let fault = Fault::new("expected a status from 100 to 599, or a class such as `\"4xx\"`");
        table.fault(key, value.span(), fault);
    }
    range
}

/// The first and the last status of `404` or `4xx`.
fn range(text: &str) -> Option<(u16, u16)> {
    let (digits, is_class) = text.strip_suffix("xx").map_or((text, false), |digit| (digit, true));
    let number = u16::try_from(decimal(digits.as_bytes())?).ok()?;
    if is_class {
        (1..=5).contains(&number).then_some((number * 100, number * 100 + 99))
    } else {
        (100..=599).contains(&number).then_some((number, number))
    }
}

fn settle(table: &Table<'_>, max_debt: u64) -> Option<Settle> {
    let by = table.parsed("by", |text| match text.split_once(':') {
        Some(("header", name)) => header_name(name).map(By::Header),
        _ => crate::config::reader::units::one_of(&BY)(text)
            .map(|index: usize| [By::ElapsedMs, By::ResponseBytes, By::Status][index].clone()),
    });
    let every = table.duration("every");
    let only = |key: &str, wanted: &By, word: &str| {
        if table.has(key) && by.as_ref().is_some_and(|by| by.get_ref() != wanted) {
            let span = table.get(key).map_or(table.span(), Spanned::span);
            table.fault(key, span, Fault::new(format!("is valid only with `by = \"{word}\"`")));
        }
    };
    only("every", &By::ElapsedMs, "elapsed_ms");
    only("units", &By::Status, "status");
    let by = match by?.into_inner() {
        By::ElapsedMs => SettleBy::ElapsedMs,
        By::ResponseBytes => SettleBy::ResponseBytes,
        By::Header(name) => SettleBy::Header(name),
        By::Status => SettleBy::Status(units(table)?),
    };
    let every_ns = every.map(|every| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
    Some(Settle { by, every_ns, max_debt })
}

const BY: [(&str, usize); 3] = [("elapsed_ms", 0), ("response_bytes", 1), ("status", 2)];

/// The first and the last status of a range, and the units of a response in it.
type StatusUnits = (Located<(u16, u16)>, u64);

/// Reads `{ "4xx" = 10, "304" = 0 }`. A single status has precedence over its class.
fn units(table: &Table<'_>) -> Option<Vec<(StatusSet, u64)>> {
    let Some(value) = table.get("units") else {
        let fault =
            Fault::new("is missing").help(Some("write it like `units = { \"4xx\" = 10, \"304\" = 0 }`".to_owned()));
        table.fault("units", table.span(), Fault { absence: true, ..fault });
        return None;
    };
    let DeValue::Table(entries) = value.get_ref() else {
        table.fault("units", value.span(), Fault::new("expected a table of statuses and units"));
        return None;
    };
    let mut units: Vec<Option<StatusUnits>> = Vec::new();
    for (name, value) in entries {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        if number.is_none() {
            table.fault("units", value.span(), Fault::new("expected a whole number of units, at least 0"));
        }
        let range = range(name.get_ref());
        if range.is_none() {
            let fault = Fault::new("expected a status from 100 to 599, or a class such as `\"4xx\"`");
            table.fault("units", name.span(), fault);
        }
        units.push(range.zip(number).map(|(range, number)| (Located::new(name.span(), range), number)));
    }
    let mut units: Vec<_> = units.into_iter().collect::<Option<_>>()?;
    units.sort_by_key(|(range, _): &StatusUnits| range.get_ref().1 - range.get_ref().0);
    Some(units.into_iter().map(|(range, units)| (StatusSet(vec![range.into_inner()]), units)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_digits_or_a_class() {
        for (text, expected) in [
            ("404", Some((404, 404))),
            ("100", Some((100, 100))),
            ("599", Some((599, 599))),
            ("4xx", Some((400, 499))),
            ("+404", None),
            ("-404", None),
            ("+4xx", None),
            (" 404", None),
            ("4 xx", None),
            ("99", None),
            ("600", None),
            ("65940", None),
            ("0xx", None),
            ("6xx", None),
            ("xx", None),
            ("", None),
        ] {
            assert_eq!(range(text), expected, "{text}");
        }
    }
}
