//! One thread that accepts, serves and forwards, with a runtime, listeners and an upstream pool of its own.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Handle, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::connection;
use super::lifecycle::Stage;
use super::view::Views;
use super::worker::{Open, Shared, Worker};
use crate::net::buffer::Buffers;
use crate::net::listener::{BACKLOG, LOCAL_PEER, Listener};
use crate::net::socket::Socket;
use crate::time;
use crate::upstream::{SWEEP_EVERY, WorkerNotify, WorkerRequests, WorkerResources};

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
    let wanted = WorkerNotify::default();
    let (broken_answers, untaken_answers) = (shared.metrics.broken_answers(), shared.metrics.untaken_answers());
    let requests = WorkerRequests::new(&shared.ceiling);
    let (worker_buffers, notify) = (Rc::clone(&buffers), Arc::clone(&wanted));
    let resources =
        WorkerResources { broken_answers, untaken_answers, buffers: worker_buffers, worker: notify, requests };
    let views = Views::new(Arc::clone(&shared.current), resources);
    let worker = Rc::new(Worker::new(shared, views, buffers));
    for listener in listeners {
        let listener = Accepting::new(listener)?;
        spawn_local(accept(Rc::clone(&worker), listener, stage.clone()));
    }
    spawn_local(sweep(Rc::clone(&worker), wanted));
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

async fn sweep(worker: Rc<Worker>, wanted: WorkerNotify) {
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
                metrics.set_untaken_bytes(worker.untaken.bytes(), &mut untaken);
                metrics.set_tasks(Handle::current().metrics().num_alive_tasks(), &mut tasks);
            }
            () = wanted.notified() => {
                worker.views.view().upstreams.iter().for_each(|upstream| upstream.release_connections());
            }
        }
    }
}
