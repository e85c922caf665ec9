//! The main loop of a worker: a thread with its own runtime, listeners and connection pools.

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
use super::lifecycle::Lifecycle;
use super::running_config::ConfigWatch;
use super::worker::{ListenerKind, OpenConnection, SharedState, Worker};
use crate::net::buffer::BufferPool;
use crate::net::listener::{BACKLOG, LOCAL_PEER, Listener};
use crate::net::socket::Socket;
use crate::time;
use crate::upstream::{SWEEP_EVERY, WorkerNotify, WorkerRequests, WorkerResources};

/// Pause between attempts to accept after an error, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least time between two log lines about that.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Runs a worker on this thread until it has drained, or is stopped.
///
/// # Errors
///
/// If the runtime or a listener cannot be created.
pub fn run(
    listeners: Vec<(ListenerKind, Listener)>,
    shared: Arc<SharedState>,
    lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve(listeners, shared, lifecycle))
}

async fn serve(
    listeners: Vec<(ListenerKind, Listener)>,
    shared: Arc<SharedState>,
    mut lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let buffers = Rc::<BufferPool>::default();
    let wanted = WorkerNotify::default();
    let (broken_answers, untaken_answers) = (shared.metrics.broken_answers(), shared.metrics.untaken_answers());
    let requests = WorkerRequests::new(&shared.ceiling);
    let (worker_buffers, notify) = (Rc::clone(&buffers), Arc::clone(&wanted));
    let resources =
        WorkerResources { broken_answers, untaken_answers, buffers: worker_buffers, worker: notify, requests };
    let views = ConfigWatch::new(Arc::clone(&shared.running_config), resources);
    let worker = Rc::new(Worker::new(shared, views, buffers));
    worker.stores.follow(&worker.config.current().running.stores);
    for (kind, listener) in listeners {
        let listener = AsyncListener::new(listener)?;
        spawn_local(accept(Rc::clone(&worker), (kind, listener), lifecycle.clone()));
    }
    spawn_local(sweep(Rc::clone(&worker), wanted));
    let _ = lifecycle.wait_for(|lifecycle| matches!(lifecycle, Lifecycle::Draining | Lifecycle::Stopped)).await;
    tokio::select! {
        () = worker.all_ended() => {}
        _ = lifecycle.wait_for(|lifecycle| *lifecycle == Lifecycle::Stopped) => {}
    }
    Ok(())
}

/// A [`Listener`] on the runtime of this worker.
enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsyncListener {
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

async fn accept(
    worker: Rc<Worker>,
    (kind, listener): (ListenerKind, AsyncListener),
    mut lifecycle: watch::Receiver<Lifecycle>,
) {
    let (mut was_handed_over, mut logged_at) = (false, None::<Instant>);
    loop {
        let accepted = tokio::select! {
            biased;
            now = wait_for(&mut lifecycle, |lifecycle| lifecycle != Lifecycle::Running) => {
                was_handed_over |= now == Lifecycle::HandingOver;
                if wait_for(&mut lifecycle, |lifecycle| lifecycle != Lifecycle::HandingOver).await == Lifecycle::Running {
                    was_handed_over = false;
                    continue;
                }
                break;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => serve_one(&worker, kind, socket, peer, &lifecycle),
            // The client closed before the connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let now = time::instant_now();
                if logged_at.is_none_or(|logged_at| now.saturating_duration_since(logged_at) >= LOG_EVERY) {
                    tracing::error!(%error, "cannot accept connections");
                    logged_at = Some(now);
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    if !was_handed_over {
        // The kernel would reset connections that wait to be accepted.
        for _ in 0..BACKLOG {
            let Poll::Ready(Ok((socket, peer))) = poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await else {
                return;
            };
            serve_one(&worker, kind, socket, peer, &lifecycle);
        }
    }
}

/// Waits for a lifecycle state with `is_it`, and returns it. Without a controller it returns `Stopped`.
async fn wait_for(lifecycle: &mut watch::Receiver<Lifecycle>, is_it: impl Fn(Lifecycle) -> bool) -> Lifecycle {
    lifecycle.wait_for(|lifecycle| is_it(*lifecycle)).await.map_or(Lifecycle::Stopped, |lifecycle| *lifecycle)
}

fn serve_one(
    worker: &Rc<Worker>,
    kind: ListenerKind,
    socket: Socket,
    peer: SocketAddr,
    lifecycle: &watch::Receiver<Lifecycle>,
) {
    let Some(open) = OpenConnection::new(worker, kind) else {
        worker.shared.metrics.connections_refused.inc();
        return tracing::trace!(%peer, "a connection is closed at the bound");
    };
    let (worker, lifecycle) = (Rc::clone(worker), lifecycle.clone());
    // Called inside: a captured future is stored twice.
    spawn_local(async move {
        let _open = open;
        connection::serve(worker, kind, socket, peer, lifecycle).await;
    });
}

async fn sweep(worker: Rc<Worker>, wanted: WorkerNotify) {
    let (mut tasks, mut untaken) = (0, 0);
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let (config, metrics) = (worker.config.current(), &worker.shared.metrics);
                config.upstreams.iter().for_each(|upstream| upstream.sweep());
                worker.stores.follow(&config.running.stores);
                worker.shared.ceiling.sweep();
                let most = config.running.settings.bounds.max_untaken_bytes / worker.shared.ceiling.workers();
                let ended = worker.untaken.sweep(most);
                if ended > 0 {
                    metrics.untaken_overflow().inc_by(ended);
                }
                metrics.set_untaken_bytes(worker.untaken.bytes(), &mut untaken);
                metrics.set_tasks(Handle::current().metrics().num_alive_tasks(), &mut tasks);
            }
            () = wanted.notified() => { worker.config.current().upstreams.iter().for_each(|upstream| upstream.release_connections()); }
        }
    }
}
