//! A configuration behind a URL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{REACHABLE, SUCCESSFUL, config, run, said, shown_limit, start, until_limit};
use crate::support::{Cert, Received, Upstream, poll};

/// A document with an `ETag`, as a web server has it.
#[derive(Clone, Default)]
struct Document(Arc<Mutex<(String, String)>>);

impl Document {
    fn set(&self, tag: &str, text: &str) {
        *self.0.lock().unwrap() = (tag.to_owned(), text.to_owned());
    }

    /// The response to a request with these values of `If-None-Match`.
    fn answer(&self, known: Option<&str>) -> String {
        let (tag, text) = self.0.lock().unwrap().clone();
        let head = if tag.is_empty() { String::new() } else { format!("etag: {tag}\r\n") };
        match &*text {
            "broken" => "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_owned(),
            _ if known.is_some_and(|known| known == tag) => format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n"),
            _ => format!("HTTP/1.1 200 OK\r\n{head}content-length: {}\r\n\r\n{text}", text.len()),
        }
    }

    fn serve(&self) -> Upstream {
        let document = self.clone();
        Upstream::answering(move |request: &Received, stream| {
            let _ = stream.write_all(document.answer(request.header("if-none-match").as_deref()).as_bytes());
            false
        })
    }
}

const OPTIONS: [&str; 2] = ["--config-poll", "100ms"];

#[test]
fn a_document_is_polled_by_its_tag() {
    let (upstream, document) = (Upstream::start(), Document::default());
    document.set("\"1\"", &config(&upstream, 1000));
    let server = document.serve();
    let url = format!("http://{}/weir.toml?tenant=1", server.address());
    let weir = start(&url, &OPTIONS);
    until_limit(&weir, "1000");
    // 304 costs no reload.
    let asked = server.received_count();
    poll(|| (server.received_count() >= asked + 5).then_some(()));
    assert!(weir.lines().iter().all(|line| !line.contains("\"reloaded\"")));
    let requests = server.received();
    assert!(requests[0].header("if-none-match").is_none() && requests[0].target() == "/weir.toml?tenant=1");
    assert!(requests[asked..].iter().all(|request| request.header("if-none-match").as_deref() == Some("\"1\"")));

    document.set("W/\"2\"", &config(&upstream, 2000));
    let line = weir.wait_for_line("\"reloaded\"");
    assert!(line.contains(r#""revision":"W/\"2\"""#), "{line}");
    until_limit(&weir, "2000");
    assert_eq!(weir.metric("weir_config_info{revision=\"W/\\\"2\\\"\"}"), 1.0);

    document.set("\"3\"", "[upstream]\nurl = 7\n");
    weir.wait_for_metric(SUCCESSFUL, |value| value == 0.0);
    document.set("\"4\"", &"#".repeat((16 << 20) + 2));
    weir.wait_for_line("the body of the answer with status 200 OK is invalid: length limit exceeded");
    document.set("", "broken");
    weir.wait_for_line("the status of the response is 500");
    weir.wait_for_metric(REACHABLE, |value| value == 0.0);
    assert_eq!(shown_limit(&weir).as_deref(), Some("2000"));

    // Without a tag the bytes are compared.
    document.set("", &config(&upstream, 4000));
    until_limit(&weir, "4000");
    assert_eq!((weir.metric(SUCCESSFUL), weir.metric(REACHABLE)), (1.0, 1.0));
    let (reloads, asked) = (weir.wait_for_lines("\"reloaded\"", 2).len(), server.received_count());
    poll(|| (server.received_count() >= asked + 3).then_some(()));
    assert_eq!(weir.wait_for_lines("\"reloaded\"", reloads).len(), reloads);
    assert!(weir.lines().iter().all(|line| !line.contains("tenant")), "a query may have a secret");
}

#[test]
fn a_start_without_the_server_uses_the_last_good_version() {
    let (upstream, document) = (Upstream::start(), Document::default());
    let state = tempfile::tempdir().unwrap();
    let options = ["--config-poll", "100ms", "--state-dir", state.path().to_str().unwrap()];
    document.set("\"1\"", &config(&upstream, 1000));
    let server = document.serve();
    let url = format!("http://{}/", server.address());
    drop(start(&url, &options));
    document.set("", "broken");
    let weir = start(&url, &options);
    let line = weir.wait_for_line("the configuration cannot be read; the last good one on disk is in force");
    assert!(line.contains("500") && line.contains(r#""revision":"\"1\"""#), "{line}");
    assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
    document.set("\"2\"", &config(&upstream, 2000));
    until_limit(&weir, "2000");

    document.set("", "broken");
    let output = run(&url, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("500 Internal Server Error; and no last good configuration"), "{output:?}");
}

/// A server that rotates its tokens: the file of the token is read again when the server refuses the known one.
#[test]
fn a_token_may_change() {
    let (upstream, document) = (Upstream::start(), Document::default());
    document.set("\"1\"", &config(&upstream, 1000));
    let valid = Arc::new(Mutex::new("hunter1"));
    let (served, expected) = (document.clone(), Arc::clone(&valid));
    let server = Upstream::answering(move |request: &Received, stream| {
        let is_valid = request.header("authorization") == Some(format!("Bearer {}", expected.lock().unwrap()));
        let refusal = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned();
        let _ = stream.write_all(if is_valid { served.answer(None) } else { refusal }.as_bytes());
        false
    });
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "hunter1\n").unwrap();
    let options = ["--config-poll", "100ms", "--config-token", token.to_str().unwrap()];
    let weir = start(&format!("http://{}/", server.address()), &options);
    until_limit(&weir, "1000");

    std::fs::write(&token, "hunter2\n").unwrap();
    *valid.lock().unwrap() = "hunter2";
    document.set("\"2\"", &config(&upstream, 2000));
    until_limit(&weir, "2000");
    assert!(weir.lines().iter().all(|line| !line.contains("cannot be fetched")), "the change is no failure");

    // The known token stays while the file cannot be read.
    std::fs::remove_file(&token).unwrap();
    document.set("\"3\"", &config(&upstream, 3000));
    until_limit(&weir, "3000");
    *valid.lock().unwrap() = "hunter3";
    document.set("\"4\"", &config(&upstream, 4000));
    weir.wait_for_line("401 Unauthorized; cannot read the token");
    assert_eq!(shown_limit(&weir).as_deref(), Some("3000"));
    std::fs::write(&token, "hunter3\n").unwrap();
    until_limit(&weir, "4000");
    assert!(weir.lines().iter().all(|line| !line.contains("hunter")));
}

/// A server of `document` over TLS, and the heads that it has read.
fn tls_server(cert: &Cert, document: Document) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(cert.key.as_bytes()).unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(vec![cert.der()], key).unwrap());
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&heads);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, socket);
            let mut head = [0; 4096];
            let Ok(read @ 1..) = stream.read(&mut head) else { continue };
            seen.lock().unwrap().push(String::from_utf8_lossy(&head[..read]).into_owned());
            let _ = stream.write_all(document.answer(None).as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (address, heads)
}

