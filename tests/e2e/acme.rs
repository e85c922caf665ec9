//! Certificates by ACME, from a real Pebble.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::ops::replace;
use crate::support::{Cert, Client, NEVER, Pebble, TlsClient, Upstream, Weir, connect_tls, free_port};
use crate::tls::BOTH;

const HOST: &str = "weir.test";
const OTHER: &str = "other.test";
const DAYS: u64 = 90 * 24 * 3600;
const OK: &str = "weir_acme_orders_total{domain=\"weir.test\",result=\"ok\"}";
const FAILED: &str = "weir_acme_orders_total{domain=\"weir.test\",result=\"failed\"}";
const EXPIRY: &str = "weir_acme_certificate_expiry_timestamp_seconds{domain=\"weir.test\"}";
const ISSUED: &str = "\"certificate issued\"";

/// A Weir with TLS at a port of its own, beside a listener without.
struct Lab {
    upstream: Upstream,
    pebble: Pebble,
    port: u16,
    folder: tempfile::TempDir,
}

impl Lab {
    /// The Pebble does not run yet.
    fn new(validity_s: u64) -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        Self { upstream: Upstream::start(), pebble: Pebble::new(port, validity_s, &[HOST, OTHER]), port, folder }
    }

    fn started(validity_s: u64) -> Self {
        let mut lab = Self::new(validity_s);
        lab.pebble.start();
        lab
    }

    fn config(&self, domains: &[&str], acme: &str, tls: &str) -> String {
        let (port, folder) = (self.port, self.folder.path().display());
        let directory = self.pebble.directory();
        let tls = format!(
            "tls = {{ listen = \"127.0.0.1:{port}\", {tls} acme = {{ domains = {domains:?}, agree_to_terms = true, \
             folder = \"{folder}/acme\", directory = \"{directory}\", ca = \"{folder}/ca.pem\", {acme} }} }}"
        );
        std::fs::write(self.folder.path().join("ca.pem"), self.pebble.ca()).unwrap();
        Weir::config(&self.upstream, &tls, NEVER)
    }

    fn start(&self) -> Weir {
        Weir::start_as(&self.config(&[HOST], "", ""))
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// A client that trusts Pebble.
    fn connect(&self, host: &str) -> std::io::Result<TlsClient> {
        connect_tls(self.address(), &self.pebble.client(&["http/1.1"], None), host)
    }

    /// The stored files: those of certificates, or of accounts.
    fn files(&self, ending: &str) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(self.folder.path().join("acme")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(ending)).collect()
    }
}

