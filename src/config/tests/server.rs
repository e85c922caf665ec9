//! `[server]` and `[upstream]`: where Weir listens, whom it believes, and what is behind it.

use super::*;
use crate::engine::policy::RefusalLogRules;

#[test]
fn places_that_are_none() {
    insta::assert_snapshot!(brief(r#"[server]
listen = ["unix:", "unix:weir.sock", "unix:weir.sock"]
unix_mode = "rw-rw----"
[admin]
listen = "unix:weir.sock""#), @r#"
    2:11 «"unix:"» `server.listen`: `unix:` names no file
      = write it like "unix:/run/weir.sock"
    2:38 «"unix:weir.sock"» `server.listen`: `unix:weir.sock` occurs twice [also 2:20 «"unix:weir.sock"» first here]
    3:13 «"rw-rw----"» `server.unix_mode`: `rw-rw----` is not a file mode
      = write it like "0660"
    5:10 «"unix:weir.sock"» `admin.listen` and `server.listen` have an address in common [also 2:20 «"unix:weir.sock"» here]
    "#);
}

#[test]
fn preflights_are_never_free_without_bound() {
    let of = |value: &str| {
        let text = format!("[headers]\nfree_preflights = {value}\n{UPSTREAM}");
        compile(&text).unwrap_or_else(|problems| panic!("{problems}")).policy.free_preflights
    };
    assert_eq!(of("'10/s'"), Some(bucket(10, 1_000_000_000, 10)));
    assert_eq!(of("false"), None);
    insta::assert_snapshot!(brief("[headers]\nfree_preflights = true"), @r#"
    2:19 «true» `headers.free_preflights`: a client could cause any number of these responses
      = write a rate for each client address, such as "50/s", or `false`
    "#);
    for (value, why) in [("5", "expected rate, or `false`"), ("'5'", "is not a rate"), ("'5/month'", "no fixed length")]
    {
        let said = said(&format!("[headers]\nfree_preflights = {value}"));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn whose_word_is_taken_for_addresses() {
    insta::assert_snapshot!(brief("[server]\naddress_header = \"forwarded\""), @r#"2:18 «"forwarded"» `server.address_header`: has no effect without `server.trusted_proxies`"#);
    insta::assert_snapshot!(brief("[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\naddress_header = [\"x-forwarded-for\", \"forwarded\"]"), @r#"
    3:18 «["x-forwarded-for", "forwarded"]» `server.address_header`: Weir can trust only one header
      = a proxy changes one of these headers, and forwards the other as the client sent it
    "#);
    insta::assert_snapshot!(brief("[identity.a]\nheader = \"x-a\"\nseveral = \"frist\"\n[identity.b]\nseveral = \"first\"\n[identity.b.jwt]\nclaim = \"sub\"\nalgorithms = [\"HS256\"]\nkeys = [{ secret = { env = \"WEIR_JWT_SECRET\" } }]"), @r#"
    3:11 «"frist"» `identity.NAME.several`: `frist` is not one of `reject`, `first`, `last`, `join`
      = did you mean `first`?
    5:11 «"first"» `identity.NAME.several`: only a `header` without `jwt` may occur several times
    "#);
    let server = "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\naddress_header = \"forwarded\"";
    let config = compile(&format!("{server}\n{UPSTREAM}")).unwrap();
    assert_eq!(config.policy.client_ip.header, AddressHeader::Forwarded);
}

#[test]
fn peers_with_a_proxy_header() {
    insta::assert_snapshot!(brief(r#"[server]
proxy_protocol = { form = ["10.0.0.0/8"] }"#), @r#"
    2:18 «{ form = ["10.0.0.0/8"] }» `server.proxy_protocol.from` is missing
      = expected non-empty list of strings (address or network). Peers that begin each connection with a PROXY header, version 1 or 2, which has the address of the client.
    2:20 «form» unknown key `form` in `[server.proxy_protocol]`
      = did you mean `from`?
    "#);
    insta::assert_snapshot!(brief(r#"[server]
proxy_protocol = { from = [] }"#), @"2:27 «[]» `server.proxy_protocol.from`: must not be empty");
    insta::assert_snapshot!(brief(r#"[server]
proxy_protocol = true"#), @"2:18 «true» `server.proxy_protocol`: expected table [this is a boolean]");
    insta::assert_snapshot!(brief(r#"[server]
proxy_protocol = { from = ["10.0.0.1/8", "all"] }"#), @r#"
    2:28 «"10.0.0.1/8"» `server.proxy_protocol.from`: `10.0.0.1/8` has bits set beyond its prefix
      = did you mean `10.0.0.0/8`?
    2:42 «"all"» `server.proxy_protocol.from`: `all` is neither an address nor a network
      = write it like "192.0.2.7" or "10.0.0.0/8"
    "#);
}

#[test]
fn protocols_that_would_pass_the_limits() {
    insta::assert_snapshot!(brief(r#"[upstream]
url = "http://127.0.0.1:9000"
upgrade = ["websocket", "h2c", "WebSocket", "a b"]"#), @r#"
    3:25 «"h2c"» `upstream.upgrade`: `h2c` would let requests bypass all limits
    3:32 «"WebSocket"» `upstream.upgrade`: `WebSocket` occurs twice [also 3:12 «"websocket"» first here]
    3:45 «"a b"» `upstream.upgrade`: `a b` is not a protocol name
    "#);
}

#[test]
fn upstreams() {
    insta::assert_snapshot!(brief(r#"[server]"#), @r"
    1:1 «» `upstream.url` is missing
      = expected string (`http://host[:port]`, `https://host[:port]` or `unix:/path`). The address of the service, if there is one service at one address.
    ");
    insta::assert_snapshot!(brief(r#"[upstream]
host = "preserve""#), @r"
    1:1 «[upstream]» `upstream.url` is missing
      = expected string (`http://host[:port]`, `https://host[:port]` or `unix:/path`). The address of the service, if there is one service at one address.
    ");
    insta::assert_snapshot!(brief(r#"[upstream]
url = "ftp://h""#), @r#"2:7 «"ftp://h"» `upstream.url`: must begin with `http://`, `https://` or `unix:`"#);
    insta::assert_snapshot!(brief(r#"[upstream]
url = "h:9000""#), @r#"
    2:7 «"h:9000"» `upstream.url`: must begin with `http://`, `https://` or `unix:`
      = did you mean `http://h:9000`?
    "#);
    insta::assert_snapshot!(brief(r#"[upstream]
url = "http://h:9000/api""#), @r#"
    2:7 «"http://h:9000/api"» `upstream.url`: must end after the host or port
      = did you mean `http://h:9000`?
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://me:hunter2@h""#), @r#"
    error: `upstream.url`: must not contain a user or a password
     --> weir.toml:2:7
      |
    2 | url = *********************
      |       ^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(brief(r#"[upstream]
url = "http://h:99999""#), @r#"2:7 «"http://h:99999"» `upstream.url`: is not `http://host` or `http://host:port`"#);
    insta::assert_snapshot!(brief(r#"[upstream]
url = "http://h:""#), @r#"2:7 «"http://h:"» `upstream.url`: is not `http://host` or `http://host:port`"#);
    insta::assert_snapshot!(brief(r#"[upstream]
url = "http://127.0.0.1:8080"
[server]
listen = "127.0.0.1:8080""#), @r#"2:7 «"http://127.0.0.1:8080"» `upstream.url`: Weir itself listens on this address [also 4:10 «"127.0.0.1:8080"» here]"#);
}

#[test]
fn listeners_and_services_with_an_address_of_all_are_seen() {
    let two = |one: &str, other: &str| brief(&format!("[server]\nlisten = '{one}'\n[admin]\nlisten = '{other}'"));
    for (one, other) in [("0.0.0.0:81", "127.0.0.1:81"), ("[::1]:81", "[::]:81")] {
        assert!(
            two(one, other).contains("`admin.listen` and `server.listen` have an address in common"),
            "{one} {other}"
        );
    }
    assert!(!two("0.0.0.0:81", "[::]:81").contains("in common"));
    let to = |listen: &str, url: &str| format!("[server]\nlisten = '{listen}'\n[upstream]\nurl = '{url}'");
    for (listen, url) in [
        ("0.0.0.0:81", "http://127.0.0.1:81"),
        ("0.0.0.0:81", "http://localhost:81"),
        ("[::]:81", "http://127.0.0.2:81"),
        ("[::1]:81", "http://localhost:81"),
        ("0.0.0.0:80", "http://localhost"),
        ("127.0.0.1:80", "http://127.0.0.1"),
        ("[::1]:80", "http://[::1]"),
        ("0.0.0.0:443", "https://localhost"),
    ] {
        assert!(brief(&to(listen, url)).contains("Weir itself listens on this address"), "{listen} {url}");
    }
    for (listen, url) in [
        ("0.0.0.0:81", "http://10.0.0.1:81"),
        ("0.0.0.0:81", "http://localhost:82"),
        ("127.0.0.1:0", "http://localhost"),
        ("0.0.0.0:80", "https://localhost"),
    ] {
        assert!(compile(&to(listen, url)).is_ok(), "{listen} {url}");
    }
}

#[test]
fn headers_with_other_signs_than_dashes_are_named_only_if_they_stay() {
    let text = r#"[identity.a]
header = "x_a"
[identity.b]
jwt = { claim = "b", algorithms = ["HS256"], header = "x_b", keys = [{ secret = { env = "WEIR_JWT_SECRET" } }] }
[plans]
from = "header:x_plan"
[upstreams.u]
endpoints = ["http://127.0.0.1:1"]
balance = "hash"
hash_by = "header:x_h"
[[route]]
match = { header = { x_r = "*" } }
upstream = "u"
[[limit]]
name = "a"
key = ["header:x_k"]
rate = "9/s"
match = { header = { x_m = "1" } }
cost = { header = "x.c", max = 9 }
settle = { by = "header:x_s" }
"#;
    let with = |server: &str| compile(&format!("[server]\n{server}\n{text}"));
    assert!(with("underscores = \"keep\"").is_ok());
    for server in ["", "underscores = \"drop\"", "underscores = \"refuse\""] {
        let said = with(server).expect_err("they never come").to_string();
        for name in ["x_a", "x_b", "x_plan", "x_h", "x_r", "x_k", "x_m", "x.c"] {
            let line = format!("no request has `{name}`: `server.underscores` removes or refuses it");
            assert_eq!(said.matches(&line).count(), 1, "{server} {name}: {said}");
        }
        assert!(!said.contains("`x_s`"), "that of an answer stays: {said}");
    }
    insta::assert_snapshot!(brief("[[limit]]\nname = \"a\"\nkey = [\"header:x_k\"]\nrate = \"1/s\""), @r#"
    3:8 «"header:x_k"» `limit.key`: no request has `x_k`: `server.underscores` removes or refuses it
      = name `x-k`, or set `server.underscores = "keep"`
    "#);
}

#[test]
fn the_host_field_is_nowhere_named_as_a_header() {
    let limit = "[[limit]]\nname = \"a\"\nrate = \"1/s\"\n";
    for (text, places) in [
        (format!("{limit}key = [\"header:Host\"]"), 1),
        (format!("{limit}key = []\nmatch = {{ header = {{ host = \"a\" }} }}"), 1),
        (format!("{limit}key = []\ncost = {{ header = \"host\", max = 2 }}"), 1),
        (format!("{limit}key = [\"i\"]\n[identity.i]\nheader = \"host\"\n[plans]\nfrom = \"header:host\""), 2),
        (format!("{limit}key = [\"host\"]\nmatch = {{ host = \"a\" }}"), 0),
    ] {
        let said = compile(&text).err().map_or_else(String::new, |problems| problems.to_string());
        assert_eq!(said.matches("and the field `host` may contain another").count(), places, "{text}: {said}");
    }
}

#[test]
fn refusals_are_kept_for_an_hour() {
    let of = |text: &str| {
        let text = format!("{text}\n{UPSTREAM}");
        compile(&text).unwrap_or_else(|problems| panic!("{problems}")).policy.refusal_log
    };
    let hour_ns = 3_600_000_000_000;
    for (text, keep_ns, max) in [
        ("", hour_ns, 10_000),
        ("[refusals]\nkeep = '1min'\nmax = 64", 60_000_000_000, 64),
        ("[refusals]\nkeep = 'off'", 0, 10_000),
    ] {
        assert_eq!(of(text), RefusalLogRules { keep_ns, max }, "{text}");
    }
    for (text, why) in [("keep = '0s'", "longer than zero"), ("max = 63", "64"), ("for = '1h'", "unknown key")] {
        let said = said(&format!("[refusals]\n{text}"));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn clients_see_their_limits_only_with_a_verified_identity() {
    let identity = "[identity.partner]\napi_keys = { file = 'partners.toml' }\n\
                    [[limit]]\nname = 'l'\nkey = ['partner']\nrate = '1/s'\n";
    let compiled = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("partners.toml"), "").unwrap();
        let text = format!("{identity}[client_api]\n{text}\n{UPSTREAM}");
        super::super::compile(&text, "weir.toml", folder.path(), &|_| None)
    };
    let api = compiled("path = '/.well-known/ratelimit'").unwrap_or_else(|problems| panic!("{problems}"));
    let api = api.policy.client_api.unwrap();
    assert_eq!((&*api.path, &api.rate), ("/.well-known/ratelimit", &bucket(10, 10_000_000_000, 10)));
    assert_eq!(compile(UPSTREAM).unwrap().policy.client_api, None);
    for (text, why) in [
        ("", "`client_api.path`"),
        ("path = 'limits'", "expected a path in its normal form"),
        ("path = '/a//b'", "expected a path in its normal form"),
        ("path = '/a?b'", "expected a path in its normal form"),
        ("path = '/a'\nrate = '5'", "is not a rate"),
        ("path = '/a'\nrate = false", "expected"),
    ] {
        let said = compiled(text).unwrap_err().to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
    insta::assert_snapshot!(brief("[client_api]\npath = '/limits'"), @r"
    2:8 «'/limits'» `client_api.path`: no identity is verified, so no client could see its limits
      = add an `[identity.NAME]` with `jwt`, `api_keys` or `tls`; a plain header proves nothing
    ");
}
