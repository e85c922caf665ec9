//! HTTP/2 streams that become tunnels (RFC 8441).

use http::{Method, Request};
use http_body_util::Empty;
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tungstenite::handshake::derive_accept_key;

use super::{AGREE, OPEN, start};
use crate::attacks::h2_frames::{ACK, DATA, END_STREAM, Fate, GOAWAY, H2, RST_STREAM, SETTINGS};
use crate::attacks::lab::Lab;
use crate::support::{Received, Upstream, Weir, over_h2};

pub const CONNECT: [(&[u8], &[u8]); 6] = [
    (b":method", b"CONNECT"),
    (b":protocol", b"websocket"),
    (b":scheme", b"http"),
    (b":authority", b"weir.test"),
    (b":path", b"/chat"),
    (b"sec-websocket-version", b"13"),
];

/// The 101 to a request.
fn agreement(received: &Received) -> String {
    let accept = derive_accept_key(received.header("sec-websocket-key").unwrap_or_default().as_bytes());
    AGREE.replace("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", &accept)
}

/// An upstream that agrees and sends all bytes back, and its last word at the end.
pub fn echoing() -> Upstream {
    Upstream::serving(|mut peer| {
        while let Some(received) = peer.head() {
            if received.header("upgrade").is_none() {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
                continue;
            }
            peer.send(agreement(&received));
            while let Some(bytes) = peer.read_some() {
                peer.send(bytes);
            }
            peer.send("over");
        }
    })
}

/// A connection whose first stream is a tunnel.
pub fn tunnel(weir: &Weir) -> H2 {
    let mut h2 = H2::connect(weir.address());
    assert_eq!(h2.head(1, &CONNECT).fate(1), Fate::Status(200));
    h2
}

/// Reads `len` bytes of a stream. Returns whether it ended there.
pub fn read(h2: &mut H2, stream: u32, len: usize) -> (Vec<u8>, bool) {
    let (mut bytes, mut has_ended) = (Vec::new(), false);
    while bytes.len() < len || (len == 0 && !has_ended) {
        let frame = h2.next().expect("a frame");
        if frame.kind == DATA && frame.stream == stream {
            has_ended |= frame.flags & END_STREAM != 0;
            bytes.extend_from_slice(&frame.payload);
        }
        let is_reset = frame.kind == RST_STREAM && frame.stream == stream;
        assert!(!is_reset && frame.kind != GOAWAY, "{frame:?}");
    }
    (bytes, has_ended)
}

/// Whether the first SETTINGS allow an extended CONNECT.
pub fn takes_connect(weir: &Weir) -> bool {
    let frame = H2::connect(weir.address()).next().unwrap();
    assert_eq!((frame.kind, frame.flags & ACK), (SETTINGS, 0));
    frame.payload.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1])
}

#[test]
fn a_websocket_works_over_a_stream() {
    let upstream = Upstream::serving(|peer| {
        let mut socket = tungstenite::accept(peer.into_socket()).unwrap();
        while let Ok(message) = socket.read() {
            let _ = socket.send(message);
        }
    });
    let weir = start(&upstream, "", "");
    assert!(takes_connect(&weir));
    let mut h2 = tunnel(&weir);
    assert_eq!(weir.metric(OPEN), 1.0);
    // The examples of RFC 6455, section 5.7.
    h2.data(1, &[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58], 0);
    assert_eq!(read(&mut h2, 1, 7), (b"\x81\x05Hello".to_vec(), false));
}

