//! Streams of a limit in units of bodies, however they end: each is settled once, by what came.

use http::Request;
use http_body_util::Empty;

use crate::body_units::{models, spent, tokens, wait_for_spent};
use crate::fleet_stream::Replicas;
use crate::ops::until;
use crate::support::{Client, Fleet, Redis, Upstream, Weir, over_h2};

/// A stream that stops behind its first event, which names 2051 tokens.
const STREAM: &str = "/messages?events=1";
const NAMED: u64 = 2051;

fn limit() -> String {
    tokens("{ by = \"anthropic\" }\ncost = 400")
}

/// Opens the stream, and reads its event.
fn open(weir: &Weir) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {STREAM} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(client.head().unwrap().status, 200);
    let mut seen = Vec::new();
    while !seen.ends_with(b"\n\n\r\n") {
        seen.extend(client.read(1));
    }
    client
}

#[test]
fn a_stream_that_takes_too_long_pays_for_what_came() {
    let upstream = models();
    for timeout in ["body_idle", "total"] {
        let weir = Weir::start(&upstream, &format!("[timeouts]\n{timeout} = \"2s\"\n{}", limit()));
        let client = open(&weir);
        wait_for_spent(&weir, NAMED);
        drop(client);
        over_h2(weir.address(), async |mut client, _| {
            client.get(STREAM).await.unwrap_err();
        });
        wait_for_spent(&weir, 2 * NAMED);
    }
}

#[test]
fn a_shutdown_settles_open_streams_before_the_snapshot() {
    let upstream = models();
    let state = tempfile::tempdir().unwrap();
    let snapshot = format!("[snapshot]\npath = \"{}\"\ninterval = \"1h\"\n", state.path().join("state").display());
    let start = || Weir::start_with(&upstream, "shutdown_grace = \"100ms\"", &format!("{snapshot}{}", limit()));
    let weir = start();
    let client = open(&weir);
    over_h2(weir.address(), async |mut over_h2, _| {
        let answer = over_h2.send(Request::get(format!("http://a{STREAM}")), Empty::new()).await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        weir.signal("TERM");
        tokio::task::block_in_place(|| assert_eq!(weir.wait(), Some(0)));
    });
    drop(client);
    wait_for_spent(&start(), 2 * NAMED);
}

#[test]
fn a_successor_hears_of_streams_that_end_in_the_old_process() {
    let upstream = models();
    let folder = tempfile::tempdir().unwrap();
    let takeover = format!("takeover = \"{}\"", folder.path().join("takeover.sock").display());
    let config = Weir::config(&upstream, &takeover, &limit());
    let old = Weir::start_as(&config);
    let clients = [open(&old), open(&old)];
    let new = Weir::start_as(&config);
    new.wait_for_line("\"took over\"");
    old.wait_for_line("\"handed over\"");
    // Their reservations.
    assert_eq!(spent(&new), 2 * 400);
    drop(clients);
    wait_for_spent(&new, 2 * NAMED);
}

/// A stream of a killed process costs its reservation, which comes back at the rate of the limit.
#[test]
fn a_crash_costs_at_most_the_reservations() {
    let upstream = models();
    let state = tempfile::tempdir().unwrap();
    let snapshot = format!("[snapshot]\npath = \"{}\"\ninterval = \"5ms\"\n", state.path().join("state").display());
    let config = format!("{snapshot}{}", limit());
    let weir = Weir::start(&upstream, &config);
    let clients = [open(&weir), open(&weir)];
    until("the snapshot", || state.path().join("state").exists());
    weir.signal("KILL");
    weir.wait();
    drop(clients);
    assert!(spent(&Weir::start(&upstream, &config)) <= 2 * 400);
}

/// Nothing stays reserved by a replica that was killed: a request that needs the whole budget is refused by the other
/// replica before, once that has `heard` of the reservation, and passes later.
#[track_caller]
fn comes_back(mut fleet: Fleet, heard: impl FnOnce(&Weir)) {
    let client = open(&fleet.weirs[0]);
    heard(&fleet.weirs[1]);
    assert_eq!(Client::connect(fleet.weirs[1].address()).get("/").status, 429);
    fleet.weirs[0].signal("KILL");
    drop((client, fleet.weirs.remove(0)));
    until("the whole budget", || Client::connect(fleet.weirs[0].address()).get("/").status == 200);
}

/// A reservation is the whole budget, which takes four seconds to come back.
const WHOLE: &str = "rate = \"100/s\"\nburst = 400\ncost = 400\nsettle = { by = \"anthropic\", default = 400 }\n";

fn fleet(strategy: &str) -> String {
    format!("[fleet]\nstrategy = \"{strategy}\"\nreplicas = 2\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n")
}

#[test]
fn a_reservation_in_redis_ends_with_its_replica() {
    let (redis, upstream) = (Redis::start(), models());
    for strategy in ["redis", "lease"] {
        let store = format!("[store.main]\nredis = [\"{}\"]\ntimeout = \"5s\"\n", redis.url());
        let limit = format!("[[limit]]\nname = \"{strategy}\"\nkey = []\n{WHOLE}");
        let fleet = Fleet::start(2, &upstream, &format!("{}{store}{limit}", fleet(strategy)));
        fleet.wait_for_stores(true);
        comes_back(fleet, |_| {});
    }
}

#[test]
fn a_reservation_of_a_limiter_ends_with_its_replica() {
    let upstream = models();
    let limit = format!("[[limit]]\nname = \"all\"\nkey = []\n{WHOLE}");
    let config = format!("{}[grpc]\nlisten = \"127.0.0.1:0\"\n{limit}", fleet("local"));
    let limiter = Fleet::start(1, &Upstream::start(), &config);
    let store = format!("[store.main]\nservice = \"http://{}\"\ntimeout = \"5s\"\n", limiter.weirs[0].grpc());
    let fleet = Fleet::start(2, &upstream, &format!("{}{store}{limit}", fleet("service")));
    fleet.wait_for_stores(true);
    comes_back(fleet, |_| {});
}

#[test]
fn a_reservation_in_a_stream_ends_with_its_replica() {
    let fleet = Replicas::start(2, &models(), "isolate_after = \"30s\"", WHOLE).fleet;
    comes_back(fleet, |other| {
        until("the reservation", || {
            let answer = other.ask_admin("GET", "/v1/keys?limit=all&key=", &serde_json::Value::Null);
            let key: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            key["remaining"].as_u64().is_some_and(|remaining| remaining < 400)
        });
    });
}
