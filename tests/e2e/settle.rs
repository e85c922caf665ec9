//! Charges that are corrected once the answer is known.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::{Client, PATIENCE, Upstream, Weir, over_h2, poll};

/// One bucket for all, of which nothing comes back within a test.
fn limit(burst: u64, more: &str) -> String {
    format!("[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/day\"\nburst = {burst}\n{more}\n")
}

/// Answers with the status that the path names, and a cost if the query does.
fn obedient() -> Upstream {
    Upstream::answering(|request, stream| {
        let (status, cost) = request.target()[1..].split_once('?').unwrap_or((&request.target()[1..], ""));
        let cost = if cost.is_empty() { String::new() } else { format!("x-cost: {cost}\r\n") };
        write!(stream, "HTTP/1.1 {status} Told\r\n{cost}content-length: 5\r\n\r\nhello").is_ok()
    })
}

/// Asks for each target, and says which status came and what remains, after what the head of the answer settles.
fn ask(weir: &Weir, targets: &[&str]) -> Vec<String> {
    let mut client = Client::connect(weir.address());
    let said = targets.iter().map(|target| {
        let answer = client.get(target);
        format!("{} {}", answer.status, answer.header("x-ratelimit-remaining").unwrap_or("-"))
    });
    said.collect()
}

#[test]
fn the_answer_says_what_it_cost() {
    let upstream = obedient();
    let settle = "settle = { by = \"header:x-cost\" }\nmax_debt = 1000";
    let weir = Weir::start(&upstream, &limit(100, settle));
    // More than was charged, as much, nothing said, less, and far too much.
    let said = ask(&weir, &["/200?50", "/200?1", "/200", "/200?0", "/200?46.9", "/200?9999", "/200"]);
    assert_eq!(said, ["200 50", "200 49", "200 48", "200 48", "200 2", "200 0", "429 0"]);
}

#[test]
fn a_debt_is_bounded() {
    let upstream = obedient();
    for (max_debt, waits_min) in [("max_debt = 0", 1), ("max_debt = 5", 6), ("", 999)] {
        let settle = format!("settle = {{ by = \"header:x-cost\" }}\n{max_debt}");
        let limit = limit(2, &settle).replace("1/day", "1/min");
        let weir = Weir::start(&upstream, &limit);
        assert_eq!(ask(&weir, &["/200?1000"]), ["200 0"]);
        let answer = Client::connect(weir.address()).get("/200");
        let retry: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(answer.status, 429);
        assert!((60 * waits_min - 50..=60 * waits_min).contains(&retry), "{retry} with {max_debt}");
    }
}

#[test]
fn statuses_cost_what_they_cost() {
    let upstream = obedient();
    let settle = "settle = { by = \"status\", units = { \"4xx\" = 10, \"404\" = 3, \"304\" = 0 } }";
    let weir = Weir::start(&upstream, &limit(20, settle));
    let said = ask(&weir, &["/200", "/404", "/304", "/400", "/200", "/200"]);
    assert_eq!(said, ["200 19", "404 16", "304 16", "400 6", "200 5", "200 4"]);
}

#[test]
fn after_a_settlement_another_limit_may_be_the_tightest() {
    let upstream = obedient();
    let limits = |mode: &str| {
        let settled = limit(100, &format!("settle = {{ by = \"header:x-cost\" }}\nmode = \"{mode}\""));
        settled
            + "[[limit]]\nname = \"m\"\nkey = []\nrate = \"10/day\"\n[headers]\nprofiles = [\"x-ratelimit\", \"ietf\"]"
    };
    for (mode, limits_of, ietf) in [
        ("enforce", [Some("10"), Some("100"), Some("100")], &[("\"l\";r=0", 950_400), ("\"m\";r=7", 8640)][..]),
        ("shadow", [Some("10"); 3], &[("\"m\";r=7", 8640)]),
    ] {
        let weir = Weir::start(&upstream, &limits(mode));
        let mut client = Client::connect(weir.address());
        let answers = ["/200?5", "/200?90", "/200?15"].map(|target| client.get(target));
        assert_eq!(answers.each_ref().map(|answer| answer.header("x-ratelimit-limit")), limits_of, "{mode}");
        let told: Vec<_> = answers[2].header("ratelimit").unwrap().split(", ").collect();
        assert_eq!(told.len(), ietf.len(), "{mode}: {told:?}");
        for (told, (rest, most_s)) in told.iter().zip(ietf) {
            let (told, seconds) = told.split_once(";t=").unwrap();
            let seconds: u64 = seconds.parse().unwrap();
            assert!(told == *rest && (most_s - 60..=*most_s).contains(&seconds), "{mode}: {told} {seconds}");
        }
    }
}

