//! Clients that send more requests than their part of the connections to the service.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use http::{Request, Response};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

use crate::ops::until;
use crate::routes::upstream;
use crate::support::{Client, NEVER, Upstream, Weir, echo};

/// File descriptors of Weir, which reserves 104 and divides the rest between clients and the service.
const DESCRIPTORS: usize = 512;
const TO_SERVICE: usize = (DESCRIPTORS - 104) / 2;
const CONNECTIONS: usize = 80;

/// Starts Weir with so many file descriptors.
fn start(descriptors: usize, config: &str) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, config).unwrap();
    let script = format!("ulimit -n {descriptors}; exec \"$0\" run --config \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).arg(&file).stdin(Stdio::null());
    Weir::of_command(command, folder)
}

/// The number of answers by status.
#[derive(Default)]
struct AnswerCounts {
    ok: AtomicUsize,
    too_many: AtomicUsize,
    late: AtomicUsize,
}

impl AnswerCounts {
    fn count(&self, response: &Response<h2::RecvStream>) {
        let counted = match response.status().as_u16() {
            200 => &self.ok,
            429 => &self.too_many,
            503 => &self.late,
            other => panic!("{other}"),
        };
        if !std::ptr::eq(counted, &raw const self.ok) {
            assert_eq!(response.headers()["retry-after"], "1");
        }
        counted.fetch_add(1, Ordering::SeqCst);
    }
}

/// Opens an HTTP/2 connection from `ip` and sends a request on each of so many streams.
async fn ask_greedily(streams: usize, ip: Ipv4Addr, address: SocketAddr, counts: Arc<AnswerCounts>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((ip, 0).into()).unwrap();
    let (mut send, connection) = h2::client::handshake(socket.connect(address).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..streams {
        send = send.ready().await.unwrap();
        let (response, _) = send.send_request(Request::get("http://a/slow").body(()).unwrap(), true).unwrap();
        let counts = Arc::clone(&counts);
        tokio::spawn(async move { counts.count(&response.await.unwrap()) });
    }
}

fn good(address: SocketAddr) -> Client {
    Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), address)
}

/// Greedy clients at so many addresses use all connections that they can get; another client is served.
fn others_are_served(addresses: usize) {
    const STREAMS: usize = 16;
    let (upstream, may_end) = Upstream::slow();
    let weir = start(DESCRIPTORS, &Weir::config(&upstream, "max_requests_per_ip = 800", NEVER));
    let (runtime, counts) = (Runtime::new().unwrap(), Arc::<AnswerCounts>::default());
    let ip = |connection| Ipv4Addr::new(127, 0, 1, u8::try_from(connection % addresses).unwrap());
    let ask = |connection| runtime.spawn(ask_greedily(STREAMS, ip(connection), weir.address(), Arc::clone(&counts)));
    let asking: Vec<_> = (0..CONNECTIONS).map(ask).collect();
    for asked in asking {
        runtime.block_on(asked).unwrap();
    }
    until("greedy clients use many connections", || upstream.connections() >= TO_SERVICE / 3);
    for turn in 0..20 {
        assert_eq!(good(weir.address()).get("/").status, 200, "{turn}");
    }
    assert!(upstream.connections() <= TO_SERVICE, "{}", upstream.connections());
    drop(may_end);
    let AnswerCounts { ok, too_many, late } = &*counts;
    let sum = || [ok, too_many, late].iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>();
    while sum() < CONNECTIONS * STREAMS {
        let before = sum();
        until("one more has an answer", || sum() > before);
    }
    assert!(ok.load(Ordering::SeqCst) >= TO_SERVICE / 3);
    let refused = weir.metric("weir_problems_total{kind=\"client_busy\"}");
    assert_eq!(refused, too_many.load(Ordering::SeqCst) as f64);
    if addresses == 1 {
        assert!(refused > 0.0, "more than `max_requests_per_ip` at once");
    }
    runtime.shutdown_background();
}

