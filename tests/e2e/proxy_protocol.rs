//! The PROXY protocol: headers from proxies before Weir, and headers to services.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use proxy_header::{ProxiedAddress, ProxyHeader, Tlv};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::attacks::h2_frames::{CLEAN, Fate, HEADERS, SETTINGS, block, frame};
use crate::attacks::lab::{Lab, is_closed, is_problem};
use crate::ops::{replace, until};
use crate::support::{Cert, Client, NEVER, PATIENCE, Upstream, Weir, trusting};

const FROM: &str = "proxy_protocol = { from = [\"127.0.0.1\"] }";
const REFUSED: &str = "weir_proxy_headers_refused_total";
const GET: &str = "GET /a HTTP/1.1\r\nhost: weir.test\r\n\r\n";

fn v1(source: &str) -> Vec<u8> {
    let kind = if source.contains(':') { ("TCP6", "::1") } else { ("TCP4", "10.0.0.1") };
    format!("PROXY {} {source} {} 4711 443\r\n", kind.0, kind.1).into_bytes()
}

/// A header of version 2 from another implementation, with extensions.
fn v2(source: &str) -> Vec<u8> {
    let source: SocketAddr = SocketAddr::new(source.parse().unwrap(), 4711);
    let destination = if source.is_ipv4() { "10.0.0.1:443" } else { "[::1]:443" };
    let mut header = ProxyHeader::with_address(ProxiedAddress::stream(source, destination.parse().unwrap()));
    header.append_tlv(Tlv::UniqueId(b"unique"[..].into()));
    let mut bytes = vec![0; 512];
    let len = header.encode_to_slice_v2(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn local() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let len = ProxyHeader::with_local().encode_to_slice_v2(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// The address in the last PROXY header to the upstream.
fn address_sent_to(upstream: &Upstream) -> String {
    upstream.received().pop().unwrap().header("x-forwarded-for").unwrap()
}

#[test]
fn the_header_sets_the_client_address() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, FROM, "");
    for (header, expected) in [
        (v1("192.0.2.7"), "192.0.2.7"),
        (v2("192.0.2.8"), "192.0.2.8"),
        (v1("2001:db8::7"), "2001:db8::7"),
        (v2("2001:db8::8"), "2001:db8::8"),
        (v2("::ffff:192.0.2.9"), "192.0.2.9"),
        (local(), "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (b"PROXY UNKNOWN 192.0.2.1 192.0.2.2 1 2\r\n".to_vec(), "127.0.0.1"),
    ] {
        let mut at_once = Client::connect(weir.address());
        at_once.send([&header, GET.as_bytes()].concat());
        assert_eq!((at_once.answer().status, address_sent_to(&upstream).as_str()), (200, expected));
        assert_eq!((at_once.get("/b").status, address_sent_to(&upstream).as_str()), (200, expected));
        let mut in_pieces = Client::connect(weir.address());
        for byte in [&header, GET.as_bytes()].concat() {
            in_pieces.send([byte]);
        }
        assert_eq!((in_pieces.answer().status, address_sent_to(&upstream).as_str()), (200, expected));
    }
    assert_eq!(weir.metric(REFUSED), 0.0);
}

#[test]
fn limits_and_trust_use_the_client_address() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\n";
    let weir = Weir::start_with(&upstream, &format!("{FROM}\ntrusted_proxies = [\"10.0.0.0/8\"]"), limit);
    let ask = |source: &str, lines: &str| {
        let mut client = Client::connect(weir.address());
        client.send(v2(source)).send(GET.replace("\r\n\r\n", &format!("\r\n{lines}\r\n")));
        client.answer().status
    };
    assert_eq!([ask("192.0.2.7", ""), ask("192.0.2.7", ""), ask("192.0.2.8", "")], [200, 429, 200]);
    // The proxy is the peer. Its word counts if it is trusted.
    let claim = "x-forwarded-for: 203.0.113.5\r\n";
    assert_eq!([ask("192.0.2.8", claim), ask("10.1.2.3", claim), ask("10.1.2.4", claim)], [429, 200, 429]);
    assert_eq!(address_sent_to(&upstream), "203.0.113.5, 10.1.2.3");
}

#[test]
fn tls_and_http_2_follow_the_header() {
    let (upstream, cert, folder) = (Upstream::start(), Cert::of_hosts(&["weir.test"]), tempfile::tempdir().unwrap());
    cert.write(folder.path(), "a");
    let tls = "[server.tls]\ncertificates = [{ cert = \"a.pem\", key = \"a.key\" }]";
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, FROM, tls)).unwrap();
    let weir = Weir::start_in(folder);
    let config = trusting(&[&cert], &[&rustls::version::TLS13], &["http/1.1"], None);
    let host = ServerName::try_from("weir.test").unwrap();
    for is_joined in [true, false] {
        let mut session = ClientConnection::new(Arc::new(config.clone()), host.clone()).unwrap();
        let mut socket = TcpStream::connect(weir.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut first = v2("192.0.2.7");
        if is_joined {
            session.write_tls(&mut first).unwrap();
        }
        socket.write_all(&first).unwrap();
        let mut client = Client::over(StreamOwned::new(session, socket));
        assert_eq!((client.get("/").status, address_sent_to(&upstream).as_str()), (200, "192.0.2.7"));
    }
    // An alert, if the bytes are no handshake.
    let mut client = Client::connect(weir.address());
    client.send([&v1("192.0.2.7"), GET.as_bytes()].concat());
    assert_eq!(client.rest().first(), Some(&21));
    weir.wait_for_metric("weir_tls_handshakes_failed_total", |failed| failed == 1.0);

    let weir = Weir::start_with(&upstream, FROM, "");
    let mut h2 = crate::attacks::h2_frames::H2 { client: Client::connect(weir.address()) };
    let get = block(&[&CLEAN[..], &[(b":path", b"/a")]].concat());
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let settings = frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    h2.send(&[v1("192.0.2.9"), preface, settings, frame(HEADERS, 5, 1, &get)].concat());
    assert_eq!((h2.fate(1), address_sent_to(&upstream).as_str()), (Fate::Status(200), "192.0.2.9"));
}

