//! The parts of the file that may be shown: allowances, but no key, which may be a credential.
//!
//! Only words that are known to be harmless are shown: TOML can write a key in several places, and the parser reports
//! one of them.

use std::ops::Range;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::config::{redact, schema};

/// Bytes that separate words of TOML.
const SEPARATORS: &[u8] = b" \t\r\n=,[]{}";

/// `text`, which was parsed as `table`, with everything else struck out.
pub(super) fn text(text: &str, table: &DeTable<'_>) -> String {
    let mut shown = Vec::new();
    for (limit, value) in table {
        let DeValue::Table(overrides) = value.get_ref() else { continue };
        shown.push(limit.span());
        overrides.values().for_each(|value| add_allowance(value, &mut shown));
    }
    shown.sort_by_key(|span| span.start);
    let mut hidden = Vec::new();
    let mut done = 0;
    for span in shown {
        add_words(text, done..span.start, &mut hidden);
        done = span.end.max(done);
    }
    add_words(text, done..text.len(), &mut hidden);
    redact::mask(text, &hidden)
}

/// Whether an allowance has an option of this name.
fn is_option(key: &str) -> bool {
    schema::keys_of("limit.overrides.NAME").contains(&key)
}

fn add_allowance(value: &Spanned<DeValue<'_>>, shown: &mut Vec<Range<usize>>) {
    let DeValue::Table(table) = value.get_ref() else { return add_value(value, shown) };
    for (key, value) in table.iter().filter(|(key, _)| is_option(key.get_ref())) {
        shown.push(key.span());
        add_value(value, shown);
    }
}

fn add_value(value: &Spanned<DeValue<'_>>, shown: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(_) => {}
        DeValue::Array(items) => items.iter().for_each(|item| add_value(item, shown)),
        _ => shown.push(value.span()),
    }
}

/// Adds the spans of all words within a part of the text.
fn add_words(text: &str, within: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut start = within.start;
    for word in text.as_bytes().get(within).unwrap_or_default().split(|byte| SEPARATORS.contains(byte)) {
        if !word.is_empty() {
            found.push(start..start + word.len());
        }
        start += word.len() + 1;
    }
}

/// Stands for a value that is not shown.
const MASK: &str = "***";

/// An allowance as JSON, with the same parts masked.
pub(super) fn json(value: &DeValue<'_>) -> Value {
    let DeValue::Table(table) = value else { return scalar(value) };
    let pair = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| match key.get_ref() {
        key if is_option(key) => (key.clone().into_owned(), scalar(value.get_ref())),
        _ => (MASK.to_owned(), MASK.into()),
    };
    Value::Object(table.iter().map(pair).collect::<Map<_, _>>())
}

fn scalar(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Integer(whole) => {
            let number = i64::from_str_radix(whole.as_str(), whole.radix());
            number.map_or_else(|_| Value::String(whole.as_str().to_owned()), Value::from)
        }
        DeValue::Float(fraction) => {
            let number = fraction.as_str().parse().ok().and_then(Number::from_f64);
            number.map_or_else(|| Value::String(fraction.as_str().to_owned()), Value::Number)
        }
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => items.iter().map(|item| scalar(item.get_ref())).collect(),
        DeValue::Table(_) => MASK.into(),
    }
}
