//! Keys in JSON: the parts of a key by their names.

use serde_json::{Map, Value};

use crate::gate::KeyError;

/// The text of each part. A whole number stands for its digits.
pub(super) fn texts(key: Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) if !number.is_f64() => Ok((name, number.to_string())),
        _ => Err(KeyError::BadPart(name).to_string()),
    };
    key.into_iter().map(text).collect()
}
