//! The control runtime: starts the workers, and does all other work until the workers have ended.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::access::Map;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::acme;
use super::adapt::Windows;
use super::drain::{Drain, REFUSAL_TIMEOUT, StopSignals};
use super::error::AppError;
use super::fleet::{Fleet, RunningFleet};
use super::jwks::Jwks;
use super::listeners::{Listeners, Open};
use super::operators::Operators;
use super::overload;
use super::reload::Reloader;
use super::signals::reopen_logs;
use super::snapshots::{SnapshotWriter, WriteLock};
use super::stoppable::StoppableTask;
use super::stores;
use super::systemd;
use super::takeover::{Handover, HandoverProgress, Previous, Successors};
use super::traces::Exporter;
use super::workers::{start_workers, worker_services};
use crate::admin::{self, Admin, ConfigReader};
use crate::base::telemetry::LogGuard;
use crate::base::time::STEP_NS_MIN;
use crate::engine::gate::{NewestLive, StoreTasks};
use crate::engine::store::snapshot::Secret;
use crate::fleet::grpc;
use crate::transport::net::accept::AsyncListener;
use crate::transport::net::{Lifecycle, ListenAddress, Listener, SocketFile, name_this_process};
use crate::transport::proxy::{self, SharedState};
use crate::transport::upstream::{self, Directory, operate};

/// The parts of a process that is ready to run.
pub(super) struct Built {
    pub(super) shared: Arc<SharedState>,
    pub(super) listeners: Listeners,
    pub(super) places: Vec<ListenAddress>,
    /// `None` without a limiter service.
    pub(super) limiter: Option<Arc<grpc::Server>>,
    /// `None` without connections to other replicas.
    pub(super) fleet: Option<Arc<grpc::fleet::Hub>>,
    pub(super) operators: Arc<Operators>,
    pub(super) jwks: Arc<Jwks>,
    pub(super) grace: Duration,
    pub(super) workers: usize,
    /// `None` without a configuration that changes.
    pub(super) reloader: Option<Reloader>,
    pub(super) secret: Secret,
    /// `None` without `[snapshot]`.
    pub(super) snapshots: Option<SnapshotWriter>,
    /// The process that this one takes over from.
    pub(super) previous: Previous,
    /// The command line of successors; empty if SIGUSR2 starts none.
    pub(super) command: Vec<OsString>,
}

/// The running process without its workers.
pub(super) struct Control {
    shared: Arc<SharedState>,
    places: Vec<ListenAddress>,
    checks: Option<ListenAddress>,
    /// The address of the limiter service.
    grpc: Option<ListenAddress>,
    fleet: Option<Fleet>,
    workers: usize,
    stage: watch::Sender<Lifecycle>,
    endings: mpsc::Receiver<io::Error>,
    grace: Duration,
    operators: Option<(Listener, ListenAddress, SocketAddr, Arc<Operators>)>,
    jwks: Arc<Jwks>,
    /// Asks the stores of limits for operators.
    stores: StoreTasks,
    reloader: Option<Reloader>,
    snapshots: Option<SnapshotWriter>,
    write_lock: WriteLock,
    previous: Previous,
    handover: Option<(Arc<Handover>, Listener)>,
    progress: watch::Receiver<HandoverProgress>,
    command: Vec<OsString>,
    /// Kept until the end.
    _files: Vec<Arc<SocketFile>>,
}

