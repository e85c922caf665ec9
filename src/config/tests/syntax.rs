//! What is no TOML, no option, or of another type.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// The words of other products, and the hint for each.
#[test]
fn words_of_other_products() {
    let limit = |rest: &str| said(&format!("upstream.url = 'http://a'\n[[limit]]\nname = 'a'\nkey = []\n{rest}"));
    for (rest, hint) in [
        ("rate = '1/s'\nnodelay = true", "help: remove it: requests within `burst` pass at once"),
        ("average = 10\nperiod = '1s'", "help: write the count and the period as one rate, as in `rate = \"100/min\"`"),
        ("requests_per_unit = 10\nunit = 'minute'", "write the count and the period as one rate"),
        ("rate = '1/s'\nzone = 'one:10m'", "help: a limit needs no zone"),
        ("rate = '1/s'\ndry_run = true", "help: `mode` is `enforce`, `shadow`"),
        ("rate = '1/s'\nalgorithm = 'gcra'", "help: did you mean `token_bucket`?"),
        ("rate = '1/s'\nalgorithm = 'sliding-window-log'", "help: did you mean `sliding_log`?"),
        ("rate = '1/s'\non_limit = 'queue'", "help: did you mean `hold`?"),
        ("rate = '1/s'\non_limit = 'deny'", "help: did you mean `reject`?"),
        ("rate = '1/s'\nmode = 'dry_run'", "help: did you mean `shadow`?"),
        ("rate = '1/s'\non_limit = 'tarpit'", "help: did you mean `delay`?"),
        (
            "rate = '10r/s burst=20 nodelay'",
            "write `rate = \"10/s\"`, and `burst = 20` as an option of its own, without",
        ),
        ("rate = '1/s'\nwhitelist = ['10.0.0.1']", "whitelist = ['10.0.0.1']"),
        ("rate = '1/s'\nmax_tokens = 5", "max_tokens = 5"),
        ("rate = 10", "help: write `\"10/s\"`"),
        ("rate = '1/s'\nban = true", "help: write `ban = { after = \"10/min\", for = \"1h\" }`"),
    ] {
        let said = limit(rest);
        assert!(said.contains(hint), "{rest}\n{said}");
    }
    let said = said("upstream.url = 'http://a'\nserver.max_body_bytes = '10m'");
    assert!(
        said.contains("`10m` can mean two sizes") && said.contains("write `10MiB` (powers of 1024) or `10MB`"),
        "{said}"
    );
}

#[test]
fn words_of_other_products_in_other_tables() {
    for (text, hint) in [
        ("backend = 'http://a'", "the address of the service is `url` of `[upstream]`"),
        ("[upstream]\nproxy_pass = 'http://a'", "the address of the service is `url` of `[upstream]`"),
        ("[upstreams.a]\nservers = ['http://a']", "`endpoints` are the addresses of an upstream"),
        ("[upstreams.a]\nhealth_check = '/'", "`health` of `[upstreams.NAME]` checks endpoints"),
        ("[upstreams.a]\nmax_conns = 5", "`server.max_connections` bounds connections of clients"),
        ("[server]\nmax_conn = 5", "`server.max_connections` bounds connections of clients"),
        ("stick-table = 'a'", "each limit is a table `[[limit]]`"),
        ("[server]\nlimit_req = 'a'", "each limit is a table `[[limit]]`"),
        ("[rate_limit]\nx = 'a'", "each limit is a table `[[limit]]`"),
        ("[server]\ntarpit = true", "`on_limit = \"delay\"` of a limit"),
        ("[tls]\ncert = 'a.pem'", "unknown key `tls` in the file"),
        ("[tls]\ncert = 'a.pem'", "`[server.tls]` is for connections of clients"),
        ("[ban]\nafter = '1/s'", "a ban belongs to a limit, as in `ban = { after = \"10/min\", for = \"1h\" }`"),
        ("[access]\nwhitelist = ['10.0.0.1']", "`access.allow` exempts"),
        ("[server]\nblacklist = ['10.0.0.1']", "`access.deny` refuses"),
        ("[access]\ndeny = ['10.0.0.1']", "help: write `deny = { ip = [\"192.0.2.7\"] }`"),
        ("upstream = 'http://a'", "help: write `[upstream] url = \"http://127.0.0.1:9000\"`"),
        ("[timeouts]\nconnect = 10", "help: write `\"10s\"`"),
        ("[admin]\nlisten = false", "listen = false"),
    ] {
        let said = said(text);
        assert!(said.contains(hint), "{text}\n{said}");
    }
    let key = |part: &str| {
        said(&format!(
            "{UPSTREAM}[identity.shop]\nheader = 'x-a'\n[[limit]]\nname = 'a'\nrate = '1/s'\nkey = ['{part}']"
        ))
    };
    for part in ["$binary_remote_addr", "src", "client_ip", "remote_addr"] {
        assert!(key(part).contains("did you mean `ip`?"), "{part}");
    }
    assert!(
        key("user").contains("a key can have ip, path, uri, route, host, method, shop, ip/24, path:NAME, header:NAME")
    );
}

