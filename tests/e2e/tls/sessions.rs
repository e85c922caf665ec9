//! TLS sessions: bytes over them, and their end.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use http::Request;
use http_body_util::{BodyExt, Empty};
use rustls::version::{TLS12, TLS13};

use super::{BOTH, HOST, Lab};
use crate::ops::until;
use crate::support::{NEVER, TlsClient, Upstream, connect_tls, over_h2_tls, trusting};
use crate::truncated_responses::{PIECE, ROUNDS, cutting};

const BIG: usize = 8 << 20;

/// Bytes without repetition.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// An upstream that responds with the body of the request.
fn mirror() -> Upstream {
    Upstream::answering(|request, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", request.body.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&request.body).is_ok()
    })
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let lab = Lab::with(mirror(), "", "", NEVER, &[]);
    let body = noise(BIG);
    for version in [&TLS12, &TLS13] {
        let config = trusting(&[&lab.cert], &[version], &[], None);
        let mut client = connect_tls(lab.weir.address(), &config, HOST).unwrap();
        for len in [BIG, 0, 1, 16_384, 16_385, 65_536, 65_537, BIG] {
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
            client.send(&body[..len]);
            assert!(client.answer().body == body[..len], "{len}");
        }
        let config = trusting(&[&lab.cert], &[version], &["h2"], None);
        over_h2_tls(lab.weir.address(), config, HOST, async |mut client, _| {
            for len in [BIG, 0, 1, 16_384, 65_537] {
                assert!(client.post("/", body[..len].to_vec()).await.unwrap().body == body[..len], "{len}");
            }
        });
    }
}

#[test]
fn a_response_waits_for_a_slow_client() {
    let lab = Lab::with(mirror(), "", "", NEVER, &[]);
    let body = noise(BIG);
    let mut client = lab.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n")).send(&body);
    // The sockets are full of the response before any of it is read.
    lab.weir.wait_for_metric("weir_requests_total{verdict=\"forwarded\"}", |count| count == 1.0);
    assert!(client.answer().body == body);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_small_response_is_one_record() {
    let lab = Lab::start(NEVER);
    let mut client = lab.client();
    assert_eq!(client.get("/").status, 200);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let socket = &mut client.stream().sock;
    let mut head = [0; 5];
    socket.read_exact(&mut head).unwrap();
    let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let mut record = vec![0; len];
    socket.read_exact(&mut record).unwrap();
    let mut come = &[&head[..], &record].concat()[..];
    client.stream().conn.read_tls(&mut come).unwrap();
    client.stream().conn.process_new_packets().unwrap();
    let mut answer = [0; 1000];
    let len = client.stream().conn.reader().read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..len]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
}

#[test]
fn new_keys_in_the_middle_of_a_session() {
    let lab = Lab::start(NEVER);
    let config = trusting(&[&lab.cert], &[&TLS13], &[], None);
    let mut client = connect_tls(lab.weir.address(), &config, HOST).unwrap();
    for _ in 0..5 {
        client.stream().conn.refresh_traffic_keys().unwrap();
        assert_eq!(client.get("/").text(), "hello");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::answering(|request, stream| {
        let target = request.target();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{target}", target.len());
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let lab = Lab::with(upstream, "", "", NEVER, &[]);
    let mut client = lab.client();
    let targets: Vec<_> = (0..500).map(|nth| format!("/{nth}")).collect();
    let requests: Vec<_> = targets.iter().map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(requests.concat());
    for target in &targets {
        assert_eq!(client.answer().text(), *target);
    }
}

const HOLD: &str = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"\non_limit = \"hold\"\n";

fn wait_for_held(lab: &Lab, count: f64) {
    lab.weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == count);
}

/// Holds a request whose client then leaves.
fn leaves_the_queue(lab: &Lab, leave: impl FnOnce(&mut TlsClient)) {
    let abandoned = "weir_requests_total{verdict=\"abandoned\"}";
    let before = lab.weir.metric(abandoned);
    let mut client = lab.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for_held(lab, 1.0);
    leave(&mut client);
    wait_for_held(lab, 0.0);
    lab.weir.wait_for_metric(abandoned, |count| count == before + 1.0);
}

/// Sends `close_notify`.
fn close_notify(client: &mut TlsClient) {
    client.stream().conn.send_close_notify();
    client.stream().flush().unwrap();
}

#[test]
fn a_client_that_leaves_frees_its_place_in_the_queue() {
    let lab = Lab::start(HOLD);
    assert_eq!(lab.client().get("/").status, 200);
    leaves_the_queue(&lab, close_notify);
    leaves_the_queue(&lab, |client| {
        close_notify(client);
        client.stream().sock.shutdown(Shutdown::Both).unwrap();
    });
    leaves_the_queue(&lab, |client| client.stream().sock.shutdown(Shutdown::Both).unwrap());
    leaves_the_queue(&lab, |client| client.stream().sock.shutdown(Shutdown::Write).unwrap());
    // Also after it has sent more.
    leaves_the_queue(&lab, |client| {
        client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
        client.stream().sock.shutdown(Shutdown::Write).unwrap();
    });
    leaves_the_queue(&lab, |client| {
        client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        close_notify(client);
    });
}

#[test]
fn an_h2_client_that_leaves_frees_its_place_in_the_queue() {
    let lab = Lab::start(HOLD);
    assert_eq!(lab.client().get("/").status, 200);
    let config = trusting(&[&lab.cert], BOTH, &["h2"], None);
    over_h2_tls(lab.weir.address(), config, HOST, async |mut client, socket| {
        tokio::spawn(async move { client.get("/").await.map(drop) });
        tokio::task::block_in_place(|| wait_for_held(&lab, 1.0));
        socket.shutdown(Shutdown::Both).unwrap();
    });
    wait_for_held(&lab, 0.0);
}

#[test]
fn a_client_that_leaves_ends_its_open_request() {
    let upstream = Upstream::answering(|_, stream| {
        let _ = stream.read(&mut [0]);
        false
    });
    let lab = Lab::with(upstream, "", "", NEVER, &[]);
    let mut client = lab.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    lab.upstream.wait_until(|upstream| upstream.received_count() == 1);
    close_notify(&mut client);
    lab.upstream.wait_until(|upstream| upstream.connections() == 0);
}

/// A record that is not sealed.
const FORGED: &[u8] = b"\x17\x03\x03\x00\x20nobody sealed these thirty-two by";

#[test]
fn a_forged_record_ends_a_session_wherever_it_is() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nhello");
        if request.target() == "/slow" {
            let _ = wait.lock().unwrap().recv();
        }
        stream.write_all(&vec![b'x'; 99_995]).is_ok()
    });
    let held = HOLD.replace("key = []", "key = []\nmatch = { path = \"/held\" }");
    let lab = Lab::with(upstream, "", "", &held, &[]);
    assert_eq!(lab.client().get("/held").status, 200);
    let forge = |request: &str| {
        let mut client = lab.client();
        assert_eq!(client.get("/").status, 200);
        client.send(request);
        match request.split(' ').nth(1) {
            Some("/held") => wait_for_held(&lab, 1.0),
            Some("/slow") => assert!(client.head().is_some()),
            _ => {}
        }
        client.stream().sock.write_all(FORGED).unwrap();
        let mut client = crate::support::Client::over(client.stream().sock.try_clone().unwrap());
        client.reader().read_to_end(&mut Vec::new()).unwrap_or_default();
    };
    for request in
        ["", "GET / HTTP/1.1\r\n", "GET /held HTTP/1.1\r\nHost: a\r\n\r\n", "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"]
    {
        forge(request);
    }
    forge("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    wait_for_held(&lab, 0.0);
    lab.weir.wait_for_metric("weir_connections", |value| value == 0.0);
    drop(go_on);
    assert_eq!(lab.weir.metric("weir_panics_total"), 0.0);
    assert_eq!(lab.weir.metric("weir_tls_handshakes_failed_total"), 0.0);
}

