//! Limits whose state is in a store: when it is asked, what happens meanwhile, and who decides if it does not answer.

use std::net::Ipv4Addr;

use super::redis::FakeRedis;
use super::*;
use crate::engine::gate::{Question, Rejection, RemoteExplanation, Routing, Verdict};
use crate::engine::limit::state::State as _;
use crate::engine::policy::{IdentitySource, OnMissing};
use crate::engine::store::backend::Mirrors;

scripts! {
    a_mirror_that_denies_saves_the_call: "
        limit a 10 1s 2 reject redis=3
        0ms   ask r1..r2 a=k > pass
        1ms   calls 2
        1ms   ask r3 a=k     > Limit 99ms
        1ms   ask s1 a=other > pass
        2ms   calls 1
        # the first unit is back
        100ms ask r4 a=k     > pass
        101ms ask r5 a=k     > Limit 99ms
        102ms calls 1
        # a cost above the burst never passes
        limit b 10 1s 2 reject cost=3 redis=3
        110ms ask r6 b=k     > Limit never
        111ms calls 0
    ";

    /// Another replica gives units back, or an operator there: a mirror that denies hears of it within 10 s.
    a_mirror_that_denies_asks_from_time_to_time: "
        limit a 1 1h 1 reject redis=3
        0s  ask r1 a=k > pass
        1s  elsewhere a=k -1
        9s  ask r2 a=k > Limit 3591s
        9s  calls 1
        11s ask r3 a=k > pass
        12s ask r4 a=k > Limit 3599s
        12s calls 1
    ";

    /// A new rule reaches the store with the next request. Else all units would have come back at the old rate.
    a_mirror_under_another_rule_asks_at_once: "
        limit a 20 1s 20 reject redis=3
        0s    ask r1..r20 a=k > pass
        1ms   ask r21 a=k     > Limit 49ms
        2ms   calls 20
        3ms   limit a 20 1h 20 reject redis=3
        4ms   ask r22 a=k     > Limit 165600ms
        5ms   ask r23 a=k     > Limit 165599ms
        9s    ask r24 a=k     > Limit 156604ms
        9s    calls 1
        11s   ask r25 a=k     > Limit 154604ms
    ", "
        limit a 20 1s 20 hold=1h redis=3
        0s    ask r1..r20 a=k > pass
        1ms   ask r21 a=k     > 170020ms pass
        3ms   limit a 20 1h 20 hold=1h redis=3
    ";

    /// A request that is held asks again, too: another replica may have given units back.
    a_held_request_asks_from_time_to_time: "
        limit a 1 1h 1 hold=2h redis=3
        0s  ask r1 a=k > pass
        0s  ask r2 a=k > 10001ms pass
        1s  elsewhere a=k -1
        9s  calls 2
        11s calls 1
    ";
}

