//! Several endpoints of one service: which endpoint gets a request, and retries on another one.

use std::collections::HashMap;

use crate::ops::{replace, until};
use crate::routes::upstream;
use crate::support::{Client, NEVER, Upstream, Weir, echo};

/// The URL of an address without a listener.
fn unreachable_url() -> String {
    format!("http://{}", Upstream::start().stop())
}

#[test]
fn an_unreachable_endpoint_is_skipped_and_the_request_is_charged_once() {
    let alive = Upstream::answering(echo);
    let (dead, other) = (unreachable_url(), unreachable_url());
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"100/h\"\n";
    let endpoints = format!("[upstreams.a]\nendpoints = [\"{dead}\", \"{other}\", \"http://{}\"]\n", alive.address());
    let weir = Weir::with(&format!("{endpoints}{limit}"));
    let mut client = Client::connect(weir.address());
    for asked in 1..10 {
        let post = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let answer = if asked % 2 == 0 { client.get("/g") } else { client.send(post).answer() };
        assert_eq!(answer.status, 200, "{asked}");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(&*(100 - asked).to_string()));
    }
    assert_eq!(alive.received().iter().filter(|received| received.body == b"abc").count(), 5);
}

#[test]
fn a_request_that_reaches_no_endpoint_costs_nothing() {
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"100/h\"\n";
    let (one, two) = (unreachable_url(), unreachable_url());
    let weir = Weir::with(&format!("[upstreams.a]\nendpoints = [\"{one}\", \"{two}\"]\n{limit}"));
    let mut client = Client::connect(weir.address());
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (502, Some("100")));
        assert!(!answer.text().contains("127.0.0.1"), "the answer names no address of the service");
    }
    let line = weir.wait_for_line("cannot be reached");
    assert!(line.contains(&one) || line.contains(&two), "the log names one: {line}");
}

#[test]
fn only_safe_requests_are_sent_again_to_another_endpoint() {
    // Reads each request and closes its connection.
    let broken = Upstream::answering(|_, _| false);
    let alive = Upstream::answering(echo);
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"100/h\"\n";
    let weir = Weir::with(&format!("{}{limit}", upstream("a", &[&broken, &alive], "host = \"upstream\"")));
    let mut client = Client::connect(weir.address());
    for asked in 1..=6 {
        let answer = client.get("/g");
        assert_eq!((answer.status, answer.text().as_str()), (200, "/g"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(&*(100 - asked).to_string()));
    }
    let seen = broken.received_count();
    assert!(seen >= 2, "{seen}");
    let host = alive.address().to_string();
    assert!(alive.received().iter().all(|received| received.header("host") == Some(host.clone())));

    let unsafe_ones =
        ["DELETE /d HTTP/1.1\r\nHost: a\r\n\r\n", "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"];
    let statuses: Vec<_> =
        (0..8).map(|index| Client::connect(weir.address()).send(unsafe_ones[index % 2]).answer().status).collect();
    assert!(statuses.contains(&502) && statuses.contains(&200), "{statuses:?}");
    let reached = broken.targets().len() - seen + alive.targets().iter().filter(|target| *target != "/g").count();
    assert_eq!(reached, 8, "each reached one endpoint");
}

#[test]
fn a_request_is_sent_at_most_twice() {
    let broken =
        [Upstream::answering(|_, _| false), Upstream::answering(|_, _| false), Upstream::answering(|_, _| false)];
    let all: Vec<_> = broken.iter().collect();
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &all, "")));
    assert_eq!(Client::connect(weir.address()).get("/").status, 502);
    assert_eq!(broken.iter().map(Upstream::received_count).sum::<usize>(), 2);
}

/// With `balance`, sends requests while one of two endpoints has an active request that does not end.
fn requests_avoid_a_busy_endpoint(balance: &str) {
    let busy = Upstream::answering(|request, stream| {
        if request.target() == "/wait" {
            std::thread::park(); // until the process ends
        }
        echo(request, stream)
    });
    let idle = Upstream::answering(echo);
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &[&busy, &idle], &format!("balance = \"{balance}\""))));
    let mut waiting = Vec::new();
    until("the busy endpoint has an active request", || {
        let before = idle.received_count();
        let mut client = Client::connect(weir.address());
        client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
        until("an endpoint has the request", || !busy.received().is_empty() || idle.received_count() > before);
        waiting.push(client);
        !busy.received().is_empty()
    });
    // The idle endpoint answers its requests before the next ones are sent.
    let answered = waiting.len() - 1;
    waiting[..answered].iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    for _ in 0..10 {
        assert_eq!(Client::connect(weir.address()).get("/x").status, 200, "from either worker");
    }
    assert_eq!(busy.targets(), ["/wait"], "{balance}");
}

