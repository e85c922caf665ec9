//! Limits that several Weirs share through Redis.

mod cold;
mod exact;
mod fallback;
pub mod faults;
mod given_back;
mod leases;
mod servers;
mod settle;
mod several;

use crate::ops::until;
use crate::support::{Client, Fleet, Redis, Upstream, Weir};

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

/// A limit `all` over everything, with these lines.
fn over_all(lines: &str) -> String {
    format!("[[limit]]\nname = \"all\"\nkey = []\n{lines}\n")
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
    wait_for_stores(&fleet, true);
    fleet
}

/// Waits until each replica says that all nodes of its stores decide, or that one does not.
pub fn wait_for_stores(fleet: &Fleet, are_up: bool) {
    for weir in &fleet.weirs {
        until("stores", || {
            let text = Client::connect(weir.admin()).get("/metrics").text();
            let mut nodes = text.lines().filter(|line| line.starts_with("weir_store_up{")).peekable();
            nodes.peek().is_some() && nodes.all(|line| line.ends_with(" 1")) == are_up
        });
    }
}

/// Asserts that no decision so far was made without the store.
#[track_caller]
fn assert_no_fallback(fleet: &Fleet) {
    for weir in &fleet.weirs {
        assert_eq!(fallbacks(weir), 0.0);
    }
}

/// Decisions that a replica has made without the store, for all limits.
fn fallbacks(weir: &Weir) -> f64 {
    let text = Client::connect(weir.admin()).get("/metrics").text();
    let series = text.lines().filter(|line| line.starts_with("weir_fallback_decisions_total{"));
    series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
