//! Several limits of one request: on several nodes, in shadow mode, or without Redis. And what explanations say of them.

use std::process::Command;

use serde_json::{Value, json};

use crate::ops::until;
use crate::support::{Client, Cluster, Fleet, Redis, Upstream, Weir, poll};

use super::{assert_no_fallback, over_all, patient, shared, start, three};

/// A limit of 100 over everything, and limits of 40 for each path.
fn two_limits() -> String {
    format!("{}[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"40/day\"\n", over_all("rate = \"100/day\""))
}

/// Limits on several nodes are not charged at once. What a denial of one leaves on the others comes back.
#[test]
fn limits_on_several_nodes_give_back_what_one_denies() {
    let upstream = Upstream::start();
    let check = |what: &str, store: &str| {
        let before = upstream.received_count();
        let fleet = start(&upstream, &shared(&format!("{store}\ntimeout = \"5s\"\n"), &two_limits()));
        let mut passed = Vec::new();
        for path in ["/a", "/b", "/c"] {
            let mut of_path = 0;
            // A denial may have come from units that were about to come back.
            let most = if path == "/c" { 20 } else { 40 };
            until("all units", || {
                of_path += fleet.ask(60, 4, &[path]).passed();
                of_path >= most
            });
            passed.push(of_path);
        }
        assert_eq!(passed, [40, 40, 20], "{what}");
        assert_eq!(fleet.ask(60, 4, &["/d"]).passed(), 0, "{what}");
        assert_eq!(upstream.received_count() - before, 100, "{what}");
        assert_no_fallback(&fleet);
    };
    let ring: Vec<_> = (0..3).map(|_| Redis::start()).collect();
    check("a ring", &format!("redis = {:?}", ring.iter().map(Redis::url).collect::<Vec<_>>()));
    let cluster = Cluster::start(0);
    check("a cluster", &format!("cluster = {}", cluster.urls()));
}

/// A limit in shadow mode counts over all replicas, and refuses nobody.
#[test]
fn a_shadow_refuses_nobody() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, "rate = \"100/day\"\nmode = \"shadow\"");
    assert_eq!(fleet.ask(300, 6, &["/"]).passed(), 300);
    let decided =
        |decision: &str| fleet.metric(&format!("weir_limit_decisions_total{{decision=\"{decision}\",limit=\"all\"}}"));
    assert_eq!((decided("admitted"), decided("shadow_refused")), (100.0, 200.0));
    assert_no_fallback(&fleet);
}

/// A request without a limit in Redis does not ask Redis.
#[test]
fn other_limits_ask_nobody() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limits = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"100/day\"\nmatch = { path = \"/shared\" }\n\
                  [[limit]]\nname = \"here\"\nkey = []\nrate = \"1000/day\"\nstrategy = \"local\"\n";
    let fleet = start(&upstream, &shared(&patient(&redis), limits));
    let before = redis.calls("evalsha");
    assert_eq!(fleet.ask(300, 6, &["/other"]).passed(), 300);
    assert_eq!(redis.calls("evalsha"), before);
    assert_eq!(fleet.ask(10, 1, &["/shared"]).passed(), 10);
    assert_eq!(redis.calls("evalsha"), before + 10);
}

/// The answer of the API of operators.
fn called(weir: &Weir, call: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!("{call} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    let mut client = Client::connect(weir.admin());
    let answer = client.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).answer();
    serde_json::from_str(&answer.text()).unwrap()
}

fn explained(weir: &Weir, path: &str) -> Value {
    let asked = json!({ "method": "GET", "path": path, "host": "weir.test", "ip": "127.0.0.1" });
    called(weir, "POST /v1/explain", &asked)["limits"][0]["budget"].take()
}

