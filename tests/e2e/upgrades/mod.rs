//! Connections that change to another protocol.

mod h2;
mod limits;
mod raw;
mod refused;
mod routed;
mod websocket;

use crate::support::{Client, Upstream, Weir};

/// The example of RFC 6455, section 1.3.
pub const ASK: &str = "GET /chat HTTP/1.1\r\nhost: weir.test\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
pub const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                         sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The metric of upgraded connections.
pub const OPEN: &str = "weir_upgraded_connections";

/// A Weir that allows WebSocket for `upstream`.
pub fn start(upstream: &Upstream, server: &str, rest: &str) -> Weir {
    Weir::start_as(&Weir::upgrading(upstream, &["websocket"], server, rest))
}

/// An upstream that agrees, and sends all bytes back.
pub fn echoing() -> Upstream {
    Upstream::serving(|mut peer| {
        while let Some(received) = peer.head() {
            if received.header("upgrade").is_none() {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
                continue;
            }
            peer.send(AGREE);
            while let Some(bytes) = peer.read_some() {
                peer.send(bytes);
            }
        }
    })
}

/// A client after the 101.
pub fn upgraded(weir: &Weir) -> Client {
    let mut client = Client::connect(weir.address());
    assert_eq!(client.send(ASK).head().unwrap().status, 101);
    client
}

/// Sends bytes, and waits for their echo.
pub fn echo(client: &mut Client, bytes: &str) {
    assert_eq!(client.send(bytes).read(bytes.len()), bytes.as_bytes());
}
