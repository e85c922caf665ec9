//! The command line: what to do, and what to say with the exit code.
//!
//! 0 all is well; 1 it failed; 2 the command line is wrong; 3 the configuration is invalid.

mod ask;
mod check;
mod demo;
mod explain;
mod healthcheck;
mod run;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Diagnostics;
use ask::{Means, Place};

/// A rate-limiting reverse proxy that forwards, refuses or holds.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Serve as a configuration file says.
    ///
    /// The file is watched, and read again when it changes or on SIGHUP.
    Run {
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Say everything that is wrong with a configuration file; exit code 3 if anything is.
    Check {
        #[command(flatten)]
        file: ConfigFile,
        /// Treat warnings as errors: exit code 3.
        #[arg(long)]
        strict: bool,
    },
    /// Show what Weir does, with a small service of its own; needs no file.
    Demo {
        /// Where to listen; by default 127.0.0.1:8080, or a free port if that is taken.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Say what would become of a request, limit by limit, and why; charges nothing.
    Explain(Box<explain::Asked>),
    /// Ask a running Weir whether it is well; for container health checks.
    Healthcheck {
        /// Its admin listener: a host and a port, a URL, or `unix:` and a path.
        #[arg(long, value_name = "URL", default_value = "127.0.0.1:9901")]
        admin: Place,
        #[command(flatten)]
        means: Means,
    },
}

/// A configuration file, given with or without the name of its option.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ConfigFile {
    /// The file.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn path(self) -> PathBuf {
        self.file.or(self.config).unwrap_or_default()
    }
}

const FAILURE: u8 = 1;
const INVALID_CONFIGURATION: u8 = 3;

/// Does what the command line of this process asks for.
pub fn main() -> ExitCode {
    match Command::parse().what {
        What::Run { file } => run::run(&file.path()),
        What::Check { file, strict } => check::check(&file.path(), strict),
        What::Demo { listen } => demo::demo(listen),
        What::Explain(asked) => explain::explain(*asked),
        What::Healthcheck { admin, means } => healthcheck::healthcheck(&admin, &means),
    }
}

/// What was asked for, on standard output.
fn say(text: &dyn Display) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        // As in `weir explain ... | head -1`: who reads has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format_args!("standard output: {error}")),
    }
}

/// One line on standard error, and the exit code that goes with it.
fn fail(error: &dyn Display) -> ExitCode {
    complain(&format_args!("weir: {error}"), FAILURE)
}

/// All that is wrong with a configuration, and the exit code that goes with it.
fn invalid(diagnostics: &Diagnostics) -> ExitCode {
    complain(diagnostics, INVALID_CONFIGURATION)
}

fn complain(text: &dyn Display, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "{text}"); // the exit code says it even if nobody reads
    ExitCode::from(code)
}
