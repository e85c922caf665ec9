//! The bounds on one client: connections, and requests that wait.

use std::io::Write;

use crate::ops::replace;
use crate::support::{Client, NEVER, Upstream, Weir};

const REFUSED: &str = "weir_client_connections_refused_total";
const PROXIED: &str = "proxy_protocol = { from = [\"127.0.0.1\"] }\nmax_connections_per_ip = 2";

/// A connection that a proxy forwards for `ip`.
fn from(weir: &Weir, ip: &str) -> Client {
    let (kind, to) = if ip.contains(':') { ("TCP6", "::1") } else { ("TCP4", "192.0.2.200") };
    let mut client = Client::connect(weir.address());
    let _ = client.stream().write_all(format!("PROXY {kind} {ip} {to} 1 2\r\n").as_bytes());
    client
}

/// Whether it is served.
fn is_served(client: &mut Client) -> bool {
    let _ = client.stream().write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    client.try_answer().is_some_and(|answer| answer.status == 200)
}

#[test]
fn connections_are_counted_by_address() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "max_connections_per_ip = 3", NEVER);
    let mut open: Vec<_> = (0..3).map(|_| Client::connect(weir.address())).collect();
    assert!(open.iter_mut().all(is_served));
    assert!(!is_served(&mut Client::connect(weir.address())));
    assert_eq!((weir.metric(REFUSED), weir.metric("weir_connections_refused_total")), (1.0, 0.0));
    // A closed connection makes room.
    drop(open.pop());
    weir.wait_for_metric("weir_connections", |open| open == 2.0);
    open.push(Client::connect(weir.address()));
    assert!(open.iter_mut().all(is_served));
}

#[test]
fn the_proxy_header_names_the_client_of_a_connection() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, PROXIED, NEVER);
    let mut open = Vec::new();
    for (ip, served) in [
        ("192.0.2.1", true),
        ("192.0.2.1", true),
        ("192.0.2.1", false),
        ("192.0.2.2", true),
        // One IPv6 network is one client.
        ("2001:db8::1", true),
        ("2001:db8::2", true),
        ("2001:db8::ffff:1", false),
        ("2001:db8:0:1::1", true),
        ("::ffff:192.0.2.1", false),
    ] {
        let mut client = from(&weir, ip);
        assert_eq!(is_served(&mut client), served, "{ip}");
        if served {
            open.push(client);
        }
    }
    assert_eq!(weir.metric(REFUSED), 3.0);
    // The proxy's own checks count to no client.
    for _ in 0..4 {
        let mut client = Client::connect(weir.address());
        let _ = client.stream().write_all(b"PROXY UNKNOWN\r\n");
        assert!(is_served(&mut client));
        open.push(client);
    }
    drop(open);
    weir.wait_for_metric("weir_connections", |open| open == 0.0);
    assert!(is_served(&mut from(&weir, "192.0.2.1")) && is_served(&mut from(&weir, "2001:db8::3")));
}

#[test]
fn connections_of_trusted_proxies_do_not_count_and_a_reload_takes_effect() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "max_connections_per_ip = 2\ntrusted_proxies = [\"127.0.0.1\"]", NEVER);
    let mut open: Vec<_> = (0..5).map(|_| Client::connect(weir.address())).collect();
    assert!(open.iter_mut().all(is_served));
    // The open connections were not counted, and stay open.
    let file = weir.config_file();
    let text = std::fs::read_to_string(&file).unwrap().replace("trusted_proxies = [\"127.0.0.1\"]", "");
    replace(&file, &text);
    let mut more = Vec::new();
    weir.wait_until("no proxy is trusted", || {
        more.push(Client::connect(weir.address()));
        !more.last_mut().is_some_and(is_served)
    });
    assert!(open.iter_mut().all(is_served));
}

/// A request that waits; the trusted proxy names its client.
fn waiting(weir: &Weir, ip: &str, path: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\nx-forwarded-for: {ip}\r\n\r\n"));
    client
}

#[test]
fn one_client_does_not_use_all_places_of_waiting_requests() {
    for bound in ["max_waiting_per_client = 2", "max_waiting_bytes_per_client = \"80B\""] {
        let upstream = Upstream::start();
        let limit = "[[limit]]\nname = \"l\"\nkey = [\"path\"]\nrate = \"1/h\"\non_limit = \"hold\"\n";
        let weir = Weir::start_with(&upstream, "trusted_proxies = [\"127.0.0.1\"]", &format!("{limit}[hold]\n{bound}"));
        let held = |count: f64| weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == count);
        for path in ["/a", "/b", "/c"] {
            assert_eq!(waiting(&weir, "192.0.2.9", path).answer().status, 200);
        }
        // Each request waits for another path, so that no queue is full.
        let mut first = vec![waiting(&weir, "2001:db8::1", "/a"), waiting(&weir, "2001:db8::2", "/b")];
        held(2.0);
        let refused = waiting(&weir, "2001:db8::3", "/c").answer();
        assert_eq!(refused.status, 429, "{bound}");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(weir.metric("weir_hold_overflow_total"), 1.0);
        let _other = waiting(&weir, "192.0.2.1", "/c");
        held(3.0);
        drop(first.pop());
        held(2.0);
        let _again = waiting(&weir, "2001:db8::4", "/c");
        held(3.0);
    }
}
