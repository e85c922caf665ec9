//! The fields of a form or of a query.

use serde_json::Value;

/// Names and values, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Reads fields in the form that browsers send (`application/x-www-form-urlencoded`).
    pub(super) fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// The trimmed value of the first field with this name; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.text(name).trim()
    }

    /// The value of the first field with this name as it was sent; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The value of a field that is not empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    /// All names and values, in their order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// A JSON object of the fields with these names that are not empty.
    pub(super) fn object(&self, names: &[&str]) -> Value {
        let filled = names.iter().filter_map(|name| Some(((*name).to_owned(), Value::from(self.filled(name)?))));
        Value::Object(filled.collect())
    }
}

/// The JSON value of a text that begins with `{` or `[`. Any other text is a string.
pub(super) fn json_of(text: &str) -> Value {
    let is_json = text.starts_with(['{', '[']);
    serde_json::from_str(text).ok().filter(|_| is_json).unwrap_or_else(|| Value::from(text))
}

/// A target with a query of the pairs whose value is not empty.
pub(super) fn link(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written() {
        let fields = FormFields::parse(b"limit=a%26b&reason=+too+fast+&limit=c&empty=&%ff");
        assert_eq!((fields.get("limit"), fields.get("reason"), fields.get("none")), ("a&b", "too fast", ""));
        assert_eq!((fields.filled("limit"), fields.filled("empty"), fields.filled("none")), (Some("a&b"), None, None));
        assert_eq!(fields.object(&["limit", "empty"]), serde_json::json!({ "limit": "a&b" }));
        assert_eq!(link("/key", &[("limit", "a&b"), ("id", ""), ("key", "ü")]), "/key?limit=a%26b&key=%C3%BC");
        assert_eq!(link("/", &[]), "/");
        assert_eq!(json_of(r#"{"seller": "7"}"#), serde_json::json!({ "seller": "7" }));
        assert_eq!((json_of("7"), json_of("{a"), json_of("null")), ("7".into(), "{a".into(), "null".into()));
    }
}
