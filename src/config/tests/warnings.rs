//! Configurations that are valid and probably not meant, and the warning about each.

use super::compile;
use crate::config::{Finding, Severity};

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
    let row = |Finding { severity, code, file, at, .. }: Finding<'_>| {
        assert_eq!((severity, file), (Severity::Warning, "weir.toml"));
        (code, at)
    };
    findings.into_iter().map(row).collect()
}

fn limit(name: &str, rest: &str) -> String {
    format!("[[limit]]\nname = '{name}'\n{rest}\n")
}

#[test]
fn what_holds_everyone() {
    for (text, code, at) in [
        ("server.trusted_proxies = ['10.0.0.0/8', '0.0.0.0/0']", "trusts_everyone", (1, 41)),
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
fn charges_that_a_check_never_settles() {
    let check = "server.trusted_proxies = '10.0.0.0/8'\ncheck.listen = '127.0.0.1:8082'\n";
    let settle = "settle = { by = 'elapsed_ms' }\n";
    for (rest, code) in [
        ("key = ['ip']\nrate = '1/s'", None),
        ("key = ['ip']\nalgorithm = 'concurrency'\nmax = 3", Some("unsettled_check")),
        (&format!("key = ['ip']\nrate = '1/s'\n{settle}"), Some("unsettled_check")),
        ("key = ['ip']\nrate = '1/s'\ncount = { status = ['4xx'] }", Some("unsettled_check")),
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
    let require = "[plans]\nfrom = 'header:x-plan'\n[[access.require]]\npath = '/a'\nplan = 'b'\n";
    let upstream = "[upstream]\nurl = 'http://a'\n";
    assert_eq!(warned(&format!("{deny}{upstream}")), [("path_spellings", Some((2, 13)))]);
    assert_eq!(warned(&format!("{require}{upstream}")), [("path_spellings", Some((3, 1)))]);
    for text in [deny, require] {
        assert_eq!(warned(&format!("{text}{upstream}[server]\npaths = {{}}\n")), []);
        assert_eq!(warned(&format!("{text}{upstream}[server.paths]\nignore_case = true\n")), []);
    }
    assert_eq!(warned(&format!("[access]\nallow.path = '/a'\n{upstream}")), []);
}

#[test]
fn an_identity_that_nothing_uses() {
    let identity = "[upstream]\nurl = 'http://a'\n[identity.shop]\nheader = 'x-shop'\n";
    assert_eq!(warned(identity), [("unused_identity", Some((3, 11)))]);
    let uses = [
        limit("a", "key = ['ip']\nrate = '9/s'") + &limit("b", "key = ['shop']\nrate = '1/s'"),
        "[access]\ndeny.identity.shop = 'a'\n".to_owned(),
        "[access]\nallow.identity.shop = 'a'\n".to_owned(),
    ];
    for using in uses {
        assert_eq!(warned(&format!("{identity}{using}")), [], "{using}");
    }
}

#[test]
fn a_folder_that_is_not_there() {
    // The folder of the configuration is `config`.
    for (path, is_there) in [("state", true), ("keys/state", true), ("nowhere/state", false), ("full.toml/a", false)] {
        for key in ["snapshot.path", "admin.overrides"] {
            let expected = if is_there { vec![] } else { vec![("folder", Some((1, key.len() + 4)))] };
            assert_eq!(warned(&format!("{key} = '{path}'\nupstream.url = 'http://a'")), expected, "{key} {path}");
        }
    }
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
            assert!(codes.iter().all(|code| *code == "folder"), "{path:?}: {}", config.warnings);
        }
    }
}
