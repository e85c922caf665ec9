//! Clients by the network of their address: keys, taps, rankings, and changes of many keys or bans at once.

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

fn send(weir: &Weir, target: &str) -> Answer {
    Client::connect(weir.admin()).send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer()
}

fn read(weir: &Weir, target: &str) -> Value {
    let answer = send(weir, target);
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
    assert_eq!(send(&weir, "/v1/keys?limit=networks&key=203.0.113.0/25").status, 400);
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
