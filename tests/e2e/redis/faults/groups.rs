//! Faults of several servers.

use std::time::Duration;

use super::Fault;
use crate::support::{Cluster, Redis, Sentinels};

struct Promotion(Sentinels);

pub(super) fn sentinel(_: u64) -> Box<dyn Fault> {
    Box::new(Promotion(Sentinels::start()))
}

impl Fault for Promotion {
    fn store(&self) -> String {
        format!("sentinel = {}", self.0.toml())
    }

    fn begin(&mut self) {
        self.0.kill_master();
    }

    fn end(&mut self) {
        self.0.wait_for_promotion();
    }

    // The replica gets commands after the master has replied.
    fn forgets(&self) -> u64 {
        20
    }
}

/// A master is killed, and its replica takes its place.
struct Failover {
    cluster: Cluster,
    killed: usize,
}

pub(super) fn cluster_master(_: u64) -> Box<dyn Fault> {
    Box::new(Failover { cluster: Cluster::start(1), killed: 0 })
}

impl Fault for Failover {
    fn store(&self) -> String {
        format!("cluster = {}", self.cluster.urls())
    }

    fn begin(&mut self) {
        self.killed = self.cluster.owner(&key_of_limit(&self.cluster.masters));
        self.cluster.kill_master(self.killed);
    }

    fn end(&mut self) {
        self.cluster.wait_for_promotion(self.killed);
    }

    fn forgets(&self) -> u64 {
        20
    }
}

/// The slot of the key moves to another master.
struct Move(Cluster);

pub(super) fn slot_moved(_: u64) -> Box<dyn Fault> {
    Box::new(Move(Cluster::start(0)))
}

impl Fault for Move {
    fn store(&self) -> String {
        format!("cluster = {}", self.0.urls())
    }

    fn begin(&mut self) {
        let key = key_of_limit(&self.0.masters);
        let to = (self.0.owner(&key) + 1) % 3;
        self.0.move_slot(&key, to, || std::thread::sleep(Duration::from_millis(300)));
    }

    fn end(&mut self) {}
}

/// The key of the only bucket of the limit `each`.
fn key_of_limit(nodes: &[Redis]) -> String {
    nodes.iter().flat_map(Redis::keys).find(|key| key.contains("each:")).expect("a key of the limit")
}
