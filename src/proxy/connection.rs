//! One client connection: tells the protocol, serves it, and closes it so that the last answer arrives.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::h1::{Guard, LEADING_BYTES_MAX, Limits};
use super::service;
use super::settings::Bounds;
use super::wire::{Wire, WireIo};
use super::worker::{Stage, Worker};
use crate::time;

/// The client's half of the HTTP/2 connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most heads fit; what does not is read by hyper.
const FIRST_READ: usize = 1024;
/// What hyper may buffer of a request at least.
const READ_BUFFER: usize = 8192;
/// What hyper has room for without asking; asking for more, or for as much, makes every request dearer.
const HYPER_HEADERS_MAX: usize = 100;
/// How long a client that is still sending is listened to after its last answer.
const LINGER: Duration = Duration::from_secs(2);
/// How often an HTTP/2 client is asked whether it is still there, and how long it has to say so.
const H2_PING: Duration = Duration::from_secs(20);

/// Serves a connection until it ends.
pub(super) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: SocketAddr, mut stage: watch::Receiver<Stage>) {
    // Latency before packet count; a failure to set it costs only that.
    let _ = stream.set_nodelay(true);
    let view = worker.views.view();
    let since = time::instant_now();
    let timeouts = Rc::clone(&view.timeouts);
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(timeouts.request_head, first_bytes(&stream)) => first,
        () = draining(&mut stage) => return,
    };
    let Ok(Some(first)) = first else { return };
    let bounds = view.current.settings.bounds.clone();
    drop(view); // a connection may outlive many
    if first.starts_with(PREFACE) {
        let io = WireIo::new(stream, peer, None, first.freeze(), timeouts, since);
        serve_h2(&worker, io, &bounds, stage).await;
    } else {
        let guard = Guard::new(Limits {
            max_head_bytes: bounds.max_head_bytes,
            max_headers: bounds.max_headers,
            max_uri_bytes: bounds.max_uri_bytes,
        });
        let io = WireIo::new(stream, peer, Some(guard), first.freeze(), timeouts, since);
        let wire = Rc::clone(io.wire());
        serve_h1(&worker, &wire, io, &bounds, stage).await;
        wire.linger(LINGER).await;
    }
}

/// Reads until the protocol is certain; none if the client closes before that.
async fn first_bytes(stream: &TcpStream) -> Option<BytesMut> {
    let mut first = BytesMut::with_capacity(FIRST_READ);
    loop {
        stream.readable().await.ok()?;
        match stream.try_read_buf(&mut first) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return None,
        }
        if !PREFACE.starts_with(&first) || first.len() >= PREFACE.len() {
            return Some(first);
        }
    }
}

async fn serve_h1(worker: &Rc<Worker>, wire: &Rc<Wire>, io: WireIo, bounds: &Bounds, stage: watch::Receiver<Stage>) {
    let service = service_fn(|request: Request<Incoming>| service::serve(Rc::clone(worker), Rc::clone(wire), request));
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None); // the wire has deadlines of its own
    builder.max_buf_size(READ_BUFFER.max(bounds.max_head_bytes + LEADING_BYTES_MAX + 1));
    if bounds.max_headers > HYPER_HEADERS_MAX {
        builder.max_headers(bounds.max_headers);
    }
    let connection = builder.serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let ended = until_drained(connection.as_mut(), stage, http1::Connection::graceful_shutdown).await;
    if let Err(error) = ended {
        tracing::debug!(peer = %wire.peer, %error, "connection ended");
    }
}

async fn serve_h2(worker: &Rc<Worker>, io: WireIo, bounds: &Bounds, stage: watch::Receiver<Stage>) {
    let (worker, wire, peer) = (Rc::clone(worker), Rc::clone(io.wire()), io.wire().peer);
    let service =
        service_fn(move |request: Request<Incoming>| service::serve(Rc::clone(&worker), Rc::clone(&wire), request));
    let connection = http2::Builder::new(Local)
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.max_h2_streams)
        .max_header_list_size(u32::try_from(bounds.max_head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PING)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let ended = until_drained(connection.as_mut(), stage, http2::Connection::graceful_shutdown).await;
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// Serves until the connection ends; once draining has begun it is told to end after what runs.
async fn until_drained<C: Future>(
    mut connection: Pin<&mut C>,
    mut stage: watch::Receiver<Stage>,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = draining(&mut stage) => shut_down(connection.as_mut()),
    }
    connection.await
}

/// Waits until draining has begun. A worker that nobody controls any more drains too.
async fn draining(stage: &mut watch::Receiver<Stage>) {
    let _ = stage.wait_for(|stage| *stage != Stage::Running).await;
}

/// Runs the tasks of HTTP/2 streams on their worker.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}
