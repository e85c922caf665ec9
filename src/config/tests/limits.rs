//! `[[limit]]`: whom it concerns, and how many keys it remembers.

use std::sync::Arc;

use http::HeaderName;

use super::*;
use crate::engine::policy::{KeyPart, MemberTest, Repeated};

#[test]
fn limits() {
    insta::assert_snapshot!(brief(r#"[[limit]]"#), @r"
    1:1 «[[limit]]» `limit.name` is missing
      = expected string (1 to 64 of `A-Z a-z 0-9 _ -`). Its name in headers, metrics and logs; unique.
    1:1 «[[limit]]» `limit.key` is missing
      = expected list of strings (part of a key). Owner of a budget: `ip`, `path`, `uri` (path and query), `route`, `path:NAME` (a parameter of `match.path`), `host`, `method`, an identity, `header:NAME`, `query:NAME`, `cookie:NAME`, `json:POINTER` (in the body), or `name:NAME` for callers of the limiter service; `[]` for one budget for all.
    1:1 «[[limit]]» `limit.rate` is missing
      = expected rate, or list of 1 to 4 rates. COUNT `/` [N] UNIT, with UNIT `ms`, `s`, `min`, `h`, `day`, `week`, or `month` in calendar windows; of several rates all must admit. `concurrency` has `max` instead.
    ");
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a b"
key = ["ip", "ip"]
rate = "0/s"
cost = 0"#), @r#"
    2:8 «"a b"» `limit.name`: `a b` is not 1 to 64 of `A-Z a-z 0-9 _ -`
    3:14 «"ip"» `limit.key`: `ip` occurs twice [also 3:8 «"ip"» first here]
    4:8 «"0/s"» `limit.rate`: a rate of zero would never admit a request
    5:8 «0» `limit.cost`: expected whole number from 1, or table
    "#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = "ip"
rate = "1/s"

[[limit]]
name = "a"
key = "ip"
rate = "1/s""#), @r#"7:8 «"a"» `limit.name`: `a` occurs twice [also 2:8 «"a"» first here]"#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
rate = "1/s"
stage = "arrival"
[identity.seller]
header = "x-a""#), @r#"
    3:8 «"route"» `limit.key`: `route` is the matching pattern, so it needs `match.path`
    3:17 «"pth"» `limit.key`: `pth` is not a part of a key
      = did you mean `path`?
    3:24 «"headr:x-a"» `limit.key`: `headr:x-a` is not a part of a key
      = did you mean `header:x-a`?
    3:37 «"header:"» `limit.key`: `header:` is not a part of a key
      = a key can have ip, path, uri, route, host, method, seller, ip/24, path:NAME, header:NAME, query:NAME, cookie:NAME, json:POINTER, name:NAME, or the NAME of `[identity.NAME]`
    3:48 «"sellr"» `limit.key`: `sellr` is not a part of a key
      = did you mean `seller`?
    3:57 «"seller"» `limit.key`: an identity is unknown at stage `arrival`
    "#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = ["path:tenant"]
rate = "1/s"
[[limit]]
name = "b"
match = { path = ["/t/{tenant}", "/u/{id}"] }
key = ["path:tenant"]
rate = "1/s"
[[limit]]
name = "c"
match = { path = "/t/{tenant}" }
key = ["path:tenant"]
rate = "1/s"
overrides = { "%61cme" = { rate = "2/s" } }"#), @r#"
    3:8 «"path:tenant"» `limit.key`: `path:tenant` is a parameter of the matching pattern, so it needs `match.path`
    8:8 «"path:tenant"» `limit.key`: `/u/{id}` of `match.path` has no parameter `{tenant}`
    15:15 «"%61cme"» `limit.overrides.NAME`: no path has the part `%61cme`: Weir normalises paths before limits count them
      = did you mean `acme`?
    "#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "5/M"
[[limit]]
name = "b"
key = []
rate = "five"
[[limit]]
name = "c"
key = []
rate = "99999999/s""#), @r#"
    4:8 «"5/M"» `limit.rate`: unknown unit `M`; units are ms, s, min, h, day, week, month
      = write `min` for minutes or `month` for months
    8:8 «"five"» `limit.rate`: `five` is not a rate
      = write it like "100/min" or "5/15min"
    12:8 «"99999999/s"» `limit.rate`: is faster than 10000000 a second
    "#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
cost = 6
hold = { max_wait = "5s" }"#), @r#"
    5:8 «6» `limit.cost`: a cost of 6 can never pass: the burst is 5
    6:8 «{ max_wait = "5s" }» `limit.hold` needs `on_limit = "hold"`
      = without it, the limit refuses requests
    "#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "1/week"
burst = 99999999
on_limit = "hold"
hold = { max_wait = "ever", max_waiting = 0 }
max_keys = 0"#), @r#"
    5:9 «99999999» `limit.burst`: takes more than 146 years to refill
    7:21 «"ever"» `limit.hold.max_wait`: `ever` is not a duration
      = write it like "250ms", "10s" or "5min"
    7:43 «0» `limit.hold.max_waiting`: expected whole number from 1 to 10000000
    8:12 «0» `limit.max_keys`: expected whole number from 1 to 4294967296
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = "\u0001" } }
except = { ip = [] }"#), @r#"
    error: `limit.match.path`: `a`: a path pattern begins with `/`
     --> weir.toml:5:19
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                   ^^^
      |
      = help: did you mean `/a`?

    error: `limit.match.path`: `/{x`: braces enclose a whole segment: `{name}` or `{*rest}`
     --> weir.toml:5:24
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                        ^^^^^
      |
      = help: did you mean `/{x}`?

    error: `limit.match.host`: `h:80` is not a host
     --> weir.toml:5:40
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                        ^^^^^^
      |
      = help: write a host in ASCII, without a port; `*.` at its start matches every subdomain

    error: `limit.match.host`: `*` is not a host
     --> weir.toml:5:48
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                ^^^
      |
      = help: write a host in ASCII, without a port; `*.` at its start matches every subdomain

    error: `limit.match.method`: `get` never matches: methods are in upper case
     --> weir.toml:5:64
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                                ^^^^^
      |
      = help: did you mean `GET`?

    error: `limit.match.method`: `a b` is not a method
     --> weir.toml:5:71
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                                       ^^^^^

    error: `limit.match.header`: `x y` is not a header name
     --> weir.toml:5:90
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                                                          ^^^^^

    error: `limit.match.header`: this is not a valid header value
     --> weir.toml:5:109
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                                                                             ^^^^^^^^

    error: `limit.except.ip`: an empty list has no effect; remove it
     --> weir.toml:6:17
      |
    6 | except = { ip = [] }
      |                 ^^
    "#);
}

