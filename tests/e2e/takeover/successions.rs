//! Processes that take over as they should.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;

use serde_json::{Value, json};

use super::{Place, fails, left, status};
use crate::ops::until;
use crate::support::{Client, PATIENCE, Upstream, Weir, free_port};
use crate::upstreams::{asked, endpoint};

/// One that a snapshot would not keep, one by client, one that holds, and one that bans.
const LIMITS: &str = "\
[[limit]]
name = \"brief\"
key = [\"query:who\"]
rate = \"5/h\"
match = { path = \"/brief\" }

[[limit]]
name = \"held\"
key = []
rate = \"1/8s\"
burst = 1
on_limit = \"hold\"
match = { path = \"/held\" }

[[limit]]
name = \"logins\"
key = [\"query:who\"]
rate = \"1/h\"
match = { path = \"/login\" }
ban = { after = \"2/h\", for = \"1h\" }
";

#[test]
fn the_next_goes_on_where_the_last_was() {
    let place = Place::new(LIMITS);
    let old = place.start();
    assert_eq!(fs::metadata(place.socket()).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!((left(&old, "/brief?who=a"), left(&old, "/brief?who=a")), (Some(4), Some(3)));
    let statuses: Vec<_> = (0..4).map(|_| status(&old, "/login?who=a")).collect();
    assert_eq!(statuses, [200, 429, 429, 403]);
    let mut idle = Client::connect(old.address());
    assert_eq!(idle.get("/").status, 200);
    assert_eq!(status(&old, "/held"), 200);
    let mut held = Client::connect(old.address());
    held.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n");
    old.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 1.0);

    let new = place.start();
    new.wait_for_line("\"took over\"");
    assert_eq!((new.address(), new.admin()), (old.address(), old.admin()));
    old.wait_for_line("\"handed over\"");
    assert_eq!((left(&new, "/brief?who=a"), left(&new, "/brief?who=b")), (Some(2), Some(4)));
    assert_eq!((status(&new, "/login?who=a"), status(&new, "/login?who=b")), (403, 200));
    // A client that was idle is answered by the old one, who was in hand too, and both are told to go.
    for answer in [idle.get("/brief?who=a"), held.answer()] {
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    }
    old.wait_for_line("\"stopped\"");
    assert_eq!(old.wait(), Some(0));
    // It told of what it charged.
    new.wait_for_line("the predecessor has ended");
    assert_eq!(left(&new, "/brief?who=a"), Some(0));
    assert_eq!(status(&new, "/brief?who=a"), 429);
    assert!(place.socket().exists());
    new.signal("TERM");
    assert_eq!(new.wait(), Some(0));
    assert!(!place.socket().exists());
}

/// The process id in a line of the log.
fn pid_in(line: &str) -> u64 {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["pid"].as_u64().unwrap()
}

#[test]
fn each_successor_names_the_process_before_it() {
    let place = Place::new("");
    let mut old = place.start();
    for _ in 0..3 {
        let new = place.start();
        assert_eq!(pid_in(&new.wait_for_line("\"took over\"")), u64::from(old.pid()));
        assert_eq!(pid_in(&old.wait_for_line("\"handed over\"")), u64::from(new.pid()));
        assert_eq!(pid_in(&new.wait_for_line("the predecessor has ended")), u64::from(old.pid()));
        assert_eq!(old.wait(), Some(0));
        old = new;
    }
}

/// A process with a request that ends once the sender is dropped.
fn busy(rest: &str) -> (Place, Weir, Client<TcpStream>, Sender<()>) {
    let (upstream, may_end) = Upstream::slow();
    let place = Place { upstream, ..Place::new(rest) };
    let weir = place.start();
    let mut running = Client::connect(weir.address());
    running.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n");
    place.upstream.wait_until(|upstream| upstream.received_count() == 1);
    (place, weir, running, may_end)
}

#[test]
fn a_signal_waits_for_no_predecessor() {
    let (place, first, mut running, may_end) = busy("");
    let second = place.start();
    first.wait_for_line("\"handed over\"");
    second.signal("TERM");
    second.wait_for_line("\"stopped\"");
    assert!(!second.lines().iter().any(|line| line.contains("the grace period is over")));
    drop(may_end);
    assert_eq!((running.answer().status, first.wait(), second.wait()), (200, Some(0), Some(0)));
}

/// A process that has given way ends after its own predecessor, so that the newest one hears of all charges.
#[test]
fn charges_of_the_first_process_reach_the_third() {
    let settle = "[[limit]]\nname = \"bytes\"\nkey = []\nrate = \"1000/day\"\nsettle = { by = \"response_bytes\" }\n";
    let (place, first, mut running, may_end) = busy(settle);
    let second = place.start();
    first.wait_for_line("\"handed over\"");
    let third = place.start();
    second.wait_for_line("\"handed over\"");
    let before = left(&third, "/").unwrap();
    drop(may_end);
    let answer = running.answer();
    assert_eq!((answer.status, first.wait(), second.wait()), (200, Some(0), Some(0)));
    third.wait_for_line("the predecessor has ended");
    // The five bytes of the slow response replace the unit that the request took, and the look takes one.
    assert_eq!(left(&third, "/"), Some(before - 5));
}

#[test]
fn a_snapshot_is_the_business_of_one() {
    let limit = "[[limit]]\nname = \"spent\"\nkey = []\nrate = \"10/day\"\n";
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("state");
    let place = Place::new(&format!("[snapshot]\npath = \"{}\"\ninterval = \"5ms\"\n{limit}", path.display()));
    let old = place.start();
    assert_eq!(left(&old, "/"), Some(9));
    let mut running = Client::connect(old.address());
    assert_eq!(running.get("/").header("x-ratelimit-remaining"), Some("8"));
    let new = place.start();
    new.wait_for_line("limits continue from the predecessor");
    assert_eq!(left(&new, "/"), Some(7));
    assert_eq!(running.get("/").status, 200);
    assert_eq!(old.wait(), Some(0));
    new.wait_for_line("the predecessor has ended");
    // What the old one would have written at its end is not there.
    assert_eq!(left(&new, "/"), Some(5));
    // The first of two more may have been begun before. Lines of the log may come late, so they do not count here.
    let written = || fs::metadata(&path).and_then(|file| file.modified()).unwrap();
    for _ in 0..2 {
        let last = written();
        until("a snapshot", || written() != last);
    }
    new.signal("KILL");
    new.wait();
    let next = place.start();
    assert_eq!(left(&next, "/"), Some(4));
}

#[test]
fn other_places_and_other_workers_are_no_obstacle() {
    let place = Place::new("");
    let unix = place.folder.path().join("weir.sock");
    let gone = place.folder.path().join("gone.sock");
    let config = |listen: &str, workers: usize| {
        let config = place.config(&format!("workers = {workers}"));
        config.replacen("listen = \"127.0.0.1:0\"", &format!("listen = [\"127.0.0.1:0\", {listen}]"), 1)
    };
    let unix_line = format!("\"unix:{}\"", unix.display());
    let old = Weir::start_as(&config(&format!("{unix_line}, \"unix:{}\"", gone.display()), 3));
    let asks = || {
        let stream = UnixStream::connect(&unix).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::over(stream).get("/").status
    };
    assert_eq!(asks(), 200);
    let address = old.address();
    let mut last = old;
    for workers in [1, 4, 2] {
        let next = Weir::start_as(&config(&unix_line, workers));
        assert_eq!(next.address(), address);
        last.wait_for_line("\"stopped\"");
        assert_eq!(last.wait(), Some(0));
        for _ in 0..20 {
            assert_eq!((asks(), status(&next, "/")), (200, 200), "{workers} workers");
        }
        last = next;
    }
    assert!(!gone.exists() && UnixStream::connect(&gone).is_err(), "nobody took it");
    // Another place for the next to ask, too.
    let moved = place.folder.path().join("moved.sock");
    let new = config(&unix_line, 2).replace(place.socket().to_str().unwrap(), moved.to_str().unwrap());
    let said = fails(&new, 1);
    assert!(said.starts_with("weir: cannot listen on unix:"), "{said}");
    assert!(!moved.exists() && asks() == 200);
    last.signal("TERM");
    assert_eq!(last.wait(), Some(0));
    until("nobody listens", || TcpStream::connect(address).is_err());
}

/// The kernel does not change whether a bound socket of `[::]` has the port of IPv4, too.
#[test]
fn both_families_have_one_port() {
    let (both, local) = (["0.0.0.0", "[::]"].as_slice(), ["127.0.0.1", "[::]"].as_slice());
    let only_v6 = ["[::]"].as_slice();
    for hosts in [[both, both, only_v6, both], [only_v6, both, only_v6, both], [local, local, local, local]] {
        let (place, port) = (Place::new(""), free_port());
        let mut last = None;
        for hosts in hosts {
            let addresses: Vec<_> = hosts.iter().map(|host| format!("{host}:{port}")).collect();
            let config = place.config("").replacen("\"127.0.0.1:0\"", &format!("{addresses:?}"), 1);
            let next = Weir::start_as(&config);
            if let Some(last) = last.replace(next) {
                assert_eq!(last.wait(), Some(0));
            }
            for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
                for _ in 0..4 {
                    assert_eq!(Client::connect(address.parse().unwrap()).get("/").status, 200, "{hosts:?} {address}");
                }
            }
        }
    }
}

#[test]
fn clients_of_all_addresses_leave_a_port_of_ipv4_to_operators() {
    let (place, port) = (Place::new(""), free_port());
    let config = place.config("").replacen("127.0.0.1:0", &format!("[::]:{port}"), 1);
    let config = config.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
    let _processes = [(); 2].map(|()| {
        let weir = Weir::start_as(&config);
        assert_eq!(Client::connect(format!("[::1]:{port}").parse().unwrap()).get("/").status, 200);
        assert_eq!(weir.metric("weir_requests_total{verdict=\"forwarded\"}"), 1.0);
        weir
    });
}

#[test]
fn alone_it_starts_as_ever() {
    let place = Place::new("");
    // What a process that was killed leaves behind.
    drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
    let weir = place.start();
    assert_eq!(status(&weir, "/"), 200);
    assert_eq!(fs::metadata(place.socket()).unwrap().permissions().mode() & 0o7777, 0o600);
    let other = Upstream::start();
    let elsewhere = Weir::start(&other, "");
    assert_eq!(status(&elsewhere, "/"), 200);
}

#[test]
fn a_drained_endpoint_stays_drained() {
    let place = Place::new(LIMITS);
    let old = place.start();
    let url = place.upstream.address().to_string();
    let drained =
        asked(&old, &["upstreams", "drain", "upstream", &url, "--for", "1h", "--reason", "new disk", "--force"]);
    assert_eq!((&drained["endpoints"][0]["state"], status(&old, "/")), (&"drained".into(), 503));
    let new = place.start();
    new.wait_for_line("\"took over\"");
    let inherited = endpoint(&new, 0);
    assert_eq!(
        (&inherited["state"], &inherited["why"], status(&new, "/")),
        (&"drained".into(), &"new disk".into(), 503)
    );
    assert_eq!(inherited["until"], drained["endpoints"][0]["until"]);
    asked(&new, &["upstreams", "undrain", "upstream", &url]);
    assert_eq!(status(&new, "/"), 200);
}

/// A ban is in force at the successor, or it is not answered.
#[test]
fn no_ban_is_set_where_nobody_is_served() {
    let place = Place::new(LIMITS);
    let file = place.folder.path().join("bans");
    let config = place.config("").replace("[admin]\n", &format!("[admin]\nbans = \"{}\"\n", file.display()));
    let old = Weir::start_as(&config);
    let ban = |address: &str| json!({ "address": address, "for": "forever" });
    assert_eq!(old.ask_admin("POST", "/v1/bans", &ban("192.0.2.1")).status, 200);
    let mut operator = Client::connect(old.admin());
    assert_eq!(operator.send("GET /v1/bans HTTP/1.1\r\nhost: localhost\r\n\r\n").answer().status, 200);
    assert_eq!(status(&old, "/held"), 200);
    let mut held = Client::connect(old.address());
    held.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n");
    old.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 1.0);

    let new = Weir::start_as(&config);
    old.wait_for_line("\"handed over\"");
    let body = ban("192.0.2.2").to_string();
    operator.send(format!(
        "POST /v1/bans HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert!(operator.try_answer().is_none());
    assert_eq!(held.answer().status, 200);
    assert_eq!(new.ask_admin("POST", "/v1/bans", &ban("192.0.2.3")).status, 200);
    let bans = new.ask_admin("GET", "/v1/bans", &Value::Null).text();
    assert_eq!(["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|address| bans.contains(address)), [true, false, true]);
}
