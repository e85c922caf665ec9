//! Replicas that do not belong to the fleet, and other strangers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::replicas::{connected, fleet_address, left, view};
use crate::support::{Cert, PATIENCE, Upstream, Weir};

const SECRETS: [&str; 2] = ["0123456789abcdef0123456789ABCDEF", "0123456789ABCDEF0123456789abcdef"];

/// Starts a replica with a secret and `options` of `[fleet]`, in a folder with `files`.
fn replica(upstream: &Upstream, secret: &str, options: &str, files: &[(&str, &Cert)]) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    for (name, cert) in files {
        cert.write(folder.path(), name);
    }
    let text = Weir::config(
        upstream,
        "",
        &format!(
            "[fleet]\nstrategy = \"stream\"\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nlisten = \"127.0.0.1:0\"\n{options}\n\
             [[limit]]\nname = \"all\"\nkey = []\nrate = \"600/day\"\n"
        ),
    );
    fs::write(folder.path().join("weir.toml"), text).unwrap();
    Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", secret)])
}

fn members(all: &[&Weir]) -> String {
    let addresses: Vec<_> = all.iter().map(|weir| fleet_address(weir).to_string()).collect();
    format!("members = {{ static = {addresses:?} }}")
}

/// A list without anyone else.
const NOBODY: &str = "members = { static = [\"localhost:1\"] }";

#[test]
fn a_replica_with_another_secret_is_refused() {
    let upstream = Upstream::start();
    let weir = replica(&upstream, SECRETS[0], NOBODY, &[]);
    let other = replica(&upstream, SECRETS[1], &members(&[&weir]), &[]);
    weir.wait_for_line("a replica is refused: it has another `fleet.secret`");
    let line = other.wait_for_line("it has another `fleet.secret`");
    assert!(line.contains(&fleet_address(&weir).to_string()), "{line}");
    assert_eq!((connected(&view(&weir)), connected(&view(&other))), (0, 0));
    (0..5).for_each(|_| _ = left(&other));
    assert_eq!(left(&weir), 599);
}

#[test]
fn a_replica_with_another_certificate_is_refused() {
    let upstream = Upstream::start();
    let (ca, foreign) = (Cert::authority(), Cert::authority());
    let tls = "tls = { cert = \"own.pem\", key = \"own.key\", ca = \"ca.pem\" }";
    let start = |options: &str, cert: &Cert, trusted: &Cert| {
        replica(&upstream, SECRETS[0], &format!("{options}\n{tls}"), &[("own", cert), ("ca", trusted)])
    };
    let weir = start(NOBODY, &ca.client("one", &["one"], &[]), &ca);
    let same = start(&members(&[&weir]), &ca.client("two", &[], &["spiffe://two"]), &ca);
    same.wait_until("both are connected", || connected(&view(&same)) == 1 && connected(&view(&weir)) == 1);
    let other = start(&members(&[&weir]), &foreign.client("two", &["two"], &[]), &ca);
    weir.wait_for_line("has no valid certificate");
    other.wait_for_line("a replica cannot be reached");
    let deceived = start(&members(&[&weir]), &ca.client("two", &["two"], &[]), &foreign);
    deceived.wait_for_line("a replica cannot be reached");
    let plain = replica(&upstream, SECRETS[0], &members(&[&weir]), &[]);
    plain.wait_for_line("a replica cannot be reached");
    let all = [&weir, &same, &other, &deceived, &plain].map(|weir| connected(&view(weir)));
    assert_eq!(all, [1, 1, 0, 0, 0]);
}

/// Strangers do not fill the log: an address has ten lines a minute.
#[test]
fn refused_strangers_have_few_lines() {
    let upstream = Upstream::start();
    let own = Cert::authority();
    let tls = "tls = { cert = \"own.pem\", key = \"own.key\", ca = \"own.pem\" }";
    let weir = replica(&upstream, SECRETS[0], &format!("{NOBODY}\n{tls}"), &[("own", &own)]);
    for _ in 0..60 {
        let mut stream = TcpStream::connect(fleet_address(&weir)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(b"no TLS at all");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    weir.wait_for_metric("weir_fleet_refused_total{reason=\"stranger\"}", |refused| refused >= 60.0);
    let lines = weir.lines().iter().filter(|line| line.contains("has no valid certificate")).count();
    assert!((10..=20).contains(&lines), "{lines}"); // a minute may begin between them
}

#[test]
fn plain_text_leaves_the_machine_only_if_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let check = |fleet: &str| {
        let text = format!(
            "[upstream]\nurl = \"http://127.0.0.1:1\"\n[fleet]\nstrategy = \"local\"\nsecret = {{ file = \"secret\" }}\n{fleet}"
        );
        fs::write(folder.path().join("secret"), SECRETS[0]).unwrap();
        fs::write(folder.path().join("weir.toml"), text).unwrap();
        run(folder.path())
    };
    let elsewhere = "listen = \"0.0.0.0:8082\"\nmembers = { static = [\"127.0.0.1:8082\"] }\n";
    let (code, said) = check(elsewhere);
    assert!(code == Some(3) && said.contains("other machines can reach this address, and it has no TLS"), "{said}");
    let (code, said) = check("listen = \"127.0.0.1:8082\"\nmembers = { static = [\"10.0.0.1:8082\"] }\n");
    assert!(code == Some(3) && said.contains("charges would go to other machines without TLS"), "{said}");
    assert_eq!(check(&format!("{elsewhere}insecure = true\n")).0, Some(0));
}

fn run(folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["check", "weir.toml"]).current_dir(folder).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), said)
}

/// Strangers are left after a few seconds, and replicas get through beside them.
#[test]
fn garbage_and_silence_do_no_harm() {
    let upstream = Upstream::start();
    let weir = replica(&upstream, SECRETS[0], NOBODY, &[]);
    let address = fleet_address(&weir);
    let open = || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut silent: Vec<_> = (0..100).map(|_| open()).collect();
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxx",
        &[0; 64],
        &[0x16, 3, 1, 0xff, 0xff],
    ];
    for bytes in garbage {
        let mut stream = open();
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    for stream in &mut silent {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let other = replica(&upstream, SECRETS[0], &members(&[&weir]), &[]);
    other.wait_until("both are connected", || connected(&view(&other)) == 1 && connected(&view(&weir)) == 1);
    assert!(weir.metric("weir_fleet_refused_total{reason=\"busy\"}") > 0.0);
    assert!(weir.metric("weir_fleet_refused_total{reason=\"stranger\"}") > 0.0);
}

#[test]
fn a_list_that_names_only_the_replica_itself_is_harmless() {
    let upstream = Upstream::start();
    let weir = replica(&upstream, SECRETS[0], NOBODY, &[]);
    let address = fleet_address(&weir);
    let text = fs::read_to_string(weir.config_file()).unwrap();
    let own = format!("members = {{ static = [\"{address}\", \"localhost:{}\"] }}", address.port());
    crate::ops::replace(&weir.config_file(), &text.replace(NOBODY, &format!("{own}\nleave_after = \"100ms\"")));
    let is_alone = |view: &Value| view["replicas"] == 1 && view["members"].as_array().unwrap().is_empty();
    weir.wait_until("it is alone", || is_alone(&view(&weir)));
    assert_eq!(left(&weir), 599);
    assert_eq!(left(&weir), 598, "nothing counts twice");
    assert!(is_alone(&view(&weir)));
}
