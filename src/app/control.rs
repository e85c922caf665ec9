//! The control runtime: what is done beside the workers, from their start to their end.

use std::ffi::OsString;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::access::Map;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::drain::{Drain, LAST_WORDS, Stops};
use super::jwks::Jwks;
use super::keep::{Keeper, Writes};
use super::listeners::Open;
use super::operators::Operators;
use super::reload::{Hangups, Reloader};
use super::takeover::{Estate, Giver, Handed, Previous, Successors};
use super::{App, AppError, start_workers, systemd};
use crate::admin::{Admin, NewestLive};
use crate::net::{Listen, Listener, SocketFile};
use crate::proxy::{self, Lifecycle, SharedState};
use crate::telemetry::LogGuard;
use crate::upstream;

/// What it takes to run, while workers do.
pub(super) struct Control {
    shared: Arc<SharedState>,
    places: Vec<Listen>,
    workers: usize,
    stage: watch::Sender<Lifecycle>,
    endings: mpsc::Receiver<()>,
    grace: Duration,
    operators: Option<(Listener, Listen, SocketAddr, Arc<Operators>)>,
    jwks: Arc<Jwks>,
    reloader: Option<Reloader>,
    keeper: Option<Keeper>,
    writes: Writes,
    previous: Previous,
    giver: Option<(Arc<Giver>, Listener)>,
    handed: watch::Receiver<Handed>,
    command: Vec<OsString>,
    /// Kept until the end.
    _files: Vec<Arc<SocketFile>>,
}

/// How often idle keys are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Control {
    /// Starts the workers of `app`.
    pub(super) fn start(app: App) -> Result<Self, AppError> {
        let App { shared, listeners, places, operators, jwks, grace, workers, .. } = app;
        let App { reloader, secret, keeper, previous, command, .. } = app;
        let place = listeners.operators.as_ref().map(|bound| (bound.place.clone(), bound.address()));
        let open = listeners.open(workers).map_err(AppError::system("use the sockets"))?;
        let Open { by_worker, operators: socket, takeover, offered, files } = open;
        let (stage, stages) = watch::channel(Lifecycle::Running);
        let endings = start_workers(by_worker, &shared, &stages)?;
        let writes: Writes = Arc::new(tokio::sync::Mutex::new(true));
        let (handed, handings) = watch::channel(Handed::Not);
        let estate = Estate {
            offered: Mutex::new(offered),
            shared: Arc::clone(&shared),
            secret,
            jwks: Arc::clone(&jwks),
            stage: stage.clone(),
            writes: Arc::clone(&writes),
            handed,
        };
        Ok(Self {
            shared,
            places,
            workers,
            stage,
            endings,
            grace,
            operators: socket.zip(place).map(|(socket, (place, address))| (socket, place, address, operators)),
            jwks,
            reloader,
            keeper,
            writes,
            previous,
            giver: takeover.map(|socket| (Giver::new(estate), socket)),
            handed: handings,
            command,
            _files: files,
        })
    }

    /// Runs until the workers have ended.
    pub(super) async fn run(
        mut self,
        logs: Option<&LogGuard>,
        beside: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        // Before anybody is told that Weir is there and may send some.
        let stops = Stops::new().map_err(AppError::system("take signals"))?;
        let ready = Arc::new(AtomicBool::new(true));
        self.take_signals()?;
        let admin = self.serve_operators(&ready)?;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(upstream::check_health(Arc::clone(&shared)));
        tokio::spawn(upstream::resolve_names(Arc::clone(&shared), Arc::clone(&shared.metrics)));
        for address in &self.places {
            tracing::info!(%address, workers = self.workers, "listening");
        }
        tokio::spawn(Arc::clone(&self.jwks).run(Arc::clone(&shared)));
        match std::mem::replace(&mut self.previous, Previous::Nobody) {
            Previous::Nobody => {}
            Previous::Ended => tracing::warn!(
                "the last process has ended without handing over; limits go on from the snapshot, or begin anew"
            ),
            Previous::Running(predecessor) => predecessor.serving(Arc::clone(&shared)),
        }
        let keeping = self.keeper.take().map(|keeper| keeper.start(Arc::clone(&shared), Arc::clone(&self.writes)));
        let giver = self.giver.take().map(|(giver, socket)| answer_successors(giver, socket)).transpose()?;
        systemd::tell_ready();
        let (stage, endings, handed) = (self.stage, self.endings, self.handed.clone());
        let beside_workers = Beside { admin, giver, handed: self.handed.clone() };
        let drain = Drain { shared: Arc::clone(&shared), ready, stage, endings, grace: self.grace, stops, handed };
        let ended = tokio::select! {
            drained = drain.run(|| beside_workers.end()) => {
                drained.map_err(AppError::system("take signals"))
            }
            () = housekeeping(&shared, logs) => Ok(()),
            () = async { beside.await; std::future::pending().await } => Ok(()),
        };
        // A hand-over that is under way comes to its end first.
        let _ = timeout(LAST_WORDS, self.writes.lock()).await;
        if *self.handed.borrow() != Handed::Not {
            let lost = shared.gate.unsubscribe_deltas();
            if lost > 0 {
                tracing::warn!(lost, "charges that the process which took over does not know of");
            }
            let _ = timeout(LAST_WORDS, self.handed.wait_for(|handed| *handed == Handed::Told)).await;
        }
        if let Some(keeping) = keeping {
            keeping.finish().await;
        }
        ended
    }

    fn take_signals(&mut self) -> Result<(), AppError> {
        if !self.command.is_empty() {
            let command = std::mem::take(&mut self.command);
            let successors = Successors::new(command, self.giver.is_some(), self.handed.clone());
            tokio::spawn(successors.map_err(AppError::system("take signals"))?.run());
        }
        if let Some(reloader) = self.reloader.take() {
            let hangups = Hangups::new().map_err(AppError::system("take signals"))?;
            tokio::spawn(reloader.run(hangups));
        }
        Ok(())
    }

    /// Answers operators on this runtime.
    fn serve_operators(&mut self, ready: &Arc<AtomicBool>) -> Result<Option<JoinHandle<()>>, AppError> {
        let Some((socket, place, address, operators)) = self.operators.take() else { return Ok(None) };
        let newest = Map::new(Arc::clone(&self.shared.current), |current: &proxy::RunningConfig| &*current.live);
        let admin = Admin {
            metrics: Arc::clone(&self.shared.metrics),
            gate: Arc::clone(&self.shared.gate),
            live: NewestLive::new(newest),
            ready: Arc::clone(ready),
            address,
            access: Arc::clone(&operators.access),
            overrides: operators.overrides.clone(),
        };
        let failed = AppError::system("serve operators");
        let serving = match socket {
            Listener::Tcp(socket) => {
                let socket = tokio::net::TcpListener::from_std(socket).map_err(failed)?;
                tokio::spawn(operators.serve(socket, admin))
            }
            Listener::Unix(socket) => {
                let socket = tokio::net::UnixListener::from_std(socket).map_err(failed)?;
                tokio::spawn(operators.serve(socket, admin))
            }
        };
        tracing::info!(address = %place, "serving operators");
        Ok(Some(serving))
    }
}

