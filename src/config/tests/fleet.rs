//! `[fleet]` and `strategy`: which share of a limit a replica may spend.

use super::*;
use crate::engine::limit::AnyState;
use crate::engine::limit::state::State as _;
use crate::engine::policy::Strategy;

/// What the first limit of `text` allows and its strategy, in front of one service.
fn compiled(text: &str) -> (Algorithm, Strategy) {
    let config = compile(&format!("{text}\n{UPSTREAM}")).unwrap_or_else(|error| panic!("{text}: {error}"));
    let limit = &config.policy.limits()[0];
    (limit.allowed.usual.clone(), limit.strategy)
}

const MINUTE_NS: u64 = 60_000_000_000;

#[test]
fn a_share_is_an_equal_part_of_the_limit() {
    let limit = |more: &str| format!("[[limit]]\nname = 'a'\nkey = []\nrate = '60/min'\n{more}");
    let split = "[fleet]\nstrategy = 'split'\nreplicas = 3\n";
    let local = "[fleet]\nstrategy = 'local'\nreplicas = 3\n";
    let (whole, share) = (bucket(60, MINUTE_NS, 60), bucket(60, 3 * MINUTE_NS, 20));
    for (text, expected, strategy) in [
        (limit(""), whole.clone(), Strategy::Local),
        (format!("{local}{}", limit("")), whole.clone(), Strategy::Local),
        (format!("{split}{}", limit("")), share.clone(), Strategy::Split(3)),
        (format!("{split}{}", limit("strategy = 'local'")), whole.clone(), Strategy::Local),
        (format!("{local}{}", limit("strategy = 'split'")), share, Strategy::Split(3)),
        (format!("{split}{}", limit("burst = 10")), bucket(60, 3 * MINUTE_NS, 3), Strategy::Split(3)),
        // Without any `[[limit]]` the limit that Weir uses instead is shared too.
        (split.to_owned(), bucket(100, 3 * MINUTE_NS, 33), Strategy::Split(3)),
    ] {
        assert_eq!(compiled(&text), (expected, strategy), "{text}");
    }
}

/// The errors of a configuration with these options of `[fleet]`, without positions.
fn peer_errors(options: &str) -> String {
    let text = format!("[fleet]\nstrategy = 'local'\nsecret = {{ env = 'SECRET' }}\n{options}\n{UPSTREAM}");
    let env = |_: &str| Some("0123456789abcdef0123456789ABCDEF".to_owned());
    match crate::config::compile(&text, "weir.toml", std::path::Path::new(""), &env) {
        Ok(_) => String::new(),
        Err(problems) => problems.iter().collect::<Vec<_>>().join("\n"),
    }
}

