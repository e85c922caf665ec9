//! Weirs that ask the limiter service of another Weir about their limits.

use std::net::SocketAddr;
use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Response};
use tonic_prost::ProstCodec;
use weir::fleet::stores::service::proto::{
    ChargeRequest, ChargeResponse, CorrectRequest, CorrectResponse, JoinRequest, JoinResponse, Key, KeyState,
};

use super::{channel, runtime};
use crate::ops::{replace, until};
use crate::support::{Cert, Client, Fleet, Link, Relay, Upstream, Weir, over_all, over_paths};

/// The replicas that ask.
const ASKERS: usize = 2;

/// `[fleet]` with this strategy of limits without one.
fn fleet(strategy: &str) -> String {
    format!("[fleet]\nstrategy = {strategy}\nreplicas = {ASKERS}\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n")
}

/// A limiter with these limits, and `[grpc]` with these lines.
fn limiter(upstream: &Upstream, grpc: &str, limits: &str) -> Weir {
    let config = Weir::config(upstream, "", &format!("{}[grpc]\n{grpc}\n{limits}", fleet("\"local\"")));
    Fleet::of(1, &config).weirs.remove(0)
}

const ANY_PORT: &str = "listen = \"127.0.0.1:0\"";

/// Two Weirs with these limits, which the store decides that these lines describe.
fn askers(upstream: &Upstream, store: &str, limits: &str) -> Fleet {
    let rest = format!("{}[store.main]\n{store}\n{limits}", fleet("\"service\""));
    let fleet = Fleet::start(ASKERS, upstream, &rest);
    fleet.wait_for_stores(true);
    fleet
}

/// The lines of a store that is the limiter at this address. Its timeout is for a machine that is busy with other tests.
fn patient(address: SocketAddr) -> String {
    format!("service = \"http://{address}\"\ntimeout = \"5s\"")
}

/// Limits of 40 from which nothing comes back during a test.
const LIMITS: [&str; 8] = [
    "rate = \"40/day\"",
    "rate = \"4/day\"\nburst = 40",
    "algorithm = \"leaky_bucket\"\nrate = \"40/day\"",
    "algorithm = \"fixed_window\"\nrate = \"40/week\"",
    "algorithm = \"fixed_window\"\nrate = \"40/day\"\nalign = \"first\"",
    "algorithm = \"sliding_log\"\nrate = \"40/day\"",
    "algorithm = \"sub_window\"\nrate = \"40/week\"",
    "rate = [\"80/h\", \"40/day\"]",
];

#[test]
fn exactly_the_limit_passes() {
    let (upstream, limits) = (Upstream::start(), over_paths(&LIMITS));
    let limiter = limiter(&upstream, ANY_PORT, &limits);
    let fleet = askers(&upstream, &patient(limiter.grpc()), &limits);
    let calls = || limiter.metric("weir_grpc_checks_total{result=\"refused\",service=\"charges\"}");
    for (index, limit) in LIMITS.iter().enumerate() {
        let before = calls();
        let answers = fleet.ask(120, 8, &[format!("/l{index}")]);
        answers.assert_only(&[200, 429]);
        assert_eq!(answers.passed(), 40, "{limit}");
        assert_eq!(fleet.fallbacks(), 0.0, "{limit}");
        // Once a key is denied, the limiter is not asked about it again.
        let calls = calls() - before;
        assert!(calls <= 4.0 * 8.0, "{limit}: {calls} calls");
    }
}

