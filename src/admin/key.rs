//! Reads keys from JSON objects that map the name of each part to its text.

use serde_json::{Map, Value};

use crate::gate::KeyError;

/// Returns the name and the text of each part. The text of a whole number is its digits. Errs for other values.
pub(super) fn texts(key: Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) if !number.is_f64() => Ok((name, number.to_string())),
        _ => Err(KeyError::BadPart(name).to_string()),
    };
    key.into_iter().map(text).collect()
}