#[test]
fn one_greedy_client_leaves_connections_to_others() {
    others_are_served(1);
}

#[test]
fn many_greedy_clients_leave_connections_to_others() {
    others_are_served(20);
}

#[test]
fn requests_of_a_client_are_counted_whatever_they_wait_for() {
    let (upstream, may_end) = Upstream::slow();
    let weir = Weir::start_with(&upstream, "max_requests_per_ip = 3", NEVER);
    let mut asking: Vec<_> = (0..3).map(|_| Client::connect(weir.address())).collect();
    for client in &mut asking {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    upstream.wait_until(|upstream| upstream.received_count() == 3);
    let mut fourth = Client::connect(weir.address());
    let refused = fourth.get("/");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text());
    weir.wait_for_metric("weir_refused_requests_total{by=\"other\"}", |refused| refused == 1.0);
    assert_eq!(good(weir.address()).get("/").status, 200, "another client");
    drop(may_end);
    assert!(asking.iter_mut().all(|client| client.answer().status == 200));
    assert_eq!(fourth.get("/").status, 200, "the connection stays, and there is room again");
}

#[test]
fn own_requests_of_a_trusted_proxy_are_not_counted() {
    let (upstream, may_end) = Upstream::slow();
    let weir = Weir::start_with(&upstream, "max_requests_per_ip = 1\ntrusted_proxies = [\"127.0.0.1\"]", NEVER);
    let mut first = Client::connect(weir.address());
    first.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_until(|upstream| upstream.received_count() == 1);
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    drop(may_end);
    assert_eq!(first.answer().status, 200);
}

#[test]
fn requests_through_a_trusted_proxy_count_to_the_client_that_it_names() {
    let (upstream, may_end) = Upstream::slow();
    let weir = Weir::start_with(&upstream, "max_requests_per_ip = 1\ntrusted_proxies = [\"127.0.0.1\"]", NEVER);
    let mut first = ask(&weir, "/slow", "x-forwarded-for: 2001:db8::1\r\n");
    upstream.wait_until(|upstream| upstream.received_count() == 1);
    assert_eq!(ask(&weir, "/", "x-forwarded-for: 2001:db8::2\r\n").answer().status, 429, "the same network");
    assert_eq!(ask(&weir, "/", "x-forwarded-for: 192.0.2.1\r\n").answer().status, 200, "another client");
    drop(may_end);
    assert_eq!(first.answer().status, 200);
    assert_eq!(ask(&weir, "/", "x-forwarded-for: 2001:db8::2\r\n").answer().status, 200);
}

/// Sends a GET with these field lines on a new connection.
fn ask(weir: &Weir, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client
}

/// The requests of a greedy client.
const GREEDY: usize = 20;

/// An upstream with few connections and few places in its queue. `greedy` sends a number of requests of one client, which
/// gets the three connections and the eight places of its allowance, and no answer; its other requests get 503.
fn a_small_upstream_serves_others(
    server: &str,
    mut greedy: impl FnMut(&Weir, usize),
    good: impl Fn(&Weir) -> Client,
) -> (Upstream, Weir) {
    let (slow, may_end) = Upstream::slow();
    let text = Weir::text(&format!(
        "{}{NEVER}",
        upstream("a", &[&slow], "max_connections = 4\nmax_queued = 10\nqueue_timeout = \"1h\"")
    ));
    let weir = Weir::start_as(&text.replace("[server]", &format!("[server]\n{server}")));
    greedy(&weir, 3);
    // Until all three have their connections, one of them may be in the queue and take a place of the others.
    slow.wait_until(|slow| slow.received_count() == 3);
    greedy(&weir, GREEDY - 3);
    weir.wait_for_metric("weir_upstream_queued{upstream=\"a\"}", |queued| queued == 8.0);
    for turn in 0..20 {
        assert_eq!(good(&weir).answer().status, 200, "{turn}");
    }
    let is_slow = |target: &&String| *target == "/slow";
    assert_eq!(slow.targets().iter().filter(is_slow).count(), 3, "the greedy requests have not ended");
    drop(may_end);
    slow.wait_until(|slow| slow.targets().iter().filter(is_slow).count() == 11);
    (slow, weir)
}