/// A request takes from all of its limits or from none, and what it took goes back if the service does not get it.
#[test]
fn all_limits_are_charged_or_none() {
    let upstream = Upstream::start();
    let each = "[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"30/day\"\n\
                overrides = { \"/more\" = \"40/day\" }\nplans = { pro = \"50/day\" }\n";
    let plans = "[plans]\nfrom = \"header:x-plan\"\n";
    let limits = format!("{plans}{}{each}", over_all("rate = \"100/day\""));
    let limiter = limiter(&upstream, ANY_PORT, &limits);
    let here = "[[limit]]\nname = \"here\"\nkey = []\nrate = \"1000/day\"\nstrategy = \"local\"\n";
    let fleet = askers(&upstream, &patient(limiter.grpc()), &format!("{limits}{here}"));
    let passed: Vec<_> = ["/a", "/more", "/b", "/c"].map(|path| fleet.ask(150, 6, &[path]).passed()).into();
    // 30 for each path, or its override, until 100 in all. What a path refused took nothing from the others.
    assert_eq!(passed, [30, 40, 30, 0]);
    assert_eq!(fleet.fallbacks(), 0.0);
}

#[test]
fn what_a_service_does_not_get_is_given_back() {
    let rows = [LIMITS[0], LIMITS[2], LIMITS[6], LIMITS[7]];
    let (upstream, limits) = (Upstream::start(), over_paths(&rows));
    let limiter = limiter(&upstream, ANY_PORT, &limits);
    let fleet = askers(&upstream, &patient(limiter.grpc()), &limits);
    let paths = ["/l0", "/l1", "/l2", "/l3"];
    let address = upstream.stop();
    for (limit, path) in rows.iter().zip(paths) {
        let answers = fleet.ask(100, 8, &[path]);
        assert_eq!(answers.passed(), 0, "{limit}");
        assert!(answers.count(502) + answers.count(503) > 0, "{limit}: {:?}", answers.0.first());
    }
    let upstream = Upstream::start_at(address);
    for (limit, path) in rows.iter().zip(paths) {
        let mut passed = 0;
        until(&format!("all units of {limit}"), || {
            passed += fleet.ask(20, 2, &[path]).passed();
            passed >= 40
        });
        assert_eq!(passed + fleet.ask(80, 4, &[path]).passed(), 40, "{limit}");
        assert_eq!((upstream.count(path), fleet.fallbacks()), (40, 0.0), "{limit}");
    }
}

/// A client that leaves before the answer of the limiter arrives takes nothing.
#[test]
fn a_client_that_leaves_takes_nothing() {
    let upstream = Upstream::start();
    let limit = over_all("rate = \"200/day\"");
    let limiter = limiter(&upstream, ANY_PORT, &limit);
    let relay = Relay::to(limiter.grpc());
    let store = patient(relay.address()).replace("5s", "10s");
    let fleet = askers(&upstream, &store, &limit);
    assert_eq!(fleet.ask(100, 4, &["/"]).passed(), 100);
    // Each client leaves after the limiter has charged its request.
    relay.set(Link::Held);
    let request = "GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n";
    let mut clients: Vec<_> = (0..60).map(|index| Client::connect(fleet.weirs[index % ASKERS].address())).collect();
    for client in &mut clients {
        client.send(request);
    }
    let allowed = "weir_grpc_checks_total{result=\"allowed\",service=\"charges\"}";
    limiter.wait_for_metric(allowed, |calls| calls >= 160.0);
    drop(clients);
    for weir in &fleet.weirs {
        weir.wait_for_metric("weir_connections", |open| open == 0.0);
    }
    relay.set(Link::Clear);
    let left = || {
        let question = "GET /v1/keys?limit=all HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = Client::connect(limiter.admin()).send(question).answer();
        serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["remaining"].as_u64()
    };
    until("all refunds", || left() == Some(100));
    fleet.wait_for_stores(true);
    let mut passed = 0;
    until("all units", || {
        passed += fleet.ask(30, 2, &["/"]).passed();
        passed >= 100
    });
    assert_eq!((passed, fleet.ask(300, 4, &["/"]).passed()), (100, 0));
}

