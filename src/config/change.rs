//! Changes overrides at run time: edits their file, and compiles the result before Weir writes it.

use std::collections::HashMap;

use serde_json::Value;

use super::compile::Config;
use super::load::{ConfigText, Document, Origin};
use super::overrides::edit::edited;
use super::overrides::{OverrideFile, OverridesInForce};
use crate::policy::overrides::{Override, OverrideEdit, OverrideError};

/// A configuration with edited overrides.
#[derive(Debug)]
pub struct Changed {
    /// The configuration.
    pub config: Config,
    /// The text of the overrides.
    pub text: String,
    /// For each edit, the allowance that was set before it.
    pub before: Vec<Option<Value>>,
}

/// Compiles a configuration with its overrides after `edits`. The edits apply in their order to `base`; without it to the
/// text of the file, or to that in memory, which is `in_force`.
///
/// # Errors
/// If the files on disk are invalid, or if an edit does not fit. No edit applies then.
pub fn change(
    origin: &Origin,
    edits: &[OverrideEdit],
    base: Option<&str>,
    in_force: &OverridesInForce,
) -> Result<Changed, OverrideError> {
    let invalid = |what: &str| OverrideError::InvalidOnDisk(format!("{what}; run `weir check` and correct it first"));
    let invalid_config = |_| invalid("the configuration on disk is invalid");
    let config_text = ConfigText::read(origin).map_err(invalid_config)?;
    let (table, errors) = config_text.parse();
    let env = |name: &str| origin.variable(name);
    let document = Document::new(&config_text, table.get_ref(), &errors, &env);
    let file = document.overrides(Some(in_force)).ok_or(OverrideError::Off)?;
    let before = base.or(file.text()).ok_or_else(|| invalid("the file of `admin.overrides` cannot be read"))?;
    let (text, before) = edited(before, edits)?;
    let unusable = |reason: &str| OverrideError::Invalid { index: None, reason: reason.to_owned() };
    if let Some(reason) = file.place.fault_of_length(&text) {
        return Err(unusable(reason));
    }
    let edited = OverrideFile::with_text(file.place, &text);
    let config = document.compile(Some(edited), None).map_err(invalid_config)?;
    if config.run_time.kept.text.is_none() {
        return Err(unusable("the overrides cannot be written as TOML"));
    }
    match rejection(&config, edits) {
        Some(error) => Err(error),
        None => Ok(Changed { config, text, before }),
    }
}

/// The error of the first edit that `config` does not apply. If two overrides have one key, neither applies. If a limit
/// has too many overrides, none applies.
fn rejection(config: &Config, edits: &[OverrideEdit]) -> Option<OverrideError> {
    let overrides = config.run_time.overrides.iter();
    let rejected: HashMap<_, _> = overrides
        .filter_map(|Override { limit, key, rejection, .. }| Some(((&**limit, &**key), rejection.as_deref()?)))
        .collect();
    let mut set = edits.iter().enumerate().filter(|(_, edit)| edit.allowance.is_some());
    let of_edit = |(index, edit): (usize, &OverrideEdit)| {
        let reason = (*rejected.get(&(&*edit.limit, &*edit.key))?).to_owned();
        Some(OverrideError::Invalid { index: Some(index), reason })
    };
    set.find_map(of_edit)
}
