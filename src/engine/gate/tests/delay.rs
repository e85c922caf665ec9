//! Delayed requests: their delays, and the ends of delays.

use std::fmt::Write;

use super::{CAPS, ask, check, facts, headers, install, new_gate, parse_limit, scripts};
use crate::base::telemetry::LimitDecision;
use crate::engine::gate::{Cause, Step};
use crate::engine::policy::Stage;

#[tokio::test(start_paused = true)]
async fn the_delay_is_a_step_for_each_unit_over_up_to_the_most() {
    let mut script =
        "limit a 1 1h 2 delay=100ms,5s\n0s ask r1 a=k\n0s ask r2 a=k\n> 0s r1 pass\n> 0s r2 pass\n".to_owned();
    // a tenth of a second for each request over the limit, five seconds at most
    for over in 1..=55_u32 {
        let delay_ms = (over * 100).min(5000);
        writeln!(script, "0s ask o{over} a=k\n> {delay_ms}ms o{over} pass").unwrap();
    }
    check(&script).await;
    check(
        "
        # the debt is paid as time passes
        limit a 1 1s 1 delay=100ms,5s
        0s  ask r1 a=k     > pass
        0s  ask r2 a=k     > 100ms pass
        0s  ask r3 a=k     > 200ms pass
        1s  ask r4 a=k     > 1200ms pass
        10s ask r5 a=k     > pass
        # another key has a debt of its own, and a request counts with its cost
        10s ask s1 a=other > pass
        20s limit a 1 1s 1 delay=100ms,5s cost=3
        20s ask s2 a=other > 20200ms pass
        ",
    )
    .await;
}

scripts! {
    with_several_limits_the_worst_counts: "
        limit a 1 1h 1 delay=100ms,5s
        limit b 1 1h 1 delay=300ms,5s
        limit c 1 1h 1 reject
        limit d 1 2s 1 hold=forever
        0s ask r1 a=k b=k > pass
        0s ask r2 a=k b=k > 300ms pass
        # refused by one, it is charged by none: r5 is as late as r4 would have been
        0s ask r3 c=k a=x > pass
        0s ask r4 c=k a=x > Limit 1h
        0s ask r5 a=x     > 100ms pass
        # who is held waits for the turn first
        0s ask h1 d=k a=h > pass
        0s ask h2 d=k a=h > 2100ms pass
    ";

    delayed_requests_need_room: "
        limit a 1 1h 1 delay=1s,5s waiting=2
        limit b 1 50ms 2 reject
        caps 3 300
        0s     ask r1 a=k     > pass
        0s     ask r2 a=k     > 1s pass
        0s     ask r3 a=k     > 2s pass
        # nobody is charged for what has no room, neither the other limit nor this one
        0s     ask r4 a=k b=k > QueueFull 5s
        0s     ask b1..b2 b=k > pass
        0s     ask s1 a=other > pass
        0s     ask s2 a=other > 1s pass
        0s     ask s3 a=other > QueueFull 5s
        1500ms ask r5 a=k     > 4500ms pass
    ";

    a_delayed_request_that_leaves_or_is_not_sent_is_refunded: "
        limit a 1 1h 1 delay=100ms,5s
        0s   ask r1 a=k         > pass
        0s   ask r2 a=k
        0s   ask r3 a=k         > 200ms pass
        50ms leave r2
        50ms ask r4 a=k         > 250ms pass
        # never sent on
        1s   ask r5 a=k undo=1s > 1300ms pass
        3s   ask r6 a=k         > 3300ms pass
    ";
}

#[tokio::test(start_paused = true)]
async fn reloads_and_the_end_apply_to_the_delayed() {
    for algorithm in ["", "and=1/1h"] {
        check(&format!(
            "
            limit a 1 1h 1 delay=1s,5s
            0s    ask r1 a=k     > pass
            0s    ask r2 a=k     > 1s pass
            0s    ask r3..r4 a=k > 1500ms pass
            500ms limit a 1 1h 1 {algorithm} delay=1s,1500ms
            "
        ))
        .await;
    }
    check(
        "
        limit a 1 1h 1 delay=1s,5s
        0s    ask r1 a=k > pass
        0s    ask r2 a=k > 500ms pass
        500ms without a
        ",
    )
    .await;
    check(
        "
        limit a 1 1h 1 delay=1s,5s
        0s     ask r1 a=k > pass
        0s     ask r2 a=k > 1s pass
        0s     ask r3 a=k > 1500ms ShuttingDown 500ms
        1500ms close
        1600ms ask r4 a=k > ShuttingDown 5s
        ",
    )
    .await;
    check(
        "
        # in shadow mode nobody is late
        limit a 1 1h 1 delay=1s,5s shadow
        0s ask r1..r2 a=k > pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_delayed_are_counted_and_told_that_nothing_remains() {
    let gate = new_gate();
    let live = install(gate, [parse_limit(&["a", "2", "1h", "2", "delay=100ms,5s"])], CAPS);
    let metrics = &live.states[0].metrics;
    let headers = headers(&["a=k"]);
    let ask = || gate.admit(live, Stage::Identified, &facts(&headers), || 100, gate.clock.now());
    for remaining in [1, 0, 0, 0] {
        let mut pass = match ask() {
            Ok(Step::Pass(pass)) => pass,
            Ok(Step::Delay(delayed)) => {
                assert_eq!((delayed.held_by(), metrics.held_now.get(), gate.waiting()), ("a", 1, 1));
                delayed.wait().await.unwrap()
            }
            other => panic!("{other:?}"),
        };
        pass.charged.commit(true);
        let standing = pass.standing.unwrap();
        assert_eq!((standing.limit, standing.burst, standing.remaining), ("a", 2, remaining));
    }
    let counted = [LimitDecision::Admitted, LimitDecision::Held, LimitDecision::Refused, LimitDecision::ShadowRefused];
    assert_eq!(counted.map(|decided| metrics.cells.counted(decided)), [4, 2, 0, 0]);
    assert_eq!(metrics.hold_duration.get_sample_count(), 2);
}

/// Each limit that delays a request counts the end of its delay, and the slowest one the delay.
#[tokio::test(start_paused = true)]
async fn delayed_requests_that_the_shutdown_refuses_are_counted() {
    let gate = new_gate();
    let limits = [&["a", "1", "1h", "1", "delay=1s,5s"][..], &["b", "1", "1h", "1", "delay=2s,5s"]];
    let live = install(gate, limits.map(parse_limit), CAPS);
    let headers = headers(&["a=k", "b=k"]);
    let Step::Pass(mut first) = ask(gate, live, &headers) else { panic!("the first request is delayed") };
    first.charged.commit(true);
    let Step::Delay(delayed) = ask(gate, live, &headers) else { panic!("the second request is not delayed") };
    gate.close();
    assert_eq!(delayed.wait().await.unwrap_err().cause, Cause::ShuttingDown);
    for (state, held) in live.states.iter().zip([0, 1]) {
        let counted = [LimitDecision::Admitted, LimitDecision::Held, LimitDecision::Refused];
        assert_eq!(counted.map(|decided| state.metrics.cells.counted(decided)), [1, held, 1], "{}", state.name);
    }
}
