//! Bans: which keys are refused everything, and for how long.

use std::time::Duration;

use tokio::time::advance;

use super::{CAPS, check, facts, headers, install, limit, new_gate, ns, parse_ban};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::gate::{BanTarget, Cause, Live, OperatorBan, Step};
use crate::engine::limit::{Algorithm, Allowance, Rate};
use crate::engine::policy::{Allowed, Limit, OnLimit, Stage};

#[tokio::test(start_paused = true)]
async fn a_key_refused_too_often_is_refused_everything() {
    check(
        "
        limit a 1 1s 1 reject ban=2/10s,5s,8s
        0s     ask r1 a=k
        0s     ask r2 a=k
        0s     ask r3 a=k
        # its bucket is full again, but it is banned; knocking does not count
        1s     ask r4 a=k
        4s     ask r5 a=k
        # others are not
        4s     ask s1 a=other
        4s     ask s2 a=other
        # over: and the next ban is longer, up to the longest
        5s     ask r6 a=k
        5s     ask r7 a=k
        5s     ask r8 a=k
        6s     ask r9 a=k
        > 0s r1 pass
        > 0s r2 Limit 1s
        > 0s r3 Limit 1s
        > 1s r4 Banned 4s
        > 4s r5 Banned 1s
        > 4s s1 pass
        > 4s s2 Limit 1s
        > 5s r6 pass
        > 5s r7 Limit 1s
        > 5s r8 Limit 1s
        > 6s r9 Banned 7s
        ",
    )
    .await;
}

/// A key that gets no limit after its ban stays banned.
#[tokio::test(start_paused = true)]
async fn a_ban_outweighs_an_override_without_a_limit() {
    check(
        "
        limit a 1 1s 1 reject ban=1/1s,10s,1h
        0s     ask r1 a=k
        0s     ask r2 a=k
        1s     limit a 1 1s 1 reject ban=1/1s,10s,1h override=k,unlimited
        1s     ask r3 a=k
        1s     ask r4 a=other
        10s    ask r5 a=k
        10s    ask r6 a=k
        > 0s r1 pass
        > 0s r2 Limit 1s
        > 1s r3 Banned 9s
        > 1s r4 pass
        > 10s r5 pass
        > 10s r6 pass
        ",
    )
    .await;
}

