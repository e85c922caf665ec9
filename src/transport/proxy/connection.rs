//! One client connection: the PROXY header, the TLS handshake, and the choice of the protocol.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ipnet::IpNet;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::http1::connection::Accepted;
use super::http1::wire::Wire;
use super::settings::Bounds;
use super::worker::{ListenerKind, OpenConnection, Worker};
use super::{http1, http2};
use crate::base::time;
use crate::engine::policy::client_ip::unmap;
use crate::transport::http1::Limits;
use crate::transport::http2::PREFACE;
use crate::transport::net::buffer::{BufferPool, InputBuffer};
use crate::transport::net::client_usage::{ClientHandle, ProxiedClient};
use crate::transport::net::lifecycle::{Lifecycle, idle_drained};
use crate::transport::net::peer::Peer;
use crate::transport::net::proxy_protocol::{self, HeaderFault};
use crate::transport::net::socket::Socket;
use crate::transport::net::stream::Stream;
use crate::transport::net::tls::{HandshakeError, ServerTls, TlsStream};

/// Serves a connection, which counts as open, until it ends.
pub(super) async fn serve(
    worker: Rc<Worker>,
    open_connection: OpenConnection,
    kind: ListenerKind,
    socket: Socket,
    peer: SocketAddr,
    mut lifecycle: watch::Receiver<Lifecycle>,
) {
    socket.set_nodelay();
    let config = worker.config.current();
    let since = time::instant_now();
    let by = since + config.timeouts.request_head;
    let settings = &config.running.settings;
    let tls = match (kind, &settings.check) {
        (ListenerKind::Requests, _) => settings.tls.clone().filter(|_| settings.plain.is_none()),
        (ListenerKind::TlsRequests, _) if settings.tls.is_some() => settings.tls.clone(),
        (ListenerKind::Checks, Some(check)) => check.tls.clone(),
        // A reload has removed the checks, or TLS; the listener stays until a restart.
        (ListenerKind::Checks, None) | (ListenerKind::TlsRequests, _) => return,
    };
    let bounds = settings.bounds.clone();
    let sends_proxy_header = kind != ListenerKind::Checks && sends_proxy_header(&settings.proxied_from, peer.ip());
    let needs_local_address = settings.upstreams.iter().any(|upstream| upstream.proxy_protocol.is_some());
    drop(config); // a connection may outlive several configurations
    // Boxed, so that connections are smaller once they are open.
    let opening = Box::pin(async {
        let (mut socket, mut client, mut first) = (socket, Some(peer), InputBuffer::default());
        if sends_proxy_header {
            (socket, client, first) = read_proxy_header(&worker, socket, peer, by).await?;
        } else if matches!(socket, Socket::Unix(_)) {
            client = None;
        }
        let handle = count_connection(&worker, client, &bounds)?;
        let preface = if tls.is_none() && kind != ListenerKind::Checks { PREFACE } else { &[] };
        let ready = open(&worker, (socket, first), tls, preface, client.unwrap_or(peer), by).await?;
        Some((handle, ready))
    });
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        () = idle_drained(&mut lifecycle) => return,
    };
    let Some((client, ReadyConnection { stream, first, peer, is_h2 })) = opened else { return };
    let ip = unmap(peer.ip());
    let (is_tls, tls_version, certificate) = match &stream {
        Stream::Plain(_) => (false, "", None),
        Stream::Tls(tls) => (true, tls.version(), tls.certificate().map(Box::new)),
    };
    let address = SocketAddr::new(ip, peer.port());
    let local_address = if needs_local_address { stream.socket().local_addr() } else { None };
    let proxied = ProxiedClient::default();
    let text = ip.to_string().into();
    let peer = Peer { ip, text, address, local_address, is_tls, tls_version, certificate, client, proxied };
    if is_h2 {
        // A task of its own is smaller than this one, which has room for HTTP/1.
        spawn_local(http2::connection::serve(worker, open_connection, (stream, first), peer, bounds, lifecycle));
    } else {
        let Bounds { max_head_bytes, max_headers, max_uri_bytes, max_requests, underscores, .. } = bounds;
        let limits = Limits { max_head_bytes, max_headers, max_uri_bytes, underscores };
        let wire = Wire::new(stream, first, since, limits, Rc::clone(&worker.buffers));
        let accepted = Accepted { kind, peer: &peer, max_requests };
        http1::connection::serve(&worker, wire, accepted, since, lifecycle).await;
        drop(open_connection);
    }
}

/// A connection with the first bytes of a request.
struct ReadyConnection {
    stream: Stream,
    first: InputBuffer,
    /// The client address: of the PROXY header, or of the socket.
    peer: SocketAddr,
    is_h2: bool,
}

