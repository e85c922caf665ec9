//! Redis fails in every way, and no request fails with it.
//!
//! Each trial takes its sizes. Here they are small; `cargo bench --bench faults` has them at full size, and prints what
//! it measured.

mod forms;
mod groups;
mod servers;
mod trial;

#[allow(unused_imports)] // of the report, for the benchmark
pub use trial::{Report, Sizes, trial};

use std::time::Duration;

use crate::redis::REPLICAS;
use crate::support::{Cluster, Fleet, Redis, Sentinels, Upstream};
use forms::{ACTIONS, Action, Form, SOME, Servers};

/// The limit of most trials.
const TOKEN_BUCKET: &str = "rate = \"1/h\"\nburst = BUDGET";

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

    /// The lines of the limit, with `BUDGET` for the units of each key. At most a few come back within the trial.
    fn limit(&self) -> &'static str {
        TOKEN_BUCKET
    }

    /// How long replicas may keep units that others are refused.
    fn lends_for(&self) -> Duration {
        Duration::ZERO
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
    ("kill -9", |_| Servers::one(forms::KILL)),
    ("SIGSTOP", |_| Servers::one(forms::FREEZE)),
    ("slow", servers::slow),
    ("reset connections", servers::reset),
    ("SCRIPT FLUSH", |_| Servers::one(forms::SCRIPT_FLUSH)),
    ("FLUSHALL", |_| Servers::one(forms::FLUSH_ALL)),
    ("maxmemory reached", |_| Servers::one(forms::OUT_OF_MEMORY)),
    ("wrong password", |_| Servers::one(forms::WRONG_PASSWORD)),
    ("replica promoted by Sentinel", groups::sentinel),
    ("Cluster master killed", groups::cluster_master),
    ("slot moved", groups::slot_moved),
    ("DNS name gone", servers::name_gone),
    ("half of a ring gone", half_of_a_ring),
    ("network gone", servers::silence),
];

fn half_of_a_ring(_: u64) -> Box<dyn Fault> {
    Box::new(Servers { form: Form::ring(4), action: forms::KILL, of: 2, keys: 16, limit: TOKEN_BUCKET })
}

/// As much as shows the faults on a busy machine.
const SMALL: Sizes =
    Sizes { clients: 2, pace_ms: 30, before_ms: 750, during_ms: 1000, timeout_ms: 500, slow_ms: 3000, budget: 320 };

/// Runs the trial of a fault, and checks what is promised about it.
fn check(name: &str) {
    let (_, start) = FAULTS.into_iter().find(|(known, _)| *known == name).unwrap();
    check_fault(name, &mut *start(SMALL.slow_ms));
}

fn check_fault(name: &str, fault: &mut dyn Fault) {
    let upstream = Upstream::start();
    let report = trial(fault, &upstream, &SMALL);
    eprintln!("{name}: {report}");
    assert_eq!(report.errors, 0, "{name}: {report}");
    assert!(report.over <= fault.forgets() + report.in_flight, "{name}: {report}");
    assert!(report.unused <= SMALL.budget / 20 + report.in_flight, "{name}: {report}");
    assert!(report.noticed <= trial::RECOVERY + LATE, "{name}: {report}");
}

/// How late something may be on a machine that is busy with other tests.
const LATE: Duration = Duration::from_secs(5);

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

/// Each fault of all servers of a form at once, under a limit with these lines. Each has replicas of its own.
fn check_form(name: &str, form: Form, limit: &'static str, actions: &[Action]) {
    let mut fault = Servers { form, action: actions[0], of: usize::MAX, keys: 8, limit };
    for &action in actions {
        fault.empty();
        fault.action = action;
        check_fault(&format!("{name}, {}", action.name), &mut fault);
    }
}

#[test]
fn faults_behind_tls_fail_nothing() {
    check_form("TLS", Form::tls(), TOKEN_BUCKET, &SOME);
}

#[test]
fn faults_of_a_whole_ring_fail_nothing() {
    check_form("ring", Form::ring(3), TOKEN_BUCKET, &ACTIONS);
}

#[test]
fn faults_of_a_whole_cluster_fail_nothing() {
    check_form("Cluster", Form::Cluster(Cluster::start(0)), TOKEN_BUCKET, &ACTIONS);
}

#[test]
fn faults_of_a_master_with_sentinels_fail_nothing() {
    check_form("Sentinel", Form::Sentinels(Sentinels::start()), TOKEN_BUCKET, &ACTIONS);
}

#[test]
fn faults_of_a_server_that_lends_fail_nothing() {
    check_form("lease", Form::One(Redis::start()), "burst = BUDGET\nrate = \"1/h\"\nstrategy = \"lease\"", &SOME);
}

#[test]
fn faults_under_a_window_in_parts_fail_nothing() {
    check_form("sub_window", Form::One(Redis::start()), "rate = \"BUDGET/day\"\nalgorithm = \"sub_window\"", &SOME);
}
