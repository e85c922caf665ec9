//! Builds the process from a configuration: its sockets, its state, and the parts that run.

use std::ffi::OsString;
use std::future::Future;
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::control::{Built, Control};
use super::descriptors::DescriptorBudget;
use super::error::AppError;
use super::jwks::Jwks;
use super::listeners::{Inherited, Listeners};
use super::operators::Operators;
use super::reload::{self, Followers, Installed, Reloader};
use super::snapshots::InitialState;
use super::stores;
use super::takeover::Previous;
use crate::admin::Overrides;
use crate::config::{Config, Diagnostics};
use crate::gate::Gate;
use crate::net::{ClientUsage, ListenAddress};
use crate::proxy::{ConnectionCount, SharedState};
use crate::respond::ProblemKind;
use crate::telemetry::{LogGuard, Metrics};
use crate::time::Clock;
use crate::upstream::Ceiling;

/// A process that is ready to run: its sockets are bound and its state is built.
pub struct App {
    built: Built,
    /// Warnings about the configuration. They are logged once the log is open.
    warnings: Diagnostics,
    /// The configured number of client connections; the file descriptors may allow fewer.
    wanted_connections: Option<usize>,
}

impl App {
    /// Binds the sockets of `config` and builds its state, or takes both over from a running process. The file `source`
    /// is watched and reloaded, if there is one.
    pub fn new(config: Config, source: Option<PathBuf>) -> Result<Self, AppError> {
        let mut inherited = Inherited::find(&config)?;
        let mut listeners = Listeners::bind(&config, &mut inherited)?;
        let mut previous = inherited.previous;
        let (overrides, changes) = Overrides::new(config.run_time.overrides.clone());
        let operators = Arc::new(Operators::new(reload::admin_access(&config), config.admin.tls.clone(), overrides));
        let revision = option_env!("WEIR_REVISION").unwrap_or("unknown");
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), revision);
        let metrics = Arc::new(metrics.map_err(AppError::system("register the metrics"))?);
        metrics.show_problems(ProblemKind::COUNTED.iter().map(|kind| kind.label()));
        if config.snapshot.is_some() {
            metrics.show_snapshots().map_err(AppError::system("register the metrics"))?;
        }
        let jwks = Arc::new(Jwks::default());
        if let Previous::Running(predecessor) = &mut previous {
            jwks.inherit(predecessor.keys());
            jwks.adopt(&config.policy);
        }
        let clock = Clock::start();
        // From here on a predecessor has paused.
        let InitialState { secret, limits, snapshots } = InitialState::of(&config, &mut previous, clock)?;
        if matches!(&previous, Previous::Running(predecessor) if predecessor.is_gone()) {
            listeners.mend()?;
        }
        let gate = Arc::new(Gate::new(clock, secret, Arc::clone(&metrics)));
        gate.restore(limits);
        metrics.reloaded(clock.now());

        let (workers, grace) = (config.fixed.workers, config.fixed.shutdown_grace);
        let wanted_connections = config.fixed.max_connections;
        let wanted_checks = config.check_listener.as_ref().map_or(0, |listener| listener.max_connections);
        let descriptors = DescriptorBudget::take(workers, wanted_connections, wanted_checks);
        let installed = Installed::of(&config);
        let warnings = config.warnings.clone();
        let ceiling = Arc::new(Ceiling::new(descriptors.upstreams, workers));
        let stores = stores::first(&config, clock, &metrics)?;
        let running_config = reload::install(&gate, (config, stores), &metrics, &ceiling, None, false);
        let running_config = Arc::new(ArcSwap::from_pointee(running_config));
        let [connections, checks] = [descriptors.clients, descriptors.checks].map(ConnectionCount::new);
        let clients = Arc::<ClientUsage>::default();
        let shared = Arc::new(SharedState {
            gate,
            metrics,
            running_config,
            reloads: watch::Sender::new(()),
            connections,
            checks,
            clients,
            ceiling,
            draining: AtomicBool::new(false),
        });
        let followers = Followers { operators: Arc::clone(&operators), jwks: Arc::clone(&jwks) };
        let reloader = source.map(|source| Reloader::new(source, installed, Arc::clone(&shared), followers, changes));
        let built = Built {
            shared,
            places: listeners.places(),
            listeners,
            operators,
            jwks,
            grace,
            workers,
            reloader,
            secret,
            snapshots,
            previous,
            command: Vec::new(),
        };
        Ok(Self { built, warnings, wanted_connections })
    }

    /// Sets the command line that SIGUSR2 runs, to take over from this process.
    pub fn succeeded_by(mut self, command: impl Iterator<Item = OsString>) -> Self {
        self.built.command = command.collect();
        self
    }

    /// The addresses for requests, with the ports that the system chose.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.built.places
    }

    /// The address of the admin listener.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.built.listeners.operators.as_ref().map(|bound| &bound.address)
    }

    /// Runs until a signal asks to stop, or another process has taken over, and all requests have ended. `companion`
    /// runs on the control runtime. Lost log lines are counted if `logs` is there.
    pub fn run(self, logs: Option<&LogGuard>, companion: impl Future<Output = ()>) -> Result<(), AppError> {
        count_panics(&self.built.shared.metrics);
        reload::log_findings(&self.warnings);
        let max_connections = self.built.shared.connections.max;
        if let Some(wanted) = self.wanted_connections.filter(|wanted| *wanted > max_connections) {
            tracing::warn!(wanted, max_connections, "fewer connections, for want of file descriptors (ulimit -n)");
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AppError::system("start a runtime"))?;
        runtime.block_on(Control::start(self.built)?.run(logs, companion))
    }
}

/// Counts and logs panics. A panic ends only the connection that it happens on.
fn count_panics(metrics: &Arc<Metrics>) {
    let metrics = Arc::clone(metrics);
    panic::set_hook(Box::new(move |info| {
        metrics.panics.inc();
        tracing::error!(%info, "panic");
    }));
}
