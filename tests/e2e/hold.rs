//! Requests that wait: exactly as long as they must, in order, and for nobody who has left.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::Request;
use http_body_util::{Empty, Full};
use socket2::SockRef;

use crate::ops::refill;
use crate::support::{Answer, Client, Upstream, Weir, over_h2, pour, wait_until_stalled};

/// One unit an hour: a request waits until the test gives the unit back.
const HOUR: &str = "h";

/// One budget for everyone, one request at a time.
fn one_per(interval: &str, hold: &str) -> String {
    format!("[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/{interval}\"\non_limit = \"hold\"\nhold = {{ {hold} }}\n")
}

fn wait_for_held(weir: &Weir, count: f64) {
    weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == count);
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\n\r\n")
}

/// A request on a connection of its own.
fn ask(weir: &Weir, path: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(request(path));
    client
}

fn retry_after(answer: &Answer) -> (u16, Option<u64>) {
    (answer.status, answer.header("retry-after").map(|value| value.parse().unwrap()))
}

/// Checks that an answer of this Date did not begin before `at`. Both clocks show whole seconds.
#[track_caller]
pub fn check_date(date: Option<&str>, at: SystemTime) {
    let date = httpdate::parse_http_date(date.unwrap()).unwrap();
    assert!(date + Duration::from_secs(2) > at, "{date:?} is before {at:?}");
}

/// Its answer has the Date of then, not of the request.
#[test]
fn a_held_request_passes_when_it_is_due() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &one_per("3s", ""));
    let mut client = Client::connect(weir.address());
    let (earliest, since, address) = (Instant::now(), SystemTime::now(), weir.address());
    let due = |turn| Duration::from_secs(3) * turn;
    // Weir has each request before a unit is back for it, also if it pauses for a second or two.
    client.send(request("/").repeat(2));
    wait_for_held(&weir, 1.0);
    let last = thread::spawn(move || over_h2(address, async |mut client, _| client.get("/").await.unwrap()));
    for turn in 0..=1 {
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        assert!(earliest.elapsed() >= due(turn), "{turn}: too early, {:?}", earliest.elapsed());
        check_date(answer.header("date"), since + due(turn));
    }
    let last = last.join().unwrap();
    assert!(last.status == 200 && earliest.elapsed() >= due(2), "too early, {:?}", earliest.elapsed());
    check_date(last.header("date"), since + due(2));
    assert_eq!(weir.metric("weir_requests_total{verdict=\"held\"}"), 2.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"held\",limit=\"l\"}"), 2.0);
    assert_eq!(weir.metric("weir_hold_duration_seconds_count{limit=\"l\"}"), 2.0);
}

#[test]
fn the_line_is_served_in_order_of_arrival() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &one_per(HOUR, ""));
    Client::connect(weir.address()).get("/0");
    let mut clients = Vec::new();
    for turn in 1..=4 {
        clients.push(ask(&weir, &format!("/{turn}")));
        wait_for_held(&weir, f64::from(turn));
    }
    for client in &mut clients {
        refill(&weir, "l");
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(upstream.targets(), ["/0", "/1", "/2", "/3", "/4"]);
}

#[test]
fn requests_that_come_at_once_pass_at_the_rate() {
    const COUNT: u32 = 54;
    // Weir cannot keep a rate while other programs have the processor: one of several tries is enough.
    const TRIES: usize = 100;
    for algorithm in ["algorithm = \"leaky_bucket\"", "burst = 1"] {
        let upstream = Upstream::start();
        let limit = one_per("1ms", "max_wait = \"200ms\"").replace("1/1ms", "300/s");
        let weir = Weir::start(&upstream, &format!("{limit}{algorithm}\n"));
        let mut clients: Vec<_> = (0..COUNT).map(|_| Client::connect(weir.address())).collect();
        let mut all_pass = || {
            let began = Instant::now();
            for client in &mut clients {
                client.send(request("/"));
            }
            let statuses: Vec<_> = clients.iter_mut().map(|client| client.answer().status).collect();
            let are_served = statuses.iter().all(|status| *status == 200);
            // A slot may be dated back by at most 10 ms.
            let earliest = Duration::from_secs(1) * (COUNT - 4) / 300;
            assert!(!are_served || began.elapsed() >= earliest, "{algorithm}: too early");
            are_served
        };
        assert!((0..TRIES).any(|_| all_pass()), "{algorithm}: some have been refused in each try");
    }
}

