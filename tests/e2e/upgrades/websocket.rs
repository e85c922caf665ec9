//! An ordinary WebSocket client and server.

use std::io::{Read, Write};
use std::net::TcpStream;

use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocket};
use tungstenite::{Bytes, Message, accept};

use super::{OPEN, start};
use crate::support::{Cert, Upstream, Weir, connect_tls, trusting};

/// Sends messages back until the client closes.
fn server() -> Upstream {
    Upstream::serving(|peer| {
        let mut socket = accept(peer.into_socket()).unwrap();
        while let Ok(message) = socket.read() {
            if message.is_text() || message.is_binary() {
                socket.send(message).unwrap();
            }
        }
    })
}

/// Exchanges messages, and closes.
fn talk<S: Read + Write>(mut socket: WebSocket<S>, weir: &Weir) {
    socket.send(Message::text("hello")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("hello"));
    assert_eq!(weir.metric(OPEN), 1.0);
    let large = Bytes::from(vec![42; 3 << 20]);
    socket.send(Message::Binary(large.clone())).unwrap();
    assert!(socket.read().unwrap() == Message::Binary(large));
    socket.send(Message::Ping(Bytes::from_static(b"there?"))).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
    let bye = CloseFrame { code: CloseCode::Normal, reason: "bye".into() };
    socket.close(Some(bye.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(bye)));
    assert!(matches!(socket.read(), Err(tungstenite::Error::ConnectionClosed)));
    drop(socket);
    weir.wait_for_metric(OPEN, |open| open == 0.0);
}

#[test]
fn websockets_work() {
    let upstream = server();
    let weir = start(&upstream, "", "[log]\nformat = \"json\"\naccess = \"all\"\nlevel = \"trace\"");
    let stream = TcpStream::connect(weir.address()).unwrap();
    let (socket, response) = tungstenite::client("ws://weir.test/chat", stream).unwrap();
    assert_eq!(response.headers()["x-ratelimit-limit"], "100");
    talk(socket, &weir);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_for_line("/chat")).unwrap();
    assert_eq!((&line["status"], &line["verdict"]), (&101.into(), &"forwarded".into()), "{line}");
    assert_eq!(weir.metric("weir_connections"), 0.0);
}

#[test]
fn websockets_work_over_tls() {
    let (upstream, cert, folder) = (server(), Cert::of_hosts(&["weir.test"]), tempfile::tempdir().unwrap());
    cert.write(folder.path(), "a");
    let tls = "[server.tls]\ncertificates = [{ cert = \"a.pem\", key = \"a.key\" }]";
    let config = Weir::upgrading(&upstream, &["websocket"], "", tls);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    let weir = Weir::start_in(folder);
    let config = trusting(&[&cert], &[&rustls::version::TLS13], &["http/1.1"], None);
    let stream = connect_tls(weir.address(), &config, "weir.test").unwrap().into_stream();
    let (socket, _) = tungstenite::client("wss://weir.test/chat", stream).unwrap();
    talk(socket, &weir);
}
