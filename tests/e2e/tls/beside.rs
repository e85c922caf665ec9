//! Listeners with TLS beside listeners without.

use std::net::SocketAddr;

use super::{BOTH, HOST, config};
use crate::ops::replace;
use crate::support::{Answer, Cert, Client, TlsClient, Upstream, Weir, connect_tls, trusting};

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]";
/// A limit that redirects must not charge.
const LIMIT: &str = "[[limit]]\nname = \"l\"\nstage = \"arrival\"\nkey = []\nrate = \"1/h\"\n";

/// A Weir with both kinds of listeners, the address of the one with TLS, and the certificate.
fn start(upstream: &Upstream, tls: &str, server: &str, rest: &str) -> (Weir, SocketAddr, Cert) {
    let (folder, cert) = (tempfile::tempdir().unwrap(), Cert::of_hosts(&[HOST]));
    cert.write(folder.path(), "own");
    std::fs::write(folder.path().join("weir.toml"), config(upstream, &["own"], tls, server, rest)).unwrap();
    let weir = Weir::start_in(folder);
    let address = tls_address(&weir);
    (weir, address, cert)
}

pub(super) fn tls_address(weir: &Weir) -> SocketAddr {
    let lines = weir.wait_for_lines("\"listening\"", 2);
    let line: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
    line["address"].as_str().unwrap().parse().unwrap()
}

fn over_tls(address: SocketAddr, cert: &Cert) -> std::io::Result<TlsClient> {
    connect_tls(address, &trusting(&[cert], BOTH, &["http/1.1"], None), HOST)
}

fn ask(weir: &Weir, target: &str, fields: &str) -> Answer {
    let head = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
    Client::connect(weir.address()).send(head).answer()
}

#[test]
fn both_kinds_serve_requests() {
    let upstream = Upstream::start();
    let (weir, address, cert) = start(&upstream, LISTEN, "", "");
    assert_eq!(over_tls(address, &cert).unwrap().get("/a").status, 200);
    assert_eq!(Client::connect(weir.address()).get("/b").status, 200);
    let protos: Vec<_> =
        upstream.received().iter().map(|request| request.head.contains("x-forwarded-proto: https")).collect();
    assert_eq!(protos, [true, false]);
    assert!(over_tls(weir.address(), &cert).is_err());
    assert!(Client::connect(address).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_answer().is_none());
}

#[test]
fn requests_without_tls_are_redirected() {
    let upstream = Upstream::start();
    let (weir, address, cert) = start(&upstream, &format!("{LISTEN}, redirect_port = 8443"), "", LIMIT);
    for (target, fields, location) in [
        ("/a?b=1", "Host: Weir.test\r\n", "https://weir.test:8443/a?b=1"),
        ("//a/../%61", "Host: weir.test:80\r\n", "https://weir.test:8443/a"),
        ("/<\"", "Host: [::1]:80\r\n", "https://[::1]:8443/%3C%22"),
        ("http://other.test/x", "Host: weir.test\r\n", "https://other.test:8443/x"),
        // Only a trusted proxy is believed.
        ("/", "Host: a\r\nX-Forwarded-Proto: https\r\n", "https://a:8443/"),
    ] {
        let answer = ask(&weir, target, fields);
        assert_eq!((answer.status, answer.header("location")), (308, Some(location)));
    }
    assert_eq!(ask(&weir, "/.well-known/acme-challenge/../x", "Host: a\r\n").status, 308);
    assert_eq!(upstream.received_count(), 0);
    assert_eq!(weir.metric("weir_problems_total{kind=\"no_tls\"}"), 6.0);

    assert_eq!(ask(&weir, "/.well-known/acme-challenge/token", "Host: a\r\n").status, 200);
    assert_eq!(over_tls(address, &cert).unwrap().get("/").status, 429, "of the limit");
    assert_eq!(upstream.targets(), ["/.well-known/acme-challenge/token"]);
}

