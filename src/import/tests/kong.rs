//! Kong.

use std::path::Path;

use super::{check, import};
use crate::import::name_in_config;

pub(super) const EXAMPLE: &str = r#"_format_version: "3.0"
services:
- name: app
  url: http://127.0.0.1:9000/base
  connect_timeout: 1000
  routes:
  - name: api
    paths: [/api]
    plugins:
    - name: rate-limiting
      config: { second: 5, minute: 100, policy: local, limit_by: ip, error_code: 503 }
  - name: site
    paths: [/]
    strip_path: false
    hosts: [a.test]
  plugins:
  - name: rate-limiting
    config: { hour: 1000, limit_by: header, header_name: X-Consumer, policy: redis, redis: { host: r } }
plugins:
- name: rate-limiting-advanced
  config: { limit: [5, 10], window_size: [30, 60], identifier: consumer, sync_rate: -1 }
- name: key-auth
consumers:
- username: a
  keyauth_credentials: [{ key: abc }]
upstreams:
- name: u
  targets: [{ target: "a:80" }]
"#;

/// Plugins of all levels.
#[test]
fn plugins_of_routes_replace_those_of_services() {
    check(
        "kong",
        EXAMPLE,
        r#"[upstreams.app]
        endpoints = ["http://127.0.0.1:9000"]
        host = "upstream"
        [[route]]
        match = { host = ["a.test"] }
        upstream = "app"
        rewrite = { add = "/base" }
        require = ["consumer"]
        [[route]]
        match = { path = ["/api", "/api/{*rest}"] }
        upstream = "app"
        rewrite = { strip = "/api", add = "/base" }
        require = ["consumer"]
        [identity.consumer]
        api_keys = { header = "apikey", file = "keys.toml", forward = true }
        [identity.x-consumer-or-address]
        header = "x-consumer"
        on_missing = "ip"
        [[limit]]
        name = "api-rate-limiting"
        match = { path = ["/api", "/api/{*rest}"] }
        key = ["ip"]
        algorithm = "fixed_window"
        rate = ["5/s", "100/min"]
        status = 503
        [[limit]]
        name = "app-rate-limiting"
        match = { host = ["a.test"] }
        key = ["x-consumer-or-address"]
        algorithm = "fixed_window"
        rate = ["1000/h"]
        [[limit]]
        name = "rate-limiting-advanced"
        key = ["consumer"]
        algorithm = "sliding_window"
        rate = ["5/30s", "10/60s"]"#,
        "5 LeftOut `connect_timeout`: set `[timeouts]` by hand
        7 Differs Weir takes `/api` and paths below `/api/`, but no others that begin so
        12 Differs Weir applies limits of later routes here, too
        18 LeftOut `redis`: set `[store]` and `strategy` by hand
        18 LeftOut set `[store]` and `strategy` by hand; until then, each replica counts for itself
        21 LeftOut `sync_rate`: set `[store]` and `strategy` by hand
        22 Differs Weir takes keys in the field `apikey` only
        24 LeftOut a key has not 16 to 512 visible characters; give the consumer another one",
    );
}

/// Groups are plans of one limit, and a consumer with an instance of its own has an override.
#[test]
fn consumers_have_keys_and_groups_have_plans() {
    let text = r#"_format_version: "3.0"
services:
- name: app
  url: http://127.0.0.1:9000
  routes: [{ name: all, paths: [/], strip_path: false }]
plugins:
- name: key-auth
  config: { key_names: [X-Key], key_in_query: false, hide_credentials: true }
- name: rate-limiting
  config: { minute: 5 }
- name: rate-limiting
  consumer_group: gold
  config: { minute: 100, hour: 1000 }
consumer_groups:
- name: silver
  plugins:
  - name: rate-limiting
    config: { minute: 20 }
- name: gold
consumers:
- username: acme
  groups: [{ name: gold }]
  keyauth_credentials: [{ key: acme-0123456789abc }]
- username: zeta
  groups: [{ name: silver }, { name: gold }]
  keyauth_credentials:
  - key: zeta-0123456789abc
  - key: short
  plugins:
  - name: rate-limiting
    config: { minute: 7, policy: local }
keyauth_credentials:
- consumer: acme
  key: acme-abcdef0123456
"#;
    check(
        "kong",
        text,
        r#"[upstreams.app]
        endpoints = ["http://127.0.0.1:9000"]
        host = "upstream"
        [[route]]
        upstream = "app"
        require = ["consumer"]
        [identity.consumer]
        api_keys = { header = "x-key", file = "keys.toml", forward = false }
        [plans]
        from = "consumer.plan"
        [[limit]]
        name = "rate-limiting"
        key = ["consumer"]
        algorithm = "fixed_window"
        rate = ["5/min"]
        plans = { "gold" = { rate = ["100/min", "1000/h"] }, "silver" = { rate = ["20/min"] } }
        overrides = { "zeta" = { rate = ["7/min"] } }"#,
        "24 LeftOut a key has not 16 to 512 visible characters; give the consumer another one
        24 Differs the consumer has the plan of its first group only",
    );
}

