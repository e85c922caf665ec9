//! Keys that nobody asks about while the rules of their limits change.

use super::{run, scripts};

scripts! {
    /// Units come back at the new rate from the change on.
    the_rate_changes_without_a_request: "
        limit a 1000 24h 1000 cost=1000
        0s ask r1 a=k > pass
        0s limit a 1000 1h 1000 cost=1000
        1h ask r2 a=k > pass
    ", "
        limit a 3600 1h 10 cost=10
        0s ask r1 a=k > pass
        0s limit a 10 1h 10
        5s ask r2 a=k > Limit 355s
    ", "
        # half of a unit is back at the old rate, and the other half takes as long at twice the rate as the first took
        limit a 1 10s 1
        0s ask r1 a=k > pass
        5s limit a 1 20s 1
        6s ask r2 a=k > Limit 9s
        7s limit a 1 4s 1
        8s ask r3 a=k > Limit 600ms
    ", "
        # all rates of a limit; a conversion adds up to 3 in 10^8 units
        limit a 10 24h 10 and=20/24h cost=10
        0s ask r1 a=k > pass
        0s limit a 10 10s 10 and=20/20s cost=10
        10001ms ask r2 a=k > pass
    ", "
        # sharers of one budget
        limit a 10 24h 10 shared
        0s ask r1..r8 a=k > pass
        0s limit a 10 10s 10 shared
        10001ms ask s1..s8 a=k > pass
    ";

    /// What is spent in a window counts in a longer one, also once the window has ended.
    a_window_changes_without_a_request: "
        limit a 60 1m 1 window=fixed cost=60
        0s ask r1 a=k > pass
        0s limit a 1000 24h 1 window=fixed cost=941
        1m ask r2 a=k > Limit 86340s
        2m limit a 1000 24h 1 window=fixed cost=940
        3m ask r3 a=k > pass
    ";

    /// A key with a plan adopts the rule of its plan, a key with an override that of the override.
    plans_and_overrides_change_without_a_request: "
        limit a 5 1h 5 cost=5 plan=gold,10,24h,10
        0s ask r1 a=k > pass
        0s ask g1..g2 a=g x-plan=gold > pass
        0s limit a 5 1h 5 cost=5 plan=silver,1,1h,5 plan=gold,10,10s,10
        10001ms ask g3..g4 a=g x-plan=gold > pass
        10001ms ask r2 a=k > Limit 3589999ms
    ", "
        # plans of one rate, of which one changes: whose a key is, its next use says
        limit a 10 24h 10 cost=10 plan=gold,10,24h,10
        0s ask g1 a=g x-plan=gold > pass
        0s limit a 10 10s 10 cost=10 plan=gold,10,24h,10
        1h ask g2 a=g x-plan=gold > Limit 82800s
    ", "
        limit a 5 24h 5 cost=5
        0s ask r1 a=k > pass
        0s ask s1 a=s > pass
        0s limit a 5 24h 5 cost=5 override=s,5,10s,5
        10001ms ask s2 a=s > pass
        10001ms ask r2 a=k > Limit 86389999ms
        # it has ended
        11s limit a 5 10s 5 cost=5
        21s ask s3 a=s > pass
    ";
}

/// A window of the same number for all keys ends at a date, so the retry is not known here.
#[tokio::test(start_paused = true)]
async fn a_sliding_window_changes_without_a_request() {
    for (cost, what) in [(940, "pass"), (941, "Limit")] {
        let rows = format!(
            "
            limit a 60 1m 1 window=sliding cost=60
            0s ask r1 a=k
            0s limit a 1000 240000h 1 window=sliding cost={cost}
            2m ask r2 a=k
            "
        );
        assert_eq!(run(&rows).await["r2"].what, what, "{cost}");
    }
}
