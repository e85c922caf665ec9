//! The trials of `tests/e2e/reliability` at full size, and what they saw.
//!
//! `cargo bench --bench soak [-- NAME... ]`. All but `soak` take some minutes together; `soak` takes ten.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
#![allow(clippy::disallowed_methods, clippy::float_cmp)] // as where they come from
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
#![allow(dead_code, unused_imports)] // a part of what tests share is for other tests

#[path = "../tests/e2e/ops.rs"]
mod ops;
#[path = "../tests/e2e/reliability/mod.rs"]
mod reliability;
#[path = "../tests/e2e/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

type Trial = fn() -> String;

const TRIALS: [(&str, Trial); 7] = [
    ("reloads", || reliability::reloads(16, 100)),
    ("replacements", || reliability::replacements(16, 20)),
    ("outage", || reliability::outages(16, 10, 1, Duration::ZERO)),
    ("outages", || reliability::outages(16, 10, 3, Duration::ZERO)),
    ("descriptors", || reliability::descriptors(2000, Duration::from_secs(20))),
    ("held", || reliability::held(1000, Duration::from_secs(4))),
    ("soak", || reliability::soak(Duration::from_mins(10))),
];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    for name in &asked {
        assert!(TRIALS.iter().any(|(known, _)| known == name), "there is no {name}");
    }
    for (name, trial) in TRIALS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            let began = Instant::now();
            let seen = trial();
            println!("{name} ({:.0} s): {seen}", began.elapsed().as_secs_f64());
        }
    }
}
