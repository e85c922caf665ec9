//! Three Weirs with one key of etcd.

use std::time::{Duration, Instant};

use super::{KEY, REACHABLE, REVISION, SUCCESSFUL, config, shown_limit, start, status, until_limit, until_status};
use crate::support::{Etcd, Upstream, Weir, poll};

/// The bound on the time from a change in etcd until all replicas apply it.
const PROMPT: Duration = Duration::from_secs(1);

fn three(etcd: &Etcd) -> Vec<Weir> {
    ["a", "b", "c"].map(|name| start(&etcd.url(KEY), &["--replica", name])).into()
}

#[test]
fn a_change_reaches_all_replicas_within_a_second() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    etcd.put(KEY, config(&upstream, 1000));
    let weirs = three(&etcd);
    for (weir, name) in weirs.iter().zip(["a", "b", "c"]) {
        until_limit(weir, "1000");
        until_status(weir, &etcd, name, "in_force", etcd.revision(KEY));
    }
    // Under load the machine may be late, so the best of three counts.
    let delays = [2000, 3000, 4000].map(|rate| {
        etcd.put(KEY, config(&upstream, rate));
        let begin = Instant::now();
        let shown = rate.to_string();
        poll(|| weirs.iter().all(|weir| shown_limit(weir).as_deref() == Some(&*shown)).then_some(()));
        begin.elapsed()
    });
    assert!(delays.iter().any(|delay| *delay < PROMPT), "{delays:?}");

    let revision = etcd.revision(KEY);
    for (weir, name) in weirs.iter().zip(["a", "b", "c"]) {
        let line = weir.wait_for_lines("\"reloaded\"", 3).pop().unwrap();
        assert!(line.contains(&format!("\"revision\":\"{revision}\"")), "{line}");
        assert!((weir.metric(REVISION) - revision as f64).abs() < 0.5);
        assert_eq!(weir.metric(&format!("weir_config_info{{revision=\"{revision}\"}}")), 1.0);
        let report = until_status(weir, &etcd, name, "in_force", revision);
        assert_eq!(report["revision_in_force"], revision.to_string());
        assert_eq!((report["replica"].as_str(), report["problems"].as_array().unwrap().len()), (Some(name), 0));
    }
}

#[test]
fn an_invalid_version_is_refused_by_all_and_reported() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    etcd.put(KEY, config(&upstream, 1000));
    let weirs = three(&etcd);
    let good = etcd.revision(KEY);
    etcd.put(KEY, config(&upstream, 2000).replace("[upstream]", "[timeouts]\nidel = \"1s\"\n[upstream]"));
    let bad = etcd.revision(KEY);
    for (weir, name) in weirs.iter().zip(["a", "b", "c"]) {
        let report = until_status(weir, &etcd, name, "refused", bad);
        assert_eq!(report["revision_in_force"], good.to_string());
        let problems = report["problems"].to_string();
        assert!(problems.contains("6:1: unknown key `idel`"), "{problems}");
        assert_eq!((weir.metric(SUCCESSFUL), weir.metric(REVISION)), (0.0, good as f64));
        assert_eq!(shown_limit(weir).as_deref(), Some("1000"), "the old one stays");
        let line = weir.wait_for_line("the new configuration is invalid; the old one stays");
        assert!(line.contains(&format!("\"revision\":\"{bad}\"")), "{line}");
    }
    etcd.put(KEY, config(&upstream, 3000));
    for (weir, name) in weirs.iter().zip(["a", "b", "c"]) {
        until_status(weir, &etcd, name, "in_force", etcd.revision(KEY));
        assert_eq!((weir.metric(SUCCESSFUL), weir.metric(REACHABLE)), (1.0, 1.0));
        until_limit(weir, "3000");
    }
}

#[test]
fn a_key_without_a_configuration_changes_nothing() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let first = config(&upstream, 1000);
    etcd.put(KEY, &first);
    let weir = start(&etcd.url(KEY), &["--replica", "a"]);
    weir.wait_for_line("watching the configuration in etcd");
    let long = format!("{first}#{}", "x".repeat((1 << 20) - first.len()));
    let rows: [(&str, Option<Vec<u8>>, &str); 6] = [
        ("a restart", Some(first.replace("workers = 2", "workers = 1").into()), ""),
        ("deleted", None, "the key was deleted"),
        ("empty", Some(b" \n".to_vec()), "it is empty"),
        ("no text", Some(vec![0xc3, 0x28]), "is not UTF-8"),
        ("garbage", Some(b"\x01\x02\x03".to_vec()), "not valid TOML"),
        ("JSON", Some(b"{}".to_vec()), "is JSON; a configuration must be TOML"),
    ];
    for (what, value, reason) in rows {
        match &value {
            Some(value) => etcd.put(KEY, value),
            None => _ = etcd.call(&["del", KEY]),
        }
        let report = weir.wait_for(what, || {
            let report = status(&etcd, "a");
            let problems = report["problems"].to_string();
            let fits =
                if reason.is_empty() { report["restart_needed"][0] == "server" } else { problems.contains(reason) };
            fits.then_some(report)
        });
        assert_eq!(report["state"], if reason.is_empty() { "in_force" } else { "refused" }, "{what}");
        // The configuration in force waits for a restart, whatever is refused after it.
        assert_eq!(report["restart_needed"].to_string(), "[\"server\"]", "{what}");
        assert_eq!(shown_limit(&weir).as_deref(), Some("1000"), "{what}");
    }
    // A long one is fine, up to the bound of etcd.
    etcd.put(KEY, &long);
    until_status(&weir, &etcd, "a", "in_force", etcd.revision(KEY));
}

#[test]
fn a_dead_replica_vanishes_from_the_reports() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    etcd.put(KEY, config(&upstream, 1000));
    let weir = start(&etcd.url(KEY), &[]);
    let key = weir.wait_for("a report", || etcd.keys("/weir/status/").pop());
    assert!(key.ends_with(&format!("-{}", weir.pid())), "{key}");
    let lease = etcd.call(&["lease", "list"]);
    let lease = lease.lines().last().unwrap();
    let left = etcd.call(&["lease", "timetolive", "--keys", lease]);
    assert!(left.contains("granted with TTL(15s)") && left.contains(&key), "{left}");
    // As if the time were up: a living replica reports again, which may be before anybody looks.
    let first = etcd.revision(&key);
    etcd.call(&["lease", "revoke", lease]);
    weir.wait_for("another report", || etcd.keys("/weir/status/").pop().filter(|key| etcd.revision(key) > first));
}
