//! Clients on Unix sockets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::ops::until;
use crate::support::{Cert, Client, PATIENCE, Upstream, Weir, trusting};
use crate::upgrades::{ASK, echo, echoing};

/// A Weir that listens on `weir.sock` in its folder, and on an address.
fn start(upstream: &Upstream, server: &str, rest: &str) -> Weir {
    Weir::start_as(&config(upstream, server, rest))
}

fn config(upstream: &Upstream, server: &str, rest: &str) -> String {
    let config = Weir::upgrading(upstream, &["websocket"], server, rest);
    config.replacen("listen = \"127.0.0.1:0\"", "listen = [\"127.0.0.1:0\", \"unix:weir.sock\"]", 1)
}

fn path(weir: &Weir) -> PathBuf {
    weir.folder().join("weir.sock")
}

fn socket(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn connect(weir: &Weir) -> Client<UnixStream> {
    Client::over(socket(&path(weir)))
}

#[test]
fn requests_are_served_as_over_tcp() {
    let upstream = Upstream::start();
    let weir = start(&upstream, "unix_mode = \"0600\"", "");
    assert_eq!(fs::metadata(path(&weir)).unwrap().permissions().mode() & 0o7777, 0o600);
    let mut clients: Vec<_> = (0..20).map(|_| connect(&weir)).collect();
    for _ in 0..2 {
        for client in &mut clients {
            assert_eq!(client.get("/a").text(), "hello");
        }
    }
    let got = upstream.received().pop().unwrap();
    assert_eq!(got.header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(weir.metric("weir_connections"), 20.0);
    assert_eq!(Client::connect(weir.address()).get("/b").status, 200);
    // A body larger than a read, and bytes that are not HTTP.
    let body = "x".repeat(300_000);
    let mut client = connect(&weir);
    client.send(format!("POST /c HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(client.answer().status, 200);
    assert_eq!(upstream.received().pop().unwrap().body.len(), body.len());
    assert_eq!(client.send("\u{1}\r\n\r\n").answer().status, 400);
    assert_eq!(client.rest(), b"");
}

#[test]
fn every_client_is_127_0_0_1() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\n";
    let server = "trusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = { from = [\"127.0.0.1\"] }";
    let weir = start(&upstream, server, limit);
    let ask = |header: &str, lines: &str| {
        connect(&weir).send(format!("{header}GET / HTTP/1.1\r\nhost: h\r\n{lines}\r\n")).answer().status
    };
    let local = "PROXY UNKNOWN\r\n";
    assert_eq!([ask(local, ""), ask(local, "")], [200, 429]);
    assert_eq!(
        [ask(local, "x-forwarded-for: 192.0.2.1\r\n"), ask("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "")],
        [200, 429]
    );
}

#[test]
fn tls_and_upgrades_work() {
    let (upstream, cert, folder) = (echoing(), Cert::of_hosts(&["weir.test"]), tempfile::tempdir().unwrap());
    cert.write(folder.path(), "a");
    let tls = "[server.tls]\ncertificates = [{ cert = \"a.pem\", key = \"a.key\" }]";
    fs::write(folder.path().join("weir.toml"), config(&upstream, "", tls)).unwrap();
    let weir = Weir::start_in(folder);
    let config = trusting(&[&cert], &[&rustls::version::TLS13], &["http/1.1"], None);
    let host = ServerName::try_from("weir.test").unwrap();
    let session = ClientConnection::new(Arc::new(config), host).unwrap();
    let mut client = Client::over(StreamOwned::new(session, socket(&path(&weir))));
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.send(ASK).head().unwrap().status, 101);
    assert_eq!(client.send("over tls").read(8), b"over tls");

    let weir = start(&upstream, "", "");
    let mut client = connect(&weir);
    assert_eq!(client.send(ASK).head().unwrap().status, 101);
    assert_eq!(client.send("plain").read(5), b"plain");
    let mut client = connect(&weir);
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert_eq!(client.read(9)[3], 4, "settings");
    let mut other = crate::upgrades::upgraded(&weir);
    echo(&mut other, "and over TCP");
}

/// A client that leaves while it waits is noticed, also after it has sent more.
#[test]
fn a_client_that_leaves_frees_its_place_in_the_queue() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"1/h\"\nburst = 1\non_limit = \"hold\"\n";
    let weir = start(&upstream, "", limit);
    assert_eq!(connect(&weir).get("/").status, 200);
    let held = "weir_held_requests{limit=\"all\"}";
    for more in ["", "GET /next HTTP/1.1\r\nhost: h\r\n\r\n"] {
        let mut client = connect(&weir);
        client.send(format!("GET /held HTTP/1.1\r\nhost: h\r\n\r\n{more}"));
        weir.wait_for_metric(held, |held| held == 1.0);
        drop(client);
        weir.wait_for_metric(held, |held| held == 0.0);
    }
    assert_eq!(upstream.targets(), ["/"]);
}

#[test]
fn the_file_is_removed_at_the_end() {
    let upstream = Upstream::start();
    let weir = start(&upstream, "", "");
    let file = path(&weir);
    let mut idle = connect(&weir);
    assert_eq!(idle.get("/").status, 200);
    weir.signal("TERM");
    assert_eq!(idle.rest(), b"");
    let folder = weir.folder().to_owned();
    until("no process listens", || UnixStream::connect(&file).is_err());
    until("the file is gone", || !file.exists());
    assert!(folder.exists());
    assert_eq!(weir.wait(), Some(0));
}

/// Runs a Weir that cannot start, and returns its output.
fn fails(folder: &Path) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir")).arg("run").arg("--config").arg(folder.join("weir.toml")).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    output
}

#[test]
fn only_a_stale_socket_file_is_replaced() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weir.toml"), config(&upstream, "", "")).unwrap();
    let file = folder.path().join("weir.sock");
    let other = UnixListener::bind(&file).unwrap();
    let said = String::from_utf8(fails(folder.path()).stderr).unwrap();
    assert!(said.starts_with(&format!("weir: cannot listen on unix:{}: ", file.display())), "{said}");
    drop(other); // the file stays
    assert!(file.exists());
    let weir = Weir::start_in(folder);
    assert_eq!(connect(&weir).get("/").status, 200);
    // A second process does not take it away.
    fails(weir.folder());
    assert_eq!(connect(&weir).get("/").status, 200);

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weir.toml"), config(&upstream, "", "")).unwrap();
    fs::write(folder.path().join("weir.sock"), "no socket").unwrap();
    let said = String::from_utf8(fails(folder.path()).stderr).unwrap();
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(fs::read(folder.path().join("weir.sock")).unwrap(), b"no socket");
}

#[test]
fn the_admin_listener_uses_a_unix_socket() {
    let upstream = Upstream::start();
    let config = Weir::config(&upstream, "", "")
        .replace("[admin]\nlisten = \"127.0.0.1:0\"", "[admin]\nlisten = \"unix:admin.sock\"");
    let weir = Weir::start_as(&config);
    let file = weir.folder().join("admin.sock");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o660);
    let mut operator = Client::over(socket(&file));
    assert!(operator.get("/metrics").text().contains("weir_connections 0"));
    // Names of this host only.
    let ask = |host: &str| {
        Client::over(socket(&file)).send(format!("GET /v1/top HTTP/1.1\r\nhost: {host}\r\n\r\n")).answer().status
    };
    assert_eq!([ask("localhost"), ask("127.0.0.1"), ask("evil.test")], [200, 200, 403]);
    let check = |option: &str, value: &str| {
        let status = Command::new(env!("CARGO_BIN_EXE_weir")).args(["healthcheck", option, value]).output().unwrap();
        status.status.code()
    };
    assert_eq!(check("--admin", &format!("unix:{}", file.display())), Some(0));
    assert_eq!([check("--admin", "unix:/nowhere/admin.sock"), check("--admin", "nowhere")], [Some(1), Some(2)]);
    assert_eq!(check("--config", weir.config_file().to_str().unwrap()), Some(0));
    let place = format!("unix:{}", file.display());
    let explained = Command::new(env!("CARGO_BIN_EXE_weir")).args(["explain", "--admin", &place]).output().unwrap();
    let said = String::from_utf8(explained.stdout).unwrap();
    assert!(said.contains("decision: admitted"), "{said}");
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    assert!(!file.exists());
}
