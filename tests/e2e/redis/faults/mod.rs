//! Redis fails in every way, and no request fails with it.
//!
//! Each trial takes its sizes. Here they are small; `cargo bench --bench faults` has them at full size, and prints what
//! it measured.

mod groups;
mod servers;
mod trial;

#[allow(unused_imports)] // of the report, for the benchmark
pub use trial::{Report, Sizes, trial};

use crate::redis::REPLICAS;
use crate::support::{Fleet, Upstream};

/// A store that can fail.
pub trait Fault {
    /// The lines of `[store.main]` without `timeout`.
    fn store(&self) -> String;

    /// The fault begins.
    fn begin(&mut self);

    /// The fault ends: from now on the store could decide. Trials wait for the recovery of Weir from here.
    fn end(&mut self);

    /// The number of keys over which requests are spread. Each has its own budget.
    fn keys(&self) -> usize {
        1
    }

    /// The replicas, which have this configuration.
    fn fleet(&self, config: &str) -> Fleet {
        Fleet::of(REPLICAS, config)
    }

    /// Units that Redis may forget because it has not yet copied them elsewhere.
    fn forgets(&self) -> u64 {
        0
    }
}

/// Starts the servers of a fault. `slow_ms` is a delay far beyond the timeout of the store.
pub type Start = fn(slow_ms: u64) -> Box<dyn Fault>;

/// All faults by name.
pub const FAULTS: [(&str, Start); 14] = [
    ("kill -9", servers::kill),
    ("SIGSTOP", servers::freeze),
    ("slow", servers::slow),
    ("reset connections", servers::reset),
    ("SCRIPT FLUSH", servers::script_flush),
    ("FLUSHALL", servers::flush_all),
    ("maxmemory reached", servers::out_of_memory),
    ("wrong password", servers::wrong_password),
    ("replica promoted by Sentinel", groups::sentinel),
    ("Cluster master killed", groups::cluster_master),
    ("slot moved", groups::slot_moved),
    ("DNS name gone", servers::name_gone),
    ("half of a ring gone", groups::half_of_a_ring),
    ("network gone", servers::silence),
];

/// As much as shows the faults on a busy machine.
const SMALL: Sizes =
    Sizes { clients: 3, pace_ms: 8, before_ms: 600, during_ms: 1000, timeout_ms: 500, slow_ms: 3000, budget: 2000 };

/// Runs the trial of a fault, and checks what is promised about it.
fn check(name: &str) {
    let (_, start) = FAULTS.into_iter().find(|(known, _)| *known == name).unwrap();
    let mut fault = start(SMALL.slow_ms);
    let upstream = Upstream::start();
    let report = trial(&mut *fault, &upstream, &SMALL);
    eprintln!("{name}: {report}");
    assert_eq!(report.errors, 0, "{name}: {report}");
    assert!(report.over <= fault.forgets() + report.in_flight, "{name}: {report}");
    assert!(report.unused <= SMALL.budget / 20 + report.in_flight, "{name}: {report}");
    assert!(report.noticed <= trial::RECOVERY + LATE, "{name}: {report}");
}

/// How late something may be on a machine that is busy with other tests.
const LATE: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
fn a_killed_server_fails_nothing() {
    check("kill -9");
}

#[test]
fn a_stopped_server_fails_nothing() {
    check("SIGSTOP");
}

#[test]
fn a_slow_server_fails_nothing() {
    check("slow");
}

#[test]
fn reset_connections_fail_nothing() {
    check("reset connections");
}

#[test]
fn forgotten_scripts_fail_nothing() {
    check("SCRIPT FLUSH");
}

#[test]
fn forgotten_keys_fail_nothing() {
    check("FLUSHALL");
}

#[test]
fn a_full_server_fails_nothing() {
    check("maxmemory reached");
}

#[test]
fn a_wrong_password_fails_nothing() {
    check("wrong password");
}

#[test]
fn a_promotion_fails_nothing() {
    check("replica promoted by Sentinel");
}

#[test]
fn a_killed_master_of_a_cluster_fails_nothing() {
    check("Cluster master killed");
}

#[test]
fn a_moved_slot_fails_nothing() {
    check("slot moved");
}

#[test]
fn a_lost_name_fails_nothing() {
    check("DNS name gone");
}

#[test]
fn half_of_a_ring_fails_nothing() {
    check("half of a ring gone");
}

#[test]
fn a_lost_network_fails_nothing() {
    check("network gone");
}
