//! The JSON Schema accepts what Weir accepts, and its own errors are errors for Weir too.

use std::path::Path;

use serde_json::Value;

use crate::config::{compile, json_schema};

/// Whether `value` fits `schema`. Only the words that the schema has are known.
fn fits(schema: &Value, value: &Value) -> bool {
    let is_type = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => unreachable!("type {other}"),
    };
    schema.as_object().unwrap().iter().all(|(word, rule)| match word.as_str() {
        "$schema" | "title" | "description" | "default" => true,
        "type" => rule.as_array().map_or_else(|| is_type(rule), |names| names.iter().any(is_type)),
        "anyOf" => rule.as_array().unwrap().iter().any(|one| fits(one, value)),
        "enum" => rule.as_array().unwrap().contains(value),
        "const" => rule == value,
        "minimum" => value.as_i64().is_none_or(|number| number >= rule.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|number| number <= rule.as_i64().unwrap()),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| fits(rule, item))),
        "required" => value
            .as_object()
            .is_none_or(|table| rule.as_array().unwrap().iter().all(|name| table.contains_key(name.as_str().unwrap()))),
        "properties" => value
            .as_object()
            .is_none_or(|table| table.iter().all(|(name, value)| rule.get(name).is_none_or(|rule| fits(rule, value)))),
        "additionalProperties" => value.as_object().is_none_or(|table| {
            let is_other = |name: &str| schema.get("properties").is_none_or(|all| all.get(name).is_none());
            table.iter().filter(|(name, _)| is_other(name)).all(|(_, value)| *rule != false && fits(rule, value))
        }),
        other => unreachable!("the schema has {other}"),
    })
}

fn toml(text: &str) -> Value {
    toml::from_str(text).unwrap()
}

#[test]
fn files_of_the_folder_fit() {
    let schema = json_schema();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("config")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                files += 1;
                assert!(fits(&schema, &toml(&std::fs::read_to_string(&path).unwrap())), "{}", path.display());
            }
        }
    }
    assert!(files > 5, "{files}");
}

#[test]
fn errors_of_types_words_and_bounds_do_not_fit() {
    const LIMIT: &str = "[[limit]]\nname = 'a'\nkey = ['ip']\nrate = '1/s'\n";
    let schema = json_schema();
    for (text, is_good) in [
        (String::new(), true),
        ("server.workers = 4".to_owned(), true),
        ("server.workers = 0".to_owned(), false),
        ("server.workers = 1025".to_owned(), false),
        ("server.workers = '4'".to_owned(), false),
        ("server.worker = 4".to_owned(), false),
        ("server.reload = 'watch'".to_owned(), true),
        ("server.reload = 'watched'".to_owned(), false),
        ("server.listen = []".to_owned(), false),
        ("server.forwarded = 1".to_owned(), false),
        ("timeouts.total = 'off'".to_owned(), true),
        ("headers.free_preflights = false".to_owned(), true),
        ("headers.free_preflights = true".to_owned(), false),
        ("[identity.a]\nheader = 'x-a'".to_owned(), true),
        ("[identity.a]\nheaders = 'x-a'".to_owned(), false),
        ("[trace]\nsample = 2".to_owned(), false),
        ("[access]\nrequire = [{ plan = 'a', identity = 'b' }]".to_owned(), true),
        (LIMIT.to_owned(), true),
        ("[[limit]]\nkey = []\nrate = '1/s'".to_owned(), false),
        (format!("{LIMIT}plans = {{ gold = 'x2', max = {{ rate = ['5/s', '9/min'] }} }}"), true),
        (format!("{LIMIT}plans = {{ gold = {{ rates = '5/s' }} }}"), false),
        (format!("{LIMIT}cost = 0"), false),
        (format!("{LIMIT}cost = {{ header = 'x-cost', max = 5 }}"), true),
        (format!("{LIMIT}count = {{ status = [404, '5xx'] }}"), true),
        (format!("{LIMIT}strategy = {{ use = 'lease', units = 'auto' }}"), true),
        (format!("{LIMIT}strategy = {{ units = 'auto' }}"), false),
    ] {
        assert_eq!(fits(&schema, &toml(&text)), is_good, "{text}");
        if !is_good {
            let text = format!("{text}\n[upstream]\nurl = 'http://127.0.0.1:9'");
            assert!(compile(&text, "weir.toml", Path::new("config"), &|_| None).is_err(), "{text}");
        }
    }
}