/// From another address than the greedy client.
fn good_over_h1(weir: &Weir) -> Client {
    let mut client = good(weir.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client
}

#[test]
fn a_client_with_many_connections_leaves_a_small_upstream_to_others() {
    let mut asking = Vec::new();
    let greedy = |weir: &Weir, count| asking.extend((0..count).map(|_| ask(weir, "/slow", "")));
    let _running = a_small_upstream_serves_others("", greedy, good_over_h1);
    let statuses: Vec<_> = asking.iter_mut().map(|client| client.answer().status).collect();
    assert_eq!([200, 503].map(|status| statuses.iter().filter(|is| **is == status).count()), [11, 9]);
}

#[test]
fn a_client_with_many_streams_leaves_a_small_upstream_to_others() {
    let (runtime, counts) = (Runtime::new().unwrap(), Arc::<AnswerCounts>::default());
    let greedy = |weir: &Weir, streams| {
        runtime.block_on(ask_greedily(streams, Ipv4Addr::LOCALHOST, weir.address(), Arc::clone(&counts)));
    };
    let _running = a_small_upstream_serves_others("", greedy, good_over_h1);
    let AnswerCounts { ok, late, .. } = &*counts;
    until("all have an answer", || [ok, late].map(|count| count.load(Ordering::SeqCst)) == [11, GREEDY - 11]);
    runtime.shutdown_background();
}

#[test]
fn a_client_behind_a_trusted_proxy_leaves_a_small_upstream_to_others() {
    let mut asking = Vec::new();
    let greedy = |weir: &Weir, count| {
        asking.extend((0..count).map(|_| ask(weir, "/slow", "x-forwarded-for: 192.0.2.1\r\n")));
    };
    let good = |weir: &Weir| ask(weir, "/", "x-forwarded-for: 192.0.2.2\r\n");
    let _running = a_small_upstream_serves_others("trusted_proxies = [\"127.0.0.1\"]", greedy, good);
    let statuses: Vec<_> = asking.iter_mut().map(|client| client.answer().status).collect();
    assert_eq!([200, 503].map(|status| statuses.iter().filter(|is| **is == status).count()), [11, 9]);
}

/// A service has idle connections when another service needs more than remain.
#[test]
fn idle_connections_to_one_service_make_room_for_another() {
    const AT_ONCE: usize = 6;
    let service = || {
        let together = Barrier::new(AT_ONCE);
        Upstream::answering(move |request, stream| {
            together.wait();
            echo(request, stream)
        })
    };
    let (a, b) = (service(), service());
    let routes = "[[route]]\nmatch = { path = \"/b\" }\nupstream = \"b\"\n[[route]]\nupstream = \"a\"\n";
    let services = [("a", &a), ("b", &b)].map(|(name, service)| {
        // Shorter than the time between two sweeps of idle connections.
        format!("[upstreams.{name}]\nendpoints = [\"http://{}\"]\nqueue_timeout = \"900ms\"\n", service.address())
    });
    // 64 descriptors allow eight connections of clients and eight to services.
    let text = Weir::text(&format!("{}{routes}{NEVER}", services.concat()));
    let weir = start(64, &text.replace("[server]", "[server]\ntrusted_proxies = [\"127.0.0.1\"]"));
    let mut clients: Vec<_> = (0..AT_ONCE).map(|_| Client::connect(weir.address())).collect();
    for path in ["/", "/b", "/", "/b"] {
        for client in &mut clients {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        for client in &mut clients {
            assert_eq!(client.answer().status, 200, "{path}");
        }
    }
}
