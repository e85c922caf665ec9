//! One thread that accepts, serves and forwards, with a runtime, listeners and an upstream pool of its own.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Handle, LocalOptions};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::connection;
use super::date::Date;
use super::error::ProblemLog;
use super::untaken::Untaken;
use super::view::{Current, Views};
use crate::gate::Gate;
use crate::net::buffer::Buffers;
use crate::net::clients::Clients;
use crate::net::listener::{BACKLOG, LOCAL_PEER, Listener};
use crate::net::socket::Socket;
use crate::telemetry::Metrics;
use crate::time;
use crate::upstream::{Ceiling, Directory, Hands, InForce, Own, SWEEP_EVERY, UpstreamState, WorkerBell};

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Accepting.
    Running,
    /// Leaving new connections where they are while another process is given all there is. Connections end as they do
    /// when draining. What follows is draining, or running again.
    HandingOver,
    /// Finishing what runs.
    Draining,
    /// Dropping what still runs.
    Stopped,
}

/// What all workers share.
#[derive(Debug)]
pub struct Shared {
    /// Decides.
    pub gate: Arc<Gate>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The newest policy and settings.
    pub current: Arc<ArcSwap<Current>>,
    /// Told when there is a newer one, for whoever does not look by itself.
    pub reloads: watch::Sender<()>,
    /// Connections open now.
    pub connections: AtomicUsize,
    /// How many there may be.
    pub max_connections: usize,
    /// How many each client has.
    pub clients: Arc<Clients>,
    /// How many connections to all upstreams there may be.
    pub ceiling: Arc<Ceiling>,
    /// Whether the present requests are the last ones. Set before the stage changes.
    pub draining: AtomicBool,
}

impl Directory for Shared {
    fn changes(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    fn in_force(&self) -> InForce {
        let Current { settings, upstreams, .. } = &**self.current.load();
        let name_servers = Arc::clone(&settings.name_servers);
        InForce { settings: settings.upstreams.clone(), states: upstreams.clone(), name_servers }
    }

    /// To be called on the runtime that reloads: nothing here waits, so no reload comes in between.
    fn replace_states(&self, states: Vec<UpstreamState>) {
        let before = self.current.load_full();
        let Current { live, settings, access_log, .. } = &*before;
        let (live, settings) = (Arc::clone(live), settings.clone());
        self.current.store(Arc::new(Current { live, settings, access_log: *access_log, upstreams: states }));
        self.reloads.send_replace(());
    }
}

/// What the connections of one worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) views: Views,
    pub(super) problems: ProblemLog,
    pub(super) buffers: Rc<Buffers>,
    pub(super) date: Date,
    /// Answers whose clients are waited for.
    pub(super) untaken: Rc<Untaken>,
    /// Told whenever a connection ends.
    ended: Notify,
    open: std::cell::Cell<usize>,
}

/// How long accepting pauses when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often that is logged meanwhile.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// Runs a worker on this thread until it has drained or is stopped.
pub fn run(listeners: Vec<Listener>, shared: Arc<Shared>, stage: watch::Receiver<Stage>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve(listeners, shared, stage))
}

async fn serve(listeners: Vec<Listener>, shared: Arc<Shared>, mut stage: watch::Receiver<Stage>) -> io::Result<()> {
    let buffers = Rc::<Buffers>::default();
    let bell = WorkerBell::default();
    let (broken_answers, untaken_answers) = (shared.metrics.broken_answers(), shared.metrics.untaken_answers());
    let hands = Hands::new(&shared.ceiling);
    let own = Own { broken_answers, untaken_answers, buffers: Rc::clone(&buffers), worker: Arc::clone(&bell), hands };
    let views = Views::new(Arc::clone(&shared.current), own);
    let worker = Rc::new(Worker {
        shared,
        views,
        problems: ProblemLog::default(),
        buffers,
        date: Date::default(),
        untaken: Rc::default(),
        ended: Notify::new(),
        open: std::cell::Cell::new(0),
    });
    for listener in listeners {
        let listener = Accepting::new(listener)?;
        spawn_local(accept(Rc::clone(&worker), listener, stage.clone()));
    }
    spawn_local(sweep(Rc::clone(&worker), bell));
    let _ = stage.wait_for(|stage| matches!(stage, Stage::Draining | Stage::Stopped)).await;
    tokio::select! {
        () = worker.all_ended() => {}
        _ = stage.wait_for(|stage| *stage == Stage::Stopped) => {}
    }
    Ok(())
}

