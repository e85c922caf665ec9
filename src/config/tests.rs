//! Configurations that are wrong, and what is said about each; one that is right, and what it becomes.
// The tables are long, and whether a row holds a quotation mark is of no interest.
#![allow(clippy::too_many_lines, clippy::needless_raw_string_hashes)]

mod access;
mod acme;
mod adapt;
mod adaptive;
mod admin;
mod candidates;
mod checks;
mod effective;
mod fair_share;
mod fetched;
mod fleet;
mod grpc;
mod identities;
mod json_schema;
mod limiters;
mod limits;
mod list_files;
mod obedient;
mod on_limit;
mod overrides;
mod priority;
mod ramps;
mod rules;
mod server;
mod snapshot;
mod stale;
mod stores;
mod syntax;
mod takeover;
mod tls;
mod upstreams;
mod values;
mod warnings;
mod written_files;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::{Config, DEFAULT_LIMIT, Diagnostics};
use crate::base::telemetry::{AccessLog, LogFormat};
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Algorithm, OnFull, Quota, Rate};
use crate::engine::policy::KeyPart;
use crate::engine::policy::client_ip::AddressHeader;
use crate::engine::policy::{
    Cost, DelayRule, HeaderTest, HoldRule, HostPattern, IdentitySource, Mode, Networks, OnLimit, OnMissing,
    RefusalAnswer, Repeated, Stage,
};
use crate::engine::store::Usage;
use crate::transport::net::ListenAddress;
use crate::transport::net::Timeouts;
use crate::transport::net::pace::MinRate;

const UPSTREAM: &str = "[upstream]\nurl = \"http://127.0.0.1:9000\"\n";