/// The interval between sweeps of idle keys, and the length of the windows of limits that follow a signal.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Control {
    /// Starts the workers.
    pub(super) fn start(built: Built) -> Result<Self, AppError> {
        let Built { shared, mut listeners, places, limiter, fleet, operators, jwks, grace, workers, .. } = built;
        let Built { reloader, secret, snapshots, mut previous, command, .. } = built;
        if let Previous::Running(predecessor) = &mut previous {
            // Without an admin listener nobody could end them.
            let orders = predecessor.orders().into_iter().filter(|_| listeners.operators.is_some());
            operate::inherit(&shared.in_force().states, orders.collect());
            let was_gone = predecessor.is_gone();
            predecessor.confirm().map_err(AppError::TakeOver)?;
            if predecessor.is_gone() && !was_gone {
                listeners.mend()?;
            }
        }
        let checks = listeners.checks.as_ref().map(|bound| bound.address.clone());
        let place = listeners.operators.as_ref().map(|bound| (bound.address.clone(), bound.socket_address()));
        let grpc_place = listeners.grpc.as_ref().map(|bound| bound.address.clone());
        let fleet_place = listeners.fleet.as_ref().map(|bound| bound.address.clone());
        let open = listeners.open(workers).map_err(AppError::system("use the sockets"))?;
        let Open { by_worker, grpc, fleet: fleet_socket, operators: socket, takeover, offered, files } = open;
        let (stage, stages) = watch::channel(Lifecycle::Running);
        let (services, stores) = worker_services(limiter.as_ref(), grpc, &stages);
        let endings = start_workers(by_worker, services, &shared, &stages)?;
        let write_lock: WriteLock = Arc::new(tokio::sync::Mutex::new(true));
        let (progress, progress_receiver) = watch::channel(HandoverProgress::Pending);
        let handover = Handover {
            offered: Mutex::new(offered),
            shared: Arc::clone(&shared),
            secret,
            jwks: Arc::clone(&jwks),
            bans: Arc::clone(&operators.bans),
            text: Arc::clone(&operators.text),
            stage: stage.clone(),
            write_lock: Arc::clone(&write_lock),
            progress,
            instance: fleet.as_ref().map(|hub| hub.instance()),
            busy: tokio::sync::Mutex::default(),
        };
        let fleet = fleet.zip(fleet_socket).zip(fleet_place);
        let fleet = fleet.map(|((hub, socket), address)| Fleet { hub, socket, address });
        Ok(Self {
            shared,
            places,
            checks,
            grpc: grpc_place,
            fleet,
            workers,
            stage,
            endings,
            grace,
            operators: socket.zip(place).map(|(socket, (place, address))| (socket, place, address, operators)),
            jwks,
            stores,
            reloader,
            snapshots,
            write_lock,
            previous,
            handover: takeover.map(|socket| (Arc::new(handover), socket)),
            progress: progress_receiver,
            command,
            _files: files,
        })
    }

    /// Runs until the workers have ended.
    pub(super) async fn run(
        mut self,
        logs: Option<&LogGuard>,
        companion: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        // Signals are registered before any other process learns that Weir runs.
        let stops = StopSignals::new().map_err(AppError::system("take signals"))?;
        let rotations = signal(SignalKind::user_defined1()).map_err(AppError::system("take signals"))?;
        let ready = Arc::new(AtomicBool::new(true));
        let reloader = self.take_signals()?;
        let admin = self.serve_operators(&ready)?;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(upstream::check_health(Arc::clone(&shared)));
        tokio::spawn(upstream::resolve_names(Arc::clone(&shared), Arc::clone(&shared.metrics)));
        tokio::spawn(stores::run(Arc::clone(&shared)));
        tokio::spawn(overload::follow(Arc::clone(&shared)));
        let traces = Exporter::start(&shared);
        let fleet = self.fleet.take().map(Fleet::start).transpose()?.map(Arc::new);
        for address in &self.places {
            tracing::info!(%address, workers = self.workers, "listening");
        }
        if let Some(address) = &self.checks {
            tracing::info!(%address, workers = self.workers, "answering checks");
        }
        if let Some(address) = &self.grpc {
            tracing::info!(%address, workers = self.workers, "serving checks over gRPC");
        }
        tokio::spawn(Arc::clone(&self.jwks).run(Arc::clone(&shared)));
        tokio::spawn(acme::run(Arc::clone(&shared), self.stage.subscribe()));
        let predecessor = self.tell_predecessor();
        let snapshots = self.snapshots.take();
        let snapshots = snapshots.map(|writer| writer.start(Arc::clone(&shared), Arc::clone(&self.write_lock)));
        let handover =
            self.handover.take().map(|(handover, socket)| answer_successors(handover, socket)).transpose()?;
        systemd::notify_ready();
        let (stage, endings, grace, progress) = (self.stage, self.endings, self.grace, self.progress.clone());
        let listeners = ControlListeners { admin, fleet: fleet.clone(), handover, progress: self.progress.clone() };
        let drain = Drain { shared: Arc::clone(&shared), ready, stage, endings, grace, stops, progress, predecessor };
        let ended = tokio::select! {
            drained = drain.run(|| listeners.end()) => drained,
            () = housekeeping(&shared, logs, rotations) => Ok(()),
            () = async { companion.await; std::future::pending().await } => Ok(()),
        };
        // Waits for a handover in progress.
        let _ = timeout(REFUSAL_TIMEOUT, self.write_lock.lock()).await;
        if *self.progress.borrow() != HandoverProgress::Pending {
            let lost = shared.gate.unsubscribe_deltas();
            if lost > 0 {
                tracing::warn!(lost, "charges were lost: the successor did not receive them");
            }
            let _ =
                timeout(REFUSAL_TIMEOUT, self.progress.wait_for(|progress| *progress == HandoverProgress::ChargesSent))
                    .await;
        } else if let Some(reloader) = reloader {
            let _ = timeout(REFUSAL_TIMEOUT, reloader.finish()).await;
        }
        stores::flush(&shared).await;
        Exporter::finish(traces).await;
        if let Some(fleet) = fleet {
            fleet.end().await;
        }
        if let Some(snapshots) = snapshots {
            let finished = snapshots.finish().await;
            let _ = finished.inspect_err(|error| tracing::error!(%error, "the last snapshot was not written"));
        }
        ended
    }

    /// Tells a running predecessor that this process serves. The returned channel closes when it has ended.
    fn tell_predecessor(&mut self) -> Option<oneshot::Receiver<Infallible>> {
        match std::mem::replace(&mut self.previous, Previous::None) {
            Previous::None => None,
            Previous::Ended => {
                tracing::warn!(
                    "the previous process ended without a handover; limits continue from the snapshot or begin anew"
                );
                None
            }
            Previous::Running(predecessor) => Some(predecessor.serving(Arc::clone(&self.shared))),
        }
    }

    /// Starts the tasks that wait for signals, and returns the one that reloads.
    fn take_signals(&mut self) -> Result<Option<StoppableTask>, AppError> {
        if !self.command.is_empty() {
            let command = std::mem::take(&mut self.command);
            let successors = Successors::new(command, self.handover.is_some(), self.progress.clone());
            tokio::spawn(successors.map_err(AppError::system("take signals"))?.run());
        }
        let Some(reloader) = self.reloader.take() else { return Ok(None) };
        let hangups = signal(SignalKind::hangup()).map_err(AppError::system("take signals"))?;
        Ok(Some(StoppableTask::start(|stopped| reloader.run(hangups, stopped))))
    }

    /// Serves the admin listener on this runtime.
    fn serve_operators(&mut self, ready: &Arc<AtomicBool>) -> Result<Option<JoinHandle<()>>, AppError> {
        let Some((socket, place, address, operators)) = self.operators.take() else { return Ok(None) };
        let newest = Map::new(Arc::clone(&self.shared.running_config), |config: &proxy::RunningConfig| &*config.live);
        let admin = Admin {
            metrics: Arc::clone(&self.shared.metrics),
            taps: Arc::clone(&self.shared.taps),
            history: Arc::default(),
            gate: Arc::clone(&self.shared.gate),
            live: NewestLive::new(newest),
            stores: self.stores.clone(),
            ready: Arc::clone(ready),
            address,
            is_tls: operators.is_tls(),
            services: self.places.clone(),
            access: Arc::clone(&operators.access),
            overrides: operators.overrides.clone(),
            upstreams: Arc::clone(&self.shared) as Arc<dyn Directory>,
            routing: Arc::clone(&operators.routing),
            configuration: Arc::clone(&operators.text) as Arc<dyn ConfigReader>,
            reloads: operators.reloads.clone(),
            fleet: self.fleet.as_ref().map(|fleet| Arc::clone(&fleet.hub)),
            bans: Arc::clone(&operators.bans),
            edit_keys: crate::config::api_keys::edit,
            audit: Arc::clone(&operators.audit),
        };
        operators.bans.log();
        operators.text.versions.log();
        tokio::spawn(admin::keep_history(admin.clone()));
        tokio::spawn(admin::end_orders(admin.clone()));
        let bans = Arc::clone(&operators.bans).follow(Arc::clone(&self.shared.gate));
        let listener = AsyncListener::new(socket).map_err(AppError::system("serve operators"))?;
        // Once a successor has taken over, the file of bans is its own.
        let serving = tokio::spawn(async {
            tokio::select! { () = operators.serve(listener, admin) => {}, () = bans => {} }
        });
        tracing::info!(address = %place, "serving operators");
        Ok(Some(serving))
    }
}