/// The real cost, a request that waits, and a limit in shadow mode.
#[test]
fn limits_settle_hold_and_watch() {
    let upstream = Upstream::answering(|request, stream| {
        let cost = request.target()[1..].split('/').next().unwrap_or("0").to_owned();
        let answer = format!("HTTP/1.1 200 OK\r\nx-cost: {cost}\r\ncontent-length: 0\r\n\r\n");
        std::io::Write::write_all(stream, answer.as_bytes()).is_ok()
    });
    let limits = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"1/day\"\nburst = 100\n\
                  settle = { by = \"header:x-cost\" }\n\
                  [[limit]]\nname = \"held\"\nkey = []\nrate = \"10/s\"\nburst = 2\non_limit = \"hold\"\n\
                  match = { path = \"/1/held\" }\n\
                  [[limit]]\nname = \"watched\"\nkey = []\nrate = \"2/day\"\nmode = \"shadow\"\n";
    let limiter = limiter(&upstream, ANY_PORT, limits);
    let fleet = askers(&upstream, &patient(limiter.grpc()), limits);
    let left = |weir: &Weir| {
        let answer = Client::connect(weir.address()).get("/0");
        answer.header("x-ratelimit-remaining").map(|text| text.parse::<i64>().unwrap())
    };
    assert_eq!(Client::connect(fleet.weirs[0].address()).get("/40").status, 200);
    until("the other replica hears of 39 more units", || left(&fleet.weirs[1]).is_some_and(|left| left <= 60));
    let begin = std::time::Instant::now();
    let answers = fleet.ask(8, 4, &["/1/held"]);
    answers.assert_only(&[200]);
    assert!(begin.elapsed() >= Duration::from_millis(500), "eight requests at ten a second, two at once");
    let shadow = fleet.metric("weir_limit_decisions_total{decision=\"shadow_refused\",limit=\"watched\"}");
    assert!(shadow >= 8.0, "{shadow}");
    assert_eq!(fleet.fallbacks(), 0.0);
}

/// A limiter that is killed and comes back without its states: no client sees an error, and no unit is spent twice.
#[test]
fn a_killed_limiter_refills_nothing() {
    let upstream = Upstream::start();
    // So much that units are left when the second one decides, however late it starts.
    let limit = over_all("rate = \"1/h\"\nburst = 300");
    let first = limiter(&upstream, ANY_PORT, &limit);
    let address = first.grpc();
    let fleet = askers(&upstream, &patient(address), &limit);
    assert_eq!(fleet.ask(50, 4, &["/"]).passed(), 50);
    let pace = Duration::from_millis(160);
    let mut second = None;
    let during = fleet.during(4, pace, &["/"], || {
        drop(first);
        fleet.wait_for_stores(false);
        until("decisions without it", || fleet.fallbacks() > 20.0);
        second = Some(limiter(&upstream, &format!("listen = \"{address}\""), &limit));
        fleet.wait_for_stores(true);
    });
    during.assert_only(&[200, 429]);
    let mut passed = 50 + during.passed();
    let mut ask = |requests: usize| {
        let rest = fleet.ask(requests, 4, &["/"]);
        rest.assert_only(&[200, 429]);
        passed += rest.passed();
        passed
    };
    until("almost all units", || ask(50) >= 280);
    ask(100);
    // What was in flight as it was killed, and as it decided again, may count on one side only.
    assert!(passed <= 300 + 16, "{passed} of 300");
    assert!(second.unwrap().metric("weir_grpc_checks_total{result=\"allowed\",service=\"charges\"}") > 0.0);
}

