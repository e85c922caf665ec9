//! Rules that follow the members of a fleet and the wall clock.

use std::sync::Arc;

use super::super::client_ip::{AddressHeader, ClientIpRules, Prefixes};
use super::super::ramp::Ramp;
use super::super::testing::limit;
use super::super::{Allowed, Limit, Policy, Strategy, WrittenRule};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Quota, Rate, Scale, adaptive_rate};

fn at(s: u64) -> Timestamp {
    Timestamp::from_ns(s * 1_000_000_000)
}

/// A ramp that begins at 10 s and has a step every 10 s.
fn ramp(steps: u64, (numerator, denominator): (u64, u64)) -> Ramp {
    let begins = (1..=steps + 1).map(|step| at(10 * step)).collect();
    Ramp::new(begins, Scale { numerator, denominator }, None).unwrap()
}

/// A bucket of 100 a second with a ramp, and one of 100 a second without.
fn policy(ramp: Ramp, strategy: Strategy, members: Option<u64>) -> Policy {
    let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 100, period_ns: 1_000_000_000 }, 100).unwrap());
    let mut allowed = Allowed::to_all(rule.clone());
    allowed.plans = vec![("big".into(), Some(rule.scaled(Scale { numerator: 10, denominator: 1 }).unwrap()))];
    allowed.overrides = vec![("free".into(), None)];
    allowed.written.usual = WrittenRule { rates: ["100/s".into()].into(), rest: ", token bucket".into() };
    let with = Limit { allowed, ramp: Some(Arc::new(ramp)), strategy, ..limit("with", &[]) };
    let without = Limit { allowed: Allowed::to_all(rule), strategy, ..limit("without", &[]) };
    let client_ip =
        ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() };
    Policy::new(vec![with, without], Vec::new(), client_ip).shared_by(members)
}

fn capacities(policy: &Policy) -> Vec<u64> {
    policy.limits().iter().flat_map(|limit| limit.allowed.rules().map(Algorithm::capacity)).collect()
}

/// All numbers of the limit follow the clock in both directions, and no others do.
#[test]
fn a_policy_follows_the_clock() {
    let whole = policy(ramp(4, (0, 1)), Strategy::Local, None);
    assert_eq!(whole.next_step(at(0)), Some(at(10)));
    assert!(whole.ramped(at(9)).is_none());
    let mut now = whole.ramped(at(10)).unwrap();
    for (s, expected, text) in [
        (20, [75, 750, 100], "x0.75 of 100/s, token bucket"),
        (40, [25, 250, 100], "x0.25 of 100/s, token bucket"),
        (30, [50, 500, 100], "x0.5 of 100/s, token bucket"),
        (60, [0, 0, 100], "x0 of 100/s, token bucket"),
        (0, [100, 1000, 100], "100/s, token bucket"),
    ] {
        now = now.ramped(at(s)).unwrap();
        assert_eq!(capacities(&now), expected, "{s}");
        let with = &now.limits()[0].allowed;
        assert_eq!(with.written.usual.text(None).unwrap(), text);
        assert_eq!(with.overrides[0].1, None, "no limit");
        assert!(now.ramped(at(s)).is_none(), "{s}");
    }
    assert_eq!(whole.ramped(at(60)).unwrap().next_step(at(60)), None);
}

/// A share is a part of the ramped rule, in whatever order the replicas and the clock change.
#[test]
fn ramped_limits_are_shared() {
    let whole = policy(ramp(4, (0, 1)), Strategy::Split(4), Some(4));
    assert_eq!(capacities(&whole), [25, 250, 25]);
    let half = whole.ramped(at(30)).unwrap();
    assert_eq!((capacities(&half), half.members()), (vec![12, 125, 25], Some(4)));
    assert_eq!(capacities(&half.resized(2).unwrap()), [25, 250, 50]);
    assert_eq!(capacities(&whole.resized(2).unwrap().ramped(at(30)).unwrap()), [25, 250, 50]);
    let zero = half.ramped(at(50)).unwrap();
    assert_eq!(capacities(&zero), [0, 0, 25]);
    assert_eq!(zero.resized(2).unwrap().scarce_limits().collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(half.members(), Some(4));
    let alone = policy(ramp(4, (0, 1)), Strategy::Local, Some(4));
    assert_eq!((alone.members(), capacities(&alone.ramped(at(30)).unwrap())), (None, vec![50, 500, 100]));
    assert!(alone.resized(2).is_none());
}

/// Each replica adapts its share: the part is of the whole rule, whatever changes first. Other limits stay as they are.
#[test]
fn adapted_limits_are_shared() {
    let rule = adaptive_rate::Rule { signal: adaptive_rate::Signal::Cpu, target: 800, floor: 200, ceiling: 500 };
    let follows = |limit: &Limit| limit.ramp.is_none();
    let whole = policy(ramp(4, (0, 1)), Strategy::Split(4), None);
    let adapt = |limit: &Limit| follows(limit).then_some(rule);
    let adapted = |limit: &Limit| if follows(limit) { 500 } else { adaptive_rate::WHOLE };
    let limits = whole.limits().iter();
    let limits = limits.map(|limit| Limit { adapt: adapt(limit), adapted: adapted(limit), ..limit.clone() });
    let whole = Policy::new(limits.collect(), Vec::new(), whole.client_ip.clone());
    assert!(!policy(ramp(4, (0, 1)), Strategy::Local, None).adapts());
    let whole = whole.shared_by(Some(4));
    assert_eq!((whole.adapts(), capacities(&whole)), (true, vec![25, 250, 12]));
    let part = |part: u64| move |_: usize, _: &Limit| Some(part);
    assert!(whole.adapted(part(500)).is_none() && whole.adapted(|_, _| None).is_none());
    let low = whole.adapted(part(200)).unwrap();
    assert_eq!(capacities(&low), [25, 250, 5]);
    assert_eq!(low.limits()[1].adapted, 200);
    assert_eq!(capacities(&low.resized(2).unwrap()), [50, 500, 10]);
    assert_eq!(capacities(&whole.resized(2).unwrap().adapted(part(200)).unwrap()), [50, 500, 10]);
    assert_eq!(capacities(&low.ramped(at(30)).unwrap()), [12, 125, 5]);
    assert_eq!(capacities(&low.adapted(part(1000)).unwrap()), [25, 250, 25]);
}
