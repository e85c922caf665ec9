//! `weir check`.

use std::process::ExitCode;

use super::output::{FAILURE, INVALID_CONFIGURATION, announce_large, complain, invalid, say, unusable};
use crate::app::remote::{self, ConfigAddress, RemoteOptions};
use crate::config;

/// Shows errors, or warnings and the result. With `strict`, a warning makes the configuration invalid.
pub(super) fn check(address: ConfigAddress, options: &RemoteOptions, strict: bool) -> ExitCode {
    let file = address.to_string();
    let origin = match remote::origin(address, options) {
        Ok(origin) => origin,
        Err(error) => return unusable(&error),
    };
    announce_large(&origin);
    let config = match config::load(&origin) {
        Ok(config) => config,
        Err(diagnostics) => return invalid(&diagnostics),
    };
    let limits = config.policy.limits().len();
    let warned = match config.warnings.len() {
        0 => String::new(),
        1 => ", with 1 warning".to_owned(),
        count => format!(", with {count} warnings"),
    };
    if !config.warnings.is_empty() {
        complain(&config.warnings, FAILURE);
    }
    match config.run_time.problems {
        _ if strict && !warned.is_empty() => {
            complain(&format_args!("\nweir: {file}: invalid{warned}, because of --strict"), INVALID_CONFIGURATION)
        }
        None => say(&format_args!("{file}: valid{warned}; limits: {limits}")),
        Some(problems) => {
            let _ = say(&format_args!("{file}: valid{warned}, except overrides set at run time; limits: {limits}"));
            complain(&problems, FAILURE)
        }
    }
}
