//! A Redis Cluster.

use std::time::Duration;

use weir::engine::store::backend::Unavailable;
use weir::fleet::stores::driver::{Login, RemoteSettings, Topology};

use super::lab::{Lab, address, charge, key, login, settings, settings_with, ten, until};
use crate::support::{Cluster, Redis};

fn of(cluster: &Cluster) -> RemoteSettings {
    settings(Topology::Cluster(vec![address(cluster.masters[0].address())]))
}

fn name(number: u64) -> String {
    format!("weir:{{a:{:016x}{:016x}}}", key(number).first, key(number).second)
}

#[tokio::test]
async fn keys_go_to_the_masters_of_their_slots() {
    let cluster = Cluster::start(0);
    let lab = Lab::deciding(of(&cluster)).await;
    for number in 0..30 {
        lab.one(number).await.unwrap().unwrap();
        let owner = &cluster.masters[cluster.owner(&name(number))];
        assert!(owner.keys().contains(&name(number)));
    }
    let rule = ten();
    let request: Vec<_> = (0..5).map(|number| charge("a", key(number), &rule, 9)).collect();
    let answers = lab.all(&request).await;
    assert!(answers.is_admitted);
    for outcome in answers.outcomes {
        lab.store.give_back(outcome.unwrap().receipt.unwrap());
    }
    for number in 0..5 {
        lab.until_left(number, 9).await;
    }
}

#[tokio::test]
async fn a_moving_slot_is_followed() {
    let cluster = Cluster::start(0);
    let lab = Lab::deciding(of(&cluster)).await;
    lab.one(1).await.unwrap().unwrap();
    let from = cluster.owner(&name(1));
    let to = (from + 1) % 3;
    cluster.move_slot(&name(1), to, || {});
    assert_eq!(until(async || lab.left(1).await.ok()).await, 9);
    lab.settle(1, 2, 0);
    lab.until_left(1, 7).await;
    // Once the new map is known, no call is redirected.
    until(async || {
        let before = cluster.masters[from].calls("evalsha");
        lab.one(1).await.unwrap();
        (cluster.masters[from].calls("evalsha") == before).then_some(())
    })
    .await;
    assert_eq!(lab.metric("weir_store_errors_total{kind=\"other\",store=\"main\"}"), 0.0);
}

#[tokio::test]
async fn nodes_that_tell_no_slots_say_why() {
    let server = Redis::start();
    for (login, kind) in [(login(Some("nobody"), "wrong"), "login"), (Login::default(), "other")] {
        let lab = Lab::start(settings_with(Topology::Cluster(vec![address(server.address())]), login));
        let errors = format!("weir_store_errors_total{{kind=\"{kind}\",store=\"main\"}}");
        until(async || (lab.metric(&errors) >= 1.0).then_some(())).await;
    }
}

#[tokio::test]
async fn a_cluster_may_start_after_weir() {
    let mut seed = Redis::start();
    seed.kill();
    let (cluster, seeds) = (Cluster::start(0), vec![address(seed.address())]);
    let lab = Lab::start(settings(Topology::Cluster(seeds)));
    let up = format!("weir_store_up{{node=\"{}\",store=\"main\"}}", seed.address());
    until(async || (lab.metric(&up) == 0.0).then_some(())).await;
    assert_eq!(lab.one(1).await.unwrap_err(), Unavailable::Down);
    drop(lab);
    // One of two nodes answers.
    let seeds = vec![address(seed.address()), address(cluster.masters[2].address())];
    let lab = Lab::deciding(settings(Topology::Cluster(seeds))).await;
    assert!(lab.metric(&up).is_nan());
    for master in &cluster.masters {
        assert_eq!(lab.metric(&format!("weir_store_up{{node=\"{}\",store=\"main\"}}", master.address())), 1.0);
    }
}

#[tokio::test]
async fn the_keys_of_a_killed_master_are_decided_by_its_replica() {
    let mut cluster = Cluster::start(1);
    let lab = Lab::deciding(of(&cluster)).await;
    let number = (0..1000).find(|number| cluster.owner(&name(*number)) == 0).unwrap();
    lab.one(number).await.unwrap().unwrap();
    until(async || cluster.replicas[0].keys().contains(&name(number)).then_some(())).await;
    cluster.kill_master(0);
    cluster.wait_for_promotion(0);
    let begun = std::time::Instant::now();
    assert_eq!(until(async || lab.left(number).await.ok()).await, 9);
    assert!(begun.elapsed() < Duration::from_millis(4500), "{:?}", begun.elapsed());
}
