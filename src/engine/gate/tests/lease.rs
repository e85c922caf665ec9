//! Limits that are shared by leases: calls, refunds, expiry, and decisions while the store is down.

use std::fmt::Write as _;
use std::time::Duration;

use super::redis::FakeRedis;
use super::{
    CAPS, MS_NS, OnFailure, Told, answer, ask, bucket, check, gate_of, headers, install_with, new_gate, parse_limit,
    run, scripts,
};
use crate::base::time::Clock;
use crate::engine::gate::Step;
use crate::engine::limit::Algorithm;
use crate::engine::limit::tests::algorithm;
use crate::engine::policy::Allowed;
use crate::engine::store::RemoteStore;
use crate::engine::store::backend::Unavailable;
use crate::engine::store::testing::News;

scripts! {
    borrowed_units_are_spent_without_calls: "
        limit a 1 1h 10 reject lease=1,4
        0ms  ask r1 a=k      > pass
        1ms  calls 1
        1ms  remain a=k 6
        2ms  ask r2..r3 a=k  > pass
        3ms  calls 0
        # none is unspent: more are borrowed
        4ms  ask r4 a=k      > pass
        5ms  calls 1
        5ms  remain a=k 2
        6ms  ask r5..r7 a=k  > pass
        7ms  calls 0
        # the store has two
        8ms  ask r8 a=k      > pass
        9ms  calls 1
        9ms  remain a=k 0
        10ms ask r9..r10 a=k > pass
        10ms ask r11 a=k     > Limit 3599990ms
        11ms calls 0
    ";

    /// A rule that can never admit the cost of a request does not, whatever was borrowed under the rule before.
    borrowed_units_do_not_outlive_a_lower_rule: "
        limit a 1 1h 10 reject lease=1,4
        0ms ask r1 a=k > pass
        1ms limit a 1 1h 1 reject lease=1,4 cost=2
        2ms ask r2 a=k > Limit never
        3ms limit a 1 1h 1 hold=forever lease=1,4 cost=2
        4ms ask r3 a=k > Limit never
        5ms calls 1
    ";

    /// Other replicas may return units that the store has lent.
    a_denied_key_is_asked_about_again: "
        limit a 1 1h 4 reject lease=1,4
        0ms   ask r1 a=k     > pass
        1ms   ask r2..r4 a=k > pass
        2ms   calls 1
        50ms  ask r5 a=k     > Limit 3599950ms
        51ms  calls 0
        600ms ask r6 a=k     > Limit 3599400ms
        601ms calls 1
        602ms ask r7 a=k     > Limit 3599398ms
        603ms calls 0
    ";
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

scripts! {
    /// Five units are at hand, and the store has nine.
    borrowed_units_and_those_of_the_store_are_spent_together: "
        limit a 1 1h 24 reject lease=1,15 cost=10
        0ms  ask r1 a=k > pass
        10ms ask r2 a=k > pass
        20ms ask r3 a=k > Limit 21599980ms
        30ms calls 2
        # four are at hand then
    ";
}

/// The wait is for the units that lack beside those at hand.
#[tokio::test(start_paused = true)]
async fn units_at_hand_shorten_a_wait() {
    check(
        "
        limit a 1 1s 18 reject lease=1,15 cost=10
        limit h 1 1s 18 hold=1990ms lease=1,15 cost=10
        0ms ask r1 a=k > pass
        # five are at hand, and the store has three
        1ms ask r2 a=k > Limit 1999ms
        2ms calls 1
        4ms ask h1 h=k > pass
        5ms ask h2 h=k > WaitTooLong 1999ms
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

scripts! {
    /// The timeout of the store, 250 ms, bounds all waits of a request. After that `on_failure` decides.
    the_timeout_bounds_the_wait_for_several_calls: "
        limit a 1 1h 100 reject lease=1,1
        0ms   store slow=200ms
        0ms   ask r1 a=k > 200ms pass
        # waits for the call of r1, and then for its own one, which the server would answer at 400 ms
        10ms  ask r2 a=k > 260ms pass
        450ms calls 1
    ";

    one_call_serves_all_requests_that_wait_for_it: "
        limit a 1 1h 100 reject lease=1,10
        0ms  store slow=20ms
        0ms  ask r1 a=k     > 20ms pass
        5ms  ask r2..r3 a=k > 20ms pass
        15ms ask r4 a=k     > 20ms pass
        25ms calls 1
        25ms remain a=k 90
        # a call that is abandoned ends: the next request makes its own
        30ms ask s1 a=other
        31ms ask s2 a=other > 52ms pass
        32ms leave s1
        60ms calls 1
        60ms remain a=other 90
    ";
}

/// Units came back a moment before, so the mirror is in doubt. But the store knows of them when it denies.
#[tokio::test(start_paused = true)]
async fn a_denial_answers_all_requests_that_wait_for_it() {
    // All units are taken elsewhere, or too few are left for a request.
    for (options, taken) in [("lease=1,4", 10), ("lease=1,4 cost=4", 7)] {
        check(&format!(
            "
            limit a 1 1h 10 reject {options}
            0ms    ask r1 a=k undo=1s > pass
            600ms  return
            1001ms remain a=k 10
            1001ms elsewhere a=k {taken}
            1002ms calls 1
            1002ms store slow=20ms
            1010ms ask s0..s19 a=k    > 1030ms Limit 3599971ms
            1031ms calls 1
            "
        ))
        .await;
    }
}

scripts! {
    /// Units that came back may not be in the answer to a question of the same time, so the store is asked again.
    units_that_came_back_are_asked_for: "
        limit a 1 1h 10 reject lease=1,4
        0ms    ask r1 a=k undo=1s > pass
        600ms  return
        1001ms remain a=k 10
        1001ms elsewhere a=k 9
        1002ms calls 1
        # takes the last unit that the store knows of
        1010ms ask s1 a=k         > pass
        1011ms ask s2 a=k         > Limit 3599990ms
        1012ms calls 2
        1013ms ask s3 a=k         > Limit 3599988ms
        1014ms calls 0
    ", "
        limit a 1 1h 10 reject lease=1,4
        0ms    ask r1 a=k undo=1s     > pass
        1ms    ask r2 a=k undo=1024ms > pass
        600ms  return
        1001ms remain a=k 9
        1001ms elsewhere a=k 9
        1002ms calls 1
        1002ms store slow=20ms
        # the unit of r2 comes back after the store has denied
        1010ms ask s1 a=k             > 1030ms Limit 3598970ms
        1031ms ask s2 a=k             > 1051ms pass
        1060ms calls 2
    ";

    /// Only a request that finds no units waits for the store.
    units_are_borrowed_while_others_are_spent: "
        limit a 1 1h 1000 reject lease=1,8
        0ms   store slow=50ms
        0ms   ask r1 a=k     > 50ms pass
        60ms  calls 1
        60ms  ask r2..r6 a=k > pass
        # less than a quarter of eight is left after this
        60ms  ask r7 a=k     > pass
        61ms  ask r8 a=k     > pass
        62ms  ask r9 a=k     > 110ms pass
        120ms calls 1
        120ms remain a=k 984
    ";

    /// Requests that wait for a call that fails are decided without another call.
    a_call_that_fails_is_made_once: "
        limit a 1 1h 120 reject lease=3,8
        0ms   store late=50ms
        0ms   ask r1 a=k     > 50ms pass
        1ms   ask r2 a=k     > 50ms pass
        2ms   ask r3 a=k     > 50ms pass
        60ms  calls 1
        # in the background
        60ms  store up
        60ms  ask s1..s6 a=m > pass
        61ms  store late=50ms
        61ms  ask s7 a=m     > pass
        62ms  ask s8 a=m     > pass
        63ms  ask s9 a=m     > 111ms pass
        120ms calls 2
    ";

    units_go_back: "
        limit a 1 1h 10 reject lease=1,4
        # into the lease
        0ms   ask r1 a=k undo=1ms > pass
        2ms   ask r2 a=k          > pass
        3ms   return
        3ms   remain a=k 6
        # to the store, after half a second
        499ms return
        499ms remain a=k 6
        501ms return
        501ms remain a=k 9
    ", "
        limit a 1 1h 4 reject lease=1,4
        # into a lease that is spent
        0ms  ask r1 a=k undo=10ms > pass
        2ms  ask r2..r4 a=k       > pass
        3ms  ask r5 a=k           > Limit 3599997ms
        11ms ask r6 a=k           > pass
        12ms calls 1
    ", "
        limit a 1 1h 10 reject lease=1,4
        # a refund after the lease has ended
        0ms    ask r1 a=k undo=1s > pass
        600ms  return
        600ms  remain a=k 9
        1002ms remain a=k 10
    ";
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

scripts! {
    other_limits_that_deny_take_no_units: "
        limit a 1 1h 10 reject lease=1,4
        limit b 1 1h 1 reject redis=1
        limit l 1 1h 1 reject
        0ms ask r1 a=k b=k l=k > pass
        1ms remain a=k 6
        # a store, and a limit of this replica
        1ms elsewhere b=n 1
        2ms ask r2 a=k b=n l=m > Limit 3599999ms
        2ms ask r3 a=k b=m l=k > Limit 3599998ms
        3ms calls 2
        # three units are unspent
        4ms ask r4..r5 a=k     > pass
        5ms calls 0
        5ms remain a=k 6
    ";

    a_replica_goes_on_with_its_share_when_its_lease_is_spent: "
        limit a 1 1h 12 reject lease=3,2
        0ms ask r1 a=k     > pass
        1ms remain a=k 10
        2ms store down
        2ms ask r2 a=k     > pass
        # a third of twelve, of which it has borrowed two
        3ms ask r3..r4 a=k > pass
        3ms ask r5..r6 a=k > Limit 10799997ms
        4ms store up
        4ms remain a=k 8
    ";
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
        0ms ask r1 a=k
        1ms ask r2 a=k
        2ms ask r3 a=k
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