/// Reads to the end, which must be a `close_notify`.
fn ends(client: &mut TlsClient) -> Vec<u8> {
    let mut rest = Vec::new();
    client.reader().read_to_end(&mut rest).expect("close_notify");
    rest
}

#[test]
fn a_session_ends_with_close_notify() {
    let lab = Lab::with(Upstream::start(), "", "", &format!("[timeouts]\nkeep_alive = \"2s\"\n{NEVER}"), &[]);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut client = lab.client();
        client.send(request);
        client.answer();
        assert_eq!(ends(&mut client), b"", "{request:?}");
    }
}

#[test]
fn a_truncated_response_of_a_length_ends_without_close_notify() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
        let _ = wait.lock().unwrap().recv();
        false
    });
    let lab = Lab::with(upstream, "", "", NEVER, &[]);
    let mut client = lab.client();
    assert_eq!(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head().unwrap().status, 200);
    go_on.send(()).unwrap();
    let error = client.reader().read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_drain_finishes_open_requests() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        if request.target() == "/slow" {
            let _ = wait.lock().unwrap().recv();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok()
    });
    let lab = Lab::with(upstream, "", "", NEVER, &[]);
    let mut idle = lab.client();
    assert_eq!(idle.get("/").status, 200);
    let mut running = lab.client();
    running.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let config = trusting(&[&lab.cert], BOTH, &["h2"], None);
    over_h2_tls(lab.weir.address(), config, HOST, async |mut client, _| {
        let mut sender = client.clone();
        let slow = tokio::spawn(async move {
            let head = Request::get("http://weir.test/slow");
            sender.send(head, Empty::new()).await.unwrap().collect().await.unwrap().to_bytes()
        });
        tokio::task::block_in_place(|| {
            let both = |upstream: &Upstream| upstream.targets().iter().filter(|target| *target == "/slow").count() == 2;
            lab.upstream.wait_until(both);
            lab.weir.signal("TERM");
            lab.weir.wait_for_line("draining");
            assert_eq!(ends(&mut idle), b"");
            until("nothing new", || std::net::TcpStream::connect(lab.weir.address()).is_err());
        });
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        assert_eq!(slow.await.unwrap(), "hello");
        client.closed().await;
    });
    let answer = running.answer();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("hello", Some("close")));
    assert_eq!(ends(&mut running), b"");
    assert_eq!(lab.weir.wait(), Some(0));
}

/// Without `close_notify` the client can tell that the response is truncated, even if it has no length.
#[test]
fn a_truncated_response_ends_without_close_notify() {
    let lab = Lab::with(cutting(PIECE), "", "", NEVER, &[]);
    for version in ["1.1", "1.0"] {
        for round in 0..ROUNDS {
            let mut client = lab.client();
            client.send(format!("GET /now HTTP/{version}\r\nhost: a\r\n\r\n"));
            assert_eq!(client.head().unwrap().status, 200, "{round}");
            let mut rest = Vec::new();
            let ended = client.reader().read_to_end(&mut rest).map_err(|error| error.kind());
            assert_eq!((ended, &rest[..]), (Err(ErrorKind::UnexpectedEof), &b"abc"[..]), "{round}");
        }
    }
}
