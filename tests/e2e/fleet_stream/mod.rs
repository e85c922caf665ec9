//! Limits that replicas share by streams: three processes, and what can go wrong between them.

mod etcd_outage;
mod exact;
mod replacements;
mod replicas;
mod strangers;
mod trial;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Balancer, Client, Link, Samples, Upstream};
pub use replicas::{Replicas, connected, view};
use replicas::{balance, left};

/// A rate of 60 a second, and a burst of 12.
const RATE: f64 = 60.0;
const BURST: f64 = 12.0;
const LIMIT: &str = "rate = \"60/s\"\nburst = 12";

/// The time between two requests of one client: nine ask for five times the rate.
const PACE: Duration = Duration::from_millis(30);

/// The time until all replicas know of a charge, with the interval of 20 ms, on a machine that does other work too.
const DELAY_S: f64 = 2.0;

/// Asserts that the fleet admitted what one Weir would admit since `began`, within the bound of three replicas.
#[track_caller]
fn check(what: &str, samples: &Samples, began: Instant, more: f64, statuses: &[u16]) {
    samples.assert_only(statuses);
    let allowed = BURST + RATE * began.elapsed().as_secs_f64();
    let excess = 2.0 * (BURST + RATE * DELAY_S) + more;
    let admitted = samples.passed() as f64;
    println!(
        "{what}: admitted {admitted} / allowed {allowed:.0} = {:.3}, at most {:.0}",
        admitted / allowed,
        allowed + excess
    );
    assert!(admitted <= allowed + excess, "{what}: {admitted} of {allowed}");
    // On a busy machine, clients may ask for less than is allowed, or pause for longer than a bucket takes to be full.
    let wanted = (allowed - BURST).min(samples.0.len() as f64);
    assert!(admitted >= 0.5 * wanted, "{what}: {admitted} of {allowed}");
}

/// A pause of the machine isolates no replica.
const TOGETHER: &str = "isolate_after = \"30s\"";

#[test]
fn charges_reach_all_replicas() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, "rate = \"150/day\"");
    let mut client = Client::connect(replicas.fleet.weirs[0].address());
    for _ in 0..135 {
        assert_eq!(client.get("/").status, 200);
    }
    for weir in &replicas.fleet.weirs[1..] {
        // A few units come back meanwhile.
        weir.wait_until("135 charges are heard", || balance(weir) <= 17);
        weir.wait_for_metric("weir_fleet_peer_last_received_timestamp_seconds", |_| true);
        weir.wait_for_metric("weir_fleet_isolated", |isolated| isolated == 0.0);
        assert!(weir.metric("weir_fleet_messages_total{direction=\"received\"}") > 0.0);
        assert!(weir.metric("weir_fleet_bytes_total{direction=\"sent\"}") > 0.0);
    }
    // Each replica admits at most what it believes to be left. Once a debt is known, nothing passes anywhere.
    replicas.fleet.ask(75, 12, &["/"]).assert_only(&[200, 429]);
    for weir in &replicas.fleet.weirs {
        weir.wait_until("the debt is heard", || balance(weir) <= 0);
    }
    replicas.fleet.ask(75, 12, &["/"]).assert_only(&[429]);
    let total = upstream.received_count();
    println!("a limit of 150: admitted {total} / allowed 150");
    assert!((150..=150 + 2 * 17).contains(&total), "{total}");
}

#[test]
fn the_rate_is_held_over_all_replicas() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, LIMIT);
    let began = Instant::now();
    let samples = replicas.fleet.during(9, PACE, &["/"], || sleep(Duration::from_secs(5)));
    check("three replicas", &samples, began, 0.0, &[200, 429]);
}

/// Clients of the others notice nothing, and its own clients wait.
#[test]
fn a_stopped_replica_continues() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, "", LIMIT);
    let (others, weir) = replicas.fleet.weirs.split_at(2);
    let (others, stopped, weir) = (Balancer::of(others), Balancer::of(weir), &weir[0]);
    let mut late = Samples::default();
    let (mut samples, took) = others.during(6, PACE, "/", || {
        (late, _) = stopped.during(3, PACE, "/", || {
            stopped.wait_for(20, 1);
            weir.signal("STOP");
            sleep(Duration::from_secs(5));
            others.wait_for(40, 15);
            weir.signal("CONT");
            stopped.wait_for(20, 1);
        });
    });
    samples.0.append(&mut late.0);
    samples.assert_only(&[200, 429]);
    let allowed = BURST + RATE * took.as_secs_f64();
    let admitted = samples.passed() as f64;
    println!("a stopped replica: admitted {admitted} / allowed {allowed:.0} = {:.3}", admitted / allowed);
    assert!(admitted <= allowed + 2.0 * (BURST + RATE * DELAY_S), "{admitted} of {allowed}");
    replicas.wait_until_met();
    for weir in &replicas.fleet.weirs {
        weir.wait_until("all charges are heard, and clocks agree", || {
            let view = view(weir);
            let mut members = view["members"].as_array().unwrap().iter();
            let is_well = |member: &serde_json::Value| {
                member["lag"] == 0 && member["clock_ahead_ms"].as_i64().is_some_and(|ahead_ms| ahead_ms.abs() < 500)
            };
            view["recovering"] == false && members.all(is_well)
        });
    }
}

