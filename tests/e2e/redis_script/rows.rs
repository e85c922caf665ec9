//! What random requests do not show: times to live, foreign values, cold servers, dead replicas, and clocks that differ.

use weir::base::time::{Timestamp, instant_now};
use weir::engine::limit::late;
use weir::engine::limit::state::State as _;
use weir::engine::limit::{Algorithm, AlgorithmName, Allowance, AnyState, Calendar, Quota, Rate, Settings, Unit};
use weir::engine::limit::{fixed_window, sliding_log};
use weir::engine::store::backend::{Handling, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, Units};
use weir::fleet::stores::redis::script::{
    Change, Correction, InFlight, KnownState, Noting, correct, in_flight, push, renew,
};

use super::server::{KEY, Server};

pub const MS: u64 = 1_000_000;
pub const NOW: Timestamp = Timestamp::from_ns(1_700_000_000_000 * MS);
const RATE: Rate = Rate { count: 10, period_ns: 2000 * MS };

/// Rules of each algorithm: 10 in two seconds. The first is a token bucket, the last has no time.
pub fn rules() -> Vec<Algorithm> {
    let calendar = Calendar::new(Unit::Second, 2, "UTC").unwrap();
    let plain = Settings { sub_windows: 4, ..RATE.into() };
    let of = |name: AlgorithmName, settings: &Settings| name.rule(settings).unwrap();
    let more = [
        of(AlgorithmName::LeakyBucket, &Settings { shapes: true, ..plain.clone() }),
        of(AlgorithmName::FixedWindow, &Settings { calendar: Some(calendar), ..plain.clone() }),
    ];
    let mut each: Vec<_> = AlgorithmName::ALL.iter().map(|(_, name)| of(*name, &plain)).chain(more).collect();
    each.sort_by_key(Algorithm::is_released);
    each
}

pub fn bucket() -> Algorithm {
    rules().swap_remove(0)
}

pub fn charge(rule: &Algorithm, cost: u64) -> RemoteCharge<'_> {
    RemoteCharge {
        limit: "a",
        key: KEY,
        rule,
        units: Units::exactly(cost),
        handling: Handling::Enforce,
        asked_again_until: None,
    }
}

/// Decides one charge at the server's time, which is this long after [`NOW`].
#[track_caller]
pub fn decide_at(server: &mut Server, charge: &RemoteCharge<'_>, ms: u64) -> RemoteOutcome {
    let now = NOW.saturating_add_ns(ms * MS);
    server.caller.server_us = Some(now.as_ns() / 1000);
    server.decide(&[*charge], now).1.remove(0)
}

fn key(server: &Server) -> String {
    server.names.of_key("a", KEY).into_string()
}

#[test]
fn a_key_lives_until_it_is_idle() {
    let mut server = Server::start();
    // In milliseconds.
    let idle_after = |rule: &Algorithm| match rule {
        Algorithm::FixedWindow(rule) if matches!(rule.windows(), fixed_window::Windows::Calendar(_)) => 0..=2000,
        // A charge counts in the next window too.
        Algorithm::SlidingWindow(_) => 2000..=4000,
        Algorithm::SubWindow(_) => 1500..=2000,
        Algorithm::Concurrency(_) => 10_000..=10_000,
        _ => 2000..=2000,
    };
    for rule in rules() {
        server.send::<()>(&["FLUSHALL"]);
        let asked_at = instant_now();
        server.decide(&[charge(&rule, 10)], NOW);
        let left_ms: u64 = server.send(&["PTTL", &key(&server)]);
        let passed_ms = u64::try_from(asked_at.elapsed().as_millis()).unwrap() + 1;
        let idle_ms = idle_after(&rule);
        assert!(left_ms > 0 && left_ms <= idle_ms.end() + 1, "{left_ms} {rule:?}");
        assert!(left_ms + passed_ms >= *idle_ms.start(), "{left_ms} {rule:?}");
    }
    // These are idle before the server answers.
    let fast = Rate { count: 10, period_ns: 1000 };
    let rules = [
        Algorithm::TokenBucket(Quota::new(fast, 1).unwrap()),
        Algorithm::FixedWindow(fixed_window::Rule::from_first(fast).unwrap()),
        Algorithm::SlidingLog(sliding_log::Rule::new(fast).unwrap()),
        Algorithm::SlidingWindow(Allowance::new(fast).unwrap()),
    ];
    for rule in rules {
        server.send::<()>(&["FLUSHALL"]);
        server.decide(&[charge(&rule, 1)], NOW);
        let left_ms: i64 = server.send(&["PTTL", &key(&server)]);
        assert!(left_ms != -1, "a key without an end: {rule:?}");
    }
}

