//! Dropped keys, and the distribution of keys over shards.

use std::hash::Hasher as _;

use super::{Key, Map, Shards, Spread};
use crate::engine::limit::concurrency;
use crate::engine::limit::concurrency::State;
use crate::engine::limit::state::State as _;

#[test]
fn what_is_dropped_is_counted() {
    let rule = concurrency::Rule::new(10).unwrap_or_else(|_| unreachable!());
    let shards = Shards::new(100);
    let key = |number: u64| Key { first: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), second: number };
    for number in 0..10 {
        shards.entry(key(number), |_| (Some(State::fresh(&rule)), ()));
    }
    let mut seen = 0;
    let dropped = shards.retain(|_| {
        seen += 1;
        seen > 3
    });
    assert_eq!((seen, dropped, shards.len()), (10, 3, 7));
}

/// 24 bits below the first seven are a fraction `x` and become `x * (5 - x) / 4`; all others stay. The two
/// lowest bits, which no key has, are those 30 places above.
#[test]
fn shards_have_odds_from_three_to_five() {
    let spread = |half: u64| {
        let mut hasher = Spread::default();
        hasher.write_u64(half);
        hasher.finish()
    };
    let (mask, whole) = (((1_u64 << 24) - 1) << 33, 1_u64 << 24);
    for (x, expected) in [
        (0, 0),
        (1, 1),
        (whole / 4, whole * 19 / 64),
        (whole / 2, whole * 9 / 16),
        (whole / 4 * 3, whole * 51 / 64),
        (whole - 1, whole - 1),
    ] {
        for others in [0, !mask & !3, 0xa5a5_a5a5_a5a5_a5a4 & !mask] {
            let lowest = others >> 30 & 3;
            assert_eq!(spread(others | x << 33), others | expected << 33 | lowest, "{x} {others:x}");
        }
    }
}
