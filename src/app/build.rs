//! Builds the process from a configuration: its sockets, its state, and the parts that run.

use std::ffi::OsString;
use std::future::Future;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use arc_swap::access::Map;
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::acme;
use super::config_reader::log_findings;
use super::control::{Built, Control};
use super::descriptors::{DescriptorBudget, Wanted};
use super::error::AppError;
use super::fleet;
use super::installed::Installed;
use super::jwks::Jwks;
use super::listeners::{Inherited, Listeners};
use super::operators::Operators;
use super::reload::{self, Followers, Reloader};
use super::remote::ConfigFeed;
use super::snapshots::InitialState;
use super::stores;
use super::takeover::Previous;
use crate::base::telemetry::{LogGuard, Metrics, Spans, Taps};
use crate::base::time::{Clock, Timestamp, system_now};
use crate::config::{self, Config, Diagnostics, GrpcSettings, OverridesInForce};
use crate::engine::gate::{Gate, NewestLive, OperatorBan};
use crate::fleet::grpc;
use crate::fleet::grpc::settings::ServiceListener;
use crate::transport::http2::Fatal;
use crate::transport::net::ListenAddress;
use crate::transport::proxy::{ConnectionCount, RunningConfig, SharedState};
use crate::transport::respond::ProblemKind;
use crate::transport::upstream::Ceiling;

/// A process that is ready to run: its sockets are bound and its state is built.
pub struct App {
    built: Built,
    /// Warnings about the configuration. They are logged once the log is open.
    warnings: Diagnostics,
    /// The configured number of client connections; the file descriptors may allow fewer.
    wanted_connections: Option<usize>,
}

impl App {
    /// Binds the sockets of `config` and builds its state, or takes both over from a running process. The configuration
    /// changes with `feed`, if there is one.
    pub fn new(config: Config, feed: Option<ConfigFeed>) -> Result<Self, AppError> {
        let mut inherited = Inherited::find(&config)?;
        let config = with_inherited_overrides(config, feed.as_ref(), &mut inherited.previous);
        let mut listeners = Listeners::bind(&config, &mut inherited)?;
        let mut previous = inherited.previous;
        let budget = DescriptorBudget::take(config.fixed.workers, wanted(&config));
        let metrics = Arc::new(metrics(&config, feed.as_ref().is_some_and(ConfigFeed::is_remote))?);
        let jwks = Arc::new(Jwks::default());
        if let Previous::Running(predecessor) = &mut previous {
            jwks.inherit(predecessor.keys());
            jwks.adopt(&config.policy, &metrics.jwks);
        }
        let clock = Clock::start();
        // From here on a predecessor has paused.
        let InitialState { secret, limits, snapshots } = InitialState::of(&config, &mut previous, clock)?;
        if matches!(&previous, Previous::Running(predecessor) if predecessor.is_gone()) {
            listeners.mend()?;
        }
        let (operators, orders, bans) = Operators::of(&config, feed.as_ref(), &budget);
        let gate = Arc::new(Gate::new(clock, secret, Arc::clone(&metrics)));
        gate.restore(limits);
        metrics.reloaded(system_now());
        let (workers, grace) = (config.fixed.workers, config.fixed.shutdown_grace);
        let wanted_connections = config.fixed.max_connections;
        let (installed, warnings) = (Installed::of(&config), config.warnings.clone());
        let (ceiling, of_fleet) = (Arc::new(Ceiling::new(budget.upstreams, workers)), config.fleet_secret.clone());
        let (service, peers) = (config.grpc.clone().zip(Some(of_fleet.is_some())), config.peers.clone().zip(of_fleet));
        let stores = stores::first(&config, clock, &metrics)?;
        let running_config = reload::install(&gate, (config, stores), &metrics, &ceiling, None, false);
        gate.set_operator_bans(&running_config.live, continuing(bans, clock.now()));
        let running_config = Arc::new(ArcSwap::from_pointee(running_config));
        let [connections, checks] = [budget.clients, budget.checks].map(ConnectionCount::new);
        let shared = Arc::new(SharedState {
            gate,
            taps: Arc::new(Taps::new(metrics.taps.clone())),
            spans: Spans::new(metrics.spans.clone()),
            metrics,
            running_config,
            reloads: watch::Sender::new(()),
            connections,
            checks,
            clients: Arc::default(),
            ceiling,
            draining: AtomicBool::new(false),
        });
        let limiter = service.map(|service| limiter(&shared, service, budget.calls)).transpose()?.map(Arc::new);
        let inherited = if let Previous::Running(predecessor) = &previous { predecessor.instance() } else { None };
        let fleet = peers.map(|(peers, secret)| fleet::hub(&shared, peers, &secret, inherited)).transpose()?;
        let (operators_too, jwks_too) = (Arc::clone(&operators), Arc::clone(&jwks));
        let (limiter_too, fleet_too) = (limiter.clone(), fleet.clone());
        let followers = Followers { operators: operators_too, jwks: jwks_too, limiter: limiter_too, fleet: fleet_too };
        let reloader = feed.map(|feed| Reloader::new(feed, installed, Arc::clone(&shared), followers, orders));
        let built = Built {
            shared,
            places: listeners.places(),
            listeners,
            limiter,
            fleet,
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
        log_findings(&self.warnings);
        let max_connections = self.built.shared.connections.max;
        if let Some(wanted) = self.wanted_connections.filter(|wanted| *wanted > max_connections) {
            tracing::warn!(wanted, max_connections, "fewer connections, for want of file descriptors (ulimit -n)");
        }
        acme::restore(&self.built.shared);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AppError::system("start a runtime"))?;
        runtime.block_on(Control::start(self.built)?.run(logs, companion))
    }
}

