//! Reloads the configuration. An invalid configuration changes nothing.
//!
//! SIGHUP always reads the files. A change in their folders reads them once they are quiet, and only if their contents
//! differ from the last attempt. So does a timer, for file systems that report no changes. New versions of a remote
//! configuration and overrides that operators set are installed here too, so that one task decides which configuration is
//! in force.

mod install;
mod rollback;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

pub(super) use install::install;
use install::with_tls_sessions;

use super::api_keys;
use super::config_reader::{ReloadCause, ReloadOutcome, log_findings, log_reloaded, record};
use super::files::{FileWatch, QUIET};
use super::fleet::{self, FleetSize};
use super::fleet_overrides::{FleetOverrides, next_text};
use super::installed::Installed;
use super::jwks::Jwks;
use super::operators::{Operators, Orders};
use super::remote::{ConfigFeed, StartNote};
use super::systemd;
use super::terms::{Accepted, Loaded, Terms};
use crate::admin::{Order, ReloadBody, ReloadTarget, rfc3339};
use crate::base::telemetry::set_log_level;
use crate::base::time::{Timestamp, system_now};
use crate::config::{Diagnostics, Origin, Sources};
use crate::engine::store::snapshot::file;
use crate::fleet::grpc;
use crate::transport::proxy::SharedState;