#[test]
fn a_trusted_proxy_says_whether_there_was_tls() {
    let upstream = Upstream::start();
    let tls = format!("{LISTEN}, redirect_port = 443");
    let trusted = "trusted_proxies = [\"127.0.0.1\"]";
    let (by_x, ..) = start(&upstream, &tls, trusted, "");
    let (by_forwarded, ..) = start(&upstream, &tls, &format!("{trusted}\naddress_header = \"forwarded\""), "");
    for (weir, field, status) in [
        (&by_x, "X-Forwarded-Proto: https", 200),
        (&by_x, "X-Forwarded-Proto: http, HTTPS", 308),
        (&by_x, "X-Forwarded-Proto: http", 308),
        (&by_x, "Forwarded: for=192.0.2.1;proto=https", 308),
        (&by_forwarded, "Forwarded: for=192.0.2.1;Proto=\"HTTPS\"", 200),
        (&by_forwarded, "Forwarded: proto=http, for=192.0.2.1;proto=https", 200),
        (&by_forwarded, "Forwarded: proto=https, proto=http", 308),
        // Only the element of the proxy itself is believed.
        (&by_forwarded, "Forwarded: proto=https, for=192.0.2.1", 308),
        (&by_forwarded, "Forwarded: proto=https, for=192.0.2.1;host=\u{e9}", 308),
        (&by_forwarded, "Forwarded: proto=https\r\nForwarded: proto=http", 308),
        (&by_forwarded, "X-Forwarded-Proto: https", 308),
    ] {
        let answer = ask(weir, "/a", &format!("Host: a\r\n{field}\r\n"));
        let location = (status == 308).then_some("https://a/a");
        assert_eq!((answer.status, answer.header("location")), (status, location), "{field}");
    }
}

/// A reload changes redirects at once. Without TLS in the configuration the listener with TLS serves nobody.
#[test]
fn reloads_never_serve_plain_requests_over_the_tls_listener() {
    let upstream = Upstream::start();
    let (weir, address, cert) = start(&upstream, LISTEN, "", "");
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &text.replace(LISTEN, &format!("{LISTEN}, redirect_port = 1")));
    weir.wait_until("redirects", || Client::connect(weir.address()).get("/").status == 308);
    assert_eq!(over_tls(address, &cert).unwrap().get("/").status, 200);

    let line = text.lines().find(|line| line.starts_with("tls = ")).unwrap();
    replace(&weir.config_file(), &text.replace(line, ""));
    weir.wait_until("no redirects", || Client::connect(weir.address()).get("/").status == 200);
    assert!(over_tls(address, &cert).is_err());
    assert!(Client::connect(address).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_answer().is_none());
}

/// The listener with TLS beside it would be bound by a restart only.
#[test]
fn a_reload_takes_tls_from_no_listener() {
    let upstream = Upstream::start();
    let (folder, cert) = (tempfile::tempdir().unwrap(), Cert::of_hosts(&[HOST]));
    cert.write(folder.path(), "own");
    let text = |tls: &str| config(&upstream, &["own"], tls, "", "");
    std::fs::write(folder.path().join("weir.toml"), text("")).unwrap();
    let weir = Weir::start_in(folder);
    replace(&weir.config_file(), &text(&format!("{LISTEN}, redirect_port = 443")));
    weir.signal("HUP");
    weir.wait_for_line("in force only after a restart");
    weir.wait_for_line("\"reloaded\"");
    assert_eq!(over_tls(weir.address(), &cert).unwrap().get("/").status, 200);
    assert!(Client::connect(weir.address()).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_answer().is_none());
}

#[test]
fn a_successor_takes_over_both_kinds() {
    let upstream = Upstream::start();
    let (folder, cert) = (tempfile::tempdir().unwrap(), Cert::of_hosts(&[HOST]));
    cert.write(folder.path(), "own");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let tls = format!(
        "takeover = \"{}\"\ntls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}], {LISTEN} }}",
        file("takeover.sock"),
        file("own.pem"),
        file("own.key")
    );
    let text = Weir::config(&upstream, &tls, "");
    let old = Weir::start_as(&text);
    let address = tls_address(&old);
    let mut open = over_tls(address, &cert).unwrap();
    assert_eq!(open.get("/a").status, 200);
    let new = Weir::start_as(&text);
    new.wait_for_line("\"took over\"");
    assert_eq!((new.address(), tls_address(&new)), (old.address(), address));
    old.wait_for_line("\"handed over\"");
    assert_eq!(open.get("/b").header("connection"), Some("close"));
    assert_eq!(over_tls(address, &cert).unwrap().get("/c").status, 200);
    assert_eq!(Client::connect(new.address()).get("/d").status, 200);
}
