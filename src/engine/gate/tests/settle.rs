//! The final costs of requests, once their answers are known.

use http::{HeaderName, StatusCode};

use super::redis::{FakeRedis, NoStore};
use super::*;
use crate::engine::gate::{Bill, Spend};
use crate::engine::limit::concurrency;
use crate::engine::policy::{AfterResponse, Settle, SettleBy, StatusSet};
use crate::engine::units::{BodyUnits, Preset, Weight};

/// An answer, and the milliseconds from its request to its end.
#[derive(Clone, Copy, Debug)]
struct Answer {
    status: u16,
    field: Option<&'static str>,
    bytes: u64,
    ms: u64,
}

/// No window of up to an hour ends within a test.
const AN_HOUR_BEGINS: Timestamp = Timestamp::from_ns(1_800_000_000_000_000_000);

const OK: Answer = Answer { status: 200, field: None, bytes: 0, ms: 0 };

/// One budget of 1000 units for all requests, which do not come back during a test. A request takes 2 units at first.
fn settled(counts: Option<StatusSet>, by: Option<SettleBy>) -> Limit {
    let settle = by.map(|by| Settle::only(by, 100));
    let every = limit("l", 1, "1h", 1000, OnLimit::Reject);
    Limit {
        matches: Match::default(),
        key: Vec::new(),
        cost: Cost::Units(2),
        after: Some(Arc::new(AfterResponse { counts, settle })),
        ..every
    }
}

fn of(from: u16, to: u16) -> StatusSet {
    StatusSet(vec![(from, to)])
}