#[test]
fn answers_to_refused_requests() {
    let limit = |rest: &str| format!("{UPSTREAM}[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\n{rest}");
    for (rest, hint) in [
        ("body = { text = '' }", "`limit.body.text`: must not be empty"),
        ("body = {}", "`limit.body` needs either `text` or `file`"),
        ("body = { text = 'a', file = 'b' }", "`limit.body` needs either `text` or `file`"),
        ("body = { file = 'no-such-file' }", "`limit.body.file`: "),
        ("body = { text = 'a', content_type = 'html' }", "`html` is not a media type"),
        ("body = { text = 'a', content_type = \"a/b\\r\\nx: y\" }", "is not a media type"),
        (&format!("body = {{ text = '{}' }}", "a".repeat(65_537)), "a body has at most 64KiB"),
        ("redirect = { url = 'a.test' }", "`a.test` is not a place for a redirect"),
        ("redirect = { url = '//a.test' }", "is not a place for a redirect"),
        ("redirect = { url = 'ftp://a.test/' }", "is not a place for a redirect"),
        ("redirect = { url = \"/a\\r\\nx: y\" }", "is not a place for a redirect"),
        ("redirect = { url = '/', status = 304 }", "`limit.redirect.status`: can be 302, 303 or 307"),
        ("redirect = { url = '/', status = 301 }", "expected whole number from 302 to 307"),
        ("redirect = { url = '/' }\nstatus = 503", "`limit.status`: has no effect with `redirect`"),
        ("redirect = { url = '/' }\nbody = { text = 'a' }", "a redirect has no `body`; choose one"),
    ] {
        let said = said(&limit(rest));
        assert!(said.contains(hint), "{rest}\n{said}");
    }
    let answer = |rest: &str| compile(&limit(rest)).unwrap().policy.limits()[0].refusals.answer.clone();
    assert_eq!(answer(""), None);
    let body = answer("body = { text = '{limit} {retry_after}', content_type = 'Text/HTML' }");
    let body = body.unwrap();
    let RefusalAnswer::Body { content_type, text, is_html: true } = &*body else { panic!("{body:?}") };
    assert_eq!((&**content_type, &**text), ("Text/HTML", "a {retry_after}"));
}

