//! The end of an override: an instant of the wall clock, as the file has it.
//!
//! Each replica compares it with its own clock, so it depends on no connection and outlives a restart.

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;
use toml_edit::Item;

use crate::admin::parse_rfc3339;
use crate::base::time::Timestamp;

/// What is wrong with an end.
pub(super) const EXPECTED: &str =
    "an override with an end is written like `{ to = \"500/min\", until = \"2026-01-31T18:00:00Z\" }`";

/// The allowance and the end of an override that has an end. The end is `None` if the table is not of the form of
/// [`EXPECTED`].
pub(super) fn timed<'d>(value: &'d Spanned<DeValue<'d>>) -> Option<(&'d Spanned<DeValue<'d>>, Option<Timestamp>)> {
    let table = value.get_ref().as_table()?;
    let until = table.get("until")?.get_ref().as_str().and_then(parse_rfc3339);
    let inner = table.get("to").filter(|_| table.len() == 2);
    Some((inner.unwrap_or(value), until.filter(|_| inner.is_some())))
}

/// Whether an item of the file is an override that has ended at `now`.
pub(super) fn has_ended(item: &Item, now: Timestamp) -> bool {
    let until = item.as_table_like().filter(|table| table.len() == 2 && table.contains_key("to"));
    let until = until.and_then(|table| parse_rfc3339(table.get("until")?.as_str()?));
    until.is_some_and(|until| until <= now)
}

/// The allowance and the end of a JSON form that has an end.
pub(super) fn timed_json(value: &Value) -> Option<(&Value, &str)> {
    let table = value.as_object().filter(|table| table.len() == 2)?;
    Some((table.get("to")?, table.get("until")?.as_str()?))
}
