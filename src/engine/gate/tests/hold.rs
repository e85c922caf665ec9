//! Held requests: their waits, and the ends of waits.

use std::collections::HashMap;
use std::fmt::Write;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::redis::NoStore;
use super::{CAPS, ask, check, headers, install, new_gate, parse_limit, policy, scripts};
use crate::engine::gate::Step;
use crate::engine::policy::client_ip::Prefixes;

scripts! {
    first_come_first_served_at_exact_instants: "
        limit a 10 1s 1 hold=forever
        0ms  ask r1 a=k     > pass
        0ms  ask r2 a=k     > 100ms pass
        0ms  ask r3 a=k     > 200ms pass
        # another key has a queue of its own
        10ms ask s1 a=other > pass
        10ms ask s2 a=other > 110ms pass
        50ms ask r4 a=k     > 300ms pass
    ", "
        # instants between milliseconds: late by less than one millisecond, never early, and delays do not add up
        limit a 3 1s 2 hold=forever
        # also with a burst of 1: each slot counts from the slot before it
        limit b 3 1s 1 hold=forever
        0ms ask a0..a1 a=k > pass
        0ms ask a2 a=k     > 333333334ns pass
        0ms ask a3 a=k     > 666666668ns pass
        0ms ask a4 a=k     > 1000000002ns pass
        0ms ask b1 b=k     > pass
        0ms ask b2 b=k     > 333333334ns pass
        0ms ask b3 b=k     > 666666668ns pass
        0ms ask b4 b=k     > 1000000002ns pass
    ";
}

