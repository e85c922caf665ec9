//! Edits of the file's text. Comments and edits by hand stay. Nothing is written to the file or checked here.

use serde::Serialize;
use serde_json::Value;
use toml_edit::ser::{self, ValueSerializer};
use toml_edit::{DocumentMut, Item, TableLike};

use super::{end, shown};
use crate::base::time::Timestamp;
use crate::engine::policy::overrides::{EndedOverride, OverrideEdit, OverrideError};

/// The first lines of the file.
const OPENING: &str = "# Overrides set at run time. Weir adds, changes and removes overrides in this file, and keeps comments.\n\
    # Edits by hand apply like those of the configuration.\n\n";

/// The file after some edits.
pub(in crate::config) struct Edited {
    pub(in crate::config) text: String,
    /// For each edit, the allowance before it.
    pub(in crate::config) before: Vec<Option<Value>>,
    /// The overrides that have ended. They are not in `text`.
    pub(in crate::config) ended: Vec<EndedOverride>,
}

/// The file without the overrides that have ended at `now`, after `edits`, which are made one after another.
pub(in crate::config) fn edited(text: &str, edits: &[OverrideEdit], now: Timestamp) -> Result<Edited, OverrideError> {
    let unreadable = |what: &str| OverrideError::InvalidOnDisk(format!("the file of `admin.overrides`: {what}"));
    let text = text.strip_prefix(OPENING).unwrap_or(text);
    let mut file: DocumentMut = text.parse().map_err(|_| unreadable("it is not valid TOML"))?;
    let ended = remove_ended(&mut file, now);
    let mut before = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        if edit.allowance.is_some() {
            file.entry(&edit.limit).or_insert_with(toml_edit::table);
        }
        let Some(limit) = file.get_mut(&edit.limit) else {
            before.push(None);
            continue;
        };
        let overrides = limit.as_table_like_mut().ok_or_else(|| unreadable("it has no table for this limit"))?;
        let earlier = match &edit.allowance {
            Some(allowance) => set(overrides, &edit.key, allowance).map_err(|_| {
                let reason =
                    "to: a number is too large, or `null` is inside; `null` stands alone, to remove an override";
                OverrideError::Invalid { index: Some(index), reason: reason.to_owned() }
            })?,
            None => overrides.remove(&edit.key),
        };
        before.push(earlier.and_then(|item| item.into_value().ok()).map(shown::json));
    }
    Ok(Edited { text: format!("{OPENING}{file}"), before, ended })
}

/// Removes the overrides that have ended at `now`, and returns them.
fn remove_ended(file: &mut DocumentMut, now: Timestamp) -> Vec<EndedOverride> {
    let mut ended = Vec::new();
    for (limit, overrides) in file.iter_mut() {
        let Some(overrides) = overrides.as_table_like_mut() else { continue };
        let is_over = |(key, item): (&str, &Item)| end::has_ended(item, now).then(|| key.to_owned());
        let keys: Vec<_> = overrides.iter().filter_map(is_over).collect();
        for key in keys {
            let Some(allowance) = overrides.remove(&key).and_then(|item| item.into_value().ok()) else { continue };
            ended.push(EndedOverride { limit: limit.to_string(), key, allowance: shown::json(allowance) });
        }
    }
    ended
}

/// Sets the allowance of a key, and returns that before. The comments above and beside an override stay.
fn set(overrides: &mut dyn TableLike, key: &str, allowance: &Value) -> Result<Option<Item>, ser::Error> {
    let mut new = allowance.serialize(ValueSerializer::new())?;
    Ok(match overrides.get_mut(key).and_then(Item::as_value_mut) {
        Some(value) => {
            *new.decor_mut() = value.decor().clone();
            Some(Item::Value(std::mem::replace(value, new)))
        }
        None => overrides.insert(key, Item::Value(new)),
    })
}