/// Answers processes that would take over.
fn answer_successors(giver: Arc<Giver>, socket: Listener) -> Result<(Arc<Giver>, JoinHandle<()>), AppError> {
    let Listener::Unix(socket) = socket else {
        return Err(AppError::System("use server.takeover", "it is no Unix socket".into()));
    };
    let socket = tokio::net::UnixListener::from_std(socket).map_err(AppError::system("use server.takeover"))?;
    Ok((Arc::clone(&giver), tokio::spawn(giver.run(socket))))
}

/// What accepts connections beside the workers.
struct Beside {
    admin: Option<JoinHandle<()>>,
    giver: Option<(Arc<Giver>, JoinHandle<()>)>,
    handed: watch::Receiver<Handed>,
}

impl Beside {
    /// Draining begins. Operators are answered to the end, and processes that would take over are told to wait for it,
    /// unless another process does so now.
    fn end(self) {
        let Self { admin, giver, mut handed } = self;
        let (giver, serving) = giver.unzip();
        if let Some(giver) = giver {
            giver.close();
        }
        tokio::spawn(async move {
            if handed.wait_for(|handed| *handed >= Handed::Over).await.is_ok() {
                admin.iter().chain(&serving).for_each(JoinHandle::abort);
            }
        });
    }
}

/// Sweeps for ever.
async fn housekeeping(shared: &SharedState, logs: Option<&LogGuard>) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tasks = 0;
    loop {
        ticks.tick().await;
        shared.metrics.set_tasks(Handle::current().metrics().num_alive_tasks(), &mut tasks);
        shared.gate.sweep();
        let current = shared.current.load();
        current.live.tokens.sweep(shared.gate.clock().now());
        if let Some(logs) = logs {
            let counted = shared.metrics.log_lines_dropped.get();
            shared.metrics.log_lines_dropped.inc_by(logs.dropped().saturating_sub(counted));
        }
    }
}