#[test]
fn regular_expressions() {
    let limit = |rest: &str| format!("{UPSTREAM}[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\nmatch = {{ {rest} }}");
    for (rest, hint) in [
        ("path_regex = '('", "`limit.match.path_regex`: not a regular expression: unclosed group"),
        ("path_regex = ''", "`limit.match.path_regex`: must not be empty"),
        ("path_regex = '/é'", "`limit.match.path_regex`: paths are in ASCII: `é` is `%C3%A9`"),
        ("path_regex = '((a{100}){100}){100}'", "this regular expression is too large"),
        (&format!("path_regex = '{}'", "a".repeat(1001)), "a regular expression has at most 1000 bytes"),
        ("header = { x-a = { regex = '[' } }", "`limit.match.header.NAME.regex`: not a regular expression"),
        ("header = { x-a = {} }", "`limit.match.header`: needs either `regex` or `file`"),
        ("header = { x-a = { prefix = 'a' } }", "unknown key `prefix`"),
        ("header = { x-a = 1 }", "expected table"),
        ("ip = '10.0.0.0/33'", "`limit.match.ip`"),
        ("ip = []", "`limit.match.ip`: an empty list has no effect; remove it"),
    ] {
        let said = said(&limit(rest));
        assert!(said.contains(hint), "{rest}\n{said}");
    }
    let said = said(&limit("header = { x-a = { regex = 'secret-[' } }"));
    assert!(!said.contains("secret-["), "{said}");

    let config =
        compile(&limit("path_regex = '^/A'").replace("[[limit]]", "[server.paths]\nignore_case = true\n[[limit]]"));
    let config = config.unwrap();
    assert!(config.policy.limits()[0].matches.path_regexes[0].matches(b"/a"), "folded like paths");
}

#[test]
fn members_of_bodies() {
    let limit = |rest: &str| format!("{UPSTREAM}[[limit]]\nname = 'a'\nrate = '1/s'\n{rest}");
    for (rest, hint) in [
        ("key = ['json:model']", "`limit.key`: expected a JSON pointer"),
        ("key = ['jsn:/model']", "did you mean `json:/model`?"),
        ("key = ['json:/a']\nstage = 'arrival'", "`limit.key`: a limit of stage `arrival` cannot read bodies"),
        ("key = ['json:/a']\nread_body = '2MiB'", "`limit.read_body`: "),
        ("key = ['json:/a']\nstale = { max_age = '1s' }", "`limit.stale`: stores answers by the head of a request"),
        ("key = []\nmatch.json.'/a' = 'b'\nstage = 'arrival'", "`limit.match.json`: a limit of stage `arrival`"),
        ("key = []\nmatch.json.a = 'b'", "`limit.match.json`: expected a JSON pointer"),
        ("key = []\nmatch.json.'/a' = 1", "`limit.match.json`: expected a string, a list of strings"),
        ("key = []\nmatch.json.'/a' = []", "`limit.match.json`: expected a string, a list of strings"),
        ("key = []\nmatch.json.'/a' = {}", "`limit.match.json`: needs either `regex` or `file`"),
        ("key = []\nmatch.json = '/a'", "`limit.match.json`: expected table"),
        ("key = []\nmatch.json.'/a' = { regex = '(' }", "`limit.match.json.NAME.regex`: not a regular expression"),
        ("key = []\nread_body = '1KiB'", "`limit.read_body`: has an effect only if the limit reads bodies"),
    ] {
        let said = said(&limit(rest));
        assert!(said.contains(hint), "{rest}\n{said}");
    }
    let said = said(&limit("key = []\nmatch.json.'/a' = ['secret', 7]"));
    assert!(!said.contains("secret"), "{said}");
    let config = compile(&limit(
        "key = ['ip', 'json:/m~1n']\nread_body = '1KiB'\nmatch.json = { '/a' = ' b ', '/c' = ['d'], '/e' = true, '/f' = '*' }",
    ));
    let policy = config.unwrap().policy;
    let limit = &policy.limits()[0];
    let KeyPart::Json(member) = &limit.key[1] else { panic!("a member") };
    assert_eq!((policy.part_name(&limit.key[1]), member.read_bytes), ("json:/m~1n".into(), 1024));
    let texts = |text: &str| MemberTest::OneOf(Arc::new([Box::from(text.as_bytes())].into()));
    let tests: Vec<_> = limit.matches.json.iter().map(|(_, test)| test.clone()).collect();
    assert_eq!(tests, [texts("b"), texts("d"), MemberTest::Is(true), MemberTest::Present]);
    assert!(limit.matches.json.iter().all(|(member, _)| member.read_bytes == 1024));
}

