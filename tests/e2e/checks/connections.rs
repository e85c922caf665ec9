//! Connections of those that ask: their addresses, bytes, number, TLS and sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::{Asked, GET, config, connect, detail, start, stranger};
use crate::ops::replace;
use crate::support::{Cert, Client, PATIENCE, Upstream, Weir, connect_tls, trusting};

/// A limit of one request, to see what is charged.
const ONCE: &str = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\n";

#[test]
fn only_trusted_proxies_may_ask() {
    let weir = start(ONCE);
    let body = "{\"method\": \"GET\", \"path\": \"/\", \"host\": \"\", \"address\": \"192.0.2.1\"}";
    let posted = format!("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    for bytes in [GET.bytes("/auth"), posted, GET.bytes("/other"), GET.bytes("/auth")] {
        let mut client = stranger(weir.checks());
        let answer = client.send(bytes).answer();
        assert_eq!((answer.status, answer.header("connection")), (403, Some("close")));
        assert_eq!(detail(&answer), "the address of this peer is not in server.trusted_proxies");
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(weir.metric("weir_problems_total{kind=\"untrusted_peer\"}"), 4.0);
    // Nothing was charged.
    assert_eq!(GET.ask(&mut connect(&weir)).status, 200);
}

#[test]
fn what_does_not_describe_a_request_is_refused() {
    let weir = start(ONCE);
    let mut client = connect(&weir);
    let good = GET.bytes("/auth");
    let without = |name: &str| {
        let lines = good.split_inclusive("\r\n").filter(|line| !line.starts_with(name));
        lines.collect::<String>()
    };
    for (bytes, status, what) in [
        (without("X-Forwarded-Method"), 400, "x-forwarded-method: missing; the proxy that asks must set it"),
        (without("X-Forwarded-Uri"), 400, "x-forwarded-uri: missing; the proxy that asks must set it"),
        (without("X-Forwarded-Host"), 400, "x-forwarded-host: missing; the proxy that asks must set it"),
        (without("X-Forwarded-For"), 400, "x-forwarded-for: missing; the proxy that asks must set it"),
        (
            good.replace("Uri: /", "Uri: http://a/"),
            400,
            "x-forwarded-uri: expected a path, with the query if there is one",
        ),
        (good.replace("\r\n\r\n", "\r\nX-Forwarded-Uri: /\r\n\r\n"), 400, "x-forwarded-uri: more than one"),
        (good.replace("Method: GET", "Method: CONNECT"), 405, "CONNECT is not supported"),
        (
            GET.bytes("/auth?refuse=200"),
            400,
            "the only parameter is refuse=STATUS, once, with a status from 400 to 599",
        ),
        (GET.bytes("/auth?id=7"), 400, "the only parameter is refuse=STATUS, once, with a status from 400 to 599"),
        (GET.bytes("/"), 404, "the paths are /auth and /v1/check"),
        (GET.bytes("/auth/login"), 404, "the paths are /auth and /v1/check"),
    ] {
        let answer = client.send(&bytes).answer();
        assert_eq!((answer.status, &*detail(&answer)), (status, what), "{bytes}");
        if status == 405 {
            assert!(answer.header("allow").is_some_and(|methods| methods.starts_with("GET, HEAD, POST")), "{bytes}");
            client = connect(&weir);
        }
    }
    // A body that a proxy forgot is not needed.
    let with_body = good.replacen("Host", "Content-Length: 5\r\nHost", 1) + "hello";
    assert_eq!(client.send(with_body).answer().status, 200);
    assert_eq!(GET.ask(&mut client).status, 429);
}

#[test]
fn bytes_that_are_no_http_end_the_connection() {
    let weir = start(ONCE);
    for (bytes, status) in [
        ("GET /auth HTTP/1.1\r\n\r\n", Some(400)),
        ("GET /auth HTTP/1.1\nHost: a\n\n", Some(400)),
        ("GET /auth HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Some(400)),
        // HTTP/2 is not spoken here.
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(400)),
        ("PROXY TCP4 192.0.2.1 127.0.0.1 1 2\r\n", Some(400)),
        ("\x16\x03\x01\x00\x05hello\r\n", Some(400)),
        (&format!("GET /auth?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(10_000)), Some(414)),
        (&format!("GET /auth HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(40_000)), Some(431)),
    ] {
        let mut client = connect(&weir);
        client.send(bytes).finish();
        assert_eq!(client.try_answer().map(|answer| answer.status), status, "{bytes:.60}");
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(GET.ask(&mut connect(&weir)).status, 200);
}

#[test]
fn a_connection_carries_many_checks_of_http_1() {
    let weir = start("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1000/day\"\n");
    let mut client = connect(&weir);
    client.send(GET.bytes("/auth").repeat(3));
    for left in ["999", "998", "997"] {
        assert_eq!(client.answer().header("x-ratelimit-remaining"), Some(left));
    }
    // nginx asks by HTTP/1.0, unless it is told otherwise.
    let old = client.send(GET.bytes("/auth").replacen("HTTP/1.1", "HTTP/1.0", 1)).answer();
    assert_eq!((old.status, old.header("connection")), (200, Some("close")));
    assert_eq!(client.rest(), b"");
}

#[test]
fn the_number_of_connections_is_bounded_apart() {
    let upstream = Upstream::start();
    let check = "[check]\nlisten = \"127.0.0.1:0\"\nmax_connections = 1\n";
    let server = "trusted_proxies = [\"127.0.0.1\"]\nmax_connections = 1\n";
    let weir = Weir::start_with(&upstream, server, check);
    let (mut asking, mut client) = (connect(&weir), Client::connect(weir.address()));
    assert_eq!([GET.ask(&mut asking).status, client.get("/").status], [200, 200]);
    for address in [weir.checks(), weir.address()] {
        assert_eq!(Client::connect(address).rest(), b"");
    }
    assert_eq!(weir.metric("weir_connections_refused_total"), 2.0);
    drop(asking);
    weir.wait_for_metric("weir_connections", |open| open == 1.0);
    assert_eq!(GET.ask(&mut connect(&weir)).status, 200);
}

/// Peers that are no trusted proxies hold a sixteenth of the connections, so that they shut out no proxy.
#[test]
fn strangers_cannot_hold_all_connections() {
    let weir = Weir::start_as(&config("max_connections = 32", &format!("{ONCE}[timeouts]\nrequest_head = \"60s\"\n")));
    let silent = [0; 2].map(|_| stranger(weir.checks()));
    weir.wait_for_metric("weir_connections", |open| open == 2.0);
    assert_eq!(stranger(weir.checks()).rest(), b"");
    assert_eq!(weir.metric("weir_connections_refused_total"), 1.0);
    let mut proxies: Vec<_> = (0..30).map(|_| connect(&weir)).collect();
    for (index, proxy) in proxies.iter_mut().enumerate() {
        assert_eq!(GET.ask(proxy).status, if index == 0 { 200 } else { 429 });
    }
    assert_eq!(connect(&weir).rest(), b"");
    drop((proxies, silent));
    weir.wait_for_metric("weir_connections", |open| open == 0.0);
    assert_eq!(stranger(weir.checks()).send(GET.bytes("/auth")).answer().status, 403);
}

#[test]
fn tls_has_its_own_certificates() {
    let (cert, authority) = (Cert::of_hosts(&["localhost"]), Cert::authority());
    let own = authority.client("nginx", &[], &[]);
    let folder = tempfile::tempdir().unwrap();
    cert.write(folder.path(), "own");
    authority.write(folder.path(), "clients");
    let tls = "tls = { certificates = [{ cert = \"own.pem\", key = \"own.key\" }], client_ca = \"clients.pem\" }";
    // The certificate is that of the asking proxy, and says nothing about its client.
    let limit = "[identity.name]\ntls = \"subject_cn\"\non_missing = \"anonymous\"\n\
        [[limit]]\nname = \"l\"\nkey = [\"name\", \"ip\"]\nrate = \"1/h\"\n[server.tls]\n\
        certificates = [{ cert = \"own.pem\", key = \"own.key\" }]\nclient_ca = \"clients.pem\"\n";
    std::fs::write(folder.path().join("weir.toml"), config(tls, limit)).unwrap();
    let weir = Weir::start_in(folder);
    let trusting = |own| trusting(&[&cert], &[&rustls::version::TLS13], &["h2", "http/1.1"], own);
    let mut client = connect_tls(weir.checks(), &trusting(Some(&own)), "localhost").unwrap();
    assert_eq!([GET.ask(&mut client).status, GET.ask(&mut client).status], [200, 429]);
    // No certificate, and no TLS.
    let refused = |own| {
        let client = connect_tls(weir.checks(), &trusting(own), "localhost");
        client.is_err() || client.unwrap().send(GET.bytes("/auth")).try_answer().is_none()
    };
    let refused_plain = || connect(&weir).send(GET.bytes("/auth")).try_answer().is_none();
    assert_eq!((refused(None), refused_plain(), refused(Some(&own))), (true, true, false));

    // Another address needs neither, but is in force only after a restart.
    let listen = "[check]\nlisten = \"127.0.0.1:0\"\n";
    let moved = |tls| config(tls, limit).replacen(listen, &listen.replace(".1:", ".2:"), 1);
    let gone = config("", limit).replacen(listen, "[upstream]\nurl = \"http://127.0.0.1:9\"\n", 1);
    let without = tls.replace(", client_ca = \"clients.pem\"", "");
    let steps = [
        (moved(&without), false),
        (moved(""), false),
        // Without `[check]` nobody is served, nor with the other address after that.
        (gone, true),
        (moved(""), true),
        (config(tls, limit), false),
    ];
    for (reloads, (text, serves_nobody)) in steps.into_iter().enumerate() {
        replace(&weir.config_file(), &text);
        weir.wait_for_lines("\"reloaded\"", reloads + 1);
        assert_eq!((refused(None), refused_plain(), refused(Some(&own))), (true, true, serves_nobody), "{text}");
    }
}

#[test]
fn a_unix_socket_is_127_0_0_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("check.sock");
    let text =
        config("", ONCE).replacen("[check]\nlisten = \"127.0.0.1:0\"", "[check]\nlisten = \"unix:check.sock\"", 1);
    std::fs::write(folder.path().join("weir.toml"), text).unwrap();
    let weir = Weir::start_in(folder);
    weir.wait_for_line("answering checks");
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = Asked { more: "Connection: close\r\n", ..GET };
    stream.write_all(asked.bytes("/auth").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}
