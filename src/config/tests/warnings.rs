//! Configurations that are valid and probably not meant, and the warning about each.

use super::compile;
use crate::admin::FindingBody;

/// The code, line and column of each warning about `text`.
fn warned(text: &str) -> Vec<(&'static str, Option<(usize, usize)>)> {
    let text = if text.contains("upstream") || text.contains("check.listen") {
        text.to_owned()
    } else {
        format!("{text}\nupstream.url = 'http://127.0.0.1:9000'\n")
    };
    let config = compile(&text).unwrap_or_else(|problems| panic!("{problems}"));
    let (findings, more) = config.warnings.findings();
    assert_eq!(more, 0);
    let row = |FindingBody { severity, code, file, line, column, .. }: FindingBody| {
        let expected = if code == "opens_denied" { "note" } else { "warning" };
        assert_eq!((&*severity, &*file), (expected, "weir.toml"));
        (&*code.leak(), line.zip(column))
    };
    findings.into_iter().map(row).collect()
}

fn limit(name: &str, rest: &str) -> String {
    format!("[[limit]]\nname = '{name}'\n{rest}\n")
}

#[test]
fn what_holds_everyone() {
    for (text, code, at) in [
        ("server.trusted_proxies = ['10.1.0.0/16', '0.0.0.0/0']", "trusts_everyone", (1, 42)),
        ("server.trusted_proxies = ['10.1.0.0/16', '10.0.0.0/8']", "trusts_private_network", (1, 42)),
        ("server.trusted_proxies = '172.16.0.0/12'", "trusts_private_network", (1, 26)),
        ("server.trusted_proxies = '192.168.0.0/15'", "trusts_private_network", (1, 26)),
        ("server.proxy_protocol.from = ['10.0.0.0/8']", "trusts_private_network", (1, 31)),
        ("server.trusted_proxies = ['192.0.2.1', '10.0.0.0/9', '10.128.0.0/9']", "trusts_private_network", (1, 40)),
        ("server.trusted_proxies = ['192.0.2.1', '10.0.0.0/8', '11.0.0.0/8']", "trusts_private_network", (1, 40)),
        ("server.trusted_proxies = '0.0.0.0/1'", "trusts_private_network", (1, 26)),
        ("server.trusted_proxies = ['0.0.0.0/1', '128.0.0.0/1']", "trusts_everyone", (1, 27)),
        ("access.allow.ip = ['0.0.0.0/1', '128.0.0.0/1']", "allows_everything", (1, 20)),
        ("server.trusted_proxies = 'fc00::/7'", "trusts_private_network", (1, 26)),
        ("server.trusted_proxies = '::/0'", "trusts_everyone", (1, 26)),
        ("server.trusted_proxies = '::ffff:0.0.0.0/96'", "trusts_everyone", (1, 26)),
        ("server.proxy_protocol.from = '::/0'", "trusts_everyone", (1, 30)),
        ("access.allow.ip = ['0.0.0.0/0']", "allows_everything", (1, 20)),
        ("access.allow.path = '/{*all}'", "allows_everything", (1, 21)),
    ] {
        assert_eq!(warned(&format!("{text}\nupstream.url = 'http://127.0.0.1:9000'")), [(code, Some(at))], "{text}");
    }
    let except = |network: &str| limit("a", &format!("key = []\nrate = '1/s'\nexcept.ip = '{network}'"));
    assert_eq!(
        warned(&format!("upstream.url = 'http://a'\n{}", except("0.0.0.0/0"))),
        [("exempts_everyone", Some((6, 13)))]
    );
    for (network, what) in [
        ("'10.0.0.0/8'", "`10.0.0.0/8` is a whole private network: each host"),
        ("'10.0.0.0/7'", "`10.0.0.0/7` contains the whole private network `10.0.0.0/8`: each host"),
        ("'0.0.0.0/1'", "`0.0.0.0/1` is half of all addresses: each host"),
        (
            "['10.0.0.0/9', '10.128.0.0/9']",
            "`10.0.0.0/9` and other entries are together the whole private network `10.0.0.0/8`",
        ),
        ("['0.0.0.0/1', '128.0.0.0/1']", "`0.0.0.0/1` and other entries are together every address: any client"),
    ] {
        let text = format!("server.trusted_proxies = {network}\nupstream.url = 'http://a'");
        let said = compile(&text).unwrap().warnings.to_string();
        assert!(said.contains(what), "{said}");
    }
    for text in ["access.deny.ip = '0.0.0.0/0'", "access.allow.path = '/a/{*all}'"] {
        assert_eq!(warned(&format!("{text}\nupstream.url = 'http://a'")), []);
    }
    assert_eq!(warned(&format!("upstream.url = 'http://a'\n{}", except("10.0.0.0/8"))), []);
}

#[test]
fn plans_that_no_request_has() {
    let upstream = "upstream.url = 'http://a'\n";
    let rest = "key = []\nrate = '1/s'\nplans = { b = '2/s' }\n";
    assert_eq!(warned(&format!("{upstream}{}", limit("a", rest))), [("plans_without_source", Some((6, 9)))]);
    let from = format!("{upstream}plans.from = 'header:x-plan'\n{}", limit("a", rest));
    assert_eq!(warned(&from), []);
    let rest = "key = ['ip']\nrate = '1/s'\nplans = { b = '2/s' }\noverrides = { '192.0.2.1' = { plan = 'b' } }\n";
    assert_eq!(warned(&format!("{upstream}{}", limit("a", rest))), []);
}

