//! A fleet under load by clients behind a balancer, and the promises that hold through every replacement and outage: no
//! client sees an error, the limit holds, and a quota that was spent stays spent.

use std::time::Duration;

use super::replicas::{balance_at, connected, view};
use crate::support::{Balancer, Client, Samples, Weir};

/// The clients, and the time between two requests of one: up to 360 requests a second.
const CLIENTS: usize = 9;
const PACE: Duration = Duration::from_millis(25);

/// A limit that the load exceeds, and a quota from which nothing comes back during a test.
const RATE: f64 = 40.0;
const BURST: f64 = 20.0;
pub const LIMITS: &str = "[[limit]]\nname = \"load\"\nkey = []\nrate = \"40/s\"\nburst = 20\n\
                          match = { path = [\"/load\"] }\n\
                          [[limit]]\nname = \"quota\"\nkey = []\nrate = \"20/day\"\n\
                          match = { path = [\"/quota\"] }\n";

/// The time until all replicas know of a charge, at most: far more than the interval, because the machine does other work.
const DELAY_S: f64 = 3.0;

/// Spends the quota, and lets clients ask `weirs` while `during` runs.
#[track_caller]
pub fn trial(what: &str, mut weirs: Vec<Weir>, during: impl FnOnce(&mut Vec<Weir>, &Balancer)) {
    let replicas = weirs.len() as f64;
    until_met(&weirs);
    // At each: a replica that stands still for a moment does not hear of what the others admit in its place.
    for weir in &weirs {
        let mut client = Client::connect(weir.address());
        while client.get("/quota").status == 200 {}
    }
    until_spent(&weirs);
    let balancer = Balancer::of(&weirs);
    let (samples, took) = balancer.during(CLIENTS, PACE, "/load", || {
        balancer.wait_for(50, 1);
        during(&mut weirs, &balancer);
        // The fleet admits as before.
        balancer.wait_for(50, 20);
    });
    check(what, &samples, took, replicas);
    until_met(&weirs);
    for weir in &weirs {
        assert_eq!(Client::connect(weir.address()).get("/quota").status, 429, "{what}: the quota is spent");
    }
}

/// Asserts that no client saw an error, and that the fleet admitted what one Weir would admit, within the bound.
#[track_caller]
fn check(what: &str, samples: &Samples, took: Duration, replicas: f64) {
    samples.assert_only(&[200, 429]);
    let admitted = samples.passed() as f64;
    let allowed = BURST + RATE * took.as_secs_f64();
    let more = (replicas - 1.0) * (BURST + RATE * DELAY_S);
    println!(
        "{what}: {} requests, 0 errors, admitted {admitted} / allowed {allowed:.0} = {:.3}, at most {:.0}",
        samples.0.len(),
        admitted / allowed,
        allowed + more
    );
    assert!(admitted <= allowed + more, "{what}: {admitted} of {allowed}");
}

/// Waits until all replicas are connected, and know how many they are.
#[track_caller]
pub fn until_met(weirs: &[Weir]) {
    for weir in weirs {
        weir.wait_until("all replicas are connected", || {
            let view = view(weir);
            let is_settled = view["isolated"] == false && view["recovering"] == false;
            is_settled && connected(&view) == weirs.len() - 1 && view["replicas"] == weirs.len()
        });
    }
}

/// Waits until all replicas know that the quota is spent.
#[track_caller]
pub fn until_spent(weirs: &[Weir]) {
    for weir in weirs {
        weir.wait_until("the quota is spent", || balance_at(weir, "/quota") <= 0);
    }
}
