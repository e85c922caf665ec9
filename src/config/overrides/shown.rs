//! Allowances as JSON, without names that may be parts of a key: TOML reads `sk.live = "5/s"` as a table of `sk`.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde_json::Value;

use crate::config::schema;

/// Stands for a value that is not shown.
const MASK: &str = "***";

/// An allowance as JSON. In a table, only options of an override are shown.
pub(super) fn json<'de, V: IntoDeserializer<'de, E>, E: serde::de::Error>(allowance: V) -> Value {
    let options = schema::keys_of("limit.overrides.NAME");
    let pair = |(key, value): (String, Value)| {
        if options.contains(&&*key) { (key, masked(value)) } else { (MASK.to_owned(), MASK.into()) }
    };
    match Value::deserialize(allowance.into_deserializer()) {
        Ok(Value::Object(table)) => table.into_iter().map(pair).collect(),
        Ok(value) => masked(value),
        Err(_) => MASK.into(), // such as a number of more than 64 bits
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