#[test]
fn refusals_before_the_key_is_known() {
    let priced = "settle = { by = 'openai-chat', price.a = { input = 1, output = 1 }, unpriced = 'refuse' }";
    let longer = "cost = { json = '/n', max = 1, beyond = 'refuse' }";
    for (rest, enforce, codes) in [
        (priced, "50%", vec!["partial_refusal"]),
        (longer, "1%", vec!["partial_refusal"]),
        (longer, "100%", vec![]),
        ("cost = 1", "50%", vec![]),
    ] {
        let text = limit("a", &format!("key = ['ip']\nrate = '9/s'\nenforce = '{enforce}'\n{rest}"));
        let found = warned(&format!("upstream.url = 'http://a'\n{text}")).into_iter().map(|(code, _)| code);
        assert_eq!(found.collect::<Vec<_>>(), codes, "{rest} {enforce}");
    }
}

#[test]
fn charges_that_a_check_never_settles() {
    let check = "server.trusted_proxies = '10.0.0.0/24'\ncheck.listen = '127.0.0.1:8082'\n";
    let settle = "settle = { by = 'elapsed_ms' }\n";
    for (rest, code) in [
        ("key = ['ip']\nrate = '1/s'", None),
        ("key = ['ip']\nalgorithm = 'concurrency'\nmax = 3", Some("unsettled_check")),
        (&format!("key = ['ip']\nrate = '1/s'\n{settle}"), Some("unsettled_check")),
        ("key = ['ip']\nrate = '1/s'\ncount = { status = ['4xx'] }", Some("unsettled_check")),
        ("key = ['ip']\nrate = '9/s'\nadapt = { by = 'upstream_p90', target = '9ms' }", Some("unsettled_check")),
        ("key = ['ip']\nrate = '9/s'\nadapt = { by = 'cpu', target = '90%' }", None),
        (&format!("key = ['ip']\nrate = '1/s'\nmode = 'off'\n{settle}"), None),
    ] {
        let text = limit("a", rest);
        let codes = warned(&format!("{check}{text}")).into_iter().map(|(code, _)| code);
        assert_eq!(codes.collect::<Vec<_>>(), code.into_iter().collect::<Vec<_>>(), "{rest}");
        // With a service the limit may be for requests.
        assert_eq!(warned(&format!("{check}upstream.url = 'http://a'\n{text}")), [], "{rest}");
    }
}

#[test]
fn lists_of_paths_without_their_spellings() {
    let deny = "[access]\ndeny.path = '/a'\n";
    let require = "[identity.shop]\nheader = 'x-shop'\n[[access.require]]\npath = '/a'\nidentity = 'shop'\n";
    let upstream = "[upstream]\nurl = 'http://a'\n";
    assert_eq!(warned(&format!("{deny}{upstream}")), [("path_spellings", Some((2, 13)))]);
    assert_eq!(warned(&format!("{require}{upstream}")), [("path_spellings", Some((3, 1)))]);
    for text in [deny, require] {
        assert_eq!(warned(&format!("{text}{upstream}[server]\npaths = {{}}\n")), []);
        assert_eq!(warned(&format!("{text}{upstream}[server.paths]\nignore_case = true\n")), []);
    }
    assert_eq!(warned(&format!("[access]\nallow.path = '/a'\n{upstream}")), []);
}

/// The codes of the warnings about a limit that has `rest`.
fn codes_of_limit(before: &str, rest: &str) -> Vec<&'static str> {
    let text = format!("upstream.url = 'http://a'\nplans.from = 'header:x-plan'\n{before}{}", limit("a", rest));
    warned(&text).into_iter().map(|(code, _)| code).collect()
}