#[test]
fn the_least_busy_endpoint_is_preferred_across_workers() {
    requests_avoid_a_busy_endpoint("least_connections");
    requests_avoid_a_busy_endpoint("p2c");
}

#[test]
fn a_client_stays_at_its_endpoint_and_few_clients_move() {
    let endpoints = ["a", "b", "c"]
        .map(|name| Upstream::saying(&format!("HTTP/1.1 200 OK\r\nserver: {name}\r\ncontent-length: 0\r\n\r\n")));
    let all: Vec<_> = endpoints.iter().collect();
    let text = |endpoints: &[&Upstream]| {
        Weir::text(&format!("{}{NEVER}", upstream("a", endpoints, "balance = \"hash\"\nhash_by = \"header:x-user\"")))
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), text(&all)).unwrap();
    let weir = Weir::start_in(folder);
    let ask = |user: usize| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n");
        Client::connect(weir.address()).send(head).answer().header("server").unwrap().to_owned()
    };
    let first: Vec<_> = (0..60).map(ask).collect();
    let second: Vec<_> = (0..60).map(ask).collect();
    assert_eq!(first, second, "on other connections, so from either worker");
    let mut counts = HashMap::<&str, usize>::new();
    for name in &first {
        *counts.entry(name).or_default() += 1;
    }
    assert_eq!(counts.len(), 3, "each endpoint has some clients: {counts:?}");

    replace(&weir.config_file(), &text(&all[..2]));
    weir.wait_for_lines("\"reloaded\"", 1);
    for (user, before) in first.iter().enumerate() {
        let now = ask(user);
        assert!(now != "c" && (now == *before || before == "c"), "{user} from {before} to {now}");
    }
}

#[test]
fn requests_are_counted_by_endpoint() {
    let (broken, alive) = (Upstream::answering(|_, _| false), Upstream::answering(echo));
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &[&broken, &alive], "")));
    let mut client = Client::connect(weir.address());
    for _ in 0..4 {
        assert_eq!(client.get("/").status, 200);
    }
    let counted = |endpoint: &Upstream, result: &str| {
        let address = endpoint.address();
        let labels = format!("endpoint=\"http://{address}\",result=\"{result}\",upstream=\"a\"");
        weir.metric(&format!("weir_endpoint_requests_total{{{labels}}}"))
    };
    assert_eq!([counted(&alive, "answered"), counted(&alive, "failed"), counted(&broken, "answered")], [4.0, 0.0, 0.0]);
    assert_eq!(counted(&broken, "failed"), broken.received_count() as f64);

    replace(&weir.config_file(), &Weir::text(&format!("{}{NEVER}", upstream("a", &[&alive], ""))));
    weir.wait_for_lines("\"reloaded\"", 1);
    let metrics = Client::connect(weir.admin()).get("/metrics").text();
    assert!(!metrics.contains(&broken.address().to_string()), "{metrics}");
    assert_eq!(counted(&alive, "answered"), 4.0, "the counts of an endpoint that stays");
}

#[test]
fn a_name_is_looked_up_and_its_addresses_used() {
    let app = Upstream::answering(echo);
    let port = app.address().port();
    for resolve in ["1h", "off"] {
        let endpoints = format!("[upstreams.a]\nendpoints = [\"http://localhost:{port}\"]\nresolve = \"{resolve}\"\n");
        let weir = Weir::with(&format!("{endpoints}host = \"upstream\"\n{NEVER}"));
        if resolve == "1h" {
            let line = weir.wait_for_line("a name has other addresses");
            assert!(line.contains(&format!("127.0.0.1:{port}")), "{line}");
        }
        for _ in 0..6 {
            assert_eq!(Client::connect(weir.address()).get("/x").status, 200);
        }
        let labels = format!("{{endpoint=\"http://localhost:{port}\",upstream=\"a\"}}");
        weir.wait_for_metric(&format!("weir_endpoint_healthy{labels}"), |healthy| healthy >= 1.0);
    }
    let hosts = app.received().iter().all(|received| received.header("host") == Some(format!("localhost:{port}")));
    assert!(hosts, "{:?}", app.received());
}

#[test]
fn an_unknown_name_is_a_bad_gateway() {
    let weir = Weir::with(&format!("[upstreams.a]\nendpoints = [\"http://nobody.invalid\"]\n{NEVER}"));
    weir.wait_for_line("no address is known yet");
    assert_eq!(Client::connect(weir.address()).get("/").status, 502);
}
