//! Changes to the file: JSON to TOML and back, and whether what comes of them compiles.
//!
//! Nothing is written here.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};
use toml::de::DeValue;

use super::run_time::RunTime;
use crate::admin::{ChangeError, Edit, Override};
use crate::config::compile::Config;
use crate::config::files::FILE_BYTES_MAX;
use crate::config::load::{load, load_with};

/// What stands at the top of the file.
const OPENING: &str = "# Overrides set at run time. Weir writes this file; edits by hand are taken over like those of the\n\
    # configuration, but for comments.\n\n";

/// A configuration with other overrides.
#[derive(Debug)]
pub struct Changed {
    /// As it is with them.
    pub config: Config,
    /// The file to be written,
    pub file: PathBuf,
    /// and what is to be in it.
    pub text: String,
    /// For each edit, what was set at run time before it.
    pub was: Vec<Option<Value>>,
}

/// What the configuration at `path` and its file of overrides become with `edits`, which are made one after another.
///
/// # Errors
/// Why they cannot be made; all of them can, or none.
pub fn change(path: &Path, edits: &[Edit]) -> Result<Changed, ChangeError> {
    let mend = |what: &str| ChangeError::Mend(format!("{what} must be mended first; `weir check` says what is wrong"));
    let before = load(path).map_err(|_| mend("the configuration on disk is invalid, and"))?.run_time;
    let Some(file) = before.file.clone() else { return Err(ChangeError::NoFile) };
    let Some(text) = &before.text else { return Err(mend("the file of `admin.overrides` cannot be read, and")) };
    let text = edited(text, edits)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ChangeError::Unfit(None, "the file of `admin.overrides` would be longer than 16 MiB".to_owned()));
    }
    let config = load_with(path, &text).map_err(|_| mend("the configuration on disk is invalid, and"))?;
    if let Some((at, why)) = why_not(&before, &config.run_time, edits) {
        return Err(ChangeError::Unfit(at, why));
    }
    let was = edits.iter().map(|edit| Some(before.find(&edit.limit, &edit.text)?.to.clone())).collect();
    Ok(Changed { config, file, text, was })
}

/// The first edit that would be left out, or any other override that would be because of them.
fn why_not(before: &RunTime, after: &RunTime, edits: &[Edit]) -> Option<(Option<usize>, String)> {
    if after.text.is_none() {
        return Some((None, "this cannot be written as TOML".to_owned()));
    }
    let of_edit = |(at, edit): (usize, &Edit)| {
        edit.to.as_ref()?;
        Some((Some(at), after.find(&edit.limit, &edit.text)?.why_not.clone()?.into()))
    };
    let left = after.overrides.iter().filter_map(|set| Some((set, set.why_not.clone()?)));
    let out_before = before.overrides.iter().filter(|set| set.why_not.is_some());
    let out_before: HashSet<_> = out_before.map(|set| (&*set.limit, &*set.text)).collect();
    let is_new = |set: &Override| !out_before.contains(&(&*set.limit, &*set.text));
    let of_other = left.filter(|(set, _)| is_new(set)).map(|(_, why)| (None, why.into())).next();
    edits.iter().enumerate().find_map(of_edit).or(of_other)
}

/// The text of the file after `edits`.
fn edited(text: &str, edits: &[Edit]) -> Result<String, ChangeError> {
    let unreadable =
        |error: &dyn std::fmt::Display| ChangeError::Mend(format!("the file of `admin.overrides`: {error}"));
    let mut file: toml::Table = text.parse().map_err(|_| unreadable(&"it is not valid TOML"))?;
    for (at, edit) in edits.iter().enumerate() {
        let unfit = |why: &str| ChangeError::Unfit(Some(at), why.to_owned());
        let limit = file.entry(&*edit.limit).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let Some(overrides) = limit.as_table_mut() else { return Err(unreadable(&"it has no table for this limit")) };
        match &edit.to {
            Some(to) => overrides.insert(edit.text.clone(), toml_of(to).map_err(unfit)?),
            None => overrides.remove(&edit.text),
        };
        if overrides.is_empty() {
            file.remove(&edit.limit);
        }
    }
    let written = toml::to_string(&file).map_err(|error| unreadable(&error))?;
    Ok(format!("{OPENING}{written}"))
}

/// What JSON says, as TOML.
fn toml_of(value: &Value) -> Result<toml::Value, &'static str> {
    Ok(match value {
        Value::Null => return Err("to: `null` stands alone, to remove what was set"),
        Value::Bool(is_so) => (*is_so).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(fraction)) if number.is_f64() => fraction.into(),
            _ => return Err("to: a number that is too large"),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => toml::Value::Array(items.iter().map(toml_of).collect::<Result<_, _>>()?),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| Ok((key.clone(), toml_of(value)?));
            toml::Value::Table(map.iter().map(pair).collect::<Result<_, &'static str>>()?)
        }
    })
}

/// What TOML says, as JSON.
pub(super) fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Integer(whole) => {
            let number = i64::from_str_radix(whole.as_str(), whole.radix());
            number.map_or_else(|_| Value::String(whole.as_str().to_owned()), Value::from)
        }
        DeValue::Float(fraction) => {
            let number = fraction.as_str().parse().ok().and_then(Number::from_f64);
            number.map_or_else(|| Value::String(fraction.as_str().to_owned()), Value::Number)
        }
        DeValue::Boolean(is_so) => Value::Bool(*is_so),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let pair = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let key: &toml::de::DeString<'_> = key.get_ref();
                (key.clone().into_owned(), json_of(value.get_ref()))
            };
            Value::Object(table.iter().map(pair).collect::<Map<_, _>>())
        }
    }
}