#[test]
fn rates_without_an_effect_and_windows_without_a_snapshot() {
    for (rest, expected) in [
        ("rate = ['100/min', '1000/h']", &[][..]),
        ("rate = ['10/s', '1000/min']", &["idle_rate"]),
        ("rate = ['1000/min', '10/s']", &["idle_rate"]),
        ("rate = ['10/s', '500/min', '600/min']", &["idle_rate"]),
        ("algorithm = 'sliding_log'\nrate = ['10/s', '600/min']", &["idle_rate"]),
        ("algorithm = 'sliding_log'\nrate = ['10/s', '599/min']", &[]),
        ("rate = '10/s'\nplans = { low = '5/s', high = '20/s', same = '10/s', free = 'unlimited' }", &["low_plan"]),
        ("algorithm = 'fixed_window'\nrate = ['100/min', '7000/h']", &["idle_rate"]),
        ("algorithm = 'fixed_window'\nrate = ['100/min', '6000/h']", &["idle_rate"]),
        ("algorithm = 'fixed_window'\nrate = ['100/min', '5999/h']", &[]),
        ("algorithm = 'fixed_window'\nrate = ['100/7min', '7000/h']", &[]),
        ("algorithm = 'fixed_window'\nalign = 'first'\nrate = ['100/min', '7000/h']", &[]),
        ("rate = ['100/min', '1000/h']\nplans = { low = ['200/min', '500/h'] }", &["low_plan"]),
        ("rate = ['100/min', '1000/h']\nplans = { high = ['200/min', '2000/h'] }", &[]),
        ("rate = '100/min'\nburst = 500\nplans = { low = '200/min' }", &["low_plan"]),
        ("rate = '100/min'\nburst = 500\nplans = { low = { rate = '200/min', burst = 200 } }", &[]),
        ("rate = '10/s'\nplans = { mixed = { rate = '5/s', burst = 20 } }", &[]),
        ("rate = '1/min'\non_limit = 'hold'", &[]),
        ("rate = '1/2min'\non_limit = 'hold'", &["endless_wait"]),
        ("algorithm = 'fixed_window'\nrate = '9000000/month'\non_limit = 'hold'\npersist = false", &[]),
        ("algorithm = 'fixed_window'\nrate = '40000/month'\non_limit = 'hold'\npersist = false", &["endless_wait"]),
        ("rate = '5/h'\non_limit = 'hold'\nmode = 'off'", &[]),
        ("rate = '5/h'\non_limit = 'hold'\nhold.max_wait = '1h'", &[]),
        ("rate = '5/h'\non_limit = 'hold'\nhold.max_wait = 'forever'", &[]),
        ("rate = '5/h'", &[]),
        ("rate = '5/day'", &["forgotten_window"]),
        ("rate = ['5/min', '20/week']", &["forgotten_window"]),
        ("rate = '5/day'\npersist = false", &[]),
        ("rate = '5/day'\nmode = 'shadow'", &[]),
        ("rate = '23/h'", &[]),
        ("rate = '10/23h'", &[]),
        ("rate = '10/24h'", &["forgotten_window"]),
        ("rate = '10/48h'", &["forgotten_window"]),
        ("rate = '10/1440min'", &["forgotten_window"]),
        ("rate = '10/s'\nplans = { a = { rate = '100000/day' } }", &["forgotten_window"]),
        ("rate = '10/s'\noverrides = { '192.0.2.1' = '100000/day' }", &["forgotten_window"]),
        ("algorithm = 'fixed_window'\nrate = '5/month'", &["forgotten_window"]),
    ] {
        assert_eq!(codes_of_limit("", &format!("key = ['ip']\n{rest}")), expected, "{rest}");
    }
    let saved = codes_of_limit("snapshot.path = 'state'\n", "key = ['ip']\nrate = '5/day'");
    assert_eq!(saved, [] as [&str; 0]);
    let at = |rest: &str| warned(&format!("upstream.url = 'http://a'\n{}", limit("a", rest)));
    assert_eq!(at("key = ['ip']\nrate = ['10/s', '1000/min']"), [("idle_rate", Some((5, 17)))]);
    assert_eq!(at("key = ['ip']\nrate = '5/day'"), [("forgotten_window", Some((5, 8)))]);
}

#[test]
fn methods_that_no_rfc_names() {
    let matching = |methods: &str| {
        let limit = limit("a", &format!("key = ['ip']\nrate = '1/s'\nmatch.method = {methods}"));
        format!("upstream.url = 'http://a'\n{limit}")
    };
    for (methods, expected) in
        [("['GET', 'PROPFIND', 'QUERY']", None), ("['GET', 'GTE']", Some((6, 24))), ("'FETCH'", Some((6, 16)))]
    {
        let at = expected.map(|at| ("unknown_method", Some(at)));
        assert_eq!(warned(&matching(methods)), at.into_iter().collect::<Vec<_>>(), "{methods}");
    }
    assert!(compile(&matching("'GTE'")).unwrap().warnings.to_string().contains("did you mean `GET`?"));
}

#[test]
fn a_profile_has_an_old_name() {
    let text = "upstream.url = 'http://a'\nheaders.profiles = 'wildberries'";
    assert_eq!(warned(text), [("old_name", Some((2, 20)))]);
    assert!(compile(text).unwrap().proxy.profiles.x_ratelimit_retry);
}

#[test]
fn plans_that_are_required_and_that_no_limit_has() {
    let plans = limit("a", "key = ['ip']\nrate = '1/s'\nplans = { premium = '2/s', gold = '3/s' }");
    let text = |plan: &str, limits: &str| {
        format!(
            "server = {{ paths = {{}}, trusted_proxies = ['192.0.2.1'] }}\nupstream.url = 'http://a'\nplans.from = 'header:x-plan'\n\
             [[access.require]]\npath = '/a'\nplan = {plan}\n{limits}"
        )
    };
    assert_eq!(warned(&text("['premium', 'gold']", &plans)), []);
    assert_eq!(warned(&text("['premium', 'glod']", &plans)), [("unknown_plan", Some((6, 20)))]);
    assert_eq!(warned(&text("'basic'", &plans)), [("unknown_plan", Some((6, 8)))]);
    // Plans may be for access only.
    assert_eq!(warned(&text("'basic'", &limit("a", "key = ['ip']\nrate = '1/s'"))), []);
}

#[test]
fn limits_whose_paths_no_route_has() {
    let codes = |routes: &[&str], rest: &str| {
        let routes = routes.iter().fold(String::new(), |all, rest| all + "[[route]]\nupstream = 'a'\n" + rest + "\n");
        let limit = limit("a", &format!("key = ['ip']\nrate = '1/s'\n{rest}"));
        let text = format!("[upstreams.a]\nendpoints = ['http://127.0.0.1:9']\n{routes}{limit}");
        warned(&text).into_iter().map(|(code, at)| (code, at.is_some())).collect::<Vec<_>>()
    };
    let unserved = [("unserved_limit", true)];
    let api = "match.path = '/api/{*rest}'";
    assert_eq!(codes(&[api], "match.path = '/api/v1'"), []);
    assert_eq!(codes(&[api], "match.path = '/{any}/v1'"), []);
    assert_eq!(codes(&[api], "match.path = ['/apo/v1', '/api/{id}']"), []);
    assert_eq!(codes(&[api], ""), []);
    assert_eq!(codes(&[api], "match.path = '/apo/v1'"), unserved);
    assert_eq!(codes(&[api, "match.path = '/b'"], "match.path = ['/b/c', '/c']"), unserved);
    assert_eq!(codes(&[api], "match.path = '/apo/v1'\nmode = 'off'"), []);
    assert_eq!(codes(&[api, "match.host = 'a.example'"], "match.path = '/apo/v1'"), []);
}

