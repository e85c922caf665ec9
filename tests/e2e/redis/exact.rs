//! While Redis works, the replicas together admit exactly the limit.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{Cert, Client, Cluster, Fleet, Redis, Sample, Sentinels, Upstream, Weir, over_paths};

use super::{PLANS, REPLICAS, ask_premium, assert_no_fallback, over_all, patient, shared, start, three};

/// A limit of 100 of each kind from which nothing comes back during a test.
const LIMITS: [&str; 9] = [
    "rate = \"100/day\"",
    "rate = \"10/day\"\nburst = 100",
    "algorithm = \"leaky_bucket\"\nrate = \"100/day\"",
    "algorithm = \"fixed_window\"\nrate = \"100/week\"",
    "algorithm = \"fixed_window\"\nrate = \"100/day\"\nalign = \"first\"",
    "algorithm = \"sliding_log\"\nrate = \"100/day\"",
    "algorithm = \"sliding_window\"\nrate = \"100/week\"",
    "algorithm = \"sub_window\"\nrate = \"100/week\"",
    "rate = [\"200/h\", \"100/day\"]",
];

/// Once a key is denied, Redis is not asked about it again.
#[test]
fn exactly_the_limit_passes() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = start(&upstream, &shared(&patient(&redis), &over_paths(&LIMITS)));
    for (index, limit) in LIMITS.iter().enumerate() {
        let (path, before) = (format!("/l{index}"), redis.calls("evalsha"));
        let answers = fleet.ask(400, 12, &[&path]);
        answers.assert_only(&[200, 429]);
        assert_eq!(answers.passed(), 100, "{limit}");
        assert_eq!(upstream.count(&path), 100, "{limit}");
        assert_eq!(fleet.fallbacks(), 0.0, "{limit}");
        // Each replica heard of the end of the units once, or while as many were asked as there are clients.
        let calls = redis.calls("evalsha");
        assert!(calls - before < 100 + 4 * 12, "{limit}: {before} to {calls} calls");
        assert_eq!(fleet.ask(60, 3, &[&path]).count(429), 60, "{limit}");
        assert_eq!(redis.calls("evalsha"), calls, "{limit}");
    }
}

/// Requests in flight have a limit too, and its units come back.
#[test]
fn exactly_so_many_are_in_flight() {
    let redis = Redis::start();
    let (upstream, may_end) = Upstream::slow();
    let fleet = three(&redis, &upstream, "algorithm = \"concurrency\"\nmax = 20");
    let mut clients: Vec<_> = (0..60).map(|index| Client::connect(fleet.weirs[index % REPLICAS].address())).collect();
    for client in &mut clients {
        client.send("GET /slow HTTP/1.1\r\nhost: weir.test\r\n\r\n");
    }
    upstream.wait_until(|upstream| upstream.received_count() >= 20);
    let refused = |weir: &Weir| weir.metric("weir_requests_total{verdict=\"refused\"}");
    crate::ops::until("40 refusals", || fleet.weirs.iter().map(refused).sum::<f64>() >= 40.0);
    drop(may_end);
    let passed = clients.iter_mut().filter_map(Client::try_answer).filter(|answer| answer.status == 200).count();
    assert_eq!((passed, upstream.received_count()), (20, 20));
    assert_no_fallback(&fleet);
    // All 20 units are back, in Redis too.
    crate::ops::until("units come back", || fleet.ask(20, 20, &["/"]).passed() == 20);
}

/// Units that a limit without a key has left, as an explanation says.
fn left_of(weir: &Weir, limit: &str) -> u64 {
    let body = r#"{"method": "GET", "path": "/unknown", "host": "weir.test", "ip": "127.0.0.1"}"#;
    let head = "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut client = Client::connect(weir.admin());
    let answer = client.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).answer().text();
    let explained: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let limits = explained["limits"].as_array().unwrap();
    let found = limits.iter().find(|found| found["limit"] == limit).unwrap();
    // It says what one more request would leave.
    found["budget"]["remaining"].as_u64().unwrap() + 1
}

