//! Refunds and settlements, also during an outage, and units in flight.

use std::time::Duration;

use weir::base::time::Clock;
use weir::engine::limit::{Algorithm, Quota, Rate};
use weir::engine::store::backend::{Settlement, Unavailable};

use super::lab::{Lab, at_once, key, ring, ten, until};
use crate::support::{Link, Redis, Relay};

#[tokio::test]
async fn reports_are_made_once_though_replies_are_lost() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(ring(&[relay.address()])).await;
    for round in 0..5 {
        // The connection for reports is open.
        lab.settle(2, 1, 0);
        lab.until_left(2, 9 - round).await;
        let before = redis.calls("evalsha");
        relay.set(Link::Slow(Duration::from_secs(10)));
        lab.settle(1, 1, 0);
        until(async || (redis.calls("evalsha") > before).then_some(())).await;
        // The correction is made, and its reply never comes.
        relay.set(Link::Reset);
        relay.set(Link::Clear);
        lab.until_it_decides().await;
        lab.store.flushed().await;
        until(async || (lab.left(1).await == Ok(9 - round)).then_some(())).await;
    }
    assert_eq!(lab.left(1).await, Ok(5));
}

#[tokio::test]
async fn an_outage_is_reported_before_the_node_decides() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(ring(&[relay.address()])).await;
    let receipt = lab.one(2).await.unwrap().unwrap();
    go_down(&lab, &relay).await;
    for _ in 0..3 {
        lab.settle(1, 2, 0);
    }
    lab.store.give_back(receipt);
    relay.set(Link::Clear);
    let first = until(async || lab.left(1).await.ok()).await;
    assert_eq!(first, 4);
    assert_eq!(lab.left(2).await, Ok(10));
}

/// A denial under another rule writes nothing, and a report lets the server adopt the rule. Otherwise units would come back
/// at the old rate.
#[tokio::test]
async fn a_denial_under_another_rule_is_reported() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    let quick = Algorithm::TokenBucket(Quota::new(Rate { count: 10, period_ns: 1_000_000_000 }, 10).unwrap());
    assert_eq!(lab.take("a", key(1), &ten(), 10).await.unwrap().admitted, 10);
    assert!(lab.take("a", key(1), &quick, 1).await.unwrap().is_outdated);
    until(async || (lab.take("a", key(1), &quick, 1).await.unwrap().admitted == 1).then_some(())).await;
}

#[tokio::test]
async fn debts_are_bounded() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    lab.settle(1, 100, 5);
    lab.until_left(1, 0).await;
    lab.settle(1, -5, 0);
    lab.store.flushed().await;
    lab.settle(1, -1, 0);
    lab.until_left(1, 1).await;
}

#[tokio::test]
async fn units_of_lost_replies_end_though_others_are_renewed() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(ring(&[relay.address()])).await;
    let two = at_once(2);
    let first = lab.take("c", key(1), &two, 1).await.unwrap().receipt.unwrap();
    let before = redis.calls("evalsha");
    relay.set(Link::Slow(Duration::from_secs(10)));
    let lost = lab.take("c", key(1), &two, 1);
    let broken = async {
        until(async || (redis.calls("evalsha") > before).then_some(())).await;
        relay.set(Link::Reset);
    };
    let (lost, ()) = tokio::join!(lost, broken);
    assert!(lost.is_err());
    relay.set(Link::Clear);
    lab.until_it_decides().await;
    assert!(lab.take("c", key(1), &two, 1).await.unwrap().receipt.is_none());
    until(async || lab.take("c", key(1), &two, 1).await.ok()?.receipt).await;
    lab.store.give_back(first);
}

/// Units of `key(1)` in flight of a limit `c` of two, which a replica admitted without the store, or has released.
fn settle_flight(lab: &Lab, units: i64) {
    lab.store.settle(Settlement::new("c", key(1), &at_once(2), (units, 2), Clock::start().now()));
}

/// Breaks the connections, and waits until the breaker of the node is open. Calls fail before, in the pauses between
/// attempts to connect.
async fn go_down(lab: &Lab, relay: &Relay) {
    relay.set(Link::Reset);
    until(async || lab.store.server("a", key(1)).filter(|server| server.unavailable == Some(Unavailable::Down))).await;
}