/// `config` with the overrides in the memory of the predecessor, if it keeps overrides in memory, too. A configuration that
/// has become invalid in between stays as it was read.
fn with_inherited_overrides(config: Config, feed: Option<&ConfigFeed>, previous: &mut Previous) -> Config {
    let Previous::Running(predecessor) = previous else { return config };
    let place = config.run_time.kept.place.clone();
    let Some((feed, text)) = feed.zip(predecessor.overrides()).filter(|_| place.is_memory()) else { return config };
    let kept = OverridesInForce { place, text: Some(text.into()) };
    config::load_after(&feed.in_force(), Some(&kept)).unwrap_or(config)
}

/// The metrics of a process with this configuration, which may come from other machines.
fn metrics(config: &Config, is_remote: bool) -> Result<Metrics, AppError> {
    let revision = option_env!("WEIR_REVISION").unwrap_or("unknown");
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), revision);
    let metrics = metrics.map_err(AppError::system("register the metrics"))?;
    metrics.show_problems(ProblemKind::COUNTED.iter().map(|kind| kind.label()).chain(Fatal::KINDS));
    if config.snapshot.is_some() {
        metrics.show_snapshots().map_err(AppError::system("register the metrics"))?;
    }
    if is_remote {
        metrics.show_remote_config().map_err(AppError::system("register the metrics"))?;
    }
    Ok(metrics)
}

/// The connections that the configuration asks for.
fn wanted(config: &Config) -> Wanted {
    Wanted {
        clients: config.fixed.max_connections,
        checks: config.check_listener.as_ref().map_or(0, |listener| listener.max_connections),
        calls: config.grpc.as_ref().map_or(0, |grpc| grpc.listener.max_connections),
        peers: config.peers.as_ref().map_or(0, |peers| grpc::fleet::connections_max(&peers.settings))
            + config.grpc.as_ref().map_or(0, |_| grpc::OPENING_MIN),
    }
}

/// The limiter service, with at most `connections` connections.
fn limiter(
    shared: &SharedState,
    (service, has_fleet_secret): (GrpcSettings, bool),
    connections: usize,
) -> Result<grpc::Server, AppError> {
    let newest = Map::new(Arc::clone(&shared.running_config), |running: &RunningConfig| &*running.live);
    let listener = ServiceListener { max_connections: connections.max(1), ..service.listener };
    let (gate, metrics, taps) = (Arc::clone(&shared.gate), Arc::clone(&shared.metrics), Arc::clone(&shared.taps));
    let settings = (listener, service.settings);
    let limiter = grpc::Server::new(gate, NewestLive::new(newest), metrics, taps, settings, has_fleet_secret);
    limiter.map_err(AppError::system("draw a random number"))
}

/// Counts and logs panics. A panic ends only the connection that it happens on.
fn count_panics(metrics: &Arc<Metrics>) {
    let metrics = Arc::clone(metrics);
    panic::set_hook(Box::new(move |info| {
        metrics.panics.inc();
        tracing::error!(%info, "panic");
    }));
}

/// What bans still mean. The process before has reported the end of the others.
fn continuing(bans: Vec<OperatorBan>, now: Timestamp) -> Vec<OperatorBan> {
    bans.into_iter().filter_map(|ban| ban.at_start(now).continuing(now)).collect()
}
