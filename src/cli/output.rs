//! Standard output, standard error and exit codes.
//!
//! Exit codes: 0 success; 1 failure; 2 wrong command line; 3 invalid configuration.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::config::Diagnostics;

pub(super) const FAILURE: u8 = 1;
pub(super) const INVALID_CONFIGURATION: u8 = 3;

/// What was asked for, on standard output.
pub(super) fn say(text: &dyn Display) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        // As in `weir explain ... | head -1`: who reads has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format_args!("standard output: {error}")),
    }
}

/// One line on standard error, and the exit code that goes with it.
pub(super) fn fail(error: &dyn Display) -> ExitCode {
    complain(&format_args!("weir: {error}"), FAILURE)
}

/// All that is wrong with a configuration, and the exit code that goes with it.
pub(super) fn invalid(diagnostics: &Diagnostics) -> ExitCode {
    complain(diagnostics, INVALID_CONFIGURATION)
}

pub(super) fn complain(text: &dyn Display, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "{text}"); // the exit code says it even if nobody reads
    ExitCode::from(code)
}
