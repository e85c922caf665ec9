//! Requests that wait for their shares of one budget.

use super::check;

/// Each sharer has its turn, in its own order of arrival, also with a burst of one unit.
#[tokio::test(start_paused = true)]
async fn sharers_pass_in_turn() {
    check(
        "
        limit a 10 1s 1 hold=forever shared
        0ms ask r1 a=k
        0ms ask r2 a=k
        0ms ask r3 a=k
        0ms ask r4 a=k
        0ms ask s1 a=other
        0ms ask s2 a=other
        > 0ms   r1 pass
        > 100ms s1 pass
        > 200ms r2 pass
        > 300ms s2 pass
        > 400ms r3 pass
        > 500ms r4 pass
        ",
    )
    .await;
}

/// Units that one sharer gives back let the request of another one pass.
#[tokio::test(start_paused = true)]
async fn units_given_back_wake_all_sharers() {
    check(
        "
        limit a 1 10s 5 hold=forever shared
        0s    ask r1 a=k
        0s    ask r2 a=k undo=2s
        0s    ask r3 a=k
        0s    ask r4 a=k
        0s    ask r5 a=k
        1s    ask s1 a=other
        > 0s  r1 pass
        > 0s  r2 pass
        > 0s  r3 pass
        > 0s  r4 pass
        > 0s  r5 pass
        > 2s  s1 pass
        ",
    )
    .await;
}
