//! Clients that ask for answers and take nothing of them.

use std::net::SocketAddr;

use http::Request;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::attacks::h2_frames::{CLEAN, DATA, END_STREAM, GOAWAY, H2, RST_STREAM, SETTINGS, frame};
use crate::ops::until;
use crate::support::{Client, NEVER, Received, Upstream, Weir};
use crate::upgrades::{AGREE, ASK};

const BOUND: f64 = 1_048_576.0;
const ENDED: &str = "weir_problems_total{kind=\"untaken_overflow\"}";
const HELD: &str = "weir_untaken_bytes";

/// Answers `/small` with 12 KiB, and everything else with more than fits anywhere.
fn service() -> Upstream {
    Upstream::serving(|mut peer| {
        while let Some(request) = peer.head() {
            let len = if Received::target(&request) == "/small" { 12 * 1024 } else { 1 << 40 };
            peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n"));
            let piece = vec![b'x'; 12 * 1024];
            while peer.send(&piece) && len > piece.len() {}
        }
    })
}

const SERVER: &str = "max_untaken_bytes = \"1MiB\"";

fn start(upstream: &Upstream) -> Weir {
    Weir::start_with(upstream, SERVER, NEVER)
}

/// Asks until memory was taken from clients that take nothing, and less than the bound is left.
fn good_ones_are_served(weir: &Weir) {
    let mut client = Client::connect(weir.address());
    until("those that take nothing are ended", || {
        let answer = client.get("/small");
        assert_eq!((answer.status, answer.body.len()), (200, 12 * 1024));
        weir.metric(ENDED) > 0.0 && weir.metric(HELD) <= BOUND
    });
}

const BIG: &str = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n";

/// A client that asks, and takes little at once.
fn narrow(address: SocketAddr, request: &str) -> Client {
    let mut client = Client::narrow(address);
    client.send(request);
    client
}

#[test]
fn memory_is_taken_from_http1_clients_that_take_nothing() {
    let upstream = service();
    let weir = start(&upstream);
    // How much each leaves in Weir depends on the kernel: so many leave more than the bound with a piece each.
    let shut: Vec<_> = (0..240).map(|_| narrow(weir.address(), BIG)).collect();
    weir.wait_for_metric(HELD, |held| held > BOUND / 2.0);
    good_ones_are_served(&weir);
    drop(shut);
    weir.wait_for_metric(HELD, |held| held == 0.0);
}

#[test]
fn all_memory_of_an_answer_that_waits_counts() {
    const CLIENTS: u32 = 40;
    /// Bytes that one of them leaves unsent at most: less than 64 KiB, and a read of 73 KiB.
    const UNSENT: f64 = 144.0 * 1024.0;
    let upstream = service();
    let weir = Weir::start(&upstream, NEVER);
    let shut: Vec<_> = (0..CLIENTS).map(|_| narrow(weir.address(), BIG)).collect();
    weir.wait_for_metric(HELD, |held| held > f64::from(CLIENTS) * UNSENT);
    drop(shut);
    weir.wait_for_metric(HELD, |held| held == 0.0);
}

#[test]
fn memory_is_taken_from_tunnels_whose_clients_take_nothing() {
    let upstream = Upstream::serving(|mut peer| {
        let _ = peer.head();
        peer.send(AGREE);
        let piece = vec![b'x'; 12 * 1024];
        while peer.send(&piece) {}
    });
    let weir = Weir::start_as(&Weir::upgrading(&upstream, &["websocket"], SERVER, NEVER));
    let shut: Vec<_> = (0..40).map(|_| narrow(weir.address(), ASK)).collect();
    weir.wait_for_metric(ENDED, |ended| ended > 0.0);
    drop(shut);
    weir.wait_for_metric(HELD, |held| held == 0.0);
}

/// Opens a connection with windows of no byte, and asks for so many answers.
async fn ask_shut(address: SocketAddr, streams: usize, path: &str) -> Vec<h2::client::ResponseFuture> {
    let socket = TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (mut send, connection) = builder.initial_window_size(0).handshake::<_, bytes::Bytes>(socket).await.unwrap();
    tokio::spawn(connection);
    let mut asked = Vec::new();
    for _ in 0..streams {
        send = send.ready().await.unwrap();
        let request = Request::get(format!("http://a{path}")).body(()).unwrap();
        asked.push(send.send_request(request, true).unwrap().0);
    }
    asked
}

#[test]
fn memory_is_taken_from_http2_clients_that_take_nothing() {
    for path in ["/small", "/big"] {
        let upstream = service();
        let weir = start(&upstream);
        let runtime = Runtime::new().unwrap();
        let shut: Vec<_> = (0..30).map(|_| runtime.block_on(ask_shut(weir.address(), 10, path))).collect();
        good_ones_are_served(&weir);
        drop(shut);
        runtime.shutdown_background();
        weir.wait_for_metric(HELD, |held| held == 0.0);
    }
}

/// Opens a window on a stream and on the connection, and reads the body of the stream. Counts the resets of others.
fn read_body(h2: &mut H2, stream: u32, resets: &mut usize) -> usize {
    let mut len = 0;
    for id in [0, stream] {
        h2.send(&frame(8, 0, id, &65_535_u32.to_be_bytes()));
    }
    loop {
        let frame = h2.next().expect("a frame");
        assert_ne!(frame.kind, GOAWAY);
        *resets += usize::from(frame.kind == RST_STREAM);
        if (frame.kind, frame.stream) == (DATA, stream) {
            len += frame.payload.len();
            if frame.flags & END_STREAM != 0 {
                return len;
            }
        }
    }
}

#[test]
fn a_stream_that_takes_nothing_ends_and_its_neighbours_go_on() {
    const SHUT: u32 = 110;
    let upstream = service();
    let weir = start(&upstream);
    let fields = |path: &'static [u8]| [&CLEAN[..], &[(&b":path"[..], path)]].concat();
    let mut h2 = H2::connect(weir.address());
    h2.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for turn in 0..SHUT {
        h2.get(2 * turn + 1, &fields(b"/big"));
    }
    until("the bound is exceeded", || weir.metric(HELD) > BOUND || weir.metric(ENDED) > 0.0);
    let (mut stream, mut resets) = (2 * SHUT + 1, 0);
    until("those that take nothing are ended", || {
        let len = read_body(h2.get(stream, &fields(b"/small")), stream, &mut resets);
        assert_eq!(len, 12 * 1024);
        stream += 2;
        resets > 0 && weir.metric(HELD) <= BOUND
    });
    assert!(resets < SHUT as usize, "{resets}");
    assert!(weir.metric(ENDED) >= resets as f64);
    drop(h2);
    weir.wait_for_metric(HELD, |held| held == 0.0);
}
