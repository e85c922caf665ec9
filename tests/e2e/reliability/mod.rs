//! What an operator trusts: reloads, replacements, outages, want of descriptors, the end, and time change nothing that
//! they should not.
//!
//! Each trial takes its sizes. Here they are small; `cargo bench --bench soak` has them at full size.

mod descriptors;
mod held;
mod load;
mod outages;
mod reloads;
mod replacements;
mod service;
mod soak;
mod traffic;

use std::time::Duration;

pub use descriptors::descriptors;
pub use held::held;
pub use outages::outages;
pub use reloads::reloads;
pub use replacements::replacements;
pub use soak::soak;

/// Units that trials spend from. Ten minutes bring none of them back.
const BUDGET: u64 = 5_000_000;

/// A limit over everything, from which nothing comes back meanwhile.
fn budget() -> String {
    format!("[[limit]]\nname = \"budget\"\nkey = []\nrate = \"100/day\"\nburst = {BUDGET}\n")
}

/// What is left of it, after one request more.
fn left(weir: &crate::support::Weir) -> u64 {
    let answer = crate::support::Client::connect(weir.address()).get("/");
    answer.header("x-ratelimit-remaining").unwrap().parse().unwrap()
}

#[test]
fn reloads_fail_nothing_and_refill_nothing() {
    reloads(6, 20);
}

#[test]
fn replacements_refuse_nobody_and_refill_nothing() {
    replacements(6, 20);
}

#[test]
fn a_service_that_was_restarted_is_used_at_once() {
    for endpoints in [1, 3] {
        outages(6, 2, endpoints, Duration::from_millis(50));
    }
}

#[test]
fn want_of_descriptors_neither_spins_nor_crashes() {
    descriptors(80, Duration::from_secs(1));
}

#[test]
fn the_end_leaves_nobody_without_an_answer() {
    held(400, Duration::from_secs(1));
}

#[test]
fn time_leaves_nothing_behind() {
    soak(Duration::from_secs(3));
}