#[test]
fn only_some_outcomes_count() {
    let upstream = obedient();
    let weir = Weir::start(&upstream, &limit(2, "count = { status = [401, 403] }"));
    let said = ask(&weir, &["/200", "/200", "/401", "/500", "/403", "/200"]);
    // What does not count is given back before the client is told.
    assert_eq!(said, ["200 2", "200 2", "401 1", "500 1", "403 0", "429 0"]);
    // Nor does an answer of Weir in the place of one that does not come.
    let upstream = Upstream::answering(|_, _| false);
    for (status, said) in [("401", "502 2"), ("5xx", "502 1")] {
        let weir = Weir::start(&upstream, &limit(2, &format!("count = {{ status = [\"{status}\"] }}")));
        assert_eq!(ask(&weir, &["/"]), [said]);
        let over_h2 = over_h2(weir.address(), async |mut client, _| client.get("/").await.unwrap());
        let remaining = over_h2.headers["x-ratelimit-remaining"].to_str().unwrap();
        assert_eq!((over_h2.status, remaining), (502, if status == "401" { "2" } else { "0" }));
    }
}

#[test]
fn bytes_of_answers_are_counted() {
    let upstream = obedient();
    let weir = Weir::start(&upstream, &limit(20, "settle = { by = \"response_bytes\" }\nmax_debt = 100"));
    assert_eq!(ask(&weir, &["/200", "/200", "/200", "/200", "/200"]), ["200 19", "200 14", "200 9", "200 4", "429 0"]);
}

#[test]
fn a_long_request_is_charged_while_it_runs_and_in_the_end() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        if request.target() == "/long" {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        }
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_ok()
    });
    let settle = "settle = { by = \"elapsed_ms\", every = \"20ms\" }";
    let weir = Weir::start(&upstream, &limit(40_000, settle));
    let began = Instant::now();
    let mut long = Client::connect(weir.address());
    long.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_until(|upstream| upstream.targets() == ["/long"]);
    // An explanation charges nothing, and shows what remains after one more unit.
    let spent = || {
        let body = json!({"method": "GET", "path": "/", "host": "a", "ip": "127.0.0.1"}).to_string();
        let head = "POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let explained: Value =
            serde_json::from_slice(&Client::connect(weir.admin()).send(request).answer().body).unwrap();
        39_999 - explained["remaining"].as_u64().unwrap()
    };
    poll(|| (spent() >= 40).then_some(()));
    go_on.send(()).unwrap();
    assert_eq!(long.answer().status, 200);
    let spent = poll(|| Some(spent()).filter(|spent| *spent > 40));
    let lasted_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    assert!(spent <= lasted_ms + 1, "{spent} units for {lasted_ms} ms");
}

/// An upstream that answers each request to `/stay` when it is told to.
fn waiting() -> (Upstream, std::sync::mpsc::Sender<()>) {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        if request.target() == "/stay" {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        }
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    (upstream, go_on)
}

const IN_FLIGHT: &str = "[[limit]]\nname = \"l\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 1\n";

