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
use tokio::time::{Instant, timeout, timeout_at};

use super::preface::Prefaced;
use super::routes::Routes;
use super::server::{Displaced, OpenConnection, RunningSettings, Server};
use crate::base::time::instant_now;
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
    let Some(displaced) = server.begin_opening() else { return };
    let (server, routes) = (Arc::clone(server), Rc::clone(routes));
    spawn_local(async move {
        let _open = open;
        socket.set_nodelay();
        if let Err(error) = converse(&server, &routes, (socket, peer), displaced, lifecycle).await {
            tracing::debug!(%error, "a gRPC connection ended");
        }
    });
}

async fn converse(
    server: &Arc<Server>,
    routes: &Routes,
    (socket, peer): (Socket, IpAddr),
    displaced: Displaced,
    mut lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let (settings, by) = (server.settings.load_full(), instant_now() + OPENING_TIMEOUT);
    match &settings.tls {
        None => {
            let opened = open(in_time(Prefaced::read(socket), by), displaced).await?;
            let _counted = OpenConnection::new(server)?;
            call(routes, &settings, peer, opened, &mut lifecycle).await
        }
        Some(tls) => {
            let opening = async {
                let accepted = in_time(tls.accept(socket), by).await;
                let stream = accepted.inspect_err(|_| server.metrics.tls_handshakes_failed.inc())?;
                in_time(Prefaced::read(stream), by).await
            };
            let opened = open(opening, displaced).await?;
            let _counted = OpenConnection::new(server)?;
            call(routes, &settings, peer, opened, &mut lifecycle).await
        }
    }
}

/// Takes a step of opening a connection, which ends at `by` at the latest.
async fn in_time<S>(step: impl Future<Output = io::Result<S>>, by: Instant) -> io::Result<S> {
    timeout_at(by, step).await.map_err(io::Error::from).flatten()
}

/// Opens a connection, unless newer ones take its place.
async fn open<S>(opening: impl Future<Output = io::Result<S>>, displaced: Displaced) -> io::Result<S> {
    tokio::select! {
        opened = opening => opened,
        _ = displaced => Err(io::Error::other("newer connections take its place")),
    }
}

/// Serves the calls of a connection. While the worker drains, calls that have begun are finished.
async fn call(
    routes: &Routes,
    running: &RunningSettings,
    peer: IpAddr,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    lifecycle: &mut watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let service = service_fn(|request| {
        let answer = routes.call(request, peer, running.settings.max_message_bytes);
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

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use bytes::Bytes;
    use http::Request;
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::Frame;
    use hyper::client::conn::http2::handshake;
    use tokio::task::LocalSet;
    use tokio::time::sleep;
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;
    use crate::base::telemetry::{Metrics, Taps};
    use crate::base::time::{Clock, instant_now};
    use crate::engine::gate::{Gate, HoldCaps, NewestLive};
    use crate::engine::policy::Policy;
    use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
    use crate::engine::store::Usage;
    use crate::fleet::grpc::settings::{ServiceListener, ServiceSettings};
    use crate::transport::net::ListenAddress;

    fn server() -> Arc<Server> {
        let metrics = Arc::new(Metrics::new("", "").unwrap());
        let gate = Arc::new(Gate::new(Clock::start(), [7; 16], Arc::clone(&metrics)));
        let (trusted, header, prefixes) = (Vec::new(), AddressHeader::XForwardedFor, Prefixes::default());
        let policy = Policy::new(Vec::new(), Vec::new(), ClientIpRules { trusted, header, prefixes });
        let caps = HoldCaps { all: Usage::default(), per_client: Usage::default() };
        let live = NewestLive::new(ArcSwap::from_pointee(gate.install(policy, caps, 0)));
        let taps = Arc::new(Taps::new(metrics.taps.clone()));
        let listen = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let listener = ServiceListener { listen, max_connections: 1, has_tls: false };
        let settings = ServiceSettings { tls: None, max_streams: 10, max_message_bytes: 1024, profiles: None };
        Arc::new(Server::new(gate, live, metrics, taps, (listener, settings), false).unwrap())
    }

    /// A call whose message does not arrive ends; a stream that is open does not.
    #[tokio::test(start_paused = true)]
    async fn a_message_must_arrive_in_time() {
        let run = async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let server = server();
            let (routes, running) = (Routes::new(&server, &StoreTasks::new().0), server.settings.load_full());
            let (_lifecycle, mut lifecycle) = watch::channel(Lifecycle::Running);
            let peer = IpAddr::from([127, 0, 0, 1]);
            spawn_local(async move { call(&routes, &running, peer, far, &mut lifecycle).await });
            let (mut send, connection) = handshake(LocalExecutor, TokioIo::new(near)).await.unwrap();
            spawn_local(connection);
            let mut begin = |path: &str| {
                let begun = Frame::data(Bytes::from_static(&[0, 0, 0, 1, 0, 10]));
                let body = tokio_stream::once(Ok::<_, Infallible>(begun)).chain(tokio_stream::pending());
                let head = Request::post(format!("http://weir.test{path}")).header("content-type", "application/grpc");
                send.send_request(head.body(StreamBody::new(body)).unwrap())
            };
            let mut stream = begin("/weir.v1.Limiter/CheckStream").await.unwrap().into_body();
            for path in ["/weir.v1.Limiter/Check", "/weir.v1.charges.Charges/Join", "/grpc.health.v1.Health/Watch"] {
                let began = instant_now();
                let answer = begin(path).await.unwrap();
                assert_eq!(answer.headers()["grpc-status"], (Code::DeadlineExceeded as i32).to_string().as_str());
                assert_eq!(began.elapsed().as_secs(), 15, "{path}");
            }
            tokio::select! {
                piece = stream.frame() => panic!("{piece:?}"),
                () = sleep(Duration::from_mins(5)) => {}
            }
        };
        LocalSet::new().run_until(run).await;
    }
}