/// Counts a connection of `client`. `None` if the client has too many. `Some(None)` if it is not counted: of a trusted
/// proxy, or without an address.
#[expect(clippy::option_option, reason = "`Some(None)` is accepted and not counted")]
fn count_connection(worker: &Worker, client: Option<SocketAddr>, bounds: &Bounds) -> Option<Option<Rc<ClientHandle>>> {
    let Some(client) = client else { return Some(None) };
    let config = worker.config.current();
    let rules = &config.running.live.policy.client_ip;
    if rules.is_trusted(client.ip()) {
        return Some(None);
    }
    let client = rules.prefixes.network(client.ip());
    let handle = worker.shared.clients.enter(client, bounds.max_per_ip, bounds.max_requests_per_ip);
    if handle.is_none() {
        worker.shared.metrics.client_connections_refused.inc();
    }
    Some(Some(Rc::new(handle?)))
}

fn sends_proxy_header(from: &[IpNet], peer: IpAddr) -> bool {
    !from.is_empty() && from.iter().any(|net| net.contains(&unmap(peer)))
}

/// Reads the PROXY header of a connection. Returns the socket, the client address (none if the proxy connects for
/// itself), and the bytes after the header. None if the header is invalid, or not complete at `by`.
async fn read_proxy_header(
    worker: &Worker,
    socket: Socket,
    peer: SocketAddr,
    by: Instant,
) -> Option<(Socket, Option<SocketAddr>, InputBuffer)> {
    let (mut stream, mut first) = (Stream::Plain(socket), InputBuffer::default());
    let reading = async {
        loop {
            match proxy_protocol::parse(first.unread()) {
                Ok(Some(header)) => return Ok(header),
                Ok(None) => {}
                Err(HeaderFault(fault)) => return Err(Some(fault)),
            }
            if !matches!(poll_fn(|cx| stream.poll_fill(cx, &mut first, &worker.buffers)).await, Ok(1..)) {
                // A connection without a byte is a health check.
                return Err((!first.is_empty()).then_some("the connection closed within the header"));
            }
        }
    };
    let fault = match timeout_at(by, reading).await {
        Ok(Ok(header)) => {
            first.consume(header.len);
            let Stream::Plain(socket) = stream else { return None };
            return Some((socket, header.source, first));
        }
        Ok(Err(fault)) => fault?,
        Err(_) => "the header did not arrive in time",
    };
    worker.shared.metrics.proxy_headers_refused.inc();
    tracing::debug!(%peer, fault, "invalid PROXY header");
    None
}

/// Waits for the first bytes of a request; none if they do not arrive before `by`. Over TLS the handshake decides the
/// protocol, otherwise the first bytes do: `preface` is that of HTTP/2, or empty if the listener speaks HTTP/1 only.
async fn open(
    worker: &Worker,
    (socket, first): (Socket, InputBuffer),
    tls: Option<ServerTls>,
    preface: &[u8],
    peer: SocketAddr,
    by: Instant,
) -> Option<ReadyConnection> {
    let (mut stream, first) = match tls {
        None => (Stream::Plain(socket), first),
        Some(tls) => (Stream::Tls(handshake(worker, socket, first, &tls, peer, by).await?), InputBuffer::default()),
    };
    let first = timeout_at(by, first_bytes(&mut stream, first, preface, &worker.buffers)).await.ok()??;
    let is_h2 = match &stream {
        Stream::Plain(_) => !preface.is_empty() && first.unread().starts_with(preface),
        Stream::Tls(tls) => tls.is_h2(),
    };
    Some(ReadyConnection { stream, first, peer, is_h2 })
}

async fn handshake(
    worker: &Worker,
    socket: Socket,
    records: InputBuffer,
    tls: &ServerTls,
    peer: SocketAddr,
    by: Instant,
) -> Option<Box<TlsStream>> {
    let error = match timeout_at(by, TlsStream::accept(socket, records, tls, &worker.buffers)).await {
        Ok(Ok(stream)) => return Some(Box::new(stream)),
        Ok(Err(HandshakeError::NoData | HandshakeError::Challenge)) => return None,
        Ok(Err(HandshakeError::Failed(error))) => error,
        Err(_) => std::io::ErrorKind::TimedOut.into(),
    };
    worker.shared.metrics.tls_handshakes_failed.inc();
    tracing::debug!(%peer, %error, "no TLS session");
    None
}

/// Reads until the bytes tell whether they are `preface`. None if the client closes before.
async fn first_bytes(
    stream: &mut Stream,
    mut first: InputBuffer,
    preface: &[u8],
    buffers: &BufferPool,
) -> Option<InputBuffer> {
    loop {
        let bytes = first.unread();
        if !bytes.is_empty() && (!preface.starts_with(bytes) || bytes.len() >= preface.len()) {
            return Some(first);
        }
        if !matches!(poll_fn(|cx| stream.poll_fill(cx, &mut first, buffers)).await, Ok(1..)) {
            return None;
        }
    }
}
