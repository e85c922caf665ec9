//! Charges without a request: their keys, and their debts.

use http::{HeaderName, Method};

use super::*;
use crate::engine::gate::lookup::KeyError;
use crate::engine::gate::named_charge::ChargeError;
use crate::engine::gate::spend::{Balance, Spend};
use crate::engine::policy::{AfterResponse, IdentitySource, OnMissing, PathPattern, Repeated, Settle, SettleBy};

fn spend(
    gate: &Gate,
    live: &Live,
    limit: &str,
    key: &[(&str, &str)],
    units: i64,
    now: Timestamp,
) -> Result<Balance, ChargeError> {
    gate.spend(live, Spend { limit, key: &pairs_of(key), plan: None, units }, now)
}

fn of(name: &str, key: Vec<KeyPart>) -> Limit {
    let every = limit(name, 10, "1s", 10, OnLimit::Reject);
    Limit { matches: Match::default(), key, ..every }
}

fn in_debt(limit: Limit, max_debt: u64) -> Limit {
    let settle = Settle::only(SettleBy::ElapsedMs, max_debt);
    Limit { after: Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) })), ..limit }
}

const MOST: i64 = (1 << 53) - 1;

/// Units come back at 10 a second; the largest debt is 20.
#[tokio::test(start_paused = true)]
async fn balances_over_time() {
    let gate = new_gate();
    let live = install(gate, [in_debt(of("cpu", Vec::new()), 20)], CAPS);
    let start = gate.clock.now();
    for (at_ms, units, remaining, debt, reset_ms) in [
        (0, 4, 6, 0, 400),
        (0, 6, 0, 0, 1000),
        (0, 5, 0, 5, 1500),
        (500, 1, 0, 1, 1100),
        (600, 1, 0, 1, 1100),
        // The debt does not grow further.
        (600, 1_000_000, 0, 20, 3000),
        (600, MOST, 0, 20, 3000),
        (3600, 1, 9, 0, 100),
        // 0 looks, and a negative number gives units back, debts first.
        (3600, 0, 9, 0, 100),
        (3600, 15, 0, 6, 1600),
        (3600, -2, 0, 4, 1400),
        (3600, -7, 3, 0, 700),
        (3600, 0, 3, 0, 700),
        (3600, -MOST, 10, 0, 0),
    ] {
        let now = start.saturating_add_ns(at_ms * MS_NS);
        let balance = spend(gate, live, "cpu", &[], units, now).unwrap();
        let expected = Balance { remaining: Some(remaining), debt, reset_after_ns: Some(reset_ms * MS_NS) };
        assert_eq!(balance, expected, "{units} at {at_ms} ms");
    }
}