#[test]
fn entries_of_access_whose_paths_no_route_has() {
    let codes = |access: &str, route: &str| {
        let text = format!(
            "[identity.shop]\nheader = 'x-shop'\n[server]\npaths = {{}}\n[access]\n{access}\n\
             [upstreams.a]\nendpoints = ['http://127.0.0.1:9']\n[[route]]\nupstream = 'a'\n{route}\n"
        );
        warned(&text).into_iter().filter(|(code, _)| *code != "unused_identity").collect::<Vec<_>>()
    };
    let api = "match.path = '/api/{*rest}'";
    for (access, column) in [
        ("require = [{ path = '/api/{*rest}', identity = 'shop' }]", None),
        ("require = [{ path = '/{any}/v1', identity = 'shop' }]", None),
        ("require = [{ method = 'POST', identity = 'shop' }]", None),
        ("require = [{ path = '/apii/{*rest}', identity = 'shop' }]", Some(21)),
        ("require = [{ path = ['/api/v1', '/apii'], identity = 'shop' }]", Some(33)),
        ("deny.path = '/api/v1'", None),
        ("deny.path = ['/api/v1', '/apii/v1']", Some(25)),
        ("allow.path = '/health'", Some(14)),
    ] {
        let expected: Vec<_> = column.map(|column| ("unserved_access", Some((6, column)))).into_iter().collect();
        assert_eq!(codes(access, api), expected, "{access}");
        assert_eq!(codes(access, "match.host = 'a.example'"), [], "{access}");
    }
}

#[test]
fn health_checks_that_take_longer_than_their_interval() {
    let text = |health: &str| {
        format!("[upstreams.a]\nendpoints = ['http://127.0.0.1:9']\n[upstreams.a.health]\npath = '/'\n{health}")
    };
    for (health, expected) in [
        ("interval = '1s'\ntimeout = '2s'", Some((6, 11))),
        ("interval = '2s'\ntimeout = '2s'", None),
        ("interval = '100ms'", Some((5, 12))),
        ("", None),
    ] {
        let at = expected.map(|at| ("late_check", Some(at)));
        assert_eq!(warned(&text(health)), at.into_iter().collect::<Vec<_>>(), "{health}");
    }
}

#[test]
fn identities_that_guard_a_part_of_a_route() {
    let service = "[upstream]\nurl = 'http://a'\n";
    let identity = "[identity.shop]\nheader = 'x-shop'\n";
    let by_address = limit("outer", "key = ['ip']\nrate = '9/s'");
    let guard = |rest: &str| limit("guard", &format!("key = ['shop']\nrate = '1/s'\n{rest}"));
    let require = |rest: &str| format!("[access]\nrequire = [{{ {rest} }}]\n[server]\npaths = {{}}\n");
    let routes = "[upstreams.a]\nendpoints = ['http://a']\n[[route]]\nmatch.path = ['/a/{*r}', '/b']\nupstream = 'a'\n\
        [[route]]\nmatch.path = '/c/{*r}'\nupstream = 'a'\n";
    for (rest, is_partly) in [
        (guard(""), false),
        (guard("match.path = '/a'"), true),
        (guard("match.method = 'GET'"), true),
        (guard("match.host = 'a.test'"), true),
        (guard("except.ip = '192.0.2.0/24'"), false),
        // It verifies the identities of all clients, and whatever a body has.
        (guard("match.ip = '192.0.2.0/24'"), false),
        (guard("match.json = { '/a' = '1' }"), false),
        (guard("match = { path = '/a', ip = '192.0.2.0/24' }"), true),
        (guard("mode = 'off'"), false),
        // Except says which requests need none.
        (guard("except.path = '/login'"), false),
        (guard("match.path = '/a'").replace("[[limit]]", &format!("{}[[limit]]", require("identity = 'shop'"))), false),
        (guard("match.path = '/a'") + &require("path = '/a', identity = 'shop'"), false),
        (guard("match.path = '/a'") + &require("path = '/{*r}', identity = 'shop'"), false),
        (guard("match.path = ['/a', '/b']") + &require("path = ['/b', '/a'], identity = 'shop'"), false),
        (guard("match = { path = '/a', method = 'GET' }") + &require("path = '/a', identity = 'shop'"), false),
        (guard("match.method = 'GET'") + &require("method = 'GET', identity = 'shop'"), false),
        // A requirement about other requests says nothing.
        (guard("match = { path = '/a/{*r}', method = 'GET' }") + &require("path = '/z', identity = 'shop'"), true),
        (guard("match.path = '/a'") + &require("path = '/a', method = 'POST', identity = 'shop'"), true),
        (guard("match.path = '/a/{x}'") + &require("path = '/a/b', identity = 'shop'"), true),
        (guard("match.path = ['/a', '/b']") + &require("path = '/a', identity = 'shop'"), true),
        (guard("match.path = '/a/{x}'") + &require("path = '/c/{*r}', identity = 'shop'") + routes, true),
        (guard("match.path = '/a/{x}'") + &require("path = ['/a/{*r}', '/b'], identity = 'shop'") + routes, false),
        (guard("match.path = '/{*r}'") + routes, false),
        (guard("match.path = '/a/{x}'") + routes, true),
        (guard("match.path = ['/a/{*r}', '/b']") + routes, false),
        (
            guard("match.path = '/a/{*r}'")
                + &limit("other", "key = ['shop']\nrate = '1/s'\nmatch.path = '/b'")
                + routes,
            false,
        ),
        (
            guard("match.path = '/a/x'") + &routes.replacen("upstream = 'a'", "upstream = 'a'\nrequire = 'shop'", 1),
            false,
        ),
        (
            guard("match.path = '/c/x'") + &routes.replacen("upstream = 'a'", "upstream = 'a'\nrequire = 'shop'", 1),
            true,
        ),
    ] {
        let service = if rest.contains("upstreams") { "" } else { service };
        let warnings = warned(&format!("{service}{identity}{by_address}{rest}"));
        let codes: Vec<_> = warnings.into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, if is_partly { vec!["partly_guarded"] } else { Vec::new() }, "{rest}");
        let open = identity.replace("'x-shop'", "'x-shop'\non_missing = 'ip'");
        assert_eq!(warned(&format!("{service}{open}{by_address}{rest}")), [], "{rest}");
    }
}

