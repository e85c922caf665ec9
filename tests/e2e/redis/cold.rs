//! A Redis that has lost its keys under load does not refill what was spent.

use std::time::{Duration, Instant};

use crate::ops::{count_lines, until};
use crate::support::{Client, Fleet, Redis, Upstream, Weir, has_stores, over_paths};

use super::{PLANS, REPLICAS, ask_premium, patient, shared, start, three};

const BUDGET: usize = 120;
const CLIENTS: usize = 6;

/// Many keys, each with a budget. The load spends all of them while `lose` makes Redis forget them so many times.
fn check(what: &str, times: usize, lose: impl Fn(&mut Redis)) {
    let (mut redis, upstream) = (Redis::start(), Upstream::start());
    let limit = format!("[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1/h\"\nburst = {BUDGET}\n");
    let fleet = start(&upstream, &shared(&patient(&redis), &limit));
    let paths: Vec<String> = (0..6).map(|path| format!("/{path}")).collect();
    let spent = fleet.ask(BUDGET * paths.len() / 2, CLIENTS, &paths).passed();
    assert_eq!(spent, BUDGET * paths.len() / 2);
    let during = fleet.during(CLIENTS, Duration::from_millis(12), &paths, || {
        lose(&mut redis);
        for weir in &fleet.weirs {
            weir.wait_for_line("a node of a store has lost its keys");
        }
        fleet.wait_for_stores(true);
        std::thread::park_timeout(Duration::from_secs(1));
    });
    during.assert_only(&[200, 429]);
    let passed = || {
        let targets = upstream.targets();
        paths.iter().map(|path| targets.iter().filter(|target| *target == path).count()).collect::<Vec<_>>()
    };
    let ask_for_all = || fleet.ask(40 * paths.len(), CLIENTS, &paths).assert_only(&[200, 429]);
    until("almost all units are spent", || {
        ask_for_all();
        passed().iter().all(|passed| *passed >= BUDGET * 9 / 10)
    });
    ask_for_all();
    let passed = passed();
    // Each budget, what was in flight as Redis forgot it, and as Redis decided again, each time.
    assert!(passed.iter().all(|passed| *passed <= BUDGET + 2 * CLIENTS * times), "{what}: {passed:?} of {BUDGET}");
}

#[test]
fn a_killed_server_without_persistence() {
    check("kill -9", 1, |redis| {
        redis.kill();
        redis.restart();
    });
}

/// A server that comes back with the keys of an earlier time gets the later ones from the replicas.
#[test]
fn a_killed_server_that_had_saved_its_keys() {
    for strategy in ["redis", "lease"] {
        let (mut redis, upstream) = (Redis::start(), Upstream::start());
        let limits = over_paths(&["algorithm = \"fixed_window\"\nrate = \"100/week\"", "rate = \"1/h\"\nburst = 100"]);
        let limits = limits.replace("rate =", &format!("strategy = \"{strategy}\"\nrate ="));
        let fleet = start(&upstream, &shared(&patient(&redis), &limits));
        let ask = |requests: usize| fleet.ask(requests, CLIENTS, &["/l0", "/l1"]).assert_only(&[200, 429]);
        ask(40);
        redis.call(&["SAVE"]);
        ask(80);
        redis.until_looked_at(REPLICAS);
        redis.kill();
        redis.restart();
        for weir in &fleet.weirs {
            weir.wait_for_line("a node of a store decides with new keys");
        }
        ask(200);
        for path in ["/l0", "/l1"] {
            let passed = upstream.count(path);
            assert!((60..=100 + CLIENTS).contains(&passed), "{strategy} {path}: {passed}");
        }
    }
}

/// A server that was replaced by another one, and is used again, has the keys of an earlier time.
#[test]
fn a_reload_to_another_server_and_back() {
    let (first, second, upstream) = (Redis::start(), Redis::start(), Upstream::start());
    let limit = "[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1/h\"\nburst = 100\n";
    let config = |redis: &Redis| Weir::config(&upstream, "", &shared(&patient(redis), limit));
    let fleet = Fleet::of(REPLICAS, &config(&first));
    fleet.wait_for_stores(true);
    fleet.ask(20, CLIENTS, &["/"]).assert_only(&[200]);
    for (redis, requests) in [(&second, 40), (&first, 120)] {
        fleet.reload(&config(redis));
        fleet.wait_for_stores(true);
        fleet.ask(requests, CLIENTS, &["/"]).assert_only(&[200, 429]);
    }
    assert!((95..=100 + CLIENTS).contains(&upstream.count("/")), "{}", upstream.count("/"));
}

