//! Keys behind a URL: verification of tokens, and failures of the URL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::support::{Answer, Cert, Client, Upstream, Weir};

/// A set with the key of [`token`] under this `kid`.
fn jwks(kid: &str) -> String {
    let pem = include_str!("../fixtures/keys/ed25519.public.pem");
    let der = STANDARD.decode(pem.lines().filter(|line| !line.starts_with('-')).collect::<String>()).unwrap();
    let x = URL_SAFE_NO_PAD.encode(&der[der.len() - 32..]);
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": kid, "use": "sig", "x": x }] }).to_string()
}

fn token(kid: &str) -> String {
    let key = EncodingKey::from_ed_pem(include_bytes!("../fixtures/keys/ed25519.private.pem")).unwrap();
    let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::EdDSA) };
    jsonwebtoken::encode(&header, &json!({ "sub": "a", "exp": 4_000_000_000_u64 }), &key).unwrap()
}

fn limits(url: &str) -> String {
    format!(
        "[identity.user]\njwt = {{ claim = \"sub\", algorithms = [\"EdDSA\"], keys = [{{ jwks_url = \"{url}\" }}] }}\n\
         [[limit]]\nname = \"all\"\nkey = [\"user\"]\nrate = \"1000/s\"\n"
    )
}

/// A server of keys that can fail.
struct Issuer {
    server: Upstream,
    says: Arc<Mutex<String>>,
}

impl Issuer {
    fn saying(answer: &str) -> Self {
        let says = Arc::new(Mutex::new(answer.to_owned()));
        let now = Arc::clone(&says);
        let server = Upstream::answering(move |_, stream| {
            let _ = stream.write_all(now.lock().unwrap().as_bytes());
            false
        });
        Self { server, says }
    }

    fn say(&self, answer: &str) {
        answer.clone_into(&mut self.says.lock().unwrap());
    }

    fn url(&self) -> String {
        format!("http://{}/keys?tenant=1", self.server.address())
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const BROKEN: &str = "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n";

fn ask(weir: &Weir, token: &str) -> Answer {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer()
}

#[test]
fn tokens_are_503_until_keys_are_fetched() {
    let issuer = Issuer::saying(BROKEN);
    let weir = Weir::start(&Upstream::start(), &limits(&issuer.url()));
    let line = weir.wait_for_line("keys cannot be fetched");
    assert!(line.contains("500") && line.contains("user") && !line.contains("tenant"), "{line}");
    let answer = ask(&weir, &token("a"));
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.header("www-authenticate"), None);
    assert!(answer.text().contains("are not available"), "{}", answer.text());
    // A request without a token, or with a malformed one, needs no keys.
    assert_eq!(Client::connect(weir.address()).get("/").status, 401);
    assert_eq!(ask(&weir, "a.b.c").status, 401);
    assert!(weir.metric("weir_problems_total{kind=\"keys_missing\"}") >= 1.0);

    issuer.say(&ok(&jwks("a")));
    weir.wait_until("the keys are there", || ask(&weir, &token("a")).status == 200);
    assert!(weir.metric("weir_jwks_fetches_total{identity=\"user\",result=\"failed\"}") >= 1.0);
    assert_eq!(weir.metric("weir_jwks_fetches_total{identity=\"user\",result=\"ok\"}"), 1.0);
    assert!(weir.metric("weir_jwks_last_success_timestamp_seconds{identity=\"user\"}") > 1e9);
    let requests = issuer.server.received();
    let head = &requests.last().unwrap().head;
    assert!(head.starts_with("GET /keys?tenant=1 HTTP/1.1\r\n") && head.contains("user-agent: weir/"), "{head}");
}

#[test]
fn fetched_keys_survive_failed_fetches_and_reloads() {
    let issuer = Issuer::saying(&ok(&jwks("a")));
    let weir = Weir::start(&Upstream::start(), &limits(&issuer.url()));
    weir.wait_for_line("keys fetched");
    assert_eq!(ask(&weir, &token("a")).status, 200);
    issuer.say(BROKEN);
    for reloads in 1..4 {
        weir.signal("HUP");
        weir.wait_for_lines("\"reloaded\"", reloads);
        assert_eq!(ask(&weir, &token("a")).status, 200);
    }
    // Tokens with invented keys are refused, and cause no fetch for a minute.
    for number in 0..50 {
        assert_eq!(ask(&weir, &token(&format!("made-up-{number}"))).status, 401);
    }
    assert_eq!(issuer.server.received_count(), 1);
}

#[test]
fn an_invalid_set_changes_nothing() {
    let moved = format!("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: {}\r\n\r\n{}", 2, "{}");
    let long = ok(&format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(2 << 20)));
    for (answer, why) in [
        (moved.as_str(), "302"),
        (&long, "is invalid: "),
        (&ok("<html>"), "not a JWK set"),
        (&ok("{\"keys\":[]}"), "no key of the JWK set fits"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", "is invalid: "),
        ("what?\r\n\r\n", "broke off"),
    ] {
        let issuer = Issuer::saying(answer);
        let weir = Weir::start(&Upstream::start(), &limits(&issuer.url()));
        let line = weir.wait_for_line("keys cannot be fetched");
        assert!(line.contains(why), "{why}: {line}");
        assert!(issuer.server.received().iter().all(|request| request.target() != "/other"));
        assert_eq!(ask(&weir, &token("a")).status, 503, "{why}");
    }
}

/// A set with the neutral element of Ed25519 as `weak`, for which anybody can sign, beside a valid and an unusable key.
fn set_with_a_weak_key() -> String {
    let mut set: serde_json::Value = serde_json::from_str(&jwks("good")).unwrap();
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let weak = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "weak", "x": URL_SAFE_NO_PAD.encode(neutral) });
    let keys = set["keys"].as_array_mut().unwrap();
    keys.insert(0, weak);
    keys.push(json!({ "kty": "new", "use": ["odd"] }));
    set.to_string()
}

