//! A sketch compared with buckets of single keys.

use std::collections::HashMap;

use proptest::prelude::*;

use super::Sketch;
use crate::base::split_mix::{STEP, mix};
use crate::engine::limit::tests::{at, rate};
use crate::engine::limit::{Key, Quota, Retry, token_bucket};

fn quota(text: &str, burst: u64) -> Quota {
    Quota::new(rate(text), burst).unwrap()
}

/// A hash of `number`.
fn key(number: u64) -> Key {
    let half = |seed: u64| mix(number.wrapping_add(seed).wrapping_mul(STEP));
    Key { first: half(1), second: half(1 << 40) }
}

#[test]
fn a_single_key_gets_the_decisions_of_its_own_bucket() {
    let (slow, fast) = (quota("1/1s", 3), quota("10/1s", 3));
    let (mut sketch, mut bucket) = (Sketch::new(64, &slow), token_bucket::State::fresh(&slow));
    for (when, cost) in [("0s", 2), ("0s", 2), ("1s", 2), ("1s", 4), ("1500ms", 1), ("9s", 3), ("9s", 0)] {
        assert_eq!(sketch.admit(key(1), &slow, cost, at(when)).0, bucket.admit(&slow, cost, at(when)), "{when}");
    }
    assert_eq!(sketch.state(key(1)), bucket);
    assert_eq!(sketch.idle_at(), at("12s"));
    let (decision, receipt) = sketch.admit(key(1), &fast, 1, at("9s"));
    assert!(receipt.is_none());
    assert_eq!(decision.denied, Some(Retry::AfterNs(100_000_000)), "three units are still spent");
}

#[test]
fn a_charge_is_undone_while_it_is_the_last() {
    let quota = quota("1/1s", 3);
    let mut sketch = Sketch::new(64, &quota);
    let first = sketch.admit(key(1), &quota, 1, at("0s")).1.unwrap();
    let second = sketch.admit(key(2), &quota, 1, at("0s")).1.unwrap();
    assert_eq!(sketch.undo(key(1), &first), 0, "the second may count on its cells");
    assert_eq!(sketch.undo(key(2), &second), 1);
    assert_eq!(sketch.undo(key(1), &first), 1, "now it is the last");
    assert_eq!(sketch.state(key(1)).peek(&quota, 0, at("0s")).remaining, 3);
    assert!(sketch.admit(key(1), &quota, 9, at("0s")).1.is_none());
}

#[test]
fn memory_is_fixed() {
    for (cells, width) in [(0, 16), (65, 16), (68, 32), (4096, 1024)] {
        assert_eq!(Sketch::new(cells, &quota("1/1s", 1)).cells.len(), 4 * width);
    }
}

/// Four rows separate keys that collide in one row.
#[test]
fn few_are_mistaken() {
    let quota = quota("1/1h", 1);
    let mut sketch = Sketch::new(4 * 4096, &quota);
    let refused = (0..4096).filter(|number| !sketch.admit(key(*number), &quota, 1, at("0s")).0.is_admitted()).count();
    assert!(refused < 410, "{refused} of 4096 refused, though each came once");
}

proptest! {
    #[test]
    fn a_sketch_admits_nothing_that_a_bucket_of_its_own_refuses(
        requests in prop::collection::vec((0_u64..40, 0_u64..2000, 0_u64..5, any::<bool>()), 1..300), burst in 1_u64..6,
    ) {
        let quota = quota("2/1s", burst);
        let mut sketch = Sketch::new(0, &quota);
        let mut buckets: HashMap<u64, token_bucket::State> = HashMap::new();
        let mut now = at("0s");
        for (number, gap_ms, cost, is_undone) in requests {
            now = now.saturating_add_ns(gap_ms / 10 * 1_000_000);
            let bucket = buckets.entry(number).or_insert_with(|| token_bucket::State::fresh(&quota));
            let exact = bucket.peek(&quota, cost, now);
            let (decision, receipt) = sketch.admit(key(number), &quota, cost, now);
            prop_assert!(exact.is_admitted() || !decision.is_admitted());
            prop_assert!(decision.denied >= exact.denied);
            prop_assert!(decision.is_admitted() != exact.is_admitted() || decision.remaining <= exact.remaining);
            let undone = is_undone && receipt.is_some_and(|receipt| sketch.undo(key(number), &receipt) > 0);
            if decision.is_admitted() && !undone {
                bucket.admit(&quota, cost, now);
            }
        }
        for (number, bucket) in buckets {
            prop_assert!(sketch.state(key(number)).idle_at().max(now) >= bucket.idle_at());
            prop_assert!(sketch.idle_at().max(now) >= bucket.idle_at());
        }
    }
}