/// A request takes from all of its limits or from none.
#[test]
fn all_limits_are_charged_or_none() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limits = format!(
        "{}[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"30/day\"\n\
         [[limit]]\nname = \"here\"\nkey = []\nrate = \"10/day\"\nburst = 1000\nstrategy = \"local\"\n",
        over_all("rate = \"100/day\"")
    );
    let fleet = start(&upstream, &shared(&patient(&redis), &limits));
    let passed: Vec<_> = ["/a", "/b", "/c", "/d"].map(|path| fleet.ask(200, 6, &[path]).passed()).into();
    // 30 for each path, until 100 in all. What a path refused took nothing from the others.
    assert_eq!(passed, [30, 30, 30, 10]);
    let mut left = 0;
    for weir in &fleet.weirs {
        left += left_of(weir, "here");
    }
    assert_eq!(left, 3000 - 100, "local limits are charged for what passes");
    assert_no_fallback(&fleet);
}

#[test]
fn costs_plans_and_overrides_hold_over_all() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limits = "[[limit]]\nname = \"all\"\nkey = [\"path\"]\nrate = \"50/day\"\n\
                  overrides = { \"/more\" = \"80/day\", \"/free\" = \"unlimited\", \"/plan\" = \"unlimited\" }\n\
                  cost = { default = 1, paths = [{ path = \"/dear\", units = 5 }] }\n\
                  [[limit]]\nname = \"plan\"\nkey = []\nmatch.path = [\"/plan\"]\nrate = \"100/day\"\n\
                  plans = { premium = [\"120/day\", \"300/week\"] }\n";
    let fleet = start(&upstream, &format!("{PLANS}{}", shared(&patient(&redis), limits)));
    for (path, expected) in [("/some", 50), ("/more", 80), ("/dear", 10), ("/free", 300)] {
        assert_eq!(fleet.ask(300, 6, &[path]).passed(), expected, "{path}");
    }
    // What a key has spent stays spent when its plan changes, in the windows that both plans have.
    assert_eq!(fleet.ask(90, 6, &["/plan"]).passed(), 90);
    assert_eq!(ask_premium(&fleet, 60, "/plan"), 30);
    assert_eq!(fleet.ask(60, 6, &["/plan"]).passed(), 0);
    assert_no_fallback(&fleet);
}

/// The clock of Redis decides which window it is, and not the clocks of the replicas.
#[test]
fn clocks_may_differ() {
    const PER_SECOND: usize = 20;
    const SECOND: Duration = Duration::from_secs(1);
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limit = format!("algorithm = \"fixed_window\"\nrate = \"{PER_SECOND}/s\"");
    let config = Weir::config(&upstream, "", &shared(&patient(&redis), &over_all(&limit)));
    let fleet = Fleet::with_clocks(&config, &["+0", "+0.1", "-0.1"]);
    fleet.wait_for_stores(true);
    // The time since the epoch at an instant of a sample.
    let (began, began_at) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), Instant::now());
    let since_epoch = |at: Instant| began + at.duration_since(began_at);
    let is_spent = (0..10).any(|_| {
        let wait = Duration::from_millis(3500);
        let answers = fleet.during(6, Duration::from_millis(10), &["/"], || std::thread::park_timeout(wait));
        answers.assert_only(&[200, 429]);
        let passed = answers.passed();
        let first = since_epoch(answers.0[0].at).as_secs();
        let last = since_epoch(Instant::now()).as_secs();
        let windows = (last - first + 1) as usize;
        assert!(passed <= windows * PER_SECOND, "{passed} in {windows} windows");
        // A busy machine may ask for too little in a window. All its units are taken if enough is asked for in its second
        // half, when no replica waits for the end of the window before.
        let is_late_in = |window: u64, sample: &Sample| {
            let window = Duration::from_secs(window);
            since_epoch(sample.at) >= window + SECOND / 2 && since_epoch(sample.at + sample.took) < window + SECOND
        };
        let count = |window: u64| answers.0.iter().filter(|sample| is_late_in(window, sample)).count();
        let spent = (first..=last).filter(|window| count(*window) >= 2 * PER_SECOND).count();
        assert!(passed >= spent * PER_SECOND, "{passed}, and {spent} of {windows} windows are spent");
        spent > 0
    });
    assert!(is_spent, "too few requests in each window");
    assert_no_fallback(&fleet);
}

