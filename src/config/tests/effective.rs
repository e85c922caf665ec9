//! The configuration as operators read it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::*;
use crate::admin::{DifferenceBody, SettingBody};
use crate::config::effective::LISTS;
use crate::config::schema::{self, keys_of};
use crate::config::{InForce, Kind, OverridesPlace, Preset, SettingFilter, Written};

/// Words of the schema for options that have no value by default.
const NO_VALUE: [&str; 3] = ["none", "any", "all"];

/// Options whose default no answer shows, and the reason.
const NOT_SHOWN: &[(&str, &str)] = &[
    ("limit.ramp.step", "1000 equal steps have no duration that is an option"),
    ("fleet.advertise", "each connection to etcd shows the address"),
    ("fleet.members.dns", "an alternative to the other sources of members"),
    ("fleet.members.etcd", "an alternative to the other sources of members"),
    ("fleet.members.static", "an alternative to the other sources of members"),
    ("fleet.members.tls.ca", "the authorities of the system are no option"),
    ("server.tls.acme.ca", "the authorities of the system are no option"),
    ("store.NAME.cluster", "an alternative to the other kinds of stores"),
    ("store.NAME.etcd", "an alternative to the other kinds of stores"),
    ("store.NAME.service", "an alternative to the other kinds of stores"),
    ("store.NAME.tls.ca", "the authorities of the system are no option"),
    ("store.NAME.user", "the server of the store has a default user"),
    ("upstream.max_connections", "all upstreams share the file descriptors"),
    ("upstream.max_idle", "the number in use at once changes"),
    ("upstream.tls.ca", "the authorities of the system are no option"),
    ("upstream.tls.server_name", "each endpoint has the host of its URL"),
    ("upstreams.NAME.max_connections", "all upstreams share the file descriptors"),
    ("upstreams.NAME.max_idle", "the number in use at once changes"),
    ("upstreams.NAME.tls.ca", "the authorities of the system are no option"),
    ("upstreams.NAME.tls.server_name", "each endpoint has the host of its URL"),
];

/// Options with values on which the defaults of others depend.
const WRITTEN: [(&str, &str); 5] = [
    ("priority.rule.priority", "normal"),
    ("upstreams.NAME.balance", "hash"),
    ("limit.strategy.use", "redis"),
    ("fleet.strategy.use", "redis"),
    ("store.NAME.redis", "redis://a"),
];

/// The content of an inline table with the options that must be written. `has_tables` tells whether options that are a
/// word or a table are tables.
fn sparse(path: &str, has_tables: bool) -> String {
    let mut text = String::new();
    for key in keys_of(path) {
        let below = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let option = schema::find(&below);
        let value = WRITTEN.iter().find(|(path, _)| *path == below).map(|(_, value)| *value);
        let value = value.or_else(|| match option?.default {
            Preset::Required => Some(if key == "name" { "NAME" } else { "1/s" }),
            Preset::Toml(_) | Preset::Unset(_) => None,
        });
        let is_list = LISTS.contains(&&*below) || option.is_some_and(|option| matches!(option.kind, Kind::Tables(_)));
        let is_table = !keys_of(&below).is_empty() && (option.is_none() || has_tables || is_list);
        let written = match value {
            _ if is_table && is_list => format!("[{{ {} }}]", sparse(&below, has_tables)),
            _ if is_table => format!("{{ {} }}", sparse(&below, has_tables)),
            Some(value) => format!("\"{value}\""),
            None => continue,
        };
        let separator = match (text.is_empty(), path.is_empty()) {
            (true, _) => "",
            (false, true) => "\n",
            (false, false) => ", ",
        };
        write!(text, "{separator}{key} = {written}").unwrap();
    }
    text
}

/// The path in the schema of the option at `path`, in which tables of lists have a name.
fn schema_of(path: &str) -> String {
    let mut found = String::new();
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let known = keys_of(&found);
        let name = if let [any @ ("NAME" | "PART")] = known.as_slice() { any } else { name };
        if !found.is_empty() {
            found.push('.');
        }
        found.push_str(name);
        let is_table = schema::find(&found).is_some_and(|option| matches!(option.kind, Kind::Tables(_)));
        if is_table || LISTS.contains(&&*found) {
            names.next();
        }
    }
    found
}