/// Values that no script has written, each under every algorithm.
#[test]
fn foreign_values_count_as_none() {
    let mut server = Server::start();
    let name = key(&server);
    for rule in rules() {
        let algorithm = f64::from(rule.portable_rate(NOW).algorithm).to_le_bytes();
        let mut values = vec![Vec::new(), b"x".to_vec(), vec![0; 32], vec![0; 40], vec![255; 1064], vec![b'1'; 2000]];
        for number in [f64::NAN, -1.0, 0.0, 0.5, 1.0, 1e300, f64::INFINITY, f64::NEG_INFINITY] {
            let numbers = |count| [&algorithm[..], &number.to_le_bytes().repeat(count)].concat();
            values.extend([0, 2, 3, 4, 6, 7, 8, 200].map(numbers));
        }
        for value in &values {
            check_asked(&mut server, &rule, |server| server.set(&name, value));
        }
        for words in [["RPUSH", &name, "x"], ["SADD", &name, "x"], ["PFADD", &name, "x"]] {
            check_asked(&mut server, &rule, |server| {
                server.send::<()>(&["DEL", &name]);
                server.send::<()>(&words);
            });
        }
    }
}

/// Runs every script on a key whatever its value is: none fails, and the key is of use.
fn check_asked(server: &mut Server, rule: &Algorithm, put: impl Fn(&mut Server)) {
    server.send::<()>(&["FLUSHALL"]);
    put(server);
    let asked = decide_at(server, &charge(rule, 1), 0);
    let next = decide_at(server, &charge(rule, 0), 0);
    assert_eq!(asked.state.peek(rule, 0, NOW), next.state.peek(rule, 0, NOW), "what is charged is stored: {rule:?}");
    let store_key = server.names.of_key("a", KEY);
    let state = AnyState::fresh(rule);
    let (call_push, call_renew) = {
        let in_flight = InFlight { key: store_key.clone(), units: 1, is_exact: false };
        let known = KnownState { store_key: store_key.clone(), rule: rule.clone(), state };
        (push(&server.caller, &[known], NOW), renew(&server.caller, &[in_flight]))
    };
    let mut changes =
        vec![Change::Settle { store_key, rule: rule.clone(), late: late::at_once(rule, -1), max_debt: 0 }];
    changes.extend(asked.receipt.and_then(RemoteReceipt::into_redis).map(Change::GiveBack));
    for (number, change) in changes.into_iter().enumerate() {
        put(server);
        let correction = Correction { number: number as u64 + 1, change };
        let call = correct(&server.names, &server.caller, Noting::ByReplica, &[correction], NOW);
        server.run(&call);
    }
    put(server);
    server.run(&call_push);
    put(server);
    server.run(&call_renew);
}

