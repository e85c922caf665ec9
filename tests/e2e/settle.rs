//! Charges that are corrected once the answer is known.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

use crate::support::{Client, PATIENCE, Upstream, Weir, poll};

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

/// Asks for each target, and says which status came and what remained before the correction.
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
    assert_eq!(said, ["200 99", "200 49", "200 48", "200 47", "200 47", "200 1", "429 0"]);
}

#[test]
fn a_debt_is_bounded() {
    let upstream = obedient();
    for (max_debt, waits_s) in [(0, 1), (5, 6)] {
        let settle = format!("settle = {{ by = \"header:x-cost\" }}\nmax_debt = {max_debt}");
        let limit = limit(2, &settle).replace("1/day", "1/s");
        let weir = Weir::start(&upstream, &limit);
        assert_eq!(ask(&weir, &["/200?1000"]), ["200 1"]);
        let answer = Client::connect(weir.address()).get("/200");
        let retry: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(answer.status, 429);
        assert!((waits_s - 1..=waits_s).contains(&retry.max(1)), "{retry} with {max_debt}");
    }
}

#[test]
fn statuses_cost_what_they_cost() {
    let upstream = obedient();
    let settle = "settle = { by = \"status\", units = { \"4xx\" = 10, \"404\" = 3, \"304\" = 0 } }";
    let weir = Weir::start(&upstream, &limit(20, settle));
    let said = ask(&weir, &["/200", "/404", "/304", "/400", "/200", "/200"]);
    assert_eq!(said, ["200 19", "404 18", "304 15", "400 15", "200 5", "200 4"]);
}

#[test]
fn only_some_outcomes_count() {
    let upstream = obedient();
    let weir = Weir::start(&upstream, &limit(2, "count = { status = [401, 403] }"));
    let said = ask(&weir, &["/200", "/200", "/401", "/500", "/403", "/200"]);
    // What does not count is given back before the client is told.
    assert_eq!(said, ["200 2", "200 2", "401 1", "500 1", "403 0", "429 0"]);
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
    let mut client = Client::connect(weir.address());
    // What those who look cost themselves: their time, rounded up, and the unit that is charged at first.
    let mut own_ms = 0;
    let mut spent_by_others = || {
        let asked = Instant::now();
        let remaining: u64 = client.get("/look").header("x-ratelimit-remaining").unwrap().parse().unwrap();
        let spent = 40_000 - remaining;
        let others = spent.saturating_sub(own_ms + 1);
        own_ms += u64::try_from(asked.elapsed().as_millis()).unwrap() + 2;
        others
    };
    poll(|| (spent_by_others() >= 40).then_some(()));
    go_on.send(()).unwrap();
    assert_eq!(long.answer().status, 200);
    let lasted_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    let spent = poll(|| Some(spent_by_others()).filter(|spent| *spent > 0));
    assert!(spent <= lasted_ms + 1, "{spent} units for {lasted_ms} ms");
}