/// One waits, another behind it; the first leaves and the second takes its turn.
fn moves_up(wait: impl FnOnce(SocketAddr) -> Client, leave: impl FnOnce(Client)) {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &one_per(HOUR, ""));
    Client::connect(weir.address()).get("/first");
    let gone = wait(weir.address());
    wait_for_held(&weir, 1.0);
    let mut next = ask(&weir, "/next");
    wait_for_held(&weir, 2.0);
    leave(gone);
    wait_for_held(&weir, 1.0);
    // There is one unit: had the first one kept its place, it would get the unit.
    refill(&weir, "l");
    assert_eq!(next.answer().status, 200);
    wait_for_held(&weir, 0.0);
    assert_eq!(upstream.targets(), ["/first", "/next"]);
    weir.wait_for_metric("weir_requests_total{verdict=\"abandoned\"}", |count| count == 1.0);
}

fn sending(bytes: &str) -> impl FnOnce(SocketAddr) -> Client {
    move |address| {
        let mut client = Client::connect(address);
        client.send(bytes);
        client
    }
}

#[test]
fn who_closes_loses_its_place() {
    moves_up(sending(&request("/gone")), drop);
}

#[test]
fn who_resets_loses_its_place() {
    moves_up(sending(&request("/gone")), |mut client| {
        SockRef::from(&*client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    });
}

#[test]
fn who_will_send_no_more_loses_its_place() {
    let mut kept = None;
    moves_up(sending(&request("/gone")), |mut client| {
        client.finish();
        assert_eq!(client.rest(), b"");
        kept = Some(client);
    });
}

#[test]
fn who_closes_with_an_unread_body_loses_its_place() {
    let head = "POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    moves_up(sending(&format!("{head}{}", "x".repeat(50_000))), drop);
    moves_up(sending(&format!("{head}{}", "x".repeat(100_000))), drop);
}

#[test]
fn who_closes_before_its_body_was_asked_for_loses_its_place() {
    moves_up(sending("POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"), drop);
    moves_up(sending("POST /gone HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), drop);
}

#[test]
fn who_closes_after_pipelining_loses_its_place() {
    moves_up(sending(&format!("{}{}", request("/gone"), request("/gone-too"))), drop);
    moves_up(sending(&format!("{}{}", request("/gone"), request("/gone-too").repeat(2000))), drop);
}

/// The same over HTTP/2, by a reset of the stream or by closing the connection.
fn moves_up_over_h2(head: http::request::Builder, closes: bool) {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &one_per(HOUR, ""));
    Client::connect(weir.address()).get("/first");
    over_h2(weir.address(), async |mut client, socket| {
        let mut gone = client.clone();
        let gone = tokio::spawn(async move { gone.send(head, Full::from("x".repeat(50_000))).await.map(drop) });
        let next = tokio::task::spawn_blocking({
            let address = weir.address();
            move || sending(&request("/next"))(address)
        });
        wait_for_held(&weir, 2.0);
        if closes {
            socket.shutdown(Shutdown::Both).unwrap();
        } else {
            gone.abort();
        }
        wait_for_held(&weir, 1.0);
        let mut next = next.await.unwrap();
        refill(&weir, "l");
        assert_eq!(next.answer().status, 200);
        if !closes {
            let beside = tokio::spawn(async move { client.get("/beside").await.map(|answer| answer.status) });
            tokio::task::block_in_place(|| wait_for_held(&weir, 1.0));
            refill(&weir, "l");
            assert_eq!(beside.await.unwrap().unwrap(), 200);
        }
    });
    assert!(!upstream.targets().contains(&"/gone".to_owned()));
}

#[test]
fn who_resets_its_stream_loses_its_place() {
    moves_up_over_h2(Request::get("http://weir.test/gone"), false);
    moves_up_over_h2(Request::post("http://weir.test/gone"), false);
}

#[test]
fn who_closes_its_h2_connection_loses_its_place() {
    moves_up_over_h2(Request::get("http://weir.test/gone"), true);
    moves_up_over_h2(Request::post("http://weir.test/gone"), true);
}

#[test]
fn beyond_a_cap_the_answer_comes_at_once_and_says_when() {
    let caps = [
        ("max_waiting = 1", ""),
        ("", "[hold]\nmax_waiting = 1"),
        ("", "[hold]\nmax_waiting_bytes = \"300B\""),
        ("max_wait = \"90min\"", ""),
    ];
    for (hold, global) in caps {
        let upstream = Upstream::start();
        let weir = Weir::start(&upstream, &format!("{}{global}", one_per(HOUR, hold)));
        Client::connect(weir.address()).get("/");
        let filler = "x".repeat(180);
        let mut held = Client::connect(weir.address());
        held.send(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Filler: {filler}\r\n\r\n"));
        wait_for_held(&weir, 1.0);
        let mut late = Client::connect(weir.address());
        late.send(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Filler: {filler}\r\n\r\n"));
        let answer = late.answer();
        // The one before it passes after up to an hour, and it an hour later.
        let (status, seconds) = retry_after(&answer);
        assert!(
            status == 429 && seconds.is_some_and(|s| (7000..=7200).contains(&s)),
            "{hold}{global}: {}",
            answer.text()
        );
        assert_eq!(weir.metric("weir_held_requests{limit=\"l\"}"), 1.0);
        let overflow = if hold.contains("max_wait =") { 0.0 } else { 1.0 };
        assert_eq!(weir.metric("weir_hold_overflow_total"), overflow);
        // Its place is free again once it has left.
        drop(held);
        wait_for_held(&weir, 0.0);
        late.send(request("/"));
        wait_for_held(&weir, 1.0);
    }
}

#[test]
fn the_longest_wait_of_several_limits_counts_and_one_that_refuses_refuses() {
    let upstream = Upstream::start();
    let limit = |name: &str, rate: &str, rest: &str| {
        format!("[[limit]]\nname = \"{name}\"\nkey = [\"path\"]\nrate = \"{rate}\"\n{rest}\n")
    };
    let hold = "on_limit = \"hold\"";
    let both = limit("l", "1/400ms", hold) + &limit("short", "1/100ms", hold);
    let weir = Weir::start(&upstream, &both);
    let mut client = Client::connect(weir.address());
    let began = Instant::now();
    client.get("/");
    assert_eq!(client.get("/").status, 200);
    assert!(began.elapsed() >= Duration::from_millis(400));

    let weir = Weir::start(&upstream, &(limit("l", "1/h", hold) + &limit("strict", "1/h", "")));
    let mut client = Client::connect(weir.address());
    client.get("/");
    let answer = client.get("/");
    assert_eq!(answer.status, 429);
    assert!(answer.text().contains("strict"));
}

#[test]
fn who_waits_is_not_told_to_go_on_and_takes_no_upstream_connection() {
    let upstream = Upstream::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        false
    });
    let weir = Weir::start(&upstream, &one_per(HOUR, ""));
    let mut client = Client::connect(weir.address());
    client.get("/");
    upstream.wait_until(|upstream| upstream.connections() == 0);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    wait_for_held(&weir, 1.0);
    assert_eq!(upstream.connections(), 0);
    assert!(!client.has_more(), "told to go on while it waits");
    refill(&weir, "l");
    assert_eq!(client.head().unwrap().status, 100);
    assert_eq!(client.send("hello").answer().status, 200);
    assert_eq!(upstream.received()[1].body, b"hello");
}

#[test]
fn the_body_of_one_who_waits_is_not_read() {
    const LEN: usize = 64 << 20;
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &one_per(HOUR, ""));
    let mut client = Client::connect(weir.address());
    client.get("/");
    let before = weir.resident();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n"));
    let mut writer = client.stream().try_clone().unwrap();
    let sent = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&sent);
    let writing = thread::spawn(move || pour(LEN, |piece| writer.write_all(piece).is_ok(), &count));
    wait_for_held(&weir, 1.0);
    let stalled_at = wait_until_stalled(&sent);
    let grown = weir.resident().saturating_sub(before);
    assert!(stalled_at < LEN && grown < LEN / 4, "{stalled_at} bytes sent, grown by {grown}");
    refill(&weir, "l");
    assert_eq!(client.answer().status, 200);
    writing.join().unwrap();
    assert_eq!(upstream.received()[1].body.len(), LEN);
}

