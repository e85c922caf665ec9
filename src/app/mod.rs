//! Everything together: builds the state, runs the workers, reloads, drains.
//!
//! Workers serve requests on threads of their own. The control runtime, on the caller's thread, serves
//! operators, sweeps, watches files and takes signals; no request waits for it.

mod control;
mod descriptors;
mod drain;
pub(crate) mod exchange;
mod files;
mod jwks;
mod keep;
mod listeners;
mod operators;
mod reload;
mod systemd;
mod takeover;

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;
use std::{error, fmt, io, panic, thread};

use arc_swap::ArcSwap;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};

use crate::admin::Overrides;
use crate::config::{Config, Diagnostics};
use crate::gate::Gate;
use crate::net::{ClientUsage, Listen, Listener};
use crate::proxy::{self, Lifecycle, SharedState};
use crate::respond::ProblemKind;
use crate::store::snapshot::Secret;
use crate::telemetry::{LogGuard, Metrics};
use crate::time::Clock;
use crate::upstream::Ceiling;
use control::Control;
use descriptors::Shares;
use jwks::Jwks;
use keep::{Beginning, Keeper};
use listeners::{Inherited, Listeners};
use operators::Operators;
use reload::{Followers, Installed, Reloader};
use takeover::Previous;

/// Why Weir does not run; one line each.
#[derive(Debug)]
pub enum AppError {
    /// An address cannot be listened on.
    Listen(Listen, io::Error),
    /// The process that runs does not let this one take over.
    TakeOver(io::Error),
    /// Something that the system should give was not given.
    System(&'static str, Box<dyn error::Error + Send + Sync>),
}

impl AppError {
    fn system<E: Into<Box<dyn error::Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System(what, error.into())
    }

    /// Whether the address is taken.
    pub fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Listen(_, error) if error.kind() == io::ErrorKind::AddrInUse)
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(place, error) => write!(f, "cannot listen on {place}: {error}"),
            Self::TakeOver(error) => write!(f, "cannot take over from the process that runs, which goes on: {error}"),
            Self::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl error::Error for AppError {}

/// Sockets bound and state built; nothing runs yet.
pub struct App {
    shared: Arc<SharedState>,
    listeners: Listeners,
    places: Vec<Listen>,
    operators: Arc<Operators>,
    jwks: Arc<Jwks>,
    grace: Duration,
    workers: usize,
    /// About the configuration; logged once logs are written.
    warnings: Diagnostics,
    /// As configured, if it is; the workers go by what the descriptors suffice for.
    wanted_connections: Option<usize>,
    /// If there is a file to reload.
    reloader: Option<Reloader>,
    secret: Secret,
    /// If state is kept.
    keeper: Option<Keeper>,
    /// The process that is taken over from, if there is one.
    previous: Previous,
    /// How another such process is started; empty if it is not.
    command: Vec<OsString>,
}

impl App {
    /// Binds the sockets of `config` and builds its state; or takes both over, if there is a process that gives them.
    /// With a `source`, that file is watched and reloaded.
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
        // From here on a process that is taken over from waits.
        let Beginning { secret, limits, keeper } = Beginning::of(&config, &mut previous, clock)?;
        if matches!(&previous, Previous::Running(predecessor) if predecessor.is_gone()) {
            listeners.mend()?;
        }
        let gate = Arc::new(Gate::new(clock, secret, Arc::clone(&metrics)));
        gate.restore(limits);
        metrics.reloaded(clock.now());

        let (workers, grace) = (config.fixed.workers, config.fixed.shutdown_grace);
        let wanted_connections = config.fixed.max_connections;
        let shares = Shares::take(workers, wanted_connections);
        let installed = Installed::of(&config);
        let warnings = config.warnings.clone();
        let ceiling = Arc::new(Ceiling::new(shares.upstreams, workers));
        let current = reload::install(&gate, config, &metrics, &ceiling, None, false);
        let current = Arc::new(ArcSwap::from_pointee(current));
        let connections = AtomicUsize::new(0);
        let draining = AtomicBool::new(false);
        let reloads = watch::Sender::new(());
        let clients = Arc::<ClientUsage>::default();
        let shared = Arc::new(SharedState {
            gate,
            metrics,
            current,
            reloads,
            connections,
            max_connections: shares.clients,
            clients,
            ceiling,
            draining,
        });
        let followers = Followers { operators: Arc::clone(&operators), jwks: Arc::clone(&jwks) };
        let reloader = source.map(|source| Reloader::new(source, installed, Arc::clone(&shared), followers, changes));
        Ok(Self {
            shared,
            places: listeners.places(),
            listeners,
            operators,
            jwks,
            grace,
            workers,
            warnings,
            wanted_connections,
            reloader,
            secret,
            keeper,
            previous,
            command: Vec::new(),
        })
    }

    /// On SIGUSR2 this command line is run, to take over from this process.
    pub fn succeeded_by(self, command: impl Iterator<Item = OsString>) -> Self {
        Self { command: command.collect(), ..self }
    }

    /// Where requests are accepted, with the ports that were chosen.
    pub fn places(&self) -> &[Listen] {
        &self.places
    }

    /// Where operators are answered.
    pub fn admin_place(&self) -> Option<&Listen> {
        self.listeners.operators.as_ref().map(|bound| &bound.place)
    }

    /// Runs until a signal asks to stop, or another process has taken over, and what runs has been finished. `beside`
    /// runs on the control runtime; the loss of log lines is counted if `logs` are given.
    pub fn run(self, logs: Option<&LogGuard>, beside: impl Future<Output = ()>) -> Result<(), AppError> {
        count_panics(&self.shared.metrics);
        reload::log_findings(&self.warnings);
        let max_connections = self.shared.max_connections;
        if let Some(wanted) = self.wanted_connections.filter(|wanted| *wanted > max_connections) {
            tracing::warn!(wanted, max_connections, "fewer connections, for want of file descriptors (ulimit -n)");
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AppError::system("start a runtime"))?;
        runtime.block_on(Control::start(self)?.run(logs, beside))
    }
}

/// Starts a thread for each worker. What this gives closes when the last of them has ended.
fn start_workers(
    by_worker: Vec<Vec<Listener>>,
    shared: &Arc<SharedState>,
    stages: &watch::Receiver<Lifecycle>,
) -> Result<mpsc::Receiver<()>, AppError> {
    let (ended, endings) = mpsc::channel(1);
    for (index, listeners) in by_worker.into_iter().enumerate() {
        let (shared, stages, ended) = (Arc::clone(shared), stages.clone(), ended.clone());
        let work = move || {
            let _ended = ended; // dropped when the thread ends, however it does
            if let Err(error) = proxy::run(listeners, shared, stages) {
                tracing::error!(%error, "a worker failed");
            }
        };
        let thread = thread::Builder::new().name(format!("weir-worker-{index}")).spawn(work);
        thread.map_err(AppError::system("start a worker"))?;
    }
    Ok(endings)
}

/// Counts panics beside reporting them. One ends the connection that it happened on and nothing else.
fn count_panics(metrics: &Arc<Metrics>) {
    let metrics = Arc::clone(metrics);
    panic::set_hook(Box::new(move |info| {
        metrics.panics.inc();
        tracing::error!(%info, "panic");
    }));
}
