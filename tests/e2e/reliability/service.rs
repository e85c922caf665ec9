//! A service that answers at once and records nothing, so that it can be asked for as long as anybody likes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::support::Upstream;

/// One on a port of its own.
pub fn quick() -> Upstream {
    Upstream::serving(|peer| serve(peer.into_socket()))
}

/// One where another was stopped.
pub fn quick_at(address: SocketAddr) -> Upstream {
    let listener = crate::support::poll(|| TcpListener::bind(address).ok());
    Upstream::serving_on(listener, |peer| serve(peer.into_socket()))
}

fn serve(stream: TcpStream) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    let (mut line, mut upgrades, mut length) = (String::new(), false, 0);
    loop {
        line.clear();
        if !matches!(reader.read_line(&mut line), Ok(1..)) {
            return;
        }
        let line = line.to_ascii_lowercase();
        upgrades |= line.starts_with("upgrade:");
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line != "\r\n" {
            continue;
        }
        if upgrades {
            return echo(reader, writer);
        }
        let mut body = vec![0; std::mem::take(&mut length)];
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        if reader.read_exact(&mut body).is_err() || writer.write_all(answer).is_err() {
            return;
        }
    }
}

/// Agrees to another protocol, and says again what it is told.
fn echo(mut reader: BufReader<TcpStream>, mut writer: TcpStream) {
    let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    if writer.write_all(agreed).is_ok() {
        let _ = std::io::copy(&mut reader, &mut writer);
    }
}
