//! Rows of denied and exempt requests, and a comparison with a linear search.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::base::fields::FieldBuf;
use crate::engine::policy::testing::facts;
use crate::engine::policy::{Except, Facts, Match, PathPattern, Principal};

const RULES: [AccessRule; 2] = [AccessRule::Allow, AccessRule::Deny];

fn networks(entries: &[(&str, AccessRule)]) -> Access {
    let networks = entries.iter().map(|(network, rule)| (network.parse().unwrap(), *rule)).collect();
    Access::new(AccessSpec { networks, ..AccessSpec::default() })
}

fn patterns(entries: &[(&str, AccessRule)]) -> Vec<(PathPattern, AccessRule)> {
    entries.iter().map(|(path, rule)| (PathPattern::parse(path).unwrap(), *rule)).collect()
}

fn parsed(paths: &[&str]) -> Vec<PathPattern> {
    paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect()
}

fn requirement(paths: &[&str], plans: &[&str]) -> Requirement {
    Requirement {
        matches: Match { paths: parsed(paths), ..Match::default() },
        plans: plans.iter().map(|&plan| plan.into()).collect(),
        ..Requirement::default()
    }
}

#[test]
fn the_longest_prefix_decides() {
    use AccessRule::{Allow, Deny};
    let access = networks(&[
        ("10.0.0.0/8", Deny),
        ("10.1.0.0/16", Allow),
        ("10.1.2.0/24", Deny),
        ("10.1.2.3/32", Allow),
        ("2001:db8::/32", Deny),
        ("2001:db8:1::/48", Allow),
        ("2001:db8:1::7/128", Deny),
        ("::ffff:192.0.2.0/120", Deny),
    ]);
    for (ip, rule) in [
        ("9.255.255.255", None),
        ("10.0.0.0", Some(Deny)),
        ("10.255.255.255", Some(Deny)),
        ("11.0.0.0", None),
        ("10.1.0.0", Some(Allow)),
        ("10.1.2.2", Some(Deny)),
        ("10.1.2.3", Some(Allow)),
        ("10.1.2.4", Some(Deny)),
        ("10.1.3.0", Some(Allow)),
        ("2001:db8::1", Some(Deny)),
        ("2001:db8:1::1", Some(Allow)),
        ("2001:db8:1::7", Some(Deny)),
        ("2001:db9::", None),
        // IPv4-mapped addresses are IPv4 addresses.
        ("192.0.2.255", Some(Deny)),
        ("192.0.3.0", None),
        ("::", None),
        ("::a01:203", None),
    ] {
        assert_eq!(access.by_address(ip.parse().unwrap()), rule, "{ip}");
    }
}

#[test]
fn a_prefix_of_length_zero_contains_its_address_family() {
    for (network, v4, v6) in [("0.0.0.0/0", true, false), ("::/0", false, true), ("::ffff:0.0.0.0/96", true, false)] {
        let access = networks(&[(network, AccessRule::Deny)]);
        let is_denied = |ip: &str| access.by_address(ip.parse().unwrap()).is_some();
        assert_eq!([is_denied("203.0.113.9"), is_denied("2001:db8::")], [v4, v6], "{network}");
    }
}

#[test]
fn the_most_specific_path_decides() {
    use AccessRule::{Allow, Deny};
    let paths =
        patterns(&[("/internal/{*rest}", Deny), ("/internal/health", Allow), ("/{any}/open", Allow), ("/a/{x}", Deny)]);
    for paths in [paths.clone(), paths.into_iter().rev().collect()] {
        let access = Access::new(AccessSpec { paths, ..AccessSpec::default() });
        for (path, rule) in [
            ("/", None),
            ("/internal", None),
            ("/internal/", Some(Deny)),
            ("/internal/x/y", Some(Deny)),
            ("/internal/health", Some(Allow)),
            ("/internal/health/", Some(Deny)),
            ("/internal/open", Some(Deny)),
            ("/b/open", Some(Allow)),
            ("/a/open", Some(Deny)),
            ("*", None),
        ] {
            assert_eq!(access.by_path(path), rule, "{path}");
        }
    }
}

#[test]
fn a_denial_precedes_a_permission() {
    use AccessRule::{Allow, Deny};
    let access = Access::new(AccessSpec {
        networks: vec![("192.0.2.0/24".parse().unwrap(), Deny), ("203.0.113.0/24".parse().unwrap(), Allow)],
        paths: patterns(&[("/deny", Deny), ("/allow", Allow)]),
        ..AccessSpec::default()
    });
    assert!(!access.looks_beyond_arrival());
    let (denied, allowed, other) = ("192.0.2.1", "203.0.113.1", "198.51.100.1");
    for (ip, path, expected) in [
        (denied, "/", Err(DenialReason::Address)),
        (denied, "/allow", Err(DenialReason::Address)),
        (denied, "/deny", Err(DenialReason::Address)),
        (allowed, "/", Ok(true)),
        (allowed, "/allow", Ok(true)),
        (allowed, "/deny", Err(DenialReason::Path)),
        (other, "/", Ok(false)),
        (other, "/allow", Ok(true)),
        (other, "/deny", Err(DenialReason::Path)),
    ] {
        assert_eq!(access.on_arrival(ip.parse().unwrap(), path), expected, "{ip} {path}");
    }
}