/// A replica that had no request of a key shows operators the state of the key in the store.
#[test]
fn operators_see_the_states_of_the_store() {
    let upstream = Upstream::start();
    for strategy in ["redis", "lease"] {
        let redis = Redis::start();
        let limits =
            format!("[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"30/day\"\nstrategy = \"{strategy}\"\n");
        let fleet = start(&upstream, &shared(&patient(&redis), &limits));
        let mut client = Client::connect(fleet.weirs[0].address());
        for path in ["/explain", "/key", "/client", "/spend", "/reset"] {
            assert_eq!((0..60).filter(|_| client.get(path).status == 200).count(), 30, "{strategy}");
        }
        let other = &fleet.weirs[2];
        let key = |path: &str| json!({ "limit": "each", "key": path, "units": 0 });
        let none = json!(null);
        let explained = explained(other, "/explain");
        assert_eq!((&explained["admits"], &explained["remaining"]), (&json!(false), &json!(0)), "{strategy}");
        let shown = called(other, "GET /v1/keys?limit=each&key=/key", &none);
        assert_eq!((&shown["limited"], &shown["unused"]), (&json!(true), &json!(false)), "{shown}");
        assert_eq!(called(other, "GET /v1/client?key=path=/client", &none)["passes"], false, "{strategy}");
        assert_eq!(called(other, "POST /v1/spend", &key("/spend"))["remaining"], 0, "{strategy}");
        let many = called(other, "POST /v1/spend", &json!([key("/spend"), key("/unused")]));
        assert_eq!((&many[0]["remaining"], &many[1]["remaining"]), (&json!(0), &json!(30)), "{strategy}");
        let reset = called(other, "DELETE /v1/keys?limit=each&key=/reset", &none);
        assert_eq!(reset["before"]["remaining"], 0, "{reset}");
        assert_eq!(Client::connect(other.address()).get("/explain").status, 429, "{strategy}");
    }
}

/// An explanation says what decided, and how old the numbers are.
#[test]
fn an_explanation_says_what_decided() {
    let (mut redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, "rate = \"100/day\"");
    assert_eq!(fleet.ask(30, 1, &["/"]).passed(), 30);
    for weir in &fleet.weirs {
        let budget = explained(weir, "/");
        assert!(budget["decided_by"].as_str().unwrap().contains(&redis.address().to_string()), "{budget}");
        assert_eq!(budget["remaining"], 69, "{budget}");
        assert!(budget["mirror_age_ms"].as_u64().unwrap() < 20_000, "{budget}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["explain", "--path", "/", "--ip", "127.0.0.1", "--admin", &fleet.weirs[0].admin().to_string()]);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(output.contains(&redis.address().to_string()) && output.contains("old"), "{output}");
    redis.kill();
    fleet.wait_for_stores(false);
    let weir = &fleet.weirs[0];
    let budget = explained(weir, "/");
    assert!(budget["decided_by"].as_str().unwrap().contains("the share of one of 3 replicas"), "{budget}");
    let asked = json!({ "method": "GET", "path": "/", "host": "weir.test", "ip": "127.0.0.1" });
    let remaining = called(weir, "POST /v1/explain", &asked)["remaining"].to_string();
    assert_eq!(budget["remaining"].to_string(), remaining);
    let answer = Client::connect(weir.address()).get("/");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some(&*remaining));
}

/// With `on_failure = "reject"` the explanation says why a request is refused.
#[test]
fn an_explanation_says_that_the_store_is_down() {
    let (mut redis, upstream) = (Redis::start(), Upstream::start());
    let store = format!("{}on_failure = \"reject\"\n", patient(&redis));
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"100/day\"\non_limit = \"delay\"\n";
    let fleet = start(&upstream, &shared(&store, limit));
    let weir = &fleet.weirs[0];
    redis.kill();
    fleet.wait_for_stores(false);
    let answer = Client::connect(weir.address()).get("/");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["explain", "--path", "/", "--ip", "127.0.0.1", "--admin", &weir.admin().to_string()]);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(output.contains("decision: refused: refused because the store does not decide"), "{output}");
}

