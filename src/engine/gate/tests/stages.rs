//! The stages of a decision, identities, preflights, modes and reloads.

use std::net::{IpAddr, Ipv4Addr};

use http::Method;

use super::redis::NoStore;
use super::{CAPS, MS_NS, ask, assert_at_rest, facts, headers, hold, install, limit, new_gate, policy};
use crate::base::fields::FieldBuf;
use crate::base::telemetry::LimitDecision;
use crate::engine::gate::{Cause, Credential, Gate, IdentityError, Live, Question, Routing, Step, Unkeyed, Verdict};
use crate::engine::limit::concurrency;
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Algorithm, Quota, Rate, Retry};
use crate::engine::policy::KeyPart;
use crate::engine::policy::Policy;
use crate::engine::policy::{
    Allowed, Cost, CostLine, DelayRule, Facts, Identity, IdentitySource, Limit, Match, Mode, OnLimit, OnMissing,
    PathPattern, Repeated, Stage,
};

/// A limit of one unit a minute that sees every request.
fn everywhere(name: &str, stage: Stage, key: Vec<KeyPart>) -> Limit {
    let limit = limit(name, 1, "1min", 1, OnLimit::Reject);
    Limit { stage, key, matches: Match::default(), ..limit }
}

fn identity(name: &str, on_missing: OnMissing) -> Identity {
    let source = IdentitySource::Header(name.parse().unwrap(), Repeated::Reject);
    Identity { name: name.into(), source, on_missing, is_plain: false }
}

/// Whether the request passes and is charged; or the problem with its identity.
fn passes(gate: &Gate, live: &Live, stage: Stage, facts: &Facts<'_>) -> Result<bool, IdentityError> {
    match gate.admit(live, stage, facts, || 0, gate.clock.now()) {
        Ok(Step::Pass(mut pass)) => {
            pass.charged.commit(true);
            Ok(true)
        }
        Ok(Step::Refuse(refusal)) => {
            assert_eq!(refusal.cause, Cause::Limit);
            Ok(false)
        }
        Ok(Step::Wait(_) | Step::Delay(_) | Step::Ask(_)) => panic!("nothing holds"),
        Err(Unkeyed::Several(part)) => panic!("{part:?} several times"),
        Err(Unkeyed::Unidentified(unidentified)) => {
            assert_eq!(unidentified.credential, Credential::Other);
            Err(unidentified.why)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_stage_charges_its_own_limits() {
    let gate = new_gate();
    let limits = vec![
        everywhere("outer", Stage::Arrival, vec![]),
        everywhere("inner", Stage::Identified, vec![KeyPart::Identity(0)]),
    ];
    let live = gate.install(policy(limits, vec![identity("seller", OnMissing::Reject)]), CAPS, 10);
    let nobody = FieldBuf::default();
    // The arrival stage needs no identity, and also charges requests that are refused later without one.
    assert_eq!(passes(gate, &live, Stage::Arrival, &facts(&nobody)), Ok(true));
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&nobody)), Err(IdentityError::Missing));
    assert_eq!(passes(gate, &live, Stage::Arrival, &facts(&nobody)), Ok(false));
    let seller = headers(&["seller=one"]);
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&seller)), Ok(true));
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&seller)), Ok(false));
    assert_at_rest(gate, &live);
}

/// Requests in order: their headers, the last byte of the address, and whether they pass.
type Row = (OnMissing, &'static [&'static str], u8, Result<bool, IdentityError>);