/// Serves `server.takeover`.
fn answer_successors(handover: Arc<Handover>, socket: Listener) -> Result<(Arc<Handover>, JoinHandle<()>), AppError> {
    let Listener::Unix(socket) = socket else {
        return Err(AppError::System("use server.takeover", "it is no Unix socket".into()));
    };
    name_this_process(&socket).map_err(AppError::system("use server.takeover"))?;
    let socket = tokio::net::UnixListener::from_std(socket).map_err(AppError::system("use server.takeover"))?;
    Ok((Arc::clone(&handover), tokio::spawn(handover.run(socket))))
}

/// The tasks of the control runtime that accept connections.
struct ControlListeners {
    admin: Option<JoinHandle<()>>,
    fleet: Option<Arc<RunningFleet>>,
    handover: Option<(Arc<Handover>, JoinHandle<()>)>,
    progress: watch::Receiver<HandoverProgress>,
}

impl ControlListeners {
    /// Begins the shutdown. The admin listener stays open until the process ends, and successors are asked to wait for
    /// that end. If a successor has taken over, all tasks end at once.
    fn end(self) {
        let Self { admin, fleet, handover, mut progress } = self;
        let (handover, serving) = handover.unzip();
        if let Some(handover) = handover {
            handover.close();
        }
        tokio::spawn(async move {
            if progress.wait_for(|progress| *progress >= HandoverProgress::HandedOver).await.is_ok() {
                admin.iter().chain(&serving).for_each(JoinHandle::abort);
                if let Some(fleet) = fleet {
                    fleet.leave();
                }
            }
        });
    }
}

