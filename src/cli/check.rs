//! `weir check`.

use std::path::Path;
use std::process::ExitCode;

use super::{FAILURE, complain, invalid, say};
use crate::config;

pub(super) fn check(file: &Path) -> ExitCode {
    match config::load(file) {
        Ok(config) => {
            let (limits, file) = (config.policy.limits().len(), file.display());
            match config.run_time.left_out {
                None => say(&format_args!("{file}: valid; limits: {limits}")),
                Some(problems) => {
                    let _ = say(&format_args!("{file}: valid, but for overrides set at run time; limits: {limits}"));
                    complain(&problems, FAILURE)
                }
            }
        }
        Err(diagnostics) => invalid(&diagnostics),
    }
}