#[tokio::test(start_paused = true)]
async fn identity_comes_from_one_header() {
    use OnMissing::{Anonymous, Ip, Reject};
    // Each limit admits one request of a kind.
    #[rustfmt::skip]
    let rows: [Row; 19] = [
        (Reject, &["id=a"], 1, Ok(true)),
        (Reject, &["id=a"], 2, Ok(false)),
        (Reject, &["id=b"], 1, Ok(true)),
        (Reject, &[], 1, Err(IdentityError::Missing)),
        (Reject, &["id="], 1, Err(IdentityError::Missing)),
        // A list without members is no value.
        (Reject, &["id=,"], 1, Err(IdentityError::Missing)),
        (Reject, &["id= ,, "], 1, Err(IdentityError::Missing)),
        (Reject, &["id=a", "id=b"], 1, Err(IdentityError::Several)),
        (Anonymous, &[], 1, Ok(true)),
        (Anonymous, &["id="], 2, Ok(false)),
        (Anonymous, &["id=,"], 3, Ok(false)),
        (Anonymous, &["id=a"], 1, Ok(true)),
        (Anonymous, &["id=a", "id=a"], 1, Err(IdentityError::Several)),
        (Ip, &[], 1, Ok(true)),
        (Ip, &[], 1, Ok(false)),
        (Ip, &[], 2, Ok(true)),
        (Ip, &["id=,"], 2, Ok(false)),
        // The text of an address is not the address.
        (Ip, &["id=10.0.0.1"], 1, Ok(true)),
        (Ip, &["id=", "id=x"], 3, Err(IdentityError::Several)),
    ];
    for on_missing in [Reject, Anonymous, Ip] {
        let gate = new_gate();
        let limits = vec![everywhere("a", Stage::Identified, vec![KeyPart::Identity(0)])];
        let live = gate.install(policy(limits, vec![identity("id", on_missing)]), CAPS, 10);
        for (_, words, address, expected) in rows.iter().filter(|row| row.0 == on_missing) {
            let headers = headers(words);
            let facts = Facts { client_ip: Ipv4Addr::new(10, 0, 0, *address).into(), ..facts(&headers) };
            assert_eq!(passes(gate, &live, Stage::Identified, &facts), *expected, "{on_missing:?} {words:?} {address}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn identity_that_no_limit_needs_is_not_asked_for() {
    let gate = new_gate();
    let limits = vec![everywhere("a", Stage::Identified, vec![KeyPart::Ip])];
    let live = gate.install(policy(limits, vec![identity("id", OnMissing::Reject)]), CAPS, 10);
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&FieldBuf::default())), Ok(true));
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&FieldBuf::default())), Ok(false));
}

#[tokio::test(start_paused = true)]
async fn preflights_and_excepted_networks_are_free() {
    let gate = new_gate();
    let mut limits = vec![
        everywhere("outer", Stage::Arrival, vec![]),
        everywhere("inner", Stage::Identified, vec![KeyPart::Identity(0)]),
    ];
    for limit in &mut limits {
        limit.except.networks = ["192.0.2.0/24".parse().unwrap()].into_iter().collect();
    }
    let live = gate.install(policy(limits, vec![identity("id", OnMissing::Reject)]), CAPS, 10);
    let excepted = FieldBuf::default();
    let excepted = Facts { client_ip: IpAddr::from([192, 0, 2, 7]), ..facts(&excepted) };
    let preflight = headers(&["origin=https://example.com", "access-control-request-method=PUT"]);
    let preflight = Facts { method: &Method::OPTIONS, is_free_preflight: true, ..facts(&preflight) };
    for _ in 0..3 {
        assert_eq!(passes(gate, &live, Stage::Arrival, &excepted), Ok(true));
        assert_eq!(passes(gate, &live, Stage::Identified, &excepted), Ok(true));
        assert_eq!(passes(gate, &live, Stage::Identified, &preflight), Ok(true));
    }
    // The arrival stage sees preflights too. An OPTIONS request alone is no preflight.
    assert_eq!(passes(gate, &live, Stage::Arrival, &preflight), Ok(true));
    assert_eq!(passes(gate, &live, Stage::Arrival, &preflight), Ok(false));
    // Beyond the rate a preflight is an ordinary request.
    let charged = Facts { is_free_preflight: false, ..preflight };
    assert_eq!(passes(gate, &live, Stage::Identified, &charged), Err(IdentityError::Missing));
    let options = headers(&["origin=https://example.com"]);
    let options = Facts { method: &Method::OPTIONS, ..facts(&options) };
    assert_eq!(passes(gate, &live, Stage::Identified, &options), Err(IdentityError::Missing));
}