#[test]
fn connections_between_replicas_need_members_and_tls() {
    let here = "listen = '127.0.0.1:8082'";
    let members = "members = { static = ['127.0.0.1:8082', 'localhost:8083', '[::1]:8084'] }";
    for (options, expected) in [
        (format!("{here}\n{members}"), ""),
        (here.to_owned(), "`fleet.members`: needs exactly one of `static`, `dns` and `etcd`"),
        (format!("{here}\nmembers = {{ static = ['a:1'], dns = 'a:1' }}"), "needs exactly one of"),
        (format!("{here}\nmembers = {{ static = [] }}"), "an empty list has no effect"),
        (format!("{here}\nmembers = {{ etcd = ['http://127.0.0.1:2379', 'http://b'], prefix = '/a/b' }}"), ""),
        (format!("{here}\nmembers = {{ etcd = ['127.0.0.1:2379'] }}"), "must begin with `http://` or `https://`"),
        (format!("{here}\nmembers = {{ etcd = ['http://a/b'] }}"), "must end after the host or port"),
        (format!("{here}\nmembers = {{ etcd = ['http://me:hunter2@a'] }}"), "must not contain a user or a password"),
        (format!("{here}\nmembers = {{ etcd = ['http://a', 'https://b'] }}"), "`http://` and `https://` are mixed"),
        (format!("{here}\nmembers = {{ etcd = ['http://a'], dns = 'a:1' }}"), "needs exactly one of"),
        (
            format!("{here}\nmembers = {{ etcd = ['http://a'], prefix = 'weir' }}"),
            "`weir` is not a key such as `/weir`",
        ),
        (format!("{here}\nmembers = {{ etcd = ['http://a'], prefix = '/weir/' }}"), "is not a key such as `/weir`"),
        (
            format!("{here}\nmembers = {{ etcd = ['http://a'], tls = {{ ca = 'a' }} }}"),
            "has no effect without `https://`",
        ),
        (format!("{here}\nmembers = {{ etcd = ['http://a'], user = 'me' }}"), "needs a password"),
        (
            format!("{here}\nmembers = {{ dns = 'localhost:1', prefix = '/a' }}\ninsecure = true"),
            "without `fleet.members.etcd`",
        ),
        ("listen = '127.0.0.1:0'\nmembers = { etcd = ['http://a'] }".to_owned(), "needs `fleet.advertise`"),
        ("listen = '127.0.0.1:0'\nmembers = { etcd = ['http://a'] }\nadvertise = 'a:1'".to_owned(), ""),
        (format!("{here}\nmembers = {{ static = ['a'] }}"), "`a` is not a host with a port"),
        (format!("{here}\nmembers = {{ static = ['a:0'] }}"), "`a:0` is not a host with a port"),
        (format!("{here}\nmembers = {{ static = ['A:1', 'a:1'] }}"), "occurs twice"),
        (format!("{here}\nmembers = {{ dns = 'u@a:1' }}"), "is not a host with a port"),
        (format!("{here}\nmembers = {{ dns = 'a:1' }}"), "charges would go to other machines without TLS"),
        (format!("{here}\nmembers = {{ static = ['10.0.0.1:1'] }}"), "charges would go to other machines without TLS"),
        (format!("{here}\nmembers = {{ static = ['10.0.0.1:1'] }}\ninsecure = true"), ""),
        (format!("listen = '0.0.0.0:8082'\n{members}"), "other machines can reach this address, and it has no TLS"),
        (format!("listen = '0.0.0.0:8082'\n{members}\ninsecure = true\nadvertise = 'a.test:8082'"), ""),
        (format!("listen = 'unix:/run/weir'\n{members}"), "is not an address with a port"),
        (format!("{here}\n{members}\nadvertise = 'a'"), "`a` is not a host with a port"),
        (format!("{here}\n{members}\ninterval = '300ms'"), "must be at least 5 times `fleet.interval`"),
        (format!("{here}\n{members}\nmax_replicas = 0"), "expected whole number from 1 to 1000"),
        (format!("{here}\n{members}\ntls = {{ cert = 'a.pem' }}"), "`fleet.tls.key` is missing"),
        (format!("{here}\n{members}\n[admin]\nlisten = '127.0.0.1:8082'"), "have an address in common"),
        (members.to_owned(), "has no effect without `fleet.listen`"),
        ("interval = '1s'".to_owned(), "has no effect without `fleet.listen`"),
    ] {
        let said = peer_errors(&options);
        assert!(if expected.is_empty() { said.is_empty() } else { said.contains(expected) }, "{options}\n{said}");
    }
    let said = said(&format!("[fleet]\nstrategy = 'local'\n{here}\n{members}"));
    assert!(said.contains("replicas prove to each other that they know `fleet.secret`"), "{said}");
}

#[test]
fn plans_and_overrides_are_shared_too() {
    let text = format!(
        "[fleet]\nstrategy = 'split'\nreplicas = 2\n[plans]\nfrom = 'header:x-plan'\n\
         [[limit]]\nname = 'a'\nkey = ['ip']\nalgorithm = 'sliding_window'\nrate = '10/min'\n\
         plans = {{ gold = '100/min' }}\noverrides = {{ '192.0.2.1' = '7/min', '192.0.2.2' = 'unlimited' }}\n{UPSTREAM}"
    );
    let config = compile(&text).unwrap_or_else(|error| panic!("{error}"));
    let allowed = &config.policy.limits()[0].allowed;
    let capacity = |rule: &Option<Algorithm>| rule.as_ref().map(Algorithm::capacity);
    assert_eq!(allowed.usual.capacity(), 5);
    assert_eq!(allowed.plans.iter().map(|(_, rule)| capacity(rule)).collect::<Vec<_>>(), [Some(50)]);
    assert_eq!(allowed.overrides.iter().map(|(_, rule)| capacity(rule)).collect::<Vec<_>>(), [Some(3), None]);
}