/// The keys of consumers are in no comment and in no report, but in the file of keys as digests.
#[test]
fn keys_are_not_shown() {
    let text = "plugins:\n- name: key-auth\nservices: [{ url: http://a, routes: [{ paths: [/] }] }]\nconsumers:\n\
        - { username: a, no: b, plugins: [{ name: rate-limiting, config: { day: 2, policy: redis } }], \
        keyauth_credentials: [{ key: secret-0123456789 }] }\n- { username: b, keyauth_credentials: [{ key: secret }] }\n";
    let imported = import("kong", text);
    let report = imported.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(report.contains("original:5") && report.contains("original:6"), "{report}");
    let shown = report + &imported.config;
    assert!(!shown.contains("secret-") && !shown.contains("key: secret"), "{shown}");
    let owners: Vec<_> = imported.api_keys.iter().map(|owner| (&*owner.name, owner.keys.len())).collect();
    assert_eq!(owners, [("a", 1), ("b", 0)]);
}

/// Without a key a request is counted by its address. Where only groups have instances, others have a rate that nobody
/// reaches; instances of a route are not plans of another one.
#[test]
fn groups_alone_and_anonymous_requests() {
    let text = r"services:
- name: app
  url: http://127.0.0.1:9000
  routes: [{ name: all, paths: [/], strip_path: false }]
plugins:
- name: key-auth
  config: { key_in_query: false, anonymous: guest }
- name: rate-limiting
  consumer_group: gold
  config: { minute: 9 }
- name: rate-limiting
  consumer_group: gold
  route: other
  config: { minute: 1 }
consumers:
- username: acme
  groups: [{ name: gold }]
  keyauth_credentials: [{ key: acme-0123456789abc }]
";
    check(
        "kong",
        text,
        r#"[upstream]
        url = "http://127.0.0.1:9000"
        host = "upstream"
        [identity.consumer]
        api_keys = { header = "apikey", file = "keys.toml", forward = true }
        on_missing = "ip"
        [plans]
        from = "consumer.plan"
        [[limit]]
        name = "rate-limiting"
        key = ["consumer"]
        algorithm = "fixed_window"
        rate = ["1000000/s"]
        plans = { "gold" = { rate = ["9/min"] } }"#,
        "8 Differs others have 1000000/s in place of no limit
        11 LeftOut the file has no such `route`",
    );
}

