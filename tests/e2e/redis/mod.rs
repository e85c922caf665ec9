//! Limits that several Weirs share through Redis.

mod cold;
mod exact;
mod fallback;
pub mod faults;
mod given_back;
mod leases;
mod overrides;
mod servers;
mod settle;
mod several;

use crate::support::{Client, Fleet, Redis, Upstream, over_all};

/// The replicas of most fleets.
const REPLICAS: usize = 3;

/// `[fleet]`, `[store.main]` with these lines, and these limits, which the store decides.
fn shared(store: &str, limits: &str) -> String {
    format!(
        "[fleet]\nstrategy = \"redis\"\nreplicas = {REPLICAS}\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n\
         [store.main]\n{store}\n{limits}\n"
    )
}

/// The lines of a store that is this server. Its timeout is for a machine that is busy with other tests.
fn patient(redis: &Redis) -> String {
    format!("redis = [\"{}\"]\ntimeout = \"5s\"\n", redis.url())
}

/// Three replicas that share a limit `all` with these lines through `redis`.
fn three(redis: &Redis, upstream: &Upstream, lines: &str) -> Fleet {
    start(upstream, &shared(&patient(redis), &over_all(lines)))
}

/// Three replicas as those of [`three`], with another timeout of their store.
fn three_of(redis: &Redis, upstream: &Upstream, timeout: &str, lines: &str) -> Fleet {
    start(upstream, &shared(&patient(redis).replace("5s", timeout), &over_all(lines)))
}

/// Three replicas with this configuration, whose stores decide.
fn start(upstream: &Upstream, rest: &str) -> Fleet {
    let fleet = Fleet::start(REPLICAS, upstream, rest);
    fleet.wait_for_stores(true);
    fleet
}

/// Plans that a header names.
const PLANS: &str = "[identity.seller]\nheader = \"x-seller\"\n[plans]\nfrom = \"header:x-plan\"\n";

/// So many requests with the plan `premium`, which ask all replicas in turn. Returns the number of those that passed.
fn ask_premium(fleet: &Fleet, requests: usize, target: &str) -> usize {
    let mut clients: Vec<_> = fleet.weirs.iter().map(|weir| Client::connect(weir.address())).collect();
    let request = format!("GET {target} HTTP/1.1\r\nhost: weir.test\r\nx-plan: premium\r\n\r\n");
    let passes = |turn: usize| clients[turn % REPLICAS].send(&request).answer().status == 200;
    (0..requests).map(passes).filter(|passes| *passes).count()
}

/// Asserts that no decision so far was made without the store.
#[track_caller]
fn assert_no_fallback(fleet: &Fleet) {
    for weir in &fleet.weirs {
        assert_eq!(weir.fallbacks(), 0.0);
    }
}
