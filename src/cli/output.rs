//! Standard output, standard error and exit codes.
//!
//! Exit codes: 0 success; 1 failure; 2 wrong command line; 3 invalid configuration.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use rustix::fs::{FileType, Stat, fstat, stat};

use crate::app::remote::StartError;
use crate::base::visible::printable;
use crate::config::{Diagnostics, Origin};

pub(super) const FAILURE: u8 = 1;
pub(super) const INVALID_CONFIGURATION: u8 = 3;

/// The exit code of a command. The error is the exit code of a failure whose message is written.
pub(super) type Exit = Result<ExitCode, ExitCode>;

/// Writes text to standard output that some reader must get.
pub(super) fn deliver(text: &dyn Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", printable(&text.to_string()))?;
    out.flush()
}

/// Whether standard output is `/dev/null`, which also takes the place of a closed one when the process starts.
pub(super) fn goes_nowhere() -> bool {
    let device =
        |stat: Stat| (FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice).then_some(stat.st_rdev);
    let [out, null] = [fstat(io::stdout()), stat("/dev/null")].map(|stat| stat.ok().and_then(device));
    out.is_some() && out == null
}

/// Writes the result to standard output.
pub(super) fn say(text: &dyn Display) -> Exit {
    match deliver(text) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader needs no more, as in `weir explain ... | head -1`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(fail(&format_args!("standard output: {error}"))),
    }
}

/// Writes an error to standard error, and returns its exit code.
pub(super) fn fail(error: &dyn Display) -> ExitCode {
    complain(&format_args!("weir: {error}"), FAILURE)
}

/// As [`fail`], for `map_err`.
pub(super) fn failed(error: impl Display) -> ExitCode {
    fail(&error)
}

/// Writes all errors of a configuration to standard error, and returns its exit code.
pub(super) fn invalid(diagnostics: &Diagnostics) -> ExitCode {
    complain(diagnostics, INVALID_CONFIGURATION)
}

/// Writes why there is no configuration to standard error, and returns its exit code.
pub(super) fn unusable(error: &StartError) -> ExitCode {
    match error {
        StartError::Invalid(diagnostics) => invalid(diagnostics),
        StartError::Unreachable(reason) => fail(reason),
    }
}

/// Writes to standard error that a large configuration takes a while.
pub(super) fn announce_large(origin: &Origin) {
    if let Some(bytes) = origin.large_bytes() {
        let _ = writeln!(io::stderr(), "weir: compiling a configuration of {} KiB", bytes / 1024);
    }
}

pub(super) fn complain(text: &dyn Display, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "{}", printable(&text.to_string())); // the exit code reports the failure even without a reader
    ExitCode::from(code)
}
