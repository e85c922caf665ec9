//! `weir check`.

use std::path::Path;
use std::process::ExitCode;

use super::{invalid, say};
use crate::config;

pub(super) fn check(file: &Path) -> ExitCode {
    match config::load(file) {
        Ok(config) => {
            let limits = config.policy.limits().len();
            say(&format_args!("{}: valid; limits: {limits}", file.display()))
        }
        Err(diagnostics) => invalid(&diagnostics),
    }
}