#[test]
fn keys_that_do_not_exist() {
    insta::assert_snapshot!(said(r#"[server]
lissten = "0.0.0.0:80""#), @r#"
    error: unknown key `lissten` in `[server]`
     --> weir.toml:2:1
      |
    2 | lissten = "0.0.0.0:80"
      | ^^^^^^^
      |
      = help: did you mean `listen`?
    "#);
    insta::assert_snapshot!(said(r#"[sever]
listen = "0.0.0.0:80""#), @r#"
    error: unknown key `sever` in the file
     --> weir.toml:1:2
      |
    1 | [sever]
      |  ^^^^^
      |
      = help: did you mean `server`?
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "1/s"
max_waiting = 3
quux = 1"#), @r#"
    error: unknown key `max_waiting` in `[[limit]]`
     --> weir.toml:5:1
      |
    5 | max_waiting = 3
      | ^^^^^^^^^^^
      |
      = help: did you mean `hold.max_waiting`?

    error: unknown key `quux` in `[[limit]]`
     --> weir.toml:6:1
      |
    6 | quux = 1
      | ^^^^
      |
      = help: `[[limit]]` can have name, stage, mode, enforce, match, except, key, share_by, weights, several, algorithm, rate, burst, max, floor, ceiling, align, time_zone, sub_windows, strategy, cost, unit_name, read_body, plans, max_plan_rate, overrides, count, settle, max_debt, on_limit, hold, delay, status, body, redirect, jitter, stale, stale_on, ramp, adapt, candidate, ban, max_keys, on_full, persist
    "#);
    insta::assert_snapshot!(said(r#"[[limits]]
name = "a""#), @r#"
    error: unknown key `limits` in the file
     --> weir.toml:1:3
      |
    1 | [[limits]]
      |   ^^^^^^
      |
      = help: did you mean `limit`?
    "#);
    insta::assert_snapshot!(said(r#"upstreams = {}"#), @r#"
    error: `[upstreams]` has no upstream
     --> weir.toml:1:13
      |
    1 | upstreams = {}
      |             ^^
    "#);
    insta::assert_snapshot!(said(r#"[identity.seller]
headr = "hunter2""#), @r#"
    error: identity `seller` has none of `header`, `tls`, `jwt` and `api_keys`
     --> weir.toml:1:11
      |
    1 | [identity.seller]
      |           ^^^^^^
      |
      = help: an identity needs exactly one of them

    error: unknown key `headr` in `[identity.NAME]`
     --> weir.toml:2:1
      |
    2 | headr = *********
      | ^^^^^
      |
      = help: did you mean `header`?
    "#);
}

#[test]
fn wrong_types() {
    insta::assert_snapshot!(said(r#"[server]
workers = "four"
listen = 80
forwarded = "yes"
shutdown_grace = 30"#), @r#"
    error: `server.workers`: expected whole number from 1 to 1024
     --> weir.toml:2:11
      |
    2 | workers = "four"
      |           ^^^^^^ this is a string

    error: `server.listen`: expected non-empty list of strings (address and port, or `unix:` and a path)
     --> weir.toml:3:10
      |
    3 | listen = 80
      |          ^^ this is an integer

    error: `server.forwarded`: expected true or false
     --> weir.toml:4:13
      |
    4 | forwarded = "yes"
      |             ^^^^^ this is a string

    error: `server.shutdown_grace`: expected duration
     --> weir.toml:5:18
      |
    5 | shutdown_grace = 30
      |                  ^^ this is an integer
      |
      = help: write `"30s"`
    "#);
    insta::assert_snapshot!(said(r#"server = 1
limit = { name = "a" }
identity = { seller = 5 }"#), @r#"
    error: `server`: expected table
     --> weir.toml:1:10
      |
    1 | server = 1
      |          ^ this is an integer

    error: `limit`: expected list of tables, as in `[[limit]]`
     --> weir.toml:2:9
      |
    2 | limit = { name = "a" }
      |         ^^^^^^^^^^^^^^ this is a table

    error: `identity.NAME`: expected table
     --> weir.toml:3:23
      |
    3 | identity = { seller = * }
      |                       ^ this is an integer
    "#);
    insta::assert_snapshot!(said(r#"[server]
listen = ["127.0.0.1:80", 81]
max_head_bytes = 1.5"#), @r#"
    error: `server.listen`: expected non-empty list of strings (address and port, or `unix:` and a path)
     --> weir.toml:2:27
      |
    2 | listen = ["127.0.0.1:80", 81]
      |                           ^^ this is an integer

    error: `server.max_head_bytes`: expected size from 1KiB to 1MiB
     --> weir.toml:3:18
      |
    3 | max_head_bytes = 1.5
      |                  ^^^ this is a float
      |
      = help: write a size such as `"64KiB"`
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = ["ip"]
rate = 5
match = { header = "x" }"#), @r#"
    error: `limit.rate`: expected rate, or list of 1 to 4 rates
     --> weir.toml:4:8
      |
    4 | rate = 5
      |        ^ this is an integer
      |
      = help: write `"5/s"`

    error: `limit.match.header`: expected table
     --> weir.toml:5:20
      |
    5 | match = { header = "x" }
      |                    ^^^ this is a string
    "#);
}

#[test]
fn text_that_is_not_toml() {
    insta::assert_snapshot!(said(r#"[server]
listen = "127.0.0.1:80
workers = "four"
[log]
levl = "info""#), @r#"
    error: not valid TOML: invalid basic string, expected `"`
     --> weir.toml:2:23
      |
    2 | listen = "127.0.0.1:80
      |                       ^

    error: unknown key `levl` in `[log]`
     --> weir.toml:5:1
      |
    5 | levl = "info"
      | ^^^^
      |
      = help: did you mean `level`?
    "#);
    insta::assert_snapshot!(said(r#"[server
listen = "127.0.0.1:80"
[log]
level = "infoo""#), @r#"
    error: not valid TOML: unclosed table, expected `]`
     --> weir.toml:1:8
      |
    1 | [server
      |        ^

    error: `log.level`: `infoo` is not one of `error`, `warn`, `info`, `debug`, `trace`
     --> weir.toml:4:9
      |
    4 | level = "infoo"
      |         ^^^^^^^
      |
      = help: did you mean `info`?
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = ["seller"]
rate = "5/min"
[identity.seller
header = "x""#), @r#"
    error: not valid TOML: unclosed table, expected `]`
     --> weir.toml:5:17
      |
    5 | [identity.seller
      |                 ^
    "#);
    insta::assert_snapshot!(said(r#"[server]
workers = 1
workers = 2
[server]
max_headers = 0"#), @r#"
    error: duplicate key `workers`
     --> weir.toml:3:1
      |
    3 | workers = 2
      | ^^^^^^^ the key is already set above

    error: duplicate key `server`
     --> weir.toml:4:2
      |
    4 | [server]
      |  ^^^^^^ the key is already set above

    error: `server.max_headers`: expected whole number from 1 to 10000
     --> weir.toml:5:15
      |
    5 | max_headers = 0
      |               ^
    "#);
    insta::assert_snapshot!(said(r#"[identity.a]
jwt = { keys = [{ secret = hunter2 }] }"#), @r#"
    error: not valid TOML: string values must be quoted, expected literal string
     --> weir.toml:2:28
      |
    2 | jwt = { keys = [{ secret =*************
      |                            ^^^^^^^
    "#);
}

#[test]
fn no_message_about_text_that_is_not_toml_shows_keys_of_overrides() {
    let text = |overrides: &str| {
        let limit = format!("[[limit]]\nname = 'a'\nkey = ['shop']\nrate = '5/min'\n{overrides}\n");
        format!("{UPSTREAM}[identity.shop]\nheader = 'x-shop'\n{limit}")
    };
    insta::assert_snapshot!(said(&text("overrides = { \"hunter2\" = '7/min', \"hunter2\" = '8/min' }")), @r#"
    error: duplicate key
     --> weir.toml:9:36
      |
    9 | overrides = { ********* = '*****', "*******" = '*****' }
      |                                    ^^^^^^^^^ the key is already set above
    "#);
    let inline = text("overrides = { \"hunter2\" = '7/min', hunter2b = '8/min' }");
    for text in [
        text("[limit.overrides]\n\"hunter2\" = '7/min'\n\"hunter2\" = '8/min'"),
        text("overrides.\"hunter2\" = '7/min'\noverrides.\"hunter2\" = '8/min'"),
        text("overrides.hunter2.rate = '7/min'\noverrides.hunter2.rate = '8/min'"),
        text("overrides = { \"hunter2 = '7/min' }"),
        text("overrides = { \"hunter2\" = '7/min }"),
        text("overrides = { hunter2 '7/min' }"),
        text("overrides = {\n\"hunter2\" = '7/min',\n\"hunter2\" '8/min' }"),
        inline.replace("'x-shop'", "'x-shop"),
        inline.replace("rate = '5/min'\n", "rate = '5/min "),
        format!("access = {{ allow = {{ identity = {{ shop = [\"abc] }} }} }}\n{inline}"),
    ] {
        let said = said(&text);
        assert!(said.contains("error: ") && !said.contains("hunter2"), "{text}\n{said}");
    }
}

#[test]
fn only_toml_in_utf_8_is_read() {
    for (bytes, said) in [
        (&b"\xff\xfe[\0"[..], "is encoded in UTF-16; save it as UTF-8"),
        (b"\xfe\xff\0[", "is encoded in UTF-16; save it as UTF-8"),
        (b"[\0s\0", "is encoded in UTF-16; save it as UTF-8"),
        (b"\0[\0s", "is encoded in UTF-16; save it as UTF-8"),
        (b"[server]\nlisten = \"\xff\"", "is not UTF-8 at byte 19"),
        (b" \n{\"server\": {}}", "is JSON; a configuration must be TOML"),
        (b"\xef\xbb\xbf{}", "is JSON; a configuration must be TOML"),
    ] {
        assert_eq!(crate::config::reader::syntax::text(bytes.to_vec()), Err(said.to_owned()));
    }
    for bytes in [&b""[..], b"[", b"[server]\n", b"\xef\xbb\xbf[server]\n", b"[[limit]]"] {
        assert!(crate::config::reader::syntax::text(bytes.to_vec()).is_ok());
    }
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// The CPU time of a compilation of `unit`, repeated `count` times with `#` for its number.
fn cost(start: &str, unit: &str, count: usize, end: &str) -> Duration {
    let middle: String = (0..count).map(|number| unit.replace('#', &number.to_string())).collect();
    let text = format!("{start}{middle}{end}");
    let began = cpu();
    let _ = std::hint::black_box(compile(&text));
    cpu().saturating_sub(began)
}

#[test]
fn time_grows_with_the_length_of_a_configuration() {
    let url = "[upstream]\nurl = \"http://127.0.0.1:9\"\n";
    let limit = "[[limit]]\nname = \"l#\"\nkey = [\"ip\"]\nrate = \"1/s\"\nmatch = { path = \"/#\" }\n";
    for (start, unit, end) in [
        (url, limit, ""),
        ("", "[a#\n", ""), // no TOML in any line
        ("[access]\ndeny = { path = [\"/a\"", ", \"/#\"", "] }\n"),
    ] {
        // 32 times as much: 32 times as long, or up to 1024 times if each is compared with all others.
        let (few, many) = (cost(start, unit, 250, end), cost(start, unit, 8_000, end));
        assert!(many < 64 * few, "{unit}: {few:?}, {many:?}");
    }
}
