//! Settlement of charges after the response: `count`, `settle` and `max_debt` of a limit.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::body_units::{of_preset, weighted_pointers};
use super::identity::header_name;
use crate::base::fields::decimal;
use crate::base::time::saturating_ns;
use crate::config::reader::values::whole_number;
use crate::config::reader::{Fault, Optional, Problem, Table, units};
use crate::config::schema::words;
use crate::engine::policy::{AfterResponse, BodyMember, Settle, SettleBy, Stage, StatusSet};
use crate::engine::units::{BodyUnits, Pointer, Preset, Weight};

/// The source of the actual cost, without its options.
#[derive(Clone, Debug, PartialEq)]
enum By {
    ElapsedMs,
    ResponseBytes,
    Status,
    Header(http::HeaderName),
    /// The number of the body at this pointer.
    Pointer(Pointer),
    /// The numbers of the body at the pointers in `units`.
    Pointers,
    /// The numbers of a body of a published form.
    Preset(Preset),
}

static BY: [(&str, By); 8] = [
    ("elapsed_ms", By::ElapsedMs),
    ("response_bytes", By::ResponseBytes),
    ("status", By::Status),
    ("json", By::Pointers),
    ("openai-chat", By::Preset(Preset::OpenaiChat)),
    ("openai-responses", By::Preset(Preset::OpenaiResponses)),
    ("anthropic", By::Preset(Preset::Anthropic)),
    ("gemini", By::Preset(Preset::Gemini)),
];

const STATUS: &str = "expected a status from 100 to 599, or a class such as `\"4xx\"`";

/// Compiles the three options. Notes an error and returns `None`.
pub(super) fn after(table: &Table<'_>, stage: Option<Stage>) -> Optional<Arc<AfterResponse>> {
    let (counted, settled) = (table.table("count"), table.table("settle"));
    let max_debt = table.count("max_debt");
    if !settled.is_present() {
        let what = "has no effect without `settle`: only settlement can create debt";
        table.fault_if_present("max_debt", (what, "add `settle`"));
    }
    for part in [&counted, &settled].into_iter().filter(|part| part.is_present() && stage == Some(Stage::Arrival)) {
        let title = "a limit of stage `arrival` cannot change its charges after the response";
        table.context.note(Problem::new(part.span(), title).absence());
    }
    let counts = counted.if_present(statuses);
    let read_bytes = table.size("read_body").unwrap_or_default();
    let settle = settled.if_present(|table| settle(table, max_debt, read_bytes));
    let (counts, settle) = (counts?, settle?);
    let is_any = counts.is_some() || settle.is_some();
    Some(is_any.then(|| Arc::new(AfterResponse { counts, settle })))
}

fn statuses(table: &Table<'_>) -> Option<StatusSet> {
    if !table.has("status") {
        table.fault_at("status", Fault::new("is missing: list the statuses that count").absence());
        return None;
    }
    let items = table.items("status");
    if items.is_empty() {
        table.fault_at("status", "must not be empty");
    }
    // Reads all items before it stops, so that each error is noted.
    let read: Vec<_> = items.iter().map(|item| status(table, item)).collect();
    let ranges: Option<Vec<_>> = read.into_iter().collect();
    ranges.filter(|ranges| !ranges.is_empty()).map(StatusSet)
}

