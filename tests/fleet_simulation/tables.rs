//! Figures by the size of a fleet, for `docs/fleet/simulation.md`.

use std::env;

use weir::engine::store::stream::Timing;

use super::exact::{Outcome, Setup, bucket};
use super::leases::LeaseFleet;
use super::split::Split;
use super::world::{Fault, FaultKind, SECOND};

/// The run of a fleet of `replicas` that must not take long.
fn sized(replicas: usize) -> Setup {
    let setup = Setup::new(replicas, 1000, 100);
    let is_full = is_full();
    let (seconds, from) = match replicas {
        0..=8 if is_full => (60, 10),
        9..=32 if is_full => (30, 10),
        33..=100 if is_full => (20, 10),
        0..=8 => (20, 10),
        _ => (2, 0),
    };
    Setup { seconds, from, ..setup }
}

fn is_full() -> bool {
    env::var("WEIR_TABLES").is_ok_and(|size| size == "full")
}

/// `stream` without faults. The largest fleet has a longer interval here, unless the tables are to be full.
#[test]
fn tables_by_size() {
    println!("| Replicas | Units beyond the limit | Bound | Rate, error | Messages/s | KB/s |");
    println!("|---:|---:|---:|---:|---:|---:|");
    let sizes: &[usize] = if is_full() { &[2, 3, 8, 32, 100, 300, 1000] } else { &[2, 3, 8, 32, 100] };
    for replicas in sizes {
        let setup = sized(*replicas);
        let outcome = setup.stream();
        let Outcome { over, bound, per_second, messages, bytes, .. } = outcome;
        let error = if setup.seconds < 10 { "-".to_owned() } else { format!("{:+.2} %", per_second / 10.0 - 100.0) };
        println!("| {replicas} | {over:.0} | {bound:.0} | {error} | {messages:.0} | {:.0} |", bytes / 1000.0);
        assert!(over <= bound, "{replicas}: {outcome:?}");
    }
    if !is_full() {
        // Replicas that do not hear each other would exceed the bound.
        let timing = Timing { interval_ns: SECOND / 2, isolate_after_ns: 10 * SECOND };
        let outcome = Setup { timing, seconds: 2, from: 0, ..Setup::new(300, 1000, 100) }.stream();
        assert!(outcome.over <= outcome.bound, "{outcome:?}");
    }
}

/// All strategies through a fault of ten seconds in a minute.
#[test]
fn tables_of_faults() {
    println!("| Fault, replicas | `stream` | `lease` | `split` |");
    println!("|---|---:|---:|---:|");
    for (name, kind) in [
        ("none", None),
        ("a replica is cut off silently", Some(FaultKind::Partition { below: 1, cuts: false })),
        ("a replica is cut off", Some(FaultKind::Partition { below: 1, cuts: true })),
        ("a replica crashes", Some(FaultKind::Crash(0))),
        ("a replica stands still", Some(FaultKind::Pause(0))),
    ] {
        for replicas in [3, 8] {
            let faults = kind.map(|kind| Fault { kind, from_ns: 5 * SECOND, to_ns: 15 * SECOND });
            let faults = faults.into_iter().collect();
            let setup = Setup { faults, seconds: 20, from: 1, rate: 500, ..Setup::new(replicas, 500, 100) };
            let rule = bucket(setup.rate, setup.burst);
            let allowed = (setup.burst + setup.rate * setup.seconds) as f64;
            let outcomes = [
                setup.stream(),
                setup.run(&mut LeaseFleet::new(&rule, replicas), 1),
                setup.run(&mut Split::new(&rule, replicas), 0),
            ];
            let parts = outcomes.map(|outcome| format!("{:.3}", outcome.admitted as f64 / allowed));
            println!("| {name}, {replicas} | {} |", parts.join(" | "));
        }
    }
}