/// Forwards a request, and returns its bill.
fn sent_on(gate: &'static Gate, live: &'static Live) -> Option<Bill> {
    let Step::Pass(mut pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
    pass.charged.commit(true);
    pass.charged.bill()
}

/// Answers with the head.
fn answer(bill: &mut Bill, answer: Answer) {
    let fields: FieldBuf = answer.field.map(|cost| ("x-cost", cost)).into_iter().collect();
    bill.answered((answer.status, fields.fields()), time::instant_now());
}

fn spent(gate: &Gate, live: &Live) -> u64 {
    let spend = Spend { limit: "l", key: &[], plan: None, units: 1 };
    let balance = gate.spend(live, spend, gate.clock.now()).unwrap();
    999 - balance.remaining.unwrap() + balance.debt
}

/// The first request meets a new key, the second a known one; both cost the same.
#[tokio::test(start_paused = true)]
async fn each_request_costs_the_units_of_its_answer() {
    let header = || Some(SettleBy::Header(HeaderName::from_static("x-cost")));
    let cost = |cost| Answer { field: Some(cost), ..OK };
    let status = |status| Answer { status, ..OK };
    let by_status = || Some(SettleBy::Status(vec![(of(500, 599), 0), (of(200, 299), 5)]));
    let elapsed = |ms| Answer { ms, ..OK };
    let bytes = |bytes| Answer { bytes, ..OK };
    for (counts, by, answered, each) in [
        (Some(of(401, 401)), None, status(401), 2),
        (Some(of(401, 401)), None, status(200), 0),
        (None, header(), cost("7"), 7),
        (None, header(), cost("7.9"), 7),
        (None, header(), cost("1"), 1),
        (None, header(), cost("0"), 0),
        (None, header(), cost(""), 2),
        (None, header(), cost(".5"), 2),
        (None, header(), cost("x"), 2),
        (None, header(), OK, 2),
        (None, by_status(), status(200), 5),
        (None, by_status(), status(503), 0),
        (None, by_status(), status(404), 2),
        (None, Some(SettleBy::ResponseBytes), bytes(12), 12),
        (None, Some(SettleBy::ResponseBytes), bytes(0), 0),
        (None, Some(SettleBy::ElapsedMs), elapsed(30), 30),
        (None, Some(SettleBy::ElapsedMs), elapsed(0), 0),
        (Some(of(200, 200)), header(), Answer { status: 500, ..cost("7") }, 0),
        (Some(of(200, 200)), header(), cost("7"), 7),
        (Some(of(200, 200)), Some(SettleBy::ResponseBytes), Answer { status: 500, ..bytes(9) }, 0),
    ] {
        let gate = new_gate();
        let row = format!("{counts:?} {by:?} {answered:?}");
        let live = install(gate, [settled(counts, by)], CAPS);
        for number in 1..=2 {
            let mut bill = sent_on(gate, live).unwrap_or_else(|| panic!("request {number} is to be settled: {row}"));
            answer(&mut bill, answered);
            tokio::time::advance(Duration::from_millis(answered.ms)).await;
            bill.end(answered.bytes, None, None);
        }
        assert_eq!(spent(gate, live), 2 * each, "{row}");
    }
}

/// Weir's own answer in place of that of the service settles as one of the service does, if the service had the request.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_costs_the_units_of_its_answer() {
    let by_status = || Some(SettleBy::Status(vec![(of(500, 599), 0), (of(400, 499), 5)]));
    for (counts, by, status, each) in [
        (Some(of(401, 401)), None, 502, 0),
        (Some(of(500, 599)), None, 502, 2),
        (None, by_status(), 504, 0),
        (None, Some(SettleBy::Status(vec![(of(504, 504), 5)])), 504, 5),
        (None, Some(SettleBy::Status(vec![(of(504, 504), 5)])), 502, 2),
        (Some(of(200, 200)), by_status(), 502, 0),
    ] {
        let gate = new_gate();
        let row = format!("{counts:?} {by:?} {status}");
        let live = install(gate, [settled(counts, by)], CAPS);
        for number in 1..=2 {
            for was_sent in [false, true] {
                let Step::Pass(mut pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
                pass.charged.commit(was_sent);
                pass.failed(StatusCode::from_u16(status).unwrap(), None);
                let left = pass.standing.map(|standing| standing.remaining);
                assert!(!was_sent || left == Some(1000 - number * each), "{row}: {left:?}");
            }
        }
        assert_eq!(spent(gate, live), 2 * each, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn charges_that_are_not_settled_have_no_bill() {
    let gate = new_gate();
    let live = install(gate, [Limit { after: None, ..settled(None, None) }], CAPS);
    assert!(sent_on(gate, live).is_none() && sent_on(gate, live).is_none());
    assert_eq!(spent(gate, live), 4);
    // A request that does not reach the upstream costs nothing.
    let live = install(gate, [settled(Some(of(200, 200)), None)], CAPS);
    let Step::Pass(pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
    drop(pass);
    assert_eq!(spent(gate, live), 5, "with the unit that the first look took");
}

/// A long request is charged while it runs, and the units charged so far are subtracted at its end.
#[tokio::test(start_paused = true)]
async fn a_long_request_is_charged_as_it_runs() {
    let gate = new_gate();
    let mut long = settled(None, None);
    let settle = Settle { every_ns: Some(10 * MS_NS), ..Settle::only(SettleBy::ElapsedMs, 100) };
    long.after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
    let live = install(gate, [long], CAPS);
    let bill = sent_on(gate, live).unwrap();
    // Each peek takes a unit.
    for (looks, (ms, expected)) in (0..).zip([(5, 2), (12, 10), (25, 40)]) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        assert_eq!(spent(gate, live) - looks, expected, "{ms} ms later");
    }
    drop(bill);
    assert_eq!(spent(gate, live) - 3, 42);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(spent(gate, live) - 4, 42, "nothing runs any more");

    // A request that did not reach the upstream costs nothing.
    let Step::Pass(pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
    tokio::time::sleep(Duration::from_millis(25)).await;
    assert_eq!(spent(gate, live) - 5, 62);
    drop(pass);
    assert_eq!(spent(gate, live) - 6, 42);
}

/// A request that is undone gives back the units that it was charged as it ran: fewer than its time if its key had no more.
#[tokio::test(start_paused = true)]
async fn undoing_a_long_request_gives_back_what_it_was_charged() {
    let gate = new_gate();
    let settle = Settle { every_ns: Some(10 * MS_NS), ..Settle::only(SettleBy::ElapsedMs, 0) };
    let after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
    let live = install(gate, [Limit { after, ..settled(None, None) }], CAPS);
    gate.spend(live, Spend { limit: "l", key: &[], plan: None, units: 990 }, gate.clock.now()).unwrap();
    let Step::Pass(pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
    tokio::time::sleep(Duration::from_millis(65)).await;
    drop(pass);
    assert_eq!(spent(gate, live), 990);
}

/// Undone after its window, a long request gives the next one no units that others have spent there.
#[tokio::test(start_paused = true)]
async fn undoing_a_long_request_gives_the_next_window_nothing() {
    let gate = gate_of(Clock::start_at(AN_HOUR_BEGINS));
    let settle = Settle { every_ns: Some(1000 * MS_NS), ..Settle::only(SettleBy::ElapsedMs, 0) };
    let (after, rule) =
        (AfterResponse { counts: None, settle: Some(settle) }, algorithm("fixed_window 100000 per 1 min UTC"));
    let allowed = Allowed::to_all(rule.clone());
    let live = install(gate, [Limit { after: Some(Arc::new(after)), allowed, ..settled(None, None) }], CAPS);
    let Step::Pass(pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
    tokio::time::sleep(Duration::from_secs(65)).await;
    gate.spend(live, Spend { limit: "l", key: &[], plan: None, units: 500 }, gate.clock.now()).unwrap();
    let before = remaining(gate, live, &rule, None);
    drop(pass);
    assert_eq!(remaining(gate, live, &rule, None), before);
}

/// A charge that is settled or given back after its window gives the next window nothing, here and in a store.
#[tokio::test(start_paused = true)]
async fn a_window_gets_no_units_of_the_one_before() {
    let from_first = Rate { count: 1000, period_ns: ns("10s") };
    let from_first = Algorithm::FixedWindow(crate::engine::limit::fixed_window::Rule::from_first(from_first).unwrap());
    // the rule, and when a charge may count and does not count any more
    let rows = [
        (algorithm("fixed_window 1000 per 1 min UTC"), "9s", "61s"),
        (algorithm("sliding_log 1000/10s"), "9s", "11s"),
        (algorithm("sub_window 1000/10s in 10"), "8s", "11s"),
        (algorithm("sliding_window 1000/10s"), "9s", "21s"),
        (algorithm("sliding_log 1000/10s + fixed_window 1000 per 1 min UTC"), "9s", "61s"),
        (from_first, "9s", "21s"),
    ];
    for (rule, early, late) in rows {
        let cases = [early, late].into_iter().flat_map(|after| [false, true].map(|remote| (after, remote)));
        for (after, is_remote, is_refund) in
            cases.flat_map(|(after, remote)| [false, true].map(|one| (after, remote, one)))
        {
            let gate = gate_of(Clock::start_at(AN_HOUR_BEGINS));
            let redis = FakeRedis::new(gate.clock);
            let stores = [redis.store(OnFailure::Split)];
            let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
            let counts = is_refund.then(|| of(300, 399));
            let mut limit = Limit { allowed: Allowed::to_all(rule.clone()), ..settled(counts, by) };
            if is_remote {
                limit.strategy = Strategy::Redis { store: 0, replicas: 1 };
            }
            let live = install_with(gate, [limit], CAPS, &stores);
            let fields = headers(&[]);
            let send = async || {
                let mut pass = super::answer(ask(gate, live, &fields), &redis, &fields).await.ok().unwrap();
                pass.charged.commit(true);
                pass.charged.bill().unwrap()
            };
            let mut first = send().await;
            tokio::time::advance(Duration::from_nanos(ns(after))).await;
            let next = send().await;
            answer(&mut first, Answer { field: Some("0"), ..OK });
            drop((first, next));
            let key = gate.secret.key_of_texts(&[], &[], Prefixes::default(), &[]).unwrap();
            let here = live.states[0].table.peek(key, &rule, 0, gate.clock.now()).remaining;
            let there = if is_remote { redis.remaining("l", key, &rule) } else { here };
            assert_eq!((here, there), (998, 998), "{rule:?} {after} {is_remote} {is_refund}");
        }
    }
}

/// The units that remain of the limit `l`, in its store if it has one.
fn remaining(gate: &Gate, live: &Live, rule: &Algorithm, redis: Option<&FakeRedis>) -> u64 {
    let key = gate.secret.key_of_texts(&[], &[], Prefixes::default(), &[]).unwrap();
    match redis {
        Some(redis) => redis.remaining("l", key, rule),
        None => live.states[0].table.peek(key, rule, 0, gate.clock.now()).remaining,
    }
}

/// Requests are charged one after another, each when the units of the one before are back. One that ends with no unit gives
/// back its own only.
#[tokio::test(start_paused = true)]
async fn a_settlement_gives_no_units_back_twice() {
    // the rule, the time between five requests, and the units that remain after the last one, before and after the others
    // have ended with no unit
    for (rule, pause, before, after) in [
        ("token_bucket 2/1min burst 2", "1min", 0, 0),
        ("token_bucket 4/1min burst 4", "25s", 0, 2),
        ("leaky_bucket 2/1min burst 2", "1min", 0, 0),
        ("token_bucket 2/1min burst 2+token_bucket 100/1day burst 100", "1min", 0, 0),
        ("sliding_log 4/20s", "11s", 0, 2),
        ("sub_window 4/20s in 10", "11s", 0, 2),
        ("sliding_log 4/20s", "20s", 2, 2),
    ] {
        for is_remote in [false, true] {
            let gate = gate_of(Clock::start_at(AN_HOUR_BEGINS));
            let redis = FakeRedis::new(gate.clock);
            let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
            let strategy = if is_remote { Strategy::Redis { store: 0, replicas: 1 } } else { Strategy::default() };
            let limit = Limit { allowed: Allowed::to_all(algorithm(rule)), strategy, ..settled(None, by) };
            let live = install_with(gate, [limit], CAPS, &[redis.store(OnFailure::Split)]);
            let (fields, mut bills) = (headers(&[]), Vec::new());
            for number in 0..5 {
                tokio::time::advance(Duration::from_nanos(ns(pause) * u64::from(number > 0))).await;
                let mut pass = super::answer(ask(gate, live, &fields), &redis, &fields).await.ok().unwrap();
                pass.charged.commit(true);
                bills.push(pass.charged.bill().unwrap());
            }
            let left = || remaining(gate, live, &algorithm(rule), is_remote.then_some(&redis));
            assert_eq!(left(), before, "{rule} {is_remote}");
            for mut bill in bills.drain(..4).rev() {
                answer(&mut bill, Answer { field: Some("0"), ..OK });
            }
            assert_eq!(left(), after, "{rule} {is_remote}");
        }
    }
}

/// Of a charge at another rate comes back what no rate can have given back since, after the units that the key had spent
/// before.
#[tokio::test(start_paused = true)]
async fn a_settlement_after_a_change_of_the_rate_gives_back_what_is_left() {
    let [half, same] = [500, 1000].map(|rate| format!("token_bucket {rate}/1min burst 1000"));
    let changes = [half, same.clone()];
    for changes in [&changes[..1], &changes[1..], &changes] {
        check_settlements(changes, &same).await;
    }
}

async fn check_settlements(changes: &[String], first: &str) {
    // The first and the second charge.
    for (index, expected) in [(0, 500), (1, 600)] {
        let gate = gate_of(Clock::start_at(AN_HOUR_BEGINS));
        let with = |rule: &str| {
            let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
            install(
                gate,
                [Limit { cost: Cost::Units(500), allowed: Allowed::to_all(algorithm(rule)), ..settled(None, by) }],
                CAPS,
            )
        };
        let mut bills = [(); 2].map(|()| sent_on(gate, with(first)).unwrap());
        tokio::time::advance(Duration::from_secs(12)).await;
        for change in changes {
            let (live, rule) = (with(change), algorithm(change));
            // The table notes which keys have another rate.
            let key = gate.secret.key_of_texts(&[], &[], Prefixes::default(), &[]).unwrap();
            live.states[0].table.adopt_rule(key, &rule, gate.clock.now());
            assert_eq!(remaining(gate, live, &rule, None), 200, "{changes:?}");
        }
        answer(&mut bills[index], Answer { field: Some("100"), ..OK });
        let change = &changes[changes.len() - 1];
        assert_eq!(remaining(gate, with(change), &algorithm(change), None), expected, "{changes:?} {index}");
    }
}

/// A charge is settled under the rule that is in force by then. Its own rule applies to nothing any more, and a charge of
/// another algorithm changes nothing.
#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_under_the_rule_in_force() {
    // the rule of the charge, the rule in force, and the units that are spent 20 s after the settlement or the refund; units
    // of another kind of windows do not come back
    let rows = [
        ("token_bucket 10000/1s burst 10000", "token_bucket 10/1s burst 1000", 302, 0),
        ("leaky_bucket 10000/1s burst 10000", "leaky_bucket 10/1s burst 1000", 302, 0),
        ("fixed_window 1000 per 10 s UTC", "fixed_window 1000 per 1 h UTC", 502, 4),
        ("sliding_log 1000/10s", "sliding_log 1000/1h", 502, 2),
        ("sliding_window 1000/10s", "sliding_window 1000/1h", 502, 4),
        ("sub_window 1000/10s in 10", "sub_window 1000/1h in 10", 502, 4),
        ("sliding_log 1000/10s", "sub_window 1000/1h in 10", 2, 2),
    ];
    for (charged, in_force, settled_to, refunded_to) in rows {
        for (plan, counted) in [(None, true), (Some("pro"), true), (Some("pro"), false)] {
            let gate = gate_of(Clock::start_at(AN_HOUR_BEGINS));
            let counts = (!counted).then(|| of(300, 399));
            let with = |rule: &str| {
                let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
                let mut limit = settled(counts.clone(), by);
                match plan {
                    None => limit.allowed = Allowed::to_all(algorithm(rule)),
                    Some(plan) => {
                        limit.allowed = Allowed::to_all(algorithm(&rule.replace("1000", "777")));
                        limit.allowed.plans = vec![(plan.into(), Some(algorithm(rule)))];
                    }
                }
                install(gate, [limit], CAPS)
            };
            let fields = headers(plan.map(|_| "x-plan=pro").as_slice());
            let send = |live| {
                let Step::Pass(mut pass) = ask(gate, live, &fields) else {
                    panic!("{charged}, {plan:?}: there is room")
                };
                pass.charged.commit(true);
                pass.charged.bill()
            };
            let mut late = send(with(charged)).unwrap();
            let live = with(in_force);
            drop(send(live));
            answer(&mut late, Answer { field: Some("500"), ..OK });
            tokio::time::advance(Duration::from_secs(20)).await;
            drop(late);
            let spend = Spend { limit: "l", key: &[], plan, units: 1 };
            let left = gate.spend(live, spend, gate.clock.now()).unwrap().remaining.unwrap();
            let expected = if counted { settled_to } else { refunded_to };
            assert_eq!(999 - left, expected, "{charged}, {in_force}, {plan:?}, {counted}");
        }
    }
}

/// A cost of any size is no more than the largest debt, and units that come back let the next request pass.
#[tokio::test(start_paused = true)]
async fn the_largest_debt_bounds_a_cost() {
    let gate = new_gate();
    let by = || Some(SettleBy::Header(HeaderName::from_static("x-cost")));
    let live = install(gate, [settled(None, by())], CAPS);
    let mut bill = sent_on(gate, live).unwrap();
    answer(&mut bill, Answer { field: Some("99999999999999999999999"), ..OK });
    drop(bill);
    assert_eq!(spent(gate, live), 999 + 100);

    let gate = new_gate();
    let on_limit = OnLimit::Hold(HoldRule { max_wait_ns: None, max_waiting: 10 });
    let live = install(gate, [Limit { cost: Cost::Units(1000), on_limit, ..settled(None, by()) }], CAPS);
    let mut bill = sent_on(gate, live).unwrap();
    let Step::Wait(waiting) = ask(gate, live, &headers(&[])) else { panic!("nothing is left") };
    let waiting = tokio::spawn(waiting.wait(&NoStore));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    answer(&mut bill, Answer { field: Some("0"), ..OK });
    drop(bill);
    assert!(timeout(Duration::from_secs(1), waiting).await.unwrap().unwrap().is_ok());
}

/// The headers of an answer that does not count show the standing without it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_count_gives_its_units_back_to_the_standing() {
    for (status, remaining) in [(401, 998), (200, 1000)] {
        let gate = new_gate();
        let live = install(gate, [settled(Some(of(401, 401)), None)], CAPS);
        let Step::Pass(mut pass) = ask(gate, live, &headers(&[])) else { panic!("there is room") };
        pass.charged.commit(true);
        let standing = pass.standing;
        let mut bill = pass.charged.bill().unwrap();
        let none = FieldBuf::default();
        let standing = bill.answered((status, none.fields()), time::instant_now()).or(standing).unwrap();
        assert_eq!(standing.remaining, remaining, "{status}");
    }
}

/// After a settlement, the headers show the limit that is the tightest then, whether it is settled or not, and whether a
/// lease, a store or a share of it decides.
#[tokio::test(start_paused = true)]
async fn a_settlement_shows_the_tightest_limit() {
    let rows = [
        ("5", "cost=1", None, 5),
        ("5", "lease=1,3", None, 5),
        ("5", "redis=1", None, 5),
        ("10", "lease=2,3", Some(Unavailable::Cold), 10),
        ("10", "redis=2", Some(Unavailable::Down), 10),
    ];
    for (burst, sharing, trouble, capacity) in rows {
        let gate = new_gate();
        let redis = FakeRedis::new(gate.clock);
        redis.set(trouble, Duration::ZERO);
        let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
        let requests = parse_limit(&["requests", "1", "1h", burst, "reject", sharing]);
        let limits = [
            Limit { cost: Cost::Units(600), ..settled(None, by) },
            Limit { matches: Match::default(), key: Vec::new(), ..requests },
        ];
        let live = install_with(gate, limits, CAPS, &[redis.store(OnFailure::Split)]);
        let fields = headers(&[]);
        for requests in (0..5).rev() {
            let mut pass = super::answer(ask(gate, live, &fields), &redis, &fields).await.ok().unwrap();
            pass.charged.commit(true);
            let mut bill = pass.charged.bill().unwrap();
            let fields: FieldBuf = [("x-cost", "5")].into_iter().collect();
            let standing = bill.answered((200, fields.fields()), time::instant_now()).unwrap();
            let shown = (standing.limit, standing.burst, standing.remaining);
            assert_eq!(shown, ("requests", capacity, requests), "{sharing}, {trouble:?}");
            bill.end(0, None, None);
        }
        assert!(super::answer(ask(gate, live, &fields), &redis, &fields).await.is_err());
    }
}

/// A unit of a concurrency limit is given back at the end of the response, or when the answer does not count.
#[tokio::test(start_paused = true)]
async fn a_request_in_flight_holds_its_place() {
    let one = Algorithm::Concurrency(concurrency::Rule::new(1).unwrap());
    let header = SettleBy::Header(HeaderName::from_static("x-cost"));
    for (after, status, is_held) in [
        (None, 200, true),
        (Some((None, None)), 200, true),
        (Some((Some(of(200, 200)), None)), 200, true),
        (Some((Some(of(200, 200)), None)), 500, false),
        (Some((None, Some(header.clone()))), 200, true),
    ] {
        let gate = new_gate();
        let row = format!("{after:?} {status}");
        let after = after.map(|(counts, by)| {
            let settle = by.map(|by| Settle::only(by, 0));
            Arc::new(AfterResponse { counts, settle })
        });
        let allowed = Allowed::to_all(one.clone());
        let live = install(gate, [Limit { after, allowed, cost: Cost::Units(1), ..settled(None, None) }], CAPS);
        let is_full = || !matches!(ask(gate, live, &headers(&[])), Step::Pass(_));
        for _ in 0..2 {
            let mut bill = sent_on(gate, live).unwrap();
            assert!(is_full(), "{row}");
            answer(&mut bill, Answer { status, ..OK });
            assert_eq!(is_full(), is_held, "{row}");
            drop(bill);
            assert!(!is_full(), "{row}");
        }
    }
}

/// A store hears of final costs, of units charged while a request runs, and of charges by the service itself.
#[tokio::test(start_paused = true)]
async fn a_store_hears_of_the_final_costs() {
    let header = || Some(SettleBy::Header(HeaderName::from_static("x-cost")));
    let metered = Settle { every_ns: Some(10 * MS_NS), ..Settle::only(SettleBy::ElapsedMs, 100) };
    let metered = Arc::new(AfterResponse { counts: None, settle: Some(metered) });
    for (limit, answered, each) in [
        (settled(Some(of(401, 401)), None), Answer { status: 200, ..OK }, 0),
        (settled(None, header()), Answer { field: Some("7"), ..OK }, 7),
        (settled(None, header()), Answer { field: Some("0"), ..OK }, 0),
        (settled(None, Some(SettleBy::ResponseBytes)), Answer { bytes: 30, ..OK }, 30),
        (Limit { after: Some(metered), ..settled(None, None) }, Answer { ms: 35, ..OK }, 35),
    ] {
        let gate = new_gate();
        let redis = FakeRedis::new(gate.clock);
        let limit = Limit { strategy: Strategy::Redis { store: 0, replicas: 1 }, ..limit };
        let (rule, key) =
            (limit.allowed.usual.clone(), gate.secret.key_of_texts(&[], &[], Prefixes::default(), &[]).unwrap());
        let live = install_with(gate, [limit], CAPS, &[redis.store(OnFailure::Split)]);
        let spend = Spend { limit: "l", key: &[], plan: None, units: 1 };
        gate.spend(live, spend, gate.clock.now()).unwrap();
        let fields = headers(&[]);
        let pass = super::answer(ask(gate, live, &fields), &redis, &fields).await;
        let mut pass = pass.unwrap_or_else(|refusal| panic!("{refusal:?}"));
        pass.charged.commit(true);
        let mut bill = pass.charged.bill().unwrap();
        tokio::time::sleep(Duration::from_millis(answered.ms)).await;
        answer(&mut bill, answered);
        bill.end(answered.bytes, None, None);
        let left = redis.remaining("l", key, &rule);
        assert_eq!(left, 999 - each, "{answered:?}");
        let mirrored = live.states[0].table.peek(key, &rule, 0, gate.clock.now()).remaining;
        assert_eq!(mirrored, left, "{answered:?}");
    }
}

/// How a stream ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Its whole body has come.
    Complete,
    /// The client or the service leaves, or a time is over: the meter has what came.
    Cut,
    /// Its task ends without a word.
    Dropped,
}

#[tokio::test(start_paused = true)]
async fn each_end_of_a_stream_settles_it_once() {
    let rule = |default| {
        let preset = Preset::OpenaiChat;
        let units = |_: &str| Weight::ONE;
        Some(SettleBy::Body(Arc::new(BodyUnits::of_preset(preset, units, Vec::new(), default))))
    };
    let event = |units: u64| match units {
        0 => "data: {\"choices\":[]}\n\n".to_owned(),
        units => format!("data: {{\"usage\":{{\"completion_tokens\":{units}}}}}\n\n"),
    };
    // The events of a stream with the tokens that they name, its end, and its cost.
    for (events, default, end, cost) in [
        (&[0, 0, 9][..], None, End::Complete, 9),
        (&[0, 0, 9], None, End::Cut, 9),
        (&[0, 9, 0], None, End::Cut, 10),
        (&[0, 0, 0], None, End::Cut, 3),
        (&[0], None, End::Cut, 2),
        (&[], None, End::Cut, 2),
        (&[], Some(7), End::Complete, 7),
        (&[], None, End::Dropped, 2),
        (&[], Some(7), End::Dropped, 7),
        // A default below the charge.
        (&[], Some(1), End::Complete, 1),
        (&[], Some(1), End::Cut, 2),
        (&[0], Some(1), End::Cut, 2),
        (&[], Some(1), End::Dropped, 2),
    ] {
        let (gate, row) = (new_gate(), format!("{events:?} {default:?} {end:?}"));
        let live = install(gate, [settled(None, rule(default))], CAPS);
        for _ in 1..=2 {
            let mut bill = sent_on(gate, live).unwrap();
            let fields: FieldBuf = [("content-type", "text/event-stream")].into_iter().collect();
            bill.answered((200, fields.fields()), time::instant_now());
            let mut meter = bill.meter(fields.fields(), false).unwrap();
            for units in events {
                assert_eq!(meter.push(event(*units).as_bytes()), None);
            }
            match end {
                End::Dropped => {}
                End::Cut => bill.end(1, Some(meter), None),
                End::Complete => {
                    meter.end();
                    bill.end(1, Some(meter), None);
                }
            }
        }
        assert_eq!(spent(gate, live), 2 * cost, "{row}");
    }
}

/// A stream is charged as it runs if its budget can cut it, and each unit of that once.
#[tokio::test(start_paused = true)]
async fn a_stream_is_cut_at_the_end_of_its_budget() {
    let preset = Preset::OpenaiChat;
    let units = |_: &str| Weight::ONE;
    let rule = Arc::new(BodyUnits::of_preset(preset, units, Vec::new(), None));
    let event = b"data: {\"choices\":[]}\n\n";
    // The debt beyond which it is cut, events of another stream of the key, and the events until the cut.
    for (debt, others, expected) in [(0, 0, 1009), (100, 0, 1105), (0, 160, 849), (0, 2000, 17)] {
        let settle = Settle { cut_debt: Some(debt), ..Settle::only(SettleBy::Body(Arc::clone(&rule)), u64::MAX) };
        let after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
        let gate = new_gate();
        let live = install(gate, [Limit { after, ..settled(None, None) }], CAPS);
        let fields: FieldBuf = [("content-type", "text/event-stream")].into_iter().collect();
        let begin = || {
            let bill = sent_on(gate, live).unwrap();
            let meter = bill.meter(fields.fields(), false).unwrap();
            (bill, meter)
        };
        let ((mut bill, mut meter), (mut other, mut its)) = (begin(), begin());
        let mut of_others = 0;
        while of_others < others && its.push(event).is_none() {
            of_others += 1;
        }
        let delivered = (0..5000).take_while(|_| meter.push(event).is_none()).count() as u64;
        assert_eq!(meter.cut().map(|(limit, _)| limit), Some("l"));
        bill.end(1, Some(meter), None);
        other.end(1, Some(its), None);
        drop((bill, other));
        let others = of_others.max(2);
        assert_eq!(spent(gate, live), delivered.max(2) + others, "{debt} {others}");
        assert_eq!(delivered, expected, "{debt} {others}");
    }
}

/// A delayed request is charged what its largest debt has room for, and settled by that.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_gives_back_no_more_than_it_was_charged() {
    let gate = new_gate();
    let slow_down = SlowDown { step_ns: MS_NS, max_ns: 100 * MS_NS };
    let on_limit = OnLimit::Delay(DelayRule { slow_down, max_waiting: 10 });
    let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
    let live = install(gate, [Limit { cost: Cost::Units(200), on_limit, ..settled(None, by) }], CAPS);
    for _ in 0..5 {
        drop(sent_on(gate, live));
    }
    for _ in 0..10 {
        let Step::Delay(delayed) = ask(gate, live, &headers(&[])) else { panic!("nothing is left") };
        let mut pass = delayed.wait().await.unwrap();
        pass.charged.commit(true);
        let mut bill = pass.charged.bill().unwrap();
        answer(&mut bill, Answer { field: Some("1"), ..OK });
    }
    assert_eq!(spent(gate, live), 1000 + 10);
}

/// The delay of a request is no work of the service.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_begins_after_its_delay() {
    for every_ns in [None, Some(10 * MS_NS)] {
        let gate = new_gate();
        let slow_down = SlowDown { step_ns: 1000 * MS_NS, max_ns: 2000 * MS_NS };
        let on_limit = OnLimit::Delay(DelayRule { slow_down, max_waiting: 10 });
        let settle = Settle { every_ns, ..Settle::only(SettleBy::ElapsedMs, 10_000) };
        let after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
        let live = install(gate, [Limit { cost: Cost::Units(1), on_limit, after, ..settled(None, None) }], CAPS);
        gate.spend(live, Spend { limit: "l", key: &[], plan: None, units: 1000 }, gate.clock.now()).unwrap();
        let Step::Delay(delayed) = ask(gate, live, &headers(&[])) else { panic!("nothing is left") };
        let began = gate.clock.now();
        let mut pass = delayed.wait().await.unwrap();
        assert!(gate.clock.now().ns_since(began) >= 1000 * MS_NS);
        pass.charged.commit(true);
        tokio::time::sleep(Duration::from_millis(25)).await;
        drop(pass);
        assert_eq!(spent(gate, live), 1025, "{every_ns:?}");
    }
}

/// A request that passes uncharged, because its store says nothing, gives nothing back either.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_charged_is_not_settled() {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let stores = [redis.store(OnFailure::Allow)];
    let by = Some(SettleBy::Header(HeaderName::from_static("x-cost")));
    let limit = Limit { strategy: Strategy::Redis { store: 0, replicas: 1 }, ..settled(None, by) };
    let rule = limit.allowed.usual.clone();
    let live = install_with(gate, [limit], CAPS, &stores);
    let fields = headers(&[]);
    for (trouble, left) in [(None, 995), (Some(Unavailable::Down), 995), (None, 990)] {
        redis.set(trouble, Duration::ZERO);
        for cost in ["0", "5"] {
            let mut pass = super::answer(ask(gate, live, &fields), &redis, &fields).await.ok().unwrap();
            pass.charged.commit(true);
            let bill = pass.charged.bill();
            assert_eq!(bill.is_some(), trouble.is_none());
            if let Some(mut bill) = bill {
                answer(&mut bill, Answer { field: Some(cost), ..OK });
            }
        }
        let key = gate.secret.key_of_texts(&[], &[], Prefixes::default(), &[]).unwrap();
        assert_eq!(redis.remaining("l", key, &rule), left, "{trouble:?}");
    }
}