/// A reload while the server is down forgets nothing that the server has lost. The store before it, which has a request in
/// flight, does not begin the keys anew while the new one decides.
#[test]
fn a_reload_before_a_server_comes_back_with_old_keys() {
    let (mut redis, (upstream, may_end)) = (Redis::start(), Upstream::slow());
    let limit = "[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1/h\"\nburst = 100\n";
    let store = patient(&redis);
    let config = |store: &str| Weir::config(&upstream, "", &shared(store, limit));
    let fleet = Fleet::of(REPLICAS, &config(&store));
    fleet.wait_for_stores(true);
    let ask = |requests: usize| fleet.ask(requests, CLIENTS, &["/"]).assert_only(&[200, 429]);
    ask(20);
    redis.call(&["SAVE"]);
    ask(60);
    let mut clients: Vec<_> = fleet.weirs.iter().map(|weir| Client::connect(weir.address())).collect();
    for client in &mut clients {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    upstream.wait_until(|upstream| upstream.count("/slow") == REPLICAS);
    // A generation that is younger than two seconds waits for all replicas.
    (0..2).for_each(|_| redis.until_looked_at(REPLICAS));
    let generation = redis.call(&["GET", "weir:generation:{0}"]);
    redis.kill();
    fleet.reload(&config(&store.replace("5s", "4s")));
    redis.restart();
    fleet.wait_for_stores(true);
    // Both stores of each replica have a number of looks of their own.
    (0..2).for_each(|_| redis.until_looked_at(2 * REPLICAS));
    assert_eq!(
        redis.call(&["GET", "weir:generation:{0}"]),
        generation,
        "the stores before the reload began another one"
    );
    ask(120);
    assert!((95..=100 + CLIENTS).contains(&upstream.count("/")), "{}", upstream.count("/"));
    for weir in &fleet.weirs {
        assert_eq!(count_lines(weir, "a node of a store has lost its keys"), 0);
    }
    drop(may_end);
    assert!(clients.into_iter().all(|mut client| client.answer().status == 200));
}

#[test]
fn a_flushed_server() {
    check("FLUSHALL", 1, |redis| {
        redis.call(&["FLUSHALL"]);
    });
}

#[test]
fn a_server_that_is_flushed_again_while_it_is_cold() {
    check("FLUSHALL twice", 2, |redis| {
        redis.call(&["FLUSHALL"]);
        std::thread::park_timeout(Duration::from_millis(300));
        redis.call(&["FLUSHALL"]);
    });
}

/// The replicas bring all rates of a plan, and not only those that the limit has without one.
#[test]
fn a_flushed_server_with_a_plan_of_two_rates() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limit = "[[limit]]\nname = \"plan\"\nkey = [\"path\"]\nrate = \"50/day\"\n\
                 plans = { premium = [\"500/day\", \"200/week\"] }\n";
    let fleet = start(&upstream, &format!("{PLANS}{}", shared(&patient(&redis), limit)));
    assert_eq!(ask_premium(&fleet, 150, "/"), 150);
    redis.call(&["FLUSHALL"]);
    for weir in &fleet.weirs {
        weir.wait_for_line("a node of a store has lost its keys");
    }
    fleet.wait_for_stores(true);
    let mut passed = 150;
    until("almost all units are spent", || {
        passed += ask_premium(&fleet, 60, "/");
        passed >= 190
    });
    passed += ask_premium(&fleet, 60, "/");
    // The budget, and what is in flight as Redis decides again.
    assert!(passed <= 200 + REPLICAS, "{passed}");
}

/// The log has one line about lost keys and one about the end of that. Further losses within a minute have none.
#[test]
fn lost_keys_are_told_once() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = three(&redis, &upstream, "rate = \"10000/s\"");
    let begin = Instant::now();
    let answers = fleet.during(3, Duration::from_millis(5), &["/"], || {
        for _ in 0..3 {
            let before: Vec<f64> = fleet.weirs.iter().map(Weir::fallbacks).collect();
            redis.call(&["FLUSHALL"]);
            until("each replica knows of the loss", || {
                let is_known = fleet.weirs.iter().zip(&before).all(|(weir, before)| weir.fallbacks() > *before);
                // A replica that had no request meanwhile may have decided again before it had to fall back.
                if !is_known && fleet.weirs.iter().all(|weir| has_stores(weir) == Some(true)) {
                    redis.call(&["FLUSHALL"]);
                }
                is_known
            });
            fleet.wait_for_stores(true);
        }
    });
    answers.assert_only(&[200]);
    // On a busy machine the losses may take longer than a minute.
    let most = 1 + usize::try_from(begin.elapsed().as_secs() / 60).unwrap();
    for weir in &fleet.weirs {
        let lines = |text: &str| count_lines(weir, &format!("a node of a store {text}"));
        until("lines", || lines("decides with new keys") > 0);
        let counts = ["has lost its keys", "decides with new keys"].map(lines);
        assert!(counts.iter().all(|lines| (1..=most).contains(lines)), "{:#?}", weir.lines());
    }
}

/// A replica that has seen no traffic has nothing to push, and the others do not wait for it longer than two seconds.
#[test]
fn a_dead_replica_does_not_keep_a_server_cold() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limit = "[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1/h\"\nburst = 500\n";
    // One of three replicas is not there.
    let fleet = Fleet::start(REPLICAS - 1, &upstream, &shared(&patient(&redis), limit));
    fleet.wait_for_stores(true);
    assert_eq!(fleet.ask(100, 4, &["/"]).passed(), 100);
    redis.call(&["FLUSHALL"]);
    // The budget lasts for as long as the test may wait, and a busy machine can spend the rest of it.
    let pace = Duration::from_millis(200);
    let all_fallbacks = || fleet.fallbacks();
    let answers = fleet.during(2, pace, &["/"], || {
        for weir in &fleet.weirs {
            weir.wait_for_line("a node of a store has lost its keys");
        }
        until("Redis decides each request", || {
            let (without, before) = (all_fallbacks(), redis.calls("evalsha"));
            until("more requests", || redis.calls("evalsha") > before + 20 || all_fallbacks() > without);
            all_fallbacks() == without
        });
    });
    answers.assert_only(&[200]);
    let mut all = 100 + answers.passed();
    until("almost all units are spent", || {
        all += fleet.ask(100, 4, &["/"]).passed();
        all >= 480
    });
    all += fleet.ask(100, 4, &["/"]).passed();
    assert!(all <= 500 + 8, "{all}");
}