/// No check charges more than the capacity, so no report gives more back.
#[tokio::test(start_paused = true)]
async fn a_report_gives_back_at_most_the_capacity() {
    let gate = new_gate();
    let live = install(gate, [in_debt(of("cpu", Vec::new()), 20)], CAPS);
    let now = gate.clock.now();
    let charge = gate.named_charge(live, "cpu", &[], None, 0).unwrap();
    for (charged, cost, remaining, debt) in [
        (0, 4, 6, 0),
        (4, 9, 1, 0),
        (0, 1000, 0, 20),
        (u64::MAX, 0, 0, 10),
        // The check was under a plan or an override with a larger capacity.
        (1000, 1000, 0, 10),
        (1000, 1004, 0, 14),
        (1000, 3, 0, 4),
        (1000, 995, 1, 0),
        (1000, 0, 10, 0),
        (u64::MAX, u64::MAX, 10, 0),
    ] {
        let balance = gate.report(live, &charge, charged, cost, now);
        assert_eq!((balance.remaining, balance.debt), (Some(remaining), debt), "{charged} {cost}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_debt_nothing_goes_below_zero() {
    let gate = new_gate();
    let live = install(gate, [of("cpu", Vec::new())], CAPS);
    let now = gate.clock.now();
    let expected = Balance { remaining: Some(0), debt: 0, reset_after_ns: Some(1000 * MS_NS) };
    for _ in 0..3 {
        assert_eq!(spend(gate, live, "cpu", &[], 1_000, now), Ok(expected));
    }
}

/// A charge by name goes to the bucket of the request.
#[tokio::test(start_paused = true)]
async fn meets_the_key_of_requests() {
    let header = |name: &'static str| KeyPart::Header(HeaderName::from_static(name), Repeated::Reject);
    let path = |text: &str| PathPattern::parse(text).unwrap();
    let identity = |name: &str, header: &'static str| Identity {
        name: name.into(),
        source: IdentitySource::Header(HeaderName::from_static(header), Repeated::Reject),
        on_missing: OnMissing::Anonymous,
        is_plain: false,
    };
    for (part, name, value) in [
        (KeyPart::Ip, "ip", "127.0.0.1"),
        (KeyPart::Ip, "ip", "::ffff:127.0.0.1"),
        (KeyPart::Path, "path", "/a/b"),
        (KeyPart::Path, "path", "/a//c/../%62"),
        (KeyPart::Route, "route", "/a/{x}"),
        (KeyPart::Host, "host", "Shop.Test:8080"),
        (KeyPart::Method, "method", "PUT"),
        (KeyPart::Identity(0), "seller", "123"),
        (KeyPart::Identity(0), "seller", "123\u{a0}"),
        (header("x-api-key"), "header:X-Api-Key", "k"),
        (header("x-api-key"), "header:x-api-key", "\u{a0}k"),
        (KeyPart::Query("q".into(), Repeated::Reject), "query:q", "a b"),
        (KeyPart::Cookie("c".into(), Repeated::Reject), "cookie:c", "d"),
    ] {
        let gate = new_gate();
        let matches = Match { paths: vec![path("/a/{x}")], ..Match::default() };
        let limits = vec![Limit { matches, ..of("l", vec![part.clone(), KeyPart::Method]) }];
        let limits =
            if part == KeyPart::Method { vec![Limit { key: vec![part.clone()], ..limits[0].clone() }] } else { limits };
        let live = gate.install(policy(limits, vec![identity("seller", "x-seller")]), CAPS, 10);
        let now = gate.clock.now();
        let mut key = vec![(name, value)];
        if part != KeyPart::Method {
            key.insert(0, ("method", "PUT"));
        }
        assert_eq!(spend(gate, &live, "l", &key, 7, now).unwrap().remaining, Some(3), "{name}");
        let headers: FieldBuf = [("x-seller", "123"), ("x-api-key", "k"), ("cookie", "c=d")].into_iter().collect();
        let facts = Facts {
            method: &Method::PUT,
            host: "shop.test",
            path: "/a/b",
            query: Some("q=a+b"),
            headers: headers.fields(),
            client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            is_free_preflight: false,
            is_proxied: false,
            certificate: None,
            cost: None,
            body: None,
        };
        let Step::Pass(pass) = gate.admit(&live, Stage::Identified, &facts, || 0, now).unwrap() else {
            panic!("{name} is refused")
        };
        assert_eq!(pass.standing.unwrap().remaining, 2, "{name} {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_said_and_charges_nothing() {
    use ChargeError::{InFlight, Units};
    use KeyError::{BadPart, DoublePart, MissingPart, UnknownLimit, UnknownPart};
    let of_key = ChargeError::Key;
    let gate = new_gate();
    let in_flight = Algorithm::Concurrency(crate::engine::limit::concurrency::Rule::new(3).unwrap());
    let limits = [
        of("l", vec![KeyPart::Ip, KeyPart::Route, KeyPart::Header(HeaderName::from_static("x-a"), Repeated::Reject)]),
        Limit { allowed: Allowed::to_all(in_flight), ..of("c", Vec::new()) },
        of("p", vec![KeyPart::Path]),
        of("h", vec![KeyPart::Host]),
    ];
    let live = install(gate, limits, CAPS);
    let now = gate.clock.now();
    let good = [("ip", "::1"), ("route", ""), ("header:x-a", "1")];
    for (limit, key, units, error) in [
        ("m", &good[..], 1, of_key(UnknownLimit)),
        ("l", &good, -MOST - 1, Units),
        ("l", &good, MOST + 1, Units),
        ("l", &good[..2], 1, of_key(MissingPart("header:x-a".into()))),
        ("l", &[], 1, of_key(MissingPart("ip".into()))),
        ("l", &[good[0], good[1], good[2], ("path", "/")], 1, of_key(UnknownPart("path".into()))),
        ("l", &[good[0], good[1], good[2], ("header:X-A", "/")], 1, of_key(DoublePart("header:x-a".into()))),
        ("l", &[("ip", "here"), good[1], good[2]], 1, of_key(BadPart("ip".into()))),
        ("l", &[good[0], good[1], ("header:x-a", " 1")], 1, of_key(BadPart("header:x-a".into()))),
        ("l", &[good[0], good[1], ("header:x-a", "1\n")], 1, of_key(BadPart("header:x-a".into()))),
        ("l", &[good[0], ("route", "/a"), good[2]], 1, of_key(BadPart("route".into()))),
        ("p", &[("path", "/a%2Fb")], 1, of_key(BadPart("path".into()))),
        ("h", &[("host", "a b")], 1, of_key(BadPart("host".into()))),
        ("c", &[], 1, InFlight),
        ("c", &[("ip", "::1")], 1, of_key(UnknownPart("ip".into()))),
    ] {
        assert_eq!(spend(gate, live, limit, key, units, now), Err(error), "{limit} {key:?} {units}");
    }
    assert!(live.states.iter().all(|state| state.table.is_empty()));
    assert_eq!(spend(gate, live, "l", &good, 10, now).unwrap().remaining, Some(0));
}

#[tokio::test(start_paused = true)]
async fn overrides_and_plans_have_their_own_numbers() {
    let gate = new_gate();
    let rule = |burst| Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: ns("1s") }, burst).unwrap());
    let allowed = Allowed {
        plans: vec![("premium".into(), Some(rule(100))), ("free".into(), None)],
        overrides: vec![("vip".into(), Some(rule(1000)))],
        ..Allowed::to_all(rule(10))
    };
    let part = KeyPart::Header(HeaderName::from_static("x-a"), Repeated::Reject);
    let live = install(gate, [Limit { allowed, ..of("l", vec![part]) }], CAPS);
    let now = gate.clock.now();
    for (who, plan, remaining) in [
        ("a", None, Some(9)),
        ("b", Some("premium"), Some(99)),
        ("c", Some("unknown"), Some(9)),
        ("d", Some("free"), None),
        ("vip", None, Some(999)),
        ("vip", Some("premium"), Some(998)),
    ] {
        let key = pairs_of(&[("header:x-a", who)]);
        let balance = gate.spend(live, Spend { limit: "l", key: &key, plan, units: 1 }, now).unwrap();
        assert_eq!(balance.remaining, remaining, "{who} {plan:?}");
    }
}
