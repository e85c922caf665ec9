//! Who may ask the admin listener: tokens, TLS, and what a reload changes of both.

use rustls::version::TLS13;

use crate::ops::replace;
use crate::support::{Cert, Client, NEVER, Upstream, Weir, connect_tls, trusting};

const TOKEN: &str = "0123456789abcdef-one";
const OTHER: &str = "0123456789abcdef-two";

/// Starts one whose `[admin]` has more, in a folder with these files.
fn start(upstream: &Upstream, admin: &str, prepare: impl Fn(&std::path::Path)) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    std::fs::write(folder.path().join("weir.toml"), config(upstream, admin)).unwrap();
    Weir::start_in(folder)
}

fn config(upstream: &Upstream, admin: &str) -> String {
    Weir::config(upstream, "", NEVER).replacen("[admin]\n", &format!("[admin]\n{admin}\n"), 1)
}

fn get(path: &str, token: &str) -> String {
    let shown = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n")
}

fn status(weir: &Weir, path: &str, token: &str) -> u16 {
    Client::connect(weir.admin()).send(get(path, token)).answer().status
}

#[test]
fn everything_but_probes_needs_the_token() {
    let upstream = Upstream::start();
    let weir = start(&upstream, "token = { file = \"token\" }", |folder| {
        std::fs::write(folder.join("token"), format!("{TOKEN}\n")).unwrap();
    });
    for path in ["/metrics", "/v1/top", "/v1/explain", "/v1/spend", "/spend_ratelimiter_budget", "/v2"] {
        for token in ["", OTHER, "x"] {
            let answer = Client::connect(weir.admin()).send(get(path, token)).answer();
            assert_eq!(answer.status, 401, "{path} {token}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"weir\""));
            assert!(!answer.text().contains("0123456789abcdef"), "{}", answer.text());
        }
        assert_ne!(status(&weir, path, TOKEN), 401, "{path}");
    }
    assert_eq!((status(&weir, "/metrics", TOKEN), status(&weir, "/v1/top", TOKEN)), (200, 200));
    assert_eq!((status(&weir, "/healthz", ""), status(&weir, "/readyz", "x")), (200, 200));
    // A browser without a session is sent to the login.
    let answer = Client::connect(weir.admin()).send(get("/", "")).answer();
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login?to=%2F")));
    // The token opens nothing to web pages.
    let head = format!("GET /v1/top HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    assert_eq!(Client::connect(weir.admin()).send(head).answer().status, 403);

    std::fs::write(weir.folder().join("token"), OTHER).unwrap();
    weir.wait_until("the new token", || status(&weir, "/metrics", OTHER) == 200);
    assert_eq!(status(&weir, "/metrics", TOKEN), 401);
    assert!(!weir.lines().iter().any(|line| line.contains("0123456789abcdef")));
}

#[test]
fn other_machines_are_answered_over_tls() {
    let upstream = Upstream::start();
    let (first, second) = (Cert::of_hosts(&["localhost"]), Cert::of_hosts(&["localhost"]));
    let tls = "token = { file = \"token\" }\ntls = { certificates = [{ cert = \"a.pem\", key = \"a.key\" }] }";
    let weir = start(&upstream, tls, |folder| {
        std::fs::write(folder.join("token"), TOKEN).unwrap();
        first.write(folder, "a");
    });
    let ask = |cert: &Cert, alpn: &[&str], path: &str| {
        let config = trusting(&[cert], &[&TLS13], alpn, None);
        let mut client = connect_tls(weir.admin(), &config, "localhost").ok()?;
        Some(client.send(get(path, TOKEN)).answer().status)
    };
    for alpn in [&["http/1.1"][..], &["h2", "http/1.1"], &[]] {
        assert_eq!(ask(&first, alpn, "/metrics"), Some(200), "{alpn:?}");
    }
    assert_eq!(ask(&second, &[], "/healthz"), None);
    // Without TLS there is no answer at all.
    let mut plain = Client::connect(weir.admin());
    plain.send(get("/healthz", ""));
    assert!(!plain.rest().starts_with(b"HTTP"));

    second.write(weir.folder(), "a");
    weir.wait_until("the new certificate", || ask(&second, &[], "/metrics") == Some(200));
    // Whether there is TLS at all needs a restart.
    replace(&weir.config_file(), &config(&upstream, "token = { file = \"token\" }"));
    weir.wait_for_line("in force only after a restart");
    assert_eq!(ask(&second, &[], "/metrics"), Some(200));
}

/// A configuration with another address needs no token for it. The listener has its first address until a restart.
#[test]
fn another_address_opens_nothing_before_a_restart() {
    const FIRST: &str = "[admin]\n\nlisten = \"127.0.0.1:0\"\n";
    let upstream = Upstream::start();
    let own = "token = { file = \"token\" }";
    let weir = start(&upstream, own, |folder| {
        std::fs::write(folder.join("token"), TOKEN).unwrap();
    });
    let listens = ["listen = \"off\"", "listen = \"unix:admin.sock\"", "listen = \"127.0.0.2:0\""];
    let others = listens.map(|listen| config(&upstream, "").replace(FIRST, &format!("[admin]\n{listen}\n")));
    let without = config(&upstream, "").replace(FIRST, "");
    for (reloads, other) in others.into_iter().chain([without]).enumerate() {
        replace(&weir.config_file(), &other);
        weir.wait_for_lines("\"reloaded\"", reloads + 1);
        let statuses = ["", OTHER, TOKEN].map(|token| status(&weir, "/v1/config", token));
        assert_eq!(statuses, [401, 401, 200], "{other}");
    }
    std::fs::write(weir.folder().join("token"), OTHER).unwrap();
    replace(&weir.config_file(), &config(&upstream, own));
    weir.wait_until("the new token", || status(&weir, "/v1/config", OTHER) == 200);
    assert_eq!(status(&weir, "/v1/config", TOKEN), 401);
}

#[test]
fn silent_connections_keep_nobody_out() {
    let upstream = Upstream::start();
    let weir = start(&upstream, "", |_| {});
    let mut first = Client::connect(weir.admin());
    assert_eq!(first.send(get("/healthz", "")).answer().status, 200);
    let mut silent: Vec<_> = (0..200).map(|_| Client::connect(weir.admin())).collect();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(status(&weir, path, ""), 200);
    }
    // The oldest have made way, the newest have not.
    assert!(first.rest().is_empty() && silent[0].rest().is_empty());
    assert_eq!(silent[199].send(get("/healthz", "")).answer().status, 200);
    assert!(weir.metric("weir_admin_connections_displaced_total") >= 136.0);
}

#[test]
fn who_shakes_no_hands_keeps_nobody_out() {
    let upstream = Upstream::start();
    let cert = Cert::of_hosts(&["localhost"]);
    let tls = "tls = { certificates = [{ cert = \"a.pem\", key = \"a.key\" }] }";
    let weir = start(&upstream, tls, |folder| cert.write(folder, "a"));
    let silent: Vec<_> = (0..20).map(|_| Client::connect(weir.admin())).collect();
    let config = trusting(&[&cert], &[&TLS13], &[], None);
    let mut client = connect_tls(weir.admin(), &config, "localhost").unwrap();
    assert_eq!(client.send(get("/healthz", "")).answer().status, 200);
    drop(silent);
}
