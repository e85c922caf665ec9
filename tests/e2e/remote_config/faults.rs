//! An etcd that is down, and starts without a valid version.

use serde_json::Value;

use super::{KEY, REACHABLE, SUCCESSFUL, config, run, said, shown_limit, start, until_limit, until_status};
use crate::support::{Cert, Etcd, Upstream, Weir};

#[test]
fn an_etcd_that_is_killed_and_restarted_loses_no_change() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    etcd.put(KEY, config(&upstream, 1000));
    let weir = start(&etcd.url(KEY), &["--replica", "a"]);
    weir.wait_for_metric(REACHABLE, |value| value == 1.0);
    for rate in [2000, 3000] {
        etcd.kill();
        weir.wait_for_metric(REACHABLE, |value| value == 0.0);
        weir.signal("HUP");
        assert!(shown_limit(&weir).is_some(), "requests need no etcd");
        etcd.restart();
        etcd.put(KEY, config(&upstream, rate));
        // The history goes before the watch is back, or soon after.
        etcd.call(&["compact", &etcd.revision(KEY).to_string()]);
        until_limit(&weir, &rate.to_string());
        until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    }
    assert_eq!(weir.metric(SUCCESSFUL), 1.0);
}

#[test]
fn a_start_without_etcd_uses_the_last_good_version() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let state = tempfile::tempdir().unwrap();
    let state = ["--replica", "a", "--state-dir", state.path().to_str().unwrap()];
    etcd.put(KEY, config(&upstream, 1000));
    let first = start(&etcd.url(KEY), &state);
    etcd.put(KEY, config(&upstream, 2000));
    let good = etcd.revision(KEY);
    until_limit(&first, "2000");
    first.wait_for_line("\"reloaded\"");
    drop(first);
    etcd.kill();

    let second = start(&etcd.url(KEY), &state);
    let line = second.wait_for_line("the configuration cannot be read; the last good one on disk is in force");
    assert!(line.contains("WARN") && line.contains(&format!("\"revision\":\"{good}\"")), "{line}");
    assert_eq!(shown_limit(&second).as_deref(), Some("2000"));
    assert_eq!(second.metric(REACHABLE), 0.0);
    etcd.restart();
    until_status(&second, &etcd, "a", "in_force", good);
    etcd.put(KEY, config(&upstream, 3000));
    until_limit(&second, "3000");
}

/// Asserts that a Weir shows a version as refused since its start.
#[track_caller]
fn assert_refused(weir: &Weir, outcome: &str, revision: &str) {
    weir.wait_for_metric(SUCCESSFUL, |successful| successful == 0.0);
    let get = |target: &str| weir.ask_admin("GET", target, &Value::Null).text();
    let reloads: Value = serde_json::from_str(&get("/v1/reloads")).unwrap();
    let last = &reloads[0];
    assert_eq!((&last["outcome"], &last["revision"]), (&outcome.into(), &revision.into()), "{reloads}");
    let page = get("/");
    assert!(page.contains("The last reload failed"), "{page}");
}

#[test]
fn a_start_with_an_invalid_version_uses_the_last_good_one() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let state = tempfile::tempdir().unwrap();
    let state = ["--replica", "a", "--state-dir", state.path().to_str().unwrap()];
    etcd.put(KEY, config(&upstream, 1000));
    drop(start(&etcd.url(KEY), &state));
    etcd.put(KEY, "[upstream]\nurl = 7\n");
    let weir = start(&etcd.url(KEY), &state);
    weir.wait_for_line("the configuration is invalid; the last good one on disk is in force");
    until_status(&weir, &etcd, "a", "refused", etcd.revision(KEY));
    assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
    assert_refused(&weir, "invalid", &etcd.revision(KEY).to_string());
    etcd.put(KEY, config(&upstream, 2000));
    until_limit(&weir, "2000");
    weir.wait_for_metric(SUCCESSFUL, |successful| successful == 1.0);
    drop(weir);
    etcd.put(KEY, " ");
    let weir = start(&etcd.url(KEY), &state);
    assert_eq!(shown_limit(&weir).as_deref(), Some("2000"));
    assert_refused(&weir, "refused", &etcd.revision(KEY).to_string());

    // Without a last good version there is nothing to run with.
    etcd.put(KEY, "[upstream]\nurl = 7\n");
    let output = run(&etcd.url(KEY), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(said(&output).contains(&format!("{}:2:7", etcd.url(KEY))), "{}", said(&output));
    etcd.call(&["del", KEY]);
    let output = run(&etcd.url(KEY), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("the key does not exist; and no last good configuration in state/"), "{output:?}");
}

#[test]
fn etcd_with_tls_and_a_login() {
    let cert = Cert::of_hosts(&["localhost"]);
    let (upstream, mut etcd) = (Upstream::start(), Etcd::with_tls(&cert));
    etcd.require_login("hunter2");
    etcd.put(KEY, config(&upstream, 1000));
    let folder = tempfile::tempdir().unwrap();
    cert.write(folder.path(), "ca");
    let ca = folder.path().join("ca.pem").display().to_string();
    let (right, wrong) = (folder.path().join("right"), folder.path().join("wrong"));
    std::fs::write(&right, "root:hunter2\n").unwrap();
    std::fs::write(&wrong, "root:secret7\n").unwrap();
    let [right, wrong] = [&right, &wrong].map(|path| path.to_str().unwrap());

    let (url, with_ca) = (etcd.url(KEY), ["--config-ca", &*ca]);
    for (options, reason) in [
        (vec![], "no TLS session"),
        (with_ca.to_vec(), "user name is empty"),
        ([&with_ca[..], &["--config-login", wrong]].concat(), "authentication failed, invalid user ID or password"),
    ] {
        let output = run(&url, &options);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = said(&output);
        assert!(said.contains(reason) && !said.contains("secret7"), "{reason}: {said}");
    }
    let plain = url.replace("etcds", "etcd");
    assert!(said(&run(&plain, &with_ca)).contains("without TLS, so certificates have no effect"));

    let options = [&with_ca[..], &["--config-login", right, "--replica", "a"]].concat();
    let weir = start(&url, &options);
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    etcd.put(KEY, config(&upstream, 2000));
    until_limit(&weir, "2000");
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    // A report after the end of the token needs another login.
    Etcd::wait_until_tokens_end();
    etcd.put(KEY, config(&upstream, 2500));
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
    // The token of the login ends with the process of etcd, and the replica logs in again.
    etcd.kill();
    etcd.restart();
    etcd.put(KEY, config(&upstream, 3000));
    until_limit(&weir, "3000");
    assert!(weir.lines().iter().all(|line| !line.contains("hunter2")));
}