/// The certificate that the server showed.
fn shown(client: &mut TlsClient) -> Vec<u8> {
    client.stream().conn.peer_certificates().unwrap()[0].to_vec()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_certificate_is_ordered_and_outlives_a_restart() {
    let mut lab = Lab::started(DAYS);
    let weir = lab.start();
    weir.wait_for_line(ISSUED);
    let mut client = lab.connect(HOST).unwrap();
    assert_eq!(client.get("/a").status, 200);
    assert_eq!((weir.metric(OK), weir.metric(FAILED)), (1.0, 0.0));
    assert!(weir.metric(EXPIRY) > 1_700_000_000.0);
    assert_eq!(weir.metric("weir_tls_handshakes_failed_total"), 0.0, "validations are no failures");
    // A client that offers the protocol of validations gets no session.
    for alpn in [&["acme-tls/1"][..], &["acme-tls/1", "acme-tls/1"]] {
        assert!(connect_tls(lab.address(), &lab.pebble.client(alpn, None), HOST).is_err());
    }
    assert_eq!(mode(&lab.folder.path().join("acme")), 0o700);
    for ending in [".pem", ".account.json", "lock"] {
        let files = lab.files(ending);
        assert_eq!(files.iter().map(|file| mode(file)).collect::<Vec<_>>(), [0o600], "{ending}");
    }

    let config = lab.pebble.client(&["http/1.1"], None);
    lab.pebble.kill();
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    let weir = lab.start();
    let mut again = connect_tls(lab.address(), &config, HOST).unwrap();
    assert_eq!((again.get("/b").status, shown(&mut again)), (200, shown(&mut client)));
    weir.wait_for_line("stored certificate in use");
    assert!(weir.metric(EXPIRY) > 1_700_000_000.0);
    assert!(!weir.lines().iter().any(|line| line.contains("ordering")));
}

/// The process serves all else meanwhile. A change of the options orders at once.
#[test]
fn a_directory_that_is_down_costs_only_handshakes() {
    let mut lab = Lab::new(DAYS);
    let weir = lab.start();
    weir.wait_for_line("no certificate by ACME");
    assert_eq!(weir.metric(FAILED), 1.0);
    assert_eq!(weir.metric(EXPIRY), 0.0);
    assert_eq!(Client::connect(weir.address()).get("/plain").status, 200);
    let refused = connect_tls(lab.address(), &crate::support::trusting(&[], BOTH, &[], None), HOST);
    assert!(refused.is_err_and(|error| error.to_string().contains("AccessDenied")));

    lab.pebble.start();
    replace(&weir.config_file(), &lab.config(&[HOST], "contact = \"mailto:a@weir.test\"", ""));
    weir.wait_for_line(ISSUED);
    assert_eq!(lab.connect(HOST).unwrap().get("/a").status, 200);
}

#[test]
fn a_renewal_cuts_no_connection() {
    let lab = Lab::started(9);
    let weir = lab.start();
    weir.wait_for_line(ISSUED);
    let mut open = lab.connect(HOST).unwrap();
    let (first, until) = (shown(&mut open), weir.metric(EXPIRY));
    assert_eq!(open.get("/a").status, 200);
    weir.wait_for_lines(ISSUED, 2);
    weir.wait_until("the new certificate", || lab.connect(HOST).is_ok_and(|mut client| shown(&mut client) != first));
    assert!(weir.metric(EXPIRY) > until);
    assert_eq!(open.get("/b").status, 200);
    assert_eq!(lab.files(".account.json").len(), 1);
}

/// Reloads keep the certificate: one of other options, one of the hosts, one that removes the certificate.
#[test]
fn a_reload_changes_the_hosts() {
    let lab = Lab::started(DAYS);
    let weir = lab.start();
    weir.wait_for_line(ISSUED);
    let mut first = lab.connect(HOST).unwrap();
    replace(&weir.config_file(), &lab.config(&[HOST], "", "redirect_port = 443,"));
    weir.wait_until("redirects", || Client::connect(weir.address()).get("/").status == 308);
    assert_eq!(shown(&mut lab.connect(HOST).unwrap()), shown(&mut first));
    assert!(lab.connect(OTHER).is_err(), "of another host");

    replace(&weir.config_file(), &lab.config(&[HOST, OTHER], "", "redirect_port = 443,"));
    weir.wait_for_lines(ISSUED, 2);
    weir.wait_until("both hosts", || [HOST, OTHER].iter().all(|host| lab.connect(host).is_ok()));
    assert_eq!(first.get("/").status, 200, "the old connection");
    // Without the option, handshakes of its hosts are refused, and there is no end of a certificate.
    let line = lab.config(&[HOST], "", "").lines().find(|line| line.starts_with("tls = ")).unwrap().to_owned();
    replace(&weir.config_file(), &lab.config(&[HOST], "", "").replace(&line, ""));
    weir.wait_until("no certificate", || lab.connect(HOST).is_err());
    assert_eq!(weir.metric(EXPIRY), 0.0);
}

/// The validation comes without a client certificate.
#[test]
fn a_validation_passes_where_clients_need_certificates() {
    let lab = Lab::started(DAYS);
    let (authority, ca) = (Cert::authority(), lab.folder.path().join("clients.pem"));
    std::fs::write(&ca, &authority.pem).unwrap();
    let tls = format!("client_ca = \"{}\",", ca.display());
    let weir = Weir::start_as(&lab.config(&[HOST], "", &tls));
    weir.wait_for_line(ISSUED);
    let own = authority.client("device", &[], &[]);
    let config = lab.pebble.client(&["http/1.1"], Some(&own));
    assert_eq!(connect_tls(lab.address(), &config, HOST).unwrap().get("/").status, 200);
}

/// While a challenge waits, other clients get the certificate of a file, and the answer goes only to validations.
#[test]
fn a_failed_validation_changes_nothing() {
    let mut lab = Lab::new(DAYS);
    let cert = Cert::of_hosts(&[HOST]);
    cert.write(lab.folder.path(), "own");
    // No validation arrives there.
    lab.pebble.dns.addresses(HOST, 60, &[std::net::Ipv4Addr::new(127, 0, 0, 2)]);
    lab.pebble.start();
    let file = |name: &str| lab.folder.path().join(name).display().to_string();
    let certificates = format!("certificates = [{{ cert = \"{}\", key = \"{}\" }}],", file("own.pem"), file("own.key"));
    let weir = Weir::start_as(&lab.config(&[HOST], "", &certificates));
    let line = weir.wait_for_line("no certificate by ACME");
    assert!(line.contains("Failed to connect to 127.0.0.2"), "{line}");
    let config = crate::support::trusting(&[&cert], BOTH, &["http/1.1"], None);
    assert_eq!(connect_tls(lab.address(), &config, HOST).unwrap().get("/").status, 200);
    assert_eq!((weir.metric(FAILED), weir.metric(OK)), (1.0, 0.0));
}

/// Damaged files, and an account that the authority has forgotten, are replaced.
#[test]
fn damaged_files_are_replaced() {
    let mut lab = Lab::started(DAYS);
    let weir = lab.start();
    weir.wait_for_line(ISSUED);
    weir.signal("TERM");
    weir.wait();
    for file in lab.files(".pem").iter().chain(&lab.files(".account.json")) {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }
    let weir = lab.start();
    weir.wait_for_line(ISSUED);
    weir.wait_for_line("the stored certificate cannot be used");
    weir.wait_for_line("the stored ACME account cannot be used");
    assert_eq!(lab.connect(HOST).unwrap().get("/").status, 200);
    weir.signal("TERM");
    weir.wait();

    std::fs::remove_file(&lab.files(".pem")[0]).unwrap();
    lab.pebble.kill();
    lab.pebble.start();
    let weir = lab.start();
    weir.wait_for_line(ISSUED);
    weir.wait_for_line("the authority does not know the ACME account");
    assert_eq!(lab.connect(HOST).unwrap().get("/").status, 200);
}

/// An order is not made if its certificate could not be stored. Another process that orders is waited for.
#[test]
fn no_order_without_the_folder() {
    let lab = Lab::started(DAYS);
    std::fs::write(lab.folder.path().join("acme"), "a file").unwrap();
    let weir = lab.start();
    let line = weir.wait_for_line("no certificate by ACME");
    assert!(line.contains("cannot use the folder"), "{line}");
    assert!(!weir.lines().iter().any(|line| line.contains("ordering")));

    std::fs::remove_file(lab.folder.path().join("acme")).unwrap();
    std::fs::create_dir(lab.folder.path().join("acme")).unwrap();
    let lock = std::fs::File::create(lab.folder.path().join("acme/lock")).unwrap();
    lock.lock().unwrap();
    replace(&weir.config_file(), &lab.config(&[HOST], "contact = \"mailto:a@weir.test\"", ""));
    weir.wait_for_line("another process orders");
    assert!(!weir.lines().iter().any(|line| line.contains("ordering")));
    assert_eq!(weir.metric(FAILED), 1.0);
}

/// A directory without TLS: it knows accounts, and answers each order with `order`.
fn stub(order: &'static str) -> Upstream {
    Upstream::answering(move |request, stream| {
        use std::io::Write;
        let base = format!("http://{}", request.header("host").unwrap());
        let (head, body) = match request.target() {
            "/dir" => {
                let url = |name: &str| format!("\"{name}\": \"{base}/{name}\"");
                (String::new(), format!("{{{}, {}, {}}}", url("newNonce"), url("newAccount"), url("newOrder")))
            }
            "/newNonce" => (String::new(), String::new()),
            "/newAccount" => (format!("location: {base}/account\r\n"), "{\"status\": \"valid\"}".to_owned()),
            _ if order.is_empty() => return true,
            _ => return stream.write_all(order.as_bytes()).is_ok(),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nreplay-nonce: n\r\ncontent-length: {length}\r\n{head}\r\n{body}");
        stream.write_all(answer.as_bytes()).is_ok()
    })
}

fn stubbed(directory: &Upstream, folder: &tempfile::TempDir) -> Weir {
    let tls = format!(
        "tls = {{ listen = \"127.0.0.1:0\", acme = {{ domains = [\"{HOST}\"], agree_to_terms = true, \
         folder = \"{}\", directory = \"http://{}/dir\" }} }}",
        folder.path().display(),
        directory.address()
    );
    Weir::start_with(&Upstream::start(), &tls, NEVER)
}

/// The delay is that of the authority, from the first failure on.
#[test]
fn a_rate_limit_of_the_authority_is_obeyed() {
    let body = "{\"type\": \"urn:ietf:params:acme:error:rateLimited\", \"detail\": \"too many\\ncertificates\"}";
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\nreplay-nonce: n\r\nretry-after: 7200\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (directory, folder) = (stub(answer.leak()), tempfile::tempdir().unwrap());
    let weir = stubbed(&directory, &folder);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_for_line("no certificate by ACME")).unwrap();
    assert!((7200..7216).contains(&line["retry_s"].as_u64().unwrap()), "{line}");
    assert!(
        line["error"].as_str().unwrap().contains("toomany") || line["error"].as_str().unwrap().contains("too many")
    );
    assert_eq!(weir.metric(FAILED), 1.0);
}

/// An answer that a client does not understand is a failed order, and no more.
#[test]
fn answers_that_are_wrong_are_failures() {
    for order in [
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops",
        "HTTP/1.1 201 Created\r\nlocation: :\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 201 Created\r\nreplay-nonce: n\r\nlocation: x\r\ncontent-length: 68\r\n\r\n\
         {\"status\": \"pending\", \"authorizations\": [\"not a url\"], \"finalize\": \"x\"}",
        "HTTP/1.1 201 Created\r\ncontent-length: 99999999\r\n\r\n",
    ] {
        let (directory, folder) = (stub(order), tempfile::tempdir().unwrap());
        let weir = stubbed(&directory, &folder);
        weir.wait_for_line("no certificate by ACME");
        assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    }
}

/// A shutdown and a successor do not wait for an order.
#[test]
fn an_order_ends_with_the_process() {
    let (directory, folder) = (stub(""), tempfile::tempdir().unwrap());
    let weir = stubbed(&directory, &folder);
    weir.wait_for_line("ordering a certificate");
    weir.wait_until("an order", || directory.targets().iter().any(|target| target == "/newOrder"));
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    let lock = std::fs::File::open(folder.path().join("lock")).unwrap();
    lock.try_lock().unwrap();
}

/// The account is bound to one that the authority knows.
#[test]
fn an_external_account_is_used() {
    let mut lab = Lab::new(DAYS);
    lab.pebble.require_account("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W");
    lab.pebble.start();
    let weir = lab.start();
    let line = weir.wait_for_line("no certificate by ACME");
    assert!(line.contains("externalAccountRequired"), "{line}");
    let key = lab.folder.path().join("key");
    std::fs::write(&key, "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n").unwrap();
    let external = format!("external = {{ key_id = \"kid-1\", key = {{ file = \"{}\" }} }}", key.display());
    replace(&weir.config_file(), &lab.config(&[HOST], &external, ""));
    weir.wait_for_line(ISSUED);
    assert_eq!(lab.connect(HOST).unwrap().get("/").status, 200);
}

/// The successor begins with the stored certificate.
#[test]
fn a_successor_takes_the_certificate_over() {
    let lab = Lab::started(DAYS);
    let socket = lab.folder.path().join("takeover.sock").display().to_string();
    let text = lab.config(&[HOST], "", "").replace("[server]\n", &format!("[server]\ntakeover = \"{socket}\"\n"));
    let old = Weir::start_as(&text);
    old.wait_for_line(ISSUED);
    let mut open = lab.connect(HOST).unwrap();
    let new = Weir::start_as(&text);
    new.wait_for_line("\"took over\"");
    old.wait_for_line("\"handed over\"");
    assert_eq!(open.get("/a").status, 200);
    assert_eq!(shown(&mut lab.connect(HOST).unwrap()), shown(&mut open));
    new.wait_for_line("stored certificate in use");
    assert!(!new.lines().iter().any(|line| line.contains("ordering")));
}
