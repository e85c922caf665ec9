//! The client's address from trusted proxies, in one of two headers.

use crate::support::{Client, NEVER, Upstream, Weir};

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]";
const BY_FORWARDED: &str = "address_header = \"forwarded\"";
const PER_IP: &str = "[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nrate = \"1/h\"";

fn ask(weir: &Weir, lines: &str) -> u16 {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n")).answer().status
}

#[test]
fn the_client_behind_trusted_proxies_is_charged() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, &format!("{TRUSTED}\n{BY_FORWARDED}"), PER_IP);
    for (lines, status) in [
        ("Forwarded: for=192.0.2.1\r\n", 200),
        ("Forwarded: for=192.0.2.1\r\n", 429),
        // Other ports, forms and hops: the same client.
        ("Forwarded: For=\"192.0.2.1:4711\";proto=https, for=10.0.0.9\r\n", 429),
        ("Forwarded: for=6.6.6.6\r\nForwarded: for=\"[::ffff:192.0.2.1]\", for=10.0.0.9\r\n", 429),
        ("Forwarded: for=\", for=192.0.2.1\r\n", 429),
        ("Forwarded: for=\"[2001:db8::1]:80\"\r\n", 200),
        ("Forwarded: for=\"[2001:db8::2]\"\r\n", 429),
        // No address: the proxy itself is the client, whatever else the headers contain.
        ("Forwarded: for=_hidden\r\n", 200),
        ("Forwarded: for=192.0.2.77, for=unknown\r\n", 429),
        ("X-Forwarded-For: 192.0.2.78\r\n", 429),
        ("", 429),
    ] {
        assert_eq!(ask(&weir, lines), status, "{lines}");
    }
}

#[test]
fn the_other_header_is_not_forwarded() {
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
    let sent = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n\
                Forwarded: for=\"[2001:db8::1]\";proto=https\r\n";
    for (server, expected) in [
        (
            format!("forwarded = true\n{TRUSTED}"),
            ["6.6.6.6, 127.0.0.1", "https", "b", "for=6.6.6.6, for=127.0.0.1;host=\"a\";proto=http"],
        ),
        (
            format!("forwarded = true\n{TRUSTED}\n{BY_FORWARDED}"),
            [
                "2001:db8::1, 127.0.0.1",
                "http",
                "a",
                "for=\"[2001:db8::1]\";proto=https, for=127.0.0.1;host=\"a\";proto=http",
            ],
        ),
    ] {
        let upstream = Upstream::start();
        let weir = Weir::start_with(&upstream, &server, NEVER);
        assert_eq!(ask(&weir, sent), 200);
        let received = &upstream.received()[0];
        assert_eq!(names.map(|name| received.header(name).unwrap()), expected);
        assert_eq!(received.head.matches("6.6.6.6").count(), if server.contains("address") { 0 } else { 2 });
    }
}

/// A malformed member or line does not hide the entries of proxies.
#[test]
fn malformed_members_are_dropped() {
    let upstream = Upstream::start();
    let by_x = Weir::start_with(&upstream, TRUSTED, NEVER);
    let by_forwarded = Weir::start_with(&upstream, &format!("forwarded = true\n{TRUSTED}\n{BY_FORWARDED}"), NEVER);
    for (weir, lines, name, expected) in [
        (&by_x, "X-Forwarded-For: \u{e9}, 192.0.2.1\r\n", "x-forwarded-for", "192.0.2.1, 127.0.0.1"),
        (&by_x, "X-Forwarded-For: \u{e9}\r\nX-Forwarded-For: 192.0.2.1\r\n", "x-forwarded-for", "192.0.2.1, 127.0.0.1"),
        (&by_x, "X-Forwarded-For: unknown,, 192.0.2.1,\r\n", "x-forwarded-for", "unknown, 192.0.2.1, 127.0.0.1"),
        (&by_x, "X-Forwarded-For: \u{e9}\r\n", "x-forwarded-for", "127.0.0.1"),
        (
            &by_forwarded,
            "Forwarded: for=\", for=192.0.2.1;by=10.0.0.1, for=10.0.0.2\r\n",
            "forwarded",
            "for=192.0.2.1;by=10.0.0.1, for=10.0.0.2, for=127.0.0.1;host=\"a\";proto=http",
        ),
        (
            &by_forwarded,
            "Forwarded: for=\"\u{e9}\", x, for=192.0.2.1\r\n",
            "forwarded",
            "for=192.0.2.1, for=127.0.0.1;host=\"a\";proto=http",
        ),
    ] {
        assert_eq!(ask(weir, lines), 200);
        assert_eq!(upstream.received().pop().unwrap().header(name).as_deref(), Some(expected), "{lines}");
    }
}
