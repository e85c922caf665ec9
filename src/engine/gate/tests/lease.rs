//! Limits that are shared by leases: calls, refunds, expiry, and decisions while the store is down.

use std::fmt::Write as _;
use std::time::Duration;

use super::redis::FakeRedis;
use super::{
    CAPS, MS_NS, OnFailure, Told, answer, ask, bucket, check, gate_of, headers, install_with, new_gate, parse_limit,
    run,
};
use crate::base::time::Clock;
use crate::engine::gate::Step;
use crate::engine::limit::Algorithm;
use crate::engine::limit::tests::algorithm;
use crate::engine::policy::Allowed;
use crate::engine::store::RemoteStore;
use crate::engine::store::backend::Unavailable;
use crate::engine::store::testing::News;

#[tokio::test(start_paused = true)]
async fn borrowed_units_are_spent_without_calls() {
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        0ms ask r1 a=k
        1ms calls 1
        1ms remain a=k 6
        2ms ask r2 a=k
        2ms ask r3 a=k
        3ms calls 0
        # none is unspent: more are borrowed
        4ms ask r4 a=k
        5ms calls 1
        5ms remain a=k 2
        6ms ask r5 a=k
        6ms ask r6 a=k
        6ms ask r7 a=k
        7ms calls 0
        # the store has two
        8ms ask r8 a=k
        9ms calls 1
        9ms remain a=k 0
        10ms ask r9 a=k
        10ms ask r10 a=k
        10ms ask r11 a=k
        11ms calls 0
        > 0ms r1 pass
        > 2ms r2 pass
        > 2ms r3 pass
        > 4ms r4 pass
        > 6ms r5 pass
        > 6ms r6 pass
        > 6ms r7 pass
        > 8ms r8 pass
        > 10ms r9 pass
        > 10ms r10 pass
        > 10ms r11 Limit 3599990ms
        ",
    )
    .await;
}

/// A rule that can never admit the cost of a request does not, whatever was borrowed under the rule before.
#[tokio::test(start_paused = true)]
async fn borrowed_units_do_not_outlive_a_lower_rule() {
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        0ms ask r1 a=k
        1ms limit a 1 1h 1 reject lease=1,4 cost=2
        2ms ask r2 a=k
        3ms limit a 1 1h 1 hold=forever lease=1,4 cost=2
        4ms ask r3 a=k
        5ms calls 1
        > 0ms r1 pass
        > 2ms r2 Limit never
        > 4ms r3 Limit never
        ",
    )
    .await;
}

/// Other replicas may return units that the store has lent.
#[tokio::test(start_paused = true)]
async fn a_denied_key_is_asked_about_again() {
    check(
        "
        limit a 1 1h 4 reject lease=1,4
        0ms ask r1 a=k
        1ms ask r2 a=k
        1ms ask r3 a=k
        1ms ask r4 a=k
        2ms calls 1
        50ms ask r5 a=k
        51ms calls 0
        600ms ask r6 a=k
        601ms calls 1
        602ms ask r7 a=k
        603ms calls 0
        > 0ms r1 pass
        > 1ms r2 pass
        > 1ms r3 pass
        > 1ms r4 pass
        > 50ms r5 Limit 3599950ms
        > 600ms r6 Limit 3599400ms
        > 602ms r7 Limit 3599398ms
        ",
    )
    .await;
}

/// Units at hand are spent as those of a local limit: without a step of its own, which would be a future and copies.
#[tokio::test(start_paused = true)]
async fn units_at_hand_need_no_question() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let limits = [&["a", "1", "1h", "100", "reject", "lease=1,40"][..], &["l", "1", "1h", "100", "reject"]];
    let live = install_with(gate, limits.map(parse_limit), CAPS, &[redis.store(OnFailure::Split)]);
    let fields = headers(&["a=k", "l=k"]);
    let step = ask(gate, live, &fields);
    assert!(matches!(step, Step::Ask(_)), "none is borrowed");
    drop(answer(step, &redis, &fields).await.unwrap_or_else(|_| panic!("refused")));
    for left in (10..40).rev() {
        let Step::Pass(mut pass) = ask(gate, live, &fields) else { panic!("{left} are left") };
        assert_eq!(pass.standing.map(|standing| standing.remaining), Some(60 + left));
        pass.charged.commit(true);
    }
    assert!(matches!(ask(gate, live, &fields), Step::Ask(_)), "more are to be borrowed");
}