/// Whether the clock of the system was set by `set_ns` nanoseconds since the start, and not by `known_ns`, which this
/// replaces. Nothing is wrong if it shows the right time again.
fn is_set_anew(set_ns: i64, known_ns: &mut i64) -> bool {
    let is_other = set_ns == 0 || set_ns.abs_diff(*known_ns) >= STEP_NS_MIN;
    if is_other {
        *known_ns = set_ns;
    }
    is_other && set_ns != 0
}

/// Warns if the clock of the system was set anew.
fn warn_of_set_clock(set_ns: i64, known_ns: &mut i64) {
    if is_set_anew(set_ns, known_ns) {
        let seconds = set_ns / 1_000_000_000;
        tracing::warn!(
            seconds,
            "the clock of the system was set; calendar windows and `Date` follow it after a restart"
        );
    }
}

/// Sweeps idle keys and tokens, updates metrics, and reopens log files, until dropped.
async fn housekeeping(shared: &SharedState, logs: Option<&LogGuard>, mut rotations: Signal) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut tasks, mut windows, mut set_ns) = (0, Windows::default(), 0);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = rotations.recv() => {
                reopen_logs(logs);
                continue;
            }
        }
        shared.metrics.set_tasks(Handle::current().metrics().num_alive_tasks(), &mut tasks);
        warn_of_set_clock(shared.gate.clock().set_since_start(), &mut set_ns);
        shared.gate.sweep();
        windows.end(shared);
        let config = shared.running_config.load();
        config.live.tokens.sweep(shared.gate.clock().now());
        if let Some(stale) = &config.stale {
            stale.sweep(shared.gate.clock().now());
        }
        if let Some(logs) = logs {
            let counted = shared.metrics.log_lines_dropped.get();
            shared.metrics.log_lines_dropped.inc_by(logs.dropped().saturating_sub(counted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_the_clock_is_logged_once() {
        let mut known_ns = 0;
        for (second, set_s, is_logged) in [
            (1, 0, false),
            (2, 3600, true),
            (3, 3600, false),
            (4, 3602, true),
            (5, 0, false),
            (6, 3602, true),
            (7, -5, true),
            (8, 0, false),
        ] {
            assert_eq!(is_set_anew(set_s * 1_000_000_000, &mut known_ns), is_logged, "{second} s");
        }
    }
}
