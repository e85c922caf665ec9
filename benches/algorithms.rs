//! What an admission costs under each algorithm, at one state, without a table around it.
//!
//! `cargo bench --bench algorithms`. Absolute times depend on the machine; compare within one run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_methods)] // it measures

#[path = "support/row.rs"]
mod row;

use std::hint::black_box;

use row::row;
use weir::base::time::Timestamp;
use weir::engine::limit::sketch::Sketch;
use weir::engine::limit::top::Top;
use weir::engine::limit::{Algorithm, Allowance, AnyState, Calendar, Key, Quota, Rate, State, Unit};
use weir::engine::limit::{concurrency, fixed_window, sliding_log, sliding_window, sub_window, token_bucket};

const START: Timestamp = Timestamp::from_ns(1_700_000_000_000_000_000);
const RATE: Rate = Rate { count: 1000, period_ns: 1_000_000_000 };
/// A little more often than the rate allows, so that about every tenth is refused.
const STEP_NS: u64 = 900_001;

fn quota() -> Quota {
    Quota::new(RATE, 1000).unwrap()
}

/// One request each step, at a state that has been at its limit for long.
fn steady<S: State>(name: &str, rule: &S::Rule) {
    let (mut state, mut now) = (S::fresh(rule), START);
    let mut step = move || {
        now = now.saturating_add_ns(STEP_NS);
        state.admit(black_box(rule), black_box(1), now)
    };
    (0..20_000).for_each(|_| _ = step());
    row("admit", name, step);
}

fn admit() {
    steady::<token_bucket::State>("token_bucket", &quota());
    let leaky = |shapes| quota().shaping(shapes);
    steady::<token_bucket::Bucket>("leaky_bucket", &leaky(false));
    steady::<token_bucket::Bucket>("leaky_bucket that shapes", &leaky(true));
    let first = fixed_window::Rule::from_first(RATE).unwrap();
    steady::<fixed_window::State>("fixed_window from the first request", &first);
    for (name, unit, zone) in [
        ("fixed_window of a second, UTC", Unit::Second, "UTC"),
        ("fixed_window of a second, Berlin", Unit::Second, "Europe/Berlin"),
        ("fixed_window of a day, Berlin", Unit::Day, "Europe/Berlin"),
    ] {
        let rule = fixed_window::Rule::in_calendar(1000, Calendar::new(unit, 1, zone).unwrap()).unwrap();
        steady::<fixed_window::State>(name, &rule);
    }
    steady::<sliding_window::State>("sliding_window", &Allowance::new(RATE).unwrap());
    steady::<sub_window::State>("sub_window of 10", &sub_window::Rule::new(RATE, 10).unwrap());
    steady::<sub_window::State>("sub_window of 100", &sub_window::Rule::new(RATE, 100).unwrap());
    steady::<sliding_log::State>("sliding_log of 1000", &sliding_log::Rule::new(RATE).unwrap());
    let bucket = Algorithm::TokenBucket(quota());
    steady::<AnyState>("token_bucket as any", &bucket);
    steady::<AnyState>("two token buckets as any", &Algorithm::Several(vec![bucket.clone(), bucket].into()));
    let rule = concurrency::Rule::new(10).unwrap();
    let mut state = concurrency::State::fresh(&rule);
    row("admit", "concurrency, and its release", || {
        let decision = state.admit(black_box(&rule), black_box(1), START);
        let receipt = state.receipt(1, START);
        state.refund(&rule, &receipt, START);
        decision
    });
}

/// As uniform as a hash.
fn key(number: u64) -> Key {
    let mix =
        |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 7)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Key { first: mix(number), second: mix(number + (1 << 40)) }
}

fn many_keys() {
    let (quota, mut number, mut now) = (quota(), 0_u64, START);
    let mut sketch = Sketch::new(1 << 16, &quota);
    row("many keys", "sketch of 65536 cells", || {
        (number, now) = ((number + 7919) % 100_000, now.saturating_add_ns(1000));
        sketch.admit(key(number), black_box(&quota), 1, now).0
    });
    let mut top = Top::new(1000);
    row("many keys", "top of 1000 among 100000", || {
        // A third of all offers go to a few.
        number = (number + 7919) % 100_000;
        top.offer(key(if number.is_multiple_of(3) { number % 50 } else { number }), || "198.51.100.7");
    });
}

fn main() {
    admit();
    many_keys();
}
