//! `[store.NAME]`, and the strategies that need one.

use super::*;
use crate::engine::limit::LeaseUnits;
use crate::engine::policy::Strategy;
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{Login, NodeAddress, Password, RemoteSettings, Servers, Topology};

/// A fleet of three whose limits are in one store.
const FLEET: &str = "[fleet]\nstrategy = 'redis'\nsecret.env = 'WEIR_FLEET_SECRET'\nreplicas = 3\n\
                     [store.main]\nredis = 'redis://127.0.0.1'\n";

const LIMIT: &str = "[[limit]]\nname = 'a'\nkey = []\nrate = '60/min'\n";

fn compiled(text: &str) -> Config {
    compile(&format!("{text}\n{UPSTREAM}")).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn store(text: &str) -> RemoteSettings {
    compiled(&format!("[store.main]\n{text}")).stores.swap_remove(0)
}

fn redis(topology: Topology, login: Login, prefix: &str) -> Servers {
    Servers::Redis { topology, login, prefix: prefix.into() }
}

fn address(host: &str, port: u16) -> NodeAddress {
    NodeAddress::tcp(host, port)
}

#[test]
fn a_store_has_defaults() {
    let RemoteSettings { name, servers, tls, timeout, on_failure } = store("redis = 'redis://a'");
    let topology = Topology::Ring(vec![address("a", 6379)]);
    assert_eq!((&*name, servers), ("main", redis(topology, Login::default(), "weir")));
    assert_eq!((tls, timeout, on_failure), (None, Duration::from_millis(10), OnFailure::Split));
}

#[test]
fn servers_are_a_ring_a_cluster_or_sentinels() {
    let sentinel = |login| {
        let nodes = vec![address("a", 26379), address("b", 1)];
        Topology::Sentinel { master: "limits".into(), nodes, login }
    };
    let login = Login { user: Some("s".into()), password: Some(Password::new("hunter2")) };
    for (text, expected) in [
        ("redis = ['redis://A:1', 'redis://[::1]']", Topology::Ring(vec![address("a", 1), address("::1", 6379)])),
        (
            "redis = ['unix:/run/redis.sock', 'redis://a']",
            Topology::Ring(vec![NodeAddress::Unix(Path::new("/run/redis.sock").into()), address("a", 6379)]),
        ),
        ("cluster = 'redis://10.0.0.1'", Topology::Cluster(vec![address("10.0.0.1", 6379)])),
        ("sentinel = { master = 'limits', nodes = ['redis://a', 'redis://b:1'] }", sentinel(Login::default())),
        (
            "sentinel = { master = 'limits', nodes = ['redis://a', 'redis://b:1'], user = 's', password.env = 'SHORT' }",
            sentinel(login),
        ),
    ] {
        assert_eq!(store(text).servers, redis(expected, Login::default(), "weir"), "{text}");
    }
    let settings = store("redis = 'rediss://a'\nuser = 'weir'\npassword.env = 'SHORT'\ntimeout = '2s'\nprefix = 'a:b'");
    let login = Login { user: Some("weir".into()), password: Some(Password::new("hunter2")) };
    assert!(settings.tls.is_some() && settings.timeout == Duration::from_secs(2));
    assert_eq!(settings.servers, redis(Topology::Ring(vec![address("a", 6379)]), login, "a:b"));
    assert!(!format!("{settings:?}").contains("hunter2"));
    for (word, expected) in [("local", OnFailure::Local), ("reject", OnFailure::Reject), ("allow", OnFailure::Allow)] {
        assert_eq!(store(&format!("redis = 'redis://a'\non_failure = '{word}'")).on_failure, expected);
    }
}

#[test]
fn a_limit_is_in_a_store() {
    let second = "[store.other]\nredis = 'redis://b'\non_failure = 'local'\n";
    let whole = bucket(60, 60_000_000_000, 60);
    let redis = Strategy::Redis { store: 0, replicas: 3 };
    let lease = |store, replicas, units| Strategy::Lease { store, replicas, units };
    let local = FLEET.replace("strategy = 'redis'", "strategy = 'local'");
    let leased = FLEET.replace("strategy = 'redis'", "strategy = { use = 'lease', units = 700 }");
    for (fleet, strategy, expected) in [
        (FLEET, "", redis),
        (FLEET, "'local'", Strategy::Local),
        (FLEET, "'split'", Strategy::Split(3)),
        (FLEET, "'lease'", lease(0, 3, LeaseUnits::Auto)),
        (FLEET, "{ use = 'lease' }", lease(0, 3, LeaseUnits::Auto)),
        (FLEET, "{ use = 'lease', store = 'main', units = 'auto' }", lease(0, 3, LeaseUnits::Auto)),
        (FLEET, "{ use = 'lease', units = 60 }", lease(0, 3, LeaseUnits::Fixed(60))),
        (&local, "", Strategy::Local),
        (&local, "'redis'", redis),
        (&local, "{ use = 'redis' }", redis),
        (&local, "{ use = 'split' }", Strategy::Split(3)),
        (&leased, "", lease(0, 3, LeaseUnits::Fixed(700))),
    ] {
        let own = if strategy.is_empty() { String::new() } else { format!("strategy = {strategy}\n") };
        let limit = compiled(&format!("{fleet}{LIMIT}{own}")).policy.limits()[0].clone();
        let rule = if expected == Strategy::Split(3) { bucket(60, 180_000_000_000, 20) } else { whole.clone() };
        assert_eq!((limit.strategy, limit.allowed.usual), (expected, rule), "{fleet}{strategy}");
    }
    let text = format!("{local}{second}{LIMIT}strategy = {{ use = 'redis', store = 'other' }}");
    assert_eq!(compiled(&text).policy.limits()[0].strategy, Strategy::Redis { store: 1, replicas: 3 });
}

#[test]
fn shares_are_needed_for_split_only() {
    let fleet = "[fleet]\nstrategy = 'redis'\nsecret.env = 'WEIR_FLEET_SECRET'\nreplicas = 3\n";
    for word in ["local", "reject", "allow"] {
        let text = format!("{fleet}[store.a]\nredis = 'redis://a'\non_failure = '{word}'\n{LIMIT}burst = 1");
        assert_eq!(compiled(&text).policy.limits()[0].strategy, Strategy::Redis { store: 0, replicas: 3 });
    }
}

#[test]
fn sub_windows_in_a_store_are_whole_microseconds() {
    let rule = |fleet: &str| {
        let text =
            format!("{fleet}[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'sub_window'\nrate = '60/s'\nsub_windows = 7");
        compiled(&text).policy.limits()[0].allowed.usual.period_ns()
    };
    assert_eq!(rule(""), Some(7 * 142_857_143));
    assert_eq!(rule(FLEET), Some(7 * 142_858_000));
}

#[test]
fn a_fleet_has_a_secret() {
    let secret = |text: &str| compiled(text).fleet_secret;
    assert_eq!(secret(""), None);
    assert_eq!(secret("[fleet]\nstrategy = 'local'"), None);
    let read = secret("[fleet]\nstrategy = 'local'\nsecret = { env = 'WEIR_FLEET_SECRET' }");
    assert_eq!(read.map(|secret| secret.key_secret()[0]), Some(57));
}

#[test]
fn a_strategy_needs_a_store_a_secret_and_replicas() {
    insta::assert_snapshot!(brief("[fleet]\nstrategy = 'redis'"), @r#"
    2:12 «'redis'» `fleet.strategy`: `redis` needs `fleet.secret`: all replicas must hash keys alike
      = add `secret = { env = "WEIR_FLEET_SECRET" }` to `[fleet]`, with the same value on every replica
    2:12 «'redis'» `fleet.strategy`: `redis` needs a store
      = add `[store.main]` with `redis = ["redis://127.0.0.1:6379"]`
    "#);
    insta::assert_snapshot!(brief(&format!("{LIMIT}strategy = {{ use = 'lease', store = 'main' }}\n[store.mian]\nredis = 'redis://a'")), @r#"
    5:20 «'lease'» `limit.strategy.use`: `lease` needs `fleet.secret`: all replicas must hash keys alike
      = add `secret = { env = "WEIR_FLEET_SECRET" }` to `[fleet]`, with the same value on every replica
    5:37 «'main'» `limit.strategy.store`: there is no store `main`
      = did you mean `mian`?
    "#);
    insta::assert_snapshot!(brief(&FLEET.replace("replicas = 3", "")), @r"
    2:12 «'redis'» `fleet.strategy`: `redis` needs the number of replicas
      = add `replicas = 3` to `[fleet]`: each replica decides by an equal share of the limit while the store has lost its keys, and by default while the store is down
    ");
    insta::assert_snapshot!(brief(&format!("{FLEET}[store.other]\nredis = 'redis://b'")), @r#"
    2:12 «'redis'» `fleet.strategy`: `redis` needs the name of a store: there are 2
      = write it like `{ use = "redis", store = "main" }`
    "#);
    insta::assert_snapshot!(brief(&FLEET.replace("'redis'\n", "{ use = 'split', store = 'main', units = 3 }\n")), @r"
    2:37 «'main'» `fleet.strategy.store`: belongs to `redis`, `lease` and `service`
    2:53 «3» `fleet.strategy.units`: belongs to `lease`
    ");
    insta::assert_snapshot!(brief(&FLEET.replace("'redis'\n", "{ store = 'main', unit = 3 }\n")), @r"
    2:12 «{ store = 'main', unit = * }» `fleet.strategy.use` is missing
      = expected `local`, `split`, `redis`, `lease`, `stream`, `service`. As `limit.strategy.use`.
    2:30 «unit» unknown key `unit` in `[fleet.strategy]`
      = did you mean `units`?
    ");
    insta::assert_snapshot!(brief(&FLEET.replace("'redis'\n", "'reddis'\n")), @r"
    2:12 «'reddis'» `fleet.strategy`: `reddis` is not one of `local`, `split`, `redis`, `lease`, `stream`, `service`
      = did you mean `redis`?
    ");
    insta::assert_snapshot!(brief(&FLEET.replace("'redis'\n", "{ use = 'lease', units = 0 }\n")), @"2:37 «0» `fleet.strategy.units`: expected whole number from 1, or `auto`");
    insta::assert_snapshot!(brief(&FLEET.replace("'redis'\n", "{ use = 'lease', units = 'atuo' }\n")), @r"
    2:37 «'atuo'» `fleet.strategy.units`: expected whole number from 1, or `auto`
      = did you mean `auto`?
    ");
}

#[test]
fn weak_secrets_are_refused() {
    for env in ["SHORT", "EMPTY", "WEIR_JWT_SECRET"] {
        let text = FLEET.replace("WEIR_FLEET_SECRET", env);
        let said = said(&text);
        assert!(said.contains("weir.toml:3:"), "{said}");
    }
    insta::assert_snapshot!(brief(&FLEET.replace("WEIR_FLEET_SECRET", "SHORT")), @"3:14 «'SHORT'» this secret has 7 bytes; a fleet needs at least 32");
    insta::assert_snapshot!(brief(&FLEET.replace("WEIR_FLEET_SECRET", "WEIR_JWT_SECRET")), @"3:14 «'WEIR_JWT_SECRET'» this secret can be guessed: it repeats few bytes");
    insta::assert_snapshot!(said(&FLEET.replace("secret.env = 'WEIR_FLEET_SECRET'", "secret = 'hunter2'")), @r#"
    error: a secret must not be written into the configuration
     --> weir.toml:3:10
      |
    3 | secret = *********
      |          ^^^^^^^^^
      |
      = help: use `{ env = "NAME" }` or `{ file = "path" }`
    "#);
    insta::assert_snapshot!(brief(&FLEET.replace("secret.env = 'WEIR_FLEET_SECRET'", "secret.file = 'none.txt'")), @"3:15 «'none.txt'» `fleet.secret.file`: cannot read `config/none.txt`: No such file or directory (os error 2)");
}

#[test]
fn a_store_that_cannot_be_is_an_error() {
    for (text, expected) in [
        ("", "1:1: store `main` has none of `redis`, `cluster`, `sentinel`, `service` and `etcd`"),
        ("redis = []", "2:9: `store.NAME.redis`: an empty list has no effect; remove it"),
        ("redis = ['a:6379']", "2:10: `store.NAME.redis`: must begin with `redis://`, `rediss://` or `unix:`"),
        ("cluster = ['unix:/a']", "2:12: `store.NAME.cluster`: must begin with `redis://` or `rediss://`"),
        (
            "redis = ['unix:a']",
            "2:10: `store.NAME.redis`: write the absolute path of the Unix socket, as in `unix:/run/redis/redis.sock`",
        ),
        ("redis = ['rediss://b', 'unix:/a']", "2:24: `store.NAME.redis`: addresses with TLS and without are mixed"),
        ("redis = ['redis://a/1']", "2:10: `store.NAME.redis`: must end after the host or port"),
        ("redis = ['redis://u:hunter2@a']", "2:10: `store.NAME.redis`: must not contain a user or a password"),
        ("redis = ['redis://']", "2:10: `store.NAME.redis`: is not `redis://host` or `redis://host:port`"),
        ("redis = ['redis://a:0']", "2:10: `store.NAME.redis`: is not `redis://host` or `redis://host:port`"),
        ("redis = ['redis://a', 'redis://A:6379']", "2:23: `store.NAME.redis`: `redis://A:6379` occurs twice"),
        ("redis = ['redis://a', 'rediss://b']", "2:23: `store.NAME.redis`: addresses with TLS and without are mixed"),
        ("redis = 'redis://a'\ncluster = 'redis://b'", "3:11: store `main` has both `redis` and `cluster`"),
        ("sentinel = 'redis://a'", "2:12: `store.NAME.sentinel`: expected table"),
        ("sentinel = { nodes = ['redis://a'] }", "2:12: `store.NAME.sentinel.master` is missing"),
        ("sentinel = { master = 'm' }", "2:12: `store.NAME.sentinel.nodes` is missing"),
        ("redis = 'redis://a'\nuser = 'weir'", "3:8: `store.NAME.user`: needs a password"),
        ("redis = 'redis://a'\npassword = 'hunter2'", "3:12: a secret must not be written into the configuration"),
        ("redis = 'redis://a'\npassword.env = 'EMPTY'", "3:16: this password is empty"),
        (
            "redis = 'redis://a'\npassword.env = 'UNSET'",
            "3:16: `store.NAME.password.env`: this environment variable is not set, or not UTF-8",
        ),
        ("redis = 'redis://a'\npasswd = 'hunter2'", "3:1: unknown key `passwd` in `[store.NAME]`"),
        ("redis = 'redis://a'\ntls.ca = 'ca.pem'", "3:1: `store.NAME.tls` has no effect without `rediss://`"),
        ("redis = 'rediss://a'\ntls.cert = 'none.pem'", "3:12: `store.NAME.tls.cert`: needs `key` beside it"),
        ("redis = 'redis://a'\ntimeout = '500us'", "3:11: `store.NAME.timeout`: expected duration from 1ms to 10s"),
        ("redis = 'redis://a'\ntimeout = '11s'", "3:11: `store.NAME.timeout`: expected duration from 1ms to 10s"),
        (
            "redis = 'redis://a'\nprefix = 'a{b}'",
            "3:10: `store.NAME.prefix`: `a{b}` is not 1 to 64 of `A-Z a-z 0-9 _ - . : /`",
        ),
        (
            "redis = 'redis://a'\non_failure = 'refuse'",
            "3:14: `store.NAME.on_failure`: `refuse` is not one of `split`, `local`, `reject`, `allow`",
        ),
        ("etcd = []", "2:8: `store.NAME.etcd`: an empty list has no effect; remove it"),
        ("etcd = ['a:2379']", "2:9: `store.NAME.etcd`: must begin with `http://` or `https://`"),
        ("etcd = ['http://a', 'https://b']", "2:21: `store.NAME.etcd`: addresses with TLS and without are mixed"),
        ("etcd = ['http://a', 'http://A:2379']", "2:21: `store.NAME.etcd`: `http://A:2379` occurs twice"),
        ("etcd = 'http://a'\ntls.ca = 'ca.pem'", "3:1: `store.NAME.tls` has no effect without `https://`"),
        ("etcd = 'http://a'\nuser = 'weir'", "3:8: `store.NAME.user`: needs a password"),
        ("etcd = 'http://a'\nredis = 'redis://b'", "2:8: store `main` has both `redis` and `etcd`"),
        ("redis = 'redis://a'\ntimeuot = '1s'", "3:1: unknown key `timeuot` in `[store.NAME]`"),
    ] {
        assert_eq!(first_problem(&format!("[store.main]\n{text}")), expected, "{text}");
    }
    let nodes: Vec<_> = (1..=65).map(|port| format!("'redis://a:{port}'")).collect();
    let nodes = format!("[store.main]\nredis = [{}]", nodes.join(", "));
    assert_eq!(first_problem(&nodes), "2:1025: `store.NAME.redis`: has at most 64 addresses");
    let stores: Vec<_> = (1..=17).map(|index| format!("[store.s{index}]\nredis = 'redis://a'\n")).collect();
    assert_eq!(first_problem(&stores.concat()), "33:8: there are at most 16 stores");
    assert_eq!(first_problem("[store]"), "1:1: `[store]` has no store");
    assert_eq!(
        first_problem("[store.'a b']\nredis = 'redis://a'"),
        "1:8: `store`: `a b` is not 1 to 64 of `A-Z a-z 0-9 _ -`"
    );
}

#[test]
fn an_etcd_is_a_store_of_leases_only() {
    let etcd = |fleet: &str| {
        FLEET.replace("redis = 'redis://127.0.0.1'", "etcd = ['http://A', 'http://[::1]:1']").replace("'redis'", fleet)
    };
    let config = compiled(&format!("{}user = 'weir'\npassword.env = 'SHORT'\n{LIMIT}", etcd("'lease'")));
    let login = Login { user: Some("weir".into()), password: Some(Password::new("hunter2")) };
    let members = vec![address("a", 2379), address("::1", 1)];
    assert_eq!(config.stores[0].servers, Servers::Etcd { members, login, prefix: "weir".into() });
    assert_eq!(config.stores[0].timeout, Duration::from_millis(250));
    let lease = Strategy::Lease { store: 0, replicas: 3, units: LeaseUnits::Auto };
    assert_eq!(config.policy.limits()[0].strategy, lease);
    assert_eq!(
        first_problem(&format!("{}{LIMIT}", etcd("'redis'"))),
        "2:12: `fleet.strategy`: `redis` needs a store of Redis"
    );
    for (strategy, expected) in [
        ("redis", "11:37: `limit.strategy.store`: `main` is an etcd, which lends units but decides no request"),
        ("service", "11:39: `limit.strategy.store`: `main` is an etcd, which lends units but decides no request"),
    ] {
        let limit = format!("{LIMIT}strategy = {{ use = '{strategy}', store = 'main' }}");
        let text = format!("{}{limit}", etcd("'local'"));
        assert_eq!(first_problem(&text), expected, "{strategy}");
    }
    for (key, max_keys, is_warned) in [("'ip'", 1_000_000, true), ("'ip'", 5000, false), ("", 5001, false)] {
        let limit = LIMIT.replace("key = []", &format!("key = [{key}]\nmax_keys = {max_keys}"));
        let config = compiled(&format!("{}{limit}", etcd("'lease'")));
        let (findings, _) = config.warnings.findings();
        assert_eq!(findings.iter().any(|finding| finding.code == "etcd_keys"), is_warned, "{key} {max_keys}");
    }
    let log = format!("{}{LIMIT}algorithm = 'sliding_log'", etcd("'lease'"));
    assert_eq!(
        first_problem(&log),
        "11:13: `limit.algorithm`: cannot be used with a lease: etcd has one small counter for each key, and a \
         `sliding_log` has an entry for each loan"
    );
}

/// The place and the title of the first problem of `text`.
pub(super) fn first_problem(text: &str) -> String {
    said(text);
    let problems = compile(&format!("{text}\n{UPSTREAM}")).unwrap_err();
    let (findings, _) = problems.findings();
    let (line, column) = findings[0].line.zip(findings[0].column).unwrap();
    format!("{line}:{column}: {}", findings[0].title)
}

#[test]
fn what_a_store_cannot_do_is_an_error() {
    for (limit, expected) in [
        ("rate = '2/s'", "10:8: `limit.rate`: 3 replicas cannot share 2 units: a share has none"),
        ("rate = '9/s'\nburst = 2", "11:9: `limit.burst`: 3 replicas cannot share 2 units: a share has none"),
        (
            "algorithm = 'concurrency'\nmax = 9\nstrategy = 'lease'",
            "10:13: `limit.algorithm`: cannot be used with a lease: `concurrency` has no units to lend: each comes back \
             when its request ends",
        ),
        (
            "rate = '9/s'\nalgorithm = 'leaky_bucket'\non_limit = 'hold'\nstrategy = 'lease'",
            "11:13: `limit.algorithm`: cannot be used with a lease: a `leaky_bucket` that holds has no units to lend: \
             each passes at an instant of its own",
        ),
        (
            "rate = '9/s'\non_limit = 'delay'\nstrategy = 'lease'",
            "11:12: `limit.on_limit`: cannot be used with a lease: a delay depends on the debt of all replicas, and a \
             lease knows that of one",
        ),
        (
            "rate = '9/week'\nburst = 1000",
            "11:9: `limit.burst`: a store cannot decide this limit: it takes more than 104 days to refill, with its debt",
        ),
        (
            "rate = ['9/s', '5000000000000000/day']\nalgorithm = 'sliding_window'",
            "10:16: `limit.rate`: a store cannot decide this limit: it is more than 4503599627370496, with its debt",
        ),
        (
            "rate = '9/s'\nsettle = { by = 'elapsed_ms' }\nmax_debt = 100000000",
            "12:12: `limit.max_debt`: a store cannot keep a debt of 100000000 units of this limit: at most 81064783",
        ),
        (
            "rate = '9/day'\non_limit = 'delay'\ndelay = { step = '1ms', max = '1s' }",
            "12:31: `limit.delay.max`: a store cannot keep the debt of 1000 units that this delay reaches",
        ),
        (
            "rate = '9/s'\nstrategy = { use = 'lease', units = 10 }",
            "11:37: `limit.strategy.units`: a lease of 10 can never be had: the limit has 9 units",
        ),
    ] {
        let text = format!("{FLEET}[[limit]]\nname = 'a'\nkey = []\n{limit}");
        assert_eq!(first_problem(&text), expected, "{limit}");
    }
}

#[test]
fn what_is_dangerous_or_useless_is_a_warning() {
    let warnings = |text: &str| {
        let warnings = compiled(text).warnings;
        let (findings, _) = warnings.findings();
        findings.into_iter().map(|finding| (&*finding.code.leak(), finding.title)).collect::<Vec<_>>()
    };
    let password = |redis: &str| format!("{FLEET}password.env = 'SHORT'").replace("'redis://127.0.0.1'", redis);
    for redis in ["'redis://127.0.0.1'", "'redis://[::1]:1'", "'redis://LOCALHOST'", "'rediss://10.0.0.1'"] {
        assert_eq!(warnings(&password(redis)), [], "{redis}");
    }
    let plain = |option: &str| vec![("plain_password", format!("`{option}`: crosses the network in plain text"))];
    assert_eq!(warnings(&password("['redis://127.0.0.1', 'redis://10.0.0.1']")), plain("store.NAME.password"));
    let sentinel = "sentinel = { master = 'm', nodes = ['redis://a'], password.env = 'SHORT' }";
    let text = FLEET.replace("redis = 'redis://127.0.0.1'", sentinel);
    assert_eq!(warnings(&text), plain("store.NAME.sentinel.password"));
    let unused = ("unused_store", "no limit uses the store `main`".to_owned());
    assert_eq!(warnings(&format!("{FLEET}{LIMIT}strategy = 'local'")), [unused]);
    let cost = "`limit.cost`: a cost of 21 is above the share of a replica, which is 20";
    assert_eq!(warnings(&format!("{FLEET}{LIMIT}cost = 21")), [("fallback_cost", cost.to_owned())]);
    assert_eq!(warnings(&format!("{FLEET}{LIMIT}cost = 20")), []);
}

#[test]
fn a_limit_of_one_replica_shadows_none_of_the_fleet() {
    let second = LIMIT.replace("'a'", "'b'");
    for (strategy, count) in [("", 1), ("strategy = 'local'\n", 0)] {
        let text = format!("{FLEET}{LIMIT}{strategy}{second}");
        assert_eq!(compiled(&text).warnings.len(), count, "{strategy}");
    }
}