#[test]
fn a_cold_server_does_not_decide() {
    let mut server = Server::start();
    let marker = server.names.of_marker(0).into_string();
    for rule in rules() {
        server.send::<()>(&["FLUSHALL"]);
        let charges = [charge(&rule, 1)];
        let mut check = |expected: Option<Unavailable>, next_marker: &str| {
            let before = server.dump();
            let found = server.try_decide(Some(1), &charges, NOW).err();
            assert_eq!(found, expected, "{rule:?}");
            assert_eq!(server.dump() == before, expected.is_some(), "a cold server changes nothing");
            server.send::<()>(&["SET", &marker, next_marker]);
        };
        check(Some(Unavailable::Cold), "1");
        check(None, "2");
        check(Some(Unavailable::Cold), "1");
        server.send::<()>(&["FLUSHALL"]);
        assert_eq!(server.try_decide(Some(1), &charges, NOW).err(), Some(Unavailable::Cold));
    }
}

#[test]
fn a_server_keeps_the_larger_debt() {
    let mut server = Server::start();
    for rule in rules().into_iter().filter(|rule| !rule.is_released()) {
        server.send::<()>(&["FLUSHALL"]);
        let used = |state: &AnyState, at: Timestamp| 10 - state.peek(&rule, 0, at).remaining;
        let mut known = AnyState::fresh(&rule);
        let shapes = matches!(rule, Algorithm::LeakyBucket(quota) if quota.shapes());
        // Half a second ago, in the same window.
        for ms in [100, 300, 600] {
            known.admit(&rule, if shapes { 1 } else { 2 }, NOW.saturating_add_ns(ms * MS));
        }
        let at = NOW.saturating_add_ns(600 * MS);
        let push_known = |server: &mut Server, state: &AnyState| {
            let store_key = server.names.of_key("a", KEY);
            let state = KnownState { store_key, rule: rule.clone(), state: state.clone() };
            server.caller.server_us = Some(at.as_ns() / 1000);
            let call = push(&server.caller, &[state], at);
            server.run(&call);
        };
        push_known(&mut server, &known);
        let pushed = decide_at(&mut server, &charge(&rule, 0), 600).state;
        assert_eq!(pushed.peek(&rule, 0, at), known.peek(&rule, 0, at), "{rule:?}");
        // Less is known elsewhere, and later the same.
        push_known(&mut server, &AnyState::fresh(&rule));
        push_known(&mut server, &known);
        let pushed = decide_at(&mut server, &charge(&rule, 0), 600).state;
        assert_eq!(pushed.peek(&rule, 0, at), known.peek(&rule, 0, at), "{rule:?}");
        // The server has charged meanwhile.
        let charged = decide_at(&mut server, &charge(&rule, u64::from(!shapes)), 600).state;
        push_known(&mut server, &known);
        let pushed = decide_at(&mut server, &charge(&rule, 0), 600).state;
        assert_eq!(used(&pushed, at), used(&charged, at), "{rule:?}");
    }
}

