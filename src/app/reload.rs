//! Takes over a changed configuration, or keeps the one in force and says why.
//!
//! On SIGHUP the files are read in any case; on a change in their folders, and every few seconds for file
//! systems that announce none, only if their contents differ from what was tried last.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::files::FileWatch;
use crate::config::{self, Config};
use crate::gate::Gate;
use crate::proxy::settings::Fixed;
use crate::proxy::{Current, Shared};
use crate::{admin, telemetry};

/// How long a file is left alone after a change, so that it is not read half written.
const SETTLE: Duration = Duration::from_millis(50);
/// How often files are compared with what was read, whether or not a change was announced.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a configuration becomes that is in force.
pub(super) fn install(gate: &Gate, config: Config) -> Current {
    let live = gate.install(config.policy, config.hold, config.max_tokens);
    Current { live, settings: config.proxy, access_log: config.log.access }
}

/// What stays as it was at the start, and which files were read.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    fixed: Fixed,
    admin: admin::Settings,
    log: telemetry::LogSettings,
    files: Vec<PathBuf>,
}

impl Kept {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            fixed: config.fixed.clone(),
            admin: config.admin.clone(),
            log: config.log.clone(),
            files: config.files.clone(),
        }
    }

    /// The tables in which `new` asks for what only a restart can give.
    fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let log = |kept: &Self| (kept.log.format, kept.log.level);
        let tables =
            [("server", self.fixed != new.fixed), ("admin", self.admin != new.admin), ("log", log(self) != log(new))];
        tables.into_iter().filter_map(|(table, differs)| differs.then_some(table)).collect()
    }
}

/// Reloads one file, and what it refers to, for as long as Weir runs.
pub(super) struct Reloader {
    source: Option<PathBuf>,
    kept: Kept,
    shared: Arc<Shared>,
    /// Of the contents that were tried last.
    fingerprint: u64,
}

impl Reloader {
    pub(super) fn new(source: Option<PathBuf>, kept: Kept, shared: Arc<Shared>) -> Self {
        let fingerprint = fingerprint(&kept.files);
        Self { source, kept, shared, fingerprint }
    }

    /// Watches and reloads until dropped.
    pub(super) async fn run(mut self) {
        let Some(source) = self.source.clone() else { return };
        let mut hangups = match signal(SignalKind::hangup()) {
            Ok(hangups) => hangups,
            Err(error) => return tracing::error!(%error, "cannot take SIGHUP; there will be no reload"),
        };
        let mut watch = FileWatch::new(&self.kept.files);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = hangups.recv() => true,
                () = watch.changed() => { sleep(SETTLE).await; false }
                _ = looks.tick() => false,
            };
            let found = fingerprint(&self.kept.files);
            if asked || found != self.fingerprint {
                self.fingerprint = found;
                self.reload(&source);
                watch = FileWatch::new(&self.kept.files);
            }
        }
    }

    fn reload(&mut self, source: &std::path::Path) {
        let metrics = &self.shared.metrics;
        let config = match config::load(source) {
            Ok(config) => config,
            Err(diagnostics) => {
                metrics.reload_successful.set(0);
                let problems = diagnostics.len();
                return tracing::error!(problems, "the new configuration is invalid; the old one stays\n{diagnostics}");
            }
        };
        let new = Kept::of(&config);
        let restart = self.kept.needs_restart(&new);
        if !restart.is_empty() {
            tracing::warn!(tables = ?restart, "changed, but stays as it was until a restart");
        }
        self.kept.files = new.files;
        self.fingerprint = fingerprint(&self.kept.files);
        let limits = config.policy.limits().len();
        self.shared.current.store(Arc::new(install(&self.shared.gate, config)));
        metrics.reloaded(self.shared.gate.clock().now());
        tracing::info!(limits, "reloaded");
    }
}

/// Of the contents of all files; one that cannot be read counts as such.
fn fingerprint(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).ok().hash(&mut hasher);
    }
    hasher.finish()
}
