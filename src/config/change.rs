//! Changes overrides at run time: edits their file, and compiles the result before Weir writes it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::compile::Config;
use super::files::FILE_BYTES_MAX;
use super::load::{ConfigText, Document};
use super::overrides::OverrideFile;
use super::overrides::edit::{allowances, edited};
use crate::policy::overrides::{OverrideEdit, OverrideError};

/// A configuration with edited overrides.
#[derive(Debug)]
pub struct Changed {
    /// The configuration.
    pub config: Config,
    /// The file to write.
    pub file: PathBuf,
    /// The text to write to the file.
    pub text: String,
    /// For each edit, the allowance that was set before it.
    pub before: Vec<Option<Value>>,
}

/// Compiles the configuration at `path` with its overrides after `edits`. Edits apply in their order.
///
/// # Errors
/// If the files on disk are invalid, or if an edit does not fit. No edit applies then.
pub fn change(path: &Path, edits: &[OverrideEdit]) -> Result<Changed, OverrideError> {
    let invalid = |what: &str| OverrideError::InvalidOnDisk(format!("{what}; run `weir check` and correct it first"));
    let invalid_config = |_| invalid("the configuration on disk is invalid");
    let config_text = ConfigText::read(path).map_err(invalid_config)?;
    let (table, errors) = config_text.parse();
    let env = |name: &str| std::env::var(name).ok();
    let document = Document::new(&config_text, table.get_ref(), &errors, &env);
    let file = OverrideFile::read(document.overrides_path().ok_or(OverrideError::NoFile)?);
    let before = file.text().ok_or_else(|| invalid("the file of `admin.overrides` cannot be read"))?;
    let text = edited(before, edits)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let reason = "the file of `admin.overrides` would be longer than 16 MiB".to_owned();
        return Err(OverrideError::Invalid { index: None, reason });
    }
    let before = allowances(before, edits);
    let edited = OverrideFile::with_text(file.path.clone(), &text);
    let config = document.compile(Some(edited)).map_err(invalid_config)?;
    if config.run_time.text().is_none() {
        let reason = "the overrides cannot be written as TOML".to_owned();
        return Err(OverrideError::Invalid { index: None, reason });
    }
    match rejection(&config, edits) {
        Some(error) => Err(error),
        None => Ok(Changed { config, file: file.path, text, before }),
    }
}

/// The error of the first edit that `config` does not apply. If two overrides have one key, neither applies. If a limit
/// has too many overrides, none applies.
fn rejection(config: &Config, edits: &[OverrideEdit]) -> Option<OverrideError> {
    let of_edit = |(index, edit): (usize, &OverrideEdit)| {
        edit.allowance.as_ref()?;
        let reason = config.run_time.find(&edit.limit, &edit.key)?.rejection.as_deref()?.to_owned();
        Some(OverrideError::Invalid { index: Some(index), reason })
    };
    edits.iter().enumerate().find_map(of_edit)
}