#[test]
fn identities_by_value() {
    let entry = |index, value: &str, rule| (index, value.into(), rule);
    let identities = vec![
        entry(2, "7", AccessRule::Deny),
        entry(0, "7", AccessRule::Allow),
        entry(2, "8", AccessRule::Allow),
        entry(3, "a,b", AccessRule::Deny),
    ];
    let access = Access::new(AccessSpec { identities, ..AccessSpec::default() });
    assert!(access.looks_beyond_arrival());
    assert_eq!(access.identities().collect::<Vec<_>>(), [2, 0, 3]);
    for (index, who, rule) in [
        (0, Principal::Bytes(b"7"), Some(AccessRule::Allow)),
        (2, Principal::Bytes(b"7"), Some(AccessRule::Deny)),
        (2, Principal::Claim(Arc::from("7")), Some(AccessRule::Deny)),
        (2, Principal::Claim(Arc::from("8")), Some(AccessRule::Allow)),
        (2, Principal::Bytes(b"77"), None),
        (2, Principal::Bytes(b""), None),
        (2, Principal::Bytes(b"\xFF"), None),
        // A value that a service may read as a denied value is denied; only the exact value is allowed.
        (2, Principal::Bytes(b" 7"), Some(AccessRule::Deny)),
        (2, Principal::Bytes(b"\xA07\x85"), Some(AccessRule::Deny)),
        (2, Principal::Bytes(b"8\xA0"), None),
        (2, Principal::Claim(Arc::from("7 ")), None),
        (3, Principal::Bytes(b"a, b"), Some(AccessRule::Deny)),
        (3, Principal::Bytes(b"a,b"), Some(AccessRule::Deny)),
        (3, Principal::Joined((*b"a ,b").into()), Some(AccessRule::Deny)),
        (3, Principal::Bytes(b"a"), None),
        (1, Principal::Bytes(b"7"), None),
        (2, Principal::Anonymous, None),
        (2, Principal::Ip, None),
    ] {
        assert_eq!(access.by_identity(index, &who), rule, "{index} {who:?}");
    }
}

#[test]
fn every_requirement_of_a_path_must_be_met() {
    let require = vec![
        requirement(&["/pro/{*rest}", "/reports"], &["premium", "internal"]),
        requirement(&["/pro/admin"], &["internal"]),
    ];
    let access = Access::new(AccessSpec { require, ..AccessSpec::default() });
    assert!(access.looks_beyond_arrival());
    let none = FieldBuf::default();
    for (path, free, premium, internal, without) in [
        ("/", true, true, true, true),
        ("/pro", true, true, true, true),
        ("/pro/", false, true, true, false),
        ("/reports", false, true, true, false),
        ("/pro/admin", false, false, true, false),
    ] {
        let facts = facts("a", path, &none);
        let passes = |plan: Option<&str>| access.required(&facts).iter().all(|one| one.is_met_by(plan));
        let found = [Some("free"), Some("premium"), Some("internal"), None].map(passes);
        assert_eq!(found, [free, premium, internal, without], "{path}");
        assert!(access.required(&facts).is_empty() || !passes(Some("")) && !passes(Some("Internal")));
    }
}

#[test]
fn a_requirement_is_for_the_methods_and_paths_that_it_names() {
    let matches = |paths: &[&str], methods| Match { paths: parsed(paths), methods, ..Match::default() };
    let require = vec![
        Requirement { matches: matches(&["/a/{*rest}", "/a/b"], vec![Method::POST]), ..Requirement::default() },
        Requirement {
            except: Except { paths: parsed(&["/login", "/public/{*rest}"]), ..Except::default() },
            ..Requirement::default()
        },
    ];
    let access = Access::new(AccessSpec { require, ..AccessSpec::default() });
    let none = FieldBuf::default();
    for (method, path, count) in [
        (Method::POST, "/a/b", 2),
        (Method::GET, "/a/b", 1),
        (Method::POST, "/login", 0),
        (Method::POST, "/login/", 1),
        (Method::GET, "/Login", 1),
        (Method::GET, "/public", 1),
        (Method::GET, "/public/", 0),
        (Method::GET, "/", 1),
        (Method::OPTIONS, "*", 1),
    ] {
        let facts = Facts { method: &method, ..facts("a", path, &none) };
        assert_eq!(access.required(&facts).len(), count, "{method} {path}");
    }
}

fn rule() -> impl Strategy<Value = AccessRule> {
    prop::sample::select(&RULES[..])
}

/// Networks that overlap, because they differ in few bits.
fn network() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<[bool; 4]>(), 0_u8..=32).prop_map(|(bits, prefix)| {
        let [a, b, c, d] = bits.map(u8::from);
        IpNet::new(IpAddr::from([a << 7, b << 7, c, d]), prefix).unwrap().trunc()
    });
    let v6 = (any::<[bool; 4]>(), 0_u8..=128).prop_map(|(bits, prefix)| {
        let [a, b, c, d] = bits.map(u16::from);
        IpNet::new(IpAddr::from([a << 15, 0, b << 8, c, 0, 0, 0, d]), prefix).unwrap().trunc()
    });
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn ranges_agree_with_a_linear_search(
        entries in prop::collection::hash_map(network(), rule(), 0..40),
        near in prop::collection::vec(network(), 1..20),
    ) {
        let access = Access::new(AccessSpec {
            networks: entries.iter().map(|(network, rule)| (*network, *rule)).collect(),
            ..AccessSpec::default()
        });
        for ip in near.iter().chain(entries.keys()).flat_map(|network| [network.addr(), network.broadcast()]) {
            // Client addresses are unmapped.
            let ip = ip.to_canonical();
            let holding = entries.iter().filter(|(network, _)| network.contains(&ip));
            let longest = holding.max_by_key(|(network, _)| network.prefix_len()).map(|(_, rule)| *rule);
            prop_assert_eq!(access.by_address(ip), longest, "{}", ip);
        }
    }
}