/// The front asks every ten seconds. A store that is away then, or answers late, decides about nobody before its slot.
#[tokio::test(start_paused = true)]
async fn an_outage_between_slots_is_no_decision() {
    for (on_failure, trouble) in [("reject", "down"), ("allow", "down"), ("split", "down"), ("reject", "late=200ms")] {
        let told = run(&format!(
            "
            store {on_failure}
            limit a 2 1min 2 hold=forever redis=2
            0s  ask r1..r5 a=k
            9s  store {trouble}
            11s store up
            "
        ))
        .await;
        for (name, slot_s) in [("r1", 0), ("r2", 0), ("r3", 30), ("r4", 60), ("r5", 90)] {
            let Told { at_ns, what, .. } = &told[name];
            let is_at_slot = (slot_s * 1000 * MS_NS..(slot_s * 1000 + 20) * MS_NS).contains(at_ns);
            assert!(what == "pass" && is_at_slot, "{on_failure} {trouble} {name}: {told:?}");
        }
    }
    // At its slot, the first one is refused. Then its unit is there for the next one.
    let told = run("
        store reject
        limit a 2 1min 2 hold=forever redis=2
        0s ask r1..r4 a=k
        9s store down
        ")
    .await;
    for name in ["r3", "r4"] {
        let Told { at_ns, what, .. } = &told[name];
        assert!(what == "Limit" && (30_000 * MS_NS..30_020 * MS_NS).contains(at_ns), "{name}: {told:?}");
    }
}

scripts! {
    all_limits_of_a_request_are_charged_or_none: "
        limit a 1 1h 2 reject redis=1
        limit b 1 1h 1 reject redis=1
        limit l 1 1h 2 reject
        # a local limit that denies: no call
        0ms ask r1..r2 l=k     > pass
        0ms ask r3 l=k a=k     > Limit 1h
        1ms calls 0
        1ms remain a=k 2
        # a store that denies, which no mirror knows: the local limit gets its unit back
        2ms elsewhere b=k 1
        2ms ask r4 l=m a=m b=k > Limit 1h
        3ms calls 1
        3ms remain a=m 2
        # now the mirror of b knows
        3ms ask r5 l=m a=m b=k > Limit 3599999ms
        4ms calls 0
        4ms ask r6..r7 l=m a=m > pass
        5ms calls 2
        5ms remain a=m 0
    ";

    a_request_that_leaves_is_charged_nothing: "
        limit a 1 1h 5 reject redis=1
        limit l 1 1h 1 reject
        0ms  store slow=20ms
        # before and after the store has decided
        0ms  ask r1 a=k l=k
        5ms  leave r1
        10ms ask r2 a=k l=k
        25ms leave r2
        25ms calls 1
        25ms remain a=k 5
        30ms ask r3 a=k l=k > 50ms pass
        50ms remain a=k 4
    ";

    /// The answer to a question that is asked before the refund lacks it, and its denial would hold for an hour.
    the_refund_of_a_call_without_an_answer_ends_a_denial: "
        limit a 1 1h 1 reject redis=1
        0ms  store slow=20ms
        0ms  ask r1 a=k
        2ms  ask r2 a=k > 22ms Limit 3599988ms
        15ms leave r1
        23ms calls 2
        30ms ask r3 a=k > 50ms pass
        51ms calls 1
        # that answer has the refund
        51ms ask r4 a=k > Limit 3599989ms
        52ms calls 0
    ";

    a_refund_ends_a_denial_before_its_time: "
        limit a 1 1h 1 reject redis=1
        0ms  ask r1 a=k undo=50ms > pass
        1ms  ask r2 a=k           > Limit 3599999ms
        2ms  calls 1
        51ms remain a=k 1
        51ms ask r3 a=k           > pass
        52ms calls 1
        # asked at once, because the last answer may lack the refund
        53ms ask r4 a=k           > Limit 3599998ms
        54ms calls 1
        # and no more
        1s   ask r5..r6 a=k       > Limit 3599051ms
        2s   ask r7 a=k           > Limit 3598051ms
        2s   calls 2
    ", "
        limit a 1 1h 1 hold=2h redis=1
        0ms ask r1 a=k undo=50ms > pass
        1ms ask r2 a=k           > 50ms pass
    ";
}

/// A store that is down costs no call after the decision, and hears of all charges later.
#[tokio::test(start_paused = true)]
async fn a_limit_goes_on_without_its_store() {
    let rows = |on_failure: &str, answers: [&str; 5], remain: u64| {
        let [r1, r2, r3, r4, r5] = answers;
        format!(
            "
            store {on_failure}
            limit a 1 1h 6 reject redis=3
            0ms ask r1 a=k          > {r1}
            1ms store down
            2ms ask r2 a=k          > {r2}
            3ms ask r3 a=k          > {r3}
            4ms ask r4 a=k undo=1ms > {r4}
            5ms ask r5 a=k          > {r5}
            6ms store up
            7ms remain a=k {remain}
            "
        )
    };
    // The mirror knows of 1 of 6 units. The share of the others is one unit and a fraction.
    let denied = ["pass", "pass", "Limit 3599997ms", "Limit 3599996ms", "Limit 3599995ms"];
    check(&rows("split", denied, 4)).await;
    check(&rows("local", ["pass"; 5], 2)).await;
    check(&rows("allow", ["pass"; 5], 5)).await;
    check(&rows("reject", ["pass", "Limit 1s", "Limit 1s", "Limit 1s", "Limit 1s"], 5)).await;
}

scripts! {
    a_cold_store_lets_each_replica_spend_its_share: "
        store allow
        limit a 1 1h 6 reject redis=3
        0ms store cold
        0ms ask r1..r2 a=k > pass
        0ms ask r3 a=k     > Limit 3h
        1ms store up
        1ms ask r4 a=k     > pass
        2ms remain a=k 3
    ";
}

/// Waiters cost one call for each admission, and pass in order.
#[tokio::test(start_paused = true)]
async fn only_the_front_of_a_queue_asks() {
    // About ten milliseconds each: a timer is late by up to 1 ms, and asks by up to 0.2 ms.
    let told = run("
        limit a 100 1s 1 hold=1h redis=1
        0ms ask r0 a=k
        1ms calls 1
        1ms ask r1..r999 a=k
        12s calls 999
        ")
    .await;
    assert_eq!(told.len(), 1000);
    let mut passed: Vec<_> = told.iter().map(|(who, told)| (told.at_ns, who[1..].parse::<usize>().unwrap())).collect();
    assert!(told.values().all(|told| told.what == "pass"));
    passed.sort_unstable();
    assert!(passed.iter().map(|(_, who)| *who).eq(0..1000), "first come, first served");
}

/// A waiter that leaves while the store decides gives its local charges back too.
#[tokio::test(start_paused = true)]
async fn a_front_that_leaves_is_charged_nothing() {
    for leaves in ["110ms", "130ms"] {
        check(&format!(
            "
            limit a 10 1s 1 hold=1h redis=1
            limit l 1 1h 1 reject
            0ms      ask r1 a=k > pass
            1ms      store slow=40ms
            # asks at 100 ms or a little later; the store decides 20 ms after that
            1ms      ask r2 a=k l=k
            {leaves} leave r2
            {leaves} ask r3 l=k > pass
            150ms    remain a=k 1
            "
        ))
        .await;
    }
}

/// If other replicas take the units, the front asks again when the store says so.
#[tokio::test(start_paused = true)]
async fn a_front_that_is_denied_waits_for_the_next_unit() {
    let told = run("
        limit a 1 1s 1 hold=1h redis=2
        0s     ask r1 a=k
        1ms    ask r2 a=k
        2ms    calls 1
        # the bucket was half full
        500ms  elsewhere a=k 1
        1200ms calls 1
        1600ms calls 1
        ")
    .await;
    // 1.5 s, the jitter of a wait of half a second, and two late timers.
    let Told { at_ns, what, .. } = &told["r2"];
    assert!(what == "pass" && (1500 * MS_NS..1507 * MS_NS).contains(at_ns), "{told:?}");
}

scripts! {
    the_stores_of_a_request_are_asked_at_once: "
        limit a 1 1h 5 reject redis=1
        limit b 1 1h 1 reject other=1
        limit l 1 1h 5 reject
        0ms ask r1 a=k b=k l=k > pass
        1ms calls 2
        1ms elsewhere b=m 1
        # the second store denies: the first one gets its unit back
        1ms ask r2 a=k b=m l=k > Limit 1h
        2ms calls 2
        2ms remain a=k 4
    ", "
        limit a 1 1h 5 reject redis=1
        limit b 1 1h 5 reject other=1
        0ms   store slow=20ms
        0ms   other 30ms
        0ms   ask r1 a=k b=k > 30ms pass
        # one store has answered
        100ms ask r2 a=k b=k
        125ms leave r2
        140ms remain a=k 4
        140ms remain b=k 4
        # the slow one denies
        200ms elsewhere b=m 5
        200ms ask r3 a=k b=m > 230ms Limit 3599970ms
        240ms remain a=k 4
    ";

    shadow_limits_and_costs_are_decided_by_the_store: "
        limit a 1 1h 3 reject cost=2 redis=1
        limit s 1 1h 1 reject shadow redis=1
        limit e 1 1h 1 reject enforce=28 redis=1
        limit f 1 1h 1 reject enforce=29 redis=1
        0ms ask r1..r2 s=k > pass
        0ms ask e1..e2 e=k > pass
        0ms ask f1 f=k     > pass
        0ms ask f2 f=k     > Limit 1h
        1ms ask r3 a=k s=k > pass
        2ms remain s=k 0
        2ms remain a=k 1
        3ms ask r4 a=k s=k > Limit 3599998ms
    ";

    plans_and_overrides_are_decided_by_the_store: "
        limit a 1 1h 1 reject plan=pro,2,1h,2 override=vip,3,1h,3 override=free,unlimited redis=1
        0ms ask r1 a=k              > pass
        0ms ask r2 a=p x-plan=pro   > pass
        1ms ask r3 a=p x-plan=pro   > pass
        2ms ask r4 a=p x-plan=pro   > Limit 1799998ms
        2ms ask r5 a=vip x-plan=pro > pass
        2ms ask r6 a=free           > pass
        3ms calls 4
    ";

    denials_by_stores_and_mirrors_count_towards_a_ban: "
        limit a 1 1h 1 reject ban=2/1min,10min,1h redis=1
        0s ask r1 a=k > pass
        # by the mirror
        1s ask r2 a=k > Limit 3599s
        # by the store
        2s elsewhere a=m 1
        2s ask s1 a=m > Limit 1h
        3s ask r3 a=k > Limit 3597s
        3s ask s2 a=m > Limit 3599s
        4s ask r4 a=k > Banned 599s
        4s ask s3 a=m > Banned 599s
        5s calls 2
    ";

    a_request_beyond_a_remote_limit_is_delayed: "
        limit a 1 1h 1 delay=1s,3s redis=3
        limit l 1 1h 9 reject
        0s ask r1 a=k l=k > pass
        1s ask r2 a=k l=k > 2s pass
        2s ask r3 a=k l=k > 4s pass
        3s ask r4 a=k l=k > 6s pass
        4s ask r5 a=k l=k > 7s pass
        # by the share of a replica while the store is down: one unit over is three
        5s store down
        5s ask r6 a=m     > pass
        6s ask r7 a=m     > 7s pass
    ", "
        # a delayed request that leaves, and one that there is no place for: both charged nothing
        limit a 1 1h 1 delay=1s,3s waiting=1 redis=3
        0s     ask r1 a=k > pass
        1s     ask r2 a=k
        1s     ask r3 a=k > QueueFull 3s
        1500ms leave r2
        1600ms remain a=k 0
        1600ms ask r4 a=k > 2600ms pass
    ";
}

/// Waiters go on without their store, by the share of their replica.
#[tokio::test(start_paused = true)]
async fn a_queue_goes_on_without_its_store() {
    let told = run("
        limit a 10 1s 2 hold=1h redis=2
        0ms store down
        0ms ask r0..r2 a=k
        ")
    .await;
    for (who, due_ms) in [("r0", 0), ("r1", 200), ("r2", 400)] {
        // The jitter of each wait, and late timers.
        let late = due_ms * MS_NS..=(due_ms + due_ms / 50 + 3) * MS_NS;
        assert!(told[who].what == "pass" && late.contains(&told[who].at_ns), "{who}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_counted_by_the_store() {
    check(
        "
        limit a 1 1h 1 reject concurrency=2 redis=2
        0ms   ask r1 a=k undo=100ms > pass
        0ms   ask r2 a=k undo=200ms > pass
        # the end of a request elsewhere is unheard, so each denial is asked for
        1ms   ask r3 a=k            > Limit release
        2ms   ask r4 a=k            > Limit release
        3ms   calls 4
        101ms ask r5 a=k undo=10ms  > pass
        300ms remain a=k 2
        # while the store is down, each replica has its share of the requests
        300ms store down
        300ms ask s1 a=k undo=100ms > pass
        300ms ask s2 a=k undo=10ms  > Limit release
        401ms ask s3 a=k undo=100ms > pass
        402ms store up
        402ms ask s4 a=k undo=100ms > pass
        403ms ask s5 a=k            > Limit release
        600ms remain a=k 2
        ",
    )
    .await;
    let told = run("
        limit a 1 1h 1 hold=1h concurrency=1 redis=2
        0ms   elsewhere a=k 1
        0ms   ask r1 a=k
        199ms elsewhere a=k -1
        ")
    .await;
    // It looks every 50 ms, and a little later.
    assert!((200 * MS_NS..260 * MS_NS).contains(&told["r1"].at_ns), "{told:?}");
}

/// What a replica tells a store that has lost its keys, limit by limit.
#[tokio::test(start_paused = true)]
async fn mirrors_are_visited_part_by_part() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let stores = [redis.store(OnFailure::Split)];
    let limits = [
        &["b", "1", "1h", "5", "reject", "redis=1"][..],
        &["a", "1", "1h", "5", "reject", "override=vip,1,1h,9", "redis=1"],
        &["c", "1", "1h", "5", "reject", "concurrency=3", "redis=1"],
        &["l", "1", "1h", "5", "reject"],
    ];
    let live = install_with(gate, limits.map(parse_limit), CAPS, &stores);
    let mut passes = Vec::new();
    for words in [&["a=k", "b=k", "l=k"][..], &["a=vip"], &["b=m", "c=k"]] {
        let fields = headers(words);
        passes.push(answer(ask(gate, live, &fields), &redis, &fields).await.unwrap_or_else(|_| panic!("{words:?}")));
    }
    let (mut visited, mut part, mut has_more) = (Vec::new(), 0, true);
    while has_more {
        has_more = gate.visit("main", part, &mut |mirror| {
            let remaining = mirror.state.peek(mirror.rule, 0, gate.clock.now()).remaining;
            visited.push((part, mirror.limit.to_owned(), remaining));
        });
        part += 1;
    }
    visited.sort();
    let expected = [(0, "a", 4), (0, "a", 8), (1, "b", 4), (1, "b", 4)];
    assert_eq!(visited, expected.map(|(part, limit, remaining)| (part, limit.to_owned(), remaining)));
    assert_eq!(part, 3, "requests in flight are no part of it");
    let mut nobody = Vec::new();
    assert!(!gate.visit("other", 0, &mut |mirror| nobody.push(mirror.key)) && nobody.is_empty());
}

/// A key is visited under the rule of its plan: with all its rates, and in its own window.
#[tokio::test(start_paused = true)]
async fn mirrors_are_visited_under_the_rules_of_their_plans() {
    let one_rate = |rule: &str| Algorithm::Several([algorithm(rule)].into());
    let bucket = |count, period| format!("token_bucket {count}/{period} burst {count}");
    let buckets = |each, all| algorithm(&format!("{} + {}", bucket(each, "1min"), bucket(all, "1h")));
    let window = |count, unit| algorithm(&format!("fixed_window {count} per 1 {unit} UTC"));
    let quota = |count, burst| algorithm(&format!("token_bucket {count}/1min burst {burst}"));
    // the usual rule, that of a plan, and that of the plan after a reload
    let rows = [
        (one_rate(&bucket(100, "1min")), buckets(1000, 20_000), buckets(2000, 30_000)),
        (window(10, "min"), window(1000, "day"), window(2000, "day")),
        (algorithm("sliding_log 10/1min"), algorithm("sliding_log 100/1h"), algorithm("sliding_log 200/1h")),
        (quota(10, 10), quota(100, 10), quota(100, 20)),
    ];
    for (usual, plan, reloaded) in rows {
        let gate = new_gate();
        let redis = FakeRedis::new(gate.clock);
        let stores = [redis.store(OnFailure::Split)];
        let mut limit = parse_limit(&["a", "1", "1h", "1", "reject", "redis=1"]);
        limit.allowed = Allowed::to_all(usual.clone());
        let with = |rule: &Algorithm| {
            let mut limit = limit.clone();
            limit.allowed.plans.push(("pro".into(), Some(rule.clone())));
            install_with(gate, [limit], CAPS, &stores)
        };
        let live = with(&plan);
        for words in [&["a=k", "x-plan=pro"][..], &["a=other"]] {
            let fields = headers(words);
            let mut pass =
                answer(ask(gate, live, &fields), &redis, &fields).await.unwrap_or_else(|_| panic!("{words:?}"));
            pass.charged.commit(true);
        }
        let [of_plan, other] =
            ["k", "other"].map(|text| gate.secret.key_of_text(&limit.key, text, Prefixes::default(), &[]).unwrap());
        for rule in [&plan, &reloaded] {
            with(rule);
            let mut visited = HashMap::new();
            gate.visit("main", 0, &mut |mirror| _ = visited.insert(mirror.key, mirror.rule.clone()));
            assert_eq!(visited, HashMap::from([(of_plan, rule.clone()), (other, usual.clone())]));
        }
    }
}

/// The mirror of requests in flight does not hear of those that end elsewhere. Without a request of its own it is forgotten.
#[tokio::test(start_paused = true)]
async fn a_mirror_of_requests_in_flight_is_forgotten() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let stores = [redis.store(OnFailure::Split)];
    let limit = parse_limit(&["a", "1", "1h", "1", "reject", "concurrency=5", "redis=2"]);
    let live = install_with(gate, [limit.clone()], CAPS, &stores);
    let key = gate.secret.key_of_text(&limit.key, "k", Prefixes::default(), &[]).unwrap();
    let elsewhere = |units| redis.settle("a", key, &limit.allowed.usual, units);
    let keys_after_sweep = || {
        gate.sweep();
        live.states[0].table.len()
    };
    elsewhere(1);
    let fields = headers(&["a=k"]);
    let pass = answer(ask(gate, live, &fields), &redis, &fields).await.unwrap_or_else(|_| panic!("refused"));
    elsewhere(-1);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(keys_after_sweep(), 1, "its own request is in flight");
    drop(pass);
    assert_eq!(keys_after_sweep(), 0);
    install(gate, [], CAPS);
    assert_eq!(keys_after_sweep(), 0);
    assert!(gate.states.lock().unwrap().is_empty(), "no key keeps a limit that is gone");
}

scripts! {
    /// Without the store, requests of other replicas count no more, and those of this process go on.
    requests_in_flight_elsewhere_end_with_the_store: "
        limit a 1 1h 1 reject concurrency=4 redis=2
        0ms elsewhere a=k 2
        0ms ask r1 a=k undo=1min > pass
        1ms ask r2 a=k undo=1min > pass
        2ms limit a 1 1h 1 reject concurrency=4
        3ms ask r3 a=k undo=1min > pass
        4ms ask r4 a=k undo=1min > pass
        5ms ask r5 a=k           > Limit release
        20s ask r6 a=k           > Limit release
        70s ask r7 a=k           > pass
    ";
}

/// With `on_failure = "reject"` no request waits or is delayed while the store is down.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_rejects_requests_of_all_kinds() {
    check(
        "
        store reject
        limit d 1 1h 1 delay=1s,3s redis=3
        limit h 1 1h 1 hold=1h redis=3
        limit s 1 1h 1 reject shadow redis=3
        limit l 1 1h 1 reject
        0ms store down
        0ms ask r1 d=k l=k > Limit 1s
        0ms ask r2 h=k l=m > Limit 1s
        0ms ask r3 s=k l=n > pass
        1ms ask r4 l=k     > pass
        1ms store up
        1ms remain d=k 1
        1ms remain h=k 1
        ",
    )
    .await;
    let told = run("
        store reject
        limit h 1 1s 1 hold=1h redis=1
        0ms   ask r1 h=k
        1ms   ask r2..r3 h=k
        500ms store down
        ")
    .await;
    // They wait for units of the store, and are refused when the store is asked.
    for who in ["r2", "r3"] {
        let Told { what, retry, .. } = &told[who];
        assert_eq!((what.as_str(), *retry), ("Limit", Some(Retry::AfterNs(1000 * MS_NS))), "{told:?}");
    }
}

fn question() -> Question {
    Question {
        method: "GET".into(),
        path: "/".into(),
        host: "h".into(),
        ip: Ipv4Addr::LOCALHOST.into(),
        headers: vec![("a".into(), "k".into())],
        identities: Vec::new(),
        plan: None,
    }
}

#[tokio::test(start_paused = true)]
async fn an_explanation_names_the_store_and_the_age_of_its_answer() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let store = redis.store(OnFailure::Local);
    store.go_down();
    let live = install_with(gate, [parse_limit(&["a", "1", "1h", "5", "reject", "redis=3"])], CAPS, &[store]);
    let explain = || {
        let explanation = gate.explain(live, &question(), &Routing::default(), gate.clock.now()).unwrap();
        let budget = explanation.limits[0].budget.clone().unwrap();
        (budget.remaining, budget.remote.unwrap())
    };
    let expected = RemoteExplanation {
        store: "main".into(),
        node: Some("redis:6379".into()),
        is_up: false,
        on_failure: OnFailure::Local,
        replicas: 3,
        mirror_age_ns: None,
    };
    assert_eq!(explain(), (4, expected.clone()));
    let fields = headers(&["a=k"]);
    let mut pass = answer(ask(gate, live, &fields), &redis, &fields).await.unwrap_or_else(|_| panic!("refused"));
    pass.charged.commit(true);
    tokio::time::advance(Duration::from_millis(7)).await;
    assert_eq!(explain(), (3, RemoteExplanation { mirror_age_ns: Some(7 * MS_NS), ..expected }));
}

/// A refusal by the store is counted for the key of the client's identity.
#[tokio::test(start_paused = true)]
async fn a_denial_by_the_store_knows_the_identity() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let stores = [redis.store(OnFailure::Local)];
    let every = parse_limit(&["every", "1", "1h", "1", "reject", "redis=1"]);
    let limit = Limit { key: vec![KeyPart::Identity(0)], matches: Match::default(), ..every };
    let source = IdentitySource::Header(HeaderName::from_static("seller"), Repeated::Reject);
    let seller = Identity { name: "seller".into(), source, on_missing: OnMissing::Reject, is_plain: false };
    let policy = policy(vec![limit.clone()], vec![seller]);
    let live: &'static Live =
        Box::leak(Box::new(gate.install_with(policy, CAPS, Arc::new(TokenCache::new(10)), &stores)));
    let key = gate.secret.key_of_text(&limit.key, "aaaaaaaa", Prefixes::default(), &[]).unwrap();
    redis.settle("every", key, &limit.allowed.usual, 1);
    let fields = headers(&["seller=aaaaaaaa"]);
    assert!(answer(ask(gate, live, &fields), &redis, &fields).await.is_err());
    let refused: Vec<_> = gate.top(live, None, 9).into_iter().flat_map(|top| top.keys).map(|key| key.text).collect();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].starts_with("aaaa.."), "{refused:?}");
}

/// What would happen while the store is down: the verdict, the limit's own decision, the remaining units and the retry.
#[tokio::test(start_paused = true)]
async fn an_explanation_says_what_happens_while_the_store_is_down() {
    let rejected = (format!("{:?}", Verdict::Rejected(Rejection::Store)), false, Some(1000 * MS_NS));
    let admitted = ("Admitted".to_owned(), true, None);
    for (on_failure, limit, expected) in [
        (OnFailure::Reject, "a 1 1h 6 reject redis=3", &rejected),
        (OnFailure::Reject, "a 1 1h 6 hold=1h redis=3", &rejected),
        (OnFailure::Reject, "a 1 1h 6 delay=1s,3s redis=3", &rejected),
        (OnFailure::Reject, "a 1 1h 6 reject lease=3,4", &rejected),
        (OnFailure::Allow, "a 1 1h 6 reject redis=3", &admitted),
        (OnFailure::Split, "a 1 1h 6 reject redis=3", &admitted),
    ] {
        let gate = new_gate();
        let redis = FakeRedis::new(gate.clock);
        let store = redis.store(on_failure);
        store.go_down();
        redis.set(Some(Unavailable::Down), Duration::ZERO);
        let cells: Vec<&str> = limit.split(' ').collect();
        let live = install_with(gate, [parse_limit(&cells)], CAPS, &[store]);
        let explanation = gate.explain(live, &question(), &Routing::default(), gate.clock.now()).unwrap();
        let budget = explanation.limits[0].budget.clone().unwrap();
        let found = (format!("{:?}", explanation.verdict), budget.admits, explanation.retry_after_ns);
        assert_eq!(&found, expected, "{on_failure:?} {limit}");
        let fields = headers(&["a=k"]);
        let is_admitted = answer(ask(gate, live, &fields), &redis, &fields).await.is_ok();
        assert_eq!(is_admitted, expected.1, "{on_failure:?} {limit}");
    }
}