#[test]
fn new_keys_at_the_bound() {
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
on_full = "scetch"
[[limit]]
name = "b"
key = []
rate = "5/min"
on_limit = "hold"
on_full = "reject""#), @r#"
    5:11 «"scetch"» `limit.on_full`: `scetch` is not one of `sketch`, `shared`, `reject`, `allow`
      = did you mean `sketch`?
    11:11 «"reject"» `limit.on_full`: `reject` needs `on_limit = "reject"`
    "#);
    let on_full = |text: &str| {
        let limit = "[[limit]]\nname = \"a\"\nkey = []\nrate = \"5/s\"\n";
        compile(&format!("{UPSTREAM}{limit}{text}\n")).unwrap().policy.limits()[0].on_full
    };
    assert_eq!([on_full(""), on_full("on_full = \"shared\"")], [OnFull::Sketch, OnFull::Shared]);
    assert_eq!([on_full("on_full = \"reject\""), on_full("on_full = \"allow\"")], [OnFull::Reject, OnFull::Allow]);
}

#[test]
fn several_values_of_a_part() {
    let of = |rest: &str| {
        let text = format!("[[limit]]\nname = \"a\"\nrate = \"1/s\"\n{rest}\n{UPSTREAM}");
        compile(&text).unwrap_or_else(|problems| panic!("{problems}")).policy.limits()[0].key.clone()
    };
    let parts = |several| {
        let header = KeyPart::Header(HeaderName::from_static("x-a"), several);
        vec![KeyPart::Ip, header, KeyPart::Query("q".into(), several), KeyPart::Cookie("c".into(), several)]
    };
    let key = "key = [\"ip\", \"header:x-a\", \"query:q\", \"cookie:c\"]\n";
    for (rest, several) in [
        ("", Repeated::Reject),
        ("several = \"reject\"", Repeated::Reject),
        ("several = \"first\"", Repeated::First),
        ("several = \"last\"", Repeated::Last),
        ("several = \"join\"", Repeated::Join),
        // A limit that is only tried refuses nobody.
        ("mode = \"shadow\"", Repeated::First),
        ("mode = \"shadow\"\nseveral = \"join\"", Repeated::Join),
        ("enforce = \"99%\"", Repeated::First),
        ("enforce = \"99%\"\nseveral = \"join\"", Repeated::Join),
        ("enforce = \"100%\"", Repeated::Reject),
    ] {
        assert_eq!(of(&format!("{key}{rest}")), parts(several), "{rest}");
    }
    let limit = "[[limit]]\nname = \"a\"\nrate = \"1/s\"\nkey = [\"ip\"]\n";
    insta::assert_snapshot!(brief(&format!("{limit}several = \"frist\"")), @r#"
    5:11 «"frist"» `limit.several`: `frist` is not one of `reject`, `first`, `last`, `join`
      = did you mean `first`?
    "#);
    insta::assert_snapshot!(brief(&format!("{limit}several = \"first\"")), @r#"
    5:11 «"first"» `limit.several`: this key has no part that a request can repeat
      = `several` applies to `header:NAME`, `query:NAME` and `cookie:NAME`; an identity has its own `several`
    "#);
}

#[test]
fn patterns_in_other_notations_are_errors_wherever_they_stand() {
    let limit = "[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\n";
    for (text, suggestion) in [
        (format!("{limit}match.path = '/api/*'"), "did you mean `/api/{*rest}`? the character itself is written `%2A`"),
        (
            format!("{limit}match.path = ['/a', '/api/:id']"),
            "did you mean `/api/{id}`? the character itself is written `%3A`",
        ),
        (format!("{limit}match.path = '^/api'"), "did you mean `/api`?"),
        (format!("{limit}match.path = '/api/<id>'"), "did you mean `/api/{id}`?"),
        (
            format!("{limit}cost = {{ default = 1, paths = [{{ path = '/api/**', units = 2 }}] }}"),
            "did you mean `/api/{*rest}`?",
        ),
        ("access.deny.path = '/api/.*'".to_owned(), "did you mean `/api/{*rest}`?"),
        ("access.allow.path = '/api/*'".to_owned(), "did you mean `/api/{*rest}`?"),
        (
            "plans.from = 'header:a'\n[[access.require]]\npath = '/api/*'\nplan = 'b'".to_owned(),
            "did you mean `/api/{*rest}`?",
        ),
        (
            "[upstreams.a]\nendpoints = 'http://a'\n[[route]]\nupstream = 'a'\nmatch.path = '/api/*'".to_owned(),
            "did you mean `/api/{*rest}`?",
        ),
    ] {
        let said = said(&text);
        assert!(said.contains(suggestion), "{text}\n{said}");
    }
    insta::assert_snapshot!(brief(&format!("{limit}match.path = '/api/*'")), @r"
    5:14 «'/api/*'» `limit.match.path`: `/api/*`: `*` has no meaning here: `{name}` stands for one segment, `{*rest}` for all that follow
      = did you mean `/api/{*rest}`? the character itself is written `%2A`
    ");
}

#[test]
fn a_part_of_the_keys() {
    let limit = |key: &str, rest: &str| format!("[[limit]]\nname = 'a'\nrate = '1/s'\nkey = {key}\n{rest}");
    for (text, percent) in [("", 100), ("enforce = '1%'", 1), ("enforce = '25%'", 25), ("enforce = '100%'", 100)] {
        let config =
            compile(&format!("{}\n{UPSTREAM}", limit("['ip']", text))).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(config.policy.limits()[0].enforced_percent, percent, "{text}");
    }
    let not_whole = "is not a whole percentage from `1%` to `100%`";
    assert!(compile(&format!("{}\n{UPSTREAM}", limit("['ip']", "jitter = '0%'"))).is_ok());
    // No error hides another one.
    let all = said("[[limit]]\nname = 'a'\nrate = '1/x'\nkey = ['ip']\njitter = '7'\nexcept = { ip = ['b'] }");
    assert!(["`limit.rate`", "`limit.jitter`", "`limit.except.ip`"].iter().all(|option| all.contains(option)), "{all}");
    for text in ["101%", "-1%", "20"] {
        let said = said(&limit("['ip']", &format!("jitter = '{text}'")));
        assert!(
            said.contains(&format!("`limit.jitter`: `{text}` is not a whole percentage from `0%` to `100%`")),
            "{said}"
        );
    }
    for (key, rest, expected) in [
        ("['ip']", "enforce = '0%'", not_whole),
        ("['ip']", "enforce = '101%'", not_whole),
        ("['ip']", "enforce = '+5%'", not_whole),
        ("['ip']", "enforce = '2.5%'", not_whole),
        ("['ip']", "enforce = '25'", not_whole),
        ("['ip']", "enforce = 25", "expected string (`1%` to `100%`)"),
        ("[]", "enforce = '25%'", "needs a part in `key`: all requests have the same key"),
        ("['ip']", "enforce = '25%'\nmode = 'shadow'", "has an effect only with `mode = \"enforce\"`"),
    ] {
        let said = said(&limit(key, rest));
        assert!(said.starts_with("error: `limit.enforce`: ") && said.contains(expected), "{rest}: {said}");
    }
}
