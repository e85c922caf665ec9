//! The main loop of a worker: a thread with its own runtime, listeners and connection pools.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use super::connection;
use super::running_config::ConfigWatch;
use super::worker::{ListenerKind, OpenConnection, SharedState, Worker};
use crate::engine::gate::WorkerStores;
use crate::transport::net::accept::AsyncListener;
use crate::transport::net::buffer::BufferPool;
use crate::transport::net::socket::Socket;
use crate::transport::net::{Lifecycle, Listener};
use crate::transport::upstream::{SWEEP_EVERY, WorkerNotify, WorkerRequests, WorkerResources};

/// Serves other listeners on the runtime of a worker, with its connections to stores, until they have drained.
pub type WorkerService = Box<dyn FnOnce(Rc<WorkerStores>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Runs a worker on this thread until it has drained, or is stopped. `services` run on its runtime.
///
/// # Errors
///
/// If the runtime or a listener cannot be created.
pub fn run(
    listeners: Vec<(ListenerKind, Listener)>,
    shared: Arc<SharedState>,
    lifecycle: watch::Receiver<Lifecycle>,
    services: Vec<WorkerService>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve(listeners, shared, lifecycle, services))
}

async fn serve(
    listeners: Vec<(ListenerKind, Listener)>,
    shared: Arc<SharedState>,
    mut lifecycle: watch::Receiver<Lifecycle>,
    services: Vec<WorkerService>,
) -> io::Result<()> {
    let buffers = Rc::new(BufferPool::new(shared.metrics.client_bytes.clone()));
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
        let (worker, stages) = (Rc::clone(&worker), lifecycle.clone());
        let serve = {
            let stages = stages.clone();
            move |socket, peer| serve_one(&worker, kind, socket, peer, &stages)
        };
        spawn_local(listener.serve_each(stages, serve));
    }
    let services: Vec<_> = services.into_iter().map(|serve| spawn_local(serve(Rc::clone(&worker.stores)))).collect();
    spawn_local(sweep(Rc::clone(&worker), wanted));
    let _ = lifecycle.wait_for(|lifecycle| matches!(lifecycle, Lifecycle::Draining | Lifecycle::Stopped)).await;
    let all_ended = async {
        worker.all_ended().await;
        for serving in services {
            let _ = serving.await;
        }
    };
    tokio::select! {
        () = all_ended => {}
        _ = lifecycle.wait_for(|lifecycle| *lifecycle == Lifecycle::Stopped) => {}
    }
    Ok(())
}

fn serve_one(
    worker: &Rc<Worker>,
    kind: ListenerKind,
    socket: Socket,
    peer: SocketAddr,
    lifecycle: &watch::Receiver<Lifecycle>,
) {
    let Some(open) = OpenConnection::new(worker, kind, peer.ip()) else {
        worker.shared.metrics.connections_refused.inc();
        return tracing::trace!(%peer, "a connection is closed at the bound");
    };
    let (worker, lifecycle) = (Rc::clone(worker), lifecycle.clone());
    spawn_local(connection::serve(worker, open, kind, socket, peer, lifecycle));
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
