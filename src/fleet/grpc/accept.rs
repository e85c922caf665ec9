//! The connections of one worker: TLS, the preface of HTTP/2, and the calls on it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::preface::Prefaced;
use super::routes::Routes;
use super::server::{OpenConnection, RunningSettings, Server};
use crate::engine::gate::{StoreTasks, WorkerStores};
use crate::transport::net::Listener;
use crate::transport::net::accept::AsyncListener;
use crate::transport::net::lifecycle::{Lifecycle, draining};
use crate::transport::net::socket::Socket;

/// The time for the handshake of TLS and the preface of HTTP/2.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a frame after which a caller must prove that it is there.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for calls in progress once the worker drains.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the fields of one call.
const HEADER_BYTES_MAX: u32 = 16 * 1024;

/// Serves `listeners` on this worker until it has drained. `stores` decide about limits that stores have.
pub async fn serve(
    server: Arc<Server>,
    listeners: Vec<Listener>,
    stores: Rc<WorkerStores>,
    mut lifecycle: watch::Receiver<Lifecycle>,
) {
    server.set_serving(true).await;
    let (tasks, work) = StoreTasks::new();
    work.start(stores);
    let routes = Rc::new(Routes::new(&server, &tasks));
    // The channel closes when all listeners and all connections have ended.
    let (open, mut all_ended) = mpsc::channel(1);
    for listener in listeners {
        let listener = AsyncListener::new(listener);
        let listener = listener.inspect_err(|error| tracing::error!(%error, "cannot serve a gRPC listener"));
        let Ok(listener) = listener else { continue };
        let (server, routes, open) = (Arc::clone(&server), Rc::clone(&routes), open.clone());
        let stages = lifecycle.clone();
        spawn_local(listener.serve_each(lifecycle.clone(), move |socket, peer| {
            let peer = peer.ip().to_canonical();
            begin(&server, &routes, (socket, peer), stages.clone(), open.clone());
        }));
    }
    drop(open);
    loop {
        draining(&mut lifecycle).await;
        server.set_serving(false).await;
        let next =
            crate::transport::net::lifecycle::wait_for(&mut lifecycle, |now| now != Lifecycle::HandingOver).await;
        if next != Lifecycle::Running {
            break;
        }
        server.set_serving(true).await;
    }
    let _ = all_ended.recv().await;
}

/// Begins to serve a connection, which holds `open` until its end.
fn begin(
    server: &Arc<Server>,
    routes: &Rc<Routes>,
    (socket, peer): (Socket, IpAddr),
    lifecycle: watch::Receiver<Lifecycle>,
    open: mpsc::Sender<Infallible>,
) {
    let Some(counted) = OpenConnection::new(server) else { return };
    let (server, routes) = (Arc::clone(server), Rc::clone(routes));
    spawn_local(async move {
        let _open = (counted, open);
        socket.set_nodelay();
        if let Err(error) = converse(&server, &routes, socket, peer, lifecycle).await {
            tracing::debug!(%error, "a gRPC connection ended");
        }
    });
}

async fn converse(
    server: &Server,
    routes: &Rc<Routes>,
    socket: Socket,
    peer: IpAddr,
    mut lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let settings = server.settings.load_full();
    match &settings.tls {
        None => {
            let opened = timeout(OPENING_TIMEOUT, Prefaced::read(socket)).await.map_err(io::Error::from).flatten()?;
            call(routes, &settings, peer, opened, &mut lifecycle).await
        }
        Some(tls) => {
            let opening = async { Prefaced::read(tls.accept(socket).await?).await };
            let opened = timeout(OPENING_TIMEOUT, opening).await.map_err(io::Error::from).flatten();
            let opened = opened.inspect_err(|_| server.metrics.tls_handshakes_failed.inc())?;
            call(routes, &settings, peer, opened, &mut lifecycle).await
        }
    }
}

/// Serves the calls of a connection. While the worker drains, calls that have begun are finished.
async fn call(
    routes: &Rc<Routes>,
    running: &RunningSettings,
    peer: IpAddr,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    lifecycle: &mut watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let service = service_fn(|request| {
        let answer = routes.call(request, peer);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = http2::Builder::new(LocalExecutor);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(running.settings.max_streams)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining(lifecycle) => {
            connection.as_mut().graceful_shutdown();
            match timeout(DRAIN_TIMEOUT, connection).await {
                Ok(ended) => ended,
                Err(_) => Ok(()), // streams of checks or of health that the caller keeps open
            }
        }
    };
    ended.map_err(io::Error::other)
}

/// Runs the streams of a connection on the runtime of the worker.
#[derive(Clone)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        spawn_local(stream);
    }
}