/// A new limiter decides when all replicas have brought their states, or two seconds after its start.
#[test]
fn a_new_limiter_waits_for_all_replicas() {
    let upstream = Upstream::start();
    let limit = over_all("rate = \"1/h\"\nburst = 400");
    let first = limiter(&upstream, ANY_PORT, &limit);
    let address = first.grpc();
    let rest = format!("{}[store.main]\n{}\n{limit}", fleet("\"service\""), patient(address));
    // The other one of two replicas is not there.
    let fleet = Fleet::start(1, &upstream, &rest);
    fleet.wait_for_stores(true);
    drop(first);
    fleet.wait_for_stores(false);
    let begin = std::time::Instant::now();
    let _second = limiter(&upstream, &format!("listen = \"{address}\""), &limit);
    fleet.wait_for_stores(true);
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// A limiter that stops for a while: its breaker opens, and what it charged late is given back.
#[test]
fn a_paused_limiter_charges_nothing_late() {
    let upstream = Upstream::start();
    let limit = over_all("rate = \"1/h\"\nburst = 300");
    let limiter = limiter(&upstream, ANY_PORT, &limit);
    // Longer than a busy machine takes for a call, so that only the pause opens a breaker.
    let store = patient(limiter.grpc()).replace("5s", "1s");
    let fleet = askers(&upstream, &store, &limit);
    assert_eq!(fleet.ask(60, 4, &["/"]).passed(), 60);
    let during = fleet.during(4, Duration::from_millis(10), &["/"], || {
        limiter.signal("STOP");
        fleet.wait_for_stores(false);
        until("decisions without it", || fleet.fallbacks() > 20.0);
        limiter.signal("CONT");
        fleet.wait_for_stores(true);
    });
    during.assert_only(&[200, 429]);
    let mut passed = 60 + during.passed();
    until("all units", || {
        passed += fleet.ask(100, 4, &["/"]).passed();
        passed >= 295
    });
    assert!(passed <= 300 + 8, "{passed} of 300");
}

/// Without the limiter from the start, each replica decides as configured.
#[test]
fn each_mode_decides_at_once() {
    for (on_failure, passed) in [("split", 90), ("local", 180), ("reject", 0), ("allow", 300)] {
        let upstream = Upstream::start();
        let relay = Relay::to("127.0.0.1:9".parse().unwrap());
        relay.set(Link::Reset);
        let store = format!("service = \"http://{}\"\non_failure = \"{on_failure}\"", relay.address());
        let rest = format!("{}[store.main]\n{store}\n{}", fleet("\"service\""), over_all("rate = \"90/day\""));
        let fleet = Fleet::start(ASKERS, &upstream, &rest);
        for weir in &fleet.weirs {
            weir.wait_for_line("a node of a store does not answer");
        }
        let answers = fleet.ask(300, 2, &["/"]);
        answers.assert_only(&[200, 429]);
        assert_eq!(answers.passed(), passed, "{on_failure}");
        assert!(fleet.fallbacks() > 0.0, "{on_failure}");
    }
}

/// A limit that the limiter lacks, or has with another rule, is decided without it, and said so. The others are not.
#[test]
fn a_limit_that_differs_is_decided_here() {
    let upstream = Upstream::start();
    let limits = |rate: &str| {
        format!("{}[[limit]]\nname = \"x\"\nkey = []\nrate = \"{rate}/day\"\n", over_all("rate = \"40/day\""))
    };
    let limiter = limiter(&upstream, ANY_PORT, &limits("999"));
    let other = "[[limit]]\nname = \"y\"\nkey = []\nrate = \"1000/day\"\n";
    let fleet = askers(&upstream, &patient(limiter.grpc()), &format!("{}{other}", limits("1000")));
    assert_eq!(fleet.ask(200, 4, &["/"]).passed(), 40, "the limit that both have is exact");
    assert_eq!(fleet.metric("weir_fallback_decisions_total{limit=\"all\"}"), 0.0);
    for weir in &fleet.weirs {
        for (limit, kind) in [("x", "rule"), ("y", "limit")] {
            weir.wait_for_line(&format!("\"limit\":\"{limit}\""));
            assert!(weir.metric(&format!("weir_store_errors_total{{kind=\"{kind}\",store=\"main\"}}")) > 0.0);
            assert!(weir.metric(&format!("weir_fallback_decisions_total{{limit=\"{limit}\"}}")) > 0.0);
        }
        assert_eq!(weir.metric(&format!("weir_store_up{{node=\"{}\",store=\"main\"}}", limiter.grpc())), 1.0);
    }
}

/// The bound and explanations say that replicas decide a limit alone, until the limiter decides it.
#[test]
fn the_bound_shows_a_limit_that_differs() {
    let upstream = Upstream::start();
    let right = over_all("rate = \"40/day\"");
    let next = Weir::config(&upstream, "", &format!("{}[grpc]\n{ANY_PORT}\n{right}", fleet("\"local\"")));
    let limiter = limiter(&upstream, ANY_PORT, &over_all("rate = \"30/day\""));
    let fleet = askers(&upstream, &format!("{}\non_failure = \"local\"", patient(limiter.grpc())), &right);
    let bound = |weir: &Weir| weir.metric("weir_fleet_bound_ratio{limit=\"all\"}");
    let bounds = || fleet.weirs.iter().map(bound).collect::<Vec<_>>();
    let decided_by = |weir: &Weir| {
        let question = "GET /v1/keys?limit=all HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = Client::connect(weir.admin()).send(question).answer();
        let key = serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap();
        (key["decided_by"].as_str().unwrap().to_owned(), key["remaining"].as_u64())
    };
    let store = format!("(store main, node {})", limiter.grpc());
    assert_eq!(bounds(), [1.0; ASKERS]);
    assert_eq!(fleet.ask(200, 4, &["/"]).passed(), 40 * ASKERS);
    assert_eq!(bounds(), [2.0; ASKERS]);
    for weir in &fleet.weirs {
        let here = format!("this replica, by the whole limit, because the store does not decide {store}");
        assert_eq!(decided_by(weir), (here, Some(0)));
    }
    replace(&limiter.config_file(), &next);
    limiter.wait_for_line("\"reloaded\"");
    for weir in &fleet.weirs {
        assert_eq!(decided_by(weir).0, format!("service {store}"));
    }
    assert_eq!(bounds(), [1.0; ASKERS]);
}

#[test]
fn certificates_and_the_name_are_checked() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let (server, authority) = (Cert::of_hosts(&["localhost"]), Cert::authority());
    server.write(folder.path(), "server");
    authority.write(folder.path(), "authority");
    authority.client("asker", &[], &[]).write(folder.path(), "own");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let grpc = format!(
        "{ANY_PORT}\ntls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}], client_ca = \"{}\" }}",
        path("server.pem"),
        path("server.key"),
        path("authority.pem")
    );
    let limit = over_all("rate = \"20/day\"");
    let limiter = limiter(&upstream, &grpc, &limit);
    let port = limiter.grpc().port();
    let tls = format!("tls.ca = \"{}\"\ntimeout = \"5s\"\n", path("server.pem"));
    let own = format!("tls.cert = \"{}\"\ntls.key = \"{}\"\n", path("own.pem"), path("own.key"));
    let fleet = askers(&upstream, &format!("service = \"https://localhost:{port}\"\n{tls}{own}"), &limit);
    assert_eq!(fleet.ask(60, 4, &["/"]).passed(), 20);
    assert_eq!(fleet.fallbacks(), 0.0);
    for (what, host, lines) in
        [("no certificate", "localhost", tls.clone()), ("another name", "127.0.0.1", format!("{tls}{own}"))]
    {
        let store = format!("[store.main]\nservice = \"https://{host}:{port}\"\n{lines}");
        let config = format!("{}{store}{limit}", self::fleet("\"service\""));
        let refused = Fleet::start(1, &upstream, &config);
        refused.weirs[0].wait_for_line("a node of a store does not answer");
        refused.ask(4, 1, &["/"]).assert_only(&[200]);
        assert!(refused.fallbacks() > 0.0, "{what}");
    }
}

