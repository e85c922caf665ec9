//! The trials of `tests/e2e/redis/faults` at full size, and what the clients saw.
//!
//! `cargo bench --bench faults [-- NAME... ]`. A trial takes about nine seconds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
#![allow(clippy::disallowed_methods, clippy::float_cmp)] // as where they come from
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
#![allow(dead_code, unused_imports)] // a part of what tests share is for other tests

#[path = "../tests/e2e/ops.rs"]
mod ops;
#[path = "../tests/e2e/redis/mod.rs"]
mod redis;
#[path = "../tests/e2e/support/mod.rs"]
mod support;

use std::time::Duration;

use redis::faults::{FAULTS, Report, Sizes, trial};
use support::Upstream;

/// A fault of five seconds under the default timeout of a store.
const FULL: Sizes =
    Sizes { clients: 6, pace_ms: 5, before_ms: 2000, during_ms: 5000, timeout_ms: 10, slow_ms: 50, budget: 20_000 };

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    for name in &asked {
        assert!(FAULTS.iter().any(|(known, _)| known == name), "there is no {name}");
    }
    println!("{} clients, each at most one request per {} ms, three replicas.\n", FULL.clients, FULL.pace_ms);
    println!(
        "| Fault | Requests | Errors | Over the limit | Not used | Decided without Redis | Slowest of the first 500 ms \
         | Added during, p50 / p99 | Added after, p50 / p99 | Recovery |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, start) in FAULTS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            let mut fault = start(FULL.slow_ms);
            let report = trial(&mut *fault, &Upstream::start(), &FULL);
            println!("{}", row(name, &report));
        }
    }
}

fn row(name: &str, report: &Report) -> String {
    let Report { requests, errors, over, unused, recovery, learning, fallbacks, .. } = report;
    format!(
        "| {name} | {requests} | {errors} | {over} | {unused} | {fallbacks} | {} | {} | {} | {:.2} s |",
        ms(learning.as_secs_f64()),
        added(report.during, report.before),
        added(report.after, report.before),
        recovery.as_secs_f64(),
    )
}

/// The differences of two percentiles each.
fn added(during: [Duration; 2], before: [Duration; 2]) -> String {
    let [p50, p99] = [0, 1].map(|index| ms(during[index].as_secs_f64() - before[index].as_secs_f64()));
    format!("{p50} / {p99}")
}

fn ms(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1000.0)
}
