//! The command line: parses it, and runs the chosen subcommand.

mod ask;
mod check;
mod demo;
mod explain;
mod healthcheck;
mod import;
mod init;
mod operate;
mod output;
mod run;
mod source;
mod table;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use ask::{AdminAddress, Credentials};
use output::{Exit, fail, say};
use source::{ConfigArg, FeedArgs, RemoteArgs};

use crate::config::json_schema;

/// A rate-limiting reverse proxy that forwards, refuses or holds.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run Weir with a configuration.
    ///
    /// Weir watches the configuration, and reads it again after a change or on SIGHUP. It keeps the last good version of
    /// a remote configuration on disk, and starts with it if the newest version cannot be read or is invalid.
    Run {
        #[command(flatten)]
        config: ConfigArg,
        #[command(flatten)]
        remote: RemoteArgs,
        #[command(flatten)]
        feed: FeedArgs,
    },
    /// Check a configuration and show all errors; exit code 3 if it is invalid.
    Check {
        #[command(flatten)]
        config: ConfigArg,
        #[command(flatten)]
        form: check::CheckArgs,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Translate the limits of another proxy into a configuration; exit code 3 if a line is not translated exactly.
    Import(import::ImportArgs),
    /// Ask a few questions and write a first configuration; an existing file stays.
    Init(init::InitArgs),
    /// Print a JSON Schema of the configuration, for editors.
    Schema,
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages: `weir.1`, and one for each subcommand.
    Man {
        /// The folder; it must exist.
        folder: PathBuf,
    },
    /// Demonstrate Weir with a built-in service; needs no configuration file.
    Demo {
        /// The address to listen on; by default 127.0.0.1:8080, or a free port if that port is in use.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
        /// Run three replicas that share a limit, on free ports.
        #[arg(long, conflicts_with = "listen")]
        fleet: bool,
        /// Send load for about ten minutes: six clients of this host, about 20 requests a second.
        #[arg(long, conflicts_with = "fleet")]
        load: bool,
    },
    /// Explain how each limit would decide about a request, or a refusal by its id; charges nothing.
    Explain(Box<explain::ExplainArgs>),
    /// Show what all limits of a running Weir know of one client: keys, bans, overrides, plan, last requests.
    Client(Box<operate::ClientArgs>),
    /// Show or reset keys of a running Weir, or list those that are limited.
    Keys(Box<operate::KeysArgs>),
    /// List, set and lift bans of a running Weir.
    Bans(Box<operate::BansArgs>),
    /// List, set and remove overrides of a running Weir.
    Overrides(Box<operate::OverridesArgs>),
    /// List, assign and remove plans of single keys of a running Weir.
    Plans(Box<operate::PlansArgs>),
    /// Make, list, rotate and revoke API keys, in the file that a configuration names.
    #[command(name = "apikeys")]
    ApiKeys(Box<operate::ApiKeysArgs>),
    /// Show the services and endpoints of a running Weir, drain endpoints, and set their weights.
    Upstreams(Box<operate::UpstreamsArgs>),
    /// Show limits, verdicts, headroom, the most refused keys and the endpoints of a running Weir.
    Top(Box<operate::TopArgs>),
    /// Show, check and reload the configuration of a running Weir.
    Config(Box<operate::ConfigArgs>),
    /// List the last changes that operators made to a running Weir.
    Audit(Box<operate::AuditArgs>),
    /// Show requests of a running Weir as they end.
    Tap(Box<operate::TapArgs>),
    /// Check whether a running Weir is healthy; for container health checks.
    Healthcheck {
        /// The admin listener: a host and a port, a URL, or `unix:` and a path. The default is that of --config, then the
        /// environment variable `WEIR_ADMIN`, then 127.0.0.1:9901.
        #[arg(long, value_name = "URL")]
        admin: Option<AdminAddress>,
        /// The configuration file that names the admin listener.
        #[arg(long, value_name = "FILE", conflicts_with = "admin")]
        config: Option<PathBuf>,
        #[command(flatten)]
        credentials: Credentials,
    },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match run(Command::parse().action) {
        Ok(code) | Err(code) => code,
    }
}

fn run(action: Action) -> Exit {
    match action {
        Action::Run { config, remote, feed } => run::run(config.address()?, &remote.options(), &feed.options()),
        Action::Check { config, remote, form } => check::check(config.address()?, &remote.options(), form),
        Action::Import(args) => import::import(&args),
        Action::Init(args) => init::init(&args),
        Action::Schema => say(&format_args!("{:#}", json_schema())),
        Action::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Command::command(), "weir", &mut script);
            say(&String::from_utf8_lossy(&script).trim_end())
        }
        Action::Man { folder } => {
            let written = clap_mangen::generate_to(Command::command(), &folder);
            written.map_err(|error| fail(&format_args!("{}: {error}", folder.display())))?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Demo { listen, fleet, load } => Ok(demo::demo(listen, fleet, load)),
        Action::Explain(args) => explain::explain(*args),
        Action::Client(args) => operate::client(*args),
        Action::Keys(args) => operate::keys(*args),
        Action::Bans(args) => operate::bans(*args),
        Action::Overrides(args) => operate::overrides(*args),
        Action::Plans(args) => operate::plans(*args),
        Action::ApiKeys(args) => operate::api_keys(*args),
        Action::Upstreams(args) => operate::upstreams(*args),
        Action::Top(args) => operate::top(*args),
        Action::Config(args) => operate::config(*args),
        Action::Audit(args) => operate::audit(*args),
        Action::Tap(args) => operate::tap(&args),
        Action::Healthcheck { admin, config, credentials } => {
            healthcheck::healthcheck(admin, config.as_deref(), &credentials)
        }
    }
}
