//! Truncated responses: every client gets the bytes that arrived, and can tell that they are not all.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use http::Request;
use http_body_util::{BodyExt, Empty};
use socket2::SockRef;

use crate::support::{Client, NEVER, Upstream, Weir, over_h2};

/// A head and the first bytes of a body of 1001 bytes, in one write.
pub const PIECE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\nabc";
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
const BROKEN_CHUNK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nXX\r\n";

/// Requests of each client. The bytes and the end may reach Weir in one or several reads.
pub const ROUNDS: usize = 100;

/// Sends `piece` and closes: at once, after a half-close, by a reset, or before it reads the body of the request.
pub fn cutting(piece: &'static str) -> Upstream {
    Upstream::serving(move |mut peer| {
        let Some(request) = peer.head() else { return };
        peer.send(piece);
        match request.target() {
            "/half" => {
                peer.finish();
                peer.rest();
            }
            "/reset" => {
                let socket = peer.into_socket();
                // The bytes have arrived once all are acknowledged. Loopback does that at once.
                SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            }
            _ => {}
        }
    })
}

/// Returns the bytes up to the end of the stream, and whether it was a reset.
fn drain(stream: &mut impl Read) -> (Vec<u8>, bool) {
    let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut some) {
            Ok(0) => return (bytes, false),
            Ok(len) => bytes.extend_from_slice(&some[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (bytes, true),
            Err(error) => panic!("{error} after {bytes:?}"),
        }
    }
}

/// Each way to close, with a GET and with a POST whose body the upstream does not read.
fn requests(version: &str) -> Vec<String> {
    let heads = ["/now", "/half", "/reset"].map(|path| {
        let get = format!("GET {path} HTTP/{version}\r\nhost: a\r\n\r\n");
        let post = format!("POST {path} HTTP/{version}\r\nhost: a\r\ncontent-length: 3000\r\n\r\n{:3000}", "");
        [get, post]
    });
    heads.into_iter().flatten().collect()
}

#[test]
fn http_1_clients_get_all_bytes_and_a_truncation() {
    for (piece, version, end) in [
        (HEAD, "1.1", "\r\n\r\n"),
        (PIECE, "1.1", "\r\n\r\nabc"),
        (PIECE, "1.0", "\r\n\r\nabc"),
        (CHUNKED, "1.1", "\r\n\r\n3\r\nabc\r\n"),
        (BROKEN_CHUNK, "1.1", "\r\n\r\n3\r\nabc\r\n"),
        (CHUNKED, "1.0", "\r\n\r\nabc"),
    ] {
        let upstream = cutting(piece);
        let weir = Weir::start(&upstream, NEVER);
        for request in requests(version) {
            for round in 0..ROUNDS / 8 {
                let mut stream = TcpStream::connect(weir.address()).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                let (bytes, is_reset) = drain(&mut stream);
                let text = String::from_utf8_lossy(&bytes);
                // A reset of the upstream may destroy bytes in flight.
                let is_answered = request.contains("/reset") || request.starts_with("POST");
                if is_answered && text.starts_with("HTTP/1.1 502") {
                    continue;
                }
                let context = format!("{piece:?} {version} {round} {}: {text}", &request[..12]);
                assert!(text.starts_with("HTTP/1.1 200"), "{context}");
                assert!(text.ends_with(end) || (is_answered && text.ends_with("\r\n\r\n")), "{context}");
                // Without a length and without chunks, only a reset shows the truncation.
                assert_eq!(is_reset, piece == CHUNKED && version == "1.0", "{context}");
            }
        }
        assert!(weir.metric("weir_problems_total{kind=\"broken_answer\"}") > 0.0, "{piece:?} {version}");
    }
}

#[test]
fn http_2_clients_get_all_bytes_and_a_stream_error() {
    for piece in [HEAD, PIECE, CHUNKED, BROKEN_CHUNK] {
        let upstream = cutting(piece);
        let weir = Weir::start(&upstream, NEVER);
        for round in 0..ROUNDS / 20 {
            over_h2(weir.address(), async |mut client, _| {
                for path in ["/now", "/half"].repeat(5) {
                    let asked =
                        [client.send(get(path), Empty::new()).await, client.send(get(path), Empty::new()).await];
                    for response in asked {
                        let mut body = response.unwrap().into_body();
                        let mut data = Vec::new();
                        let error = loop {
                            match body.frame().await.unwrap() {
                                Ok(frame) => data.extend_from_slice(frame.data_ref().unwrap()),
                                Err(error) => break error,
                            }
                        };
                        let reset = error.source().and_then(|error| error.downcast_ref::<h2::Error>());
                        let reason = reset.and_then(h2::Error::reason);
                        assert_eq!(reason, Some(h2::Reason::INTERNAL_ERROR), "{piece:?} {round}");
                        let body = if piece == HEAD { "" } else { "abc" };
                        assert_eq!(data, body.as_bytes(), "{piece:?} {round}");
                    }
                }
            });
        }
    }
}

fn get(path: &str) -> http::request::Builder {
    Request::get(format!("http://a{path}"))
}

/// A slow client gets all bytes, too. They are far more than the buffers of Weir.
#[test]
fn a_long_response_is_delivered_up_to_the_cut() {
    const LEN: usize = 2_000_000;
    let upstream = Upstream::answering(|_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", LEN + 1);
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; LEN]));
        false
    });
    let weir = Weir::start(&upstream, NEVER);
    for _ in 0..10 {
        let mut client = Client::connect(weir.address());
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        assert_eq!(client.rest().len(), LEN);
    }
    over_h2(weir.address(), async |mut client, _| {
        for _ in 0..10 {
            let mut body = client.send(get("/"), Empty::new()).await.unwrap().into_body();
            let mut len = 0;
            while let Some(Ok(frame)) = body.frame().await {
                len += frame.into_data().map_or(0, |data| data.len());
            }
            assert_eq!(len, LEN);
        }
    });
}