#[test]
fn many_bytes_flow_in_both_directions_beside_other_streams() {
    const LEN: usize = 4 << 20;
    let upstream = echoing();
    let weir = start(&upstream, "", "[[limit]]\nname = \"l\"\nkey = [\"method\"]\nrate = \"100/h\"\n");
    over_h2(weir.address(), async |mut client, _| {
        assert_eq!(client.get("/").await.unwrap().status, 200);
        let head = Request::builder()
            .method(Method::CONNECT)
            .uri("http://weir.test/chat?a=b")
            .extension(Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "of no use here");
        let response = client.send(head, Empty::new()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("sec-websocket-accept"));
        // Limits and the upstream see a GET.
        assert_eq!(response.headers()["x-ratelimit-remaining"], "98");
        let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        sending.await.unwrap();
        assert!(got.strip_suffix(b"over").unwrap() == expected);
        assert_eq!(client.get("/").await.unwrap().header("x-ratelimit-remaining"), Some("97"));
    });
    let got = upstream.received().into_iter().find(|got| got.target() == "/chat?a=b").unwrap();
    assert!(got.head.starts_with("GET /chat?a=b HTTP/1.1\r\n"), "{}", got.head);
    let header = |name| got.header(name).unwrap_or_default();
    assert_eq!([header("connection"), header("upgrade"), header("host")], ["upgrade", "websocket", "weir.test"]);
    assert_eq!(header("sec-websocket-key").len(), 24, "{}", got.head);
    weir.wait_for_metric(OPEN, |open| open == 0.0);
}

#[test]
fn each_side_may_end_first() {
    let upstream = Upstream::serving(|mut peer| {
        let received = peer.head().unwrap();
        peer.send(format!("{}bye", agreement(&received)));
        peer.finish();
        assert_eq!(peer.rest(), b"last words");
    });
    let weir = start(&upstream, "", "");
    let mut h2 = tunnel(&weir);
    let (said, has_ended) = read(&mut h2, 1, 3);
    assert_eq!(said, b"bye");
    assert!(has_ended || read(&mut h2, 1, 0) == (Vec::new(), true));
    h2.data(1, b"last words", END_STREAM);
    weir.wait_for_metric(OPEN, |open| open == 0.0);

    let upstream = echoing();
    let weir = start(&upstream, "", "");
    let mut h2 = tunnel(&weir);
    h2.data(1, b"abc", END_STREAM);
    assert_eq!(read(&mut h2, 1, 7).0, b"abcover");
    weir.wait_for_metric(OPEN, |open| open == 0.0);
    // The request itself ends its side.
    let mut at_once = H2::connect(weir.address());
    assert_eq!(at_once.get(1, &CONNECT).fate(1), Fate::Status(200));
    assert_eq!(read(&mut at_once, 1, 4).0, b"over");
    assert_eq!(h2.get(3, &[(b":method", b"GET"), CONNECT[2], CONNECT[3], CONNECT[4]]).fate(3), Fate::Status(200));
}

