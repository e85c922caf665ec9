//! The options that say where the configuration is.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::output::{INVALID_CONFIGURATION, complain};
use crate::app::remote::{ConfigAddress, FeedOptions, RemoteOptions, TlsFiles};

const REMOTE: &str = "Remote configuration";

/// A configuration, given with or without the name of its option.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(super) struct ConfigArg {
    /// The configuration: a file, `etcd://HOST:PORT/KEY`, `etcds://HOST:PORT/KEY` with TLS, or an https URL. The default
    /// is `weir.toml` in the working directory, then `/etc/weir/weir.toml`.
    #[arg(value_name = "CONFIG", value_parser = address())]
    place: Option<ConfigAddress>,
    /// The configuration, as above.
    #[arg(long, value_name = "CONFIG", value_parser = address())]
    config: Option<ConfigAddress>,
}

impl ConfigArg {
    /// The address; by default the first of [`PLACES`] that exists, which standard error names. Without one, errs with the
    /// exit code.
    pub(super) fn address(self) -> Result<ConfigAddress, ExitCode> {
        if let Some(address) = self.place.or(self.config) {
            return Ok(address);
        }
        let Some(found) = PLACES.into_iter().find(|path| Path::new(path).exists()) else {
            let places = PLACES.map(|path| format!("`{path}`")).join(" nor ");
            let what = format!("weir: there is no configuration: neither {places} exists; name a file");
            return Err(complain(&what, INVALID_CONFIGURATION));
        };
        complain(&format_args!("weir: the configuration is {found}"), 0);
        Ok(ConfigAddress::File(found.into()))
    }
}

/// The places of the configuration, if the command line names none.
const PLACES: [&str; 2] = ["weir.toml", "/etc/weir/weir.toml"];

/// Reads an address of a configuration.
pub(super) fn address() -> impl TypedValueParser<Value = ConfigAddress> {
    PathBufValueParser::new().try_map(ConfigAddress::parse)
}

/// The credentials for a remote configuration, and the folder of its files.
#[derive(Debug, Args)]
#[command(next_help_heading = REMOTE)]
pub(super) struct RemoteArgs {
    /// The folder of relative paths in the configuration; the default is the working directory.
    #[arg(id = "config-folder", long = "config-folder", value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The CA certificates in PEM; replaces the root certificates of the system.
    #[arg(id = "config-ca", long = "config-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The client certificate in PEM.
    #[arg(id = "config-cert", long = "config-cert", value_name = "FILE", requires = "config-key")]
    cert: Option<PathBuf>,
    /// The private key of the client certificate.
    #[arg(id = "config-key", long = "config-key", value_name = "FILE", requires = "config-cert")]
    key: Option<PathBuf>,
    /// The file with `user:password`; the default is the environment variable `WEIR_CONFIG_LOGIN`.
    #[arg(id = "config-login", long = "config-login", value_name = "FILE")]
    login: Option<PathBuf>,
    /// The file with a bearer token for https; the default is the environment variable `WEIR_CONFIG_TOKEN`.
    #[arg(id = "config-token", long = "config-token", value_name = "FILE")]
    token: Option<PathBuf>,
}

impl RemoteArgs {
    pub(super) fn options(self) -> RemoteOptions {
        let own = self.cert.zip(self.key);
        RemoteOptions {
            tls: TlsFiles { authorities: self.ca, own },
            login: self.login,
            token: self.token,
            folder: self.folder,
        }
    }
}

/// How a running Weir follows a remote configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = REMOTE)]
pub(super) struct FeedArgs {
    /// The folder of the last configurations in force; the default is `$STATE_DIRECTORY` of systemd, or `/var/lib/weir`.
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// The name of this replica in etcd; the default is the name of the host and the process id.
    #[arg(long, value_name = "NAME", value_parser = replica)]
    replica: Option<String>,
    /// The interval at which a URL is polled; the default is 10s.
    #[arg(long, value_name = "TIME", default_value = "10s", hide_default_value = true, value_parser = interval)]
    config_poll: Duration,
}

impl FeedArgs {
    pub(super) fn options(self) -> FeedOptions {
        FeedOptions { state_dir: self.state_dir, replica: self.replica, poll_every: self.config_poll }
    }
}

/// Reads a name that is one part of a key.
fn replica(text: &str) -> Result<String, &'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let fits = (1..=128).contains(&text.len()) && text.chars().all(is_name);
    if fits { Ok(text.to_owned()) } else { Err("expected 1 to 128 of `A-Z a-z 0-9 _ - . :`") }
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let read = humantime::parse_duration(text).map_err(|_| "expected a time such as `10s`")?;
    if read < Duration::from_millis(100) { Err("expected at least 100ms") } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times_are_bounded() {
        for (text, fits) in [("a", true), ("weir-1.eu:2", true), ("", false), ("a/b", false), (&"a".repeat(129), false)]
        {
            assert_eq!(replica(text).is_ok(), fits, "{text}");
        }
        for (text, ms) in [("10s", Some(10_000)), ("100ms", Some(100)), ("99ms", None), ("0s", None), ("10", None)] {
            assert_eq!(interval(text).ok(), ms.map(Duration::from_millis), "{text}");
        }
    }
}