/// Asserts that there is no response, and that the upstream gets nothing.
#[test]
fn invalid_headers_close_the_connection() {
    let lab = Lab::start(FROM, "");
    let bad: [&[u8]; 12] = [
        b"",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 99999\r\n",
        b"PROXY TCP4 192.0.2.1\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        b"PROXYxTCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        &[b'P', b'R', b'O', b'X', b'Y', b' ', 0xff, b'\r', b'\n'],
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x04abcd",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x0c\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for (number, header) in (1..).zip(bad) {
        let mut client = lab.client();
        client.send([header, GET.as_bytes()].concat());
        assert_eq!(client.rest(), b"", "{header:?}");
        assert_eq!(lab.weir.metric(REFUSED), f64::from(number), "{header:?}");
    }
    // Longer than the bound.
    let mut client = lab.client();
    client.send([b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat());
    assert_eq!(client.rest(), b"");
    // Truncated, and empty.
    lab.client().send(b"PROXY TCP4 ").finish();
    lab.weir.wait_for_metric(REFUSED, |refused| refused == 14.0);
    let mut silent = lab.client();
    silent.finish();
    assert_eq!(silent.rest(), b"");
    assert_eq!(lab.weir.metric(REFUSED), 14.0);
    assert_eq!(lab.weir.metric("weir_requests_total{verdict=\"forwarded\"}"), 0.0);
    assert_eq!(lab.weir.metric("weir_panics_total"), 0.0);
}

#[test]
fn a_header_has_the_timeout_of_a_head() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, FROM, "[timeouts]\nrequest_head = \"2s\"\n");
    for begun in [&b"PROXY TCP4 "[..], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c", b""] {
        let mut client = Client::connect(weir.address());
        assert_eq!(client.send(begun).rest(), b"");
    }
    weir.wait_for_metric(REFUSED, |refused| refused == 3.0);
    // The request has the rest of that time.
    let mut client = Client::connect(weir.address());
    assert_eq!(client.send(v1("192.0.2.7")).rest(), b"");
    let mut client = Client::connect(weir.address());
    assert_eq!(client.send([v1("192.0.2.7"), b"GET".to_vec()].concat()).answer().status, 408);
}

/// From other peers a PROXY header is not HTTP. A second one is refused, too.
#[test]
fn only_configured_peers_send_a_header() {
    let other = FROM.replace("127.0.0.1", "10.0.0.0/8");
    for (server, begin) in [(other.as_str(), Vec::new()), ("", Vec::new()), (FROM, v1("192.0.2.1"))] {
        let lab = Lab::start(server, "");
        for header in [v1("192.0.2.7"), v2("192.0.2.7"), local()] {
            let mut client = lab.client();
            client.send([&begin, &header, GET.as_bytes()].concat());
            is_problem(&client.answer(), 400).unwrap();
            is_closed(&mut client).unwrap();
        }
        assert_eq!(lab.weir.metric("weir_requests_total{verdict=\"refused\"}"), 3.0);
    }
}

#[test]
fn a_reload_changes_the_peers() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "");
    let mut before = Client::connect(weir.address());
    assert_eq!(before.get("/").status, 200);
    replace(&weir.config_file(), &Weir::config(&upstream, FROM, ""));
    until("a header is read", || {
        let mut client = Client::connect(weir.address());
        client.send([&v1("192.0.2.7"), GET.as_bytes()].concat());
        client.answer().status == 200
    });
    assert_eq!((address_sent_to(&upstream).as_str(), before.get("/").status), ("192.0.2.7", 200));
}

/// The text of a configuration that sends PROXY headers.
fn sending_headers(upstream: SocketAddr, version: &str, server: &str) -> String {
    let config = Weir::upgrading(&Upstream::start(), &["websocket"], server, "");
    let url = config.lines().find(|line| line.starts_with("url = ")).unwrap().to_owned();
    config.replace(&url, &format!("url = \"http://{upstream}\"\nproxy_protocol = \"{version}\""))
}

