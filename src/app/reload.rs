//! Reloads the configuration. An invalid configuration changes nothing.
//!
//! SIGHUP always reads the files. A change in their folders reads them only if their contents differ from the last
//! attempt. So does a timer, for file systems that report no changes. New versions of a remote configuration and
//! overrides that operators set are installed here too, so that one task decides which configuration is in force.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::config_reader::{ReloadCause, ReloadOutcome, record};
use super::files::FileWatch;
use super::fleet::{self, FleetSize};
use super::fleet_overrides::{FleetOverrides, write_change};
use super::installed::Installed;
use super::jwks::Jwks;
use super::operators::{Operators, Orders};
use super::remote::ConfigFeed;
use super::stores;
use super::systemd;
use super::terms::{Accepted, Loaded, Terms};
use crate::admin::{Change, Changed, rfc3339};
use crate::config::{Config, Diagnostics, Finding, Origin, Severity, Sources};
use crate::gate::Gate;
use crate::grpc;
use crate::policy::overrides::OverrideError;
use crate::proxy::{RunningConfig, SharedState};
use crate::store::snapshot::file;
use crate::store::{RemoteStore, TokenCache};
use crate::telemetry::Metrics;
use crate::time::Timestamp;
use crate::upstream::Ceiling;

/// The pause between a change of a file and its reading, so that no half-written file is read.
const SETTLE: Duration = Duration::from_millis(50);
/// The interval at which Weir compares the files with their last contents, even without a reported change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Installs a configuration with its stores in the gate, and returns its form for workers. If it differs from the
/// configuration before in overrides only, verified tokens stay cached.
pub(super) fn install(
    gate: &Gate,
    (config, stores): (Config, Vec<RemoteStore>),
    metrics: &Metrics,
    ceiling: &Arc<Ceiling>,
    before: Option<&RunningConfig>,
    only_overrides: bool,
) -> RunningConfig {
    metrics.overrides_left_out.set(i64::try_from(config.run_time.rejected_count).unwrap_or(i64::MAX));
    for (identity, _) in config.policy.fetched_keys() {
        metrics.show_jwks(identity);
    }
    let tokens = match before.filter(|_| only_overrides) {
        Some(before) => Arc::clone(&before.live.tokens),
        None => Arc::new(TokenCache::new(config.max_tokens)),
    };
    stores::set_replicas(&stores, config.policy.limits());
    fleet::warn_of_scarce_limits(&config.policy);
    let live = gate.install_with(config.policy, config.hold, tokens, &stores);
    RunningConfig::new((live, stores), config.proxy, config.log.access, metrics, ceiling, before)
}

/// The parts outside the data path that each reload updates.
pub(super) struct Followers {
    pub(super) operators: Arc<Operators>,
    pub(super) jwks: Arc<Jwks>,
    /// `None` without a limiter service.
    pub(super) limiter: Option<Arc<grpc::Server>>,
    /// `None` without connections to other replicas.
    pub(super) fleet: Option<Arc<grpc::fleet::Hub>>,
}

/// Reloads one configuration, and the files that it names, as long as Weir runs.
pub(super) struct Reloader {
    feed: ConfigFeed,
    shared: Arc<SharedState>,
    followers: Followers,
    orders: Orders,
    /// The files of the last attempt, valid or not.
    tried: Sources,
    /// The configuration in force.
    installed: Installed,
    /// The overrides in the etcd of the fleet, if they are there.
    fleet_overrides: Option<FleetOverrides>,
    fleet_size: FleetSize,
}

impl Reloader {
    pub(super) fn new(
        feed: ConfigFeed,
        installed: Installed,
        shared: Arc<SharedState>,
        followers: Followers,
        orders: Orders,
    ) -> Self {
        // Temporary files of earlier processes do no harm if they stay.
        let _ = installed.overrides.place.file().map(file::clear);
        let tried = installed.sources.clone();
        let fleet_size = FleetSize::of(followers.fleet.as_ref());
        Self { feed, shared, followers, orders, tried, installed, fleet_overrides: None, fleet_size }
    }

