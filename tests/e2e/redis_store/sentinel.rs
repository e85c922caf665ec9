//! A master that sentinels replace.

use std::time::{Duration, Instant};

use weir::engine::store::backend::Unavailable;
use weir::fleet::stores::driver::{Login, Topology};

use super::lab::{Lab, address, login, settings, settings_with, until};
use crate::support::{Redis, Sentinels};

#[tokio::test]
async fn a_failover_is_followed() {
    let mut sentinels = Sentinels::start();
    let nodes = sentinels.watchers.iter().map(|watcher| address(watcher.address())).collect();
    let lab =
        Lab::deciding(settings(Topology::Sentinel { master: "limits".into(), nodes, login: Login::default() })).await;
    lab.one(1).await.unwrap().unwrap();
    until(async || sentinels.replica.keys().iter().any(|name| name.starts_with("weir:{a:")).then_some(())).await;
    sentinels.kill_master();
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    sentinels.wait_for_promotion();
    let begun = Instant::now();
    assert_eq!(until(async || lab.left(1).await.ok()).await, 9);
    assert!(begun.elapsed() < Duration::from_millis(4500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn sentinels_that_know_no_master_are_passed_over() {
    let (sentinels, silent) = (Sentinels::start(), Redis::start());
    // As a sentinel that was cut off while another server became the master.
    let stale = Sentinels::naming(&sentinels.replica);
    let nodes = [&silent, &stale, &sentinels.watchers[0]].map(|node| address(node.address())).into();
    let topology = Topology::Sentinel { master: "limits".into(), nodes, login: Login::default() };
    Lab::deciding(settings(topology.clone())).await;

    // The user that the documentation recommends.
    let page = std::fs::read_to_string("docs/fleet/index.md").unwrap();
    let user = page.lines().find_map(|line| line.strip_prefix("user weir ")).unwrap().replace("PASSWORD", "secret");
    let words = ["ACL", "SETUSER", "weir"].into_iter().chain(user.split(' ')).collect::<Vec<_>>();
    for server in [&sentinels.master, &sentinels.replica] {
        server.call(&words);
    }
    Lab::deciding(settings_with(topology, login(Some("weir"), "secret"))).await;
}

/// The kind of a failure is that of the sentinels that answer.
#[tokio::test]
async fn sentinels_that_tell_no_master_say_why() {
    let (sentinels, mut gone) = (Sentinels::start(), Redis::start());
    gone.kill();
    let nodes: Vec<_> = [&gone, &sentinels.watchers[0]].map(|node| address(node.address())).into();
    for (master, login, nodes, kind) in [
        ("limits", login(Some("nobody"), "wrong"), nodes.clone(), "login"),
        ("limitz", Login::default(), nodes.clone(), "other"),
        ("limits", Login::default(), nodes[..1].to_vec(), "connection"),
    ] {
        let lab = Lab::start(settings(Topology::Sentinel { master: master.into(), nodes, login }));
        let errors = format!("weir_store_errors_total{{kind=\"{kind}\",store=\"main\"}}");
        until(async || (lab.metric(&errors) >= 1.0).then_some(())).await;
    }
}
