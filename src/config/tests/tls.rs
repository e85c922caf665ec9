//! `[server.tls]`, and identities from certificates.

use std::path::Path;

use rcgen::{CertificateParams, KeyPair};

use super::super::{Config, Diagnostics};
use super::UPSTREAM;
use crate::engine::policy::access::AccessRule;
use crate::engine::policy::{CertificateName, IdentitySource, Principal};
use crate::fleet::stores::driver::{Password, Servers};

/// A folder with `a` and `b`, each `.pem` and `.key`, and files that are neither.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for name in ["a", "b"] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![format!("{name}.test")]).unwrap().self_signed(&key).unwrap();
        write(&format!("{name}.pem"), &certificate.pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
    let pem = |what: &str| format!("-----BEGIN {what}-----\naHVudGVyMg==\n-----END {what}-----\n");
    write("empty.pem", "");
    write("garbage.pem", "hunter2");
    write("broken.pem", &pem("CERTIFICATE"));
    write("broken.key", &pem("PRIVATE KEY"));
    write("locked.key", &pem("ENCRYPTED PRIVATE KEY"));
    folder
}

fn compile(folder: &Path, text: &str) -> Result<Config, Diagnostics> {
    super::super::compile(&format!("{text}\n{UPSTREAM}"), "weir.toml", folder, &|_| None)
}

/// The problems with `text` as a user reads them, and in brief. The folder is called `DIR`.
fn both(text: &str) -> [String; 2] {
    let folder = folder();
    let problems = compile(folder.path(), text).expect_err("this is wrong");
    let said = problems.to_string();
    assert!(!said.contains("hunter2") && !said.contains("aHVudGVyMg"), "{said}");
    [said, problems.brief()].map(|text| text.replace(&folder.path().display().to_string(), "DIR"))
}

fn said(text: &str) -> String {
    let [said, _] = both(text);
    said
}

fn brief(text: &str) -> String {
    let [_, brief] = both(text);
    brief
}

const A: &str = "certificates = [{ cert = 'a.pem', key = 'a.key' }]";

#[test]
fn what_is_right() {
    let folder = folder();
    let text = "[server.tls]
certificates = [{ cert = 'a.pem', key = 'a.key' }, { cert = 'b.pem', key = 'b.key' }]
client_ca = 'b.pem'
client_auth = 'optional'
[identity.device]
tls = 'san_uri'";
    let config = compile(folder.path(), text).unwrap();
    assert!(config.proxy.tls.is_some());
    assert!(matches!(config.policy.identities[0].source, IdentitySource::Certificate(CertificateName::SanUri)));
    let files: Vec<_> = config.sources.paths().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(files, ["a.pem", "a.key", "b.pem", "b.key"], "all of them are watched");
    assert!(compile(folder.path(), "").unwrap().proxy.tls.is_none());
}

/// Requests have the DNS names of certificates in lower case.
#[test]
fn dns_names_of_clients_are_compared_in_lower_case() {
    let text = |name: &str, other: &str| {
        format!(
            "[server.tls]\n{A}\nclient_ca = 'b.pem'\n[identity.device]\ntls = '{name}'\n\
             [access]\ndeny.identity.device = 'Cam.Test'\n[[limit]]\nname = 'l'\nkey = ['device']\nrate = '1/s'\n\
             overrides = {{ 'Cam.test' = '2/s', '{other}' = '3/s' }}"
        )
    };
    let folder = folder();
    for (name, denied) in [("san_dns", "cam.test"), ("san_uri", "Cam.Test"), ("subject_cn", "Cam.Test")] {
        let access = compile(folder.path(), &text(name, "other")).unwrap().policy.access.unwrap();
        for value in ["cam.test", "Cam.Test"] {
            let rule = access.by_identity(0, &Principal::Claim(value.into()));
            assert_eq!(rule, (value == denied).then_some(AccessRule::Deny), "{name} {value}");
        }
    }
    assert!(compile(folder.path(), &text("san_uri", "cam.Test")).is_ok());
    assert!(brief(&text("san_dns", "cam.Test")).contains("this key occurs twice"));
}

