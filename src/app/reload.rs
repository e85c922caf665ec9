//! Takes over a changed configuration, or keeps the one in force and says why.
//!
//! On SIGHUP the files are read in any case; on a change in their folders, and every few seconds for file
//! systems that announce none, only if their contents differ from what was tried last. Overrides that operators set
//! go this way too: so nobody else decides what is in force, and in which order.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::files::FileWatch;
use super::jwks::Jwks;
use super::operators::Operators;
use super::systemd;
use crate::admin::{Change, ChangeError, Edit, Override};
use crate::config::{self, Changed, Config, Diagnostics, Finding, Severity, Sources};
use crate::gate::Gate;
use crate::net::Listen;
use crate::proxy::settings::StartupSettings;
use crate::proxy::{RunningConfig, SharedState};
use crate::store::snapshot::{self, file};
use crate::telemetry;
use crate::telemetry::Metrics;
use crate::upstream::Ceiling;

/// How long a file is left alone after a change, so that it is not read half written.
const SETTLE: Duration = Duration::from_millis(50);
/// How often files are compared with what was read, whether or not a change was announced.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a configuration becomes that is in force. If it `is_alike` the one before but for overrides, tokens that were
/// verified need not be verified again.
pub(super) fn install(
    gate: &Gate,
    config: Config,
    metrics: &Metrics,
    ceiling: &Arc<Ceiling>,
    before: Option<&RunningConfig>,
    is_alike: bool,
) -> RunningConfig {
    metrics.overrides_left_out.set(i64::try_from(config.run_time.left_out_count).unwrap_or(i64::MAX));
    for (identity, _) in config.policy.fetched_keys() {
        metrics.show_jwks(identity);
    }
    let live = match before.filter(|_| is_alike) {
        Some(before) => gate.install_with(config.policy, config.hold, Arc::clone(&before.live.tokens)),
        None => gate.install(config.policy, config.hold, config.max_tokens),
    };
    RunningConfig::new(live, config.proxy, config.log.access, metrics, ceiling, before)
}

/// What stays as it was at the start.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    fixed: StartupSettings,
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

/// A configuration in force, as far as the next one is compared with it.
pub(super) struct AsIs {
    kept: Kept,
    sources: Sources,
    /// Where overrides are kept.
    file: Option<PathBuf>,
    /// The same with what is in it, if that could be read.
    set: Option<(PathBuf, String)>,
    left_out: LeftOut,
}

/// Which overrides set at run time are left out, and what is wrong with them. It is logged when it changes.
struct LeftOut {
    overrides: Vec<Override>,
    problems: Option<Diagnostics>,
}

impl LeftOut {
    fn of(config: &Config) -> Self {
        let all = config.run_time.overrides.iter();
        let overrides = all.filter(|set| set.why_not.is_some()).cloned().collect();
        Self { overrides, problems: config.run_time.left_out.clone() }
    }

    /// Whether it is the same, wherever in the file that stands.
    fn is_like(&self, other: &Self) -> bool {
        let titles = |of: &Self| of.problems.iter().flat_map(Diagnostics::iter).map(str::to_owned).collect::<Vec<_>>();
        self.overrides == other.overrides && titles(self) == titles(other)
    }

    fn tell(&self) {
        if let Some(problems) = &self.problems {
            tracing::error!("overrides set at run time are left out, because they do not fit\n{problems}");
        }
    }
}

impl AsIs {
    pub(super) fn of(config: &Config) -> Self {
        let (sources, file) = (config.sources.clone(), config.run_time.file.clone());
        let set = file.clone().zip(config.run_time.text().map(str::to_owned));
        Self { kept: Kept::of(config), sources, file, set, left_out: LeftOut::of(config) }
    }
}

/// Reloads one file, and what it refers to, for as long as Weir runs.
pub(super) struct Reloader {
    source: PathBuf,
    kept: Kept,
    shared: Arc<SharedState>,
    /// What was tried last, whether or not it was taken over.
    tried: Sources,
    /// What was taken over last.
    in_force: Sources,
    left_out: LeftOut,
    /// The file of overrides whose text is in force, and that text.
    set: Option<(PathBuf, String)>,
    beside: Beside,
    changes: mpsc::Receiver<Change>,
}

impl Reloader {
    pub(super) fn new(
        source: PathBuf,
        as_is: AsIs,
        shared: Arc<SharedState>,
        beside: Beside,
        changes: mpsc::Receiver<Change>,
    ) -> Self {
        let AsIs { kept, sources, file, set, left_out } = as_is;
        // What earlier processes left beside it is in nobody's way if it stays.
        let _ = file.map(|file| file::clear(&file));
        Self { source, kept, shared, tried: sources.clone(), in_force: sources, left_out, set, beside, changes }
    }

