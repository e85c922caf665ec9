//! Edits of the file's text. Nothing is written or checked here.

use serde_json::Value;
use toml::de::DeTable;

use super::shown;
use crate::policy::overrides::{OverrideEdit, OverrideError};

/// The first lines of the file.
const OPENING: &str = "# Overrides set at run time. Weir writes this file; edits by hand are taken over like those of the\n\
    # configuration, but for comments.\n\n";

/// The text of the file after `edits`, which are made one after another.
pub(in crate::config) fn edited(text: &str, edits: &[OverrideEdit]) -> Result<String, OverrideError> {
    let unreadable = |error: &str| OverrideError::InvalidOnDisk(format!("the file of `admin.overrides`: {error}"));
    let mut file: toml::Table = text.parse().map_err(|_| unreadable("it is not valid TOML"))?;
    for (index, edit) in edits.iter().enumerate() {
        let invalid = |reason: &str| OverrideError::Invalid { index: Some(index), reason: reason.to_owned() };
        let limit = file.entry(&*edit.limit).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let overrides = limit.as_table_mut().ok_or_else(|| unreadable("it has no table for this limit"))?;
        match &edit.allowance {
            Some(allowance) => overrides.insert(edit.key.clone(), toml_of(allowance).map_err(invalid)?),
            None => overrides.remove(&edit.key),
        };
        if overrides.is_empty() {
            file.remove(&edit.limit);
        }
    }
    let written = toml::to_string(&file).map_err(|error| unreadable(&error.to_string()))?;
    Ok(format!("{OPENING}{written}"))
}

/// For each edit, the allowance that `text` has for its key.
pub(in crate::config) fn allowances(text: &str, edits: &[OverrideEdit]) -> Vec<Option<Value>> {
    let Ok(file) = DeTable::parse(text) else { return vec![None; edits.len()] };
    let find = |edit: &OverrideEdit| {
        let overrides = file.get_ref().get(edit.limit.as_str())?.get_ref().as_table()?;
        Some(shown::json(overrides.get(edit.key.as_str())?.get_ref()))
    };
    edits.iter().map(find).collect()
}

/// JSON as TOML.
fn toml_of(value: &Value) -> Result<toml::Value, &'static str> {
    Ok(match value {
        Value::Null => return Err("to: `null` stands alone, to remove an override"),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(fraction)) if number.is_f64() => fraction.into(),
            _ => return Err("to: the number is too large"),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => toml::Value::Array(items.iter().map(toml_of).collect::<Result<_, _>>()?),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| Ok((key.clone(), toml_of(value)?));
            toml::Value::Table(map.iter().map(pair).collect::<Result<_, &'static str>>()?)
        }
    })
}