#[tokio::test(start_paused = true)]
async fn verdicts_name_the_tightest_limit_and_all_violated() {
    let gate = new_gate();
    let wide = limit("x", 10, "1s", 10, OnLimit::Reject);
    let tight = limit("y", 1, "1s", 2, OnLimit::Reject);
    let shadow = Limit { mode: Mode::Shadow, ..limit("z", 1, "1s", 1, OnLimit::Reject) };
    let live = gate.install(policy(vec![wide, tight, shadow], Vec::new()), CAPS, 10);
    let headers = headers(&["x=k", "y=k", "z=k"]);
    let ask = || gate.admit(&live, Stage::Identified, &facts(&headers), || 0, gate.clock.now()).unwrap();
    for remaining in [1, 0] {
        let Step::Pass(mut pass) = ask() else { panic!("refused") };
        let standing = pass.standing.unwrap();
        assert_eq!((standing.limit, standing.remaining), ("y", remaining));
        pass.charged.commit(true);
    }
    let Step::Refuse(refusal) = ask() else { panic!("admitted") };
    assert_eq!(refusal.violated.as_slice(), ["y"]);
    assert_eq!(refusal.retry, Retry::AfterNs(1000 * MS_NS));
    let standing = refusal.standing.unwrap();
    assert_eq!((standing.limit, standing.remaining, standing.reset_after_ns), ("y", 0, 2000 * MS_NS));
    let metrics = |index: usize| &live.states[index].metrics;
    assert_eq!(
        (metrics(0).cells.counted(LimitDecision::Admitted), metrics(0).cells.counted(LimitDecision::Refused)),
        (2, 0)
    );
    assert_eq!(
        (metrics(1).cells.counted(LimitDecision::Admitted), metrics(1).cells.counted(LimitDecision::Refused)),
        (2, 1)
    );
    assert_eq!(
        (metrics(2).cells.counted(LimitDecision::Admitted), metrics(2).cells.counted(LimitDecision::ShadowRefused)),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_in_shadow_mode_counts_its_decisions() {
    let slow_down = SlowDown { step_ns: MS_NS, max_ns: MS_NS };
    for (on_limit, expected) in [
        (OnLimit::Reject, LimitDecision::ShadowRefused),
        (hold(None), LimitDecision::ShadowHeld),
        (hold(Some(1000 * MS_NS)), LimitDecision::ShadowHeld),
        (hold(Some(899 * MS_NS)), LimitDecision::ShadowRefused),
        (OnLimit::Delay(DelayRule { slow_down, max_waiting: 1 }), LimitDecision::ShadowHeld),
    ] {
        let gate = new_gate();
        let shadow = Limit { mode: Mode::Shadow, ..limit("s", 1, "1s", 1, on_limit) };
        let others = [limit("r", 1, "1h", 1, OnLimit::Reject), limit("h", 10, "1s", 1, hold(None))];
        let live = super::install(gate, [shadow].into_iter().chain(others), CAPS);
        // Alone; beside a limit that admits, then refuses; and beside a limit that admits, then holds for 100 ms.
        for words in [&["s=k"][..], &["s=k"], &["s=k", "r=k"], &["s=k", "r=k"], &["h=k"], &["s=k", "h=k"]] {
            match super::ask(gate, live, &headers(words)) {
                Step::Pass(mut pass) => pass.charged.commit(true),
                Step::Wait(waiting) => waiting.wait(&NoStore).await.unwrap().charged.commit(true),
                Step::Refuse(refusal) => assert_eq!(refusal.violated.as_slice(), ["r"]),
                Step::Delay(_) | Step::Ask(_) => panic!("nothing delays"),
            }
        }
        let count = |decided| live.states[0].metrics.cells.counted(decided);
        let counted =
            [LimitDecision::Admitted, LimitDecision::ShadowRefused, LimitDecision::ShadowHeld, LimitDecision::Held]
                .map(count);
        let is_held = expected == LimitDecision::ShadowHeld;
        assert_eq!(counted, if is_held { [1, 0, 4, 0] } else { [1, 4, 0, 0] }, "{on_limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sweep_forgets_limits_that_are_gone_and_keys_that_are_idle() {
    let gate = new_gate();
    let live = super::install(gate, [limit("a", 1, "1s", 1, hold(None))], CAPS);
    let headers = headers(&["a=k"]);
    assert_eq!(passes(gate, live, Stage::Identified, &facts(&headers)), Ok(true));
    super::install(gate, [], CAPS);
    gate.sweep();
    assert_eq!(gate.states.lock().unwrap().len(), 1, "a key still owes something");
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    gate.sweep();
    assert_eq!(live.states[0].metrics.evicted_idle.get(), 0, "a decision may still be dated back");
    tokio::time::advance(std::time::Duration::from_nanos(crate::engine::limit::BACKDATE_NS_MAX)).await;
    gate.sweep();
    assert!(gate.states.lock().unwrap().is_empty());
    assert_eq!(live.states[0].metrics.evicted_idle.get(), 1);
    assert_eq!(live.states[0].metrics.keys.get(), 0);
    // A request that was matched under the old policy does not wait.
    assert_eq!(passes(gate, live, Stage::Identified, &facts(&headers)), Ok(true));
    let Step::Wait(waiting) = super::ask(gate, live, &headers) else { panic!("not held") };
    waiting.wait(&NoStore).await.unwrap().charged.commit(true);
    assert_at_rest(gate, live);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_the_next_request_exceeds_is_the_tightest() {
    // The fraction of `little` that remains is smaller, but another request fits.
    let units = |name, burst, cost| Limit { cost: Cost::Units(cost), ..limit(name, 1, "1h", burst, OnLimit::Reject) };
    for names in [["dear", "little"], ["little", "dear"]] {
        let gate = new_gate();
        let of = |name| if name == "dear" { units(name, 9, 5) } else { units(name, 4, 1) };
        let live = install(gate, names.map(of), CAPS);
        let little = headers(&["little=1"]);
        for _ in 0..2 {
            let Step::Pass(mut pass) = ask(gate, live, &little) else { panic!("{names:?}") };
            pass.charged.commit(true);
        }
        let Step::Pass(pass) = ask(gate, live, &headers(&["little=1", "dear=1"])) else { panic!("{names:?}") };
        let standing = pass.standing.unwrap();
        assert_eq!((standing.limit, standing.remaining), ("dear", 4), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_there_several_times_is_refused_before_anything_is_charged() {
    let gate = new_gate();
    let keyed = |several| vec![KeyPart::Header("x-a".parse().unwrap(), several)];
    let limits = vec![
        everywhere("all", Stage::Identified, vec![]),
        everywhere("one", Stage::Identified, keyed(Repeated::Reject)),
        everywhere("outer", Stage::Arrival, keyed(Repeated::First)),
    ];
    let live = gate.install(policy(limits, vec![]), CAPS, 10);
    let twice = headers(&["x-a=1", "x-a=2"]);
    assert_eq!(passes(gate, &live, Stage::Arrival, &facts(&twice)), Ok(true));
    let refused = gate.admit(&live, Stage::Identified, &facts(&twice), || 0, gate.clock.now());
    assert!(matches!(refused, Err(Unkeyed::Several(KeyPart::Header(name, _))) if name == "x-a"));
    let question = Question {
        method: "GET".into(),
        path: "/".into(),
        host: "h".into(),
        ip: Ipv4Addr::LOCALHOST.into(),
        headers: [("x-a", "3"), ("x-a", "4")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        identities: Vec::new(),
        plan: None,
    };
    let told = gate.explain(&live, &question, &Routing::default(), gate.clock.now()).unwrap();
    let Verdict::SeveralValues(part) = told.verdict else { panic!("{:?}", told.verdict) };
    assert_eq!(live.policy.several(part), "header:x-a has several values");
    let once = headers(&["x-a=1"]);
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&once)), Ok(true));
    assert_eq!(passes(gate, &live, Stage::Identified, &facts(&once)), Ok(false));
}

#[tokio::test(start_paused = true)]
async fn concurrency_limits_and_limits_that_name_options_apply_to_free_preflights() {
    let concurrent = |name, key| Limit {
        allowed: Allowed::to_all(Algorithm::Concurrency(concurrency::Rule::new(1).unwrap())),
        ..everywhere(name, Stage::Identified, key)
    };
    let with_line = |methods| {
        let line = CostLine { paths: Vec::new(), methods, units: 1 };
        Limit {
            cost: Cost::Table { lines: vec![line], default: 1 },
            ..everywhere("l", Stage::Identified, vec![KeyPart::Ip])
        }
    };
    let with_method = |methods| Limit {
        matches: Match { methods, ..Match::default() },
        ..everywhere("l", Stage::Identified, vec![KeyPart::Ip])
    };
    let fields = headers(&["origin=https://example.com", "access-control-request-method=PUT"]);
    let preflight = Facts { method: &Method::OPTIONS, is_free_preflight: true, ..facts(&fields) };
    for (limit, on_missing, applies) in [
        (with_method(vec![Method::OPTIONS, Method::GET]), OnMissing::Reject, true),
        (with_method(Vec::new()), OnMissing::Reject, false),
        (with_line(vec![Method::OPTIONS]), OnMissing::Reject, true),
        (with_line(Vec::new()), OnMissing::Reject, false),
        (concurrent("l", vec![KeyPart::Ip]), OnMissing::Reject, true),
        (concurrent("l", vec![KeyPart::Identity(0)]), OnMissing::Ip, true),
        (concurrent("l", vec![KeyPart::Identity(0)]), OnMissing::Reject, false),
    ] {
        let policy = policy(vec![limit], vec![identity("id", on_missing)]);
        assert_eq!(policy.applies(0, &preflight).is_ok(), applies, "{:?}", policy.limits());
    }
}

#[tokio::test(start_paused = true)]
async fn each_address_has_so_many_free_preflights() {
    let gate = new_gate();
    let rate = |count| {
        let quota = Quota::new(Rate { count, period_ns: 1_000_000_000 }, count).unwrap();
        let mut policy = policy(Vec::new(), Vec::new());
        policy.free_preflights = Some(Algorithm::TokenBucket(quota));
        policy
    };
    let fields = headers(&["origin=https://example.com", "access-control-request-method=PUT"]);
    let preflight = Facts { method: &Method::OPTIONS, ..facts(&fields) };
    let from = |ip: &str| Facts { client_ip: ip.parse().unwrap(), ..preflight };
    let free = |policy: &Policy, facts: &Facts<'_>, count: usize| {
        (0..count).filter(|_| gate.frees_preflight(policy, facts, gate.clock().now())).count()
    };
    let (two, four) = (rate(2), rate(4));
    assert_eq!(free(&two, &from("192.0.2.1"), 5), 2);
    assert_eq!(free(&two, &from("192.0.2.2"), 5), 2);
    assert_eq!(free(&two, &from("2001:db8::1"), 5), 2);
    assert_eq!(free(&two, &from("2001:db8::2"), 5), 0, "one client by its /64");
    assert_eq!(free(&two, &Facts { method: &Method::GET, ..from("192.0.2.3") }, 5), 0);
    assert_eq!(free(&policy(Vec::new(), Vec::new()), &from("192.0.2.3"), 5), 0, "all are charged");
    // A reload refills nothing.
    assert_eq!(free(&rate(2), &from("192.0.2.1"), 5), 0);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    gate.sweep();
    assert_eq!(free(&four, &from("192.0.2.1"), 5), 4);
    let counted = |place: usize| gate.metrics.preflights[place].get();
    assert_eq!((counted(1), counted(0)), (2 + 2 + 2 + 4, 3 + 3 + 3 + 5 + 5 + 1));
}

/// A path parameter of one name has the value that the limit's own pattern gives it.
#[tokio::test]
async fn limits_with_one_parameter_key_count_by_their_own_patterns() {
    let gate = new_gate();
    let of = |name, pattern, burst| {
        let paths = vec![PathPattern::parse(pattern).unwrap()];
        let matches = Match { paths, ..Match::default() };
        let key = vec![KeyPart::Parameter("tenant".into())];
        Limit { matches, key, ..limit(name, 1, "1h", burst, OnLimit::Reject) }
    };
    let live = install(gate, [of("rest", "/{tenant}/{*rest}", 3), of("admin", "/admin/{tenant}/{*rest}", 1)], CAPS);
    let fields = FieldBuf::default();
    // The tenant is `admin` for the first limit.
    for (path, expected) in [
        ("/admin/a/x", true),
        ("/admin/a/y", false),
        ("/admin/b/x", true),
        ("/admin/c/x", true),
        ("/admin/d/x", false),
        ("/d/x", true),
    ] {
        let facts = Facts { path, ..facts(&fields) };
        assert_eq!(passes(gate, live, Stage::Identified, &facts), Ok(expected), "{path}");
    }
}
