//! TLS to services: their certificates, and Weir's own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use socket2::{Domain, Socket, Type};

use crate::support::{Cert, Client, NEVER, PATIENCE, Redis, Upstream, Weir, over_all};
use crate::upgrades::{AGREE, OPEN, echo, upgraded};

/// A service that speaks TLS. It responds with the name of its client and the body of the request.
struct Service {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

impl Service {
    fn start(cert: &Cert, clients: Option<&Cert>, versions: &[&'static SupportedProtocolVersion]) -> Self {
        Self::serving(TcpListener::bind("127.0.0.1:0").unwrap(), cert, clients, versions, serve)
    }

    /// Lets `serve` serve each connection of this listener.
    fn serving(
        listener: TcpListener,
        cert: &Cert,
        clients: Option<&Cert>,
        versions: &[&'static SupportedProtocolVersion],
        serve: impl Fn(Stream) + Clone + Send + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions).unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.der()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(cert.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(vec![cert.der()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (config, address) = (Arc::new(config), listener.local_addr().unwrap());
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                std::thread::spawn(move || serve(BufReader::new(StreamOwned::new(session, socket))));
            }
        });
        Self { address, connections }
    }

    /// The table `[upstreams.a]` for this service.
    fn upstream(&self, more: &str) -> String {
        format!("[upstreams.a]\nendpoints = [\"https://{}\"]\n{more}\n{NEVER}", self.address)
    }
}

/// Reads a head. Returns the length of the body, and whether the request is an upgrade; none at the end of the stream.
fn head(stream: &mut Stream) -> Option<(usize, bool)> {
    let (mut line, mut length, mut is_upgrade) = (String::new(), 0, false);
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        is_upgrade |= line.eq_ignore_ascii_case("upgrade: websocket\r\n");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    Some((length, is_upgrade))
}

fn serve(mut stream: Stream) {
    while let Some((length, is_upgrade)) = head(&mut stream) {
        if is_upgrade {
            return talk(stream);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let session = &stream.get_ref().conn;
        let sni = session.server_name().unwrap_or("-").to_owned();
        let alpn = String::from_utf8_lossy(session.alpn_protocol().unwrap_or(b"-")).into_owned();
        let is_known = session.peer_certificates().is_some();
        let head = format!("HTTP/1.1 200 OK\r\nx-seen: {sni} {alpn} {is_known}\r\ncontent-length: {length}\r\n\r\n");
        if stream.get_mut().write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

/// Sends all bytes back, and its last word at the end.
fn talk(mut stream: Stream) {
    stream.get_mut().write_all(AGREE.as_bytes()).unwrap();
    let mut piece = [0; 1 << 14];
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        stream.get_mut().write_all(&piece[..len]).unwrap();
    }
    let _ = stream.get_mut().write_all(b"over");
    stream.get_mut().conn.send_close_notify();
    let _ = stream.get_mut().flush();
}

/// Begins the response to one request, and reads its body once `may_read` says so.
fn respond_early(mut stream: Stream, may_read: &Mutex<Receiver<()>>) {
    let Some((length, _)) = head(&mut stream) else { return };
    let begin = b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.get_mut().write_all(begin).unwrap();
    let _ = may_read.lock().unwrap().recv_timeout(PATIENCE);
    if stream.read_exact(&mut vec![0; length]).is_ok() {
        let _ = stream.get_mut().write_all(b"3\r\nend\r\n0\r\n\r\n");
    }
}

/// Starts a Weir whose folder has the certificates with these names.
fn weir(text: &str, certs: &[(&str, &Cert)], variables: &[(&str, &str)]) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    for (name, cert) in certs {
        cert.write(folder.path(), name);
    }
    std::fs::write(folder.path().join("weir.toml"), Weir::text(text)).unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.replace("DIR", &path))).collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
    Weir::start_in_env(folder, &variables)
}

fn seen(weir: &Weir) -> (u16, Option<String>) {
    let answer = Client::connect(weir.address()).get("/");
    (answer.status, answer.header("x-seen").map(str::to_owned))
}

#[test]
fn requests_are_encrypted_and_connections_reused() {
    for version in [&TLS12, &TLS13] {
        let cert = Cert::of_hosts(&["app.test"]);
        let service = Service::start(&cert, None, &[version]);
        let tls = "tls = { ca = \"ca.pem\", server_name = \"app.test\" }";
        let weir = weir(&service.upstream(tls), &[("ca", &cert)], &[]);
        let mut client = Client::connect(weir.address());
        for len in [0, 1, 100_000, 3_000_000] {
            let body = vec![b'x'; len];
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n")).send(&body);
            let answer = client.answer();
            assert_eq!((answer.status, answer.header("x-seen")), (200, Some("app.test http/1.1 false")));
            assert!(answer.body == body, "{len}");
        }
        assert_eq!(service.connections.load(Ordering::SeqCst), 1, "one, for all of one worker's requests");
    }
}

/// The socket takes a part of the last piece of a body, and the rest waits in the TLS session.
#[test]
fn a_body_arrives_whole_after_the_response_has_begun() {
    // The kernel takes about 85 KB of a connection that the service does not read, sometimes less, and the session 64 KiB.
    const TAKEN_MIN: usize = 120_000;
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.set_recv_buffer_size(4096).unwrap();
    listener.set_tcp_mss(1000).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(16).unwrap();
    let cert = Cert::of_hosts(&["app.test"]);
    let (go_on, may_read) = channel();
    let may_read = Arc::new(Mutex::new(may_read));
    let serve = move |stream| respond_early(stream, &may_read);
    let service = Service::serving(listener.into(), &cert, None, &[&TLS13], serve);
    let more = "tls = { ca = \"ca.pem\", server_name = \"app.test\" }\n[timeouts]\nbody_idle = \"20s\"";
    let weir = weir(&service.upstream(more), &[("ca", &cert)], &[]);
    let received = "weir_client_bytes_total{direction=\"received\"}";
    for len in (80_000..180_000).step_by(10_000) {
        let before = weir.metric(received);
        let mut client = Client::connect(weir.address());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n")).send(vec![b'x'; len]);
        assert_eq!(client.head().unwrap().status, 200);
        weir.wait_for_metric(received, |bytes| bytes - before > TAKEN_MIN.min(len) as f64);
        go_on.send(()).unwrap();
        assert_eq!(client.read(13), b"3\r\nend\r\n0\r\n\r\n", "{len}");
    }
}

#[test]
fn an_upgraded_connection_stays_encrypted() {
    for version in [&TLS12, &TLS13] {
        let cert = Cert::of_hosts(&["app.test"]);
        let service = Service::start(&cert, None, &[version]);
        let more =
            "tls = { ca = \"ca.pem\", server_name = \"app.test\" }\nupgrade = [\"websocket\"]\nmax_connections = 1";
        let weir = weir(&service.upstream(more), &[("ca", &cert)], &[]);
        assert_eq!(seen(&weir).0, 200);
        let mut client = upgraded(&weir);
        echo(&mut client, "hello");
        let large = vec![b'x'; 200_000];
        assert!(client.send(&large).read(large.len()) == large);
        client.send("bye").finish();
        assert_eq!(client.rest(), b"byeover");
        weir.wait_for_metric(OPEN, |open| open == 0.0);
        assert_eq!((seen(&weir).0, service.connections.load(Ordering::SeqCst)), (200, 3), "each is a new one");
    }
}

#[test]
fn the_certificate_of_a_service_is_verified() {
    let (cert, other) = (Cert::of_hosts(&["app.test"]), Cert::of_hosts(&["app.test"]));
    let service = Service::start(&cert, None, &[&TLS13]);
    for (tls, status) in [
        ("tls = { ca = \"ca.pem\", server_name = \"app.test\" }", 200),
        ("tls = { ca = \"ca.pem\", server_name = \"other.test\" }", 502),
        ("tls = { ca = \"ca.pem\" }", 502), // the address is not in the certificate
        ("tls = { ca = \"other.pem\", server_name = \"app.test\" }", 502),
        ("tls = { server_name = \"app.test\" }", 502), // the system does not trust the certificate
    ] {
        let weir = weir(&service.upstream(tls), &[("ca", &cert), ("other", &other)], &[]);
        assert_eq!(seen(&weir).0, status, "{tls}");
    }
    // A service without TLS gets no readable byte.
    let plain = Upstream::serving(|mut peer| _ = peer.send("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let text = format!("[upstream]\nurl = \"https://{}\"\ntls = {{ ca = \"ca.pem\" }}\n{NEVER}", plain.address());
    assert_eq!(seen(&weir(&text, &[("ca", &cert)], &[])).0, 502);
}

#[test]
fn the_authorities_of_the_system_are_the_default() {
    let (cert, other) = (Cert::of_hosts(&["localhost"]), Cert::of_hosts(&["localhost"]));
    let service = Service::start(&cert, None, &[&TLS13]);
    let url = format!("https://localhost:{}", service.address.port());
    let text = format!("[upstream]\nurl = \"{url}\"\nhost = \"upstream\"\n{NEVER}");
    let weir = weir(&text, &[("ca", &cert)], &[("SSL_CERT_FILE", "DIR/ca.pem")]);
    assert_eq!(seen(&weir), (200, Some("localhost http/1.1 false".into())));
    // A reload reads them again.
    for (trusted, status) in [(&other, 502), (&cert, 200)] {
        trusted.write(weir.folder(), "ca");
        weir.signal("HUP");
        weir.wait_until("the new certificates", || seen(&weir).0 == status);
    }
}

/// A Redis and a limiter that only its address names. A reload reads the authorities again.
#[test]
fn stores_follow_the_authorities_of_the_system() {
    const SECRET: (&str, &str) = ("WEIR_FLEET_SECRET", "0123456789abcdef0123456789ABCDEF");
    const FLEET: &str = "[fleet]\nstrategy = \"local\"\nreplicas = 2\nsecret = { env = \"WEIR_FLEET_SECRET\" }\n";
    let (cert, other) = (Cert::of_hosts(&["localhost"]), Cert::of_hosts(&["localhost"]));
    let (upstream, redis) = (Upstream::start(), Redis::with_tls(&cert, ""));
    let text = |rest: &str| format!("[upstream]\nurl = \"http://{}\"\n{FLEET}{rest}", upstream.address());
    let grpc = "[grpc]\nlisten = \"127.0.0.1:0\"\ntls.certificates = [{ cert = \"own.pem\", key = \"own.key\" }]\n";
    let limiter = weir(&text(&format!("{grpc}{}", over_all("rate = \"9/day\""))), &[("own", &cert)], &[SECRET]);
    let asker = text(&format!(
        "[store.main]\nredis = [\"rediss://localhost:{}\"]\n{}strategy = {{ use = \"service\", url = \"https://localhost:{}\" }}\n\
         [[limit]]\nname = \"shared\"\nkey = []\nrate = \"9/day\"\nstrategy = \"redis\"\n",
        redis.address().port(),
        over_all("rate = \"9/day\""),
        limiter.grpc().port()
    ));
    let weir = weir(&asker, &[("ca", &other)], &[SECRET, ("SSL_CERT_FILE", "DIR/ca.pem")]);
    let wait_until_both_are = |up: &str| {
        weir.wait_until("both stores", || {
            let metrics = weir.metrics();
            let stores = metrics.lines().filter(|line| line.starts_with("weir_store_up{"));
            stores.map(|line| line.ends_with(up)).collect::<Vec<_>>() == [true, true]
        });
    };
    wait_until_both_are(" 0");
    for (trusted, up) in [(&cert, " 1"), (&other, " 0"), (&cert, " 1")] {
        trusted.write(weir.folder(), "ca");
        weir.signal("HUP");
        wait_until_both_are(up);
    }
}

#[test]
fn a_service_may_require_a_certificate() {
    let (cert, authority) = (Cert::of_hosts(&["app.test"]), Cert::authority());
    let own = authority.client("weir", &[], &[]);
    let service = Service::start(&cert, Some(&authority), &[&TLS13]);
    let certs = [("ca", &cert), ("own", &own)];
    let tls = "server_name = \"app.test\", ca = \"ca.pem\"";
    let known = format!("tls = {{ {tls}, cert = \"own.pem\", key = \"own.key\" }}");
    assert_eq!(seen(&weir(&service.upstream(&known), &certs, &[])), (200, Some("app.test http/1.1 true".into())));
    let unknown = format!("tls = {{ {tls} }}");
    assert_eq!(seen(&weir(&service.upstream(&unknown), &certs, &[])).0, 502);
}

#[test]
fn health_checks_are_encrypted() {
    let cert = Cert::of_hosts(&["app.test"]);
    let (good, bad) =
        (Service::start(&cert, None, &[&TLS13]), Service::start(&Cert::of_hosts(&["b"]), None, &[&TLS13]));
    let tls = "tls = { ca = \"ca.pem\", server_name = \"app.test\" }";
    let health = "health = { path = \"/\", interval = \"100ms\", timeout = \"15s\", unhealthy_after = 1 }";
    let endpoints = format!("endpoints = [\"https://{}\", \"https://{}\"]", good.address, bad.address);
    let weir = weir(&format!("[upstreams.a]\n{endpoints}\n{tls}\n{health}\n{NEVER}"), &[("ca", &cert)], &[]);
    let healthy = |service: &Service| {
        let endpoint = format!("endpoint=\"https://{}\"", service.address);
        weir.metric(&format!("weir_endpoint_healthy{{{endpoint},upstream=\"a\"}}"))
    };
    weir.wait_until("the stranger is out", || healthy(&bad) == 0.0);
    assert!((0..6).all(|_| seen(&weir).0 == 200));
    assert_eq!(healthy(&good), 1.0);
}
