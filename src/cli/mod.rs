//! The command line: parses it, and runs the chosen subcommand.

mod ask;
mod check;
mod demo;
mod explain;
mod healthcheck;
mod output;
mod run;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use ask::{AdminAddress, Credentials};

/// A rate-limiting reverse proxy that forwards, refuses or holds.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run Weir with a configuration file.
    ///
    /// Weir watches the file, and reads it again after a change or on SIGHUP.
    Run {
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Check a configuration file and show all errors; exit code 3 if it is invalid.
    Check {
        #[command(flatten)]
        file: ConfigFile,
        /// Treat warnings as errors.
        #[arg(long)]
        strict: bool,
    },
    /// Demonstrate Weir with a built-in service; needs no configuration file.
    Demo {
        /// The address to listen on; by default 127.0.0.1:8080, or a free port if that port is in use.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Explain how each limit would decide about a request; charges nothing.
    Explain(Box<explain::ExplainArgs>),
    /// Check whether a running Weir is healthy; for container health checks.
    Healthcheck {
        /// The admin listener: a host and a port, a URL, or `unix:` and a path.
        #[arg(long, value_name = "URL", default_value = "127.0.0.1:9901")]
        admin: AdminAddress,
        #[command(flatten)]
        credentials: Credentials,
    },
}

/// A configuration file, given with or without the name of its option.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ConfigFile {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn path(self) -> PathBuf {
        self.file.or(self.config).unwrap_or_default()
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match Command::parse().action {
        Action::Run { file } => run::run(&file.path()),
        Action::Check { file, strict } => check::check(&file.path(), strict),
        Action::Demo { listen } => demo::demo(listen),
        Action::Explain(args) => explain::explain(*args),
        Action::Healthcheck { admin, credentials } => healthcheck::healthcheck(&admin, &credentials),
    }
}
