//! TLS handshakes: which succeed, with which certificate, and the faults of the others.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion, StreamOwned};

use super::{BOTH, HOST, Lab, OWN, config};
use crate::ops::replace;
use crate::support::{Cert, Client, NEVER, Upstream, Weir, connect_tls, over_h2_tls, trusting};

const FAILED: &str = "weir_tls_handshakes_failed_total";

#[test]
fn both_versions_and_both_protocols() {
    let lab = Lab::with(Upstream::start(), "", "forwarded = true", NEVER, &[]);
    for version in [&TLS12, &TLS13] {
        for (alpn, agreed) in [
            (&["http/1.1"][..], Some("http/1.1")),
            (&["http/1.0"], Some("http/1.0")),
            (&["http/1.0", "http/1.1"], Some("http/1.1")),
            (&[], None),
            (&["x", "http/1.1"], Some("http/1.1")),
        ] {
            let config = trusting(&[&lab.cert], &[version], alpn, None);
            let mut client = connect_tls(lab.weir.address(), &config, HOST).unwrap();
            assert_eq!(client.stream().conn.protocol_version(), Some(version.version));
            assert_eq!(client.stream().conn.alpn_protocol(), agreed.map(str::as_bytes));
            for _ in 0..3 {
                assert_eq!(client.get("/").text(), "hello");
            }
        }
        let config = trusting(&[&lab.cert], &[version], &["h2", "http/1.1"], None);
        over_h2_tls(lab.weir.address(), config, HOST, async |mut client, _| {
            assert_eq!(client.get("/").await.unwrap().body, "hello");
        });
    }
    for received in lab.upstream.received() {
        assert_eq!(received.header("x-forwarded-proto").as_deref(), Some("https"));
        assert_eq!(received.header("forwarded").as_deref(), Some("for=127.0.0.1;host=\"weir.test\";proto=https"));
    }
    assert_eq!(lab.weir.metric(FAILED), 0.0);
}

