//! Several endpoints of one service: who gets a request, and who gets it if that one cannot take it.

use std::net::TcpListener;

use crate::routes::upstream;
use crate::support::{Client, NEVER, Upstream, Weir, echo};

/// An address where nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn what_cannot_be_reached_is_passed_by_and_charged_once() {
    let alive = Upstream::answering(echo);
    let (dead, other) = (nobody(), nobody());
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
fn if_nobody_can_be_reached_it_costs_nothing() {
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"100/h\"\n";
    let weir = Weir::with(&format!("[upstreams.a]\nendpoints = [\"{}\", \"{}\"]\n{limit}", nobody(), nobody()));
    let mut client = Client::connect(weir.address());
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (502, Some("100")));
    }
}

#[test]
fn only_what_is_safe_goes_out_once_more_to_another() {
    // Takes requests and hangs up on each.
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
    let seen = broken.received().len();
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
fn a_request_goes_out_at_most_twice() {
    let broken =
        [Upstream::answering(|_, _| false), Upstream::answering(|_, _| false), Upstream::answering(|_, _| false)];
    let all: Vec<_> = broken.iter().collect();
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &all, "")));
    assert_eq!(Client::connect(weir.address()).get("/").status, 502);
    assert_eq!(broken.iter().map(|upstream| upstream.received().len()).sum::<usize>(), 2);
}
