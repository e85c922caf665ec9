//! Every unit is charged once on every replica.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::replicas::{Replicas, balance};
use super::{PACE, TOGETHER};
use crate::support::Upstream;

/// A burst that is admitted by all replicas at once is a debt, and nothing passes before it is paid.
#[test]
fn a_burst_is_admitted_at_most_once_by_each_replica() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, "rate = \"1/day\"\nburst = 40");
    let samples = replicas.fleet.ask(360, 12, &["/"]);
    samples.assert_only(&[200, 429]);
    let admitted = i64::try_from(samples.passed()).unwrap();
    println!("a burst of 40: admitted {admitted}, at most 120");
    assert!((40..=120).contains(&admitted), "{admitted}");
    for weir in &replicas.fleet.weirs {
        weir.wait_until("all charges are heard", || balance(weir) == 40 - admitted);
        assert!(weir.metric("weir_streamed_units_total{limit=\"all\"}") > 0.0);
    }
    assert_eq!(replicas.fleet.ask(60, 3, &["/"]).passed(), 0);
}

/// What was admitted is the burst and what came back since, but for the debt: at most 0.5 % are lost or count twice.
#[test]
fn the_long_run_rate_is_exact() {
    // So low that a busy machine asks for more, and so the bucket is never full.
    const RATE: f64 = 25.0;
    const BURST: f64 = 400.0;
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, "rate = \"25/s\"\nburst = 400");
    // The bucket of each replica is full until its first request, which is between these two.
    let earliest = Instant::now();
    let first = replicas.fleet.ask(9, 3, &["/"]);
    let latest = Instant::now();
    // Far from full, also after a pause.
    let more = replicas.fleet.ask(250, 9, &["/"]);
    first.assert_only(&[200]);
    more.assert_only(&[200]);
    let samples = replicas.fleet.during(9, PACE * 3 / 2, &["/"], || sleep(Duration::from_secs(6)));
    samples.assert_only(&[200, 429]);
    let admitted = (first.passed() + more.passed() + samples.passed()) as f64;
    let refilled = |began: Instant| BURST + RATE * began.elapsed().as_secs_f64();
    let most = 0.005 * admitted + 1.0;
    for weir in &replicas.fleet.weirs {
        weir.wait_until("all charges are heard", || {
            // The answer is of an instant between these two. The bucket is full only many seconds later.
            let from = refilled(latest);
            let left = balance(weir) as f64;
            let to = refilled(earliest);
            println!("admitted {admitted} and left {left}, of {from:.1} to {to:.1}");
            admitted + left >= from - most && admitted + left <= to + most
        });
    }
}

/// The service cannot be reached, so each charge is given back, by three replicas at once. Nothing is lost.
#[test]
fn charges_of_an_outage_come_back_everywhere() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, "rate = \"500/day\"");
    upstream.stop();
    let samples = replicas.fleet.during(9, PACE * 2 / 3, &["/"], || sleep(Duration::from_secs(2)));
    samples.assert_only(&[502, 503]);
    for weir in &replicas.fleet.weirs {
        weir.wait_until("all charges are back", || balance(weir) >= 499);
    }
    println!("an outage: {} charges came back", samples.0.len());
}
