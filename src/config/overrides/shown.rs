//! Allowances as JSON, without names that may be parts of a key: TOML reads `sk.live = "5/s"` as a table of `sk`.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde_json::Value;

use super::end::timed_json;
use crate::admin::parse_rfc3339;
use crate::config::schema;

/// Stands for a value that is not shown.
const MASK: &str = "***";

/// An allowance as JSON, also one with an end.
pub(super) fn json<'de, V: IntoDeserializer<'de, E>, E: serde::de::Error>(allowance: V) -> Value {
    match Value::deserialize(allowance.into_deserializer()) {
        Ok(value) => match timed_json(&value).filter(|(_, until)| parse_rfc3339(until).is_some()) {
            Some((to, until)) => serde_json::json!({ "to": of_options(to.clone()), "until": until }),
            None => of_options(value),
        },
        Err(_) => MASK.into(), // such as a number of more than 64 bits
    }
}

/// An allowance of which only options of an override are shown.
fn of_options(allowance: Value) -> Value {
    let options = schema::keys_of("limit.overrides.NAME");
    let pair = |(key, value): (String, Value)| {
        if options.contains(&&*key) { (key, masked(value)) } else { (MASK.to_owned(), MASK.into()) }
    };
    match allowance {
        Value::Object(table) => table.into_iter().map(pair).collect(),
        value => masked(value),
    }
}

/// `value` without the content of tables.
fn masked(value: Value) -> Value {
    match value {
        Value::Object(_) => MASK.into(),
        Value::Array(items) => items.into_iter().map(masked).collect(),
        scalar => scalar,
    }
}
