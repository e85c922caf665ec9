//! `[server.tls]` with `acme`.

use super::super::{Config, Diagnostics};
use super::UPSTREAM;

const GOOD: &str = "domains = ['Api.Example.com'], agree_to_terms = true, folder = 'acme'";

fn compile(tls: &str) -> Result<Config, Diagnostics> {
    let text = format!("[server]\nlisten = '0.0.0.0:443'\ntls = {{ {tls} }}\n{UPSTREAM}");
    let env = |name: &str| (name == "KEY").then(|| "c2VjcmV0LWtleQ".to_owned());
    let folder = tempfile::tempdir().unwrap();
    super::super::compile(&text, "weir.toml", folder.path(), &env)
}

/// The first lines of all problems.
fn said(tls: &str) -> Vec<String> {
    let said = compile(tls).expect_err("this is wrong").to_string();
    assert!(!said.contains("c2VjcmV0"), "{said}");
    said.lines().filter(|line| line.starts_with("error")).map(str::to_owned).collect()
}

#[test]
fn what_is_right() {
    let config = compile(&format!("acme = {{ {GOOD} }}")).unwrap();
    let settings = |config: &Config| {
        std::sync::Arc::clone(&config.proxy.tls.as_ref().and_then(|tls| tls.acme()).expect("it has one").settings)
    };
    let short = settings(&config);
    assert_eq!(*short.domains, ["api.example.com".to_owned()]);
    assert_eq!(short.directory.to_string(), "https://acme-v02.api.letsencrypt.org/directory");
    assert!(short.folder.is_absolute() && short.contact.is_none() && short.external.is_none());
    assert_eq!(config.warnings.len(), 0, "{}", config.warnings);

    let long = format!(
        "acme = {{ {GOOD}, contact = 'mailto:ops@example.com', directory = 'http://127.0.0.1:14000/dir', \
         external = {{ key_id = 'k', key = {{ env = 'KEY' }} }} }}"
    );
    let (one, other) = (compile(&long).unwrap(), compile(&long).unwrap());
    assert_eq!(&**settings(&one).external.as_ref().map(|external| &external.key).unwrap(), b"secret-key");
    assert!(!format!("{:?}", settings(&one)).contains("115, 101"), "the key is not shown");
    assert_ne!(one.proxy.tls, config.proxy.tls);
    // The folder of each is another one.
    assert_eq!(settings(&one).external, settings(&other).external);
}

#[test]
fn what_is_wrong() {
    let acme = |option: &str| said(&format!("acme = {{ {GOOD}, {option} }}"));
    insta::assert_snapshot!(said("client_ca = 'ca.pem'").join("\n"), @"error: `server.tls` needs `certificates` or `acme`");
    insta::assert_snapshot!(said("acme = { }").join("\n"), @r"
    error: `server.tls.acme.domains` is missing
    error: `server.tls.acme.agree_to_terms` is missing
    error: `server.tls.acme.folder` is missing
    ");
    let domains = "'*.example.com', '10.0.0.1', '::1', 'a_b', 'example.com.', 'https://a', 'ok.test', 'OK.test'";
    let domains = format!("acme = {{ domains = [{domains}], agree_to_terms = false, folder = 'f' }}");
    insta::assert_snapshot!(said(&domains).join("\n"), @r"
    error: `server.tls.acme.domains`: `*.example.com` has a wildcard, which only the challenge dns-01 can prove
    error: `server.tls.acme.domains`: `10.0.0.1` is an address; a certificate by ACME is for host names
    error: `server.tls.acme.domains`: `::1` is an address; a certificate by ACME is for host names
    error: `server.tls.acme.domains`: `example.com.` is not a host name
    error: `server.tls.acme.domains`: `https://a` is not a host name
    error: `server.tls.acme.domains`: `OK.test` occurs twice
    error: `server.tls.acme.agree_to_terms`: must be `true`
    ");
    let many: Vec<_> = (0..101).map(|number| format!("h{number}.test")).collect();
    let many = format!("acme = {{ domains = {many:?}, agree_to_terms = true, folder = 'f' }}");
    insta::assert_snapshot!(said(&many).join("\n"), @"error: `server.tls.acme.domains`: a certificate has at most 100 hosts");
    let wrong = [
        "contact = 'ops@example.com'",
        "contact = 'mailto:a@b,c@d'",
        "directory = 'http://example.com/directory'",
        "directory = 'acme'",
        "ca = 'gone.pem'",
        "external = { key_id = 'k' }",
        "external = { key_id = 'k', key = 'c2VjcmV0LWtleQ' }",
        "external = { key_id = 'k', key = { env = 'NONE' } }",
        "external = { key = { env = 'KEY' } }",
    ];
    let problems: Vec<_> = wrong.iter().flat_map(|option| acme(option)).collect();
    let problems: Vec<_> = problems.iter().map(|line| line.split("/tmp").next().unwrap_or_default()).collect();
    insta::assert_snapshot!(problems.join("\n"), @r"
    error: `server.tls.acme.contact`: is not a `mailto:` URL of one address
    error: `server.tls.acme.contact`: is not a `mailto:` URL of one address
    error: `server.tls.acme.directory`: must be `https`: an attacker on the way could choose the answers to challenges
    error: `server.tls.acme.directory`: must begin with `https://` and a host
    error: `server.tls.acme.ca`: cannot read `
    error: `server.tls.acme.external` needs `key`
    error: a secret must not be written into the configuration
    error: `server.tls.acme.external.key.env`: this environment variable is not set, or not UTF-8
    error: `server.tls.acme.external.key_id` is missing
    ");
}

#[test]
fn a_listener_that_no_authority_reaches_is_a_warning() {
    let text = format!("[server]\nlisten = 'unix:/tmp/weir.sock'\ntls = {{ acme = {{ {GOOD} }} }}\n{UPSTREAM}");
    let folder = tempfile::tempdir().unwrap();
    let config = super::super::compile(&text, "weir.toml", folder.path(), &|_| None).unwrap();
    insta::assert_snapshot!(config.warnings.to_string(), @r"
    warning[acme_unreachable]: `server.tls.acme`: no listener with TLS has a port
     --> weir.toml:3:16
      |
    3 | tls = { acme = { domains = ['Api.Example.com'], agree_to_terms = true, folder = 'acme' } }
      |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: the authority connects to port 443 of each host, and Weir must answer there
    ");
}
