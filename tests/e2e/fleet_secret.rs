//! `fleet.secret`: all replicas hash keys alike, and state under another secret is of no use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ops;
use crate::support::{Client, Upstream, Weir};

const SECRETS: [&str; 2] = ["0123456789abcdef0123456789ABCDEF", "0123456789ABCDEF0123456789abcdef"];

const LIMIT: &str = "[[limit]]\nname = \"a\"\nkey = [\"header:x-api-key\"]\nrate = \"10/day\"\n";

/// A folder with two secrets and a snapshot.
struct Place {
    upstream: Upstream,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (index, secret) in SECRETS.iter().enumerate() {
            fs::write(folder.path().join(index.to_string()), secret).unwrap();
        }
        Self { upstream: Upstream::start(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A configuration with the secret of this number.
    fn config(&self, secret: Option<usize>, server: &str, rest: &str) -> String {
        let fleet = secret.map(|index| {
            let file = self.path(&index.to_string());
            format!("[fleet]\nstrategy = \"local\"\nreplicas = 3\nsecret = {{ file = \"{}\" }}\n", file.display())
        });
        Weir::config(&self.upstream, server, &format!("{}{rest}{LIMIT}", fleet.unwrap_or_default()))
    }

    fn snapshot(&self) -> String {
        format!("[snapshot]\npath = \"{}\"\ninterval = \"1h\"\n", self.path("state").display())
    }
}

fn left(weir: &Weir) -> u64 {
    let mut client = Client::connect(weir.address());
    let answer = client.send("GET / HTTP/1.1\r\nhost: h\r\nx-api-key: sk-0123456789\r\n\r\n").answer();
    answer.header("x-ratelimit-remaining").unwrap().parse().unwrap()
}

/// An explanation, which contains the fingerprint of the key.
fn explanation(folder: &Path, source: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("explain").args(source).args(["--header", "x-api-key: sk-0123456789"]).current_dir(folder);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn replicas_of_a_fleet_hash_keys_alike() {
    let place = Place::new();
    let [first, second, other] = [0, 0, 1].map(|secret| Weir::start_as(&place.config(Some(secret), "", "")));
    let of = |weir: &Weir| explanation(weir.folder(), &["--admin", &weir.admin().to_string()]);
    assert!(of(&first).contains("sk-0..#"), "{}", of(&first));
    assert_eq!(of(&first), of(&second));
    let offline = explanation(first.folder(), &["--config", "weir.toml"]);
    assert_eq!(of(&first), offline.split_once('\n').unwrap().1);
    assert_ne!(of(&first), of(&other));
}

#[test]
fn a_snapshot_under_another_secret_is_set_aside() {
    let place = Place::new();
    let run = |secret, expected| {
        let weir = Weir::start_as(&place.config(secret, "", &place.snapshot()));
        assert_eq!(left(&weir), expected, "{secret:?}");
        weir.signal("TERM");
        weir.wait_for_line("\"stopped\"");
        let has_other = weir.lines().iter().any(|line| line.contains("under another secret than `fleet.secret`"));
        assert_eq!(weir.wait(), Some(0));
        has_other
    };
    assert!(!run(None, 9));
    assert!(run(Some(0), 9), "limits begin anew");
    assert!(!run(Some(0), 8));
    assert!(!run(None, 7), "without a fleet the secret of the snapshot counts");
    assert!(!run(Some(0), 6));
    assert!(run(Some(1), 9));
    assert!(place.path("state.damaged").exists());
}

#[test]
fn a_takeover_with_another_secret_begins_anew() {
    let place = Place::new();
    let takeover = format!("takeover = \"{}\"", place.path("takeover.sock").display());
    let start = |secret| Weir::start_as(&place.config(secret, &takeover, ""));
    let old = start(None);
    assert_eq!((left(&old), left(&old)), (9, 8));
    let new = start(Some(0));
    new.wait_for_line("\"took over\"");
    new.wait_for_line("limits begin anew");
    assert_eq!(left(&new), 9);
    let same = start(Some(0));
    same.wait_for_line("\"took over\"");
    assert_eq!(left(&same), 8);
}

#[test]
fn a_changed_secret_needs_a_restart() {
    let place = Place::new();
    let weir = Weir::start_as(&place.config(Some(0), "", ""));
    assert_eq!(left(&weir), 9);
    ops::replace(&weir.config_file(), &place.config(Some(1), "", ""));
    let line = weir.wait_for_line("changed, but in force only after a restart");
    assert!(line.contains("fleet.secret"), "{line}");
    assert_eq!(left(&weir), 8);

    // Keys in a store would differ from those of other replicas.
    let store = "strategy = \"redis\"\n[store.main]\nredis = \"redis://127.0.0.1:1\"\n";
    ops::replace(&weir.config_file(), &(place.config(Some(1), "", "") + store));
    weir.wait_for_line("the new configuration cannot be used; the old one stays");
    assert_eq!(weir.metric("weir_config_last_reload_successful"), 0.0);
    assert_eq!(left(&weir), 7);
}
