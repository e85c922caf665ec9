//! The configurations of docs/fleet/examples.md, each with three processes.

use std::ops::RangeInclusive;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use toml::{Table, Value};
use weir::fleet::grpc::proto::weir::v1::CheckRequest;

use crate::limiter::Caller;
use crate::support::{Client, Etcd, Redis, Upstream, Weir, free_port};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const FLEET_SECRET: &str = "5c6f1e0b7a9d4283bd01f6e2c4a85790";
const REPLICAS: usize = 3;

/// Requests for one key, in place of the rates of the files, so that nothing comes back during a test.
const RATE: &str = "30/day";

fn read(file: &str) -> Table {
    let text = std::fs::read_to_string(format!("config/examples/fleet/{file}.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

fn set(config: &mut Table, table: &str, option: &str, value: impl Into<Value>) {
    let table = config.entry(table).or_insert_with(|| Table::new().into());
    table.as_table_mut().unwrap().insert(option.to_owned(), value.into());
}

/// The configuration of a file with addresses of this machine, and with a `rate` for the limit `limit`.
fn local(file: &str, upstream: &Upstream, limit: &str, rate: &str) -> Table {
    let mut config = read(file);
    set(&mut config, "server", "listen", "127.0.0.1:0");
    set(&mut config, "upstream", "url", format!("http://{}", upstream.address()));
    set(&mut config, "admin", "listen", "127.0.0.1:0");
    set(&mut config, "log", "format", "json");
    set(&mut config, "log", "level", "trace");
    if config.contains_key("grpc") {
        set(&mut config, "grpc", "listen", "127.0.0.1:0");
    }
    for table in config["limit"].as_array_mut().unwrap() {
        if table["name"].as_str() == Some(limit) {
            table.as_table_mut().unwrap().insert("rate".into(), rate.into());
        }
    }
    config
}

/// Starts three processes. Those that listen for each other know each other when this returns.
fn start(config: &Table) -> Vec<Weir> {
    let ports: Vec<u16> = (0..REPLICAS).map(|_| free_port()).collect();
    let members: Vec<Value> = ports.iter().map(|port| format!("127.0.0.1:{port}").into()).collect();
    let listens = config["fleet"].get("listen").is_some();
    let replica = |port: &u16| {
        let mut config = config.clone();
        if listens {
            set(&mut config, "fleet", "listen", format!("127.0.0.1:{port}"));
            config["fleet"]["members"]["static"] = members.clone().into();
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("weir.toml"), config.to_string()).unwrap();
        Weir::start_in_env(folder, &[("WEIR_JWT_SECRET", SECRET), ("WEIR_FLEET_SECRET", FLEET_SECRET)])
    };
    let weirs: Vec<Weir> = ports.iter().map(replica).collect();
    for weir in weirs.iter().filter(|_| listens) {
        weir.wait_for_lines("a replica is connected", REPLICAS - 1);
        weir.wait_for_metric("weir_fleet_replicas", |replicas| replicas == 3.0);
    }
    weirs
}

fn token() -> String {
    let claims = json!({ "sellerId": 7, "exp": 4_000_000_000_u64 });
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap())
        .unwrap()
}

/// The requests of `count` that pass, over all replicas in turn.
fn passing(weirs: &[Weir], path: &str, count: usize) -> usize {
    let mut clients: Vec<Client> = weirs.iter().map(|weir| Client::connect(weir.address())).collect();
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\r\n", token());
    let statuses: Vec<u16> = (0..count).map(|turn| clients[turn % REPLICAS].send(&head).answer().status).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

#[test]
fn sellers_have_their_limit() {
    let (upstream, ring) = (Upstream::start(), [Redis::start(), Redis::start(), Redis::start()]);
    let rows: [(&str, RangeInclusive<usize>); 3] =
        [("seller-isolated", 90..=90), ("seller-redis-ring", 30..=30), ("seller-streamed", 30..=90)];
    for (file, admitted) in rows {
        let mut config = local(file, &upstream, "reports", RATE);
        if config.contains_key("store") {
            config["store"]["ring"]["redis"] = ring.iter().map(Redis::url).collect::<Vec<_>>().into();
            config["store"]["ring"].as_table_mut().unwrap().insert("timeout".into(), "5s".into());
        }
        let weirs = start(&config);
        if config.contains_key("store") {
            for weir in &weirs {
                weir.wait_until("the ring is up", || {
                    let text = Client::connect(weir.admin()).get("/metrics").text();
                    let up = text.lines().filter(|line| line.starts_with("weir_store_up{") && line.ends_with(" 1"));
                    up.count() == ring.len()
                });
            }
        }
        let passed = passing(&weirs, "/api/report.csv", 99);
        println!("{file}: admitted {passed} / allowed 30");
        assert!(admitted.contains(&passed), "{file}: {passed}");
        // Its other methods are in the same basket.
        for weir in &weirs {
            weir.wait_until("nothing is left", || passing(std::slice::from_ref(weir), "/api/report.xls", 1) == 0);
        }
    }
}

#[test]
fn limiters_stream_to_each_other() {
    let upstream = Upstream::start();
    let config = local("seller-limiter-service", &upstream, "reports", RATE);
    let weirs = start(&config);
    let mut callers: Vec<Caller> = weirs.iter().map(Caller::of).collect();
    let (actor, scope, method) = ("seller-7".to_owned(), "reports".to_owned(), "report.csv".to_owned());
    let request = CheckRequest { actor, scope, method, cost: Some(1), ..CheckRequest::default() };
    let checks = (0..99).map(|turn: usize| callers[turn % REPLICAS].check(request.clone()).unwrap());
    let allowed = checks.filter(|answer| answer.allowed).count();
    println!("seller-limiter-service: admitted {allowed} / allowed 30");
    assert!((30..=90).contains(&allowed), "{allowed}");
    for (weir, caller) in weirs.iter().zip(&mut callers) {
        let look = CheckRequest { cost: Some(0), method: "report.xls".into(), ..request.clone() };
        let mut caller = std::panic::AssertUnwindSafe(caller);
        weir.wait_until("the charges of all are heard", || !caller.check(look.clone()).unwrap().allowed);
    }
}

#[test]
fn paths_have_a_limit_and_requests_beyond_it_wait() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    for file in ["rate-split", "rate-lease"] {
        let mut config = local(file, &upstream, "per-minute", "90/day");
        if config.contains_key("store") {
            config["store"]["main"]["etcd"] = vec![format!("http://{}", etcd.address())].into();
            config["store"]["main"].as_table_mut().unwrap().insert("timeout".into(), "5s".into());
        }
        if file == "rate-lease" {
            // Units that others have borrowed come back late, and the rate of this test is slow.
            let strategy =
                Table::from_iter([("use", Value::from("lease")), ("units", 3.into())].map(|(k, v)| (k.to_owned(), v)));
            set(&mut config, "fleet", "strategy", strategy);
        }
        let weirs = start(&config);
        for weir in weirs.iter().filter(|_| config.contains_key("store")) {
            weir.wait_until("etcd lends units", || {
                let text = Client::connect(weir.admin()).get("/metrics").text();
                text.lines().any(|line| line.starts_with("weir_store_up{") && line.ends_with(" 1"))
            });
        }
        assert_eq!(passing(&weirs, "/a", 60), 60, "{file}");
        let ask = |weir: &Weir| {
            let mut client = Client::connect(weir.address());
            client.send("GET /a HTTP/1.1\r\nhost: a\r\n\r\n");
            client
        };
        let _waiting: Vec<Client> = weirs.iter().flat_map(|weir| [(); 20].map(|()| ask(weir))).collect();
        let held = || weirs.iter().map(|weir| weir.metric("weir_held_requests{limit=\"per-minute\"}")).sum::<f64>();
        weirs[0].wait_until("requests beyond 90 wait", || held() >= 6.0);
        println!("{file}: {} of 60 wait", held());
        assert_eq!(passing(&weirs, "/b", 3), 3, "{file}: another path");
    }
}

#[test]
fn a_pushed_configuration_divides_limits_anew() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    // So many that the user's limit is the tightest one, however often a slow replica is asked.
    let mut config = local("limit-over-n", &upstream, "per-ip", "300000/min");
    config["fleet"]["replicas"] = 3.into();
    etcd.put("/weir/config", config.to_string());
    let weirs: Vec<Weir> = (0..REPLICAS).map(|_| crate::remote_config::start(&etcd.url("/weir/config"), &[])).collect();
    let of_user = |weir: &Weir| {
        let answer = Client::connect(weir.address()).send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n").answer();
        answer.header("x-ratelimit-limit").map(str::to_owned)
    };
    for (replicas, share) in [(3, "33"), (9, "11")] {
        config["fleet"]["replicas"] = replicas.into();
        etcd.put("/weir/config", config.to_string());
        for weir in &weirs {
            weir.wait_until("the share of the minute", || of_user(weir).as_deref() == Some(share));
        }
    }
}