#[test]
fn a_share_that_cannot_be_is_an_error() {
    insta::assert_snapshot!(brief("[[limit]]\nname = 'a'\nkey = []\nrate = '5/s'\nstrategy = 'split'"), @r"
    5:12 «'split'» `limit.strategy`: `split` needs the number of replicas
      = add `replicas = 3` to `[fleet]`: each replica gets an equal share of the limit
    ");
    insta::assert_snapshot!(brief("[fleet]\nstrategy = 'split'"), @r"
    2:12 «'split'» `fleet.strategy`: `split` needs the number of replicas
      = add `replicas = 3` to `[fleet]`: each replica gets an equal share of the limit
    ");
    insta::assert_snapshot!(brief("[fleet]\nreplicas = 3"), @r"
    1:1 «[fleet]» `fleet.strategy` is missing
      = expected `local`, `split`, `redis`, `lease`, `stream`, `service`, or table. How replicas share each limit that has no `strategy` of its own.
    ");
    insta::assert_snapshot!(brief("[fleet]\nstrategy = 'splt'\nreplicas = 0"), @r"
    2:12 «'splt'» `fleet.strategy`: `splt` is not one of `local`, `split`, `redis`, `lease`, `stream`, `service`
      = did you mean `split`?
    3:12 «0» `fleet.replicas`: expected whole number from 1 to 10000
    ");
    insta::assert_snapshot!(brief(
        "[fleet]\nstrategy = 'split'\nreplicas = 3\n\
         [[limit]]\nname = 'a'\nkey = []\nrate = '2/s'\n\
         [[limit]]\nname = 'b'\nkey = []\nrate = '5/s'\nburst = 2\n\
         [[limit]]\nname = 'c'\nkey = []\nalgorithm = 'concurrency'\nmax = 2\n\
         [[limit]]\nname = 'd'\nkey = []\nrate = '9/s'\ncost = 4"
    ), @r#"
    7:8 «'2/s'» `limit.rate`: 3 replicas cannot share 2 units: a share has none
      = with `strategy = "split"` this must be at least `fleet.replicas`, which is 3
    12:9 «2» `limit.burst`: 3 replicas cannot share 2 units: a share has none
      = with `strategy = "split"` this must be at least `fleet.replicas`, which is 3
    17:7 «2» `limit.max`: 3 replicas cannot share 2 units: a share has none
      = with `strategy = "split"` this must be at least `fleet.replicas`, which is 3
    22:8 «4» `limit.cost`: a cost of 4 can never pass: the burst is 3
    "#);
}

/// The members share a limit, as many as there are. Each has at least one unit.
#[test]
fn shares_follow_the_members() {
    let fleet = "[fleet]\nstrategy = 'split'\nsecret.env = 'WEIR_FLEET_SECRET'\nlisten = '127.0.0.1:8082'\n\
                 insecure = true\nmax_replicas = 50\n";
    let three = "members.static = ['localhost:8082', 'localhost:8083', 'localhost:8084']\n";
    let limit = "[[limit]]\nname = 'a'\nkey = []\nrate = '60/min'\n";
    let of = |options: &str, limit: &str, sizes: &[u64]| {
        let config = compile(&format!("{fleet}{options}{limit}\n{UPSTREAM}")).unwrap();
        let mut policy = config.policy;
        for size in sizes {
            policy = policy.resized(*size).unwrap_or(policy);
        }
        let scarce = policy.scarce_limits().count();
        let limit = &policy.limits()[0];
        let of_override = limit.allowed.overrides.first().and_then(|(_, rule)| rule.as_ref()).map(Algorithm::capacity);
        (policy.members(), limit.strategy, limit.allowed.usual.clone(), of_override, scarce)
    };
    let shared = |members, usual| (Some(members), Strategy::Split(members), usual, None, 0);
    for (options, sizes, members, burst) in [
        (three, &[][..], 3, 20),
        (three, &[2], 2, 30),
        (three, &[2, 2, 7, 4], 4, 15),
        (three, &[0], 1, 60),
        ("members.dns = 'localhost:8082'\n", &[], 1, 60),
        ("members.dns = 'localhost:8082'\n", &[60], 60, 1),
        ("members.dns = 'localhost:8082'\nreplicas = 5\n", &[], 5, 12),
        ("members.dns = 'localhost:8082'\nreplicas = 5\n", &[6], 6, 10),
        ("members.etcd = ['http://localhost:2379']\nreplicas = 60\n", &[], 50, 1),
    ] {
        let usual = bucket(60, members * MINUTE_NS, burst);
        assert_eq!(of(options, limit, sizes), shared(members, usual), "{options} {sizes:?}");
    }
    let named = |options: &str| {
        compile(&format!("{fleet}{options}{limit}\n{UPSTREAM}")).unwrap().peers.unwrap().settings.named_replicas()
    };
    let dns = "members.dns = 'localhost:8082'\n";
    assert_eq!((named(three), named(dns), named(&format!("{dns}replicas = 5\n"))), (Some(3), None, Some(5)));
    let keyed = "[[limit]]\nname = 'a'\nkey = ['ip']\nrate = '60/min'\noverrides = { '192.0.2.1' = '2/min' }\n";
    let scarce = (Some(3), Strategy::Split(3), bucket(60, 3 * MINUTE_NS, 20), Some(1), 1);
    assert_eq!(of(three, keyed, &[]), scarce);
    let (local, whole) = (format!("{limit}strategy = 'local'"), bucket(60, MINUTE_NS, 60));
    assert_eq!(of(three, &local, &[2]), (None, Strategy::Local, whole, None, 0));
    let store = "[store.main]\nredis = 'redis://127.0.0.1'\n";
    let redis = format!("{limit}strategy = 'redis'\n{store}");
    let (redis, whole) = (of(three, &redis, &[7]), bucket(60, MINUTE_NS, 60));
    assert_eq!(redis, (Some(7), Strategy::Redis { store: 0, replicas: 7 }, whole, None, 0));
}

/// A limit that replicas share by streams is whole.
#[test]
fn streams_share_the_whole_limit() {
    let fleet = "[fleet]\nstrategy = 'stream'\nreplicas = 3\nsecret.env = 'WEIR_FLEET_SECRET'\nlisten = '127.0.0.1:8082'\nmembers.static = 'localhost:8083'\n";
    let limit = "[[limit]]\nname = 'a'\nkey = []\nrate = '2/min'\n";
    let local = fleet.replace("'stream'", "'local'");
    let expected = (bucket(2, MINUTE_NS, 2), Strategy::Stream);
    assert_eq!(compiled(&format!("{fleet}{limit}")), expected);
    assert_eq!(compiled(&format!("{local}{limit}strategy = 'stream'")), expected);
    assert_eq!(compiled(&format!("{local}{limit}strategy = {{ use = 'stream' }}")), expected);
    assert_eq!(compiled(&format!("{fleet}{limit}strategy = 'local'")).1, Strategy::Local);
}

/// Windows of the calendar are those of the calendar on every replica.
#[test]
fn windows_of_the_calendar_stay_whole_minutes() {
    let window = "[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'fixed_window'\nrate = '60/min'\n";
    let fleet = "[fleet]\nstrategy = 'local'\nreplicas = 3\nsecret.env = 'WEIR_FLEET_SECRET'\nlisten = '127.0.0.1:8082'\nmembers.static = 'localhost:8083'\n";
    let at = |ns| crate::base::time::Timestamp::from_ns(27_000_000 * MINUTE_NS + ns);
    for (strategy, count) in [("split", 20), ("stream", 60)] {
        let (rule, _) = compiled(&format!("{fleet}{window}strategy = '{strategy}'"));
        assert_eq!((rule.capacity(), rule.period_ns()), (count, Some(MINUTE_NS)), "{strategy}");
        for first in [0, 1, MINUTE_NS / 2, MINUTE_NS - 1] {
            let mut state = AnyState::fresh(&rule);
            let decision = state.admit(&rule, count, at(first));
            assert_eq!(decision.reset_after_ns, MINUTE_NS - first, "{strategy} {first}");
        }
    }
}

#[test]
fn streams_need_a_secret_and_a_listener_and_units_that_come_back_with_time() {
    insta::assert_snapshot!(brief("[fleet]\nstrategy = 'stream'"), @r#"
    2:12 «'stream'» `fleet.strategy`: `stream` needs `fleet.secret`: all replicas must hash keys alike
      = add `secret = { env = "WEIR_FLEET_SECRET" }` to `[fleet]`, with the same value on every replica
    2:12 «'stream'» `fleet.strategy`: `stream` needs `fleet.listen`: replicas tell each other what they charge
      = add `listen = "0.0.0.0:8082"` and `members = { dns = "weir.internal:8082" }` to `[fleet]`
    "#);
    let fleet = "[fleet]\nstrategy = 'stream'\nreplicas = 3\nsecret.env = 'WEIR_FLEET_SECRET'\nlisten = '127.0.0.1:8082'\nmembers.static = 'localhost:8083'\n";
    insta::assert_snapshot!(brief(&format!(
        "{fleet}[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'concurrency'\nmax = 9\n\
         [[limit]]\nname = 'b'\nkey = []\nalgorithm = 'leaky_bucket'\nrate = '9/s'\non_limit = 'hold'\n\
         [[limit]]\nname = 'c'\nkey = []\nrate = '1/day'\nburst = 105\n\
         [[limit]]\nname = 'd'\nkey = []\nrate = '9/s'\nstrategy = {{ use = 'stream', store = 'x', units = 5 }}"
    )), @r#"
    10:13 «'concurrency'» `limit.algorithm`: cannot be shared by streams: `concurrency` counts requests in flight, and those of a replica that is lost would never end
      = use `strategy = "redis"` or `"split"` for this limit
    15:13 «'leaky_bucket'» `limit.algorithm`: cannot be shared by streams: requests of a `leaky_bucket` that holds pass one by one, and replicas hear of each other only later
      = use `strategy = "redis"` or `"split"` for this limit
    22:9 «105» `limit.burst`: streams cannot carry this limit: it takes more than 104 days to refill, with its debt
      = write a long quota as a window, with `algorithm = "fixed_window"`
    27:38 «'x'» `limit.strategy.store`: belongs to `redis`, `lease` and `service`
    27:51 «5» `limit.strategy.units`: belongs to `lease`
    "#);
}