#[test]
fn plans_of_headers_without_a_proxy() {
    let require =
        "[upstream]\nurl = 'http://a'\n[access]\nrequire = [{ plan = 'b' }]\n[plans]\nfrom = 'header:x-plan'\n";
    assert_eq!(warned(require), [("unproven_plan", Some((4, 21)))]);
    assert_eq!(warned(&format!("{require}[server]\ntrusted_proxies = ['192.0.2.1']\n")), []);
    let forward = "[plans]\nfrom = 'header:x-plan'\n[server]\nforward_as = { x-tier = 'plan' }\n";
    assert_eq!(warned(&format!("[upstream]\nurl = 'http://a'\n{forward}")), [("unproven_plan", Some((6, 25)))]);
    assert_eq!(warned(&format!("[upstream]\nurl = 'http://a'\n{forward}trusted_proxies = ['192.0.2.1']\n")), []);
}

#[test]
fn entries_that_open_what_others_close() {
    let paths = "[upstream]\nurl = 'http://a'\n[server]\npaths = {}\n";
    for (access, code) in [
        ("deny.ip = ['10.0.0.0/8']\nallow.ip = ['10.1.0.0/16']", Some("opens_denied")),
        ("deny.ip = ['::ffff:10.0.0.0/104']\nallow.ip = ['10.1.0.0/16']", Some("opens_denied")),
        ("deny.ip = ['10.1.0.0/16']\nallow.ip = ['10.0.0.0/8']", None),
        ("deny.ip = ['10.0.0.0/8']\nallow.ip = ['11.0.0.0/8']", None),
        ("deny.path = ['/a/{*r}']\nallow.path = ['/a/{x}']", Some("opens_denied")),
        ("deny.path = ['/a/b']\nallow.path = ['/a/{x}']", None),
        ("deny.identity.shop = 'a'\n", Some("evaded_denial")),
        ("deny.identity.shop = 'a'\nrequire = [{ identity = 'shop' }]", None),
        ("deny.identity.shop = 'a'\nrequire = [{ path = '/{*r}', identity = 'shop' }]", None),
        ("deny.identity.shop = 'a'\nrequire = [{ path = '/a', identity = 'shop' }]", Some("evaded_denial")),
    ] {
        let identity = "[identity.shop]\nheader = 'x-shop'\non_missing = 'ip'\n";
        let uses = limit("a", "key = ['ip']\nrate = '9/s'") + &limit("b", "key = ['shop']\nrate = '1/s'");
        let codes = warned(&format!("{identity}{uses}{paths}[access]\n{access}\n")).into_iter().map(|(code, _)| code);
        assert_eq!(codes.collect::<Vec<_>>(), code.into_iter().collect::<Vec<_>>(), "{access}");
    }
}

#[test]
fn a_denial_by_an_identity_that_few_limits_need() {
    let text = "[upstream]\nurl = 'http://a'\n[server]\npaths = {}\n[identity.shop]\nheader = 'x-shop'\n\
                [access]\ndeny.identity.shop = 'a'\n";
    let by_ip = limit("a", "key = ['ip']\nrate = '9/s'");
    for (limits, is_evaded) in [
        (String::new(), true),
        (limit("b", "key = ['shop']\nrate = '1/s'"), false),
        (limit("b", "key = ['shop']\nrate = '1/s'\nmatch.path = '/a'"), true),
        (limit("b", "key = ['shop']\nrate = '1/s'\nmatch.ip = '192.0.2.0/24'"), false),
    ] {
        let found = warned(&format!("{text}{by_ip}{limits}")).iter().any(|(code, _)| *code == "evaded_denial");
        assert_eq!(found, is_evaded, "{limits}");
    }
}

#[test]
fn an_identity_that_nothing_uses() {
    let identity = "[upstream]\nurl = 'http://a'\n[identity.shop]\nheader = 'x-shop'\n";
    assert_eq!(warned(identity), [("unused_identity", Some((3, 11)))]);
    let uses = [
        limit("a", "key = ['ip']\nrate = '9/s'") + &limit("b", "key = ['shop']\nrate = '1/s'"),
        "[access]\ndeny.identity.shop = 'a'\nrequire = [{ identity = 'shop' }]\n".to_owned(),
        "[access]\nallow.identity.shop = 'a'\n".to_owned(),
        "[access]\nrequire = [{ identity = 'shop' }]\n".to_owned(),
        "[server]\nforward_as = { x-a = 'shop' }\n".to_owned(),
    ];
    for using in uses {
        assert_eq!(warned(&format!("{identity}{using}")), [], "{using}");
    }
}