fn compile(text: &str) -> Result<Config, Diagnostics> {
    let env = |name: &str| match name {
        "WEIR_JWT_SECRET" | "WEIR_ADMIN_TOKEN" => Some("0123456789abcdef0123456789abcdef".to_owned()),
        "WEIR_FLEET_SECRET" | "REDIS_PASSWORD" => Some("0123456789abcdef0123456789ABCDEF".to_owned()),
        "SHORT" => Some("hunter2".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    super::compile(text, "weir.toml", Path::new("config"), &env)
}

/// The problems with `text`, to which an upstream is added if it names none.
fn problems(text: &str) -> Diagnostics {
    let text =
        if text.contains("upstream") || text == "[server]" { text.to_owned() } else { format!("{text}\n{UPSTREAM}") };
    let problems = compile(&text).expect_err("this is wrong");
    let said = problems.to_string();
    assert!(!said.contains("hunter2"), "{said}");
    problems
}

/// The problems with `text` as a user reads them.
fn said(text: &str) -> String {
    problems(text).to_string()
}

/// The problems with `text`, each in a line or two: see `Diagnostics::brief`.
fn brief(text: &str) -> String {
    problems(text).brief()
}

fn bucket(count: u64, period_ns: u64, burst: u64) -> Algorithm {
    Algorithm::TokenBucket(Quota::new(Rate { count, period_ns }, burst).unwrap())
}

#[test]
fn problems_come_in_the_order_of_the_text() {
    let text = "[log]\nlevel = 1\n[server]\nx = 1\nworkers = 0\n[admin]\nlisten = ''\n[upstream]\nurl = ''\n";
    let problems = compile(text).unwrap_err();
    let said = problems.to_string();
    let lines: Vec<_> = said.lines().filter_map(|line| line.split("weir.toml:").nth(1)).collect();
    assert_eq!(lines, ["2:9", "4:1", "5:11", "7:10", "9:7"]);
    assert_eq!(problems.iter().count(), problems.len());
}

#[test]
fn no_secret_is_ever_shown() {
    for text in [
        "[identity.a]\njwt = { keys = [{ secret = 'hunter2', x = 1 }] }",
        "[identity.a]\njwt = { keys = [{ sercet = 'hunter2' }] }",
        "[identity.a]\njwt = { keys = [{ secret = { value = 'hunter2' } }] }",
        "[identity.a]\njwt = { keys = [{ secret = { env = ['hunter2'] } }] }",
        "[identity.a]\njwt = { keys = [{ secret = { env = 'SHORT', file = 1 } }] }",
        "[identity.a]\njwt = { keys = ['hunter2'], claim = 1 }",
        "[identity.a]\njwt = { keys = [{ pem = \"\"\"-----BEGIN\nhunter2\"\"\" }] }",
        "[identity.a]\njwt = 'hunter2'",
        "[identity]\na = 'hunter2'",
        "[identity.a]\nsecret = 'hunter2'",
        "[server]\napi_token = 'hunter2'",
        "[identity.a]\njwt = { keys = [{ secret = 'hunter2 }] }",
        "[identity.a]\njwt = { keys = [{ secret = \"\"\"\nhunter2",
        "[identity.a]\njwt = { keys = [{ secret : hunter2, secret = hunter2 }] ",
        "[identity.a]\njwt = { keys = [{ secret = { env = 'SHORT' }, secret = 'hunter2' }] }",
        "[identity.a]\njwt = { keys = [{ sercet = 'hunter2 }] }",
        "[identity.a]\njwt = { keys = [{ secret \"hunter2\" }] }",
        "[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\nmatch = { header = { authorization = 'hunter2' }, x = 1 }",
        "upstream = { url = 'http://a:hunter2@b', x = 1 }",
        "upstream = { url = 'http://a:hunter2@b/c', x = 1 }",
        "upstream = { url = 'a:hunter2@b' }",
    ] {
        let said = compile(text).expect_err(text).to_string();
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn what_is_not_written_has_its_default() {
    let config = compile(UPSTREAM).unwrap();
    let limit = &config.policy.limits()[0];
    assert_eq!(config.policy.limits().len(), 1);
    assert_eq!((&*limit.name, limit.stage, limit.mode), ("per-path", Stage::Identified, Mode::Enforce));
    assert!(matches!(limit.cost, Cost::Units(1)));
    assert_eq!(limit.key, [KeyPart::Path]);
    assert_eq!(limit.allowed.usual, bucket(100, 60_000_000_000, 100));
    assert_eq!(limit.on_limit, OnLimit::Hold(HoldRule { max_wait_ns: None, max_waiting: 1000 }));
    assert_eq!(limit.max_keys, 1_000_000);
    assert_eq!(config.fixed.listen, [ListenAddress::Tcp("127.0.0.1:8080".parse().unwrap())]);
    assert!(config.fixed.workers >= 1);
    assert_eq!(config.admin.listen, Some(ListenAddress::Tcp("127.0.0.1:9901".parse().unwrap())));
    let Timeouts { total, min_send, min_read, .. } = config.proxy.timeouts;
    let rate = MinRate { bytes_per_s: 240, window: Duration::from_secs(30) };
    assert_eq!((total, min_send, min_read), (None, Some(rate), Some(rate)));
    assert_eq!(config.proxy.bounds.max_head_bytes, 32 << 10);
    assert!(
        !config.proxy.upstreams[0].rewrite_host
            && config.policy.free_preflights == Some(bucket(50, 1_000_000_000, 50))
            && config.policy.identities.is_empty()
    );
    assert_eq!(config.sources.paths().count(), 0);
    assert!(compile(&format!("{DEFAULT_LIMIT}{UPSTREAM}")).is_ok());
    let with_none = compile(&format!("limit = []\n{UPSTREAM}")).unwrap();
    assert_eq!(with_none.policy.limits().len(), 1);
}

#[test]
fn a_full_configuration_becomes_what_it_says() {
    let config = compile(&std::fs::read_to_string("config/full.toml").unwrap()).unwrap();
    assert_eq!(config.fixed.listen.len(), 2);
    assert_eq!((config.fixed.workers, config.fixed.max_connections), (4, Some(10_000)));
    assert_eq!(config.fixed.shutdown_grace, Duration::from_secs(30));
    assert_eq!(config.proxy.upstreams[0].endpoints[0].to_string(), "http://127.0.0.1:9000");
    assert_eq!(config.proxy.timeouts.keep_alive, Duration::from_secs(75));
    assert_eq!(config.proxy.bounds.max_h2_streams, 128);
    assert!(config.proxy.profiles.x_ratelimit && config.proxy.profiles.ietf && !config.proxy.profiles.github);
    let Usage { count, bytes } = config.hold.all;
    assert_eq!((count, bytes, config.max_tokens), (10_000, 64 << 20, 10_000));
    assert_eq!(config.hold.per_client, Usage { count: 2000, bytes: 16 << 20 });
    assert_eq!(config.proxy.bounds.max_per_ip, 2000);
    assert_eq!((config.log.format, config.log.access.requests), (LogFormat::Auto, AccessLog::Off));
    assert_eq!(config.policy.client_ip.trusted.len(), 2);
    assert_eq!(config.sources.paths().count(), 3);

    let identities: Vec<_> =
        config.policy.identities.iter().map(|identity| (&*identity.name, identity.on_missing)).collect();
    assert_eq!(identities, [("seller", OnMissing::Reject), ("partner", OnMissing::Reject), ("api_key", OnMissing::Ip)]);
    assert!(
        matches!(&config.policy.identities[1].source, IdentitySource::Jwt { header, .. } if header == "x-partner-token")
    );
    assert!(
        matches!(&config.policy.identities[2].source, IdentitySource::Header(header, Repeated::Reject) if header == "x-api-key")
    );

    let [_, per_ip, _, _, _, slowed, reports, search, ..] = config.policy.limits() else { panic!("several limits") };
    assert!(matches!(slowed.on_limit, OnLimit::Delay(_)) && reports.ban.is_some());
    assert_eq!(
        (per_ip.stage, per_ip.on_limit, per_ip.allowed.usual.capacity()),
        (Stage::Arrival, OnLimit::Reject, 100)
    );
    assert_eq!(per_ip.except.networks, Networks::from_iter(["192.0.2.0/24".parse().unwrap()]));
    assert_eq!(reports.allowed.usual, bucket(10, 120_000_000_000, 20));
    assert!(matches!(&search.allowed.usual, Algorithm::Several(rules) if rules.len() == 2));
    assert_eq!((search.allowed.plans.len(), search.allowed.overrides.len(), search.cost.max()), (3, 3, 10));
    assert_eq!(reports.key[..4], [KeyPart::Identity(0), KeyPart::Identity(1), KeyPart::Identity(2), KeyPart::Route]);
    assert_eq!(
        reports.key[6..8],
        [KeyPart::Header("x-team".parse().unwrap(), Repeated::Reject), KeyPart::Query("shop".into(), Repeated::Reject)]
    );
    assert_eq!(reports.matches.paths.len(), 3);
    let hosts = [HostPattern::Exact("api.example.com".into()), HostPattern::Below(".shops.example.com".into())];
    assert_eq!(reports.matches.hosts, hosts);
    assert_eq!(reports.matches.headers[0].1, HeaderTest::Is("full".parse().unwrap()));
    assert_eq!(reports.matches.headers[1].1, HeaderTest::Present);
    assert!(matches!(&reports.matches.headers[2].1, HeaderTest::Matches(regex) if regex.as_str() == "(?i)bot"));
    assert_eq!((reports.matches.path_regexes.len(), reports.matches.networks.iter().len()), (2, 1));
}

proptest! {
    #[test]
    fn arbitrary_text_is_no_reason_to_panic(text in "(?s).{0,200}") {
        let _ = compile(&text).map_err(|problems| problems.to_string());
    }

    #[test]
    fn text_in_the_alphabet_of_toml_neither(text in "(\\[\\[limit\\]\\]|\\[server\\]|key|rate|listen|secret|[\\[\\]{}=,.'\"#\n\r é1-])*") {
        let _ = compile(&text).map_err(|problems| problems.to_string());
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))] // each takes 150 ms in a debug build

    /// The fuzz target `config` tries more.
    #[test]
    fn nor_is_a_mutated_configuration(at in any::<prop::sample::Index>(), length in 0_usize..40, instead in "[\\[\\]{}=,.'\"#\na0é-]{0,5}") {
        let mut text = include_str!("../../config/full.toml").to_owned();
        let at = at.index(text.len());
        let start = text.floor_char_boundary(at);
        let end = text.floor_char_boundary(at + length);
        text.replace_range(start..end, &instead);
        let _ = compile(&text).map_err(|problems| problems.to_string());
    }

}

proptest! {
    #[test]
    fn no_mutation_brings_a_secret_to_light(at in 0_usize..140, length in 0_usize..8, instead in "[\\[\\]{}=,.'\"#\na0é-]{0,5}") {
        let before = "[identity.a]\non_missing = 'ip'\n[identity.a.jwt]\nclaim = 'x'\nkeys = [{ jwks = 'a' }, { secret = '";
        let text = format!("{before}hunter2' }}]\nalgorithms = ['HS256']\nheader = 'x-a'\n{UPSTREAM}");
        // The secret itself stays whole.
        let at = if (before.len()..before.len() + 7).contains(&at) { before.len() + 7 } else { at };
        let end = if at < before.len() { before.len().min(at + length) } else { at + length };
        let mutated = format!("{}{instead}{}", &text[..at], &text[end..]);
        if let Err(problems) = compile(&mutated) {
            prop_assert!(!problems.to_string().contains("hunter2"), "{mutated}\n{problems}");
        }
    }
}