fn settings(text: &str) -> Vec<SettingBody> {
    let limit = "[[limit]]\nname = 'NAME'\nkey = []\nrate = '7/s'\nban = { after = '1/s', for = '1s' }\ncandidate = { rate = '7/s' }";
    let config = compile(&format!("{UPSTREAM}{limit}")).unwrap();
    let toml: Result<toml::Table, _> = toml::from_str(text);
    assert!(toml.is_ok(), "{toml:?}: {text}");
    let written = Written::new("weir.toml", text, Vec::new());
    let written = written.with_derived(2, Some(Path::new("weir.bans.jsonl")), &OverridesPlace::Off);
    let filter = SettingFilter { below: "", has_defaults: true, count_max: usize::MAX };
    written.settings(filter, InForce { policy: &config.policy, max_connections: 10_000 }).0
}

#[test]
fn every_option_shows_its_default() {
    let all: Vec<_> = [false, true].into_iter().flat_map(|has_tables| settings(&sparse("", has_tables))).collect();
    let is_default = |setting: &&SettingBody| setting.source == "default";
    let shown: BTreeSet<_> = all.iter().filter(is_default).map(|setting| schema_of(&setting.path)).collect();
    let (mut missing, mut needless) = (Vec::new(), Vec::new());
    for option in schema::options() {
        let has_value = match option.default {
            Preset::Required => false,
            Preset::Toml(_) => true,
            Preset::Unset(words) => !NO_VALUE.contains(&words) && !words.starts_with("required"),
        };
        let is_written = WRITTEN.iter().any(|(path, _)| *path == option.path);
        let is_exempt = NOT_SHOWN.iter().any(|(path, _)| *path == option.path);
        match (shown.contains(option.path), has_value && !is_written) {
            (false, true) if !is_exempt => missing.push(option.path),
            (true, _) | (_, false) if is_exempt => needless.push(option.path),
            _ => {}
        }
    }
    assert_eq!((missing, needless), (vec![], vec![]), "missing, and needless exemptions");
}

#[test]
fn defaults_that_depend_on_other_options() {
    let limit = "key = []\nrate = '30/min'\n[limit.plans.NAME]\nrate = '40/min'\n";
    let rows: &[(&str, &str, Option<serde_json::Value>)] = &[
        ("[[limit]]\nname = 'NAME'\nkey = []\nrate = '30/min'", "limit.NAME.burst", Some(30.into())),
        ("[[limit]]\nname = 'NAME'\nkey = []\nrate = ['30/min', '1/s']", "limit.NAME.burst", None),
        (&format!("[[limit]]\nname = 'NAME'\n{limit}"), "limit.NAME.plans.NAME.burst", Some(40.into())),
        ("[[route]]\nupstream = 'a'", "route.1.max_body_bytes", Some("64MiB".into())),
        ("server.max_body_bytes = '1MiB'\n[[route]]\nupstream = 'a'", "route.1.max_body_bytes", Some("1MiB".into())),
        ("[[route]]\nupstream = 'a'", "route.1.upgrade", Some(serde_json::json!([]))),
        (
            "[upstreams.a]\nupgrade = ['websocket']\n[[route]]\nupstream = 'a'",
            "route.1.upgrade",
            Some(serde_json::json!(["websocket"])),
        ),
        ("", "server.max_connections", Some(10_000.into())),
        ("[store.a]\nredis = 'redis://a'", "store.a.timeout", Some("10ms".into())),
        ("[store.a]\netcd = ['http://a']", "store.a.timeout", Some("250ms".into())),
        (
            "[store.a]\netcd = ['http://a']\n[store.b]\nservice = 'http://b'\n[fleet]\nstrategy = { use = 'lease' }",
            "fleet.strategy.store",
            Some("a".into()),
        ),
        (
            "[store.a]\netcd = ['http://a']\n[store.b]\nredis = 'redis://b'\n[fleet]\nstrategy = { use = 'lease' }",
            "fleet.strategy.store",
            None,
        ),
        ("[upstreams.a]\nbalance = 'hash'", "upstreams.a.hash_by", Some("ip".into())),
        ("[upstreams.a]\nbalance = 'p2c'", "upstreams.a.hash_by", None),
    ];
    for (text, path, expected) in rows {
        let found = settings(text).into_iter().find(|setting| setting.path == *path).map(|setting| setting.value);
        assert_eq!(found, *expected, "{path}: {text}");
    }
}

