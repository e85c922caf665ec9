//! The versions of a configuration in a running Weir: the newest one, and the one in force.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::client::Client;
use super::etcd::{Channels, follow};
use super::last_good::{LastGood, StateFile};
use super::origin::OriginSettings;
use super::poll::poll;
use super::version::{Report, RolloutState, Version, problems};
use crate::admin::rfc3339;
use crate::base::telemetry::Metrics;
use crate::base::time::{Timestamp, system_now};
use crate::config::{Diagnostics, Origin};

/// The configuration of a running Weir, as it changes.
#[derive(Debug)]
pub enum ConfigFeed {
    /// A file, which the task that reloads watches itself.
    File {
        /// Its path.
        path: PathBuf,
        /// The file of the last configurations in force; none if they are in memory.
        versions: Option<StateFile>,
    },
    /// A configuration that does not change. Overrides do.
    Fixed(Origin),
    /// A place on other machines.
    Remote(Box<RemoteFeed>),
}

/// A configuration on other machines.
#[derive(Debug)]
pub struct RemoteFeed {
    client: Client,
    settings: OriginSettings,
    last_good: LastGood,
    poll_every: Duration,
    /// The newest version that was read.
    newest: Option<Version>,
    in_force: InForce,
    /// The revision of the earlier configuration that an operator returned to, while it is in force.
    returned_to: Option<Box<str>>,
    /// Why the process began with the version on disk. It is logged once the log is open.
    note: Option<StartNote>,
    offered: watch::Sender<Option<Version>>,
    versions: watch::Receiver<Option<Version>>,
    reports: watch::Sender<Report>,
    again: Arc<Notify>,
}

/// The version in force.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) revision: Arc<str>,
    pub(super) bytes: Arc<[u8]>,
}

/// Why the newest version is not the one that a process begins with.
#[derive(Debug)]
pub enum StartNote {
    /// It cannot be read.
    Unreachable(String),
    /// It has no content.
    Absent(String),
    /// It cannot be compiled.
    Invalid(Box<Diagnostics>),
}

/// The reason in reports of a replica whose operator has returned to an earlier configuration.
const RETURNED: &str = "an operator has returned to an earlier configuration";

impl RemoteFeed {
    pub(super) fn new(
        client: Client,
        settings: OriginSettings,
        last_good: LastGood,
        (newest, in_force, note): (Option<Version>, InForce, Option<StartNote>),
        (replica, poll_every): (String, Duration),
    ) -> Self {
        let (state, problems) = match &note {
            None => (RolloutState::InForce, Vec::new()),
            Some(StartNote::Unreachable(_)) => (RolloutState::FromDisk, Vec::new()),
            Some(StartNote::Absent(reason)) => (RolloutState::Refused, vec![reason.clone()]),
            Some(StartNote::Invalid(diagnostics)) => (RolloutState::Refused, problems(diagnostics)),
        };
        let report = Report {
            replica,
            version: env!("CARGO_PKG_VERSION"),
            state,
            revision_seen: newest.as_ref().map(|newest| newest.revision.to_string()),
            revision_in_force: Some(in_force.revision.to_string()),
            problems,
            restart_needed: Vec::new(),
            at: rfc3339(system_now()),
        };
        let (offered, versions) = watch::channel(newest.clone());
        let (reports, again, returned_to) = (watch::Sender::new(report), Arc::default(), None);
        Self {
            client,
            settings,
            last_good,
            poll_every,
            newest,
            in_force,
            returned_to,
            note,
            offered,
            versions,
            reports,
            again,
        }
    }

    /// Logs why the process began with the version on disk, and returns it. Begins to read versions.
    fn start(&mut self, metrics: &Arc<Metrics>) -> Option<StartNote> {
        let (source, revision) = (&*self.settings.name, &*self.in_force.revision);
        match &self.note {
            None => tracing::info!(source, revision, "configuration read"),
            Some(StartNote::Unreachable(reason) | StartNote::Absent(reason)) => tracing::warn!(
                source,
                revision,
                reason,
                "the configuration cannot be read; the last good one on disk is in force"
            ),
            Some(StartNote::Invalid(diagnostics)) => tracing::error!(
                source,
                revision,
                "the configuration is invalid; the last good one on disk is in force\n{diagnostics}"
            ),
        }
        metrics.remote_config.in_force(revision);
        self.write_last_good(revision, &self.in_force.bytes);
        let channels = Channels {
            versions: self.offered.clone(),
            reports: self.reports.subscribe(),
            again: Arc::clone(&self.again),
            metrics: Arc::clone(metrics),
        };
        match self.client.clone() {
            Client::Etcd(place) => tokio::spawn(follow(place, channels)),
            Client::Http(page) => tokio::spawn(poll(page, self.poll_every, channels)),
        };
        self.note.take()
    }

    /// Writes a version that is in force to disk.
    fn write_last_good(&self, revision: &str, bytes: &[u8]) {
        if let Err(error) = self.last_good.write(revision, bytes) {
            let file = self.last_good.path().display();
            tracing::warn!(%file, %error, "the last good configuration cannot be kept; a start needs its source");
        }
    }

    fn revision_in_force(&self) -> &str {
        self.returned_to.as_deref().unwrap_or(&self.in_force.revision)
    }