/// A waiter looks at its queue when it joins and at its slot, and never between the two. Rows: rates.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_polled_twice() {
    for [amount, per] in [["10", "1s"], ["3", "1s"], ["1000", "1s"], ["3333", "1s"], ["10000", "1s"], ["7", "1min"]] {
        let gate = new_gate();
        let live = install(gate, [parse_limit(&["a", amount, per, "1", "hold=forever"])], CAPS);
        let Step::Pass(mut first) = ask(gate, live, &headers(&["a=k"])) else { panic!("the burst is 1") };
        first.charged.commit(true);
        let (polls, mut tasks) = (Arc::new(AtomicUsize::new(0)), Vec::new());
        for _ in 0..50 {
            let Step::Wait(waiting) = ask(gate, live, &headers(&["a=k"])) else { panic!("it has to wait") };
            let polls = Arc::clone(&polls);
            tasks.push(tokio::spawn(async move {
                let mut wait = pin!(waiting.wait(&NoStore));
                let counted = poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    wait.as_mut().poll(context)
                });
                counted.await.unwrap().charged.commit(true);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(polls.load(Ordering::Relaxed), 100, "{amount}/{per}");
    }
}

scripts! {
    /// The request before it computes a slot without a plan, which is later than that of a request with a faster plan.
    a_waiter_with_a_plan_moves_up: "
        limit a 1 1s 1 hold=forever plan=gold,2,1s,1
        0ms   ask r1 a=k             > pass
        0ms   ask r2 a=k             > 1000ms pass
        0ms   ask r3..r4 a=k
        0ms   ask r5 a=k x-plan=gold > 1500ms pass
        500ms leave r3
        500ms leave r4
    ";
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_names_the_limit_with_the_longest_wait() {
    let gate = new_gate();
    let limits = [&["a", "1", "1s", "1", "hold=forever"][..], &["b", "1", "2s", "1", "hold=forever"]];
    let live = install(gate, limits.map(parse_limit), CAPS);
    let headers = headers(&["a=k", "b=k"]);
    let Step::Pass(mut first) = ask(gate, live, &headers) else { panic!("the first request waits") };
    first.charged.commit(true);
    let Step::Wait(waiting) = ask(gate, live, &headers) else { panic!("the second request does not wait") };
    assert_eq!(waiting.held_by(), "b");
}

scripts! {
    costs_are_waited_for_in_full: "
        limit a 10 1s 10 hold=forever cost=4
        0ms ask r1..r2 a=k > pass
        0ms ask r3 a=k     > 200ms pass
        0ms ask r4 a=k     > 600ms pass
    ";

    new_requests_queue_behind_waiting_ones: "
        limit a 1 1s 1 hold=forever
        0s ask r1 a=k > pass
        0s ask r2 a=k > 1s pass
        1s ask r3 a=k > 2s pass
        1s ask r4 a=k > 3s pass
    ", "
        # there are units for the new request, but not for the request before it
        limit a 1 1s 10 hold=forever cost=6
        0s ask r1 a=k > pass
        0s ask r2 a=k > 2s pass
        0s limit a 1 1s 10 hold=forever cost=6
        1s ask r3 a=k > 8s pass
    ";
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_gives_its_place_back() {
    for (who, rest) in [("r2", "r3 r4 r5"), ("r3", "r2 r4 r5"), ("r5", "r2 r3 r4")] {
        let mut script = "
            limit a 1 1s 1 hold=forever
            0s ask r1 a=k > pass
            0s ask r2..r5 a=k
        "
        .to_owned();
        writeln!(script, "500ms leave {who}").unwrap();
        for (second, name) in rest.split(' ').enumerate() {
            writeln!(script, "> {}s {name} pass", second + 1).unwrap();
        }
        check(&script).await;
    }
    check(
        "
        # all requests leave; a later request finds no queue
        limit a 1 1s 1 hold=forever
        0s   ask r1 a=k > pass
        0s   ask r2..r3 a=k
        10ms leave r2
        10ms leave r3
        1s   ask r4 a=k > pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn beyond_a_cap_the_answer_comes_at_once() {
    check(
        "
        # per key
        limit a 1 1s 1 hold=forever waiting=2
        0s     ask r1 a=k     > pass
        0s     ask r2 a=k     > 1s pass
        0s     ask r3 a=k     > 2s pass
        250ms  ask r4 a=k     > QueueFull 2750ms
        250ms  ask s1 a=other > pass
        250ms  ask s2 a=other > 1250ms pass
        1001ms ask r5 a=k     > 3s pass
        ",
    )
    .await;
    for caps in ["caps 2 1000000", "caps 1000 200", "caps 1000 299"] {
        let script = "
            limit a 1 1s 1 hold=forever
            0s    ask r1 a=k     > pass
            0s    ask r2 a=k     > 1s pass
            0s    ask r3 a=k
            0s    ask r4 a=k     > QueueFull 3s
            0s    ask s1 a=other > pass
            0s    ask s2 a=other > QueueFull 1s
            500ms leave r3
            500ms ask s3 a=other > 1s pass
        ";
        check(&format!("{caps}\n{script}")).await;
    }
}

scripts! {
    a_wait_that_is_too_long_is_refused_at_once: "
        limit a 1 1s 1 hold=2s
        0s     ask r1 a=k > pass
        0s     ask r2 a=k > 1s pass
        # a wait of exactly max_wait
        0s     ask r3 a=k > 2s pass
        0s     ask r4 a=k > WaitTooLong 3s
        400ms  ask r5 a=k > WaitTooLong 2600ms
        999ms  ask r6 a=k > WaitTooLong 2001ms
        1001ms ask r7 a=k > 3s pass
    ", "
        limit a 1 1s 1 hold=0s
        0s ask r1 a=k > pass
        0s ask r2 a=k > WaitTooLong 1s
        1s ask r3 a=k > pass
    ", "
        # regression: the units that a window leaves unused before a larger cost did not count
        limit a 5 1s 1 window=fixed hold=3400ms cost=5
        0s ask r1 a=k     > pass
        0s limit a 5 1s 1 window=fixed hold=3400ms cost=3
        0s ask r2 a=k     > 1s pass
        0s ask r3 a=k     > 2s pass
        0s ask r4 a=k     > 3s pass
        0s limit a 5 1s 1 window=fixed hold=3400ms cost=1
        0s ask s1..s2 a=k > 3s pass
        0s ask s3..s9 a=k > WaitTooLong 4s
    ";
}

#[tokio::test(start_paused = true)]
async fn a_small_delay_past_the_deadline_refuses_no_request() {
    // A reload at half of the wait simulates a delay of Weir's own: r2 has 500 ms left, and its deadline is 1 s.
    for (interval, told) in [("1100ms", "1050ms r2 pass"), ("1300ms", "1s r2 WaitTooLong 150ms")] {
        check(&format!(
            "
            limit a 1 1s 1 hold=1s
            0s    ask r1 a=k > pass
            0s    ask r2 a=k
            500ms limit a 1 {interval} 1 hold=1s
            > {told}
            "
        ))
        .await;
    }
}

scripts! {
    a_request_that_can_never_pass_does_not_wait: "
        limit a 1 1s 1 hold=forever cost=2
        0s ask r1 a=k > Limit never
    ", "
        limit a 1 1s 2 hold=forever cost=2
        0s    ask r1 a=k     > pass
        0s    ask r2..r3 a=k > 500ms Limit never
        500ms limit a 1 1s 1 hold=forever cost=2
    ";

    one_limit_holds_and_one_rejects: "
        limit h 1 1s 1 hold=forever
        limit r 1 1s 2 reject
        0s    ask r1 h=k r=k > pass
        0s    ask r2 h=k r=k > 1s pass
        # takes the units that r2 needs
        100ms ask r3 r=k     > pass
    ", "
        limit h 1 1s 1 hold=forever
        limit r 1 10s 2 reject
        0s    ask r1 h=k r=k     > pass
        0s    ask r2 h=k r=k     > 1s Limit 9s
        1ms   ask r3 r=k         > pass
        # r rejects: nothing to wait for, with or without a queue
        100ms ask r4 h=k r=k     > Limit 9900ms
        100ms ask r5 h=other r=k > Limit 9900ms
        # neither of them was charged by h
        200ms ask r6 h=other     > pass
    ";

    two_limits_hold: "
        # the longer wait is the wait, and all or none are charged
        limit a 1 1s 1 hold=forever
        limit b 1 4s 1 hold=forever
        0s    ask r1..r2 a=k b=k
        500ms ask r3 a=k
        600ms ask r4 b=k
        > 0s  r1 pass
        > 1s  r3 pass
        > 4s  r2 pass
        > 8s  r4 pass
    ", "
        # at its turn in b it finds a exhausted, and becomes the front there
        limit a 1 2s 1 hold=forever
        limit b 1 3s 1 hold=forever
        0s ask b0 b=k
        0s ask r1 a=k b=k
        0s ask a0 a=k
        1s ask a1 a=k
        2s ask a2 a=k
        > 0s  b0 pass
        > 0s  a0 pass
        > 2s  a1 pass
        > 4s  r1 pass
        > 6s  a2 pass
    ", "
        # the smaller max_wait counts
        limit a 1 1s 1 hold=forever
        limit b 1 1s 1 hold=500ms
        0s ask r1 a=k b=k     > pass
        0s ask r2 a=k b=other > 1s pass
        0s ask r3 a=other b=k > WaitTooLong 1s
    ";

    a_waiter_keeps_its_rank_in_every_queue: "
        # p arrives at b later than x at a, and both could take the next unit of b at the same instant
        limit a 1 3001ms 1 hold=forever
        limit b 1 3s 1 hold=forever
        limit c 1 1s 1 hold=forever
        0ms ask c0 c=k
        1ms ask a0 a=k
        1ms ask p c=k b=k
        1ms ask x a=k b=k
        2ms ask b0 b=k
        > 0ms    c0 pass
        > 1ms    a0 pass
        > 2ms    b0 pass
        > 3002ms p pass
        > 6002ms x pass
    ";

    crossing_keys_do_not_block_each_other: "
        limit a 1 1s 1 hold=forever
        limit b 1 1s 1 hold=forever
        0s   ask a0 a=k     > pass
        10ms ask b0 b=k     > pass
        20ms ask r1 a=k b=k > 1010ms pass
        20ms ask r2 b=k a=k > 2010ms pass
        20ms ask r3 a=k b=k > 3010ms pass
        20ms ask r4 b=k a=k > 4010ms pass
    ";
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_two_limits_is_not_starved_by_waiters_of_one() {
    let mut script = "
        # regression: a and b became free in turn, and each was spent when the other became free
        limit a 1 1s 1 hold=forever
        limit b 1 1s 1 hold=forever
        0ms   ask a0 a=k       > pass
        500ms ask b0 b=k       > pass
        510ms ask both a=k b=k > 2s pass
        > 1s     a1 pass
        > 3s     a2 pass
        > 4s     a3 pass
        > 3s     b1 pass
        > 4s     b2 pass
        > 5s     b3 pass
    "
    .to_owned();
    for number in 1..4 {
        writeln!(script, "520ms ask a{number} a=k\n520ms ask b{number} b=k").unwrap();
    }
    check(&script).await;
}

scripts! {
    a_waiter_of_its_own_limit_does_not_block_a_shared_one: "
        limit own 1 1min 1 hold=forever
        limit shared 10 1s 1 hold=forever
        0ms  ask s0 shared=k       > pass
        0ms  ask u1 own=u shared=k > 60010ms pass
        # takes u's budget while u1 waits for the shared one
        10ms ask u0 own=u          > pass
        20ms ask s1 shared=k       > 100ms pass
        20ms ask s2 shared=k       > 200ms pass
    ";
}

#[tokio::test(start_paused = true)]
async fn a_reload_applies_to_waiters() {
    let rows = [
        // the reload at 500 ms, and the instants at which r2, r3 and r4 pass, which arrived at 0
        ("limit a 1 1s 1 hold=forever", ["1s", "2s", "3s"]),
        ("limit a 10 1s 1 hold=forever", ["550ms", "650ms", "750ms"]),
        ("limit a 1 10s 1 hold=forever", ["5500ms", "15500ms", "25500ms"]),
        ("limit a 1 1s 2 hold=forever", ["500ms", "1s", "2s"]),
        ("limit a 1 1s 1 shadow", ["500ms", "500ms", "500ms"]),
        ("limit a 1 1s 1 off", ["500ms", "500ms", "500ms"]),
        ("without a", ["500ms", "500ms", "500ms"]),
        // another algorithm, which begins anew; r2 is charged as of 10 ms before
        ("limit a 1 1s 1 and=100/1h hold=forever", ["500ms", "1490ms", "2490ms"]),
        ("limit a 1 1s 1 and=100/1h hold=forever\n600ms limit a 1 1s 1 hold=forever", ["500ms", "600ms", "1590ms"]),
        ("limit a 1 1s 1 and=100/1h hold=forever\n600ms without a", ["500ms", "600ms", "600ms"]),
        ("limit a 1 1s 1 and=100/1h off", ["500ms", "500ms", "500ms"]),
        ("limit a 1 1s 1 concurrency=1 hold=forever", ["500ms", "500ms", "500ms"]),
    ];
    for (reload, [r2, r3, r4]) in rows {
        check(&format!(
            "
            limit a 1 1s 1 hold=forever
            0s    ask r1 a=k > pass
            0s    ask r2 a=k > {r2} pass
            0s    ask r3 a=k > {r3} pass
            0s    ask r4 a=k > {r4} pass
            500ms {reload}
            "
        ))
        .await;
    }
    check(
        "
        limit a 1 1s 1 hold=forever
        0s    ask r1 a=k     > pass
        0s    ask r2..r3 a=k > 500ms Limit 500ms
        500ms limit a 1 1s 1 reject
        ",
    )
    .await;
}

/// A reload that gives a limit another algorithm also applies to requests that it overtakes: they come before it, and are
/// decided after it.
#[tokio::test(start_paused = true)]
async fn a_reload_applies_to_requests_that_it_overtakes() {
    // further rows, and the instants at which r3 and r4 pass, which are decided at 200 ms
    let rows = [
        ("", ["1100ms", "2100ms"]),
        ("500ms limit a 1 1h 1 hold=forever", ["500ms", "3600490ms"]),
        ("500ms without a", ["500ms", "500ms"]),
    ];
    for (then, [r3, r4]) in rows {
        check(&format!(
            "
            limit a 1 1h 1 hold=forever
            0s    ask r1 a=k      > pass
            100ms limit a 1 1s 1 and=100/1h hold=forever
            100ms ask r2 a=k      > pass
            200ms ask r3 a=k late > {r3} pass
            200ms ask r4 a=k late > {r4} pass
            {then}
            "
        ))
        .await;
    }
    // The state of the other algorithm has been forgotten meanwhile, with its limit.
    let gate = new_gate();
    let a = |algorithm: &str| parse_limit(&["a", "1", "1h", "1", algorithm, "hold=forever"]);
    let live = install(gate, [a("cost=1")], CAPS);
    let Step::Pass(mut first) = ask(gate, live, &headers(&["a=k"])) else { panic!("the burst is 1") };
    first.charged.commit(true);
    drop(gate.install(policy(vec![a("and=100/1h")], Vec::new()), CAPS, 10));
    install(gate, [], CAPS);
    gate.sweep();
    let Step::Wait(waiting) = ask(gate, live, &headers(&["a=k"])) else { panic!("the earlier limit admits it") };
    assert!(timeout(Duration::from_secs(1), waiting.wait(&NoStore)).await.unwrap().is_ok());
}

scripts! {
    reload_refills_nothing_and_max_wait_still_holds: "
        limit a 1 1s 3 reject
        limit b 1 1s 1 reject
        0s ask r1..r3 a=k > pass
        0s limit a 1 1s 3 reject
        0s ask r4 a=k     > Limit 1s
        0s without a
        0s ask r5 a=k     > pass
        0s limit a 1 1s 3 reject
        0s ask r6 a=k     > Limit 1s
        1s ask r7 a=k     > pass
    ", "
        # lowered so far that no request can be served in time: each is refused at its own deadline
        limit a 1 1s 1 hold=3s
        0s    ask r1 a=k > pass
        0s    ask r2 a=k > 3s WaitTooLong 87500ms
        100ms ask r3 a=k > 3100ms WaitTooLong 27400ms
        500ms limit a 1 1min 1 hold=3s
    ";

    shutdown_refuses_waiters_and_new_requests_that_would_wait: "
        limit a 1 1s 1 hold=forever
        0s    ask r1 a=k     > pass
        0s    ask r2 a=k     > 250ms ShuttingDown 1750ms
        0s    ask r3 a=k     > 250ms ShuttingDown 750ms
        0s    ask s1 a=other > pass
        0s    ask s2 a=other > 250ms ShuttingDown 750ms
        250ms close
        250ms ask r4 a=k     > ShuttingDown 2750ms
        1s    ask r5 a=k     > pass
        1s    ask r6 a=k     > ShuttingDown 1s
    ";

    pass_that_is_dropped_gives_back_once: "
        limit a 1 1s 2 reject
        limit b 1 1s 1 reject
        0s    ask r1 a=k b=k undo=100ms > pass
        0s    ask r2 b=k                > Limit 1s
        50ms  ask r3 a=k                > pass
        50ms  ask r4 a=k                > Limit 950ms
        200ms ask r5 a=k                > pass
        200ms ask r6 a=k                > Limit 900ms
        200ms ask r7 b=k                > pass
    ", "
        # regression: waiting requests did not learn of it
        limit a 1 1s 1 hold=forever
        0s ask r1 a=k undo=100ms > pass
        0s ask r2 a=k            > 100ms pass
        0s ask r3 a=k            > 1100ms pass
    ";

    a_waiter_goes_by_its_own_rule_after_reloads: "
        # y stood behind x, and the index of x belongs to another key now
        limit a 1 1h 1 hold=forever override=x,1,1s,1 override=y,1,10s,1
        0s ask y1 a=y > pass
        0s ask y2 a=y > 10s pass
        1s limit a 1 1h 1 hold=forever override=y,1,10s,1
    ", "
        limit a 1 1h 1 hold=forever override=y,1,10s,1
        0s ask y1 a=y > pass
        0s ask y2 a=y > 10s pass
        1s limit a 1 1h 1 hold=forever override=x,1,2s,1 override=y,1,10s,1
    ", "
        # an override is added, and another is removed while there is a plan: units that came back before stay
        limit a 1 1h 1 hold=forever plan=gold,1,20s,1
        limit b 1 1h 1 hold=forever plan=gold,1,20s,1 override=y,1,5s,1
        0s ask y1 a=y x-plan=gold > pass
        0s ask y2 a=y x-plan=gold > 5750ms pass
        0s ask z1 b=y x-plan=gold > pass
        0s ask z2 b=y x-plan=gold > 17s pass
        1s limit a 1 1h 1 hold=forever plan=gold,1,20s,1 override=y,1,5s,1
        1s limit b 1 1h 1 hold=forever plan=gold,1,20s,1
    ", "
        # plans that change their indices
        limit a 1 1h 1 hold=forever plan=free,1,30s,1 plan=gold,1,20s,1
        0s ask y1 a=y x-plan=gold > pass
        0s ask y2 a=y x-plan=gold > 20s pass
        1s limit a 1 1h 1 hold=forever plan=gold,1,20s,1 plan=free,1,30s,1
    ";

    a_request_without_a_limit_does_not_wait: "
        limit a 1 1s 1 hold=forever plan=gold,unlimited override=y,unlimited
        limit b 1 1s 2 hold=forever
        0s ask r1 a=k                 > pass
        0s ask r2 a=k                 > 1s pass
        0s ask g1 a=k x-plan=gold     > pass
        0s ask y1 a=y                 > pass
        # it has its turn in other queues nevertheless
        0s ask r3..r4 b=k             > pass
        0s ask r5 b=k                 > 1s pass
        0s ask g2 a=k b=k x-plan=gold > 2s pass
    ", "
        # from now on it has no limit, also while other requests still wait under the old rule
        limit a 1 1h 1 hold=forever
        0s ask r1 a=k > pass
        0s ask r2 a=k > 1s pass
        1s limit a 1 1h 1 hold=forever override=k,unlimited
        1s ask r3 a=k > pass
    ";
}

/// A request that waits for a unit of a shared bucket is woken by whichever key gives one back.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_all_keys_of_its_bucket() {
    let gate = new_gate();
    let limit = parse_limit(&["a", "1", "1h", "1", "concurrency=1", "hold=forever", "max_keys=0"]);
    let bucket =
        |value: &str| gate.secret.key_of_texts(&limit.key, &[value], Prefixes::default(), &[]).unwrap().second % 4096;
    let mut values = HashMap::new();
    let [one, other] = (0..)
        .find_map(|number: u32| {
            let value = number.to_string();
            let known = values.insert(bucket(&value), value.clone())?;
            Some([known, value])
        })
        .unwrap();
    let live = install(gate, [limit.clone()], CAPS);
    let ask = |value: &str| ask(gate, live, &headers(&[&format!("a={value}")]));
    let Step::Pass(first) = ask(&one) else { panic!("nothing is in flight") };
    let Step::Wait(waiting) = ask(&other) else { panic!("one is in flight") };
    let waiting = tokio::spawn(waiting.wait(&NoStore));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(first);
    assert!(timeout(Duration::from_secs(1), waiting).await.expect("it is woken").unwrap().is_ok());
}