#[test]
fn the_shown_text_compiles_without_its_secrets() {
    let full = std::fs::read_to_string("config/full.toml").unwrap();
    let full = compile(&full).unwrap();
    let shown = full.written.toml();
    let again = compile(&shown).unwrap_or_else(|problems| panic!("{problems}\n{shown}"));
    assert_eq!(again.policy.limits().len(), full.policy.limits().len());
    let text = "upstream.url = 'http://a'\n[identity.shop]\nheader = 'x-shop' # hunter1\n[[limit]]\nname = 'a'\nkey = ['shop']\n\
        rate = '1/s'\noverrides = { hunter2 = '2/s', 'hunter3' = '2/s' }\nmatch.header = { x = \"\"\"hunter4\"\"\", y = 'hunter5' }\n";
    let shown = compile(text).unwrap().written.toml();
    assert!(!shown.contains("hunter"), "{shown}");
    assert_eq!(compile(&shown).unwrap().policy.limits()[0].allowed.overrides.len(), 2, "{shown}");
}

#[test]
fn parts_that_differ() {
    let of = |text: &str| compile(&format!("upstream.url = 'http://a'\n{text}")).unwrap().written;
    let limit = |name: &str, rest: &str| format!("[[limit]]\nname = '{name}'\nkey = ['ip']\nrate = '1/s'\n{rest}");
    let differ = |one: &str, other: &str| {
        let DifferenceBody { appeared, changed, vanished } = of(one).difference(&of(other)).parts;
        [appeared, changed, vanished].map(|names| names.join(", "))
    };
    let (a, b) = (limit("a", ""), limit("b", ""));
    assert_eq!(differ(&a, &a), ["", "", ""]);
    // Comments and white space are no difference.
    assert_eq!(differ(&a, &format!("# new\n{}", a.replace(" = ", "="))), ["", "", ""]);
    assert_eq!(differ(&a, &format!("{a}{b}")), ["limit b", "", ""]);
    assert_eq!(differ(&a, &limit("a", "burst = 5")), ["", "limit a", ""]);
    assert_eq!(differ(&a, ""), ["limit per-path", "", "limit a"]);
    assert_eq!(differ(&a, &format!("server.max_headers = 5\n{a}")), ["server", "", ""]);
    let identity = |header: &str| format!("identity.shop.header = '{header}'\n{a}");
    assert_eq!(differ(&identity("x-a"), &identity("x-b")), ["", "identity shop", ""]);
}

#[test]
fn routes_that_differ() {
    let of = |routes: &[(&str, &str)]| {
        let route =
            |(path, upstream): &(&str, &str)| format!("[[route]]\nmatch.path = '{path}'\nupstream = '{upstream}'\n");
        let routes: Vec<_> = routes.iter().map(route).collect();
        let upstreams = "[upstreams.a]\nendpoints = ['http://a']\n[upstreams.b]\nendpoints = ['http://b']\n";
        compile(&format!("{upstreams}[[route]]\nmatch.path = '/z'\nupstream = 'b'\n{}", routes.concat()))
            .unwrap()
            .written
    };
    let (x, y) = (("/x", "a"), ("/y", "a"));
    let differ = |one: &[(&str, &str)], other: &[(&str, &str)]| of(one).difference(&of(other)).parts;
    assert_eq!(differ(&[x, y], &[x, y]), DifferenceBody::default());
    assert_eq!(differ(&[x], &[x, y]).appeared, ["route /y"]);
    assert_eq!(differ(&[x, y], &[x, ("/y", "b")]).changed, ["route /y"]);
    assert_eq!(differ(&[x, y], &[y, x]).changed, ["order of routes"]);
}

#[test]
fn most_limits_are_lost_only_without_others_in_their_place() {
    let of = |names: &[&str]| {
        let limit = |name: &&str| format!("[[limit]]\nname = '{name}'\nkey = ['ip']\nrate = '1/s'\n");
        let limits: Vec<_> = names.iter().map(limit).collect();
        compile(&format!("upstream.url = 'http://a'\n{}", limits.concat())).unwrap().written
    };
    for (before, after, expected) in [
        (&["a", "b", "c"][..], &["a"][..], true),
        (&["a", "b"], &["a"], false),
        (&["a", "b", "c"], &["a", "b"], false),
        (&["a"], &["b"], false),
        (&["a", "b", "c"], &["d", "e", "f"], false),
        (&["a", "b", "c"], &["d"], true),
        (&["a", "b"], &[], true),
    ] {
        assert_eq!(of(before).difference(&of(after)).has_lost_most_limits(), expected, "{before:?} {after:?}");
    }
}

#[test]
fn a_table_that_is_off_shows_no_defaults() {
    let shown: Vec<_> = settings("").into_iter().map(|setting| setting.path).collect();
    assert!(!shown.iter().any(|path| path.starts_with("server.tls.")), "{shown:?}");
}