#[test]
fn units_in_flight_end_with_their_replica() {
    let mut server = Server::start();
    let rule = rules().pop().unwrap();
    let mut check = |ms: u64, replica: u64, cost: u64, expected: (u64, u64)| {
        server.caller.replica = replica;
        let outcome = decide_at(&mut server, &charge(&rule, cost), ms);
        let remaining = outcome.state.peek(&rule, 0, NOW).remaining;
        assert_eq!((outcome.admitted, remaining), expected, "at {ms} ms");
        let receipt = outcome.receipt.and_then(RemoteReceipt::into_redis);
        let flights = receipt.iter().flat_map(in_flight).count();
        assert_eq!(flights, usize::from(outcome.is_charged));
        receipt.map(RemoteReceipt::Redis)
    };
    // at      replica  cost  admitted and remaining
    check(0, 1, 4, (4, 6));
    let receipt = check(0, 2, 5, (5, 1)).unwrap();
    check(9_999, 3, 2, (0, 1));
    // Nobody has renewed them.
    check(10_000, 3, 2, (2, 8));
    check(10_000, 2, 1, (1, 7));
    let key = server.names.of_key("a", KEY);
    let renewed = |server: &mut Server, ms: u64, units: u64, is_exact: bool| {
        server.caller.replica = 2;
        server.caller.server_us = Some((NOW.as_ns() + ms * MS) / 1000);
        let call = renew(&server.caller, &[InFlight { key: key.clone(), units, is_exact }]);
        server.run(&call);
    };
    let used = |server: &mut Server, ms: u64| {
        let state = decide_at(server, &charge(&rule, 0), ms).state;
        10 - state.peek(&rule, 0, NOW).remaining
    };
    renewed(&mut server, 15_000, 6, false);
    assert_eq!(used(&mut server, 15_000), 8, "it had lost them");
    renewed(&mut server, 15_000, 1, false);
    assert_eq!(used(&mut server, 15_000), 8, "it may have more");
    assert_eq!(used(&mut server, 20_000), 6, "the other replica is gone");
    renewed(&mut server, 24_000, 3, true);
    assert_eq!(used(&mut server, 33_999), 3);
    let correction = Correction { number: 1, change: Change::GiveBack(receipt.of_units(2).into_redis().unwrap()) };
    let call = correct(&server.names, &server.caller, Noting::AtKey, &[correction], NOW);
    server.run(&call);
    assert_eq!(used(&mut server, 33_999), 1);
    renewed(&mut server, 33_999, 0, true);
    assert_eq!(used(&mut server, 33_999), 0);
    let keys: Vec<String> = server.send(&["KEYS", "*}"]);
    assert_eq!(keys, Vec::<String>::new(), "nothing is in flight");
}

#[test]
fn a_lease_leaves_a_part_of_what_remains() {
    let mut server = Server::start();
    for rule in rules().into_iter().filter(|rule| !matches!(rule, Algorithm::LeakyBucket(quota) if quota.shapes())) {
        server.send::<()>(&["FLUSHALL"]);
        // cost, want, divisor, admitted
        let rows = [(1, 9, 2, 5), (1, 9, 2, 2), (1, 2, 1, 2), (1, 9, 3, 1), (1, 9, 9, 0), (0, 9, 1, 0)];
        for (cost, want, divisor, admitted) in rows {
            let units = Units { cost, want, divisor, at_hand: 0 };
            let asked = RemoteCharge { units, ..charge(&rule, 0) };
            let outcome = decide_at(&mut server, &asked, 0);
            assert_eq!(outcome.admitted, admitted, "{units:?} {rule:?}");
            assert_eq!(outcome.receipt.map_or(0, |receipt| receipt.units()), admitted);
        }
    }
}

/// The clock of the server selects the window, whatever that of the replica is.
#[test]
fn a_window_of_the_calendar_is_that_of_the_server() {
    let mut server = Server::start();
    let calendar = Calendar::new(Unit::Second, 2, "UTC").unwrap();
    let rule = Algorithm::FixedWindow(fixed_window::Rule::in_calendar(10, calendar).unwrap());
    let rows: [(i64, u64, u64); 9] = [
        // The replica, the server, the end of the window.
        (100, 100, 2000),
        (1900, 2100, 4000),
        (2100, 1900, 2000),
        (0, 1999, 2000),
        (0, 2000, 4000),
        (100, 7900, 8000),
        (9000, 100, 2000),
        (-5000, 4100, 6000),
        (60_100, 100, 2000),
    ];
    for (replica_ms, server_ms, ends_ms) in rows {
        server.send::<()>(&["FLUSHALL"]);
        let local = Timestamp::from_ns(NOW.as_ns().saturating_add_signed(replica_ms * 1_000_000));
        server.caller.server_us = Some(NOW.as_ns() / 1000 + server_ms * 1000);
        let outcome = server.decide(&[charge(&rule, 10)], local).1.remove(0);
        let left_ms = outcome.state.peek(&rule, 1, local).reset_after_ns / MS;
        assert_eq!(left_ms, ends_ms - server_ms, "replica {replica_ms}, server {server_ms}");
    }
}