#[test]
fn sessions_go_on_if_nothing_changed() {
    let folder = folder();
    let tls = |text: &str| compile(folder.path(), &format!("[server.tls]\n{text}")).unwrap().proxy.tls.unwrap();
    assert_eq!(tls(A), tls(A));
    for other in [
        "certificates = [{ cert = 'b.pem', key = 'b.key' }]".to_owned(),
        "certificates = [{ cert = 'a.pem', key = 'a.key' }, { cert = 'b.pem', key = 'b.key' }]".to_owned(),
        format!("{A}\nclient_ca = 'a.pem'"),
    ] {
        assert_ne!(tls(A), tls(&other));
    }
    let clients = |text: &str| tls(&format!("{A}\nclient_ca = {text}"));
    assert_eq!(clients("'a.pem'"), clients("'a.pem'\nclient_auth = 'required'"));
    assert_ne!(clients("'a.pem'"), clients("'a.pem'\nclient_auth = 'optional'"));
    assert_ne!(clients("'a.pem'"), clients("'b.pem'"));
}

#[test]
fn certificates_that_are_none() {
    insta::assert_snapshot!(brief("[server.tls]"), @r"
    1:1 «[server.tls]» `server.tls` needs `certificates` or `acme`
      = add `certificates` with a file of a certificate and one of its key, or `acme`, which orders one
    ");
    insta::assert_snapshot!(brief("[server]\ntls = { certificates = [] }"), @"2:24 «[]» `server.tls.certificates`: TLS needs at least one certificate");
    insta::assert_snapshot!(brief("[server.tls]\ncertificates = [{ cert = 'a.pem' }]"), @r"
    2:17 «{ cert = 'a.pem' }» `server.tls.certificates.key` is missing
      = expected string (file). Its private key in PEM, without a password.
    ");
    insta::assert_snapshot!(brief("[server.tls]
certificates = [
  { cert = 'gone.pem', key = 'gone.key' },
  { cert = 'empty.pem', key = 'a.key' },
  { cert = 'garbage.pem', key = 'a.key' },
  { cert = 'broken.pem', key = 'a.key' },
  { cert = 'a.key', key = 'a.key' },
]"), @r"
    3:12 «'gone.pem'» `server.tls.certificates.cert`: cannot read `DIR/gone.pem`: No such file or directory (os error 2)
    3:30 «'gone.key'» `server.tls.certificates.key`: cannot read `DIR/gone.key`: No such file or directory (os error 2)
    4:12 «'empty.pem'» `server.tls.certificates.cert`: no certificate in PEM
    5:12 «'garbage.pem'» `server.tls.certificates.cert`: no certificate in PEM
    6:12 «'broken.pem'» `server.tls.certificates.cert`: no certificate in PEM
    7:12 «'a.key'» `server.tls.certificates.cert`: no certificate in PEM
    ");
}

#[test]
fn keys_that_are_none() {
    insta::assert_snapshot!(brief("[server.tls]
certificates = [
  { cert = 'a.pem', key = 'b.key' },
  { cert = 'a.pem', key = 'empty.pem' },
  { cert = 'a.pem', key = 'garbage.pem' },
  { cert = 'a.pem', key = 'broken.key' },
  { cert = 'a.pem', key = 'locked.key' },
  { cert = 'a.pem', key = 'a.pem' },
]"), @r"
    3:27 «'b.key'» `server.tls.certificates.key`: not the key of this certificate
    4:27 «'empty.pem'» `server.tls.certificates.key`: no private key in PEM, or one behind a password
    5:27 «'garbage.pem'» `server.tls.certificates.key`: no private key in PEM, or one behind a password
    6:27 «'broken.key'» `server.tls.certificates.key`: not a private key of type RSA, ECDSA or Ed25519
    7:27 «'locked.key'» `server.tls.certificates.key`: no private key in PEM, or one behind a password
    8:27 «'a.pem'» `server.tls.certificates.key`: no private key in PEM, or one behind a password
    ");
}

#[test]
fn keys_are_not_written_here() {
    insta::assert_snapshot!(said("[server.tls]
certificates = [{ cert = 'a.pem', key = '-----BEGIN PRIVATE KEY----- hunter2' }]"), @r#"
    error: `server.tls.certificates.key`: must be the name of a file, not its content
     --> weir.toml:2:41
      |
    2 | certificates = [{ cert = 'a.pem', key = ****************************************
      |                                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said("[server.tls]
certificates = [{ cert = 'a.pem', key = ['hunter2'] }]"), @r#"
    error: `server.tls.certificates.key`: expected string (file)
     --> weir.toml:2:41
      |
    2 | certificates = [{ cert = 'a.pem', key = [*********] }]
      |                                         ^^^^^^^^^^^ this is a list
    "#);
    insta::assert_snapshot!(said("[server.tls]
certificates = [{ cert = 'a.pem', key = \"-----BEGIN PRIVATE KEY-----
hunter2
-----END PRIVATE KEY-----\" }]"), @r#"
    error: not valid TOML: invalid basic string, expected `"`
     --> weir.toml:2:69
      |
    2 | certificates = [{ cert = 'a.pem', key = "-----BEGIN PRIVATE KEY-----
      |                                                                     ^

    error: not valid TOML: missing comma between key-value pairs, expected `,`
     --> weir.toml:3:1
      |
    3 | *******
      | ^

    error: not valid TOML: missing assignment between key-value pairs, expected `=`
     --> weir.toml:4:1
      |
    4 | *****************************
      | ^
    "#);
}

#[test]
fn client_certificates() {
    insta::assert_snapshot!(brief(&format!("[server.tls]\n{A}\nclient_ca = 'garbage.pem'")), @"3:13 «'garbage.pem'» `server.tls.client_ca`: no certificate in PEM");
    insta::assert_snapshot!(brief(&format!("[server.tls]\n{A}\nclient_ca = 'broken.pem'")), @"3:13 «'broken.pem'» `server.tls.client_ca`: a certificate in it cannot be read");
    insta::assert_snapshot!(brief(&format!("[server.tls]\n{A}\nclient_auth = 'optional'")), @"3:15 «'optional'» `server.tls.client_auth`: has no effect without `client_ca`");
    insta::assert_snapshot!(brief("[identity.device]\ntls = 'subject_cn'"), @"2:7 «'subject_cn'» `identity.NAME.tls`: clients send certificates only with `server.tls.client_ca`");
    insta::assert_snapshot!(brief("[identity.device]\ntls = 'cn'\nheader = 'x'"), @r"
    1:11 «device» identity `device` has both `header` and `tls`
      = an identity needs exactly one of them
    ");
}

#[test]
fn a_store_has_the_files_of_its_servers() {
    let folder = folder();
    let tls = "tls = { ca = 'b.pem', cert = 'a.pem', key = 'a.key' }";
    let text = format!("[store.main]\nredis = 'rediss://a.test'\n{tls}\npassword = {{ file = 'garbage.pem' }}");
    let mut config = compile(folder.path(), &text).unwrap();
    let files: Vec<_> = config.sources.paths().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(files, ["garbage.pem", "b.pem", "a.pem", "a.key"], "all of them are watched");
    let settings = config.stores.remove(0);
    let Servers::Redis { login, .. } = &settings.servers else { panic!("{settings:?}") };
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let files = settings.tls.clone().unwrap();
    let own = files.own.unwrap();
    assert_eq!(files.authorities.as_deref(), Some(&*read("b.pem")));
    assert_eq!((&*own.chain, &*own.key), (&*read("a.pem"), &*read("a.key")));
    assert_eq!(login.password.as_ref().map(Password::reveal), Some("hunter2"));

    // A reload sees that the store is another one.
    std::fs::write(folder.path().join("b.pem"), read("a.pem")).unwrap();
    assert_ne!(compile(folder.path(), &text).unwrap().stores, [settings]);
}

#[test]
fn files_of_a_store_that_are_none() {
    let tls = |tls: &str| said(&format!("[store.main]\nredis = 'rediss://a.test'\ntls = {{ {tls} }}"));
    for (text, place, option) in [
        ("ca = 'empty.pem'", "3:14", "ca"),
        ("ca = 'broken.pem'", "3:14", "ca"),
        ("cert = 'a.pem', key = 'broken.key'", "3:31", "key"),
        ("cert = 'a.pem', key = 'b.key'", "3:31", "key"),
        ("key = 'a.key'", "3:15", "key"),
    ] {
        let said = tls(text);
        let start = format!("error: `store.NAME.tls.{option}`: ");
        assert!(said.starts_with(&start) && said.contains(&format!("weir.toml:{place}")), "{text}: {said}");
    }
}