/// A file with consumers and groups, some with ids, and with these `plugins`.
fn with_consumers(plugins: &str) -> String {
    format!(
        r"services:
- id: 11111111-1111-1111-1111-111111111111
  name: app
  url: http://127.0.0.1:9000
  routes: [{{ id: 22222222-2222-2222-2222-222222222222, name: all, paths: [/], strip_path: false }}]
- {{ id: 55555555-5555-5555-5555-555555555555, name: none, url: http://127.0.0.1:9001 }}
consumers:
- id: 33333333-3333-3333-3333-333333333333
  username: alice
- username: bob
  keyauth_credentials: [{{ key: bob-0123456789abcdef }}]
- username: guest
consumer_groups:
- id: 44444444-4444-4444-4444-444444444444
  name: gold
{plugins}"
    )
}

/// Names, ids and tables of both refer to one entity, as in files of `kong config db_export`.
#[test]
fn ids_are_names() {
    for form in ["NAME", "ID", "{ id: ID }", "{ name: NAME }", "{ id: ID, name: unknown }", "{ username: NAME }"] {
        let one = |kind: &str, digit: &str, name: &str| {
            let id = [8, 4, 4, 4, 12].map(|len| digit.repeat(len)).join("-");
            format!("{kind}: {}", form.replace("ID", &id).replace("NAME", name))
        };
        let (alice, gold) = (one("consumer", "3", "alice"), one("consumer_group", "4", "gold"));
        let (app, all) = (one("service", "1", "app"), one("route", "2", "all"));
        let text = with_consumers(&format!(
            "keyauth_credentials: [{{ {alice}, key: alice-0123456789abcdef }}]
consumer_group_consumers: [{{ {alice}, {gold} }}]
plugins:
- {{ name: key-auth, config: {{ key_in_query: false }} }}
- {{ name: rate-limiting, config: {{ minute: 5, policy: local }} }}
- {{ name: rate-limiting, {alice}, config: {{ minute: 100, policy: local }} }}
- {{ name: rate-limiting, {gold}, config: {{ minute: 50 }} }}
- {{ name: rate-limiting, {app}, config: {{ minute: 7 }} }}
- {{ name: rate-limiting-advanced, {all}, config: {{ limit: [9], window_size: [60] }} }}
- {{ name: rate-limiting, {alice}, {app}, config: {{ minute: 70 }} }}
"
        ));
        let tables = r#"[upstreams.app]
            endpoints = ["http://127.0.0.1:9000"]
            host = "upstream"
            [[route]]
            upstream = "app"
            require = ["consumer"]
            [identity.consumer]
            api_keys = { header = "apikey", file = "keys.toml", forward = true }
            [plans]
            from = "consumer.plan"
            [[limit]]
            name = "app-rate-limiting"
            key = ["consumer"]
            algorithm = "fixed_window"
            rate = ["7/min"]
            plans = { "gold" = { rate = ["50/min"] } }
            overrides = { "alice" = { rate = ["70/min"] } }
            [[limit]]
            name = "all-rate-limiting-advanced"
            key = ["consumer"]
            algorithm = "sliding_window"
            rate = ["9/60s"]"#;
        let report = "12 LeftOut the consumer has no key that Weir can verify
            20 LeftOut no translated route has it
            21 Differs Weir counts the requests of each limit, and not those of all together
            22 Differs Weir counts the requests of each limit, and not those of all together";
        check("kong", &text, tables, report);
        let owners = import("kong", &text).api_keys.into_iter().map(|owner| (owner.name, owner.plan));
        let owners: Vec<_> = owners.collect();
        assert_eq!(owners, [("alice".into(), Some("gold".into())), ("bob".into(), None)], "{form}");
    }
}

/// An instance for an unknown entity is not one for all.
#[test]
fn unknown_owners_are_reported() {
    for owner in ["consumer: x", "consumer: { id: x }", "consumer_group: { name: x }", "service: x", "route: {}"] {
        let text = with_consumers(&format!(
            "plugins:
- {{ name: rate-limiting, {owner}, config: {{ minute: 5, policy: local }} }}
- {{ name: rate-limiting, config: {{ minute: 9, limit_by: ip }} }}
keyauth_credentials: [{{ consumer: {{ id: x }}, key: x-0123456789abcdef }}]
"
        ));
        let (kind, _) = owner.split_once(':').unwrap();
        let imported = import("kong", &text);
        let said = imported.findings.iter().map(|finding| (finding.line, &*finding.why)).collect::<Vec<_>>();
        let why = format!("the file has no such `{kind}`");
        assert!(said.contains(&(17, &why)) && said.contains(&(19, "the file has no such `consumer`")), "{said:?}");
        assert!(imported.config.contains("rate = [\"9/min\"]") && !imported.config.contains("5/min"), "{owner}");
    }
}

/// In Kong, the instance of a consumer replaces that of a service, whatever either counts by.
#[test]
fn limits_by_address_count_consumers_with_instances() {
    let plugins = |scope: &str| {
        with_consumers(&format!(
            "plugins:
- {{ name: key-auth, config: {{ key_names: [apikey], key_in_query: false }} }}
- {{ name: rate-limiting, service: app, config: {{ minute: 9, limit_by: ip }} }}
- {{ name: rate-limiting, {scope}config: {{ minute: 5 }} }}
"
        ))
    };
    let why = "in Weir it also counts requests of consumers and groups with instances of their own";
    for (scope, is_said) in [("consumer: alice, ", true), ("service: app, consumer: alice, ", true), ("", false)] {
        let imported = import("kong", &plugins(scope));
        assert_eq!(imported.findings.iter().any(|finding| finding.why == why), is_said, "{scope}");
    }
}

/// Requests without a key have the usual rates of a limit, and other consumers have rows.
#[test]
fn anonymous_consumers_have_the_usual_rates() {
    let shared = "requests without a key have this rate per address, in place of all together";
    let keys = "keyauth_credentials: [{ consumer: alice, key: alice-0123456789abcdef }]\nplugins:\n\
        - { name: key-auth, config: { key_in_query: false, anonymous: guest } }\n";
    let of = |owner: &str, config: &str| {
        format!("- {{ name: rate-limiting, {owner} config: {{ policy: local, {config} }} }}\n")
    };
    let (guest, alice) = (of("consumer: guest,", "minute: 3"), of("consumer: alice,", "minute: 100"));
    for (plugins, rules, report) in [
        (
            guest.clone() + &alice,
            r#"rate = ["3/min"]
            overrides = { "alice" = { rate = ["100/min"] }, "bob" = { rate = ["1000000/s"] } }"#,
            format!("19 Differs others have 1000000/s in place of no limit\n19 Differs {shared}"),
        ),
        (
            of("", "minute: 5") + &guest + &alice,
            r#"rate = ["3/min"]
            overrides = { "alice" = { rate = ["100/min"] }, "bob" = { rate = ["5/min"] } }"#,
            format!("20 Differs {shared}"),
        ),
        (of("", "minute: 5"), r#"rate = ["5/min"]"#, format!("19 Differs {shared}")),
        (
            alice.clone(),
            r#"rate = ["1000000/s"]
            overrides = { "alice" = { rate = ["100/min"] } }"#,
            "19 Differs others have 1000000/s in place of no limit".to_owned(),
        ),
        (
            of("", "minute: 5") + &of("consumer: guest,", "minute: 3, limit_by: ip"),
            r#"rate = ["3/min"]
            overrides = { "alice" = { rate = ["5/min"] }, "bob" = { rate = ["5/min"] } }"#,
            String::new(),
        ),
    ] {
        let limit = format!(
            "on_missing = \"ip\"\n[[limit]]\nname = \"rate-limiting\"\nkey = [\"consumer\"]\n\
             algorithm = \"fixed_window\"\n{rules}"
        );
        let text = with_consumers(&format!("{keys}{plugins}"));
        let upstream = "[upstream]\nurl = \"http://127.0.0.1:9000\"\nhost = \"upstream\"\n[identity.consumer]\n\
            api_keys = { header = \"apikey\", file = \"keys.toml\", forward = true }\n";
        check("kong", &text, &format!("{upstream}{limit}"), &report);
    }
}

/// The instance of their group is the one of requests without a key, too.
#[test]
fn anonymous_consumers_may_be_in_a_group() {
    let text = with_consumers(
        "consumer_group_consumers: [{ consumer: guest, consumer_group: gold }]
plugins:
- { name: key-auth, config: { key_in_query: false, anonymous: guest } }
- { name: rate-limiting, config: { minute: 5 } }
- { name: rate-limiting, consumer_group: gold, config: { minute: 2 } }
",
    );
    let config = import("kong", &text).config;
    let rules = r#"rate = ["2/min"]
plans = { "gold" = { rate = ["2/min"] } }
overrides = { "bob" = { rate = ["5/min"] } }"#;
    assert!(config.contains(rules), "{config}");
}

/// Values of members whose names say that they are secret, on lines of their own or of others.
#[test]
fn secrets_of_plugins_are_not_shown() {
    let text = with_consumers(
        "plugins:
- name: rate-limiting
  config: { minute: 5, limit_by: ip, policy: redis, redis: { host: r, password: hunter2 } }
- name: openid-connect
  config:
    client_secret:
    - hunter2
    session: { token: null, redis_password: hunter2 }
jwt_secrets: [{ key: k, secret: hunter2 }]
certificates: [{ cert: c, key: hunter2 }]
",
    );
    let imported = import("kong", &text);
    let report = imported.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(report.contains("original:18: left out: `(a line with a secret)`: `redis`"), "{report}");
    let shown = report + &imported.config;
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// A dump of Kong names each option, also those that are not set.
#[test]
fn null_is_not_set() {
    let text = "services:
- name: app
  url: http://127.0.0.1:9000
  ca_certificates: null
  routes: [{ name: all, paths: [/], strip_path: false, snis: null, headers: ~ }]
plugins:
- name: rate-limiting
  route: null
  config: { second: null, minute: 100, hour: null, day: ~, month: , limit_by: ip, policy: local, redis: null }
";
    check(
        "kong",
        text,
        r#"[upstream]
        url = "http://127.0.0.1:9000"
        host = "upstream"
        [[limit]]
        name = "rate-limiting"
        key = ["ip"]
        algorithm = "fixed_window"
        rate = ["100/min"]"#,
        "",
    );
}

/// The configuration may get another folder than the one of the command.
#[test]
fn a_file_of_keys_in_a_folder_is_named_as_absolute() {
    let here = std::env::current_dir().unwrap();
    for (file, wanted) in [
        ("own.toml", Path::new("own.toml").to_owned()),
        ("/etc/weir/own.toml", Path::new("/etc/weir/own.toml").to_owned()),
        ("of/own.toml", here.join("of/own.toml")),
        ("./own.toml", here.join("own.toml")),
    ] {
        assert_eq!(name_in_config(Path::new(file)), wanted);
    }
}