/// Another secret would give other keys.
#[test]
fn another_secret_is_refused() {
    let upstream = Upstream::start();
    let limit = over_all("rate = \"20/day\"");
    let limiter = limiter(&upstream, ANY_PORT, &limit);
    let strategy = format!("{{ use = \"service\", url = \"http://{}\" }}", limiter.grpc());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("weir.toml"),
        Weir::config(&upstream, "", &format!("{}{limit}", fleet(&strategy))),
    )
    .unwrap();
    let weir = Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", "another 6f1e0b7a9d4283bd01f6e2c4a85790")]);
    let line = weir.wait_for_line("a node of a store does not answer");
    assert!(line.contains("the limiter has another fleet.secret") && line.contains("\"kind\":\"login\""), "{line}");
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
}

/// Calls a method.
pub(super) async fn call<Q, A>(client: &mut Grpc<Channel>, method: &'static str, question: Q) -> Result<A, Code>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    let answer = client.unary(Request::new(question), path, ProstCodec::<Q, A>::default()).await;
    answer.map(Response::into_inner).map_err(|status| status.code())
}

/// A caller of the listener that does not know the secret cannot join. Without that it does not know the process.
#[test]
fn a_stranger_charges_nothing() {
    let upstream = Upstream::start();
    let limiter = limiter(&upstream, ANY_PORT, &over_all("rate = \"20/day\""));
    runtime().block_on(async {
        let mut stranger = Grpc::new(channel(limiter.grpc()).await);
        for proof in [None, Some(Key::default()), Some(Key { first: 7 << 2, second: 7 })] {
            // Its states may be longer than other messages.
            let states = vec![KeyState { limit: "x".repeat(500_000), ..KeyState::default() }];
            let joining = JoinRequest { proof, replica: 1, replicas: 1, states, is_complete: true };
            let joined: Result<JoinResponse, _> = call(&mut stranger, "/weir.v1.charges.Charges/Join", joining).await;
            assert_eq!(joined.unwrap_err(), Code::Unauthenticated);
        }
        for process in [0, 1, u64::MAX] {
            let charge = ChargeRequest { process, session: 1, calls: Vec::new() };
            let charged: ChargeResponse = call(&mut stranger, "/weir.v1.charges.Charges/Charge", charge).await.unwrap();
            let correct = CorrectRequest { process, replica: 1, batch: 1, ..CorrectRequest::default() };
            let corrected: CorrectResponse =
                call(&mut stranger, "/weir.v1.charges.Charges/Correct", correct).await.unwrap();
            assert!(!charged.is_decided && !corrected.is_done);
        }
    });
    assert_eq!(limiter.metric("weir_grpc_invalid_total"), 3.0);
}

