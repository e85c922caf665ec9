//! Nodes that lost their keys.

use std::time::{Duration, Instant};

use weir::base::time::Clock;
use weir::engine::limit::{AnyState, State as _};
use weir::engine::store::backend::Unavailable;

use super::lab::{Known, Lab, at_once, key, ring, ten, until};
use crate::support::Redis;

/// A replica that knows of 7 spent units of key 1.
fn seven() -> Known {
    let (rule, now) = (ten(), Clock::start().now());
    let mut state = AnyState::fresh(&rule);
    state.admit(&rule, 7, now);
    Known(vec![("a", key(1), rule, state)])
}

#[tokio::test]
async fn a_flushed_node_hears_what_replicas_know_before_it_decides() {
    let redis = Redis::start();
    let lab = Lab::knowing(ring(&[redis.address()]), seven());
    lab.until_it_decides().await;
    redis.call(&["FLUSHALL"]);
    assert_eq!(lab.one(1).await.unwrap_err(), Unavailable::Cold);
    let left = until(async || lab.left(1).await.ok()).await;
    assert_eq!(left, 3);
}

/// A look at a node that has its keys is two `GET` and no script. A node that is taken for cold gets one before the next look.
#[tokio::test]
async fn a_node_with_its_keys_stays_warm() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    let (looks, scripts) = (redis.calls("get"), redis.calls("evalsha"));
    until(async || (redis.calls("get") >= looks + 6).then_some(())).await;
    assert_eq!(redis.calls("evalsha"), scripts);
    lab.one(1).await.unwrap();
}

#[tokio::test]
async fn all_mirrors_are_brought() {
    let redis = Redis::start();
    let one = seven().0.remove(0);
    let many = (0..300).map(|number| (one.0, key(number), one.2.clone(), one.3.clone())).collect();
    let lab = Lab::knowing(ring(&[redis.address()]), Known(many));
    lab.until_it_decides().await;
    for number in 0..300 {
        assert_eq!(lab.left(number).await, Ok(3));
    }
}

#[tokio::test]
async fn units_in_flight_are_brought() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    let two = at_once(2);
    for _ in 0..2 {
        lab.take("c", key(1), &two, 1).await.unwrap().receipt.unwrap();
    }
    redis.call(&["FLUSHALL"]);
    assert_eq!(lab.take("c", key(1), &two, 1).await.unwrap_err(), Unavailable::Cold);
    let outcome = until(async || lab.take("c", key(1), &two, 1).await.ok()).await;
    assert!(outcome.receipt.is_none());
}

#[tokio::test]
async fn a_restarted_node_hears_what_replicas_know_before_it_decides() {
    let mut redis = Redis::start();
    let lab = Lab::knowing(ring(&[redis.address()]), seven());
    lab.until_it_decides().await;
    redis.kill();
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    redis.restart();
    let left = until(async || lab.left(1).await.ok()).await;
    assert_eq!(left, 3);
}

#[tokio::test]
async fn the_larger_debt_counts() {
    let redis = Redis::start();
    let lab = Lab::knowing(ring(&[redis.address()]), seven());
    lab.until_it_decides().await;
    lab.take("a", key(1), &ten(), 2).await.unwrap();
    let marker = redis.keys().into_iter().find(|name| *name == "weir:generation:{0}").unwrap();
    redis.call(&["DEL", &marker]);
    until(async || (lab.left(1).await == Err(Unavailable::Cold)).then_some(())).await;
    assert_eq!(until(async || lab.left(1).await.ok()).await, 1);
}

/// Another program has written to the key of the marker.
#[tokio::test]
async fn a_foreign_marker_is_replaced() {
    let redis = Redis::start();
    let lab = Lab::knowing(ring(&[redis.address()]), seven());
    lab.until_it_decides().await;
    let marker = "weir:generation:{0}";
    for write in [&["SET", marker, "hello"][..], &["SET", marker, "0"], &["LPUSH", marker, "hello"]] {
        redis.call(&["DEL", marker]);
        redis.call(write);
        until(async || (lab.left(1).await == Err(Unavailable::Cold)).then_some(())).await;
        assert_eq!(until(async || lab.left(1).await.ok()).await, 3, "{write:?}");
    }
}

/// A look shows that the server has the keys of an earlier time. Until then it may decide by them.
#[tokio::test]
async fn a_node_with_the_keys_of_an_earlier_time_hears_what_replicas_know() {
    let mut redis = Redis::start();
    let lab = Lab::knowing(ring(&[redis.address()]), seven());
    lab.until_it_decides().await;
    redis.call(&["DEL", &redis.keys().into_iter().find(|name| name.contains("{a:")).unwrap()]);
    redis.call(&["SAVE"]);
    let looks = redis.calls("get");
    until(async || (redis.calls("get") > looks + 8).then_some(())).await;
    redis.kill();
    redis.restart();
    until(async || (lab.left(1).await == Err(Unavailable::Cold)).then_some(())).await;
    assert_eq!(until(async || lab.left(1).await.ok()).await, 3);
}

#[tokio::test]
async fn a_new_node_waits_for_all_replicas_or_two_seconds() {
    let redis = Redis::start();
    let begun = Instant::now();
    let replica = || {
        let lab = Lab::start(ring(&[redis.address()]));
        lab.store.set_replicas(3);
        lab
    };
    let first = replica();
    until(async || (first.one(1).await == Err(Unavailable::Cold)).then_some(())).await;
    let (second, third) = (replica(), replica());
    for lab in [&first, &second, &third] {
        lab.until_it_decides().await;
    }
    assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
    redis.call(&["FLUSHALL"]);
    drop((second, third));
    let begun = Instant::now();
    until(async || (first.one(1).await == Err(Unavailable::Cold)).then_some(())).await;
    first.until_it_decides().await;
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test]
async fn a_replica_that_joins_decides_at_once() {
    let redis = Redis::start();
    let first = Lab::start(ring(&[redis.address()]));
    first.store.set_replicas(2);
    first.until_it_decides().await;
    let second = Lab::start(ring(&[redis.address()]));
    second.store.set_replicas(2);
    let begun = Instant::now();
    second.until_it_decides().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
