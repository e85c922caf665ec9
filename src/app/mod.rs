//! Everything together: builds the state, runs the workers, reloads, drains.
//!
//! Workers serve requests on threads of their own. The control runtime, on the caller's thread, serves
//! operators, sweeps, watches files and takes signals; no request waits for it.

mod descriptors;
mod drain;
mod files;
mod jwks;
mod keep;
mod listeners;
mod operators;
mod reload;
mod systemd;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;
use std::{error, fmt, io, panic, thread};

use arc_swap::ArcSwap;
use arc_swap::access::Map;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Admin, NewestLive};
use crate::config::Config;
use crate::gate::Gate;
use crate::proxy::{self, Listen, Listener, Shared, SocketFile, Stage};
use crate::store::Crowd;
use crate::telemetry::{LogGuard, Metrics};
use crate::time::Clock;
use drain::{Drain, Stops};
use jwks::Jwks;
use keep::Keeper;
use listeners::{AdminListener, Listeners};
use operators::Operators;
use reload::{Beside, Hangups, Reloader};
use systemd::Passed;

/// Why Weir does not run; one line each.
#[derive(Debug)]
pub enum AppError {
    /// An address cannot be listened on.
    Listen(Listen, io::Error),
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
            Self::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl error::Error for AppError {}

/// Sockets bound and state built; nothing runs yet.
pub struct App {
    shared: Arc<Shared>,
    listeners: Listeners,
    admin: Option<AdminListener>,
    operators: Arc<Operators>,
    jwks: Arc<Jwks>,
    grace: Duration,
    /// As configured; the workers go by what the descriptors suffice for.
    wanted_connections: usize,
    /// If there is a file to reload.
    reloader: Option<Reloader>,
    /// If state is kept.
    keeper: Option<Keeper>,
}

/// How often idle keys are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl App {
    /// Binds the sockets of `config` and builds its state. With a `source`, that file is watched and reloaded.
    pub fn new(config: Config, source: Option<PathBuf>) -> Result<Self, AppError> {
        let mut passed = Passed::of_process().map_err(AppError::system("take the sockets that were passed"))?;
        let listeners = Listeners::bind(&config, &mut passed)?;
        let admin = AdminListener::bind(&config, &mut passed)?;
        if let Some(place) = passed.left() {
            let what = format!("neither server.listen nor admin.listen has {place}");
            return Err(AppError::System("use a socket that was passed", what.into()));
        }
        let operators = Arc::new(Operators::new(config.admin.access.clone(), config.admin_tls.clone()));
        let revision = option_env!("WEIR_REVISION").unwrap_or("unknown");
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), revision);
        let metrics = Arc::new(metrics.map_err(AppError::system("register the metrics"))?);
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(AppError::system("draw a random secret"))?;
        let clock = Clock::start();
        let settings = config.snapshot.clone();
        let opened = settings.map(|settings| Keeper::open(settings, secret, &config.policy, clock.now()));
        let (keeper, limits) = opened.unzip();
        let secret = keeper.as_ref().map_or(secret, Keeper::secret);
        let gate = Arc::new(Gate::new(clock, secret, Arc::clone(&metrics)));
        gate.restore(limits.unwrap_or_default());
        metrics.reloaded(clock.now());

        let fitting = descriptors::connections_that_fit(config.fixed.workers);
        let (wanted_connections, grace) = (config.fixed.max_connections, config.fixed.shutdown_grace);
        let max_connections = wanted_connections.min(fitting);
        let (kept, tried) = (reload::Kept::of(&config), config.sources.clone());
        let current = Arc::new(ArcSwap::from_pointee(reload::install(&gate, config, &metrics, None)));
        let connections = AtomicUsize::new(0);
        let draining = AtomicBool::new(false);
        let reloads = watch::Sender::new(());
        let jwks = Arc::new(Jwks::default());
        let clients = Crowd::default();
        let shared =
            Arc::new(Shared { gate, metrics, current, reloads, connections, max_connections, clients, draining });
        let beside = Beside { operators: Arc::clone(&operators), jwks: Arc::clone(&jwks) };
        let reloader = source.map(|source| Reloader::new(source, kept, tried, Arc::clone(&shared), beside));
        Ok(Self { shared, listeners, admin, operators, jwks, grace, wanted_connections, reloader, keeper })
    }

    /// Where requests are accepted, with the ports that were chosen.
    pub fn places(&self) -> &[Listen] {
        &self.listeners.places
    }

    /// Where operators are answered.
    pub fn admin_place(&self) -> Option<&Listen> {
        self.admin.as_ref().map(|listener| &listener.place)
    }

    /// Runs until a signal asks to stop and what runs has been finished. `beside` runs on the control runtime;
    /// the loss of log lines is counted if `logs` are given.
    pub fn run(self, logs: Option<&LogGuard>, beside: impl Future<Output = ()>) -> Result<(), AppError> {
        count_panics(&self.shared.metrics);
        let max_connections = self.shared.max_connections;
        if max_connections < self.wanted_connections {
            let wanted = self.wanted_connections;
            tracing::warn!(wanted, max_connections, "fewer connections, for want of file descriptors (ulimit -n)");
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AppError::system("start a runtime"))?;
        let (stage, stages) = watch::channel(Stage::Running);
        let (ended, endings) = mpsc::channel(1);
        let Listeners { by_worker, places, files: _files } = self.listeners;
        let workers = by_worker.len();
        for (index, listeners) in by_worker.into_iter().enumerate() {
            let (shared, stages, ended) = (Arc::clone(&self.shared), stages.clone(), ended.clone());
            let work = move || {
                let _ended = ended; // dropped when the thread ends, however it does
                if let Err(error) = proxy::run(listeners, shared, stages) {
                    tracing::error!(%error, "a worker failed");
                }
            };
            let thread = thread::Builder::new().name(format!("weir-worker-{index}")).spawn(work);
            thread.map_err(AppError::system("start a worker"))?;
        }
        drop(ended);
        let ready = Arc::new(AtomicBool::new(true));
        let newest = Map::new(Arc::clone(&self.shared.current), |current: &proxy::Current| &*current.live);
        let access = Arc::clone(&self.operators.access);
        let answering = |address| Admin {
            metrics: Arc::clone(&self.shared.metrics),
            gate: Arc::clone(&self.shared.gate),
            live: NewestLive::new(newest),
            ready: Arc::clone(&ready),
            address,
            access,
        };
        let shared = Arc::clone(&self.shared);
        runtime.block_on(async {
            // Before anybody is told that Weir is there and may send some.
            let stops = Stops::new().map_err(AppError::system("take signals"))?;
            let drain = Drain { shared, ready: Arc::clone(&ready), stage, endings, grace: self.grace, stops };
            if let Some(reloader) = self.reloader {
                let hangups = Hangups::new().map_err(AppError::system("take signals"))?;
                tokio::spawn(reloader.run(hangups));
            }
            let _admin = match self.admin {
                Some(listener) => Some(serve_operators(listener, self.operators, answering)?),
                None => None,
            };
            tokio::spawn(proxy::check_health(Arc::clone(&self.shared)));
            tokio::spawn(proxy::resolve_names(Arc::clone(&self.shared)));
            for address in &places {
                tracing::info!(%address, workers, "listening");
            }
            tokio::spawn(self.jwks.run(Arc::clone(&self.shared)));
            let keeping = self.keeper.map(|keeper| keeper.start(Arc::clone(&self.shared)));
            systemd::tell_ready();
            let ended = tokio::select! {
                drained = drain.run() => drained.map_err(AppError::system("take signals")),
                () = housekeeping(&self.shared, logs) => Ok(()),
                () = async { beside.await; std::future::pending().await } => Ok(()),
            };
            if let Some(keeping) = keeping {
                keeping.finish().await;
            }
            ended
        })
    }
}