/// The short form: an address instead of a store.
#[test]
fn an_address_is_enough() {
    let upstream = Upstream::start();
    let limit = over_all("rate = \"30/day\"");
    let limiter = limiter(&upstream, ANY_PORT, &limit);
    let strategy = format!("{{ use = \"service\", url = \"http://{}\" }}", limiter.grpc());
    let fleet = Fleet::start(ASKERS, &upstream, &format!("{}{limit}", fleet(&strategy)));
    fleet.wait_for_stores(true);
    // Its timeout is 10 ms. Each decision that was made without it may count on one side only.
    let (mut passed, without) = (0, || fleet.fallbacks());
    let mut ask = |requests: usize| {
        let answers = fleet.ask(requests, 1, &["/"]);
        answers.assert_only(&[200, 429]);
        passed += answers.passed();
        passed
    };
    until("all units", || ask(10) as f64 + without() >= 30.0);
    let passed = ask(60);
    assert!(passed as f64 <= 30.0 + without(), "{passed} of 30, {} decisions without the limiter", without());
    let body = r#"{"method": "GET", "path": "/", "host": "weir.test", "ip": "127.0.0.1"}"#;
    let head = "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut operator = Client::connect(fleet.weirs[0].admin());
    let name = limiter.grpc().to_string();
    until("the limiter decides", || {
        let answer = operator.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).answer().text();
        answer.contains(&format!("service (store {name}, node {name})"))
    });
    assert!(limiter.metric("weir_grpc_checks_total{result=\"allowed\",service=\"charges\"}") > 0.0);
}