#[test]
fn a_folder_that_is_not_there() {
    // The folder of the configuration is `config`.
    for (path, is_there) in
        [("state", true), ("keys/state", true), ("keys", false), ("nowhere/state", false), ("full.toml/a", false)]
    {
        for key in ["snapshot.path", "admin.overrides"] {
            let expected = if is_there { vec![] } else { vec![("folder", Some((1, key.len() + 4)))] };
            assert_eq!(warned(&format!("{key} = '{path}'\nupstream.url = 'http://a'")), expected, "{key} {path}");
        }
    }
}

#[test]
fn an_access_log_that_cannot_be_written_or_that_nothing_writes() {
    let text = |file: &str, rest: &str| format!("log.access_file = '{file}'\n{rest}\nupstream.url = 'http://a'");
    for (file, what) in [
        ("access.log", None),
        ("full.toml", None),
        ("/dev/null", None),
        ("nowhere/access.log", Some("nowhere` does not exist")),
        ("keys", Some("keys` is a directory")),
        ("full.toml/a", Some("does not exist")),
    ] {
        let text = text(file, "log.access = 'all'");
        let expected: Vec<_> = what.map(|_| ("folder", Some((1, 19)))).into_iter().collect();
        assert_eq!(warned(&text), expected, "{file}");
        let said = compile(&text).unwrap().warnings.to_string();
        assert!(said.contains(what.unwrap_or_default()), "{said}");
        let audit =
            compile(&format!("admin.audit = '{file}'\nupstream.url = 'http://a'")).unwrap().warnings.to_string();
        assert!(audit.contains(what.unwrap_or_default()) && !audit.contains("renames"), "{audit}");
        assert_eq!(audit.is_empty(), what.is_none(), "{audit}");
    }
    assert_eq!(warned(&text("access.log", "")), [("unused_access_file", Some((1, 19)))]);
    assert_eq!(warned(&text("access.log", "log.access = 'off'")), []);
}

/// Whether the second of two limits is reported as shadowed by the first, and the first by the second.
fn shadowed(first: &str, second: &str) -> (bool, bool) {
    let text = format!("upstream.url = 'http://a'\n{}{}", limit("a", first), limit("b", second));
    let lines: Vec<_> = warned(&text).into_iter().filter(|(code, _)| *code == "shadowed_limit").collect();
    let second_line = 3 + first.lines().count() + 2;
    (lines.iter().any(|(_, at)| at.unwrap().0 == second_line), lines.iter().any(|(_, at)| at.unwrap().0 == 3))
}

#[test]
fn a_limit_that_never_refuses() {
    let base = "key = ['ip']\nrate = '10/s'";
    for (first, second, expected) in [
        (base, base, (true, false)),
        (base, "key = ['ip']\nrate = '20/s'", (true, false)),
        ("key = ['ip']\nrate = '20/s'", base, (false, true)),
        (base, "key = ['ip']\nrate = '20/s'\nburst = 5", (false, false)),
        (base, "key = ['ip']\nrate = '100/min'", (false, false)),
        ("key = []\nrate = '10/s'", "key = ['ip']\nrate = '10/s'", (true, false)),
        (base, "key = ['path']\nrate = '20/s'", (false, false)),
        (base, "key = ['ip', 'path']\nrate = '20/s'", (true, false)),
        (base, "key = ['ip']\nrate = '20/s'\nmatch.path = '/a'", (true, false)),
        ("key = ['ip']\nrate = '10/s'\nmatch.path = '/a'", "key = ['ip']\nrate = '20/s'", (false, false)),
        (
            "key = ['ip']\nrate = '10/s'\nmatch.path = '/a'",
            "key = ['ip']\nrate = '20/s'\nmatch.path = '/a'",
            (true, false),
        ),
        (
            "key = ['ip']\nrate = '10/s'\nmatch.path = '/a'",
            "key = ['ip']\nrate = '20/s'\nmatch.path = '/b'",
            (false, false),
        ),
        ("key = ['ip']\nrate = '10/s'\nmatch.method = 'GET'", "key = ['ip']\nrate = '20/s'", (false, false)),
        ("key = ['ip']\nrate = '10/s'\nexcept.ip = '10.0.0.0/8'", "key = ['ip']\nrate = '20/s'", (false, false)),
        (base, "key = ['ip']\nrate = '20/s'\nexcept.ip = '10.0.0.0/8'", (true, false)),
        ("key = ['ip']\nrate = '10/s'\nmode = 'shadow'", "key = ['ip']\nrate = '20/s'", (false, false)),
        (base, "key = ['ip']\nrate = '20/s'\nmode = 'shadow'", (false, false)),
        ("key = ['ip']\nrate = '10/s'\nenforce = '99%'", "key = ['ip']\nrate = '20/s'", (false, false)),
        (base, "key = ['ip']\nrate = '20/s'\nenforce = '99%'", (true, false)),
        ("key = ['ip']\nrate = '10/s'\non_limit = 'delay'", "key = ['ip']\nrate = '20/s'", (false, false)),
        (base, "key = ['ip']\nrate = '20/s'\nstage = 'arrival'", (false, false)),
        ("key = ['ip']\nrate = '10/s'\nstage = 'arrival'", "key = ['ip']\nrate = '20/s'", (true, false)),
        (base, "key = ['ip']\nrate = '20/s'\ncost = 2", (false, false)),
        (base, "key = ['ip']\nrate = ['20/s', '100/min']", (false, false)),
        ("key = ['ip']\nrate = ['10/s', '100/min']", "key = ['ip']\nrate = ['20/s', '200/min']", (true, false)),
        (base, "key = ['ip']\nrate = '20/s'\noverrides = { '192.0.2.1' = '1/s' }", (false, false)),
        (
            "key = ['ip']\nalgorithm = 'concurrency'\nmax = 5",
            "key = ['ip']\nalgorithm = 'concurrency'\nmax = 6",
            (true, false),
        ),
        (base, "key = ['ip']\nrate = '20/s'\nalgorithm = 'sliding_log'", (false, false)),
    ] {
        assert_eq!(shadowed(first, second), expected, "{first}\n--\n{second}");
    }
}