#[test]
fn the_certificate_is_chosen_by_the_host() {
    let upstream = Upstream::start();
    let names: [(&str, &[&str]); 4] = [
        ("first", &["first.test"]),
        ("exact", &["a.shop.test", "Other.Test"]),
        ("wild", &["*.shop.test"]),
        ("late", &["a.shop.test", "late.test"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let certs: Vec<_> = names.iter().map(|(name, hosts)| (*name, Cert::of_hosts(hosts))).collect();
    for (name, cert) in &certs {
        cert.write(folder.path(), name);
    }
    let listed: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    std::fs::write(folder.path().join("weir.toml"), config(&upstream, &listed, "", "", NEVER)).unwrap();
    let weir = Weir::start_in(folder);
    let all: Vec<_> = certs.iter().map(|(_, cert)| cert).collect();
    for (host, shown) in [
        ("first.test", "first"),
        ("a.shop.test", "exact"),
        ("A.Shop.Test", "exact"),
        ("other.test", "exact"),
        ("b.shop.test", "wild"),
        ("late.test", "late"),
        // No certificate is for these hosts, so they get the first one.
        ("shop.test", "first"),
        ("a.b.shop.test", "first"),
        ("unknown.test", "first"),
        ("127.0.0.1", "first"),
    ] {
        let mut config = trusting(&all, BOTH, &[], None);
        config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate));
        let mut client = connect_tls(weir.address(), &config, host).unwrap();
        let seen = client.stream().conn.peer_certificates().unwrap()[0].clone();
        let (name, _) = certs.iter().find(|(_, cert)| cert.der() == seen).unwrap();
        assert_eq!(*name, shown, "{host}");
        assert_eq!(client.get("/").status, 200);
    }
}

/// A verifier that accepts all certificates, and keeps the last one for the test.
#[derive(Debug)]
struct AnyCertificate;

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn sessions_are_resumed_without_early_data() {
    let lab = Lab::start(NEVER);
    for (version, kind) in [(&TLS12, HandshakeKind::Resumed), (&TLS13, HandshakeKind::Resumed)] {
        let mut config = trusting(&[&lab.cert], &[version], &[], None);
        config.enable_early_data = true;
        let handshake = || {
            let mut client = connect_tls(lab.weir.address(), &config, HOST).unwrap();
            assert_eq!(client.get("/").status, 200);
            assert!(!client.stream().conn.is_early_data_accepted());
            client.stream().conn.handshake_kind()
        };
        assert_eq!(handshake(), Some(HandshakeKind::Full));
        // Any worker may resume it.
        for _ in 0..4 {
            assert_eq!(handshake(), Some(kind), "{version:?}");
        }
        lab.weir.signal("HUP");
        let reloads = if version.version == ProtocolVersion::TLSv1_2 { 1 } else { 2 };
        lab.weir.wait_for_lines("\"reloaded\"", reloads);
        assert_eq!(handshake(), Some(kind), "nothing of TLS has changed");
    }
}

#[test]
fn a_reload_replaces_certificates_and_keeps_connections() {
    let lab = Lab::start(NEVER);
    let mut open = lab.client();
    assert_eq!(open.get("/").status, 200);

    let file = |name: &str| lab.weir.folder().join(name);
    std::fs::write(file("own.key"), "garbage").unwrap();
    lab.weir.wait_for_line("the old one stays");
    lab.weir.wait_for_metric("weir_config_last_reload_successful", |value| value == 0.0);
    assert!(lab.weir.wait_for_line("the old one stays").contains("no private key in PEM"));
    assert_eq!(lab.client().get("/").status, 200, "the old one stays");

    let next = Cert::of_hosts(&[HOST]);
    let new = trusting(&[&next], BOTH, &[], None);
    replace(&file("own.key"), &next.key);
    replace(&file("own.pem"), &next.pem);
    lab.weir.wait_until("the new one is shown", || connect_tls(lab.weir.address(), &new, HOST).is_ok());
    lab.weir.wait_for_metric("weir_config_last_reload_successful", |value| value == 1.0);
    assert!(lab.try_client(None).is_err(), "the old one is not");
    assert_eq!(open.get("/").status, 200);
    lab.weir.wait_for_metric("weir_connections", |open| open == 1.0);

    // TLS itself can be added and removed.
    replace(&lab.weir.config_file(), &Weir::config(&lab.upstream, "", NEVER));
    lab.weir.wait_until("no TLS", || {
        Client::connect(lab.weir.address()).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_answer().is_some()
    });
    assert_eq!(open.get("/").status, 200);
    replace(&lab.weir.config_file(), &config(&lab.upstream, &[OWN], "", "", NEVER));
    lab.weir.wait_until("TLS", || connect_tls(lab.weir.address(), &new, HOST).is_ok());
}

#[test]
fn invalid_handshakes_fail_at_once_and_are_counted() {
    let lab = Lab::with(Upstream::start(), "", "", &format!("[timeouts]\nrequest_head = \"10min\"\n{NEVER}"), &[]);
    for (nth, bytes) in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0; 100],
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xffhello",
        b"\x17\x03\x03\x00\x05hello",
        b"\x15\x03\x03\x00\x02\x02\x28",
        &[0xFF; 10_000],
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect(lab.weir.address());
        let _ = client.stream().write_all(bytes);
        let rest = client.rest();
        // An alert or nothing.
        assert!(rest.is_empty() || rest.starts_with(&[21, 3]), "{nth}: {rest:?}");
        lab.weir.wait_for_metric(FAILED, |failed| failed == (nth + 1) as f64);
    }
    // Half a handshake, and a version or a protocol that is not supported.
    Client::connect(lab.weir.address()).send(b"\x16\x03\x01\x02\x00");
    lab.weir.wait_for_metric(FAILED, |failed| failed == 9.0);
    let config = trusting(&[&lab.cert], BOTH, &["h3"], None);
    assert!(connect_tls(lab.weir.address(), &config, HOST).is_err());
    lab.weir.wait_for_metric(FAILED, |failed| failed == 10.0);
    // A connection without a byte is no failure.
    Client::connect(lab.weir.address()).finish();
    lab.weir.wait_for_metric("weir_connections", |value| value == 0.0);
    assert_eq!(lab.weir.metric(FAILED), 10.0);
    assert_eq!(lab.weir.metric("weir_panics_total"), 0.0);
    assert_eq!(lab.client().get("/").status, 200);
    let lines = lab.weir.wait_for_lines("no TLS session", 10);
    assert!(lines.len() == 10 && lines.iter().all(|line| line.contains("DEBUG")), "{lines:#?}");
}

#[test]
fn silent_and_slow_clients_are_closed_at_the_timeout() {
    let lab = Lab::with(Upstream::start(), "", "", &format!("[timeouts]\nrequest_head = \"3s\"\n{NEVER}"), &[]);
    let began = Instant::now();
    let mut silent = Client::connect(lab.weir.address());
    let mut slow = Client::connect(lab.weir.address());
    slow.send(b"\x16\x03\x01\x02\x00\x01\x00");
    let mut shaken = lab.client();
    assert_eq!(silent.rest(), b"");
    assert_eq!(slow.rest(), b"");
    let _ = shaken.rest();
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(lab.weir.wait_for_metric(FAILED, |failed| failed >= 2.0), 2.0);

    // An incomplete head.
    let mut begun = lab.client();
    begun.send("GET / HTTP/1.1\r\n");
    assert_eq!(begun.answer().status, 408);
}

/// Forwards one byte per read or write.
struct Trickle(TcpStream);

impl Read for Trickle {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(1);
        self.0.read(&mut buf[..len])
    }
}

impl Write for Trickle {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(&buf[..buf.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_handshake_may_arrive_byte_by_byte() {
    let lab = Lab::start(NEVER);
    for version in [&TLS12, &TLS13] {
        let config = trusting(&[&lab.cert], &[version], &[], None);
        let socket = TcpStream::connect(lab.weir.address()).unwrap();
        socket.set_nodelay(true).unwrap();
        let session = ClientConnection::new(Arc::new(config), ServerName::try_from(HOST).unwrap()).unwrap();
        let mut client = Client::over(StreamOwned::new(session, Trickle(socket)));
        for _ in 0..2 {
            assert_eq!(client.get("/").text(), "hello");
        }
    }
}