#[test]
fn a_server_is_verified_before_it_sees_credentials() {
    let cert = Cert::of_hosts(&["localhost"]);
    let (upstream, document) = (Upstream::start(), Document::default());
    document.set("\"1\"", &config(&upstream, 1000));
    let (address, heads) = tls_server(&cert, document);
    let url = format!("https://localhost:{}/", address.port());
    let folder = tempfile::tempdir().unwrap();
    cert.write(folder.path(), "ca");
    std::fs::write(folder.path().join("token"), "hunter2\n").unwrap();
    std::fs::write(folder.path().join("login"), "me:hunter2\n").unwrap();
    let [ca, token, login] = ["ca.pem", "token", "login"].map(|name| folder.path().join(name).display().to_string());

    let output = run(&url, &["--config-token", &token]);
    assert!(said(&output).contains("no TLS session"), "{output:?}");
    assert_eq!(heads.lock().unwrap().len(), 0);
    for (option, file, field) in [
        ("--config-token", &token, "authorization: Bearer hunter2\r\n"),
        ("--config-login", &login, "authorization: Basic bWU6aHVudGVyMg==\r\n"),
    ] {
        let weir = start(&url, &["--config-ca", &ca, option, file]);
        assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
        let head = heads.lock().unwrap().last().unwrap().to_lowercase();
        assert!(head.contains(&field.to_lowercase()), "{head}");
        assert!(weir.lines().iter().all(|line| !line.contains("hunter2")));
    }
}
