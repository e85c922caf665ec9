//! The names of keys in requests: a text, the parts by name, or the hash as an id.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::engine::gate::{KeyError, KeyName};
use crate::engine::limit::Key;

/// A key in a body: its text, or the parts by name, each a text or a whole number.
// The errors of `serde` do not repeat the key.
#[derive(Deserialize, ToSchema)]
#[serde(untagged, expecting = "key: expected a text, or an object with the parts of the key")]
#[schema(as = KeyName)]
pub(super) enum KeyNameBody {
    Text(String),
    Parts(BTreeMap<String, Value>),
}

/// Returns the name and the text of each part. The text of a whole number is its digits. Errs for other values.
pub(super) fn texts(key: impl IntoIterator<Item = (String, Value)>) -> Result<Vec<(String, String)>, String> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) if !number.is_f64() => Ok((name, number.to_string())),
        _ => Err(KeyError::BadPart(name).to_string()),
    };
    key.into_iter().map(text).collect()
}

/// The key of a body. Errs if a part is neither a text nor a whole number.
pub(super) fn name_of_body(key: KeyNameBody) -> Result<KeyName, String> {
    match key {
        KeyNameBody::Text(text) => Ok(KeyName::Text(text)),
        KeyNameBody::Parts(parts) => texts(parts).map(KeyName::Parts),
    }
}

/// The key of a parameter: a JSON object that maps the name of each part to its text, or one text.
pub(super) fn name_of_text(key: &str) -> Result<KeyName, String> {
    match serde_json::from_str(key) {
        Ok(Value::Object(parts)) => texts(parts).map(KeyName::Parts),
        _ => Ok(KeyName::Text(key.to_owned())),
    }
}

/// The key of an id.
pub(super) fn name_of_id(id: &str) -> Result<KeyName, String> {
    Key::of_id(id).map(KeyName::Hash).ok_or_else(|| "id: expected 32 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_have_three_kinds_of_names() {
        let parts = |name: KeyName| match name {
            KeyName::Parts(parts) => parts,
            other => panic!("{other:?}"),
        };
        assert_eq!(parts(name_of_text(r#"{"seller": 123}"#).unwrap()), [("seller".to_owned(), "123".to_owned())]);
        for text in ["123", "a|b", "{a", "\"a\"", ""] {
            assert!(matches!(name_of_text(text), Ok(KeyName::Text(kept)) if kept == text), "{text}");
        }
        assert!(name_of_text(r#"{"seller": []}"#).is_err());
        let of_body =
            |key: Value| KeyNameBody::deserialize(key).map_err(|error| error.to_string()).and_then(name_of_body);
        assert_eq!(parts(of_body(json!({ "seller": 123 })).unwrap()), [("seller".to_owned(), "123".to_owned())]);
        assert!(matches!(of_body(json!("a|b")), Ok(KeyName::Text(kept)) if kept == "a|b"));
        for key in [json!(7), json!(null), json!(["a"]), json!({ "seller": [] })] {
            assert!(of_body(key.clone()).is_err_and(|error| !error.contains('7')), "{key}");
        }
        let id = "f8ffaf9b447bb8788ebcc6599a8fb8f2";
        assert!(matches!(name_of_id(id), Ok(KeyName::Hash(key)) if key.id() == id));
        for id in [
            "",
            "f8",
            "f8ffaf9b447bb8788ebcc6599a8fb8f2a",
            "+8ffaf9b447bb878+ebcc6599a8fb8f2",
            "g8ffaf9b447bb8788ebcc6599a8fb8f2",
        ] {
            assert!(name_of_id(id).is_err(), "{id}");
        }
    }
}
