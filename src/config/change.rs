//! Changes overrides at run time: edits their file, and compiles the result before Weir writes it.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;
use toml::de::DeTable;

use super::compile::Config;
use super::diagnostics::Diagnostics;
use super::load::{ConfigInForce, ConfigText, Document};
use super::overrides::OverrideFile;
use super::overrides::edit::{Edited, edited};
use crate::engine::policy::overrides::{EndedOverride, Override, OverrideEdit, OverrideError};

/// A configuration with edited overrides.
#[derive(Debug)]
pub struct Changed {
    /// The configuration.
    pub config: Config,
    /// The text of the overrides.
    pub text: String,
    /// For each edit, the allowance that was set before it.
    pub before: Vec<Option<Value>>,
    /// The overrides that had ended, and are not in `text`.
    pub ended: Vec<EndedOverride>,
    /// Where to keep a copy of the file before `text` replaces it: the file is invalid, and nothing of it is in `text`.
    pub copy_to: Option<PathBuf>,
}

/// Compiles the configuration in force with its overrides after `edits`. The edits apply in their order to `base`;
/// without it to the text of the file, or to that in force if the file is invalid.
///
/// # Errors
/// If the overrides cannot be read, or if an edit does not fit. No edit applies then.
pub fn change(in_force: &ConfigInForce, edits: &[OverrideEdit], base: Option<&str>) -> Result<Changed, OverrideError> {
    let ConfigInForce { origin, files, overrides } = in_force;
    let invalid = |diagnostics: Diagnostics| {
        OverrideError::InvalidOnDisk(format!("the configuration in force does not compile again:\n{diagnostics}"))
    };
    let config_text = ConfigText::read(origin, Some(files)).map_err(invalid)?;
    let (table, errors) = DeTable::parse_recoverable(&config_text.text);
    let env = |name: &str| origin.variable(name);
    let document = Document { text: &config_text, table: table.get_ref(), errors: &errors, env: &env };
    let file = document.overrides(Some(overrides)).ok_or(OverrideError::Off)?;
    let copy_to = base.is_none().then(|| file.place_of_invalid()).flatten();
    let known = || if copy_to.is_some() { Some(overrides.text_at(&file.place)) } else { file.text() };
    let before = base.or_else(known).ok_or_else(|| {
        let what = "the file of `admin.overrides` cannot be read; run `weir check` and correct it first";
        OverrideError::InvalidOnDisk(what.to_owned())
    })?;
    let Edited { text, before, ended } = edited(before, edits, config_text.now)?;
    let unusable = |reason: &str| OverrideError::Invalid { index: None, reason: reason.to_owned() };
    if let Some(reason) = file.place.fault_of_length(&text) {
        return Err(unusable(reason));
    }
    let edited = OverrideFile::with_text(file.place, &text);
    let config = document.compile(Some(edited), None).map_err(invalid)?;
    if config.run_time.kept.text.is_none() {
        return Err(unusable("the overrides cannot be written as TOML"));
    }
    match rejection(&config, edits) {
        Some(error) => Err(error),
        None => Ok(Changed { config, text, before, ended, copy_to }),
    }
}

/// The error of the first edit that `config` does not apply, or that drops windows unasked. If two overrides have one key,
/// neither applies. If a limit has too many overrides, none applies.
fn rejection(config: &Config, edits: &[OverrideEdit]) -> Option<OverrideError> {
    let overrides = config.run_time.overrides.iter().filter(|one| one.rejection.is_some() || one.dropped.is_some());
    let suspects: HashMap<_, _> = overrides.map(|one| ((&*one.limit, &*one.key), one)).collect();
    let mut set = edits.iter().enumerate().filter(|(_, edit)| edit.allowance.is_some());
    let of_edit = |(index, edit): (usize, &OverrideEdit)| {
        let Override { rejection, dropped, .. } = suspects.get(&(&*edit.limit, &*edit.key))?;
        let dropped = dropped.as_deref().filter(|_| !edit.replaces);
        let dropped = || dropped.map(|how| format!("{how}; `replace` (`--replace`) allows it"));
        let reason = rejection.as_deref().map(str::to_owned).or_else(dropped)?;
        Some(OverrideError::Invalid { index: Some(index), reason })
    };
    set.find_map(of_edit)
}
