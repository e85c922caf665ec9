//! `weir check`.

use std::path::Path;
use std::process::ExitCode;

use super::INVALID_CONFIGURATION;
use crate::config;

pub(super) fn check(file: &Path) -> ExitCode {
    match config::load(file) {
        Ok(config) => {
            let limits = config.policy.limits().len();
            println!("{}: valid; limits: {limits}", file.display());
            ExitCode::SUCCESS
        }
        Err(diagnostics) => {
            eprintln!("{diagnostics}");
            ExitCode::from(INVALID_CONFIGURATION)
        }
    }
}
