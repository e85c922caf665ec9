//! `[grpc]`: the listener, and the rules that map checks and descriptors to limits.

use super::{UPSTREAM, compile};
use crate::engine::policy::descriptors::{Descriptors, Entry};

const LIMITS: &str = "
[[limit]]
name = 'sellers'
key = ['name:seller', 'name:method']
rate = '10/s'
[[limit]]
name = 'basket'
key = ['header:X-Seller']
rate = '10/s'
plans = { gold = { rate = '20/s' } }
[[limit]]
name = 'addresses'
key = ['ip']
rate = '10/s'
[[limit]]
name = 'flights'
key = ['ip']
algorithm = 'concurrency'
max = 3
[[limit]]
name = 'windows'
key = ['ip']
rate = '10/s'
algorithm = 'sliding_window'
[[limit]]
name = 'pairs'
key = ['ip']
rate = ['10/s', '20/min']
algorithm = 'sliding_window'
on_full = 'reject'
[[limit]]
name = 'accepting'
key = ['ip']
rate = '10/s'
algorithm = 'fixed_window'
on_full = 'reject'
";

fn of(grpc: &str) -> String {
    format!("[grpc]\nlisten = '127.0.0.1:8081'\n{grpc}\n{LIMITS}{UPSTREAM}")
}

fn descriptors(grpc: &str) -> Descriptors {
    compile(&of(grpc)).unwrap_or_else(|error| panic!("{grpc}: {error}")).policy.descriptors
}

