//! `weir healthcheck` and `weir explain` against an admin listener with TLS, a token, or both.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Cert, NEVER, Upstream, Weir};

const TOKEN: &str = "0123456789abcdef";

/// A Weir whose operators need TLS, a certificate of `clients` if there are any, and a token.
fn start(cert: &Cert, clients: Option<&Cert>) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    cert.write(folder.path(), "own");
    std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let client_ca = clients.map_or("", |clients| {
        clients.write(folder.path(), "clients");
        "client_ca = \"clients.pem\"\n"
    });
    let tls = format!("[admin.tls]\ncertificates = [{{ cert = \"own.pem\", key = \"own.key\" }}]\n{client_ca}");
    let config = Weir::config(&Upstream::start(), "", &format!("{tls}{NEVER}"));
    let config = config.replacen("[admin]\n", "[admin]\ntoken = { file = \"token\" }\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

/// Runs a command in its folder, with no token in the environment but this.
fn run(folder: &Path, token: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).current_dir(folder).env_remove("WEIR_ADMIN_TOKEN");
    command.envs(token.map(|token| ("WEIR_ADMIN_TOKEN", token))).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn tls_and_tokens_are_spoken() {
    let cert = Cert::of_hosts(&["localhost"]);
    let weir = start(&cert, None);
    Cert::of_hosts(&["localhost"]).write(weir.folder(), "other");
    let (port, wrong) = (weir.admin().port(), "a-token-of-another-place");
    let (url, by_address) = (format!("https://localhost:{port}"), format!("https://127.0.0.1:{port}"));
    let plain = format!("localhost:{port}");
    std::fs::write(weir.folder().join("wrong"), wrong).unwrap();
    // What is asked, a token in the environment, the exit code, and what is said.
    let rows: [(&[&str], Option<&str>, i32, &str); 16] = [
        (&["healthcheck", "--admin", &url, "--ca", "own.pem"], None, 0, ""),
        (&["healthcheck", "--admin", &url, "--ca", "own.pem"], Some(wrong), 0, ""),
        (&["healthcheck", "--admin", &url], None, 1, "no TLS session"),
        (&["healthcheck", "--admin", &url, "--ca", "other.pem"], None, 1, "no TLS session"),
        (&["healthcheck", "--admin", &by_address, "--ca", "own.pem"], None, 1, "no TLS session"),
        (&["healthcheck", "--admin", &plain], None, 1, "the answer broke off"),
        (&["healthcheck", "--admin", &plain, "--ca", "own.pem"], None, 1, "need an https URL"),
        (&["healthcheck", "--admin", &url, "--ca", "token"], None, 1, "the CA certificates: "),
        (&["healthcheck", "--admin", &url, "--ca", "none.pem"], None, 1, "cannot read none.pem"),
        (&["explain", "--admin", &url, "--ca", "own.pem"], None, 1, "by `--token-file`, or set `WEIR_ADMIN_TOKEN`"),
        (
            &["explain", "--admin", &url, "--ca", "own.pem"],
            None,
            1,
            "401 Unauthorized: Authorization: the token of this",
        ),
        (&["explain", "--admin", &url, "--ca", "own.pem", "--admin-token", "token"], None, 0, "decision: admitted"),
        (&["explain", "--admin", &url, "--ca", "own.pem", "--token-file", "token"], Some(wrong), 0, "admitted"),
        (&["explain", "--admin", &url, "--ca", "own.pem", "--admin-token", "wrong"], Some(TOKEN), 1, "401"),
        (&["explain", "--admin", &url, "--ca", "own.pem"], Some(TOKEN), 0, "decision: admitted"),
        (
            &["explain", "--admin", &url, "--ca", "own.pem", "--token-file", "none"],
            None,
            1,
            "cannot read the token file `none`: ",
        ),
    ];
    for (arguments, token, code, words) in rows {
        let output = run(weir.folder(), token, arguments);
        let said = said(&output);
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments:?} {token:?}: {said}");
        assert!(!said.contains(wrong) && !said.contains(TOKEN), "{said}");
    }
}

#[test]
fn a_certificate_is_shown_where_one_is_asked_for() {
    let (cert, authority) = (Cert::of_hosts(&["localhost"]), Cert::authority());
    let weir = start(&cert, Some(&authority));
    authority.client("operator", &[], &[]).write(weir.folder(), "operator");
    let url = format!("https://localhost:{}", weir.admin().port());
    let ask = |more: &[&str]| {
        let arguments: Vec<_> =
            ["healthcheck", "--admin", &url, "--ca", "own.pem"].iter().chain(more).copied().collect();
        let output = run(weir.folder(), None, &arguments);
        (output.status.code(), said(&output))
    };
    assert_eq!(ask(&["--cert", "operator.pem", "--key", "operator.key"]), (Some(0), String::new()));
    assert_eq!(ask(&[]).0, Some(1));
    assert_eq!(ask(&["--cert", "operator.pem"]).0, Some(2), "without its key");
    let mixed = ask(&["--cert", "operator.pem", "--key", "own.key"]);
    assert!(mixed.0 == Some(1) && mixed.1.contains("the client certificate: "), "{mixed:?}");
}
