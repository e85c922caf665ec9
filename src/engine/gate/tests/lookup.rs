//! Keys by the names of their parts: the text of an override, and the shown parts.

use http::HeaderName;

use super::*;
use crate::engine::gate::lookup::KeyError::{self, BadPart, Bar, MissingPart, OneForAll, UnknownLimit, UnknownPart};
use crate::engine::policy::{IdentitySource, OnMissing, PathPattern, Repeated};

fn of(name: &str, key: Vec<KeyPart>) -> Limit {
    let every = limit(name, 10, "1s", 10, OnLimit::Reject);
    Limit { matches: Match::default(), key, ..every }
}

fn live(gate: &Gate) -> Live {
    let header = |name: &'static str| KeyPart::Header(HeaderName::from_static(name), Repeated::Reject);
    let rule = limit("x", 1, "1s", 1, OnLimit::Reject).allowed.usual;
    let overrides = vec![("2001:db8::1".into(), Some(rule.clone()))];
    let mut routed = of("routed", vec![KeyPart::Route, KeyPart::Method]);
    routed.matches.paths = vec![PathPattern::parse("/a/{*rest}").unwrap()];
    let limits = vec![
        Limit { allowed: Allowed { overrides, ..Allowed::to_all(rule) }, ..of("ip", vec![KeyPart::Ip]) },
        of("two", vec![KeyPart::Path, header("x-a")]),
        of("host", vec![KeyPart::Host]),
        of("all", Vec::new()),
        of("seller", vec![KeyPart::Identity(0)]),
        of("cookie", vec![KeyPart::Cookie("c".into(), Repeated::Reject)]),
        routed,
    ];
    let seller = Identity {
        name: "seller".into(),
        source: IdentitySource::Header(HeaderName::from_static("x-seller"), Repeated::Reject),
        on_missing: OnMissing::Ip,
        is_plain: false,
    };
    gate.install(policy(limits, vec![seller]), CAPS, 10)
}

#[tokio::test(start_paused = true)]
async fn every_key_has_its_text() {
    let gate = new_gate();
    let live = live(gate);
    let good = |text: &str| -> Result<String, KeyError> { Ok(text.to_owned()) };
    for (limit, parts, text) in [
        ("ip", &[("ip", "192.0.2.7")][..], good("192.0.2.7")),
        // The text that the configuration has already.
        ("ip", &[("ip", "2001:db8::ffff")], good("2001:db8::1")),
        ("ip", &[("ip", "192.0.2.300")], Err(BadPart("ip".into()))),
        ("two", &[("header:X-A", "k"), ("path", "//a/./b")], good("/a/b|k")),
        ("two", &[("header:x-a", "a|b"), ("path", "/a")], Err(Bar("header:x-a".into()))),
        ("two", &[("header:x-a", "a"), ("path", "/a|b")], good("/a%7Cb|a")),
        ("two", &[("path", "/a")], Err(MissingPart("header:x-a".into()))),
        ("host", &[("host", "Shop.Example:80")], good("shop.example")),
        ("seller", &[("seller", "a|b")], good("a|b")),
        ("seller", &[("ip", "::1")], Err(UnknownPart("ip".into()))),
        ("all", &[], Err(OneForAll)),
        ("all", &[("ip", "::1")], Err(UnknownPart("ip".into()))),
        ("none", &[], Err(UnknownLimit)),
        ("routed", &[("method", "GET"), ("route", "/a/{*rest}")], good("/a/{*rest}|GET")),
        ("routed", &[("method", "GET"), ("route", "/b")], Err(BadPart("route".into()))),
    ] {
        let named: Vec<_> = parts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(gate.key_text(&live, limit, &named), text, "{limit} {parts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_that_is_no_key_is_masked_as_a_whole() {
    let gate = new_gate();
    let live = live(gate);
    let hash = |text: &str| format!("#{:08x}", gate.secret.fingerprint(text.as_bytes()));
    let masked = |text: &str| format!("{}..{}", &text[..4], hash(text));
    let secret = "sk-0123456789";
    for (limit, text, shown) in [
        ("ip", "192.0.2.7", Ok(vec![("ip", "192.0.2.7".to_owned())])),
        ("two", "/a|sk-0123456789", Ok(vec![("path", "/a".to_owned()), ("header:x-a", masked(secret))])),
        ("seller", secret, Ok(vec![("seller", masked(secret))])),
        ("cookie", secret, Ok(vec![("cookie:c", hash(secret))])),
        ("routed", "/a/{*rest}|GET", Ok(vec![("route", "/a/{*rest}".to_owned()), ("method", "GET".to_owned())])),
        // A text that was a key of an older policy.
        ("ip", secret, Err(masked(secret))),
        ("two", secret, Err(masked(secret))),
        ("two", "sk-0123456789|/a", Err(masked("sk-0123456789|/a"))),
        ("routed", "/a/{*rest}|sk-0", Err(masked("/a/{*rest}|sk-0"))),
        ("all", secret, Err(masked(secret))),
        ("none", secret, Err(masked(secret))),
    ] {
        let shown =
            shown.map(|parts| parts.into_iter().map(|(name, text)| (name.to_owned(), text)).collect::<Vec<_>>());
        assert_eq!(gate.shown_key(&live, limit, text), shown, "{limit} {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn verified_tokens_can_outlive_a_policy() {
    let gate = new_gate();
    let live = live(gate);
    let claimed = crate::engine::policy::jwt::Claimed { value: "a".into(), plan: None };
    live.tokens.insert(gate.secret.token(0, b"token"), claimed, None, gate.clock.now());
    let kept = gate.install_with(policy(Vec::new(), Vec::new()), CAPS, Arc::clone(&live.tokens), &[]);
    assert!(kept.tokens.find(gate.secret.token(0, b"token"), gate.clock.now()).is_some());
    assert!(gate.install(policy(Vec::new(), Vec::new()), CAPS, 10).tokens.is_empty());
}
