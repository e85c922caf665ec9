//! Several independent nodes.

use weir::engine::store::backend::Unavailable;

use super::lab::{Lab, charge, key, ring, store, ten, until};
use crate::support::{Link, Redis, Relay};

fn is_at(redis: &Redis, number: u64) -> bool {
    let hex = format!("{:016x}{:016x}", key(number).first, key(number).second);
    redis.keys().iter().any(|name| name.contains(&hex))
}

#[tokio::test]
async fn keys_of_a_lost_node_fall_back_and_do_not_move() {
    let mut servers = [Redis::start(), Redis::start(), Redis::start()];
    let lab = Lab::deciding(ring(&servers.each_ref().map(Redis::address))).await;
    for number in 0..60 {
        lab.one(number).await.unwrap().unwrap();
    }
    let homes: Vec<_> = (0..60).map(|number| servers.iter().position(|redis| is_at(redis, number)).unwrap()).collect();
    assert!((0..3).all(|server| homes.iter().filter(|home| **home == server).count() > 5), "{homes:?}");
    servers[1].kill();
    until(async || {
        (lab.metric(&format!("weir_store_up{{node=\"{}\",store=\"main\"}}", servers[1].address())) == 0.0).then_some(())
    })
    .await;
    for (number, home) in (0..).zip(&homes) {
        match lab.left(number).await {
            Ok(left) => assert_eq!((left, *home == 1), (9, false)),
            Err(unavailable) => assert_eq!((unavailable, *home), (Unavailable::Down, 1)),
        }
    }
}

#[tokio::test]
async fn a_store_leaves_no_metrics_behind() {
    let servers = [Redis::start(), Redis::start()];
    let [first, second] = servers.each_ref().map(Redis::address);
    let up = |lab: &Lab, node| lab.metric(&format!("weir_store_up{{node=\"{node}\",store=\"main\"}}"));
    let before = Lab::deciding(ring(&[first, second])).await;
    assert_eq!((up(&before, first), up(&before, second)), (1.0, 1.0));
    let new = store(ring(&[second]), &before.metrics);
    before.store.retire(std::slice::from_ref(&new), &before.metrics);
    assert!(up(&before, first).is_nan() && !up(&before, second).is_nan());
    new.retire(&[], &before.metrics);
    let text = String::from_utf8(before.metrics.render().unwrap()).unwrap();
    assert!(!text.contains("store=\"main\""), "{text}");
}

#[tokio::test]
async fn a_denial_leaves_the_receipts_of_other_nodes() {
    let servers = [Redis::start(), Redis::start()];
    let lab = Lab::deciding(ring(&servers.each_ref().map(Redis::address))).await;
    for number in 0..60 {
        lab.one(number).await.unwrap().unwrap();
    }
    let of = |server: usize| (0..60).find(|number| is_at(&servers[server], *number)).unwrap();
    let (free, full) = (of(0), of(1));
    let rule = ten();
    let request = |cost| [charge("a", key(free), &rule, 1), charge("a", key(full), &rule, cost)];
    assert!(lab.all(&request(9)).await.is_admitted);
    let denied = lab.all(&request(1)).await;
    assert!(!denied.is_admitted);
    let receipts: Vec<_> = denied.outcomes.into_iter().map(|outcome| outcome.unwrap().receipt).collect();
    assert!(receipts[0].is_some() && receipts[1].is_none());
    assert_eq!(lab.left(free).await, Ok(7));
    receipts.into_iter().flatten().for_each(|receipt| lab.store.give_back(receipt));
    lab.until_left(free, 8).await;
    lab.until_left(full, 0).await;
}

/// A request that leaves after one node has charged it, and before the other one answers.
#[tokio::test]
async fn a_request_that_leaves_is_charged_on_no_node() {
    let servers = [Redis::start(), Redis::start()];
    let relay = Relay::to(servers[1].address());
    let lab = Lab::deciding(ring(&[servers[0].address(), relay.address()])).await;
    for number in 0..60 {
        lab.one(number).await.unwrap().unwrap();
    }
    let of = |server: usize| (0..60).find(|number| is_at(&servers[server], *number)).unwrap();
    let (quick, slow) = (of(0), of(1));
    relay.set(Link::Held);
    let rule = ten();
    let calls = servers[0].calls("evalsha");
    let charges = [charge("a", key(quick), &rule, 1), charge("a", key(slow), &rule, 1)];
    let mut looks = 0;
    let answered = until(async || {
        looks += u32::from(servers[0].calls("evalsha") > calls);
        (looks > 10).then_some(()) // its reply has been read by then
    });
    tokio::select! {
        _ = lab.all(&charges) => panic!("the relay holds all bytes"),
        () = answered => {}
    }
    relay.set(Link::Clear);
    lab.until_left(quick, 9).await;
    lab.until_left(slow, 9).await;
}

#[tokio::test]
async fn charges_on_living_nodes_are_decided_beside_those_on_lost_ones() {
    let mut servers = [Redis::start(), Redis::start()];
    let lab = Lab::deciding(ring(&servers.each_ref().map(Redis::address))).await;
    for number in 0..60 {
        lab.one(number).await.unwrap().unwrap();
    }
    let of = |server: usize| (0..60).find(|number| is_at(&servers[server], *number)).unwrap();
    let (alive, lost) = (of(0), of(1));
    servers[1].kill();
    until(async || (lab.left(lost).await == Err(Unavailable::Down)).then_some(())).await;
    let rule = ten();
    let answers = lab.all(&[charge("a", key(lost), &rule, 1), charge("a", key(alive), &rule, 1)]).await;
    assert_eq!(answers.outcomes[0].as_ref().unwrap_err(), &Unavailable::Down);
    assert!(answers.is_admitted && answers.outcomes[1].as_ref().unwrap().receipt.is_some());
}
