//! Clients by the network of their address: keys, taps, rankings, and changes of many keys or bans at once.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = r#"
[[limit]]
name = "networks"
key = ["ip/24/48"]
rate = "3/h"
overrides = { "198.51.100.0/24" = "1/h" }
"#;

/// The status of a request of the client `ip`.
fn ask(weir: &Weir, ip: &str) -> u16 {
    ask_on(&mut Client::connect(weir.address()), ip)
}

fn ask_on(client: &mut Client, ip: &str) -> u16 {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {ip}\r\n\r\n")).answer().status
}

fn send(weir: &Weir, method: &str, target: &str) -> Answer {
    Client::connect(weir.admin()).send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer()
}

/// The JSON that a command prints.
fn asked(weir: &Weir, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(arguments).args(["--json", "--admin", &weir.admin().to_string()]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn read(weir: &Weir, target: &str) -> Value {
    let answer = send(weir, "GET", target);
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\"]\n";

#[test]
fn a_key_counts_networks() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, TRUSTED, LIMITS);
    for (ip, status) in [
        ("203.0.113.1", 200),
        ("203.0.113.2", 200),
        ("203.0.113.255", 200),
        ("203.0.113.1", 429),
        ("203.0.114.1", 200),
        ("2001:db8:1:1::1", 200),
        ("2001:db8:1:2::1", 200),
        ("2001:db8:1:3::1", 200),
        ("2001:db8:1:4::1", 429),
        ("2001:db8:2::1", 200),
        ("198.51.100.1", 200),
        ("198.51.100.2", 429),
    ] {
        assert_eq!(ask(&weir, ip), status, "{ip}");
    }
    for (key, shown, remaining) in [
        ("203.0.113.0/24", "203.0.113.0/24", 0),
        ("203.0.113.77", "203.0.113.0/24", 0),
        ("203.0.114.0/24", "203.0.114.0/24", 2),
        ("2001:db8:1::/48", "2001:db8:1::/48", 0),
    ] {
        let found = read(&weir, &format!("/v1/keys?limit=networks&key={key}"));
        assert_eq!((&found["key"]["ip/24/48"], &found["remaining"]), (&json!(shown), &json!(remaining)), "{key}");
    }
    assert_eq!(send(&weir, "GET", "/v1/keys?limit=networks&key=203.0.113.0/25").status, 400);
}

#[test]
fn one_prefix_makes_a_network_one_client() {
    let upstream = Upstream::start();
    let limits = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"2/h\"\n";
    let weir = Weir::start_with(&upstream, &format!("{TRUSTED}ipv4_prefix = 16\n"), limits);
    let statuses = ["203.0.113.1", "203.0.1.1", "203.0.255.9", "203.1.0.1"].map(|ip| ask(&weir, ip));
    assert_eq!(statuses, [200, 200, 429, 200]);
    assert_eq!(read(&weir, "/v1/keys?limit=l&key=203.0.0.0/16")["key"]["ip"], "203.0.0.0/16");
}

/// Two units an hour for each address; a ban after four refusals.
const BANNING: &str = r#"
[[limit]]
name = "per-ip"
key = ["ip"]
rate = "2/h"
ban = { after = "4/h", for = "1h" }

[[limit]]
name = "calm"
key = ["ip"]
rate = "1000/day"

[[limit]]
name = "in-flight"
key = ["ip"]
algorithm = "concurrency"
max = 9
"#;

#[test]
fn networks_are_ranked_by_refusals_of_the_last_minute() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, TRUSTED, BANNING);
    let mut client = Client::connect(weir.address());
    for host in 1..=4 {
        (0..4).for_each(|_| _ = ask_on(&mut client, &format!("203.0.113.{host}")));
    }
    (0..5).for_each(|_| _ = ask_on(&mut client, "2001:db8:1:7::1"));
    let top = read(&weir, "/v1/top?n=2");
    let network = |key: &str, count: u64| json!({ "key": key, "count": count, "error": 0, "last_minute": count });
    assert_eq!(top["networks"], json!([network("203.0.113.0/24", 8), network("2001:db8:1::/48", 3)]));
    assert_eq!(top["limits"][0]["keys"][0], network("2001:db8:1:7::/64", 3));
    // An address that an operator bans counts, too.
    let ban = ["bans", "add", "--address", "198.51.100.0/24", "--for", "1h"];
    assert_eq!(asked(&weir, &ban)["ban"]["address"], "198.51.100.0/24");
    (0..9).for_each(|_| assert_eq!(ask(&weir, "198.51.100.7"), 403));
    assert_eq!(read(&weir, "/v1/top")["networks"][0], network("198.51.100.0/24", 9));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let by_network = ["top", "--by", "network", "--once", "--admin", &weir.admin().to_string()];
    let shown = String::from_utf8(command.args(by_network).output().unwrap().stdout).unwrap();
    assert!(shown.contains("any    203.0.113.0/24   8            8"), "{shown}");
    assert!(!shown.contains("2001:db8:1:7::/64"), "{shown}");
}

