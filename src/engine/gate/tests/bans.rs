//! Bans: which keys are refused everything, and for how long.

use std::time::Duration;

use tokio::time::advance;

use super::{CAPS, facts, headers, install, limit, new_gate, ns, parse_ban, scripts};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::gate::{BanTarget, Cause, Live, OperatorBan, Step};
use crate::engine::limit::{Algorithm, Allowance, Rate};
use crate::engine::policy::{Allowed, Limit, OnLimit, Stage};

scripts! {
    a_key_refused_too_often_is_refused_everything: "
        limit a 1 1s 1 reject ban=2/10s,5s,8s
        0s ask r1 a=k     > pass
        0s ask r2..r3 a=k > Limit 1s
        # its bucket is full again, but it is banned; knocking does not count
        1s ask r4 a=k     > Banned 4s
        4s ask r5 a=k     > Banned 1s
        # others are not
        4s ask s1 a=other > pass
        4s ask s2 a=other > Limit 1s
        # over: and the next ban is longer, up to the longest
        5s ask r6 a=k     > pass
        5s ask r7..r8 a=k > Limit 1s
        6s ask r9 a=k     > Banned 7s
    ";

    /// A key that gets no limit after its ban stays banned.
    a_ban_outweighs_an_override_without_a_limit: "
        limit a 1 1s 1 reject ban=1/1s,10s,1h
        0s  ask r1 a=k     > pass
        0s  ask r2 a=k     > Limit 1s
        1s  limit a 1 1s 1 reject ban=1/1s,10s,1h override=k,unlimited
        1s  ask r3 a=k     > Banned 9s
        1s  ask r4 a=other > pass
        10s ask r5..r6 a=k > pass
    ";

    /// Of a limit that holds: a new request, and one that waits already.
    a_ban_outweighs_an_override_without_a_limit_in_the_wait_queue: "
        limit a 1 1s 1 hold=1s ban=1/1s,10s,1h
        0s    ask r1..r2 a=k
        200ms ask r3 a=k
        200ms limit a 1 1s 1 hold=1s ban=1/1s,10s,1h override=k,unlimited
        300ms ask r4 a=k
        300ms ask r5 a=other
        > 0s    r1 pass
        > 200ms r3 WaitTooLong 1800ms
        > 200ms r2 Banned 10s
        > 300ms r4 Banned 9900ms
        > 300ms r5 pass
    ";

    a_ban_charges_no_key_and_outlives_reloads: "
        limit a 1 1s 1 reject ban=1/1s,10s,1h
        limit b 1 1h 1 reject
        0s     ask r1 a=k     > pass
        0s     ask r2 a=k b=k > Limit 1s
        1s     ask r3 a=k b=k > Banned 9s
        1s     ask r4 b=k     > pass
        2s     limit a 100 1s 100 reject ban=1/1s,10s,1h
        2s     ask r5 a=k     > Banned 8s
        # without a ban in the limit, nobody is banned
        3s     limit a 100 1s 100 reject
        3s     ask r6 a=k     > pass
        4s     limit a 100 1s 100 reject ban=1/1s,10s,1h
        4s     ask r7 a=k     > Banned 6s
        5s     without a
        6s     limit a 100 1s 100 shadow ban=1/1s,10s,1h
        6s     ask r8 a=k     > pass
        7s     limit a 100 1s 100 reject ban=1/1s,10s,1h
        7s     ask r9 a=k     > Banned 3s
        # the percentile of the key is 28
        8s     limit a 100 1s 100 reject ban=1/1s,10s,1h enforce=28
        8s     ask r10 a=k    > pass
        8500ms limit a 100 1s 100 reject ban=1/1s,10s,1h enforce=29
        8500ms ask r11 a=k    > Banned 1500ms
    ";

    a_waiter_is_refused_when_its_key_is_banned: "
        limit a 1 1s 1 hold=1s ban=1/1s,10s,1h
        0s    ask r1 a=k     > pass
        0s    ask r2 a=k     > 200ms Banned 10s
        0s    ask s1 a=other > pass
        0s    ask s2 a=other > 1s pass
        200ms ask r3 a=k     > WaitTooLong 1800ms
    ";
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
