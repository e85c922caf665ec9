//! One client connection: shakes hands if there is TLS, tells the protocol, and has it served.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ipnet::IpNet;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::http1::wire::Wire;
use super::lifecycle::{Stage, last_call};
use super::settings::Bounds;
use super::worker::Worker;
use super::{http1, over_h2};
use crate::http1::Limits;
use crate::net::buffer::{Buffer, Buffers};
use crate::net::clients::Entered;
use crate::net::peer::Peer;
use crate::net::proxy_protocol::{self, HeaderFault};
use crate::net::socket::Socket;
use crate::net::stream::Stream;
use crate::net::tls::{HandshakeError, Tls, TlsStream};
use crate::policy::client_ip::{network, unmap};
use crate::time;

/// The client's half of the HTTP/2 connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection until it ends.
pub(super) async fn serve(worker: Rc<Worker>, socket: Socket, peer: SocketAddr, mut stage: watch::Receiver<Stage>) {
    socket.set_nodelay();
    let view = worker.views.view();
    let since = time::instant_now();
    let by = since + view.timeouts.request_head;
    let tls = view.current.settings.tls.clone();
    let bounds = view.current.settings.bounds.clone();
    let is_proxied = is_proxied(&view.current.settings.proxied_from, peer.ip());
    let tells_local = view.current.settings.upstreams.iter().any(|upstream| upstream.proxy_protocol.is_some());
    drop(view); // a connection may outlive many
    let opening = async {
        let (mut socket, mut client, mut first) = (socket, Some(peer), Buffer::default());
        if is_proxied {
            (socket, client, first) = proxied(&worker, socket, peer, by).await?;
        } else if matches!(socket, Socket::Unix(_)) {
            client = None;
        }
        let client_counts = entered(&worker, client, &bounds)?;
        Some((client_counts, open(&worker, socket, first, tls, client.unwrap_or(peer), by).await?))
    };
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        () = last_call(&mut stage) => return,
    };
    let Some((client, Opened { stream, first, peer, is_h2 })) = opened else { return };
    let ip = unmap(peer.ip());
    let (is_tls, certificate) = match &stream {
        Stream::Plain(_) => (false, None),
        Stream::Tls(tls) => (true, tls.certificate().map(Box::new)),
    };
    let address = SocketAddr::new(ip, peer.port());
    let local = if tells_local { stream.socket().local_addr() } else { None };
    let peer = Peer { ip, text: ip.to_string().into(), address, local, is_tls, certificate, client };
    if is_h2 {
        over_h2::serve(worker, stream, peer, first, bounds, stage).await;
    } else {
        let Bounds { max_head_bytes, max_headers, max_uri_bytes, max_requests, underscores, .. } = bounds;
        let limits = Limits { max_head_bytes, max_headers, max_uri_bytes, underscores };
        let wire = Wire::new(stream, first, since, limits, Rc::clone(&worker.buffers));
        http1::connection::serve(&worker, wire, &peer, since, max_requests, stage).await;
    }
}

/// A connection that has said something.
struct Opened {
    stream: Stream,
    first: Buffer,
    /// Who it is for the limits.
    peer: SocketAddr,
    is_h2: bool,
}

/// Counts a connection as one of its client's; none if there are too many. None within if it is not counted, because a
/// trusted proxy or nobody with an address of its own passes it on.
#[expect(clippy::option_option, reason = "not counted is not refused")]
fn entered(worker: &Worker, client: Option<SocketAddr>, bounds: &Bounds) -> Option<Option<Rc<Entered>>> {
    let Some(client) = client else { return Some(None) };
    let view = worker.views.view();
    let rules = &view.current.live.policy.client_ip;
    if rules.is_trusted(client.ip()) {
        return Some(None);
    }
    let client = network(client.ip(), rules.ipv6_prefix);
    let entered = worker.shared.clients.enter(client, bounds.max_per_ip, bounds.max_requests_per_ip);
    if entered.is_none() {
        worker.shared.metrics.client_connections_refused.inc();
    }
    Some(Some(Rc::new(entered?)))
}

fn is_proxied(from: &[IpNet], peer: IpAddr) -> bool {
    !from.is_empty() && from.iter().any(|net| net.contains(&unmap(peer)))
}

/// Reads the PROXY header that a connection begins with. Gives whose it is, if not the proxy's own, and what came
/// behind the header; none if that is wrong, or not whole in time.
async fn proxied(
    worker: &Worker,
    socket: Socket,
    peer: SocketAddr,
    by: Instant,
) -> Option<(Socket, Option<SocketAddr>, Buffer)> {
    let (mut stream, mut first) = (Stream::Plain(socket), Buffer::default());
    let reading = async {
        loop {
            match proxy_protocol::parse(first.unread()) {
                Ok(Some(header)) => return Ok(header),
                Ok(None) => {}
                Err(HeaderFault(fault)) => return Err(Some(fault)),
            }
            if !matches!(poll_fn(|cx| stream.poll_fill(cx, &mut first, &worker.buffers)).await, Ok(1..)) {
                // One that says nothing only looks whether somebody listens.
                return Err((!first.is_empty()).then_some("it broke off"));
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
        Err(_) => "it did not arrive in time",
    };
    worker.shared.metrics.proxy_headers_refused.inc();
    tracing::debug!(%peer, fault, "no PROXY header");
    None
}

/// Waits for the first bytes of a request; none if they do not come in time. Over TLS the handshake decides the
/// protocol, else those bytes do.
async fn open(
    worker: &Worker,
    socket: Socket,
    first: Buffer,
    tls: Option<Tls>,
    peer: SocketAddr,
    by: Instant,
) -> Option<Opened> {
    let (mut stream, first) = match tls {
        None => (Stream::Plain(socket), first),
        Some(tls) => (Stream::Tls(handshake(worker, socket, first, &tls, peer, by).await?), Buffer::default()),
    };
    let preface = if matches!(stream, Stream::Plain(_)) { PREFACE } else { &[] };
    let first = timeout_at(by, first_bytes(&mut stream, first, preface, &worker.buffers)).await.ok()??;
    let is_h2 = match &stream {
        Stream::Plain(_) => first.unread().starts_with(PREFACE),
        Stream::Tls(tls) => tls.is_h2(),
    };
    Some(Opened { stream, first, peer, is_h2 })
}

async fn handshake(
    worker: &Worker,
    socket: Socket,
    records: Buffer,
    tls: &Tls,
    peer: SocketAddr,
    by: Instant,
) -> Option<Box<TlsStream>> {
    let error = match timeout_at(by, TlsStream::accept(socket, records, tls.config(), &worker.buffers)).await {
        Ok(Ok(stream)) => return Some(Box::new(stream)),
        Ok(Err(HandshakeError::Nothing)) => return None,
        Ok(Err(HandshakeError::Failed(error))) => error,
        Err(_) => std::io::ErrorKind::TimedOut.into(),
    };
    worker.shared.metrics.tls_handshakes_failed.inc();
    tracing::debug!(%peer, %error, "no TLS session");
    None
}

/// Waits for the first bytes, which tell the protocol, beside those that have come; none if the client closes before
/// that.
async fn first_bytes(stream: &mut Stream, mut first: Buffer, preface: &[u8], buffers: &Buffers) -> Option<Buffer> {
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