#[test]
fn a_broken_side_ends_the_other() {
    let upstream = echoing();
    let weir = start(&upstream, "", "");
    let mut h2 = tunnel(&weir);
    h2.data(1, b"a", 0);
    assert_eq!(read(&mut h2, 1, 1).0, b"a");
    h2.send(&crate::attacks::h2_frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    weir.wait_for_metric(OPEN, |open| open == 0.0);
    upstream.wait_until(|upstream| upstream.connections() == 0);

    drop(tunnel(&weir));
    weir.wait_for_metric(OPEN, |open| open == 0.0);
    upstream.wait_until(|upstream| upstream.connections() == 0);

    let mut h2 = tunnel(&weir);
    upstream.stop();
    assert_eq!(read(&mut h2, 1, 0), (Vec::new(), true));
}

#[test]
fn silence_ends_a_tunnel() {
    let upstream = echoing();
    let weir = start(&upstream, "", "[timeouts]\nupgraded_idle = \"4s\"\nkeep_alive = \"2s\"\n");
    let mut h2 = tunnel(&weir);
    h2.data(1, b"a", 0);
    assert_eq!(read(&mut h2, 1, 1).0, b"a");
    // No request is open then, so the connection ends, too.
    while h2.next().is_some() {}
    upstream.wait_until(|upstream| upstream.connections() == 0);
    weir.wait_for_metric(OPEN, |open| open == 0.0);
}

#[test]
fn a_tunnel_is_in_flight_until_it_closes() {
    let upstream = echoing();
    let weir = start(&upstream, "", "[[limit]]\nname = \"l\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 1\n");
    let mut h2 = tunnel(&weir);
    assert_eq!(h2.head(3, &CONNECT).fate(3), Fate::Status(429));
    h2.data(1, b"", END_STREAM);
    assert_eq!(read(&mut h2, 1, 4).0, b"over");
    weir.wait_for_metric(OPEN, |open| open == 0.0);
    assert_eq!(h2.head(5, &CONNECT).fate(5), Fate::Status(200));
}

#[test]
fn a_tunnel_lives_until_the_end_of_the_grace_period() {
    let upstream = echoing();
    let weir = start(&upstream, "shutdown_grace = \"10min\"", "[log]\naccess = \"all\"\nformat = \"json\"\n");
    let mut h2 = tunnel(&weir);
    weir.signal("TERM");
    while h2.next().expect("a frame").kind != GOAWAY {}
    h2.data(1, b"still here", 0);
    let mut said = Vec::new();
    while said != b"still here" {
        let frame = h2.next().expect("a frame");
        if frame.kind == DATA {
            said.extend(frame.payload);
        }
    }
    weir.signal("TERM");
    weir.wait_for_line("\"bytes_in\":10,\"bytes_out\":10");
    assert_eq!(weir.wait(), Some(0));
    drop(h2);
}

/// Any 2xx would tell the client that there is a tunnel.
#[test]
fn invalid_agreements_make_no_tunnel() {
    let rows = [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", 403),
        ("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n", 426),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 502),
        ("HTTP/1.1 204 No Content\r\n\r\n", 502),
        (AGREE, 502), // the answer to another key
    ];
    let upstream = Upstream::saying_each(rows.map(|(answer, _)| answer.to_owned()).into());
    let weir = start(&upstream, "", "");
    for (index, (answer, expected)) in rows.into_iter().enumerate() {
        let (target, next, before) = (format!("/{index}"), format!("/{index}/next"), upstream.received_count());
        let mut connect: [(&[u8], &[u8]); 6] = CONNECT;
        connect[4].1 = target.as_bytes();
        let mut h2 = H2::connect(weir.address());
        h2.head(1, &connect).data(1, b"GET /smuggled HTTP/1.1\r\n\r\n", 0);
        assert_eq!(h2.fate(1), Fate::Status(expected), "{answer}");
        assert_eq!((&upstream.targets()[before..], weir.metric(OPEN)), (&[target.clone()][..], 0.0), "{answer}");
        let get = [(&b":method"[..], &b"GET"[..]), CONNECT[2], CONNECT[3], (b":path", next.as_bytes())];
        assert!(matches!(h2.get(3, &get).fate(3), Fate::Status(_)), "{answer}");
        assert_eq!(upstream.targets()[before..], [&*target, &*next], "{answer}");
    }
}

#[test]
fn forbidden_connects_are_refused() {
    let plain = Lab::start("", "");
    assert!(!takes_connect(&plain.weir));
    let refused = [Fate::Reset, Fate::Gone, Fate::Status(400), Fate::Status(405)];
    let fate = |weir: &Weir, fields: &[(&[u8], &[u8])]| H2::connect(weir.address()).head(1, fields).fate(1);
    assert!(refused.contains(&fate(&plain.weir, &CONNECT)));

    let upstream = Upstream::start();
    let weir = start(&upstream, "", "");
    let other = |protocol: &'static [u8]| {
        let mut fields = CONNECT;
        fields[1].1 = protocol;
        fields
    };
    for protocol in [&b"x"[..], b"WebSocket", b"connect-udp", b"h2c", b""] {
        assert!(refused.contains(&fate(&weir, &other(protocol))), "{protocol:?}");
    }
    for method in [&b"GET"[..], b"POST"] {
        let mut fields = CONNECT;
        fields[0].1 = method;
        assert!(refused.contains(&fate(&weir, &fields)), "{method:?}");
    }
    // A tunnel to a host, and to none.
    for without in [&[1, 2, 4, 5][..], &[1], &[4], &[2], &[3]] {
        let fields: Vec<_> =
            CONNECT.iter().enumerate().filter(|(at, _)| !without.contains(at)).map(|(_, field)| *field).collect();
        assert!(refused.contains(&fate(&weir, &fields)), "{without:?}");
    }
    let mut with_length = CONNECT.to_vec();
    with_length.push((b"content-length", b"5"));
    assert!(refused.contains(&fate(&weir, &with_length)));
    assert!(upstream.received().is_empty() && plain.upstream.received().is_empty());
    assert_eq!(weir.metric("weir_panics_total"), 0.0);
}