#[test]
fn an_upstream_that_went_away_meanwhile_costs_nothing() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &one_per(HOUR, ""));
    let mut client = Client::connect(weir.address());
    client.get("/");
    client.send(request("/"));
    wait_for_held(&weir, 1.0);
    let mut behind = ask(&weir, "/");
    wait_for_held(&weir, 2.0);
    upstream.stop();
    refill(&weir, "l");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (502, Some("1")));
    // What it gave back is there for the next one.
    assert_eq!(behind.answer().status, 502);
}

#[test]
fn many_streams_of_one_connection_are_held_in_order() {
    let upstream = Upstream::start();
    // On several connections they could overtake each other on their way.
    let service = format!("[upstreams.one]\nendpoints = [\"http://{}\"]\nmax_connections = 1\n", upstream.address());
    let weir = Weir::with(&format!("{service}[[route]]\nupstream = \"one\"\n{}", one_per("20ms", "")));
    let earliest = Instant::now();
    over_h2(weir.address(), async |client, _| {
        let mut asking = Vec::new();
        for turn in 0..20 {
            let mut client = client.clone();
            asking.push(tokio::spawn(async move { client.get(&format!("/{turn}")).await }));
        }
        for asked in asking {
            assert_eq!(asked.await.unwrap().unwrap().status, 200);
        }
    });
    assert!(earliest.elapsed() >= Duration::from_millis(20 * 19));
    let mut all = upstream.targets();
    all.sort_by_key(|target| target[1..].parse::<u32>().unwrap());
    assert_eq!(all.len(), 20);
    assert_eq!(all, upstream.targets());
}

#[test]
fn who_leaves_while_its_request_is_under_way_is_charged() {
    let (tell, arrived) = channel();
    let tell = Mutex::new(tell);
    let upstream = Upstream::serving(move |mut peer| {
        peer.head();
        let _ = tell.lock().unwrap().send(());
        peer.rest();
    });
    let weir = Weir::start(&upstream, "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"");
    let mut client = ask(&weir, "/");
    arrived.recv().unwrap();
    let _ = client.stream().shutdown(Shutdown::Both);
    drop(client);
    weir.wait_for_metric("weir_connections", |open| open == 0.0);
    assert_eq!(Client::connect(weir.address()).get("/").status, 429);
}

#[test]
fn who_waits_longer_than_the_idle_deadlines_is_kept() {
    let upstream = Upstream::start();
    let weir =
        Weir::start(&upstream, &format!("{}[timeouts]\nkeep_alive = \"2s\"\nrequest_head = \"2s\"", one_per("4s", "")));
    let mut client = Client::connect(weir.address());
    client.get("/");
    assert_eq!(client.get("/").status, 200);
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::get("http://weir.test/");
        assert_eq!(client.send(head, Empty::new()).await.unwrap().status(), 200);
    });
}