#[test]
fn a_killed_replica_comes_back() {
    let upstream = Upstream::start();
    let mut replicas = Replicas::start(3, &upstream, TOGETHER, "rate = \"600/day\"");
    let mut client = Client::connect(replicas.fleet.weirs[0].address());
    (0..50).for_each(|_| assert_eq!(client.get("/").status, 200));
    replicas.restart(2);
    let weir = &replicas.fleet.weirs[2];
    // A unit may come back meanwhile.
    weir.wait_until("the states of the others are there", || balance(weir) <= 551);
    (0..20).for_each(|_| _ = left(weir));
    let other = &replicas.fleet.weirs[1];
    other.wait_until("its charges are heard", || balance(other) <= 531);
}

#[test]
fn a_partition_heals() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, "", LIMIT);
    let began = Instant::now();
    let cut = Duration::from_secs(4);
    let samples = replicas.fleet.during(9, PACE, &["/"], || {
        replicas.set_links(2, Link::Reset);
        let weir = &replicas.fleet.weirs[2];
        weir.wait_for_line("replicas do not hear this one");
        let other = &replicas.fleet.weirs[0];
        other.wait_until("the link is lost", || connected(&view(other)) == 1);
        assert_eq!(view(weir)["replicas"], 3, "a member that is cut off is still a member");
        sleep(cut.saturating_sub(began.elapsed()));
        replicas.set_links(2, Link::Clear);
        replicas.wait_until_met();
        sleep(Duration::from_secs(1));
    });
    // The one that is cut off admits the whole limit until it is isolated, and then its share.
    let more = RATE * 1.5 + RATE / 3.0 * began.elapsed().as_secs_f64();
    check("a partition", &samples, began, more, &[200, 429]);
}

/// What the fleet may admit now, as a multiple of the limit, as each replica sees it.
fn bounds(replicas: &Replicas) -> Vec<f64> {
    replicas.fleet.weirs.iter().map(|weir| weir.metric("weir_fleet_bound_ratio{limit=\"all\"}")).collect()
}

/// Until a replica is isolated, each side of a partition may admit the whole limit.
#[test]
fn a_partition_is_in_the_bound() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, LIMIT);
    replicas.wait_until_met();
    let until = |expected: [f64; 3]| crate::ops::until("the bound says so", || bounds(&replicas) == expected);
    until([1.0; 3]);
    replicas.set_links(2, Link::Reset);
    until([2.0, 2.0, 3.0]);
    assert_eq!(view(&replicas.fleet.weirs[2])["limits"][0]["bound"], 3.0);
    replicas.set_links(2, Link::Clear);
    until([1.0; 3]);
}

/// Between two of three replicas, messages of one direction wait. The fleet keeps the limit, and both say so.
#[test]
fn a_link_of_one_direction_keeps_the_limit() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, "", LIMIT);
    let weirs = &replicas.fleet.weirs;
    let isolated = || weirs.iter().map(|weir| weir.metric("weir_fleet_isolated")).collect::<Vec<_>>();
    let admits_most = || {
        let (mut from, mut to) = (Instant::now(), Instant::now());
        let samples = replicas.fleet.during(9, PACE, &["/"], || {
            replicas.set_link([0, 1], Link::Held);
            crate::ops::until("both say so", || isolated() == [1.0, 1.0, 0.0]);
            // What they admitted before is spent.
            sleep(Duration::from_secs(1));
            from = Instant::now();
            sleep(Duration::from_secs(4));
            to = Instant::now();
            assert_eq!(bounds(&replicas), [1.0; 3]);
            replicas.set_link([0, 1], Link::Clear);
            crate::ops::until("they hear each other again", || isolated() == [0.0; 3]);
        });
        samples.assert_only(&[200, 429]);
        let share = samples.between(from, to).passed() as f64 / (RATE * (to - from).as_secs_f64());
        println!("a link of one direction: admitted / allowed {share:.3}");
        assert!(share <= 1.1, "{share}");
        share >= 0.5
    };
    // A replica that stands still holds all clients up, but not each time.
    assert!((0..3).any(|_| admits_most()));
}

/// Bytes wait, and connections stay open. What was sent before arrives late, and counts once.
#[test]
fn a_silent_network_loses_nothing() {
    let upstream = Upstream::start();
    let replicas = Replicas::start(3, &upstream, TOGETHER, "rate = \"600/day\"");
    replicas.set_links(2, Link::Silent);
    let mut client = Client::connect(replicas.fleet.weirs[0].address());
    (0..60).for_each(|_| assert_eq!(client.get("/").status, 200));
    replicas.set_links(2, Link::Clear);
    let weir = &replicas.fleet.weirs[2];
    // A unit may come back meanwhile.
    weir.wait_until("late charges are heard", || balance(weir) <= 541);
    (0..20).for_each(|_| _ = left(weir));
    let other = &replicas.fleet.weirs[1];
    other.wait_until("its charges are heard", || balance(other) <= 521);
    replicas.fleet.weirs.iter().for_each(|weir| assert!(balance(weir) >= 520, "a charge counts twice"));
}