    /// Watches, reloads and makes changes until it is told to stop, or dropped.
    pub(super) async fn run(mut self, mut hangups: Hangups, mut stopped: oneshot::Receiver<()>) {
        self.installed.rejected.log();
        self.installed.warn_of_memory();
        self.feed.start(&self.shared.metrics);
        let mut watch = FileWatch::new(self.tried.paths());
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.follow_fleet();
            let mut answer = None;
            let cause = tokio::select! {
                asked = &mut stopped => return if asked.is_ok() { self.stop().await },
                _ = hangups.0.recv() => { self.feed.look_again(); ReloadCause::Signal }
                () = self.feed.changed() => ReloadCause::Version,
                () = watch.changed() => { sleep(SETTLE).await; ReloadCause::File }
                _ = looks.tick() => ReloadCause::File,
                Some(order) = self.orders.reloads.recv() => {
                    self.feed.look_again();
                    answer = Some(order);
                    ReloadCause::Request
                }
                replicas = self.fleet_size.changed() => {
                    fleet::resize(&self.shared, replicas);
                    continue;
                }
                text = next_text(&mut self.fleet_overrides) => {
                    self.take_overrides(text).await;
                    watch.follow(self.tried.paths());
                    continue;
                }
                Some(change) = self.orders.changes.recv() => {
                    self.change(change).await;
                    watch.follow(self.tried.paths());
                    continue;
                }
            };
            if cause.is_forced() || self.have_files_changed().await {
                systemd::notify_reloading();
                let outcome = self.reload().await;
                let record = record(rfc3339(self.now()), cause, outcome, self.feed.revision());
                self.followers.operators.reloads.record(record.clone());
                if let Some(answer) = answer {
                    let _ = answer.send(record); // the caller may have left
                }
                watch.follow(self.tried.paths());
                systemd::notify_ready();
            }
        }
    }

    /// Follows the overrides of the fleet where the configuration in force has them.
    fn follow_fleet(&mut self) {
        let wanted = self.installed.overrides_etcd.as_ref();
        let is_right = self.fleet_overrides.as_ref().zip(wanted).is_some_and(|(known, etcd)| known.is_in(etcd));
        if !is_right {
            self.fleet_overrides = wanted.cloned().map(FleetOverrides::start);
        }
    }

    /// Puts overrides of the fleet in force, under the configuration in force.
    async fn take_overrides(&mut self, text: Arc<str>) {
        let Some(fleet) = &mut self.fleet_overrides else { return };
        if !fleet.copy().write(text, &mut self.installed.overrides).await {
            return;
        }
        match self.load(self.feed.in_force()).await {
            Ok(Ok((_, Ok(accepted)))) => {
                self.install(*accepted);
                tracing::info!("overrides of the fleet read");
            }
            Ok(Ok((_, Err(reason)))) | Err(reason) => drop(self.refuse(reason)),
            Ok(Err(diagnostics)) => tracing::error!("the overrides of the fleet do not apply\n{diagnostics}"),
        }
    }

    /// Writes overrides of the fleet that could not be written before.
    async fn stop(mut self) {
        if let Some(fleet) = &mut self.fleet_overrides {
            fleet.copy().write_last(&mut self.installed.overrides).await;
        }
    }

    /// Whether a file differs from the last attempt.
    async fn have_files_changed(&self) -> bool {
        let tried = self.tried.clone();
        spawn_blocking(move || tried.have_changed()).await.unwrap_or(true)
    }

    /// Compiles the configuration at `origin` on another thread: a large one takes a second or more, and this thread also
    /// keeps the fleet together and serves operators. The caller waits, so configurations are installed in the order in
    /// which they were read.
    ///
    /// # Errors
    /// That the compiler has panicked.
    async fn load(&self, origin: Origin) -> Result<Result<Loaded, Diagnostics>, String> {
        let (in_force, terms) = (self.installed.overrides.clone(), self.terms());
        spawn_blocking(move || terms.load(&origin, &in_force)).await.map_err(|error| error.to_string())
    }

    async fn reload(&mut self) -> ReloadOutcome {
        let loaded = match self.feed.newest() {
            Ok(origin) => self.load(origin).await,
            Err(reason) => Err(reason),
        };
        match loaded {
            Err(reason) => self.refuse(reason),
            Ok(Ok((read, Err(reason)))) => {
                self.tried = read;
                self.refuse(reason)
            }
            Ok(Ok((_, Ok(accepted)))) => {
                let warnings = accepted.config.warnings.clone();
                let Installation { restart, .. } = self.install(*accepted);
                self.log_reloaded();
                self.feed.applied(&self.shared.metrics, self.now(), &restart);
                log_findings(&warnings);
                ReloadOutcome::Applied(restart, warnings)
            }
            Ok(Err(diagnostics)) => {
                self.shared.metrics.reload_successful.set(0);
                self.tried = diagnostics.sources().clone();
                let (problems, revision) = (diagnostics.len(), self.feed.revision());
                tracing::error!(
                    problems,
                    revision,
                    "the new configuration is invalid; the old one stays\n{diagnostics}"
                );
                log_findings(&diagnostics);
                self.feed.invalid(self.now(), &diagnostics);
                ReloadOutcome::Invalid(diagnostics)
            }
        }
    }

    /// Installs the configuration on disk with edited overrides. A change whose caller no longer waits is not made,
    /// because the caller could not learn of it.
    async fn change(&mut self, change: Change) {
        let Change { edits, begin, answer } = change;
        if begin.send(()).is_err() {
            return;
        }
        let mut by_limit: BTreeMap<String, usize> = BTreeMap::new();
        for edit in &edits {
            *by_limit.entry(edit.limit.clone()).or_default() += 1;
        }
        let (origin, terms) = (self.feed.in_force(), self.terms());
        let kept = self.installed.overrides.clone();
        let made = if let Some(fleet) = &mut self.fleet_overrides {
            fleet.change(origin, edits, terms, kept).await
        } else {
            let made = spawn_blocking(move || write_change((&origin, &kept), &edits, &terms)).await;
            made.unwrap_or_else(|error| Err(OverrideError::Write(error.to_string())))
        };
        let outcome = made.map(|(accepted, before)| {
            if !self.install(*accepted).only_overrides {
                self.log_reloaded();
            }
            for (limit, changes) in by_limit {
                tracing::info!(limit, changes, "overrides set at run time");
            }
            Changed { before, not_kept: self.installed.reason_of_loss() }
        });
        if let Err(OverrideError::Write(reason) | OverrideError::OnlyFleet { reason, .. }) = &outcome {
            tracing::error!(error = reason, "overrides cannot be set here: their file cannot be written");
        }
        let _ = answer.send(outcome); // the caller may have left
    }

    /// The terms for the next configuration.
    fn terms(&self) -> Terms {
        let fleet_secret = self.installed.restart_only.fleet_secret.clone();
        Terms { shared: Arc::clone(&self.shared), fleet_secret }
    }

    fn now(&self) -> Timestamp {
        self.shared.gate.clock().now()
    }

    fn log_reloaded(&self) {
        let limits = self.shared.running_config.load().live.policy.limits().len();
        tracing::info!(limits, revision = self.feed.revision(), "reloaded");
    }

    /// Logs and reports that the newest configuration cannot be used.
    fn refuse(&self, reason: String) -> ReloadOutcome {
        self.shared.metrics.reload_successful.set(0);
        let revision = self.feed.revision();
        tracing::error!(reason, revision, "the new configuration cannot be used; the old one stays");
        self.feed.refused(self.now(), vec![reason.clone()]);
        ReloadOutcome::Refused(reason)
    }

    /// Puts a configuration in force.
    fn install(&mut self, Accepted { config, stores }: Accepted) -> Installation {
        let before = self.shared.running_config.load_full();
        let mut config = with_tls_sessions(config, &before);
        let new = Installed::of(&config);
        let restart = self.installed.restart_only.changed_tables(&new.restart_only);
        if !restart.is_empty() {
            tracing::warn!(tables = ?restart, "changed, but in force only after a restart");
        }
        // Overrides do not affect the verification of tokens. Fetched keys may have changed in between.
        let file = new.overrides.place.file();
        let only_overrides =
            self.installed.sources.differ_only_in(&new.sources, file) && config.policy.fetched_keys().next().is_none();
        let overrides_before = self.followers.operators.overrides.in_force.load().len();
        if let Some(file) = file.filter(|file| overrides_before > 0 && !file.exists()) {
            let overrides = overrides_before;
            tracing::warn!(file = %file.display(), overrides, "the file of overrides was removed, so they end");
        }
        self.followers.operators.reload(&mut config);
        self.followers.jwks.adopt(&config.policy);
        if let Some((limiter, service)) = self.followers.limiter.as_ref().zip(config.grpc.take()) {
            limiter.reload(service.settings);
        }
        if let Some((fleet, peers)) = self.followers.fleet.as_ref().zip(config.peers.take()) {
            fleet.reload(peers.settings);
        }
        config.policy = self.fleet_size.apply(config.policy);
        let SharedState { gate, metrics, running_config, ceiling, reloads, .. } = &*self.shared;
        let next = install(gate, (config, stores.all.clone()), metrics, ceiling, Some(&before), only_overrides);
        running_config.store(Arc::new(next));
        reloads.send_replace(());
        metrics.reloaded(gate.clock().now());
        if !self.installed.rejected.is_like(&new.rejected) {
            new.rejected.log();
        }
        if self.installed.overrides.place != new.overrides.place {
            new.warn_of_memory();
        }
        self.tried = new.sources.clone();
        // A reload does not change these settings.
        self.installed = Installed { restart_only: self.installed.restart_only.clone(), ..new };
        Installation { only_overrides, restart }
    }
}