/// Answers on this runtime. What it gives must be kept meanwhile.
fn serve_operators(
    listener: AdminListener,
    operators: Arc<Operators>,
    answering: impl FnOnce(SocketAddr) -> Admin,
) -> Result<Option<SocketFile>, AppError> {
    let (admin, failed) = (answering(listener.address()), AppError::system("serve operators"));
    let AdminListener { socket, place, file } = listener;
    match socket {
        Listener::Tcp(socket) => {
            let socket = tokio::net::TcpListener::from_std(socket).map_err(failed)?;
            tokio::spawn(operators.serve(socket, admin));
        }
        Listener::Unix(socket) => {
            let socket = tokio::net::UnixListener::from_std(socket).map_err(failed)?;
            tokio::spawn(operators.serve(socket, admin));
        }
    }
    tracing::info!(address = %place, "serving operators");
    Ok(file)
}

/// Sweeps for ever.
async fn housekeeping(shared: &Shared, logs: Option<&LogGuard>) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.gate.sweep();
        let current = shared.current.load();
        current.live.tokens.sweep(shared.gate.clock().now());
        if let Some(logs) = logs {
            let counted = shared.metrics.log_lines_dropped.get();
            shared.metrics.log_lines_dropped.inc_by(logs.dropped().saturating_sub(counted));
        }
    }
}

/// Counts panics beside reporting them. One ends the connection that it happened on and nothing else.
fn count_panics(metrics: &Arc<Metrics>) {
    let metrics = Arc::clone(metrics);
    panic::set_hook(Box::new(move |info| {
        metrics.panics.inc();
        tracing::error!(%info, "panic");
    }));
}