#[test]
fn a_service_gets_the_header() {
    let upstream = Upstream::serving(|mut peer| {
        while peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    });
    let weir = Weir::start_as(&sending_headers(upstream.address(), "v1", ""));
    let mut client = Client::connect(weir.address());
    let own = client.stream().local_addr().unwrap();
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nGET /", own.port(), weir.address().port());
    for turn in 1..=3 {
        assert_eq!(client.get("/").status, 200);
        // A PROXY header is the first data on a connection, so each request has its own connection.
        let received = upstream.received();
        assert!(received.len() == turn && received[turn - 1].head.starts_with(&expected), "{received:?}");
    }
}

/// Each endpoint gets the header: before TLS, in health checks, and after a retry.
#[test]
fn every_endpoint_gets_the_header() {
    let app = crate::upgrades::echoing();
    let (cert, folder) = (Cert::of_hosts(&["weir.test"]), tempfile::tempdir().unwrap());
    cert.write(folder.path(), "a");
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"3/h\"\nmatch = { path = [\"/a\", \"/chat\"] }\n";
    let tls = format!("[server.tls]\ncertificates = [{{ cert = \"a.pem\", key = \"a.key\" }}]\n{limit}");
    std::fs::write(folder.path().join("weir.toml"), Weir::upgrading(&app, &["websocket"], FROM, &tls)).unwrap();
    let inner = Weir::start_in(folder);
    for version in ["v1", "v2"] {
        let gone = Upstream::start().stop();
        let folder = tempfile::tempdir().unwrap();
        cert.write(folder.path(), "a");
        let endpoints = format!("endpoints = [\"https://{}\", \"https://{gone}\"]", inner.address());
        let more = "tls = { ca = \"a.pem\", server_name = \"weir.test\" }\nupgrade = \"websocket\"\nmax_connections = 2\n\
                    health = { path = \"/healthz\", interval = \"100ms\", timeout = \"15s\", unhealthy_after = 1 }";
        let text = format!("[upstreams.a]\n{endpoints}\n{more}\nproxy_protocol = \"{version}\"\n{NEVER}");
        let text = Weir::text(&text).replace("[server]\n", &format!("[server]\n{FROM}\n"));
        std::fs::write(folder.path().join("weir.toml"), text).unwrap();
        let outer = Weir::start_in(folder);
        let healthy =
            |address| outer.metric(&format!("weir_endpoint_healthy{{endpoint=\"https://{address}\",upstream=\"a\"}}"));
        outer.wait_until("only one is well", || healthy(gone) == 0.0 && healthy(inner.address()) == 1.0);
        let source = if version == "v1" { "192.0.2.17" } else { "2001:db8:1::7" };
        let ask = || {
            let mut client = Client::connect(outer.address());
            client.send([&v2(source), GET.as_bytes()].concat());
            client.answer().status
        };
        let mut socket = Client::connect(outer.address());
        socket.send([&v2(source), crate::upgrades::ASK.as_bytes()].concat());
        assert_eq!(socket.head().unwrap().status, 101, "{version}");
        crate::upgrades::echo(&mut socket, "sealed");
        let got = app.received().into_iter().rfind(|received| received.target() == "/chat").unwrap();
        assert_eq!(got.header("x-forwarded-for").as_deref(), Some(source), "{version}");
        assert_eq!([ask(), ask(), ask()], [200, 200, 429], "{version}: all were this client's");
    }
    assert_eq!(inner.metric(REFUSED), 0.0, "checks begin with a header too");
}

#[test]
fn two_weirs_forward_the_address() {
    let upstream = crate::upgrades::echoing();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"3/h\"\n";
    for (version, source) in [("v1", "192.0.2.7"), ("v2", "192.0.2.8"), ("v1", "2001:db8::7"), ("v2", "2001:db8::8")] {
        let inner = Weir::start_as(&Weir::upgrading(&upstream, &["websocket"], FROM, limit));
        let outer = Weir::start_as(&sending_headers(inner.address(), version, FROM));
        let mut client = Client::connect(outer.address());
        client.send([&v2(source), GET.as_bytes()].concat());
        assert_eq!(client.answer().status, 200);
        let got = upstream.received().pop().unwrap();
        assert_eq!(got.header("x-forwarded-for").as_deref(), Some(source), "{version}");
        // Over HTTP/2, and as a WebSocket.
        let mut h2 = crate::attacks::h2_frames::H2 { client: Client::connect(outer.address()) };
        let get = block(&[&CLEAN[..], &[(b":path", b"/h2")]].concat());
        let settings = frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        h2.send(&[v1(source), preface, settings, frame(HEADERS, 5, 1, &get)].concat());
        assert_eq!(h2.fate(1), Fate::Status(200));
        let mut socket = Client::connect(outer.address());
        socket.send([&v1(source), crate::upgrades::ASK.as_bytes()].concat());
        assert_eq!(socket.head().unwrap().status, 101);
        crate::upgrades::echo(&mut socket, "through both");
        // All three are of this client.
        assert_eq!(
            [
                client.get("/a").status,
                Client::connect(outer.address()).send([&v2("192.0.2.9"), GET.as_bytes()].concat()).answer().status
            ],
            [429, 200]
        );
    }
}