/// A token without a signature by a private key: it verifies under the neutral element.
fn forged() -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "EdDSA", "kid": "weak" }).to_string());
    let payload = URL_SAFE_NO_PAD.encode(json!({ "sub": "forged", "exp": 4_000_000_000_u64 }).to_string());
    let mut signature = [0; 64];
    signature[0] = 1;
    format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn unsafe_and_unusable_keys_are_skipped_and_forgeries_refused() {
    let issuer = Issuer::saying(&ok(&set_with_a_weak_key()));
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limits(&issuer.url()));
    let line = weir.wait_for_line("keys skipped");
    assert!(line.contains("key 1: an unsafe Ed25519 key") && line.contains("key 3: not a JWK"), "{line}");
    weir.wait_until("the keys are there", || ask(&weir, &token("good")).status == 200);
    let served = upstream.received_count();
    assert_eq!(ask(&weir, &forged()).status, 401);
    assert_eq!(upstream.received_count(), served);
}

/// A server of keys over TLS. The flag is set when a client completes a handshake and asks.
pub fn tls_issuer(cert: &Cert) -> (SocketAddr, Arc<AtomicBool>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(cert.key.as_bytes()).unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(vec![cert.der()], key).unwrap());
    let asked = Arc::new(AtomicBool::new(false));
    let was_asked = Arc::clone(&asked);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, socket);
            let mut head = [0; 4096];
            if stream.read(&mut head).is_ok_and(|read| read > 0) {
                was_asked.store(true, Ordering::Release);
                let _ = stream.write_all(ok(&jwks("a")).as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (address, asked)
}

/// Starts one that trusts the certificates in `roots.pem` of its folder, and fetches keys from this address.
fn start_with_roots(issuer: SocketAddr, prepare: impl Fn(&Path)) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("https://localhost:{}/keys", issuer.port());
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&Upstream::start(), "", &limits(&url))).unwrap();
    prepare(folder.path());
    let roots = folder.path().join("roots.pem");
    Weir::start_in_env(folder, &[("SSL_CERT_FILE", roots.to_str().unwrap()), ("SSL_CERT_DIR", "")])
}

#[test]
fn the_certificate_of_the_url_is_verified() {
    let (ours, other) = (Cert::of_hosts(&["localhost"]), Cert::of_hosts(&["localhost"]));
    let elsewhere = Cert::of_hosts(&["issuer.example"]);
    for (shown, trusted, is_good) in [(&ours, &ours, true), (&ours, &other, false), (&elsewhere, &elsewhere, false)] {
        let (address, asked) = tls_issuer(shown);
        let weir = start_with_roots(address, |folder| trusted.write(folder, "roots"));
        if is_good {
            weir.wait_until("the keys are there", || ask(&weir, &token("a")).status == 200);
        } else {
            weir.wait_for_line("no TLS session");
            assert_eq!(ask(&weir, &token("a")).status, 503);
        }
        assert_eq!(asked.load(Ordering::Acquire), is_good);
    }
}

#[test]
fn each_fetch_reads_the_certificates_of_the_system() {
    let (ours, other) = (Cert::of_hosts(&["localhost"]), Cert::of_hosts(&["localhost"]));
    let weir = start_with_roots(tls_issuer(&ours).0, |_| {});
    weir.wait_for_line("the certificates of the system cannot be read");
    other.write(weir.folder(), "roots");
    weir.wait_for_line("no TLS session");
    ours.write(weir.folder(), "roots");
    weir.wait_until("the keys are there", || ask(&weir, &token("a")).status == 200);
}
