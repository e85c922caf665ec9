//! Reads the file. Messages repeat no value of it, because somebody may have written a key in place of its digest.

use std::collections::HashSet;

use toml::{Table, Value};

use crate::admin::parse_rfc3339;
use crate::base::time::Timestamp;
use crate::engine::policy::api_keys::{ApiKey, Digest, KeyOwner, is_name};

/// The owners in the text of a file.
///
/// # Errors
/// The first problem, as the end of a sentence that begins with the name of the file.
pub fn read(text: &str) -> Result<Vec<KeyOwner>, String> {
    let table = text.parse::<Table>().map_err(|error| {
        let before = text.get(..error.span().unwrap_or_default().start).unwrap_or_default();
        format!("is not valid TOML at line {}: {}", before.matches('\n').count() + 1, error.message())
    })?;
    let mut digests = HashSet::new();
    let owner = |(name, value): (&String, &Value)| {
        if !value.is_table() {
            return Err("has an entry that is not a table".to_owned());
        }
        let wrong = |what| format!("has an error in `[{}]`: {what}", name.escape_debug());
        let owner = owner(name, value).map_err(wrong)?;
        let is_unique = owner.keys.iter().all(|key| digests.insert(key.digest));
        if is_unique { Ok(owner) } else { Err(wrong("another key has the same `sha256`".to_owned())) }
    };
    table.iter().map(owner).collect()
}

fn owner(name: &str, value: &Value) -> Result<KeyOwner, String> {
    let table = table(value, &["plan", "disabled", "keys"])?;
    let plan = match table.get("plan") {
        None => None,
        Some(plan) => Some(plan.as_str().filter(|plan| is_name(plan)).ok_or("`plan` must be the name of a plan")?),
    };
    if !is_name(name) {
        return Err("a name has 1 to 128 bytes, no control characters, no `|`, and no spaces around it".to_owned());
    }
    let is_disabled = match table.get("disabled") {
        None => false,
        Some(value) => value.as_bool().ok_or("`disabled` must be `true` or `false`")?,
    };
    let keys = match table.get("keys") {
        None => Vec::new(),
        Some(keys) => {
            let keys = keys.as_array().ok_or("`keys` must be a list of tables")?;
            let numbered = |(index, value)| key(value).map_err(|what| format!("key {}: {what}", index + 1));
            keys.iter().enumerate().map(numbered).collect::<Result<_, _>>()?
        }
    };
    Ok(KeyOwner { name: name.into(), plan: plan.map(Into::into), is_disabled, keys })
}

fn key(value: &Value) -> Result<ApiKey, String> {
    let table = table(value, &["sha256", "created", "expires", "overlap_ends"])?;
    let digest = table.get("sha256").and_then(Value::as_str).and_then(digest);
    let digest = digest.ok_or("`sha256` must have 64 hexadecimal digits")?;
    let created = instant(table, "created")?.ok_or("`created` is missing")?;
    let (expires, overlap_ends) = (instant(table, "expires")?, instant(table, "overlap_ends")?);
    Ok(ApiKey { digest, created, expires, overlap_ends })
}

/// A table with no other keys than these.
fn table<'v>(value: &'v Value, known: &[&str]) -> Result<&'v Table, String> {
    let table = value.as_table().ok_or("it must be a table")?;
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(table),
        Some(_) => Err(format!("an unknown key; there can be `{}`", known.join("`, `"))),
    }
}

fn instant(table: &Table, key: &str) -> Result<Option<Timestamp>, String> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let instant = value.as_datetime().and_then(|date| parse_rfc3339(&date.to_string()));
    let what = || format!("`{key}` must be a time in UTC such as 2026-01-31T18:00:00Z, without quotes");
    instant.map(Some).ok_or_else(what)
}

fn digest(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if text.len() != 2 * digest.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        let digits = &text[2 * at..2 * at + 2];
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
    }
    Some(digest)
}