#[test]
fn what_is_in_flight_counts_until_its_answer_has_ended() {
    let (upstream, go_on) = waiting();
    let weir = Weir::start(&upstream, IN_FLIGHT);
    let mut first = Client::connect(weir.address());
    first.send("GET /stay HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_until(|upstream| upstream.targets() == ["/stay"]);
    let answer = Client::connect(weir.address()).get("/go");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{}", answer.head);
    assert_eq!((answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-reset")), (Some("1"), None));
    go_on.send(()).unwrap();
    assert_eq!(first.answer().status, 200);
    assert_eq!(first.get("/go").status, 200);
    // Whoever leaves is not in flight any more.
    first.send("GET /stay HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_until(|upstream| upstream.targets().iter().filter(|target| *target == "/stay").count() == 2);
    drop(first);
    let mut client = Client::connect(weir.address());
    poll(|| (client.get("/go").status == 200).then_some(()));
    go_on.send(()).unwrap();
    // Nor is one that the upstream did not answer.
    upstream.stop();
    assert_eq!([client.get("/1").status, client.get("/2").status], [502, 502]);
}

/// So a client that sends one request after another is never refused, over however many connections.
#[test]
fn units_in_flight_come_back_before_the_last_bytes_are_sent() {
    // More than the sockets take of it, and less than that and the buffer of Weir.
    const LEN: usize = 100_000;
    let upstream = Upstream::answering(|request, stream| {
        let len = if request.target() == "/large" { LEN } else { 0 };
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{}", "x".repeat(len)).is_ok()
    });
    let weir = Weir::start(&upstream, IN_FLIGHT);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_tcp_mss(1000).unwrap(); // short segments make the other end's buffer small
    socket.connect(&weir.address().into()).unwrap();
    let mut first = Client::over(TcpStream::from(socket));
    first.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_metric("weir_untaken_bytes", |bytes| bytes > 0.0);
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    assert_eq!(first.answer().body.len(), LEN);
}

#[test]
fn whoever_waits_for_what_is_in_flight_comes_next() {
    let (upstream, go_on) = waiting();
    let weir = Weir::start(&upstream, &format!("{IN_FLIGHT}on_limit = \"hold\""));
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(weir.address())).collect();
    for (waiting, client) in clients.iter_mut().enumerate() {
        client.send("GET /stay HTTP/1.1\r\nHost: a\r\n\r\n");
        upstream.wait_until(|upstream| upstream.received_count() == 1);
        let waiting = f64::from(u32::try_from(waiting).unwrap());
        weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == waiting);
    }
    for (served, client) in clients.iter_mut().enumerate() {
        upstream.wait_until(|upstream| upstream.received_count() == served + 1);
        go_on.send(()).unwrap();
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn what_is_in_flight_counts_over_h2_too() {
    let (upstream, go_on) = waiting();
    let weir = Weir::start(&upstream, IN_FLIGHT);
    let address = weir.address();
    over_h2(address, async |mut client, _| {
        let mut other = client.clone();
        let staying = tokio::spawn(async move { other.get("/stay").await.unwrap().status });
        let upstream = &upstream;
        tokio::task::block_in_place(|| upstream.wait_until(|upstream| upstream.targets() == ["/stay"]));
        assert_eq!(client.get("/go").await.unwrap().status, 429);
        go_on.send(()).unwrap();
        assert_eq!(staying.await.unwrap(), 200);
        while client.get("/go").await.unwrap().status != 200 {}
    });
}

#[test]
fn plans_and_overrides_allow_others_other_numbers() {
    let upstream = Upstream::start();
    let limit = "[plans]\nfrom = \"header:x-plan\"\n[[limit]]\nname = \"l\"\nkey = [\"header:x-who\"]\nrate = \"2/h\"\n\
                 plans = { premium = \"5/h\", internal = \"unlimited\" }\noverrides = { \"42\" = \"9/h\" }";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    let mut ask = |who: &str, plan: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Who: {who}\r\nX-Plan: {plan}\r\n\r\n"));
        let answer = client.answer();
        format!("{} {}", answer.status, answer.header("x-ratelimit-limit").unwrap_or("-"))
    };
    assert_eq!([ask("1", ""), ask("1", "free"), ask("1", "")], ["200 2", "200 2", "429 2"]);
    assert_eq!([ask("2", "premium"), ask("2", "internal"), ask("2", "x")], ["200 5", "200 -", "200 2"]);
    assert_eq!([ask("42", ""), ask("42", "premium")], ["200 9", "200 9"]);
    // A plan that allows more lets someone on who had spent all.
    assert_eq!([ask("1", "premium"), ask("1", "")], ["200 5", "429 2"]);
}
