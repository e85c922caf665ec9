//! Signals, files beside a remote configuration, overrides, and other subcommands.

use std::process::Command;

use super::{KEY, REACHABLE, REVISION, config, said, shown_limit, start, until_limit, until_status};
use crate::support::{Answer, Client, Etcd, Upstream, Weir};

/// A limit with its rate in a file of overrides, and an identity with its keys in a file.
const FILES: &str =
    "[identity.user]\njwt = { claim = \"sub\", algorithms = [\"EdDSA\"], keys = [{ pem = \"user.pem\" }] }\n";

#[test]
fn relative_paths_are_in_the_named_folder() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let files = tempfile::tempdir().unwrap();
    let options = ["--replica", "a", "--config-folder", files.path().to_str().unwrap()];
    etcd.put(KEY, config(&upstream, 1000));
    let weir = start(&etcd.url(KEY), &options);
    etcd.put(KEY, format!("{}{FILES}", config(&upstream, 2000)));
    let refused = until_status(&weir, &etcd, "a", "refused", etcd.revision(KEY));
    assert!(refused["problems"].to_string().contains("user.pem"), "{refused}");
    // The file that was missing makes the version valid, without a change in etcd.
    std::fs::write(files.path().join("user.pem"), include_str!("../../fixtures/keys/ed25519.public.pem")).unwrap();
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    until_limit(&weir, "2000");
}

#[test]
fn a_hangup_reads_the_version_again() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    etcd.put(KEY, config(&upstream, 1000));
    let weir = start(&etcd.url(KEY), &[]);
    weir.wait_for_line("watching the configuration in etcd");
    weir.signal("HUP");
    let line = weir.wait_for_line("\"reloaded\"");
    assert!(line.contains(&format!("\"revision\":\"{}\"", etcd.revision(KEY))), "{line}");
    assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
}

#[test]
fn a_rollback_lasts_until_the_source_has_another_version() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    etcd.put(KEY, config(&upstream, 1000));
    let state = tempfile::tempdir().unwrap();
    let state = ["--state-dir", state.path().to_str().unwrap()];
    let weir = start(&etcd.url(KEY), &[&state[..], &["--replica", "a"]].concat());
    etcd.put(KEY, config(&upstream, 1000).replace("workers = 2", "workers = 1"));
    let first = etcd.revision(KEY);
    until_status(&weir, &etcd, "a", "in_force", first);
    etcd.put(KEY, config(&upstream, 2000));
    let second = etcd.revision(KEY);
    until_status(&weir, &etcd, "a", "in_force", second);
    let mut rollback = Command::new(env!("CARGO_BIN_EXE_weir"));
    let made = rollback.args(["config", "rollback", "--json", "--admin", &weir.admin().to_string()]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&made["outcome"], &made["revision"]), (&"applied".into(), &first.to_string().into()), "{made}");
    assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
    // The replica says that it has seen the newest version, and that another one is in force.
    let report = until_status(&weir, &etcd, "a", "refused", second);
    assert_eq!(report["revision_in_force"], first.to_string(), "{report}");
    assert!(report["problems"].to_string().contains("an operator has returned"), "{report}");
    assert_eq!(report["restart_needed"].to_string(), "[\"server\"]", "{report}");
    assert_eq!(weir.metric(REVISION).to_string(), first.to_string());
    // A version that is read again after an outage does not end the rollback. A newer version does.
    etcd.kill();
    weir.wait_until("an outage", || weir.metric(REACHABLE) == 0.0);
    // Nor does a process that starts during the outage.
    let other = start(&etcd.url(KEY), &[&state[..], &["--replica", "b"]].concat());
    assert_eq!(shown_limit(&other).as_deref(), Some("1000"));
    assert_eq!(other.metric(REVISION).to_string(), first.to_string());
    drop(other);
    etcd.restart();
    weir.wait_until("the end of the outage", || weir.metric(REACHABLE) == 1.0);
    assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
    etcd.put(KEY, config(&upstream, 3000));
    until_limit(&weir, "3000");
    let report = until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    assert_eq!(report["revision_in_force"], report["revision_seen"], "{report}");
}

