//! The first version of a configuration: the newest one, or the last good one on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::address::{ConfigAddress, RemoteAddress};
use super::client::Client;
use super::credentials::RemoteOptions;
use super::feed::{ConfigFeed, InForce, RemoteFeed, StartNote};
use super::last_good::{LastGood, StateFile};
use super::origin::OriginSettings;
use super::version::Version;
use crate::config::{self, Config, Diagnostics, Origin};

/// How a running Weir follows a remote configuration.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// The folder of the last good configuration; otherwise that of systemd, or `/var/lib/weir`.
    pub state_dir: Option<PathBuf>,
    /// The name of this replica in reports; otherwise the host's name and the process id.
    pub replica: Option<String>,
    /// The interval between readings of a URL.
    pub poll_every: Duration,
}

/// Why there is no configuration.
#[derive(Debug)]
pub enum StartError {
    /// It is invalid.
    Invalid(Box<Diagnostics>),
    /// It cannot be read. The text is one line.
    Unreachable(String),
}

impl From<Diagnostics> for StartError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Invalid(Box::new(diagnostics))
    }
}

/// The folder of the state of services, if systemd names no other one.
const STATE_DIR: &str = "/var/lib/weir";

/// Reads the newest version at an address.
///
/// # Errors
/// Why it cannot be read.
pub fn origin(address: ConfigAddress, options: &RemoteOptions) -> Result<Origin, StartError> {
    let address = match address {
        ConfigAddress::File(path) => return Ok(Origin::File(path)),
        ConfigAddress::Remote(address) => address,
    };
    let bytes = Client::new(&address, options).and_then(|client| client.fetch()).and_then(content);
    let bytes = bytes.map_err(|reason| StartError::Unreachable(format!("{address}: {reason}")))?;
    Ok(OriginSettings::of(&address, options).origin(bytes))
}

fn content(version: Version) -> Result<Arc<[u8]>, String> {
    version.content.map_err(|reason| reason.to_string())
}

/// Reads the newest version at an address, or the last good one on disk if the newest one cannot be read or is invalid.
/// Returns the feed of later versions, too.
///
/// # Errors
/// Why there is no valid version.
pub fn open(
    address: ConfigAddress,
    options: &RemoteOptions,
    feed: &FeedOptions,
) -> Result<(Config, ConfigFeed), StartError> {
    let address = match address {
        ConfigAddress::File(path) => {
            let config = config::load(&Origin::File(path.clone()))?;
            let versions = versions_file(feed.state_dir.as_deref(), &path);
            return Ok((config, ConfigFeed::File { path, versions }));
        }
        ConfigAddress::Remote(address) => address,
    };
    let unreachable = |reason| StartError::Unreachable(format!("{address}: {reason}"));
    let client = Client::new(&address, options).map_err(unreachable)?;
    let settings = OriginSettings::of(&address, options);
    let last_good = LastGood::new(&state_dir(feed.state_dir.as_deref()), &address);
    let fetched = client.fetch();
    let newest = fetched.clone().ok();
    let read = match fetched {
        Ok(Version { revision, content: Ok(bytes) }) => match config::load(&settings.origin(Arc::clone(&bytes))) {
            Ok(config) => Ok((config, InForce { revision, bytes })),
            Err(diagnostics) => Err(StartNote::Invalid(Box::new(diagnostics))),
        },
        Ok(Version { content: Err(reason), .. }) => Err(StartNote::Absent(reason.to_string())),
        Err(reason) => Err(StartNote::Unreachable(reason)),
    };
    let (config, in_force, note) = match read {
        Ok((config, in_force)) => (config, in_force, None),
        Err(note) => {
            let (config, in_force) = from_disk(&last_good, &settings, &note, &address)?;
            (config, in_force, Some(note))
        }
    };
    let replica = feed.replica.clone().unwrap_or_else(replica);
    let feed = RemoteFeed::new(client, settings, last_good, (newest, in_force, note), (replica, feed.poll_every));
    Ok((config, ConfigFeed::Remote(Box::new(feed))))
}

/// The last good version on disk, because of `note`.
fn from_disk(
    last_good: &LastGood,
    settings: &OriginSettings,
    note: &StartNote,
    address: &RemoteAddress,
) -> Result<(Config, InForce), StartError> {
    let missing = match last_good.read() {
        Ok(Some(stored)) => {
            let in_force = InForce { revision: stored.revision.into(), bytes: stored.bytes.into() };
            return Ok((config::load(&settings.origin(Arc::clone(&in_force.bytes)))?, in_force));
        }
        Ok(None) => "there is none".to_owned(),
        Err(reason) => reason,
    };
    match note {
        StartNote::Invalid(diagnostics) => Err(StartError::Invalid(diagnostics.clone())),
        StartNote::Absent(reason) | StartNote::Unreachable(reason) => Err(StartError::Unreachable(format!(
            "{address}: {reason}; and no last good configuration in {}: {missing}",
            last_good.path().display()
        ))),
    }
}

/// The file of the last configurations in force; none without a folder of state.
fn versions_file(named: Option<&Path>, config: &Path) -> Option<StateFile> {
    let folder = state_dir(named);
    let is_there = named.is_some() || std::env::var_os("STATE_DIRECTORY").is_some() || folder.is_dir();
    let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    let file = StateFile::new(&folder, &config.display().to_string(), config.as_os_str().as_encoded_bytes());
    is_there.then(|| file.of_versions())
}

fn state_dir(named: Option<&Path>) -> PathBuf {
    // systemd lists several folders with colons between them.
    let of_systemd = || std::env::var_os("STATE_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    named.map(Path::to_owned).or_else(of_systemd).unwrap_or_else(|| STATE_DIR.into())
}

/// A name that no other process of a fleet has at the same time.
fn replica() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