/// Of a limit that holds: a new request, and one that waits already.
#[tokio::test(start_paused = true)]
async fn a_ban_outweighs_an_override_without_a_limit_in_the_wait_queue() {
    check(
        "
        limit a 1 1s 1 hold=1s ban=1/1s,10s,1h
        0s     ask r1 a=k
        0s     ask r2 a=k
        200ms  ask r3 a=k
        200ms  limit a 1 1s 1 hold=1s ban=1/1s,10s,1h override=k,unlimited
        300ms  ask r4 a=k
        300ms  ask r5 a=other
        > 0s    r1 pass
        > 200ms r3 WaitTooLong 1800ms
        > 200ms r2 Banned 10s
        > 300ms r4 Banned 9900ms
        > 300ms r5 pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_charges_no_key_and_outlives_reloads() {
    check(
        "
        limit a 1 1s 1 reject ban=1/1s,10s,1h
        limit b 1 1h 1 reject
        0s     ask r1 a=k
        0s     ask r2 a=k b=k
        1s     ask r3 a=k b=k
        1s     ask r4 b=k
        2s     limit a 100 1s 100 reject ban=1/1s,10s,1h
        2s     ask r5 a=k
        # without a ban in the limit, nobody is banned
        3s     limit a 100 1s 100 reject
        3s     ask r6 a=k
        4s     limit a 100 1s 100 reject ban=1/1s,10s,1h
        4s     ask r7 a=k
        5s     without a
        6s     limit a 100 1s 100 shadow ban=1/1s,10s,1h
        6s     ask r8 a=k
        7s     limit a 100 1s 100 reject ban=1/1s,10s,1h
        7s     ask r9 a=k
        # the percentile of the key is 28
        8s     limit a 100 1s 100 reject ban=1/1s,10s,1h enforce=28
        8s     ask r10 a=k
        8500ms limit a 100 1s 100 reject ban=1/1s,10s,1h enforce=29
        8500ms ask r11 a=k
        > 0s r1 pass
        > 0s r2 Limit 1s
        > 1s r3 Banned 9s
        > 1s r4 pass
        > 2s r5 Banned 8s
        > 3s r6 pass
        > 4s r7 Banned 6s
        > 6s r8 pass
        > 7s r9 Banned 3s
        > 8s r10 pass
        > 8500ms r11 Banned 1500ms
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_refused_when_its_key_is_banned() {
    check(
        "
        limit a 1 1s 1 hold=1s ban=1/1s,10s,1h
        0s     ask r1 a=k
        0s     ask r2 a=k
        0s     ask s1 a=other
        0s     ask s2 a=other
        200ms  ask r3 a=k
        > 0s    r1 pass
        > 200ms r3 WaitTooLong 1800ms
        > 200ms r2 Banned 10s
        > 0s    s1 pass
        > 1s    s2 pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_gauge_and_the_counters_follow() {
    let gate = new_gate();
    let mut limit = limit("a", 1, "1h", 1, OnLimit::Reject);
    limit.ban = Some(parse_ban("2/1min,1min,1h"));
    let live = install(gate, [limit], CAPS);
    let headers = headers(&["a=k"]);
    let ask = || gate.admit(live, Stage::Identified, &facts(&headers), || 100, gate.clock.now()).unwrap();
    let causes: Vec<Option<Cause>> = (0..5)
        .map(|_| match ask() {
            Step::Pass(mut pass) => {
                pass.charged.commit(true);
                None
            }
            Step::Refuse(refusal) => Some(refusal.cause),
            Step::Wait(_) | Step::Delay(_) | Step::Ask(_) => panic!("nobody waits"),
        })
        .collect();
    let banned = Some(Cause::Banned);
    assert_eq!(causes, [None, Some(Cause::Limit), Some(Cause::Limit), banned, banned]);
    let metrics = &live.states[0].metrics;
    gate.publish();
    assert_eq!((metrics.bans.get(), metrics.banned_keys.get()), (1, 1));
    let counted = [LimitDecision::Refused, LimitDecision::Banned].map(|decided| metrics.cells.counted(decided));
    assert_eq!(counted, [2, 2]);
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    gate.publish();
    assert_eq!((metrics.bans.get(), metrics.banned_keys.get()), (1, 0));
}

/// A ban of an operator costs the requests of other limits no look-up.
#[tokio::test(start_paused = true)]
async fn a_ban_of_an_operator_flags_its_limit_only() {
    let gate = new_gate();
    let limits = |count| ["a", "b"].map(|name| limit(name, count, "1h", count, OnLimit::Reject));
    let live = install(gate, limits(10), CAPS);
    let flags = |live: &Live| live.states.iter().map(|state| state.has_operator_bans()).collect::<Vec<_>>();
    let is_banned = |live, words: &[&str]| {
        let headers = headers(words);
        let step = gate.admit(live, Stage::Identified, &facts(&headers), || 100, gate.clock.now()).unwrap();
        matches!(step, Step::Refuse(refusal) if refusal.cause == Cause::Banned)
    };
    let change = |live, is_lifted, for_s: u64| {
        let (since, now) = (Timestamp::ZERO, gate.clock.now());
        let (target, until) =
            (BanTarget::Key("a".into(), vec!["k".into()]), now.saturating_add_ns(for_s * 1_000_000_000));
        let (until, replaced_until, reason, token) = (Some(until), None, None, None);
        let ban = OperatorBan { target, until, since, replica: 0, is_lifted, replaced_until, reason, token };
        gate.change_operator_bans(live, [ban], now);
    };
    assert_eq!(flags(live), [false, false]);
    change(live, false, 3600);
    assert_eq!((flags(live), is_banned(live, &["a=k"]), is_banned(live, &["b=k"])), (vec![true, false], true, false));
    assert!(is_banned(live, &["a=k", "b=k"]) && !is_banned(live, &["a=other", "b=k"]));
    // Another algorithm has another state.
    let others = limits(10).map(|limit| Limit {
        allowed: Allowed::to_all(Algorithm::SlidingWindow(
            Allowance::new(Rate { count: 10, period_ns: ns("1h") }).unwrap(),
        )),
        ..limit
    });
    let live = install(gate, others, CAPS);
    assert_eq!((flags(live), is_banned(live, &["a=k"])), (vec![true, false], true));
    change(live, true, 3600);
    assert_eq!((flags(live), is_banned(live, &["a=k"])), (vec![false, false], false));
    change(live, false, 10);
    assert_eq!((flags(live), is_banned(live, &["a=k"])), (vec![true, false], true));
    advance(Duration::from_secs(11)).await;
    gate.sweep();
    assert_eq!((flags(live), is_banned(live, &["a=k"])), (vec![false, false], false));
}
