//! The JSON Schema of a configuration, for editors, from the table of options.
//!
//! It has types, words and bounds of single options. Relations between options are in `compile`.

use serde_json::{Map, Value, json};

use super::effective::{LISTS, constant, join};
use super::schema::{Kind, Preset, find, keys_of};

/// The JSON Schema of a configuration, draft 2020-12.
pub fn json_schema() -> Value {
    let mut schema = of_table("");
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Configuration of Weir".into();
    schema
}

/// The schema of the value at `path`.
fn of_value(path: &str) -> Value {
    let table = of_table(path);
    let Some(option) = find(path) else {
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
fn of_table(path: &str) -> Value {
    let mut names = keys_of(path);
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [] => return json!({ "type": "object" }),
        [any @ ("NAME" | "PART"), ..] => {
            return json!({ "type": "object", "additionalProperties": of_value(&join(path, any)) });
        }
        _ => {}
    }
    let properties = names.iter().map(|name| ((*name).to_owned(), of_value(&join(path, name))));
    let properties: Map<_, _> = properties.collect();
    let is_required = |name: &&str| {
        let is_required = find(&join(path, name)).is_some_and(|option| matches!(option.default, Preset::Required));
        // `concurrency` has `max` in place of a rate, and an override may have a plan.
        is_required && *name != "rate"
    };
    names.retain(is_required);
    json!({
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": false,
    })
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