/// The limits of a rule and the texts of their keys.
fn mapped(rules: &Descriptors, domain: &str, entries: &[Entry<'_>]) -> Option<String> {
    let rule = if domain.is_empty() { rules.of_check(entries) } else { rules.of_domain(domain, entries) }?;
    let text = |mapped: &crate::engine::policy::descriptors::MappedLimit| {
        let parts: Vec<_> = mapped.parts.iter().map(|part| part.text(entries)).collect();
        format!("{}:{}", mapped.limit, parts.join("|"))
    };
    let plan = rule.plan.as_ref().map(|plan| format!(" plan={}", plan.text(entries))).unwrap_or_default();
    Some(rule.limits.iter().map(text).collect::<Vec<_>>().join(" ") + &plan)
}

#[test]
fn checks_and_descriptors_meet_limits() {
    let rules = descriptors(
        "[[grpc.check]]
         scope = 'reports'
         method = ['csv', 'xls']
         limits = { basket = { 'header:x-seller' = '{actor}' } }
         [[grpc.check]]
         scope = 'reports'
         limits = { sellers = { 'name:method' = '/{method}', 'name:seller' = '{actor}' }, basket = { 'header:x-seller' = '{actor}' } }
         [[grpc.check]]
         limits = {}
         [[grpc.descriptor]]
         domain = 'edge'
         entries = [{ key = 'generic_key', value = 'login' }, { key = 'remote_address' }]
         limits = { addresses = { ip = '{remote_address}' } }
         [[grpc.descriptor]]
         domain = 'edge'
         entries = [{ key = 'seller' }, { key = 'tier' }]
         plan = '{tier}'
         limits = { basket = { 'header:x-seller' = '{seller}' } }",
    );
    let check = |actor, scope, method| mapped(&rules, "", &[("actor", actor), ("scope", scope), ("method", method)]);
    assert_eq!(check("7", "reports", "csv").as_deref(), Some("1:7"));
    assert_eq!(check("7", "reports", "new").as_deref(), Some("0:7|/new 1:7"));
    assert_eq!(check("7", "", "").as_deref(), Some(""));
    for (domain, entries, expected) in [
        ("edge", &[("generic_key", "login"), ("remote_address", "192.0.2.1")][..], Some("2:192.0.2.1")),
        ("edge", &[("generic_key", "logout"), ("remote_address", "192.0.2.1")], None),
        ("edge", &[("generic_key", "login")], None),
        ("other", &[("generic_key", "login"), ("remote_address", "192.0.2.1")], None),
        ("edge", &[("seller", "7"), ("tier", "gold")], Some("1:7 plan=gold")),
    ] {
        assert_eq!(mapped(&rules, domain, entries).as_deref(), expected, "{domain} {entries:?}");
    }
}

#[test]
fn the_listener() {
    let listen = |lines: &str| {
        let config = compile(&format!("[grpc]\n{lines}\n[[grpc.check]]\nlimits = {{}}\n{UPSTREAM}"));
        config.map(|config| config.grpc.unwrap())
    };
    let grpc = listen("listen = '127.0.0.1:8081'").unwrap();
    assert_eq!((grpc.listener.max_connections, grpc.listener.has_tls), (1000, false));
    let settings = grpc.settings;
    assert_eq!((settings.max_streams, settings.max_message_bytes), (1000, 256 << 10));
    assert!(settings.profiles.unwrap().x_ratelimit && settings.tls.is_none());
    assert!(listen("listen = '127.0.0.1:8081'\nheaders = false").unwrap().settings.profiles.is_none());
    for (lines, expected) in [
        ("listen = 'unix:/run/weir/checks.sock'", None),
        ("listen = '[::1]:8081'", None),
        ("listen = '0.0.0.0:8081'\ninsecure = true", None),
        ("", Some("`grpc.listen` is missing")),
        ("listen = '0.0.0.0:8081'", Some("without a certificate, and spend the units of any client")),
        ("listen = '127.0.0.1:8080'", Some("`grpc.listen` and `server.listen` have an address in common")),
        ("listen = '127.0.0.1:9901'", Some("`admin.listen` and `grpc.listen` have an address in common")),
        ("listen = '127.0.0.1:8081'\nmax_streams = 0", Some("`grpc.max_streams`")),
        ("listen = '127.0.0.1:8081'\nlimit = {}", Some("unknown key `limit`")),
    ] {
        match (listen(lines), expected) {
            (Ok(_), None) => {}
            (Err(found), Some(expected)) => assert!(found.to_string().contains(expected), "{lines}: {found}"),
            (found, expected) => panic!("{lines}: {expected:?} {found:?}"),
        }
    }
}

/// Each error stands at its text.
#[test]
fn rules_that_do_not_fit() {
    for (rule, at, expected) in [
        ("[[grpc.check]]", "3:1", "`grpc.check.limits` is missing"),
        ("[[grpc.check]]\nlimits = { seller = {} }", "4:12", "there is no limit `seller`"),
        ("[[grpc.check]]\nlimits = { flights = { ip = '{actor}' } }", "4:12", "`flights` counts requests in flight"),
        ("[[grpc.check]]\nlimits = { addresses = {} }", "4:12", "the key of `addresses` needs `ip`"),
        ("[[grpc.check]]\nlimits = { addresses = { ip = 'here' } }", "4:31", "`here` is not an address"),
        ("[[grpc.check]]\nlimits = { addresses = { ip = '{actro}' } }", "4:31", "there is no entry `actro`"),
        ("[[grpc.check]]\nlimits = { addresses = { ip = '{actor' } }", "4:31", "a brace has no counterpart"),
        ("[[grpc.check]]\nlimits = { addresses = { ip = 1 } }", "4:31", "expected a string"),
        ("[[grpc.check]]\nlimits = { addresses = { ip = '{actor}', path = '' } }", "4:42", "`addresses` has no `path`"),
        ("[[grpc.check]]\nactor = '7'\nlimits = {}", "4:1", "unknown key `actor`"),
        ("[[grpc.check]]\nmethod = ''\nlimits = {}", "4:10", "not empty"),
        ("[[grpc.check]]\nlimits = {}\n[[grpc.check]]\nscope = 'a'\nlimits = {}", "5:1", "this table is never used"),
        ("[[grpc.descriptor]]\ndomain = 'a'\nlimits = {}", "3:1", "`grpc.descriptor.entries` is missing"),
        ("[[grpc.descriptor]]\ndomain = 'a'\nentries = []\nlimits = {}", "5:11", "at least one entry"),
        ("[[grpc.descriptor]]\nentries = [{ key = 'a' }]\nlimits = {}", "3:1", "`grpc.descriptor.domain` is missing"),
        (
            "[[grpc.descriptor]]\ndomain = 'a'\nentries = [{ key = 'a' }]\nlimits = {}\naccept_limit = true",
            "7:16",
            "replaces the rate of one limit, and this table has 0",
        ),
        (
            "[[grpc.descriptor]]\ndomain = 'a'\nentries = [{ key = 'a' }, { key = 'a' }]\nplan = '{a}'\nlimits = {}",
            "6:8",
            "several entries are named `a`",
        ),
    ] {
        let found = compile(&of(rule)).expect_err(rule).to_string();
        assert!(found.contains(expected), "{rule}: {found}");
        assert!(found.contains(&format!("weir.toml:{at}\n")), "{rule}: {found}");
    }
}

#[test]
fn limits_that_accept_another_rate() {
    let split = "[fleet]\nstrategy = 'split'\nreplicas = 2\n";
    for (fleet, limit, expected) in [
        ("", "accepting", None),
        ("", "windows", Some("past `max_keys`, the keys of `windows` are not counted by their own rates")),
        (
            "",
            "addresses",
            Some("replaces the rate of a window, and `addresses` has another algorithm or several rates"),
        ),
        ("", "pairs", Some("replaces the rate of a window, and `pairs` has another algorithm or several rates")),
        (split, "accepting", Some("`accepting` is shared with other replicas, which do not know the `limit`")),
    ] {
        let rule = format!(
            "[[grpc.descriptor]]\ndomain = 'a'\nentries = [{{ key = 'a' }}]\n\
             limits = {{ {limit} = {{ ip = '{{a}}' }} }}\naccept_limit = true\n{fleet}"
        );
        match (compile(&of(&rule)), expected) {
            (Ok(config), None) => assert!(config.policy.descriptors.domains[0].1.accepts_limit),
            (Err(found), Some(expected)) => {
                let found = found.to_string();
                assert!(found.contains(expected) && found.contains("weir.toml:7:16\n"), "{limit}: {found}");
            }
            (found, expected) => panic!("{limit}: {expected:?} {found:?}"),
        }
    }
}

#[test]
fn a_service_for_callers_alone_needs_no_upstream() {
    let grpc = format!("[grpc]\nlisten = '127.0.0.1:8081'\n[[grpc.check]]\nlimits = {{}}\n{LIMITS}");
    let config = compile(&grpc).unwrap();
    assert!(config.fixed.listen.is_empty() && config.proxy.upstreams.is_empty());
    assert!(compile(&format!("{grpc}\n[server]\nlisten = '127.0.0.1:8080'")).is_err());
}

#[test]
fn a_limit_that_no_caller_meets_is_a_warning() {
    let config = compile(&of("[[grpc.check]]\nlimits = {}")).unwrap();
    let warnings = config.warnings.to_string();
    assert!(warnings.contains("limit `sellers` never applies: requests have no `name:` parts"), "{warnings}");
}