/// A limit that callers of the limiter service name decides for them, whatever requests meet.
#[test]
fn a_limit_that_callers_name() {
    let limits = limit("a", "key = []\nrate = '10/s'") + &limit("b", "key = []\nrate = '20/s'\nmatch.path = '/a'");
    let unnamed = [("void_limit", Some((6, 8))), ("shadowed_limit", Some((10, 8))), ("void_limit", Some((10, 8)))];
    for (rules, expected) in [
        ("[[grpc.check]]\nlimits = { a = {}, b = {} }", &[][..]),
        ("[[grpc.descriptor]]\nentries = [{ key = 'k' }]\ndomain = 'd'\nlimits = { a = {}, b = {} }", &[]),
        ("[[grpc.check]]\nscope = 's'\nlimits = {}", &unnamed),
    ] {
        let text = format!(
            "upstream.url = 'http://a'\naccess.deny.ip = ['0.0.0.0/0', '::/0']\n[grpc]\nlisten = '127.0.0.1:0'\n{limits}{rules}"
        );
        assert_eq!(warned(&text), expected, "{rules}");
    }
}

#[test]
fn a_key_that_clients_can_invent() {
    let base = "upstream.url = 'http://a'\nidentity.shop.header = 'x-shop'\n\
        identity.device.jwt = { claim = 'sub', algorithms = ['HS256'], keys = [{ secret = { env = 'WEIR_JWT_SECRET' } }] }\n\
        access.deny.identity = { shop = 'a', device = 'a' }\n";
    let is_warned = |limits: &[&str]| {
        let limits = limits.iter().enumerate().map(|(index, rest)| limit(&format!("l{index}"), rest));
        let codes: Vec<_> = warned(&format!("{base}{}", limits.collect::<String>()));
        codes.iter().any(|(code, _)| *code == "invented_key")
    };
    let rate = |rest: &str| format!("rate = '5/s'\n{rest}");
    for (key, expected) in [
        ("['header:x-id']", true),
        ("['query:id']", true),
        ("['cookie:id']", true),
        ("['shop']", true),
        ("['ip', 'header:x-id']", true),
        ("['device', 'shop']", true),
        ("['device']", false),
        ("['ip']", false),
        ("['path', 'host', 'method']", true),
        ("[]", false),
    ] {
        assert_eq!(is_warned(&[&rate(&format!("key = {key}"))]), expected, "{key}");
    }
    let invented = rate("key = ['header:x-id']");
    for mode in ["shadow", "off"] {
        assert!(!is_warned(&[&format!("{invented}\nmode = '{mode}'")]), "{mode}");
    }
    // Other limits beside it.
    for (own, other, expected) in [
        ("", "key = ['ip']", false),
        ("", "key = ['ip']\nstage = 'arrival'", false),
        ("", "key = ['ip']\non_limit = 'hold'", false),
        ("", "key = ['ip']\nenforce = '99%'", true),
        ("", "key = ['ip']\nexcept.ip = '192.0.2.0/24'", false),
        ("", "key = []", true),
        ("", "key = ['ip', 'path']", true),
        ("", "key = ['ip', 'method']", true),
        ("", "key = ['ip', 'header:x-id']", true),
        ("", "key = ['ip']\nmode = 'shadow'", true),
        ("", "key = ['ip']\nmode = 'off'", true),
        ("", "key = ['ip']\non_limit = 'delay'", true),
        ("", "key = ['ip']\ncount = { status = [401] }", true),
        ("count = { status = [401] }", "key = ['ip']\ncount = { status = [401] }", false),
        ("count = { status = [401] }", "key = ['ip']\ncount = { status = [403] }", true),
        ("count = { status = [401] }", "key = ['ip']", false),
        ("", "key = ['ip']\nmatch.path = '/a'", true),
        ("match.path = '/a'", "key = ['ip']\nmatch.path = '/a'", false),
        ("match.path = '/a'", "key = ['ip']\nmatch.path = ['/b', '/a']", false),
        ("match.path = '/a/b'", "key = ['ip']\nmatch.path = '/a/{*rest}'", false),
        ("match.path = '/a'", "key = ['ip', 'route']\nmatch.path = '/a'", false),
        ("match.path = '/a'", "key = ['route']\nmatch.path = '/a'", true),
        ("match.path = ['/a', '/b']", "key = ['ip']\nmatch.path = '/a'", true),
        ("match.path = '/a'", "key = ['ip']", false),
        ("match.method = 'POST'", "key = ['ip']\nmatch.method = 'GET'", true),
    ] {
        let own = format!("{invented}\n{own}");
        assert_eq!(is_warned(&[&own, &rate(other)]), expected, "{own}\n--\n{other}");
        assert_eq!(is_warned(&[&rate(other), &own]), expected, "{own}\n--\n{other}");
    }
    // A pair of limits for each of many paths.
    let pairs: Vec<_> = (0..100)
        .flat_map(|path| ["header:x-id", "ip"].map(|key| rate(&format!("key = ['{key}']\nmatch.path = '/{path}'"))))
        .collect();
    let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
    assert!(!is_warned(&pairs));
    assert!(is_warned(&pairs[..pairs.len() - 1]));
}

