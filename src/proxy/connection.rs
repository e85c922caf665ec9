//! One client connection: tells the protocol, and has it served.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::service::Peer;
use super::wire::first_bytes;
use super::worker::{Stage, Worker};
use super::{over_h1, over_h2};
use crate::policy::client_ip::unmap;
use crate::time;

/// The client's half of the HTTP/2 connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection until it ends.
pub(super) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: SocketAddr, mut stage: watch::Receiver<Stage>) {
    // Latency before packet count; a failure to set it costs only that.
    let _ = stream.set_nodelay(true);
    let view = worker.views.view();
    let since = time::instant_now();
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(view.timeouts.request_head, first_bytes(&stream, PREFACE, &worker.buffers)) => first,
        () = draining(&mut stage) => return,
    };
    let Ok(Some(first)) = first else { return };
    let bounds = view.current.settings.bounds.clone();
    drop(view); // a connection may outlive many
    let ip = unmap(peer.ip());
    let peer = Peer { ip, text: ip.to_string().into() };
    if first.starts_with(PREFACE) {
        over_h2::serve(worker, stream, peer, first, bounds, stage).await;
    } else {
        over_h1::serve(&worker, stream, &peer, first, since, &bounds, stage).await;
    }
}

/// Waits until draining has begun. A worker that nobody controls any more drains too.
pub(super) async fn draining(stage: &mut watch::Receiver<Stage>) {
    let _ = stage.wait_for(|stage| *stage != Stage::Running).await;
}