/// Reads `404`, `"404"` or `"4xx"`, and returns its first and last status.
fn status(table: &Table<'_>, value: &Spanned<DeValue<'_>>) -> Option<(u16, u16)> {
    let range = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => range(number.as_str()),
        DeValue::String(text) => range(text),
        _ => None,
    };
    if range.is_none() {
        table.fault("status", value.span(), STATUS);
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

fn settle(table: &Table<'_>, max_debt: Option<u64>, read_bytes: u64) -> Option<Settle> {
    let by = table.parsed("by", |text| match text.split_once(':') {
        Some(("header", name)) => header_name(name).map(By::Header),
        Some(("json", pointer)) => Ok(By::Pointer(Pointer::parse(pointer)?)),
        _ => units::one_of(&BY)(text).map_err(|fault| {
            let what = format!("{}, `header:NAME`, `json:POINTER`", fault.what);
            Fault { what, ..fault }
        }),
    });
    let every = table.duration("every");
    let default = table.count("default");
    let cuts = table.choice("on_exhausted", &words::ON_EXHAUSTED);
    let adds_usage = table.choice("include_usage", &words::INCLUDE_USAGE);
    let refuses_unpriced = table.choice("unpriced", &words::UNPRICED);
    if let Some(by) = &by {
        let is_preset = matches!(by, By::Preset(_));
        let takes_units = is_preset || matches!(by, By::Status | By::Pointers);
        let reads_body = is_preset || matches!(by, By::Pointer(_) | By::Pointers);
        for (key, is_valid, words) in [
            ("every", *by == By::ElapsedMs, "`elapsed_ms`"),
            ("units", takes_units, "`status`, `json` or a preset"),
            ("price", is_preset, "a preset"),
            ("default", reads_body, "`json` or a preset"),
            ("include_usage", *by == By::Preset(Preset::OpenaiChat), "`openai-chat`"),
            ("unpriced", is_preset && *by != By::Preset(Preset::Gemini), "another preset than `gemini`"),
            ("on_exhausted", reads_body, "`json` or a preset"),
        ] {
            if !is_valid {
                table.fault_if_present(key, format!("is valid only with {words} in `by`"));
            }
        }
    }
    if !table.has("price") {
        table.fault_if_present("unpriced", "has an effect only with `price`");
    }
    let member = |pointer: &str, is_read: Option<bool>| {
        Pointer::parse(pointer).ok().filter(|_| is_read == Some(true)).map(|pointer| BodyMember { pointer, read_bytes })
    };
    let (usage_of, priced) = (member("/stream", adds_usage), member("/model", refuses_unpriced));
    let of_body = |units: BodyUnits| SettleBy::Body(Arc::new(units));
    let by = match by? {
        By::ElapsedMs => SettleBy::ElapsedMs,
        By::ResponseBytes => SettleBy::ResponseBytes,
        By::Header(name) => SettleBy::Header(name),
        By::Status => SettleBy::Status(units(table)?),
        By::Pointer(pointer) => of_body(BodyUnits::of_pointers([(pointer, Weight::ONE)], default)),
        By::Pointers => of_body(BodyUnits::of_pointers(weighted_pointers(table)?, default)),
        By::Preset(preset) => of_body(of_preset(table, preset, default)?),
    };
    let cut_debt = (cuts == Some(true)).then_some(max_debt.unwrap_or(0));
    let (every_ns, max_debt) = (every.map(saturating_ns), max_debt.unwrap_or(u64::MAX));
    Some(Settle { by, every_ns, max_debt, usage_of, priced, cut_debt })
}

/// Reads `{ "4xx" = 10, "304" = 0 }`. A single status has precedence over its class.
fn units(table: &Table<'_>) -> Option<Vec<(StatusSet, u64)>> {
    let Some(value) = table.get("units") else {
        let fault = Fault::new("is missing").help("write it like `units = { \"4xx\" = 10, \"304\" = 0 }`");
        table.fault_at("units", fault.absence());
        return None;
    };
    let Some(entries) = value.get_ref().as_table() else {
        table.fault_at("units", "expected a table of statuses and units");
        return None;
    };
    let mut units = Vec::new();
    for (name, value) in entries {
        let (number, range) = (value.get_ref().as_integer().and_then(whole_number), range(name.get_ref()));
        if number.is_none() {
            table.fault("units", value.span(), "expected a whole number of units, at least 0");
        }
        if range.is_none() {
            table.fault("units", name.span(), STATUS);
        }
        units.push(range.zip(number));
    }
    let mut units: Vec<_> = units.into_iter().collect::<Option<_>>()?;
    units.sort_by_key(|((first, last), _): &((u16, u16), u64)| last - first);
    Some(units.into_iter().map(|(range, units)| (StatusSet(vec![range]), units)).collect())
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
