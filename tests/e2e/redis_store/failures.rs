//! A node that is killed, stopped, slow, full, or that forgets its scripts.

use std::time::{Duration, Instant};

use weir::engine::store::backend::{Failure, Unavailable};
use weir::fleet::stores::driver::{NodeAddress, RemoteSettings, Topology};

use super::lab::{Lab, key, ring, settings, ten, until};
use crate::support::{Link, Redis, Relay};

/// The timeout of calls in tests of what a failing node costs.
const SHORT: Duration = Duration::from_millis(200);

/// The time in which a node decides again, and as much for a machine that pauses.
const RECOVERY: Duration = Duration::from_secs(4);

/// Waits for the first decision, which comes at most [`RECOVERY`] after now.
async fn recovers(lab: &Lab) {
    let begun = Instant::now();
    until(async || lab.one(99).await.ok()).await;
    assert!(begun.elapsed() < RECOVERY, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_killed_node_is_left_alone_until_it_is_back() {
    let mut redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    redis.kill();
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    let begun = Instant::now();
    for number in 0..1000 {
        assert_eq!(lab.one(number).await.unwrap_err(), Unavailable::Down);
    }
    // A call for each would take longer by far.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    redis.restart();
    recovers(&lab).await;
}

#[tokio::test]
async fn a_node_on_a_unix_socket_fails_and_comes_back() {
    let mut redis = Redis::start();
    let topology = Topology::Ring(vec![NodeAddress::Unix(redis.socket().into())]);
    let lab = Lab::deciding(settings(topology)).await;
    lab.one(1).await.unwrap();
    lab.until_left(1, 9).await;
    redis.kill();
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    redis.restart();
    recovers(&lab).await;
}

#[tokio::test]
async fn what_a_stopped_node_charges_later_is_given_back() {
    let redis = Redis::start();
    let lab = Lab::deciding(RemoteSettings { timeout: SHORT, ..ring(&[redis.address()]) }).await;
    lab.one(1).await.unwrap();
    redis.freeze();
    let begun = Instant::now();
    let (a, b, c) = tokio::join!(lab.one(1), lab.one(1), lab.one(1));
    assert_eq!([a, b, c].map(Result::unwrap_err), [Unavailable::Timeout; 3]);
    assert!(begun.elapsed() < 3 * SHORT, "{:?}", begun.elapsed());
    assert_eq!(lab.one(1).await.unwrap_err(), Unavailable::Down);
    redis.thaw();
    recovers(&lab).await;
    lab.until_left(1, 9).await;
    assert!(redis.calls("evalsha") > 4);
}

#[tokio::test]
async fn what_is_charged_for_an_abandoned_request_is_given_back() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(ring(&[relay.address()])).await;
    relay.set(Link::Slow(Duration::from_millis(30)));
    let (rule, before) = (ten(), redis.calls("evalsha"));
    for _ in 0..3 {
        let abandoned = lab.take("a", key(1), &rule, 1);
        assert!(tokio::time::timeout(Duration::from_millis(5), abandoned).await.is_err());
    }
    relay.set(Link::Clear);
    until(async || (redis.calls("evalsha") > before + 3).then_some(())).await;
    lab.until_left(1, 10).await;
}

#[tokio::test]
async fn a_slow_node_is_left_alone() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(RemoteSettings { timeout: SHORT, ..ring(&[relay.address()]) }).await;
    relay.set(Link::Slow(3 * SHORT));
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    relay.set(Link::Clear);
    recovers(&lab).await;
}

/// A call of a probe has the time of any other call, and a probe has several.
#[tokio::test]
async fn a_node_decides_again_that_answers_just_in_time() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let lab = Lab::deciding(RemoteSettings { timeout: SHORT, ..ring(&[relay.address()]) }).await;
    relay.set(Link::Reset);
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    relay.set(Link::Slow(SHORT * 6 / 10));
    until(async || lab.one(1).await.ok()).await;
}

#[tokio::test]
async fn broken_connections_are_opened_again() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    for _ in 0..5 {
        redis.disconnect_all();
        recovers(&lab).await;
    }
    assert_eq!(lab.metric("weir_store_errors_total{kind=\"timeout\",store=\"main\"}"), 0.0);
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    for left in (0..10).rev() {
        redis.call(&["SCRIPT", "FLUSH"]);
        lab.one(1).await.unwrap().unwrap();
        assert_eq!(lab.left(1).await, Ok(left));
    }
    redis.call(&["SCRIPT", "FLUSH"]);
    lab.settle(1, -3, 0);
    lab.until_left(1, 3).await;
    for (_, label) in Failure::ALL {
        assert_eq!(lab.metric(&format!("weir_store_errors_total{{kind=\"{label}\",store=\"main\"}}")), 0.0);
    }
}

#[tokio::test]
async fn a_full_node_decides_again_when_there_is_room() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    redis.call(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(lab.one(1).await.unwrap_err(), Unavailable::Error(Failure::OutOfMemory));
    assert_eq!(lab.one(1).await.unwrap_err(), Unavailable::Down);
    redis.call(&["CONFIG", "SET", "maxmemory", "0"]);
    recovers(&lab).await;
}

#[tokio::test]
async fn all_reports_that_a_full_node_refuses_are_sent_again() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    redis.call(&["CONFIG", "SET", "maxmemory", "1"]);
    for number in 0..3 {
        lab.settle(number, 1, 0);
    }
    until(async || (lab.metric("weir_store_errors_total{kind=\"oom\",store=\"main\"}") >= 1.0).then_some(())).await;
    redis.call(&["CONFIG", "SET", "maxmemory", "0"]);
    for number in 0..3 {
        lab.until_left(number, 9).await;
    }
}

#[tokio::test]
async fn calls_of_one_turn_are_written_at_once() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    let reads = || redis.info("stats", "total_reads_processed").unwrap().parse::<u64>().unwrap();
    let mut counts = Vec::new();
    for key in [0, 10, 20, 30, 40] {
        let (calls, before) = (redis.calls("evalsha"), reads());
        let (a, b, c, d) = tokio::join!(lab.one(key), lab.one(key + 1), lab.one(key + 2), lab.one(key + 3));
        assert!([a, b, c, d].into_iter().all(|outcome| outcome.unwrap().is_some()));
        assert_eq!(redis.calls("evalsha") - calls, 4);
        counts.push(reads() - before);
    }
    // Of the test itself: the user and the command of each question. Of the calls: one. A probe may add its own.
    assert!(counts.iter().any(|count| *count <= 5 + 2), "{counts:?}");
}

#[tokio::test]
async fn a_name_without_address_is_no_node() {
    let lab = Lab::start(settings(Topology::Ring(vec![NodeAddress::tcp("no-such-host.invalid", 1)])));
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
}
