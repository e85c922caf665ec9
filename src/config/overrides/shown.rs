//! What of the file is shown with a problem: what is allowed, and never a key, which may be a credential.
//!
//! Whatever is not known to be harmless is struck out: TOML can say a key in several places, and tells one of them.

use std::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{redact, schema};

/// What stands between keys and values.
const BETWEEN: &[u8] = b" \t\r\n=,[]{}";

/// The text that begins at `from` and says `table`, with all but that struck out.
pub(super) fn shown(text: &str, from: usize, table: &DeTable<'_>) -> String {
    let mut shown = Vec::new();
    for (limit, value) in table {
        let DeValue::Table(overrides) = value.get_ref() else { continue };
        shown.push(limit.span());
        overrides.values().for_each(|value| of_rule(value, &mut shown));
    }
    shown.sort_by_key(|span| span.start);
    let mut hidden = Vec::new();
    let mut done = 0;
    for span in shown {
        let (start, end) = (span.start.saturating_sub(from), span.end.saturating_sub(from));
        words(text, done..start, &mut hidden);
        done = end.max(done);
    }
    words(text, done..text.len(), &mut hidden);
    redact::strike_out(text, &hidden)
}

/// Whether a rule has such an option.
fn is_known(key: &str) -> bool {
    schema::keys_of("limit.overrides.NAME").contains(&key)
}

/// What of an override's value can be shown.
fn of_rule(value: &Spanned<DeValue<'_>>, shown: &mut Vec<Range<usize>>) {
    let DeValue::Table(table) = value.get_ref() else { return of_value(value, shown) };
    for (key, value) in table.iter().filter(|(key, _)| is_known(key.get_ref())) {
        shown.push(key.span());
        of_value(value, shown);
    }
}

fn of_value(value: &Spanned<DeValue<'_>>, shown: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(_) => {}
        DeValue::Array(items) => items.iter().for_each(|item| of_value(item, shown)),
        _ => shown.push(value.span()),
    }
}

/// All words within a part of the text.
fn words(text: &str, within: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut start = within.start;
    for word in text.as_bytes().get(within).unwrap_or_default().split(|byte| BETWEEN.contains(byte)) {
        if !word.is_empty() {
            found.push(start..start + word.len());
        }
        start += word.len() + 1;
    }
}

/// What an override says, as JSON, with the same left out of it.
pub(super) fn shown_json(value: Value) -> Value {
    let Value::Object(map) = value else { return without_tables(value) };
    let pair = |(key, value): (String, Value)| {
        if is_known(&key) { (key, without_tables(value)) } else { (MASK.to_owned(), MASK.into()) }
    };
    Value::Object(map.into_iter().map(pair).collect::<Map<_, _>>())
}

fn without_tables(value: Value) -> Value {
    match value {
        Value::Object(_) => MASK.into(),
        Value::Array(items) => items.into_iter().map(without_tables).collect(),
        other => other,
    }
}

/// What stands for something that is not shown.
const MASK: &str = "***";