/// Five units are at hand, and the store has nine.
#[tokio::test(start_paused = true)]
async fn borrowed_units_and_those_of_the_store_are_spent_together() {
    check(
        "
        limit a 1 1h 24 reject lease=1,15 cost=10
        0ms  ask r1 a=k
        10ms ask r2 a=k
        20ms ask r3 a=k
        30ms calls 2
        > 0ms  r1 pass
        > 10ms r2 pass
        # four are at hand then
        > 20ms r3 Limit 21599980ms
        ",
    )
    .await;
}

/// The wait is for the units that lack beside those at hand.
#[tokio::test(start_paused = true)]
async fn units_at_hand_shorten_a_wait() {
    check(
        "
        limit a 1 1s 18 reject lease=1,15 cost=10
        limit h 1 1s 18 hold=1990ms lease=1,15 cost=10
        0ms  ask r1 a=k
        # five are at hand, and the store has three
        1ms  ask r2 a=k
        2ms  calls 1
        4ms  ask h1 h=k
        5ms  ask h2 h=k
        > 0ms r1 pass
        > 1ms r2 Limit 1999ms
        > 4ms h1 pass
        > 5ms h2 WaitTooLong 1999ms
        ",
    )
    .await;
    let told = run("
        limit a 1 1s 18 hold=10s lease=1,15 cost=10
        0ms   ask r1 a=k
        1ms   ask r2 a=k
        550ms return
        ")
    .await;
    let Told { at_ns, what, .. } = &told["r2"];
    assert!(what == "pass" && (2_000 * MS_NS..2_020 * MS_NS).contains(at_ns), "{told:?}");
}

/// Units that go back to the store are those that a request waits for, which asked before.
#[tokio::test(start_paused = true)]
async fn units_that_go_back_shorten_a_wait() {
    let told = run("
        limit a 1 1s 18 hold=10s lease=1,15 cost=10
        0ms   ask r1 a=k
        # those at hand have expired, so the wait seems to be 6.5 s
        520ms ask r2 a=k
        550ms return
        ")
    .await;
    let Told { at_ns, what, .. } = &told["r2"];
    assert!(what == "pass" && (2_000 * MS_NS..2_020 * MS_NS).contains(at_ns), "{told:?}");
}

/// The timeout of the store, 250 ms, bounds all waits of a request. After that `on_failure` decides.
#[tokio::test(start_paused = true)]
async fn the_timeout_bounds_the_wait_for_several_calls() {
    check(
        "
        limit a 1 1h 100 reject lease=1,1
        0ms   store slow=200ms
        0ms   ask r1 a=k
        # waits for the call of r1, and then for its own one, which the server would answer at 400 ms
        10ms  ask r2 a=k
        450ms calls 1
        > 200ms r1 pass
        > 260ms r2 pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_call_serves_all_requests_that_wait_for_it() {
    check(
        "
        limit a 1 1h 100 reject lease=1,10
        0ms  store slow=20ms
        0ms  ask r1 a=k
        5ms  ask r2 a=k
        5ms  ask r3 a=k
        15ms ask r4 a=k
        25ms calls 1
        25ms remain a=k 90
        # a call that is abandoned ends: the next request makes its own
        30ms ask s1 a=other
        31ms ask s2 a=other
        32ms leave s1
        60ms calls 1
        60ms remain a=other 90
        > 20ms r1 pass
        > 20ms r2 pass
        > 20ms r3 pass
        > 20ms r4 pass
        > 52ms s2 pass
        ",
    )
    .await;
}

/// Units came back a moment before, so the mirror is in doubt. But the store knows of them when it denies.
#[tokio::test(start_paused = true)]
async fn a_denial_answers_all_requests_that_wait_for_it() {
    // All units are taken elsewhere, or too few are left for a request.
    for (options, taken) in [("lease=1,4", 10), ("lease=1,4 cost=4", 7)] {
        let mut rows = format!(
            "
            limit a 1 1h 10 reject {options}
            0ms    ask r1 a=k undo=1s
            600ms  return
            1001ms remain a=k 10
            1001ms elsewhere a=k {taken}
            1002ms calls 1
            1002ms store slow=20ms
            > 0ms r1 pass
            "
        );
        for request in 0..20 {
            let _ = write!(rows, "1010ms ask s{request} a=k\n> 1030ms s{request} Limit 3599971ms\n");
        }
        rows += "1031ms calls 1\n";
        check(&rows).await;
    }
}

/// Units that came back may not be in the answer to a question of the same time, so the store is asked again.
#[tokio::test(start_paused = true)]
async fn units_that_came_back_are_asked_for() {
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        0ms    ask r1 a=k undo=1s
        600ms  return
        1001ms remain a=k 10
        1001ms elsewhere a=k 9
        1002ms calls 1
        # takes the last unit that the store knows of
        1010ms ask s1 a=k
        1011ms ask s2 a=k
        1012ms calls 2
        1013ms ask s3 a=k
        1014ms calls 0
        > 0ms    r1 pass
        > 1010ms s1 pass
        > 1011ms s2 Limit 3599990ms
        > 1013ms s3 Limit 3599988ms
        ",
    )
    .await;
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        0ms    ask r1 a=k undo=1s
        1ms    ask r2 a=k undo=1024ms
        600ms  return
        1001ms remain a=k 9
        1001ms elsewhere a=k 9
        1002ms calls 1
        1002ms store slow=20ms
        # the unit of r2 comes back after the store has denied
        1010ms ask s1 a=k
        1031ms ask s2 a=k
        1060ms calls 2
        > 0ms    r1 pass
        > 1ms    r2 pass
        > 1030ms s1 Limit 3598970ms
        > 1051ms s2 pass
        ",
    )
    .await;
}

/// Only a request that finds no units waits for the store.
#[tokio::test(start_paused = true)]
async fn units_are_borrowed_while_others_are_spent() {
    check(
        "
        limit a 1 1h 1000 reject lease=1,8
        0ms  store slow=50ms
        0ms  ask r1 a=k
        60ms calls 1
        60ms ask r2 a=k
        60ms ask r3 a=k
        60ms ask r4 a=k
        60ms ask r5 a=k
        60ms ask r6 a=k
        # less than a quarter of eight is left after this
        60ms ask r7 a=k
        61ms ask r8 a=k
        62ms ask r9 a=k
        120ms calls 1
        120ms remain a=k 984
        > 50ms r1 pass
        > 60ms r2 pass
        > 60ms r3 pass
        > 60ms r4 pass
        > 60ms r5 pass
        > 60ms r6 pass
        > 60ms r7 pass
        > 61ms r8 pass
        > 110ms r9 pass
        ",
    )
    .await;
}

/// Requests that wait for a call that fails are decided without another call.
#[tokio::test(start_paused = true)]
async fn a_call_that_fails_is_made_once() {
    check(
        "
        limit a 1 1h 120 reject lease=3,8
        0ms  store late=50ms
        0ms  ask r1 a=k
        1ms  ask r2 a=k
        2ms  ask r3 a=k
        60ms calls 1
        # in the background
        60ms store up
        60ms ask s1 a=m
        60ms ask s2 a=m
        60ms ask s3 a=m
        60ms ask s4 a=m
        60ms ask s5 a=m
        60ms ask s6 a=m
        61ms store late=50ms
        61ms ask s7 a=m
        62ms ask s8 a=m
        63ms ask s9 a=m
        120ms calls 2
        > 50ms r1 pass
        > 50ms r2 pass
        > 50ms r3 pass
        > 60ms s1 pass
        > 60ms s2 pass
        > 60ms s3 pass
        > 60ms s4 pass
        > 60ms s5 pass
        > 60ms s6 pass
        > 61ms s7 pass
        > 62ms s8 pass
        > 111ms s9 pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn units_go_back() {
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        # into the lease
        0ms   ask r1 a=k undo=1ms
        2ms   ask r2 a=k
        3ms   return
        3ms   remain a=k 6
        # to the store, after half a second
        499ms return
        499ms remain a=k 6
        501ms return
        501ms remain a=k 9
        > 0ms r1 pass
        > 2ms r2 pass
        ",
    )
    .await;
    check(
        "
        limit a 1 1h 4 reject lease=1,4
        # into a lease that is spent
        0ms  ask r1 a=k undo=10ms
        2ms  ask r2 a=k
        2ms  ask r3 a=k
        2ms  ask r4 a=k
        3ms  ask r5 a=k
        11ms ask r6 a=k
        12ms calls 1
        > 0ms r1 pass
        > 2ms r2 pass
        > 2ms r3 pass
        > 2ms r4 pass
        > 3ms r5 Limit 3599997ms
        > 11ms r6 pass
        ",
    )
    .await;
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        # a refund after the lease has ended
        0ms   ask r1 a=k undo=1s
        600ms return
        600ms remain a=k 9
        1002ms remain a=k 10
        > 0ms r1 pass
        ",
    )
    .await;
}

/// After a reload, units go back to the store that lent them.
#[tokio::test(start_paused = true)]
async fn a_reload_gives_units_back_to_their_store() {
    for (what, kept) in [("another store", "lease=1,4"), ("no lease", "redis=1"), ("no store", "shadow"), ("", "")] {
        let gate = new_gate();
        let redis = FakeRedis::new(gate.clock);
        let lender = RemoteStore::unreachable(OnFailure::Split, gate.clock);
        let limit = |word| parse_limit(&["a", "1", "1h", "10", "reject", word]);
        let live = install_with(gate, [limit("lease=1,4")], CAPS, std::slice::from_ref(&lender));
        let fields = headers(&["a=k"]);
        drop(answer(ask(gate, live, &fields), &redis, &fields).await);
        assert_eq!(lender.take_news().len(), 0);
        let limits = if kept.is_empty() { Vec::new() } else { vec![limit(kept)] };
        install_with(gate, limits, CAPS, &[redis.store(OnFailure::Split)]);
        let returned: Vec<u64> = lender
            .take_news()
            .iter()
            .map(|news| match news {
                News::GiveBack(receipt) => receipt.units(),
                News::Settle { .. } => panic!("{news:?}"),
            })
            .collect();
        assert_eq!(returned, [4], "{what}");
        gate.publish();
        let text = String::from_utf8(gate.metrics.render().unwrap()).unwrap();
        assert_eq!(text.contains("weir_lease_units{"), kept.starts_with("lease"), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_limits_that_deny_take_no_units() {
    check(
        "
        limit a 1 1h 10 reject lease=1,4
        limit b 1 1h 1 reject redis=1
        limit l 1 1h 1 reject
        0ms ask r1 a=k b=k l=k
        1ms remain a=k 6
        # a store, and a limit of this replica
        1ms elsewhere b=n 1
        2ms ask r2 a=k b=n l=m
        2ms ask r3 a=k b=m l=k
        3ms calls 2
        # three units are unspent
        4ms ask r4 a=k
        4ms ask r5 a=k
        5ms calls 0
        5ms remain a=k 6
        > 0ms r1 pass
        > 2ms r2 Limit 3599999ms
        > 2ms r3 Limit 3599998ms
        > 4ms r4 pass
        > 4ms r5 pass
        ",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_goes_on_with_its_share_when_its_lease_is_spent() {
    check(
        "
        limit a 1 1h 12 reject lease=3,2
        0ms ask r1 a=k
        1ms remain a=k 10
        2ms store down
        2ms ask r2 a=k
        # a third of twelve, of which it has borrowed two
        3ms ask r3 a=k
        3ms ask r4 a=k
        3ms ask r5 a=k
        3ms ask r6 a=k
        4ms store up
        4ms remain a=k 8
        > 0ms r1 pass
        > 2ms r2 pass
        > 3ms r3 pass
        > 3ms r4 pass
        > 3ms r5 Limit 10799997ms
        > 3ms r6 Limit 10799997ms
        ",
    )
    .await;
}

/// Three replicas lose their store at once. The store has lent units since a replica knew of it, so its mirror has too many.
/// Together they admit no more than the limit, and what single replicas had borrowed beyond their share of it.
#[tokio::test(start_paused = true)]
async fn replicas_without_their_store_take_no_more_than_their_shares() {
    const LEASE: u64 = 10;
    for kind in ["reject", "reject several"] {
        for before in [[90, 80, 70], [100, 90, 80], [10, 0, 90], [0, 0, 0], [200, 0, 50], [0, 0, 290]] {
            let clock = Clock::start();
            let redis = FakeRedis::new(clock);
            let replica = || {
                let gate = gate_of(clock);
                let mut limit = parse_limit(&["a", "1", "1h", "300", "reject", "lease=3,10"]);
                if kind == "reject several" {
                    let other = bucket(&limit).0;
                    let rules = [Algorithm::TokenBucket(*other), algorithm("sliding_log 310/1week")];
                    limit.allowed = Allowed::to_all(Algorithm::Several(rules.into()));
                }
                (gate, install_with(gate, [limit], CAPS, &[redis.store(OnFailure::Split)]))
            };
            let replicas = [replica(), replica(), replica()];
            let fields = headers(&["a=k"]);
            let admitted = async |index: usize, requests: u64| {
                let (gate, live) = replicas[index];
                let mut admitted = 0;
                for _ in 0..requests {
                    if let Ok(mut pass) = answer(ask(gate, live, &fields), &redis, &fields).await {
                        pass.charged.commit(true);
                        admitted += 1;
                    }
                    tokio::task::yield_now().await;
                }
                admitted
            };
            let mut all = 0;
            for (index, requests) in before.into_iter().enumerate() {
                assert_eq!(admitted(index, requests).await, requests);
                all += requests;
            }
            redis.set(Some(Unavailable::Down), Duration::ZERO);
            for index in 0..3 {
                all += admitted(index, 400).await;
            }
            let beyond: u64 = before.iter().map(|units| (units + LEASE).saturating_sub(100)).sum();
            assert!((250..=300 + beyond).contains(&all), "{kind} {before:?}: {all}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_units_of_a_lease() {
    let told = run("
        limit a 10 1s 1 hold=2s lease=1,5
        0ms  ask r1 a=k
        1ms  ask r2 a=k
        2ms  ask r3 a=k
        ")
    .await;
    // With the jitter of calls and the lateness of timers.
    for (name, from_ms) in [("r1", 0), ("r2", 100), ("r3", 200)] {
        assert!((from_ms * MS_NS..(from_ms + 8) * MS_NS).contains(&told[name].at_ns), "{name} {:?}", told[name]);
    }
}

/// Requests name the same two keys in either order while a call for one of them is in flight.
#[tokio::test(start_paused = true)]
async fn the_order_of_keys_does_not_matter() {
    let mut rows =
        "limit a 1 1h 100 reject lease=1,1\nlimit b 1 1h 100 reject lease=1,1\n0ms store slow=20ms\n".to_owned();
    for key in 0..32 {
        // One request wakes first of those that wait for the call: by chance either.
        let names = [format!("a=k{key}"), format!("b=k{key}")];
        let _ = write!(
            rows,
            "0ms check first{key} {0}\n1ms check ab{key} {0} {1}\n1ms check ba{key} {1} {0}\n",
            names[0], names[1]
        );
    }
    let told = run(&rows).await;
    assert!(told.len() == 96 && told.values().all(|told| told.what.starts_with("pass")), "{told:?}");
}