#[test]
fn a_tap_follows_a_network() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, TRUSTED, BANNING);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let tap = ["tap", "--client", "203.0.113.0/24", "-n", "2", "--json", "--admin", &weir.admin().to_string()];
    let tap = command.args(tap).stdout(std::process::Stdio::piped()).spawn().unwrap();
    weir.wait_for_metric("weir_taps", |open| open == 1.0);
    for ip in ["203.0.112.255", "203.0.113.1", "203.0.114.1", "2001:db8::1", "203.0.113.255"] {
        ask(&weir, ip);
    }
    let output = tap.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let client = |line: &str| serde_json::from_str::<Value>(line).unwrap()["client"].as_str().unwrap().to_owned();
    assert_eq!(lines.lines().map(client).collect::<Vec<_>>(), ["203.0.113.1", "203.0.113.255"]);
    let refused = send(&weir, "GET", "/v1/tap?client=203.0.113.0/33");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("client: expected an address or a network"), "{}", refused.text());
}

#[test]
fn all_keys_of_a_limit_are_reset() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, TRUSTED, BANNING);
    let all = [1, 2, 3].map(|host| format!("203.0.113.{host}"));
    let ask_all = || all.clone().map(|ip| ask(&weir, &ip));
    assert_eq!([ask_all(), ask_all(), ask_all()], [[200; 3], [200; 3], [429; 3]]);
    let reset = asked(&weir, &["keys", "reset", "per-ip", "--all", "--reason", "our fault"]);
    assert_eq!(reset, json!({ "limit": "per-ip", "reset": 3, "more": 0 }));
    assert_eq!([ask_all(), ask_all(), ask_all()], [[200; 3], [200; 3], [429; 3]]);
    // Another limit keeps what it has counted: all or none, so refused requests are not charged.
    assert_eq!(read(&weir, "/v1/keys?limit=calm&key=203.0.113.1")["remaining"], 996);
    assert_eq!(asked(&weir, &["keys", "reset", "calm", "--all"])["reset"], 3);
    assert_eq!(asked(&weir, &["keys", "reset", "calm", "--all"])["reset"], 0);
    for (target, status, detail) in [
        ("/v1/keys/all?limit=in-flight", 400, "requests in flight"),
        ("/v1/keys/all?limit=per-ipp", 404, "there are `per-ip`, `calm`"),
        ("/v1/keys/all?limit=per-ip&key=1", 400, "unknown field `key`"),
        ("/v1/keys/all", 400, "missing field `limit`"),
    ] {
        let answer = send(&weir, "DELETE", target);
        assert_eq!(answer.status, status, "{target}");
        assert!(answer.text().contains(detail), "{target}: {}", answer.text());
    }
}

#[test]
fn all_bans_of_a_limit_or_a_network_are_lifted() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, TRUSTED, BANNING);
    let all = [1, 2, 3].map(|host| format!("203.0.113.{host}"));
    for ip in &all {
        (0..7).for_each(|_| _ = ask(&weir, ip));
    }
    let ask_all = || all.clone().map(|ip| ask(&weir, &ip));
    assert_eq!(ask_all(), [403; 3]);
    asked(&weir, &["bans", "add", "per-ip", "192.0.2.1", "--forever"]);
    let lifted = asked(&weir, &["bans", "lift", "--limit", "per-ip", "--all", "--reason", "our fault"]);
    assert_eq!(lifted, json!({ "by_operators": 1, "by_limit": 3, "not_kept": lifted["not_kept"] }));
    assert_eq!((ask_all(), ask(&weir, "192.0.2.1")), ([429; 3], 200));
    for address in ["198.51.100.7", "198.51.100.64/26", "198.51.101.0/24"] {
        asked(&weir, &["bans", "add", "--address", address, "--for", "1h"]);
    }
    let one = send(&weir, "DELETE", "/v1/bans?address=198.51.100.0/24");
    assert_eq!(one.status, 404);
    assert!(one.text().contains("2 bans are within this network"), "{}", one.text());
    let lifted = asked(&weir, &["bans", "lift", "--address", "198.51.100.0/24", "--all"]);
    assert_eq!((&lifted["by_operators"], &lifted["by_limit"]), (&json!(2), &json!(0)));
    assert_eq!(["198.51.100.7", "198.51.100.65", "198.51.101.1"].map(|ip| ask(&weir, ip)), [200, 200, 403]);
    for (target, status) in [
        ("/v1/bans/all", 400),
        ("/v1/bans/all?limit=per-ip&address=192.0.2.0/24", 400),
        ("/v1/bans/all?address=here", 400),
        ("/v1/bans/all?limit=none", 404),
        ("/v1/bans/all?address=192.0.2.0/24", 200),
    ] {
        assert_eq!(send(&weir, "DELETE", target).status, status, "{target}");
    }
}