/// A [`Listener`] on this worker's runtime.
enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            Listener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
        }
    }

    async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Socket, SocketAddr)>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(socket, peer)| (Socket::Tcp(socket), peer)),
            Self::Unix(listener) => listener.poll_accept(cx).map_ok(|(socket, _)| (Socket::Unix(socket), LOCAL_PEER)),
        }
    }
}

async fn accept(worker: Rc<Worker>, listener: Accepting, mut stage: watch::Receiver<Stage>) {
    let (mut was_handed_over, mut said) = (false, None::<Instant>);
    loop {
        let accepted = tokio::select! {
            biased;
            now = now_in(&mut stage, |stage| stage != Stage::Running) => {
                was_handed_over |= now == Stage::HandingOver;
                if now_in(&mut stage, |stage| stage != Stage::HandingOver).await == Stage::Running {
                    was_handed_over = false;
                    continue;
                }
                break;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => serve_one(&worker, socket, peer, &stage),
            // One connection went away before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let now = time::instant_now();
                if said.is_none_or(|said| now.saturating_duration_since(said) >= SAID_EVERY) {
                    tracing::error!(%error, "cannot accept connections");
                    said = Some(now);
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    if !was_handed_over {
        // The kernel would reset those that have connected and wait to be accepted.
        for _ in 0..BACKLOG {
            let Poll::Ready(Ok((socket, peer))) = poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await else {
                return;
            };
            serve_one(&worker, socket, peer, &stage);
        }
    }
}

/// Waits until the stage is one of those, and says which. Nobody who could change it any more: the last.
async fn now_in(stage: &mut watch::Receiver<Stage>, is_it: impl Fn(Stage) -> bool) -> Stage {
    stage.wait_for(|stage| is_it(*stage)).await.map_or(Stage::Stopped, |stage| *stage)
}

fn serve_one(worker: &Rc<Worker>, socket: Socket, peer: SocketAddr, stage: &watch::Receiver<Stage>) {
    let Some(open) = Open::new(worker) else { return worker.shared.metrics.connections_refused.inc() };
    let (worker, stage) = (Rc::clone(worker), stage.clone());
    // Called within: a future that is captured takes its room twice.
    spawn_local(async move {
        let _open = open;
        connection::serve(worker, socket, peer, stage).await;
    });
}

async fn sweep(worker: Rc<Worker>, bell: WorkerBell) {
    let (mut tasks, mut untaken) = (0, 0);
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let (view, metrics) = (worker.views.view(), &worker.shared.metrics);
                view.upstreams.iter().for_each(|upstream| upstream.sweep());
                worker.shared.ceiling.sweep();
                let most = view.current.settings.bounds.max_untaken_bytes / worker.shared.ceiling.workers();
                let ended = worker.untaken.sweep(most);
                if ended > 0 {
                    metrics.untaken_overflow().inc_by(ended);
                }
                metrics.untaken_are(worker.untaken.bytes(), &mut untaken);
                metrics.tasks_are(Handle::current().metrics().num_alive_tasks(), &mut tasks);
            }
            () = bell.notified() => worker.views.view().upstreams.iter().for_each(|upstream| upstream.shed()),
        }
    }
}

impl Worker {
    /// Whether connections end after the request in hand.
    pub(super) fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    async fn all_ended(&self) {
        while self.open.get() > 0 {
            self.ended.notified().await;
        }
    }
}

/// A connection that is counted as open.
struct Open(Rc<Worker>);

impl Open {
    /// None if there are too many already.
    fn new(worker: &Rc<Worker>) -> Option<Self> {
        let shared = &worker.shared;
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= shared.max_connections {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        shared.metrics.connections.inc();
        worker.open.set(worker.open.get() + 1);
        Some(Self(Rc::clone(worker)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let worker = &self.0;
        worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        worker.shared.metrics.connections.dec();
        worker.open.set(worker.open.get().saturating_sub(1));
        worker.ended.notify_one();
    }
}