/// A request that was admitted during an outage counts for as long as it runs, beside those that the node admitted.
#[tokio::test]
async fn units_in_flight_of_an_outage_are_renewed() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(ring(&[relay.address()])).await;
    let two = at_once(2);
    let first = lab.take("c", key(1), &two, 1).await.unwrap().receipt.unwrap();
    go_down(&lab, &relay).await;
    settle_flight(&lab, 1);
    relay.set(Link::Clear);
    lab.until_it_decides().await;
    let name = redis.keys().into_iter().find(|name| name.starts_with("weir:{c:")).unwrap();
    let (mut last, mut renewals) = (10_000, 0);
    until(async || {
        // On a busy machine, a call may come too late.
        assert!(!lab.take("c", key(1), &two, 1).await.is_ok_and(|taken| taken.receipt.is_some()));
        let now = redis.call(&["PTTL", &name]).number();
        renewals += i32::from(now > last + 1000);
        last = now;
        (renewals == 2).then_some(())
    })
    .await;
    settle_flight(&lab, -1);
    until(async || lab.take("c", key(1), &two, 1).await.unwrap().receipt).await;
    lab.store.give_back(first);
    until(async || lab.take("c", key(1), &two, 1).await.unwrap().receipt).await;
}

/// Units in flight end in an outage of ten seconds. The node has them again before it decides.
#[tokio::test]
async fn units_in_flight_outlive_an_outage() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(ring(&[relay.address()])).await;
    let two = at_once(2);
    for _ in 0..2 {
        lab.take("c", key(1), &two, 1).await.unwrap().receipt.unwrap();
    }
    go_down(&lab, &relay).await;
    let name = redis.keys().into_iter().find(|name| name.starts_with("weir:{c:")).unwrap();
    redis.call(&["DEL", &name]);
    relay.set(Link::Clear);
    let first = until(async || lab.take("c", key(1), &two, 1).await.ok()).await;
    assert!(first.receipt.is_none());
}

/// A node that has lost its keys, and a unit in flight that began meanwhile. One replica is missing, so that the node decides
/// in two seconds.
async fn cold_with_a_unit(redis: &Redis) -> Lab {
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    lab.store.set_replicas(2);
    redis.call(&["FLUSHALL"]);
    until(async || (lab.one(1).await == Err(Unavailable::Cold)).then_some(())).await;
    settle_flight(&lab, 1);
    lab
}

/// A node that lost its keys gets units of the outage with those that run, and by a report. They count once.
#[tokio::test]
async fn units_in_flight_of_an_outage_count_once() {
    let redis = Redis::start();
    let lab = cold_with_a_unit(&redis).await;
    let first = until(async || lab.take("c", key(1), &at_once(2), 1).await.ok()).await;
    assert!(first.receipt.is_some());
    assert!(lab.take("c", key(1), &at_once(2), 1).await.unwrap().receipt.is_none());
}

/// A node that lost its keys gets units of a request that ends before the node decides. They do not count for ever, although
/// the key is in use.
#[tokio::test]
async fn units_in_flight_of_an_outage_end_with_it() {
    let redis = Redis::start();
    let lab = cold_with_a_unit(&redis).await;
    // The node has the unit before it decides.
    until(async || redis.keys().into_iter().find(|name| name.starts_with("weir:{c:"))).await;
    settle_flight(&lab, -1);
    lab.until_it_decides().await;
    let two = at_once(2);
    let taken = async || lab.take("c", key(1), &two, 1).await.ok()?.receipt;
    until(async || {
        let units = [taken().await, taken().await];
        let is_free = units.iter().all(Option::is_some);
        units.into_iter().flatten().for_each(|unit| lab.store.give_back(unit));
        is_free.then_some(())
    })
    .await;
}

#[tokio::test]
async fn units_in_flight_are_renewed() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    let two = at_once(2);
    let first = lab.take("c", key(1), &two, 1).await.unwrap().receipt.unwrap();
    let second = lab.take("c", key(1), &two, 1).await.unwrap().receipt.unwrap();
    assert!(lab.take("c", key(1), &two, 1).await.unwrap().receipt.is_none());
    let name = redis.keys().into_iter().find(|name| name.starts_with("weir:{c:")).unwrap();
    let life_ms = || redis.call(&["PTTL", &name]).number();
    let (mut last, mut renewals) = (life_ms(), 0);
    until(async || {
        let now = life_ms();
        renewals += i32::from(now > last + 1000);
        last = now;
        (renewals == 2).then_some(())
    })
    .await;
    assert!(lab.take("c", key(1), &two, 1).await.unwrap().receipt.is_none());
    lab.store.give_back(first);
    until(async || lab.take("c", key(1), &two, 1).await.unwrap().receipt).await;
    lab.store.give_back(second);
}