/// A charge that is denied under another rule writes nothing. Its reply asks for a correction of no units, from which on
/// units come back at the new rate.
#[test]
fn another_rule_holds_from_the_correction_after_a_denial() {
    let mut server = Server::start();
    let slow = Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: 3_600_000 * MS }, 10).unwrap());
    let fast = bucket();
    decide_at(&mut server, &charge(&slow, 10), 0);
    let before = server.dump();
    let denied = |server: &mut Server, ms| {
        let outcome = decide_at(server, &charge(&fast, 1), ms);
        assert_eq!((outcome.admitted, outcome.is_charged), (0, false));
        outcome.is_outdated
    };
    assert!(denied(&mut server, 0));
    assert_eq!(server.dump(), before);
    let late = late::at_once(&fast, 0);
    let change = Change::Settle { store_key: server.names.of_key("a", KEY), rule: fast.clone(), late, max_debt: 0 };
    let call = correct(&server.names, &server.caller, Noting::AtKey, &[Correction { number: 1, change }], NOW);
    server.run(&call);
    let before = server.dump();
    assert!(!denied(&mut server, 200));
    assert_eq!(server.dump(), before);
    // The tag of an interval is rounded, by which the debt is some nanoseconds too long.
    assert_eq!(decide_at(&mut server, &charge(&fast, 1), 201).admitted, 1);
}

#[test]
fn a_long_log_is_searched_and_cut() {
    let mut server = Server::start();
    let rate = Rate { count: 5000, period_ns: 10_000 * MS };
    let rule = Algorithm::SlidingLog(sliding_log::Rule::new(rate).unwrap());
    let mut state = AnyState::fresh(&rule);
    // More than fits; then most expires, and again.
    for ms in (0..6000).chain((14_000..15_000).step_by(2)).chain(24_400..24_500) {
        let now = NOW.saturating_add_ns(ms * MS);
        let outcome = decide_at(&mut server, &charge(&rule, 1), ms);
        assert_eq!(outcome.decision(&charge(&rule, 1), now), state.admit(&rule, 1, now), "at {ms} ms");
    }
    let bytes: usize = server.send(&["STRLEN", &key(&server)]);
    assert!(bytes < 16 * 2000, "{bytes} bytes: what expired is dropped");
}

#[test]
fn corrections_are_made_in_the_order_of_their_numbers() {
    let mut server = Server::start();
    let (rule, store_key) = (bucket(), server.names.of_key("a", KEY));
    let settle = |number, extra| {
        let late = late::at_once(&rule, extra);
        let change = Change::Settle { store_key: store_key.clone(), rule: rule.clone(), late, max_debt: 0 };
        Correction { number, change }
    };
    let mut check = |replica: u64, noting: Noting, corrections: &[Correction], used: u64| {
        server.caller.replica = replica;
        server.caller.server_us = Some(NOW.as_ns() / 1000);
        let call = correct(&server.names, &server.caller, noting, corrections, NOW);
        server.run(&call);
        let state = decide_at(&mut server, &charge(&rule, 0), 0).state;
        assert_eq!(10 - state.peek(&rule, 0, NOW).remaining, used);
    };
    check(1, Noting::ByReplica, &[settle(1, 1), settle(2, 2)], 3);
    check(1, Noting::ByReplica, &[settle(1, 1), settle(2, 2), settle(3, 1)], 4);
    check(2, Noting::ByReplica, &[settle(1, 1)], 5);
    check(1, Noting::AtKey, &[settle(4, 1), settle(5, 1)], 7);
    check(1, Noting::AtKey, &[settle(5, 1)], 7);
    let noted_ms: i64 = server.send(&["PTTL", &server.names.of_replica(1).into_string()]);
    assert!(noted_ms > 60_000);
}

#[test]
fn servers_know_scripts_by_their_hash() {
    let mut server = Server::start();
    for script in weir::fleet::stores::redis::script::all() {
        let sha: String = server.send(&["SCRIPT", "LOAD", script.text]);
        assert_eq!(sha, script.sha, "{}", script.name);
    }
}
