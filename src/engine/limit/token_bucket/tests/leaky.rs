//! Leaky buckets: rows with time as a column, and the spacing of shaped requests.

use proptest::prelude::*;

use crate::engine::limit::state::State as _;
use crate::engine::limit::tests::{at, check, tables};
use crate::engine::limit::token_bucket::Bucket;
use crate::engine::limit::{Quota, Rate};

tables! {
    polices: "leaky_bucket 5/1s burst 5" => "
        # at      cost   decision   remaining   reset    retry
          0ms     5      admit      0           1s       -
          0ms     1      deny       0           1s       200ms
          200ms   1      admit      0           1s       -
          200ms   6      deny       0           1s       never
          600ms   3      deny       2           600ms    200ms
          600ms   wait 3 2 600ms
          5s      0      admit      5           0s       -
    ";

    shapes_one_after_another: "leaky_bucket 5/1s burst 5 shapes" => "
        # at      cost   decision   remaining   reset    retry
          0ms     1      admit      0           200ms    -
          0ms     1      deny       0           200ms    200ms
          0ms     0      admit      0           200ms    -
          0ms     wait 0 1 200ms
          0ms     wait 4 1 1s
          199ms   1      deny       0           1ms      1ms
          200ms   3      admit      0           600ms    -
          200ms   6      deny       0           600ms    never
          799ms   1      deny       0           1ms      1ms
        # nothing is saved up
          5s      1      admit      0           200ms    -
          5s      1      deny       0           200ms    200ms
          5s      refund 3
          5s      5      admit      0           1s       -
    ";
}

proptest! {
    #[test]
    fn shaped_requests_keep_their_distance(
        count in 1_u64..1000, requests in prop::collection::vec((0_u64..3_000_000, 1_u64..5), 1..60),
    ) {
        let quota = Quota::new(Rate { count, period_ns: 1_000_000_000 }, 4).unwrap().shaping(true);
        let (mut state, mut now, mut free_at) = (Bucket::fresh(&quota), at("0s"), at("0s"));
        for (gap_ns, cost) in requests {
            now = now.saturating_add_ns(gap_ns);
            let decision = state.admit(&quota, cost, now);
            prop_assert_eq!(decision.is_admitted(), now >= free_at);
            if decision.is_admitted() {
                free_at = now.saturating_add_ns(cost * quota.interval_ns());
            }
        }
    }
}
