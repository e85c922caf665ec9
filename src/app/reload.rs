//! Takes over a changed configuration, or keeps the one in force and says why.
//!
//! On SIGHUP the files are read in any case; on a change in their folders, and every few seconds for file
//! systems that announce none, only if their contents differ from what was tried last.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::files::FileWatch;
use super::jwks::Jwks;
use super::operators::Operators;
use super::systemd;
use crate::config::{self, Config, Sources};
use crate::gate::Gate;
use crate::proxy::settings::Fixed;
use crate::proxy::{Current, Listen, Shared};
use crate::store::snapshot;
use crate::telemetry;
use crate::telemetry::Metrics;

/// How long a file is left alone after a change, so that it is not read half written.
const SETTLE: Duration = Duration::from_millis(50);
/// How often files are compared with what was read, whether or not a change was announced.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a configuration becomes that is in force.
pub(super) fn install(gate: &Gate, config: Config, metrics: &Metrics, before: Option<&Current>) -> Current {
    let live = gate.install(config.policy, config.hold, config.max_tokens);
    Current::new(live, config.proxy, config.log.access, metrics, before)
}

/// What stays as it was at the start.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    fixed: Fixed,
    admin: (Option<Listen>, bool),
    snapshot: Option<snapshot::Settings>,
    log: telemetry::LogSettings,
}

impl Kept {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            fixed: config.fixed.clone(),
            admin: (config.admin_listen.clone(), config.admin.has_tls),
            snapshot: config.snapshot.clone(),
            log: config.log.clone(),
        }
    }

    /// The tables in which `new` asks for what only a restart can give.
    fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let log = |kept: &Self| (kept.log.format, kept.log.level);
        let tables = [
            ("server", self.fixed != new.fixed),
            ("admin", self.admin != new.admin),
            ("snapshot", self.snapshot != new.snapshot),
            ("log", log(self) != log(new)),
        ];
        tables.into_iter().filter_map(|(table, differs)| differs.then_some(table)).collect()
    }
}

/// What goes by the configuration beside the data path.
pub(super) struct Beside {
    pub(super) operators: Arc<Operators>,
    pub(super) jwks: Arc<Jwks>,
}

/// Reloads one file, and what it refers to, for as long as Weir runs.
pub(super) struct Reloader {
    source: PathBuf,
    kept: Kept,
    shared: Arc<Shared>,
    /// What was tried last, whether or not it was taken over.
    tried: Sources,
    beside: Beside,
}

impl Reloader {
    pub(super) fn new(source: PathBuf, kept: Kept, tried: Sources, shared: Arc<Shared>, beside: Beside) -> Self {
        Self { source, kept, shared, tried, beside }
    }

    /// Watches and reloads until dropped.
    pub(super) async fn run(mut self, mut hangups: Hangups) {
        let mut watch = FileWatch::new(self.tried.paths());
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = hangups.0.recv() => true,
                () = watch.changed() => { sleep(SETTLE).await; false }
                _ = looks.tick() => false,
            };
            if asked || self.tried.have_changed() {
                systemd::tell_reloading();
                self.reload();
                watch = FileWatch::new(self.tried.paths());
                systemd::tell_ready();
            }
        }
    }

    fn reload(&mut self) {
        let metrics = &self.shared.metrics;
        let config = match config::load(&self.source) {
            Ok(config) => config,
            Err(diagnostics) => {
                metrics.reload_successful.set(0);
                self.tried = diagnostics.sources().clone();
                let problems = diagnostics.len();
                return tracing::error!(problems, "the new configuration is invalid; the old one stays\n{diagnostics}");
            }
        };
        let restart = self.kept.needs_restart(&Kept::of(&config));
        if !restart.is_empty() {
            tracing::warn!(tables = ?restart, "changed, but stays as it was until a restart");
        }
        self.tried = config.sources.clone();
        let before = self.shared.current.load_full();
        let config = keep_sessions(config, &before);
        let limits = config.policy.limits().len();
        self.beside.operators.reload(config.admin.access.clone(), config.admin_tls.clone());
        self.beside.jwks.adopt(&config.policy);
        self.shared.current.store(Arc::new(install(&self.shared.gate, config, metrics, Some(&before))));
        self.shared.reloads.send_replace(());
        metrics.reloaded(self.shared.gate.clock().now());
        tracing::info!(limits, "reloaded");
    }
}

/// If nothing of TLS has changed, clients can still resume the sessions they had.
fn keep_sessions(mut config: Config, current: &Current) -> Config {
    if config.proxy.tls == current.settings.tls {
        config.proxy.tls.clone_from(&current.settings.tls);
    }
    config
}

/// SIGHUP, from when this is made on.
pub(super) struct Hangups(Signal);

impl Hangups {
    pub(super) fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }
}
