//! The JSON Schema of a configuration, for editors, from the table of options.
//!
//! It has types, words and bounds of single options. Relations between options are in `compile`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::effective::{LISTS, constant};
use super::schema::{Kind, Opt, Preset, options};

/// A part of the path of options.
#[derive(Default)]
struct OptionTree {
    option: Option<&'static Opt>,
    below: BTreeMap<&'static str, OptionTree>,
}

/// The JSON Schema of a configuration, draft 2020-12.
pub fn json_schema() -> Value {
    let mut root = OptionTree::default();
    for option in options() {
        let mut tree = &mut root;
        for name in option.path.split('.') {
            tree = tree.below.entry(name).or_default();
        }
        tree.option = Some(option);
    }
    let mut schema = root.table("");
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Configuration of Weir".into();
    schema
}

impl OptionTree {
    /// The schema of the value at `path`.
    fn value(&self, path: &str) -> Value {
        let table = if self.below.is_empty() { json!({ "type": "object" }) } else { self.table(path) };
        let Some(option) = self.option else {
            let is_list = LISTS.contains(&path) || path == "access.require";
            return if is_list { json!({ "type": "array", "items": table }) } else { table };
        };
        let mut schema = of_kind(option.kind, &table);
        schema["description"] = format!("{} Type: {}.", option.about, option.kind).into();
        if let Some(default) = constant(option.default) {
            schema["default"] = default;
        }
        schema
    }

    /// The schema of the table at `path`.
    fn table(&self, path: &str) -> Value {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if let Some((name, any)) = self.below.first_key_value().filter(|(name, _)| ["NAME", "PART"].contains(*name)) {
            return json!({ "type": "object", "additionalProperties": any.value(&below(name)) });
        }
        let properties = self.below.iter().map(|(name, node)| ((*name).to_owned(), node.value(&below(name))));
        let is_required = |(name, node): &(&&str, &OptionTree)| {
            let is_required = node.option.is_some_and(|option| matches!(option.default, Preset::Required));
            // `concurrency` has `max` in place of a rate, and an override may have a plan.
            is_required && **name != "rate"
        };
        let required: Vec<_> = self.below.iter().filter(is_required).map(|(name, _)| *name).collect();
        json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": required,
            "additionalProperties": false,
        })
    }
}

/// The schema of a type. `table` is that of the table, if the value can be one.
fn of_kind(kind: Kind, table: &Value) -> Value {
    let list = |least: usize, items: Value| {
        let list = json!({ "type": "array", "items": items, "minItems": least });
        json!({ "anyOf": [items, list] })
    };
    let count = |min: u64, max: u64| {
        let mut count = json!({ "type": "integer", "minimum": min });
        if i64::try_from(max).is_ok() {
            count["maximum"] = max.into();
        }
        count
    };
    let text = || json!({ "type": "string" });
    match kind {
        Kind::Text(_)
        | Kind::Size(..)
        | Kind::SizeOr(..)
        | Kind::Duration
        | Kind::DurationIn(..)
        | Kind::DurationOrZero
        | Kind::DurationOr(_)
        | Kind::DurationOrOneOf(_) => text(),
        Kind::List(_) => list(0, text()),
        Kind::Some(_) => list(1, text()),
        Kind::Rows(_) => list(
            1,
            json!({ "anyOf": [text(), {
            "type": "object",
            "properties": { "file": text() },
            "required": ["file"],
            "additionalProperties": false,
        }] }),
        ),
        Kind::Statuses(_) => list(1, json!({ "type": ["integer", "string"] })),
        Kind::Count(min, max) => count(min, max),
        Kind::CountOr(min, max, word) => json!({ "anyOf": [count(min, max), { "const": word }] }),
        Kind::CountOrTable(min) => json!({ "anyOf": [count(min, u64::MAX), table] }),
        Kind::Rates(most) => {
            let list = json!({ "type": "array", "items": text(), "minItems": 1, "maxItems": most });
            json!({ "anyOf": [text(), list] })
        }
        Kind::RateOrFalse => json!({ "anyOf": [text(), { "const": false }] }),
        Kind::Allowance(_) => json!({ "anyOf": [text(), { "type": "array", "items": text() }, table] }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::OneOf(words) => json!({ "enum": words.all() }),
        Kind::OneOfOrTable(words) => json!({ "anyOf": [{ "enum": words.all() }, table] }),
        Kind::TextOrTable(_) => json!({ "anyOf": [text(), table] }),
        Kind::ValueOrTable(_) => json!({ "anyOf": [list(1, text()), { "type": "boolean" }, table] }),
        // A map of prices has tables of them.
        Kind::Map(_) => json!({ "type": "object", "additionalProperties": { "type": ["number", "string", "object"] } }),
        Kind::Tables(_) => json!({ "type": "array", "items": table, "minItems": 1 }),
    }
}
