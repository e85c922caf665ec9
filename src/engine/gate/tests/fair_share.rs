//! Requests that wait for their shares of one budget.

use std::fmt::Write;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::redis::FakeRedis;
use super::{CAPS, MS_NS, ask, headers, install, new_gate, parse_limit, scripts};
use crate::engine::gate::{LimitedKeysQuestion, Step};

scripts! {
    /// Each sharer has its turn, in its own order of arrival, also with a burst of one unit.
    sharers_pass_in_turn: "
        limit a 10 1s 1 hold=forever shared
        0ms ask r1..r4 a=k
        0ms ask s1..s2 a=other
        > 0ms   r1 pass
        > 100ms s1 pass
        > 200ms r2 pass
        > 300ms s2 pass
        > 400ms r3 pass
        > 500ms r4 pass
    ";

    /// Units that one sharer gives back let the request of another one pass.
    units_given_back_wake_all_sharers: "
        limit a 1 10s 5 hold=forever shared
        0s ask r1 a=k         > pass
        0s ask r2 a=k undo=2s > pass
        0s ask r3..r5 a=k     > pass
        1s ask s1 a=other     > 2s pass
    ";
}

/// What sharers leave goes to the others at once, also to a request that began to wait behind another of its sharer.
#[tokio::test(start_paused = true)]
async fn a_request_behind_another_gains_when_sharers_leave() {
    let mut rows = "limit a 1 1s 1 hold=forever shared\n0ms ask r a=k\n".to_owned();
    for sharer in 0..4 {
        for number in 0..4 {
            writeln!(rows, "0ms ask s{sharer}{number} a=s{sharer}").unwrap();
        }
    }
    rows += "0ms ask first a=k\n0ms ask next a=k\n";
    for sharer in 0..4 {
        for number in 1..4 {
            writeln!(rows, "5100ms leave s{sharer}{number}").unwrap();
        }
    }
    let told = super::run(&rows).await;
    // At full rate, once the others no longer count.
    assert_eq!(told["first"].at_ns / MS_NS, 5000);
    assert!(told["next"].at_ns <= 8_000 * MS_NS, "{:?}", told["next"]);
}

/// The wait for a share is an estimate, also if the request is refused at once.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_share_is_an_estimate() {
    let gate = new_gate();
    let live = install(gate, [parse_limit(&["a", "1", "1s", "1", "hold=500ms", "shared"])], CAPS);
    let fields = headers(&["a=k"]);
    let Step::Pass(mut first) = ask(gate, live, &fields) else { panic!("the burst is 1") };
    first.charged.commit(true);
    let Step::Refuse(refusal) = ask(gate, live, &fields) else { panic!("the wait is 1 s") };
    assert!(refusal.is_estimate);
}

/// A sharer that has left counts no longer because an operator looks at it again and again.
#[tokio::test(start_paused = true)]
async fn a_look_lets_no_sharer_count() {
    let gate = new_gate();
    let live = install(gate, [parse_limit(&["a", "10", "1s", "1", "shared"])], CAPS);
    let is_admitted = |key: &str| {
        let Step::Pass(mut pass) = ask(gate, live, &headers(&[key])) else { return false };
        pass.charged.commit(true);
        true
    };
    assert!(is_admitted("a=k") && !is_admitted("a=left"));
    let mut admitted = 0;
    for tick in 0..1000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        admitted += usize::from(is_admitted("a=k") && tick >= 500);
        gate.limited_keys(live, "a", &LimitedKeysQuestion::default(), gate.clock.now()).unwrap();
    }
    assert!(admitted >= 49, "{admitted} of 50");
}

/// A request that another limit refuses wakes no sharer that waits: nothing has come back.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_another_limit_wakes_no_sharer() {
    let gate = new_gate();
    let shared = parse_limit(&["a", "1", "1min", "10", "hold=forever", "shared"]);
    let live = install(gate, [shared, parse_limit(&["b", "1", "1h", "1"])], CAPS);
    let pass = |words: &[&str]| {
        let Step::Pass(mut pass) = ask(gate, live, &headers(words)) else { panic!("{words:?}") };
        pass.charged.commit(true);
    };
    (0..9).for_each(|_| pass(&["a=k"]));
    pass(&["b=k"]);
    let Step::Wait(waiting) = ask(gate, live, &headers(&["a=k"])) else { panic!("it has to wait") };
    let looks = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&looks);
    let waits = tokio::spawn(async move {
        let redis = FakeRedis::new(gate.clock);
        let mut wait = pin!(waiting.wait(&redis));
        poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            wait.as_mut().poll(context)
        })
        .await
        .is_ok()
    });
    for _ in 0..50 {
        tokio::task::yield_now().await;
        assert!(matches!(ask(gate, live, &headers(&["a=other", "b=k"])), Step::Refuse(_)));
    }
    assert_eq!(looks.load(Ordering::Relaxed), 1);
    waits.abort();
}