/// The pause before overrides that have ended are removed once more. Shorter than the other waits of the loop.
const RETRY_END: Duration = Duration::from_secs(2);
/// The interval at which Weir compares the files with their last contents, even without a reported change, and looks whether
/// the clock was set.
const LOOK_EVERY: Duration = Duration::from_secs(5);

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
    pub(super) feed: ConfigFeed,
    pub(super) shared: Arc<SharedState>,
    pub(super) followers: Followers,
    orders: Orders,
    /// The files of the last attempt, valid or not.
    pub(super) tried: Sources,
    /// Changed files without a report of the change, as they were a moment ago.
    seen: Option<Sources>,
    /// The configuration in force.
    pub(super) installed: Installed,
    /// The configuration that an operator returned to, while it is in force.
    earlier: Option<Origin>,
    /// The overrides in the etcd of the fleet, if they are there.
    pub(super) fleet_overrides: Option<FleetOverrides>,
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
        let (seen, earlier, fleet_overrides) = (None, None, None);
        Self { feed, shared, followers, orders, tried, seen, installed, earlier, fleet_overrides, fleet_size }
    }

    /// Watches, reloads and makes changes until it is told to stop, or dropped.
    pub(super) async fn run(mut self, mut hangups: Signal, mut stopped: oneshot::Receiver<()>) {
        self.installed.rejected.log();
        self.installed.warn_of_memory();
        if let Some(note) = self.feed.start(&self.shared.metrics) {
            self.note_start(note);
        }
        self.keep_version().await;
        let mut watch = FileWatch::new(self.tried.paths());
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.follow_fleet();
            let mut answer = None;
            let (watches, now) = (self.installed.watches, system_now());
            fleet::follow_ramps(&self.shared, now).await; // a branch may outlast a step, and the clock may have been set
            let next_step = self.shared.running_config.load().live.policy.next_step(now);
            let cause = tokio::select! {
                asked = &mut stopped => return if asked.is_ok() { self.stop().await },
                _ = hangups.recv() => { self.feed.look_again(); ReloadCause::Signal }
                () = self.feed.changed(), if watches => ReloadCause::Version,
                () = watch.settled(), if watches => ReloadCause::File,
                _ = looks.tick() => {
                    if !watches {
                        continue;
                    }
                    if !self.have_files_settled().await {
                        if self.seen.is_some() {
                            looks.reset_after(QUIET);
                        }
                        continue;
                    }
                    ReloadCause::File
                }
                () = until(self.installed.next_end, self.installed.has_ended) => {
                    let is_due = |end: Timestamp| end <= system_now();
                    if self.installed.has_ended || self.installed.next_end.is_some_and(is_due) {
                        self.end_overrides().await;
                    }
                    continue;
                }
                () = until(next_step, false) => continue,
                Some(Order { target, answer: to }) = self.orders.reloads.recv() => {
                    answer = Some(to);
                    if target != ReloadTarget::Files {
                        self.feed.look_again();
                    }
                    ReloadCause::from(target)
                }
                replicas = self.fleet_size.changed() => {
                    fleet::resize(&self.shared, replicas).await;
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
            if cause.is_forced() || answer.is_some() || self.have_files_changed().await {
                self.attempt(cause, answer).await;
                watch.follow(self.tried.paths());
                systemd::notify_ready();
            }
        }
    }

    /// Reloads for this cause, records the result, and sends it to the operator who asked.
    async fn attempt(&mut self, cause: ReloadCause, answer: Option<oneshot::Sender<ReloadBody>>) {
        systemd::notify_reloading();
        let outcome = match cause {
            ReloadCause::Return(number) => self.return_to(number).await,
            cause => self.reload(cause).await,
        };
        let is_applied = matches!(outcome, ReloadOutcome::Applied { .. });
        if !is_applied {
            self.take_file_of_overrides().await;
        }
        let revision = if is_applied { self.feed.revision_in_force() } else { self.feed.revision() };
        let record = record(rfc3339(system_now()), cause, outcome, revision);
        self.followers.operators.reloads.record(record.clone());
        if let Some(answer) = answer {
            let _ = answer.send(record); // the caller may have left
        }
    }

    /// Records that the newest version was refused at the start, if it was.
    fn note_start(&self, note: StartNote) {
        let outcome = match note {
            StartNote::Unreachable(_) => return,
            StartNote::Absent(reason) => ReloadOutcome::Refused(reason),
            StartNote::Invalid(diagnostics) => ReloadOutcome::Invalid(*diagnostics),
        };
        self.shared.metrics.reload_successful.set(0);
        let record = record(rfc3339(system_now()), ReloadCause::Version, outcome, self.feed.revision());
        self.followers.operators.reloads.record(record);
    }

    /// Follows the overrides of the fleet where the configuration in force has them.
    fn follow_fleet(&mut self) {
        let wanted = self.installed.overrides_etcd.as_ref();
        let is_right = self.fleet_overrides.as_ref().zip(wanted).is_some_and(|(known, etcd)| known.is_in(etcd));
        if !is_right {
            self.fleet_overrides = wanted.cloned().map(FleetOverrides::start);
        }
    }

    /// Whether a file differs from the last attempt.
    async fn have_files_changed(&self) -> bool {
        let tried = self.tried.clone();
        spawn_blocking(move || tried.have_changed()).await.unwrap_or(true)
    }

    /// Whether files have changed, and are as they were at the last look.
    async fn have_files_settled(&mut self) -> bool {
        let tried = self.tried.clone();
        let now = spawn_blocking(move || tried.read_again()).await.ok().filter(|now| *now != self.tried);
        let was_seen = now.is_some() && self.seen == now;
        self.seen = now.filter(|_| !was_seen);
        was_seen
    }

    /// Compiles the configuration at `origin` on another thread: a large one takes a second or more, and this thread also
    /// keeps the fleet together and serves operators. The caller waits, so configurations are installed in the order in
    /// which they were read.
    ///
    /// # Errors
    /// That the compiler has panicked.
    async fn load(&self, origin: Origin) -> Result<Result<Loaded, Diagnostics>, String> {
        let (in_force, terms) = (self.installed.overrides.clone(), self.terms());
        let before = self.followers.operators.text.written.load_full();
        let load = move || {
            let mut loaded = terms.load(&origin, &in_force)?;
            if let (_, Ok(accepted)) = &mut loaded {
                accepted.difference = before.difference(&accepted.config.written);
            }
            Ok(loaded)
        };
        spawn_blocking(load).await.map_err(|error| error.to_string())
    }

    async fn reload(&mut self, cause: ReloadCause) -> ReloadOutcome {
        let mut is_newest = false;
        let loaded = match self.wanted(cause).await {
            Ok((origin, newest)) => {
                is_newest = newest;
                self.load(origin).await
            }
            Err(reason) => Err(reason),
        };
        match loaded {
            Err(reason) => self.refuse(reason),
            Ok(Ok((read, Err(reason)))) => {
                self.note_tried(read);
                self.refuse(reason)
            }
            Ok(Ok((read, Ok(accepted)))) => {
                self.note_tried(read);
                let (warnings, difference) = (accepted.config.warnings.clone(), accepted.difference.clone());
                let restart = self.install(*accepted).await;
                if cause != ReloadCause::OwnFile {
                    self.shared.metrics.reloaded(system_now());
                }
                if is_newest {
                    self.earlier = None;
                    self.feed.applied(&self.shared.metrics, system_now(), &restart);
                    self.keep_version().await;
                }
                log_reloaded(&self.shared, self.feed.revision_in_force(), &difference);
                log_findings(&warnings);
                ReloadOutcome::Applied { restart, warnings, difference }
            }
            Ok(Err(diagnostics)) => {
                self.shared.metrics.reload_successful.set(0);
                self.note_tried(diagnostics.sources().clone());
                let (problems, revision) = (diagnostics.len(), self.feed.revision());
                tracing::error!(
                    problems,
                    revision,
                    "the new configuration is invalid; the old one stays\n{diagnostics}"
                );
                log_findings(&diagnostics);
                self.feed.invalid(system_now(), &diagnostics);
                ReloadOutcome::Invalid(diagnostics)
            }
        }
    }

    /// Notes the files of an attempt. An earlier configuration is not read from its file, which stays as it was read last.
    fn note_tried(&mut self, read: Sources) {
        self.tried = match &self.feed {
            ConfigFeed::File { .. } => read.behind_first_of(&self.tried),
            _ => read,
        };
    }

    /// The terms for the next configuration.
    pub(super) fn terms(&self) -> Terms {
        let fleet_secret = self.installed.restart_only.fleet_secret.clone();
        Terms { shared: Arc::clone(&self.shared), fleet_secret }
    }

    /// Logs and reports that the newest configuration cannot be used.
    pub(super) fn refuse(&self, reason: String) -> ReloadOutcome {
        self.shared.metrics.reload_successful.set(0);
        let revision = self.feed.revision();
        tracing::error!(reason, revision, "the new configuration cannot be used; the old one stays");
        self.feed.refused(system_now(), vec![reason.clone()]);
        ReloadOutcome::Refused(reason)
    }

    /// Puts a configuration in force. Returns the tables that are in force only after a restart.
    pub(super) async fn install(&mut self, Accepted { mut config, stores, .. }: Accepted) -> Vec<&'static str> {
        let before = self.shared.running_config.load_full();
        self.installed.restart_only.keep_tls(&mut config, &before.settings, self.followers.fleet.as_deref());
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
        if let Some(file) = file.filter(|file| !file.exists()) {
            let (overrides, shown) = (overrides_before, file.display());
            // What was in memory, if anything was.
            let moved = self.installed.overrides.text_in_memory().filter(|text| !text.is_empty());
            match moved.map(|text| file::replace(file, |to| to.write_all(text.as_bytes()))) {
                Some(Err(error)) => {
                    tracing::error!(file = %shown, %error, "the overrides in memory cannot be written to their file");
                }
                None if overrides > 0 => {
                    tracing::warn!(file = %shown, overrides, "the file of overrides was removed, so they end");
                }
                _ => {}
            }
        }
        self.followers.operators.reload(&mut config, &restart);
        self.followers.jwks.adopt(&config.policy, &self.shared.metrics.jwks);
        api_keys::adopt(&config.policy, &before.live.policy);
        if let Some((limiter, service)) = self.followers.limiter.as_ref().zip(config.grpc.take()) {
            limiter.reload(&service.listener, service.settings);
        }
        if let Some((fleet, peers)) = self.followers.fleet.as_ref().zip(config.peers.take()) {
            fleet.reload(peers.settings);
        }
        config.policy = self.fleet_size.apply(config.policy);
        let SharedState { gate, metrics, running_config, ceiling, reloads, .. } = &*self.shared;
        set_log_level(config.log.level);
        let next = install(gate, (config, stores.all.clone()), metrics, ceiling, Some(&before), only_overrides);
        let next = Arc::new(next);
        running_config.store(Arc::clone(&next));
        fleet::adopt_rules(&self.shared, &before, &next).await;
        reloads.send_replace(());
        api_keys::log_changes(&next.live.policy, &before.live.policy);
        if !self.installed.rejected.is_like(&new.rejected) {
            new.rejected.log();
        }
        if self.installed.overrides.place != new.overrides.place {
            new.warn_of_memory();
        }
        // A reload does not change these settings.
        self.installed = Installed { restart_only: self.installed.restart_only.clone(), ..new };
        restart
    }
}

/// Waits until the wall clock shows `end`, or until overrides that `have_ended` can be removed once more. The wait follows
/// no change of that clock.
async fn until(end: Option<Timestamp>, have_ended: bool) {
    match end {
        Some(end) if !have_ended => sleep(Duration::from_nanos(end.ns_since(system_now()))).await,
        None if !have_ended => std::future::pending().await,
        _ => sleep(RETRY_END).await,
    }
}