    /// Reports the last attempt. `restart` has the tables whose changes wait for a restart; `None` if they stay as they were.
    fn report(&self, now: Timestamp, state: RolloutState, problems: Vec<String>, restart: Option<&[&'static str]>) {
        self.reports.send_modify(|report| {
            report.state = state;
            report.revision_seen = self.newest.as_ref().map(|newest| newest.revision.to_string());
            report.revision_in_force = Some(self.revision_in_force().to_owned());
            report.problems = problems;
            if let Some(restart) = restart {
                report.restart_needed = restart.to_vec();
            }
            report.at = rfc3339(now);
        });
    }
}

impl ConfigFeed {
    /// Whether the configuration is on other machines.
    pub(in crate::app) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Begins to read versions. Returns why the process began with the version on disk, if it did. Call it once, on the
    /// control runtime.
    pub(in crate::app) fn start(&mut self, metrics: &Arc<Metrics>) -> Option<StartNote> {
        match self {
            Self::File { .. } | Self::Fixed(_) => None,
            Self::Remote(feed) => feed.start(metrics),
        }
    }

    /// Waits for a newer version. Without one, or for a file, it waits forever.
    pub(in crate::app) async fn changed(&mut self) {
        let Self::Remote(feed) = self else { return std::future::pending().await };
        if feed.versions.changed().await.is_err() {
            return std::future::pending().await;
        }
        feed.newest.clone_from(&feed.versions.borrow_and_update());
    }

    /// Lets the newest version be read now.
    pub(in crate::app) fn look_again(&self) {
        if let Self::Remote(feed) = self {
            feed.again.notify_one();
        }
    }

    /// The newest version.
    ///
    /// # Errors
    /// Why the newest version has no content.
    pub(in crate::app) fn newest(&self) -> Result<Origin, String> {
        match self {
            Self::File { .. } | Self::Fixed(_) => Ok(self.in_force()),
            Self::Remote(feed) => match &feed.newest {
                Some(Version { content: Ok(bytes), .. }) => Ok(feed.settings.origin(Arc::clone(bytes))),
                Some(Version { content: Err(reason), .. }) => Err(reason.to_string()),
                None => Ok(self.in_force()),
            },
        }
    }

    /// The version in force; the newest one of a file.
    pub(in crate::app) fn in_force(&self) -> Origin {
        match self {
            Self::File { path, .. } => Origin::File(path.clone()),
            Self::Fixed(origin) => origin.clone(),
            Self::Remote(feed) => feed.settings.origin(Arc::clone(&feed.in_force.bytes)),
        }
    }

    /// The earlier configuration with this text, which was put in force at `at`.
    pub(in crate::app) fn earlier(&self, text: Arc<str>, at: &str) -> Origin {
        match self.in_force() {
            Origin::File(file) | Origin::Earlier { file, .. } => {
                let name = format!("{} of {at}", file.display()).into();
                Origin::Earlier { text, name, file }
            }
            Origin::Bytes { name, folder, variables, .. } => {
                let name = format!("{name} of {at}").into();
                Origin::Bytes { bytes: text.as_bytes().into(), name, folder, variables }
            }
        }
    }

    /// The file of the last configurations in force; none if they are in memory.
    pub(in crate::app) fn versions_file(&self) -> Option<StateFile> {
        match self {
            Self::File { versions, .. } => versions.clone(),
            Self::Fixed(_) => None,
            Self::Remote(feed) => Some(feed.last_good.file().clone().of_versions()),
        }
    }

    /// The revision of the newest version, as logs have it.
    pub(in crate::app) fn revision(&self) -> Option<&str> {
        match self {
            Self::File { .. } | Self::Fixed(_) => None,
            Self::Remote(feed) => Some(feed.newest.as_ref().map_or(&feed.in_force.revision, |newest| &newest.revision)),
        }
    }

    /// The revision of the version in force, as logs have it.
    pub(in crate::app) fn revision_in_force(&self) -> Option<&str> {
        match self {
            Self::File { .. } | Self::Fixed(_) => None,
            Self::Remote(feed) => Some(feed.revision_in_force()),
        }
    }

    /// The newest version is in force since `now`, except the tables in `restart`.
    pub(in crate::app) fn applied(&mut self, metrics: &Metrics, now: Timestamp, restart: &[&'static str]) {
        let Self::Remote(feed) = self else { return };
        let mut state = RolloutState::FromDisk;
        if let Some(Version { revision, content: Ok(bytes) }) = &feed.newest {
            feed.in_force = InForce { revision: Arc::clone(revision), bytes: Arc::clone(bytes) };
            state = RolloutState::InForce;
        }
        feed.returned_to = None;
        metrics.remote_config.in_force(&feed.in_force.revision);
        feed.write_last_good(&feed.in_force.revision, &feed.in_force.bytes);
        feed.report(now, state, Vec::new(), Some(restart));
    }

    /// An operator has returned to `earlier`, the configuration of `revision`, at `now`, in place of the newest version. It
    /// is in force except the tables in `restart`.
    pub(in crate::app) fn returned(
        &mut self,
        metrics: &Metrics,
        now: Timestamp,
        (earlier, revision): (&Origin, Option<&str>),
        restart: &[&'static str],
    ) {
        let Self::Remote(feed) = self else { return };
        // A configuration that was in force before the source was used has no revision.
        feed.returned_to = Some(revision.unwrap_or("none").into());
        metrics.remote_config.in_force(feed.revision_in_force());
        if let Origin::Bytes { bytes, .. } = earlier {
            feed.write_last_good(feed.revision_in_force(), bytes);
        }
        feed.report(now, RolloutState::Refused, vec![RETURNED.to_owned()], Some(restart));
    }

    /// The newest version was refused at `now`.
    pub(in crate::app) fn refused(&self, now: Timestamp, problems: Vec<String>) {
        if let Self::Remote(feed) = self {
            feed.report(now, RolloutState::Refused, problems, None);
        }
    }

    /// The newest version was refused at `now` because of `diagnostics`.
    pub(in crate::app) fn invalid(&self, now: Timestamp, diagnostics: &Diagnostics) {
        self.refused(now, problems(diagnostics));
    }
}