/// Requests in flight of a replica that died end soon, and those of the others do not.
#[test]
fn a_replica_that_dies_leaves_nothing_in_flight() {
    let redis = Redis::start();
    let (asked, asks) = std::sync::mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    let upstream = Upstream::serving(move |mut peer| {
        while peer.head().is_some() {
            asked.lock().unwrap().send(()).unwrap();
            // It never answers.
            peer.rest();
        }
    });
    let mut fleet: Fleet = three(&redis, &upstream, "algorithm = \"concurrency\"\nmax = 10");
    let ask = |weir: &Weir| {
        let mut client = Client::connect(weir.address());
        client.send("GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n");
        client
    };
    let of_first: Vec<_> = (0..6).map(|_| ask(&fleet.weirs[0])).collect();
    let of_second: Vec<_> = (0..4).map(|_| ask(&fleet.weirs[1])).collect();
    for _ in 0..10 {
        asks.recv_timeout(crate::support::PATIENCE).unwrap();
    }
    assert_eq!(ask(&fleet.weirs[2]).answer().status, 429);
    let begin = std::time::Instant::now();
    fleet.weirs[0].signal("KILL");
    drop((fleet.weirs.remove(0), of_first));
    let mut passed = Vec::new();
    until("units of the dead replica", || {
        let mut client = ask(&fleet.weirs[1]);
        let has_passed = poll(|| match asks.try_recv() {
            Ok(()) => Some(true),
            Err(_) => client.has_more().then_some(false),
        });
        if has_passed {
            passed.push(client);
        } else {
            assert_eq!(client.answer().status, 429);
        }
        passed.len() == 6
    });
    assert!(begin.elapsed().as_secs() >= 5, "{:?}", begin.elapsed());
    assert_eq!(ask(&fleet.weirs[1]).answer().status, 429);
    drop(of_second);
}

/// A request in flight counts after a reload that changes its store, and no longer than it runs.
#[test]
fn a_reload_that_changes_a_store_forgets_no_request() {
    let redis = Redis::start();
    let (upstream, may_end) = Upstream::slow();
    let config = |timeout| {
        // A share of one unit is none.
        let store = format!("{}on_failure = \"local\"\n", patient(&redis).replace("5s", timeout));
        Weir::config(&upstream, "", &shared(&store, &over_all("algorithm = \"concurrency\"\nmax = 1")))
    };
    let fleet = Fleet::of(1, &config("5s"));
    fleet.wait_for_stores(true);
    let mut slow = Client::connect(fleet.weirs[0].address());
    slow.send("GET /slow HTTP/1.1\r\nhost: weir.test\r\n\r\n");
    upstream.wait_until(|upstream| upstream.received_count() == 1);
    fleet.reload(&config("4s"));
    fleet.wait_for_stores(true);
    let ask = || Client::connect(fleet.weirs[0].address()).get("/").status;
    let name = redis.keys().into_iter().find(|name| name.contains("{all:")).unwrap();
    let (mut last, mut renewals) = (10_000, 0);
    // Without renewals its unit lasts for ten seconds.
    until("two renewals", || {
        assert_eq!(ask(), 429);
        let life_ms = redis.call(&["PTTL", &name]).number();
        renewals += i32::from(life_ms > last + 1000);
        last = life_ms;
        renewals == 2
    });
    drop(may_end);
    assert_eq!(slow.answer().status, 200);
    let ended = std::time::Instant::now();
    until("the unit is back", || ask() == 200);
    assert!(ended.elapsed().as_secs() < 5, "{:?}", ended.elapsed());
    assert_no_fallback(&fleet);
}

#[test]
fn a_clock_that_differs_from_that_of_redis_is_shown() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let config = Weir::config(&upstream, "", &shared(&patient(&redis), &over_all("rate = \"10/s\"")));
    let fleet = Fleet::with_clocks(&config, &["+0", "-3600"]);
    let series = "weir_store_clock_ahead_seconds{store=\"main\"}";
    for (weir, expected) in fleet.weirs.iter().zip([0.0, 3600.0]) {
        until("a look at Redis", || weir.metrics().contains(series));
        let ahead = weir.metric(series);
        assert!((ahead - expected).abs() < 5.0, "{ahead}");
    }
}
