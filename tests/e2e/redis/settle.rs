//! Charges that are corrected after the answer, and charges of operators, hold over all replicas.

use std::io::Write;

use crate::ops::until;
use crate::support::{Client, Fleet, Redis, Upstream, Weir};

use super::{assert_no_fallback, over_all, patient, shared, start, three};

/// Answers with the cost that the target names.
fn priced() -> Upstream {
    Upstream::answering(|request, stream| {
        let cost = &request.target()[1..];
        write!(stream, "HTTP/1.1 200 OK\r\nx-cost: {cost}\r\ncontent-length: 0\r\n\r\n").is_ok()
    })
}

/// What is left of the limit, as the next answer of each replica says. Takes one unit each time.
fn left(fleet: &Fleet, target: &str) -> Vec<Option<i64>> {
    let left = |weir: &Weir| {
        let answer = Client::connect(weir.address()).get(target);
        answer.header("x-ratelimit-remaining").map(|text| text.parse().unwrap())
    };
    fleet.weirs.iter().map(left).collect()
}

#[test]
fn the_real_cost_is_charged_in_redis() {
    let (redis, upstream) = (Redis::start(), priced());
    let fleet = three(&redis, &upstream, "rate = \"1/day\"\nburst = 100\nsettle = { by = \"header:x-cost\" }");
    assert_eq!(Client::connect(fleet.weirs[0].address()).get("/40").status, 200);
    // The others hear of the 39 units beyond the first one.
    until("39 units", || {
        let seen = left(&fleet, "/0");
        seen[1].is_some_and(|left| left <= 60) && seen[2].is_some_and(|left| left <= 60)
    });
    // What costs nothing takes nothing in the end.
    until("60 units", || left(&fleet, "/0").iter().all(|left| *left >= Some(57)));
    // A debt: nobody passes until it is paid.
    assert_eq!(Client::connect(fleet.weirs[1].address()).get("/500").status, 200);
    until("denials", || fleet.ask(6, 1, &["/0"]).count(429) == 6);
    assert_no_fallback(&fleet);
}

/// Units that come back by an answer are there for the next request of its client, and for one that is held meanwhile.
#[test]
fn units_that_come_back_are_there_for_the_next_request() {
    let (redis, upstream) = (Redis::start(), priced());
    let limit = |path: &str, strategy: &str, lines: &str| {
        format!(
            "[[limit]]\nname = \"{path}\"\nmatch.path = \"/{path}\"\nkey = []\nrate = \"10000/day\"\n\
             strategy = \"{strategy}\"\nsettle = {{ by = \"header:x-cost\" }}\n{lines}\n"
        )
    };
    let hold = "cost = 6000\non_limit = \"hold\"";
    let rows =
        [("5", "redis", "cost = 6000"), ("6", "lease", "cost = 6000"), ("7", "redis", hold), ("8", "lease", hold)];
    let limits: String = rows.iter().map(|(path, strategy, lines)| limit(path, strategy, lines)).collect();
    let fleet = start(&upstream, &shared(&patient(&redis), &limits));
    for (path, strategy, _) in rows {
        let mut client = Client::connect(fleet.weirs[0].address());
        // A denial waits for a settlement 0.1 s at most, and a replica may stand still for longer, but not each time. All
        // of these cost at most 1200.
        let are_there = (0..5).any(|_| (0..30).all(|_| client.get(&format!("/{path}")).status == 200));
        assert!(are_there, "{path} {strategy}");
    }
    assert_no_fallback(&fleet);
}

#[test]
fn a_charge_of_an_operator_is_charged_in_redis() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, "rate = \"100/day\"");
    assert_eq!(fleet.ask(10, 1, &["/"]).passed(), 10);
    let body = r#"{"limit": "all", "key": {}, "units": 50}"#;
    let head = "POST /v1/spend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut operator = Client::connect(fleet.weirs[0].admin());
    let answer = operator.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut taken = 0;
    until("50 units", || {
        let seen = left(&fleet, "/");
        taken += 3;
        seen.iter().all(|left| left.is_some_and(|left| left <= 40))
    });
    assert_eq!(fleet.ask(300, 6, &["/"]).passed(), 40 - taken);
    assert_no_fallback(&fleet);
}

/// Units that stay spent, because charges are given back in another order than they were made: as many as requests were
/// running at once.
const LOST: usize = 3;

/// Statuses that do not count give their charge back, in Redis too.
#[test]
fn a_status_that_does_not_count_takes_nothing() {
    let redis = Redis::start();
    let upstream = Upstream::answering(|request, stream| {
        let status = &request.target()[1..];
        write!(stream, "HTTP/1.1 {status} Told\r\ncontent-length: 0\r\n\r\n").is_ok()
    });
    let limits = over_all("rate = \"100/day\"\ncount = { status = [\"4xx\"] }");
    let fleet = start(&upstream, &shared(&patient(&redis), &limits));
    // Some units stay spent from here on, so that nothing is lost later.
    assert_eq!(fleet.ask(10, 3, &["/404"]).count(404), 10);
    for _ in 0..5 {
        assert_eq!(fleet.ask(50, 3, &["/200"]).passed(), 50);
    }
    let mut passed = 10;
    until("all units", || {
        passed += fleet.ask(30, 3, &["/404"]).count(404);
        passed >= 100 - LOST
    });
    assert!(passed <= 100, "{passed}");
}