/// Waits for the next overrides of the fleet.
async fn next_text(overrides: &mut Option<FleetOverrides>) -> Arc<str> {
    match overrides {
        Some(overrides) => overrides.copy().next().await,
        None => std::future::pending().await,
    }
}

/// The effect of a configuration that was put in force.
struct Installation {
    /// Whether only overrides differ from the configuration before.
    only_overrides: bool,
    /// The tables that are in force only after a restart.
    restart: Vec<&'static str>,
}

/// Logs each problem with file, line and column.
pub(super) fn log_findings(problems: &Diagnostics) {
    let (findings, more) = problems.findings();
    for Finding { severity, code, title, file, at, .. } in findings {
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

/// If the TLS settings are unchanged, uses those in force, so that clients can resume their sessions.
fn with_tls_sessions(mut config: Config, before: &RunningConfig) -> Config {
    let check = config.proxy.check.as_mut().zip(before.settings.check.as_ref());
    let check = check.map(|(new, before)| (&mut new.tls, &before.tls));
    for (new, before) in check.into_iter().chain([(&mut config.proxy.tls, &before.settings.tls)]) {
        if new == before {
            new.clone_from(before);
        }
    }
    config
}

/// Receives SIGHUP from its creation on.
pub(super) struct Hangups(Signal);

impl Hangups {
    pub(super) fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }
}