#[test]
fn a_successor_follows_the_same_key() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let text = |rate| config(&upstream, rate).replace("[server]\n", "[server]\ntakeover = \"takeover.sock\"\n");
    etcd.put(KEY, text(1000));
    let old = start(&etcd.url(KEY), &["--replica", "a"]);
    until_status(&old, &etcd, "a", "in_force", etcd.revision(KEY));
    let address = old.address();
    old.signal("USR2");
    // Both processes write to one log.
    old.wait_for_line("\"took over\"");
    old.wait_for_line("\"stopped\"");
    etcd.put(KEY, text(2000));
    old.wait_until("the new version at the successor", || {
        Client::connect(address).get("/").header("x-ratelimit-limit") == Some("2000")
    });
    until_status(&old, &etcd, "a", "in_force", etcd.revision(KEY));
    let line = old.wait_for_line("a successor was started");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(Command::new("kill").arg(line["pid"].to_string()).status().unwrap().success());
}

/// A configuration that is in no file has its overrides in memory, by default.
#[test]
fn overrides_are_in_memory_without_a_file() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let text = |rate: u32| config(&upstream, rate).replace("key = []", "key = [\"ip\"]");
    etcd.put(KEY, text(1000));
    let weir = start(&etcd.url(KEY), &["--replica", "a"]);
    let line = weir.wait_for_line("end with the process");
    assert!(line.contains("\"reason\":\"the configuration is not from a file\""), "{line}");
    let answer = set_override(&weir);
    assert_eq!((answer.status, answer.text().contains("not_kept")), (200, true), "{}", answer.text());
    until_limit(&weir, "7");
    // They apply to the next version, too.
    etcd.put(KEY, text(2000));
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    assert_eq!(shown_limit(&weir).as_deref(), Some("7"));
}

/// Sets the rate of this machine to 7 a second.
fn set_override(weir: &Weir) -> Answer {
    let edit = r#"{"limit":"all","key":{"ip":"127.0.0.1"},"to":"7/s"}"#;
    let head = "POST /v1/overrides HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{edit}", edit.len());
    Client::connect(weir.admin()).send(request).answer()
}

#[test]
fn overrides_set_at_run_time_apply_to_the_version_in_force() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let text = |rate: u32| {
        let limit = format!("[[limit]]\nname = \"all\"\nkey = [\"ip\"]\nrate = \"{rate}/s\"\n");
        Weir::config(&upstream, "", &limit).replace("[admin]\n", "[admin]\noverrides = \"overrides.toml\"\n")
    };
    etcd.put(KEY, text(1000));
    let weir = start(&etcd.url(KEY), &["--replica", "a"]);
    until_limit(&weir, "1000");
    // A version that is refused is no obstacle.
    etcd.put(KEY, "[upstream]\nurl = 7\n");
    until_status(&weir, &etcd, "a", "refused", etcd.revision(KEY));
    let answer = set_override(&weir);
    assert_eq!(answer.status, 200, "{}", answer.text());
    until_limit(&weir, "7");
    etcd.put(KEY, text(2000));
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    assert_eq!(shown_limit(&weir).as_deref(), Some("7"));
}

#[test]
fn check_and_explain_read_etcd() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let weir = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    etcd.put(KEY, config(&upstream, 1000));
    let url = etcd.url(KEY);
    let output = weir(&["check", "--config", &url]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(shown.starts_with(&format!("{url}: valid; limits: 1\n\nLIMIT")), "{shown}");
    let output = weir(&["explain", "--config", &url]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("limit all"), "{:?}", output.stderr);
    etcd.put(KEY, "[upstream]\nurl = 7\n");
    let output = weir(&["check", &url]);
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains(&format!("{url}:2:7")), "{}", said(&output));
    etcd.kill();
    let output = weir(&["check", &url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&format!("weir: {url}: localhost:")), "{}", said(&output));
}