    /// Watches, reloads and makes changes until dropped.
    pub(super) async fn run(mut self, mut hangups: Hangups) {
        self.left_out.tell();
        let mut watch = FileWatch::new(self.tried.paths());
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = hangups.0.recv() => true,
                () = watch.changed() => { sleep(SETTLE).await; false }
                _ = looks.tick() => false,
                Some(change) = self.changes.recv() => {
                    self.change(change).await;
                    watch = FileWatch::new(self.tried.paths());
                    continue;
                }
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
        match config::load(&self.source) {
            Ok(config) => {
                let (read, warnings) = (config.sources.clone(), config.warnings.clone());
                self.adopt(self.keep_overrides(config));
                self.tried = read;
                self.tell_reloaded();
                log_findings(&warnings);
            }
            Err(diagnostics) => {
                self.shared.metrics.reload_successful.set(0);
                self.tried = diagnostics.sources().clone();
                let problems = diagnostics.len();
                tracing::error!(problems, "the new configuration is invalid; the old one stays\n{diagnostics}");
                log_findings(&diagnostics);
            }
        }
    }

    /// The same configuration with the overrides in force, if nothing can be read of the file that has them: what is
    /// broken, or half written, lifts no override.
    fn keep_overrides(&self, config: Config) -> Config {
        let Some((file, text)) = &self.set else { return config };
        if config.run_time.text().is_some() || config.run_time.file.as_ref() != Some(file) {
            return config;
        }
        match config::load_with(&self.source, text) {
            Ok(kept) => Config { run_time: kept.run_time.as_wrong_as(config.run_time), ..kept },
            Err(_) => config,
        }
    }

    /// Makes what is on disk, with these overrides set, what is in force. Whoever has gone meanwhile does not know what
    /// became of it, so that nothing is done for them.
    async fn change(&mut self, change: Change) {
        let Change { edits, answer } = change;
        if answer.is_closed() {
            return;
        }
        let mut by_limit: BTreeMap<String, usize> = BTreeMap::new();
        for edit in &edits {
            *by_limit.entry(edit.limit.clone()).or_default() += 1;
        }
        let source = self.source.clone();
        let made = spawn_blocking(move || make(&source, &edits)).await;
        let outcome = match made.unwrap_or_else(|error| Err(ChangeError::Write(error.to_string()))) {
            Ok((config, was)) => {
                if !self.adopt(*config) {
                    self.tell_reloaded();
                }
                for (limit, changes) in by_limit {
                    tracing::info!(limit, changes, "overrides set at run time");
                }
                Ok(was)
            }
            Err(error) => {
                if let ChangeError::Write(why) = &error {
                    tracing::error!(error = why, "overrides cannot be set: their file cannot be written");
                }
                Err(error)
            }
        };
        let _ = answer.send(outcome); // who asked may have gone
    }

    fn tell_reloaded(&self) {
        let limits = self.shared.current.load().live.policy.limits().len();
        tracing::info!(limits, "reloaded");
    }

    /// Puts a configuration in force. Says whether it is the one before but for overrides.
    fn adopt(&mut self, config: Config) -> bool {
        let restart = self.kept.needs_restart(&Kept::of(&config));
        if !restart.is_empty() {
            tracing::warn!(tables = ?restart, "changed, but stays as it was until a restart");
        }
        let before = self.shared.current.load_full();
        let mut config = keep_sessions(config, &before);
        let AsIs { sources, file, set: text, left_out, .. } = AsIs::of(&config);
        // Nobody is verified by what is said of overrides. Keys that are fetched may change in between.
        let is_alike = file.as_ref().is_some_and(|file| self.in_force.differ_only_in(&sources, file))
            && config.policy.fetched_keys().next().is_none();
        self.set = text;
        let before_set = self.beside.operators.overrides.set.load().len();
        if let Some(file) = file.filter(|file| before_set > 0 && !file.exists()) {
            tracing::warn!(file = %file.display(), overrides = before_set, "the file of overrides is gone, and they with it");
        }
        let set = std::mem::take(&mut config.run_time.overrides);
        self.beside.operators.reload(config.admin.access.clone(), config.admin_tls.clone(), set);
        self.beside.jwks.adopt(&config.policy);
        let SharedState { gate, metrics, current, ceiling, reloads, .. } = &*self.shared;
        current.store(Arc::new(install(gate, config, metrics, ceiling, Some(&before), is_alike)));
        reloads.send_replace(());
        metrics.reloaded(gate.clock().now());
        self.tried = sources.clone();
        self.in_force = sources;
        if !self.left_out.is_like(&left_out) {
            left_out.tell();
        }
        self.left_out = left_out;
        is_alike
    }
}

/// Logs each problem with its place.
pub(super) fn log_findings(problems: &Diagnostics) {
    let (findings, more) = problems.findings();
    for Finding { severity, code, title, file, at } in findings {
        let (line, column) = at.unzip();
        match severity {
            Severity::Error => tracing::error!(file, line, column, code, "{title}"),
            Severity::Warning => tracing::warn!(file, line, column, code, "{title}"),
        }
    }
    if more > 0 {
        tracing::warn!(more, "more problems with the configuration");
    }
}

/// Compiles the configuration at `source` with these edits, and then writes them.
fn make(source: &Path, edits: &[Edit]) -> Result<(Box<Config>, Vec<Option<Value>>), ChangeError> {
    let Changed { config, file, text, was } = config::change(source, edits)?;
    let written = file::replace(&file, |to| to.write_all(text.as_bytes()));
    written.map_err(|error| ChangeError::Write(error.to_string()))?;
    Ok((Box::new(config), was))
}

/// If nothing of TLS has changed, clients can still resume the sessions they had.
fn keep_sessions(mut config: Config, current: &RunningConfig) -> Config {
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