/// Neither a reload nor other numbers refill what Redis has.
#[test]
fn a_reload_refills_nothing() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let config = |round: usize, limit: usize| {
        let limit = over_all(&format!("rate = \"100/day\"\nburst = {limit}"));
        Weir::config(&upstream, "", &shared(&patient(&redis), &format!("{limit}# {round}")))
    };
    let fleet = Fleet::of(REPLICAS, &config(0, 400));
    fleet.wait_for_stores(true);
    let before = fleet.ask(50, 6, &["/"]).passed();
    let mut during = 0;
    for round in 1..=3 {
        // A file is read when it was quiet for a while, three times in each round: so few requests leave units.
        let answers = fleet.during(6, Duration::from_millis(150), &["/"], || fleet.reload(&config(round, 400)));
        answers.assert_only(&[200]);
        during += answers.passed();
    }
    let rest = fleet.ask(600, 6, &["/"]).passed();
    assert_eq!(before + during + rest, 400);
    fleet.reload(&config(4, 440));
    assert_eq!(fleet.ask(160, 6, &["/"]).passed(), 40);
    assert_no_fallback(&fleet);
}

/// A replica that starts later, or again, knows what the others have spent.
#[test]
fn a_new_replica_refills_nothing() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let config = Weir::config(&upstream, "", &shared(&patient(&redis), &over_all("rate = \"100/day\"")));
    let mut fleet = Fleet::of(REPLICAS, &config);
    fleet.wait_for_stores(true);
    assert_eq!(fleet.ask(60, 6, &["/"]).passed(), 60);
    fleet.weirs.remove(0);
    fleet.add(&config);
    fleet.wait_for_stores(true);
    assert_eq!(fleet.ask(300, 6, &["/"]).passed(), 40);
}

/// TLS, a user with a password, several independent nodes, a cluster, and sentinels.
#[test]
fn every_kind_of_store_is_exact() {
    let upstream = Upstream::start();
    let check = |what: &str, store: &str| {
        let limit = "[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"20/day\"\n";
        let fleet = start(&upstream, &shared(&format!("{store}\ntimeout = \"5s\"\n"), limit));
        for path in ["/a", "/b", "/c", "/d", "/e", "/f"] {
            let answers = fleet.ask(40, 6, &[path]);
            answers.assert_only(&[200, 429]);
            assert_eq!(answers.passed(), 20, "{what}: {path}");
        }
        assert_no_fallback(&fleet);
    };

    let acl = "user default off\nuser weir on >secret ~weir:* +@all -@admin -@dangerous\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "secret\n").unwrap();
    let cert = Cert::of_hosts(&["localhost"]);
    cert.write(folder.path(), "ca");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let secured = Redis::with_tls(&cert, acl);
    check(
        "TLS and a user",
        &format!(
            "redis = [\"rediss://localhost:{}\"]\nuser = \"weir\"\npassword = {{ file = \"{}\" }}\ntls.ca = \"{}\"",
            secured.address().port(),
            path("password"),
            path("ca.pem"),
        ),
    );
    assert!(secured.keys().iter().all(|key| key.starts_with("weir")), "{:?}", secured.keys());

    let ring: Vec<_> = (0..3).map(|_| Redis::start()).collect();
    check("a ring", &format!("redis = {:?}", ring.iter().map(Redis::url).collect::<Vec<_>>()));
    let used = ring.iter().filter(|node| node.keys().iter().any(|key| key.contains("each"))).count();
    assert!(used > 1, "all keys on one node");

    let cluster = Cluster::start(0);
    check("a cluster", &format!("cluster = {}", cluster.urls()));
    let group = Sentinels::start();
    check("sentinels", &format!("sentinel = {}", group.toml()));
}