#[test]
fn hosts_and_methods_can_be_invented_unless_they_are_listed() {
    for (key, expected) in [
        ("['path', 'host']", true),
        ("['method']", true),
        ("['path']", false),
        ("['host', 'method']\nmatch = { host = 'a.example', method = ['GET', 'PUT'] }", false),
        ("['host']\nmatch.host = ['a.example', '*.a.example']", true),
        ("['host']\nmatch.method = 'GET'", true),
        ("['method']\nmatch.host = 'a.example'", true),
    ] {
        let codes =
            warned(&format!("upstream.url = 'http://a'\n{}", limit("a", &format!("rate = '5/s'\nkey = {key}"))));
        assert_eq!(codes.iter().any(|(code, _)| *code == "invented_key"), expected, "{key}");
    }
}

#[test]
fn a_limit_that_access_makes_void() {
    let is_warned = |access: &str, rest: &str| {
        let text = format!("server.paths = {{}}\n[upstream]\nurl = 'http://a'\n[access]\n{access}\n");
        let text = format!("{text}{}", limit("a", &format!("key = ['ip']\nrate = '1/s'\n{rest}")));
        warned(&text).iter().any(|(code, at)| *code == "void_limit" && at.is_some())
    };
    for (access, rest, expected) in [
        ("deny.path = '/{*all}'", "", true),
        ("deny.path = '/a'", "", false),
        ("deny.path = '/a'", "match.path = '/a'", true),
        ("allow.path = '/a'", "match.path = '/a'", true),
        ("allow.path = '/a'", "match = { path = '/a', method = 'GET' }", true),
        ("allow.path = '/a'", "match.path = '/a'\nmode = 'shadow'", true),
        ("allow.path = '/a'", "match.path = '/a'\nmode = 'off'", false),
        ("deny.path = '/a'", "match.path = ['/a', '/b']", false),
        ("deny.path = '/a'\nallow.path = '/b'", "match.path = ['/a', '/b']", true),
        ("deny.path = '/a/{*rest}'\nallow.path = '/a/b'", "match.path = '/a/{id}'", true),
        ("deny.path = '/a/{id}'", "match.path = '/a/{*rest}'", false),
        ("deny.ip = '0.0.0.0/0'", "", false),
        ("deny.ip = ['0.0.0.0/0', '::/0']\nallow.ip = '192.0.2.0/24'", "", true),
        ("deny.ip = ['0.0.0.0/1', '::/0']\nallow.ip = '128.0.0.0/1'", "", true),
        ("deny.ip = ['0.0.0.0/2', '::/0']\nallow.ip = '128.0.0.0/1'", "", false),
        // These are reported as `allows_everything`.
        ("allow.ip = ['0.0.0.0/0', '::/0']", "", false),
        ("allow.path = '/{*all}'", "", false),
    ] {
        assert_eq!(is_warned(access, rest), expected, "{access} {rest}");
    }
}

#[test]
fn a_warning_shows_its_place_and_no_secret() {
    let text = "[upstream]\nurl = 'http://a'\n[identity.shop]\nheader = 'x-shop'\n\
        [[limit]]\nname = 'a'\nkey = ['ip']\nrate = '10/s'\n[[limit]]\nname = 'b'\nkey = ['ip']\nrate = '10/s'\n\
        match = { header = { authorization = 'hunter2' } }\n";
    insta::assert_snapshot!(compile(text).unwrap().warnings, @r#"
    warning[unused_identity]: identity `shop` is not used, so it is never verified
     --> weir.toml:3:11
      |
    3 | [identity.shop]
      |           ^^^^
      |
      = help: use it in the `key` of a limit, in `[access]` or in `[plans]`, or remove it

    warning[shadowed_limit]: limit `b` never refuses a request, because `a` does first
      --> weir.toml:10:8
       |
     6 | name = 'a'
       |        --- this one is at least as strict
    ...
    10 | name = 'b'
       |        ^^^
       |
       = help: its rule is not stricter, and it applies to no other requests
    "#);
}

#[test]
fn there_is_no_warning_beside_an_error() {
    let said = super::said("access.allow.ip = '0.0.0.0/0'\nserver.x = 1\nupstream.url = 'http://a'");
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn what_weir_comes_with_has_no_warnings() {
    for entry in std::fs::read_dir("config").unwrap().chain(std::fs::read_dir("config/examples").unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let config = compile(&text).unwrap();
            // Whether `/var/lib/weir` exists is a matter of the machine.
            let codes: Vec<_> = config.warnings.findings().0.into_iter().map(|finding| finding.code).collect();
            assert!(codes.iter().all(|code| code == "folder"), "{path:?}: {}", config.warnings);
        }
    }
}
