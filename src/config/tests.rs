//! Configurations that are wrong, and what is said about each; one that is right, and what it becomes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The tables are long, and whether a row holds a quotation mark is of no interest.
#![allow(clippy::too_many_lines, clippy::needless_raw_string_hashes)]

mod access;
mod admin;
mod fetched;
mod rules;
mod snapshot;
mod takeover;
mod tls;
mod upstreams;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::{Config, DEFAULT_LIMIT, Diagnostics};
use crate::limit::slow_down::SlowDown;
use crate::limit::{Algorithm, OnFull, Quota, Rate};
use crate::policy::client_ip::AddressHeader;
use crate::policy::key::KeyPart;
use crate::policy::{
    Cost, DelayRule, HeaderTest, HoldRule, HostPattern, IdentitySource, Mode, OnLimit, OnMissing, Repeated, Stage,
};
use crate::proxy::Listen;
use crate::proxy::settings::{MinRate, Timeouts};
use crate::store::Share;
use crate::telemetry::{AccessLog, LogFormat};

const UPSTREAM: &str = "[upstream]\nurl = \"http://127.0.0.1:9000\"\n";

fn compile(text: &str) -> Result<Config, Diagnostics> {
    let env = |name: &str| match name {
        "WEIR_JWT_SECRET" | "WEIR_ADMIN_TOKEN" => Some("0123456789abcdef0123456789abcdef".to_owned()),
        "SHORT" => Some("hunter2".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    super::compile(text, "weir.toml", Path::new("config"), &env)
}

/// What is said about `text`, to which an upstream is added if it names none.
fn said(text: &str) -> String {
    let text =
        if text.contains("upstream") || text == "[server]" { text.to_owned() } else { format!("{text}\n{UPSTREAM}") };
    let said = compile(&text).expect_err("this is wrong").to_string();
    assert!(!said.contains("hunter2"), "{said}");
    said
}

fn bucket(count: u64, period_ns: u64, burst: u64) -> Algorithm {
    Algorithm::TokenBucket(Quota::new(Rate { count, period_ns }, burst).unwrap())
}

#[test]
fn places_that_are_none() {
    insta::assert_snapshot!(said(r#"[server]
listen = ["unix:", "unix:weir.sock", "unix:weir.sock"]
unix_mode = "rw-rw----"
[admin]
listen = "unix:weir.sock""#), @r#"
    error: `server.listen`: `unix:` names no file
     --> weir.toml:2:11
      |
    2 | listen = ["unix:", "unix:weir.sock", "unix:weir.sock"]
      |           ^^^^^^^
      |
      = help: write it like "unix:/run/weir.sock"

    error: `server.listen`: `unix:weir.sock` is there twice
     --> weir.toml:2:38
      |
    2 | listen = ["unix:", "unix:weir.sock", "unix:weir.sock"]
      |                    ----------------  ^^^^^^^^^^^^^^^^
      |                    |
      |                    first here

    error: `server.unix_mode`: `rw-rw----` is not a mode
     --> weir.toml:3:13
      |
    3 | unix_mode = "rw-rw----"
      |             ^^^^^^^^^^^
      |
      = help: write it like "0660"

    error: `admin.listen` and `server.listen` are the same address
     --> weir.toml:5:10
      |
    2 | listen = ["unix:", "unix:weir.sock", "unix:weir.sock"]
      |                    ---------------- here
    ...
    5 | listen = "unix:weir.sock"
      |          ^^^^^^^^^^^^^^^^
    "#);
}

#[test]
fn whose_word_is_taken_for_addresses() {
    insta::assert_snapshot!(said("[server]\naddress_header = \"forwarded\""), @r#"
    error: `server.address_header`: nobody is believed without `server.trusted_proxies`
     --> weir.toml:2:18
      |
    2 | address_header = "forwarded"
      |                  ^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said("[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\naddress_header = [\"x-forwarded-for\", \"forwarded\"]"), @r#"
    error: `server.address_header`: one header is believed, not several
     --> weir.toml:3:18
      |
    3 | address_header = ["x-forwarded-for", "forwarded"]
      |                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: proxies add to the one they know and pass on the other as the client wrote it
    "#);
    insta::assert_snapshot!(said("[identity.a]\nheader = \"x-a\"\nseveral = \"frist\"\n[identity.b]\nseveral = \"first\"\n[identity.b.jwt]\nclaim = \"sub\"\nalgorithms = [\"HS256\"]\nkeys = [{ secret = { env = \"WEIR_JWT_SECRET\" } }]"), @r#"
    error: `identity.NAME.several`: `frist` is none of `reject`, `first`, `last`, `join`
     --> weir.toml:3:11
      |
    3 | several = "frist"
      |           ^^^^^^^
      |
      = help: did you mean `first`?

    error: `identity.NAME.several`: only a `header` that is no token may be there several times
     --> weir.toml:5:11
      |
    5 | several = "first"
      |           ^^^^^^^
    "#);
    let server = "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\naddress_header = \"forwarded\"";
    let config = compile(&format!("{server}\n{UPSTREAM}")).unwrap();
    assert_eq!(config.policy.client_ip.header, AddressHeader::Forwarded);
}

#[test]
fn peers_with_a_proxy_header() {
    insta::assert_snapshot!(said(r#"[server]
proxy_protocol = { form = ["10.0.0.0/8"] }"#), @r#"
    error: `server.proxy_protocol.from` is missing
     --> weir.toml:2:18
      |
    2 | proxy_protocol = { form = [************] }
      |                  ^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: expected non-empty list of strings (address or network). Peers that begin each connection with a PROXY header, version 1 or 2; it says whose connection it is.

    error: unknown key `form` in `[server.proxy_protocol]`
     --> weir.toml:2:20
      |
    2 | proxy_protocol = { form = [************] }
      |                    ^^^^
      |
      = help: did you mean `from`?
    "#);
    insta::assert_snapshot!(said(r#"[server]
proxy_protocol = { from = [] }"#), @r#"
    error: `server.proxy_protocol.from`: must not be empty
     --> weir.toml:2:27
      |
    2 | proxy_protocol = { from = [] }
      |                           ^^
    "#);
    insta::assert_snapshot!(said(r#"[server]
proxy_protocol = true"#), @r#"
    error: `server.proxy_protocol`: expected table
     --> weir.toml:2:18
      |
    2 | proxy_protocol = true
      |                  ^^^^ this is a boolean
    "#);
    insta::assert_snapshot!(said(r#"[server]
proxy_protocol = { from = ["10.0.0.1/8", "all"] }"#), @r#"
    error: `server.proxy_protocol.from`: `10.0.0.1/8` has bits set beyond its prefix
     --> weir.toml:2:28
      |
    2 | proxy_protocol = { from = ["10.0.0.1/8", "all"] }
      |                            ^^^^^^^^^^^^
      |
      = help: did you mean `10.0.0.0/8`?

    error: `server.proxy_protocol.from`: `all` is neither an address nor a network
     --> weir.toml:2:42
      |
    2 | proxy_protocol = { from = ["10.0.0.1/8", "all"] }
      |                                          ^^^^^
      |
      = help: write it like "192.0.2.7" or "10.0.0.0/8"
    "#);
}

#[test]
fn protocols_that_would_pass_the_limits() {
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://127.0.0.1:9000"
upgrade = ["websocket", "h2c", "WebSocket", "a b"]"#), @r#"
    error: `upstream.upgrade`: `h2c` would carry requests past all limits
     --> weir.toml:3:25
      |
    3 | upgrade = ["websocket", "h2c", "WebSocket", "a b"]
      |                         ^^^^^

    error: `upstream.upgrade`: `WebSocket` is there twice
     --> weir.toml:3:32
      |
    3 | upgrade = ["websocket", "h2c", "WebSocket", "a b"]
      |            -----------         ^^^^^^^^^^^
      |            |
      |            first here

    error: `upstream.upgrade`: `a b` is not the name of a protocol
     --> weir.toml:3:45
      |
    3 | upgrade = ["websocket", "h2c", "WebSocket", "a b"]
      |                                             ^^^^^
    "#);
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
      = help: `[[limit]]` can have name, stage, mode, match, except, key, algorithm, rate, burst, max, align, time_zone, sub_windows, cost, plans, overrides, count, settle, max_debt, on_limit, hold, delay, ban, max_keys, on_full, persist
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
    error: `[upstreams]` names none
     --> weir.toml:1:13
      |
    1 | upstreams = {}
      |             ^^
    "#);
    insta::assert_snapshot!(said(r#"[identity.seller]
headr = "hunter2""#), @r#"
    error: identity `seller` has none of `header`, `tls` and `jwt`
     --> weir.toml:1:11
      |
    1 | [identity.seller]
      |           ^^^^^^
      |
      = help: an identity comes from exactly one of them

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

    error: `limit.match.header`: expected table (header names, and values or `*`)
     --> weir.toml:5:20
      |
    5 | match = { header = "x" }
      |                    ^^^ this is a string
    "#);
}

#[test]
fn bad_values() {
    insta::assert_snapshot!(said(r#"[server]
listen = ["unix:/run/weir.sock", ":8080", "localhost:80", "127.0.0.1:80", "127.0.0.1:80"]"#), @r#"
    error: `server.listen`: `:8080` is not an address with a port
     --> weir.toml:2:34
      |
    2 | listen = ["unix:/run/weir.sock", ":8080", "localhost:80", "127.0.0.1:80", "127.0.0.1:80"]
      |                                  ^^^^^^^
      |
      = help: did you mean `0.0.0.0:8080`?

    error: `server.listen`: `localhost:80` is not an address with a port
     --> weir.toml:2:43
      |
    2 | listen = ["unix:/run/weir.sock", ":8080", "localhost:80", "127.0.0.1:80", "127.0.0.1:80"]
      |                                           ^^^^^^^^^^^^^^
      |
      = help: names are not looked up; write it like "127.0.0.1:8080" or "[::1]:8080"

    error: `server.listen`: `127.0.0.1:80` is there twice
     --> weir.toml:2:75
      |
    2 | listen = ["unix:/run/weir.sock", ":8080", "localhost:80", "127.0.0.1:80", "127.0.0.1:80"]
      |                                                           --------------  ^^^^^^^^^^^^^^
      |                                                           |
      |                                                           first here
    "#);
    insta::assert_snapshot!(said(r#"[server]
listen = []
trusted_proxies = ["10.0.0.1/8", "lan"]
ipv6_prefix = 0"#), @r#"
    error: `server.listen`: an empty list says nothing; leave it out
     --> weir.toml:2:10
      |
    2 | listen = []
      |          ^^

    error: `server.trusted_proxies`: `10.0.0.1/8` has bits set beyond its prefix
     --> weir.toml:3:20
      |
    3 | trusted_proxies = ["10.0.0.1/8", "lan"]
      |                    ^^^^^^^^^^^^
      |
      = help: did you mean `10.0.0.0/8`?

    error: `server.trusted_proxies`: `lan` is neither an address nor a network
     --> weir.toml:3:34
      |
    3 | trusted_proxies = ["10.0.0.1/8", "lan"]
      |                                  ^^^^^
      |
      = help: write it like "192.0.2.7" or "10.0.0.0/8"

    error: `server.ipv6_prefix`: expected whole number from 1 to 128
     --> weir.toml:4:15
      |
    4 | ipv6_prefix = 0
      |               ^
    "#);
    insta::assert_snapshot!(said(r#"[server]
workers = -1
max_head_bytes = "1MB"
max_uri_bytes = "1 GiB"
max_headers = 99999999999999999999"#), @r#"
    error: `server.workers`: expected whole number from 1 to 1024
     --> weir.toml:2:11
      |
    2 | workers = -1
      |           ^^

    error: `server.max_uri_bytes`: expected size from 16B to 65534B
     --> weir.toml:4:17
      |
    4 | max_uri_bytes = "1 GiB"
      |                 ^^^^^^^

    error: `server.max_headers`: expected whole number from 1 to 10000
     --> weir.toml:5:15
      |
    5 | max_headers = 99999999999999999999
      |               ^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[server]
max_head_bytes = "big""#), @r#"
    error: `server.max_head_bytes`: `big` is not a size
     --> weir.toml:2:18
      |
    2 | max_head_bytes = "big"
      |                  ^^^^^
      |
      = help: write it like "64KiB" or "10MiB"
    "#);
    insta::assert_snapshot!(said(r#"[timeouts]
connect = "0s"
keep_alive = "10"
total = "of"
body_idle = "2years""#), @r#"
    error: `timeouts.connect`: must be longer than zero
     --> weir.toml:2:11
      |
    2 | connect = "0s"
      |           ^^^^

    error: `timeouts.keep_alive`: `10` is not a duration: time unit needed, for example 10sec or 10ms
     --> weir.toml:3:14
      |
    3 | keep_alive = "10"
      |              ^^^^
      |
      = help: write it like "250ms", "10s" or "5min"

    error: `timeouts.total`: `of` is not a duration: expected number at 0
     --> weir.toml:4:9
      |
    4 | total = "of"
      |         ^^^^
      |
      = help: did you mean `off`?

    error: `timeouts.body_idle`: `2years` is longer than a year
     --> weir.toml:5:13
      |
    5 | body_idle = "2years"
      |             ^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[admin]
listen = "127.0.0.1:8080"
[server]
listen = "127.0.0.1:8080""#), @r#"
    error: `admin.listen` and `server.listen` are the same address
     --> weir.toml:2:10
      |
    2 | listen = "127.0.0.1:8080"
      |          ^^^^^^^^^^^^^^^^
    3 | [server]
    4 | listen = "127.0.0.1:8080"
      |          ---------------- here
    "#);
    insta::assert_snapshot!(said("[admin]\nhosts = [\"weir.internal\", \"weir:9901\", \"a b\"]"), @r#"
    error: `admin.hosts`: `weir:9901` is not a host
     --> weir.toml:2:27
      |
    2 | hosts = ["weir.internal", "weir:9901", "a b"]
      |                           ^^^^^^^^^^^
      |
      = help: a host is written without a port

    error: `admin.hosts`: `a b` is not a host
     --> weir.toml:2:40
      |
    2 | hosts = ["weir.internal", "weir:9901", "a b"]
      |                                        ^^^^^
      |
      = help: a host is written without a port
    "#);
    insta::assert_snapshot!(said(r#"[headers]
profiles = ["x-ratelimit", "ieft", "wildberries"]"#), @r#"
    error: `headers.profiles`: `ieft` is none of `x-ratelimit`, `ietf`, `wildberries`
     --> weir.toml:2:28
      |
    2 | profiles = ["x-ratelimit", "ieft", "wildberries"]
      |                            ^^^^^^
      |
      = help: did you mean `ietf`?

    error: `headers.profiles`: `x-ratelimit` and `wildberries` write the same fields; choose one
     --> weir.toml:2:36
      |
    2 | profiles = ["x-ratelimit", "ieft", "wildberries"]
      |             ------------- and here ^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[log]
level = "infoo"
format = "xml""#), @r#"
    error: `log.level`: `infoo` is none of `error`, `warn`, `info`, `debug`, `trace`
     --> weir.toml:2:9
      |
    2 | level = "infoo"
      |         ^^^^^^^
      |
      = help: did you mean `info`?

    error: `log.format`: `xml` is none of `auto`, `text`, `json`
     --> weir.toml:3:10
      |
    3 | format = "xml"
      |          ^^^^^
    "#);
}

#[test]
fn upstreams() {
    insta::assert_snapshot!(said(r#"[server]"#), @r#"
    error: `upstream.url` is missing
     --> weir.toml:1:1
      |
    1 | [server]
      | ^
      |
      = help: expected string (`http://host[:port]`, `https://host[:port]` or `unix:/path`). The service behind Weir, if there is one in one place.
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
host = "preserve""#), @r#"
    error: `upstream.url` is missing
     --> weir.toml:1:1
      |
    1 | [upstream]
      | ^^^^^^^^^^
      |
      = help: expected string (`http://host[:port]`, `https://host[:port]` or `unix:/path`). The service behind Weir, if there is one in one place.
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "ftp://h""#), @r#"
    error: `upstream.url`: must begin with `http://`, `https://` or `unix:`
     --> weir.toml:2:7
      |
    2 | url = "ftp://h"
      |       ^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "h:9000""#), @r#"
    error: `upstream.url`: must begin with `http://`, `https://` or `unix:`
     --> weir.toml:2:7
      |
    2 | url = "h:9000"
      |       ^^^^^^^^
      |
      = help: did you mean `http://h:9000`?
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://h:9000/api""#), @r#"
    error: `upstream.url`: must end after the host or port
     --> weir.toml:2:7
      |
    2 | url = "http://h:9000/api"
      |       ^^^^^^^^^^^^^^^^^^^
      |
      = help: did you mean `http://h:9000`?
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://me:hunter2@h""#), @r#"
    error: `upstream.url`: must not hold a user or a password
     --> weir.toml:2:7
      |
    2 | url = *********************
      |       ^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://h:99999""#), @r#"
    error: `upstream.url`: is not `http://host` or `http://host:port`
     --> weir.toml:2:7
      |
    2 | url = "http://h:99999"
      |       ^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://h:""#), @r#"
    error: `upstream.url`: is not `http://host` or `http://host:port`
     --> weir.toml:2:7
      |
    2 | url = "http://h:"
      |       ^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[upstream]
url = "http://127.0.0.1:8080"
[server]
listen = "127.0.0.1:8080""#), @r#"
    error: `upstream.url`: this is where Weir itself listens
     --> weir.toml:2:7
      |
    2 | url = "http://127.0.0.1:8080"
      |       ^^^^^^^^^^^^^^^^^^^^^^^
    3 | [server]
    4 | listen = "127.0.0.1:8080"
      |          ---------------- here
    "#);
}

#[test]
fn identities() {
    insta::assert_snapshot!(said(r#"[identity.ip]
header = "x-a"
[identity.Shop]
header = "x a""#), @r#"
    error: `ip` is a part of keys by itself; call the identity something else
     --> weir.toml:1:11
      |
    1 | [identity.ip]
      |           ^^

    error: `Shop` is no name of an identity: it consists of `a-z 0-9 _ -`
     --> weir.toml:3:11
      |
    3 | [identity.Shop]
      |           ^^^^

    error: `identity.NAME.header`: `x a` is not a header name
     --> weir.toml:4:10
      |
    4 | header = "x a"
      |          ^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[identity.a]
header = "x-a"
jwt = {}
[identity.b]
on_missing = "rejct""#), @r#"
    error: identity `a` has both `header` and `jwt`
     --> weir.toml:1:11
      |
    1 | [identity.a]
      |           ^
      |
      = help: an identity comes from exactly one of them

    error: identity `b` has none of `header`, `tls` and `jwt`
     --> weir.toml:4:11
      |
    4 | [identity.b]
      |           ^
      |
      = help: an identity comes from exactly one of them

    error: `identity.NAME.on_missing`: `rejct` is none of `reject`, `anonymous`, `ip`
     --> weir.toml:5:14
      |
    5 | on_missing = "rejct"
      |              ^^^^^^^
      |
      = help: did you mean `reject`?
    "#);
    insta::assert_snapshot!(said(r#"[identity.a]
jwt = { claim = "sub", algorithms = ["HS265"], keys = [] }"#), @r#"
    error: `identity.NAME.jwt.algorithms`: `HS265` is none of `HS256`, `RS256`, `ES256`, `EdDSA`
     --> weir.toml:2:38
      |
    2 | jwt = { claim = "sub", algorithms = ["HS265"], keys = [] }
      |                                      ^^^^^^^
      |
      = help: did you mean `HS256`?

    error: `identity.NAME.jwt.keys`: without a key no token can be verified
     --> weir.toml:2:55
      |
    2 | jwt = { claim = "sub", algorithms = ["HS265"], keys = [] }
      |                                                       ^^
    "#);
    insta::assert_snapshot!(said(r#"[identity.a]
jwt = { claim = "", algorithms = [], keys = "k" }"#), @r#"
    error: `identity.NAME.jwt.claim`: must not be empty
     --> weir.toml:2:17
      |
    2 | jwt = { claim = "", algorithms = [], keys = *** }
      |                 ^^

    error: `identity.NAME.jwt.algorithms`: must not be empty
     --> weir.toml:2:34
      |
    2 | jwt = { claim = "", algorithms = [], keys = *** }
      |                                  ^^

    error: `identity.NAME.jwt.keys`: expected list of tables, as in `[[identity.NAME.jwt.keys]]`
     --> weir.toml:2:45
      |
    2 | jwt = { claim = "", algorithms = [], keys = *** }
      |                                             ^^^ this is a string
    "#);
    insta::assert_snapshot!(said(r#"[identity.a.jwt]
claim = "sub"
algorithms = ["HS256"]
keys = [
  { secret = "hunter2" },
  { secret = { env = "SHORT" } },
  { secret = { env = "UNSET" } },
  { secret = { env = "EMPTY" } },
  { secret = { env = "hunter2!" } },
  { secret = {} },
  { secret = { file = "none" } },
  { jwks = "none.json" },
  { jwks = "{hunter2}" },
  { jwks = "keys/sellers.jwks.json", pem = "keys/sellers.pem" },
  { jwk = "hunter2" },
]"#), @r#"
    error: a secret must not be written into the configuration
     --> weir.toml:5:14
      |
    5 |   { secret = ********* },
      |              ^^^^^^^^^
      |
      = help: use `{ env = "NAME" }` or `{ file = "path" }`

    error: this secret has 7 bytes; HS256 needs at least 32
     --> weir.toml:6:22
      |
    6 |   { secret = { env = "SHORT" } },
      |                      ^^^^^^^

    error: `identity.NAME.jwt.keys.secret.env`: this environment variable is not set, or not UTF-8
     --> weir.toml:7:22
      |
    7 |   { secret = { env = "UNSET" } },
      |                      ^^^^^^^

    error: this secret is empty
     --> weir.toml:8:22
      |
    8 |   { secret = { env = "EMPTY" } },
      |                      ^^^^^^^

    error: `identity.NAME.jwt.keys.secret.env`: is not the name of an environment variable
     --> weir.toml:9:22
      |
    9 |   { secret = { env = ********** } },
      |                      ^^^^^^^^^^
      |
      = help: it consists of letters, digits and `_`

    error: a secret is exactly one of `env` and `file`
      --> weir.toml:10:14
       |
    10 |   { secret = {} },
       |              ^^

    error: `identity.NAME.jwt.keys.secret.file`: cannot read `config/none`: No such file or directory (os error 2)
      --> weir.toml:11:23
       |
    11 |   { secret = { file = "none" } },
       |                       ^^^^^^

    error: `identity.NAME.jwt.keys.jwks`: cannot read `config/none.json`: No such file or directory (os error 2)
      --> weir.toml:12:12
       |
    12 |   { jwks = "none.json" },
       |            ^^^^^^^^^^^

    error: `identity.NAME.jwt.keys.jwks`: is the name of a file, not what is in it
      --> weir.toml:13:12
       |
    13 |   { jwks = *********** },
       |            ^^^^^^^^^^^

    error: a key is exactly one of `jwks`, `jwks_url`, `pem` and `secret`
      --> weir.toml:14:3
       |
    14 |   { jwks = "keys/sellers.jwks.json", pem = "keys/sellers.pem" },
       |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: a key is exactly one of `jwks`, `jwks_url`, `pem` and `secret`
      --> weir.toml:15:3
       |
    15 |   { jwk = ********* },
       |   ^^^^^^^^^^^^^^^^^^^

    error: unknown key `jwk` in `[identity.NAME.jwt.keys]`
      --> weir.toml:15:5
       |
    15 |   { jwk = ********* },
       |     ^^^
       |
       = help: did you mean `jwks`?
    "#);
}

#[test]
fn limits() {
    insta::assert_snapshot!(said(r#"[[limit]]"#), @r#"
    error: `limit.name` is missing
     --> weir.toml:1:1
      |
    1 | [[limit]]
      | ^^^^^^^^^
      |
      = help: expected string (1 to 64 of `A-Z a-z 0-9 _ -`). Its name in headers, metrics and logs; unique.

    error: `limit.key` is missing
     --> weir.toml:1:1
      |
    1 | [[limit]]
      | ^^^^^^^^^
      |
      = help: expected list of strings (part of a key). Whose budget: `ip`, `path`, `route`, `host`, `method`, an identity, `header:NAME`, `query:NAME`, `cookie:NAME`; `[]` for one budget shared by all.

    error: `limit.rate` is missing
     --> weir.toml:1:1
      |
    1 | [[limit]]
      | ^^^^^^^^^
      |
      = help: expected rate, or list of 1 to 4 rates. COUNT `/` [N] UNIT, with UNIT `ms`, `s`, `min`, `h`, `day`, `week`, or `month` in calendar windows; of several all must admit. `concurrency` has `max` instead.
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a b"
key = ["ip", "ip"]
rate = "0/s"
cost = 0"#), @r#"
    error: `limit.name`: `a b` is not 1 to 64 of `A-Z a-z 0-9 _ -`
     --> weir.toml:2:8
      |
    2 | name = "a b"
      |        ^^^^^

    error: `limit.key`: `ip` is there twice
     --> weir.toml:3:14
      |
    3 | key = ["ip", "ip"]
      |        ----  ^^^^
      |        |
      |        first here

    error: `limit.rate`: a rate of zero would admit nothing, ever
     --> weir.toml:4:8
      |
    4 | rate = "0/s"
      |        ^^^^^

    error: `limit.cost`: expected whole number from 1, or table
     --> weir.toml:5:8
      |
    5 | cost = 0
      |        ^
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = "ip"
rate = "1/s"

[[limit]]
name = "a"
key = "ip"
rate = "1/s""#), @r#"
    error: `limit.name`: `a` is there twice
     --> weir.toml:7:8
      |
    2 | name = "a"
      |        --- first here
    ...
    7 | name = "a"
      |        ^^^
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
rate = "1/s"
stage = "arrival"
[identity.seller]
header = "x-a""#), @r#"
    error: `limit.key`: `route` is the pattern that matched, so it needs `match.path`
     --> weir.toml:3:8
      |
    3 | key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
      |        ^^^^^^^

    error: `limit.key`: `pth` is no part of a key
     --> weir.toml:3:17
      |
    3 | key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
      |                 ^^^^^
      |
      = help: did you mean `path`?

    error: `limit.key`: `headr:x-a` is no part of a key
     --> weir.toml:3:24
      |
    3 | key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
      |                        ^^^^^^^^^^^
      |
      = help: did you mean `header:x-a`?

    error: `limit.key`: `header:` is no part of a key
     --> weir.toml:3:37
      |
    3 | key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
      |                                     ^^^^^^^^^
      |
      = help: a key can have ip, path, route, host, method, seller, header:NAME, query:NAME, cookie:NAME

    error: `limit.key`: `sellr` is no part of a key
     --> weir.toml:3:48
      |
    3 | key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
      |                                                ^^^^^^^
      |
      = help: did you mean `seller`?

    error: `limit.key`: an identity is not yet known at stage `arrival`
     --> weir.toml:3:57
      |
    3 | key = ["route", "pth", "headr:x-a", "header:", "sellr", "seller"]
      |                                                         ^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "5/minute"
[[limit]]
name = "b"
key = []
rate = "five"
[[limit]]
name = "c"
key = []
rate = "99999999/s""#), @r#"
    error: `limit.rate`: unknown unit `minute`: it is one of ms, s, min, h, day, week, month
     --> weir.toml:4:8
      |
    4 | rate = "5/minute"
      |        ^^^^^^^^^^
      |
      = help: did you mean `min`?

    error: `limit.rate`: `five` is not a rate
     --> weir.toml:8:8
      |
    8 | rate = "five"
      |        ^^^^^^
      |
      = help: write it like "100/min" or "5/15min"

    error: `limit.rate`: is faster than 10000000 a second
      --> weir.toml:12:8
       |
    12 | rate = "99999999/s"
       |        ^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
cost = 6
hold = { max_wait = "5s" }"#), @r#"
    error: `limit.cost`: a cost of 6 can never pass: the burst is 5
     --> weir.toml:5:8
      |
    5 | cost = 6
      |        ^

    error: `limit.hold` needs `on_limit = "hold"`
     --> weir.toml:6:8
      |
    6 | hold = { max_wait = "5s" }
      |        ^^^^^^^^^^^^^^^^^^^
      |
      = help: without it, requests beyond the limit are refused
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "1/week"
burst = 99999999
on_limit = "hold"
hold = { max_wait = "ever", max_waiting = 0 }
max_keys = 0"#), @r#"
    error: `limit.burst`: takes more than 146 years to refill
     --> weir.toml:5:9
      |
    5 | burst = 99999999
      |         ^^^^^^^^

    error: `limit.hold.max_wait`: `ever` is not a duration: expected number at 0
     --> weir.toml:7:21
      |
    7 | hold = { max_wait = "ever", max_waiting = 0 }
      |                     ^^^^^^
      |
      = help: write it like "250ms", "10s" or "5min"

    error: `limit.hold.max_waiting`: expected whole number from 1 to 10000000
     --> weir.toml:7:43
      |
    7 | hold = { max_wait = "ever", max_waiting = 0 }
      |                                           ^

    error: `limit.max_keys`: expected whole number from 1 to 4294967296
     --> weir.toml:8:12
      |
    8 | max_keys = 0
      |            ^
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

    error: `limit.match.path`: `/{x`: braces enclose a whole segment: `{name}` or `{*rest}`
     --> weir.toml:5:24
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                        ^^^^^

    error: `limit.match.host`: `h:80` is not a host
     --> weir.toml:5:40
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                        ^^^^^^
      |
      = help: a host is written without a port, in ASCII; `*.` at its start stands for any host below it

    error: `limit.match.host`: `*` is not a host
     --> weir.toml:5:48
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                ^^^
      |
      = help: a host is written without a port, in ASCII; `*.` at its start stands for any host below it

    error: `limit.match.method`: `get` would never match: methods are in upper case
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

    error: `limit.match.header`: this cannot be the value of a header
     --> weir.toml:5:109
      |
    5 | match = { path = ["a", "/{x"], host = ["h:80", "*"], method = ["get", "a b"], header = { "x y" = "*", x-a = ******** } }
      |                                                                                                             ^^^^^^^^

    error: `limit.except.ip`: an empty list says nothing; leave it out
     --> weir.toml:6:17
      |
    6 | except = { ip = [] }
      |                 ^^
    "#);
}

#[test]
fn bans() {
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
ban = { after = "10", for = "0s", forever = true }
[[limit]]
name = "b"
key = []
rate = "5/min"
ban = { after = "10/min", for = "2h", for_max = "1h" }
[[limit]]
name = "c"
key = []
rate = "5/min"
ban = {}"#), @r#"
    error: `limit.ban.after`: `10` is not a rate
     --> weir.toml:5:17
      |
    5 | ban = { after = "10", for = "0s", forever = true }
      |                 ^^^^
      |
      = help: write it like "100/min" or "5/15min"

    error: `limit.ban.for`: must be longer than zero
     --> weir.toml:5:29
      |
    5 | ban = { after = "10", for = "0s", forever = true }
      |                             ^^^^

    error: unknown key `forever` in `[limit.ban]`
     --> weir.toml:5:35
      |
    5 | ban = { after = "10", for = "0s", forever = true }
      |                                   ^^^^^^^
      |
      = help: `[limit.ban]` can have after, for, for_max

    error: `limit.ban.for`: the first ban is longer than `for_max`
      --> weir.toml:10:33
       |
    10 | ban = { after = "10/min", for = "2h", for_max = "1h" }
       |                                 ^^^^            ---- the longest

    error: `limit.ban.after` is missing
      --> weir.toml:15:7
       |
    15 | ban = {}
       |       ^^
       |
       = help: expected string (rate). Refusals by this limit within a time that ban a key from it.

    error: `limit.ban.for` is missing
      --> weir.toml:15:7
       |
    15 | ban = {}
       |       ^^
       |
       = help: expected duration. How long everything of the key is refused with 403; each further ban is twice as long.
    "#);
    let rule = |text: &str| {
        let config = format!("{UPSTREAM}[[limit]]\nname = \"a\"\nkey = []\nrate = \"5/s\"\nban = {{ {text} }}\n");
        compile(&config).unwrap().policy.limits()[0].ban.unwrap()
    };
    let lengths_s = |text: &str| [0, 1, 2, 63].map(|bans| rule(text).length_ns(bans) / 1_000_000_000);
    assert_eq!(lengths_s(r#"after = "10/min", for = "1h", for_max = "3h""#), [3600, 7200, 10_800, 10_800]);
    assert_eq!(lengths_s(r#"after = "10/min", for = "10h""#), [36_000, 72_000, 86_400, 86_400]);
    assert_eq!(lengths_s(r#"after = "10/min", for = "25h""#), [90_000; 4]);
}

#[test]
fn delays() {
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
delay = { step = "1s" }
[[limit]]
name = "b"
key = []
rate = "5/min"
on_limit = "hold"
delay = { max = "1s" }
[[limit]]
name = "c"
key = []
rate = "5/min"
on_limit = "delay"
delay = { step = "2s", max = "1s" }
[[limit]]
name = "d"
key = []
rate = "5/min"
on_limit = "delay"
hold = { max_wait = "1s" }
ban = { after = "1/s", for = "1s" }
[[limit]]
name = "e"
key = []
rate = "5/min"
on_limit = "delya""#), @r#"
    error: `limit.delay` needs `on_limit = "delay"`
     --> weir.toml:5:9
      |
    5 | delay = { step = "1s" }
      |         ^^^^^^^^^^^^^^^
      |
      = help: without it, requests beyond the limit are refused

    error: `limit.delay` needs `on_limit = "delay"`
      --> weir.toml:11:9
       |
    11 | delay = { max = "1s" }
       |         ^^^^^^^^^^^^^^
       |
       = help: with `hold`, requests wait for as long as they must

    error: `limit.delay.step`: is longer than `max`, which would be every delay
      --> weir.toml:17:18
       |
    17 | delay = { step = "2s", max = "1s" }
       |                  ^^^^        ---- the longest

    error: `limit.hold.max_wait` needs `on_limit = "hold"`
      --> weir.toml:23:21
       |
    23 | hold = { max_wait = "1s" }
       |                     ^^^^
       |
       = help: `delay.max` is how long a request is delayed at most

    error: `limit.ban` needs a limit that refuses, and this one delays
      --> weir.toml:24:7
       |
    24 | ban = { after = "1/s", for = "1s" }
       |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `limit.on_limit`: `delya` is none of `reject`, `hold`, `delay`
      --> weir.toml:29:12
       |
    29 | on_limit = "delya"
       |            ^^^^^^^
       |
       = help: did you mean `delay`?
    "#);
    let rule = |text: &str| {
        let limit = "[[limit]]\nname = \"a\"\nkey = []\nrate = \"5/s\"\non_limit = \"delay\"\n";
        compile(&format!("{UPSTREAM}{limit}{text}\n")).unwrap().policy.limits()[0].on_limit
    };
    let delay = |step_ms: u64, max_ms: u64, max_waiting| {
        let slow_down = SlowDown { step_ns: step_ms * 1_000_000, max_ns: max_ms * 1_000_000 };
        OnLimit::Delay(DelayRule { slow_down, max_waiting })
    };
    assert_eq!(rule(""), delay(100, 5000, 1000));
    assert_eq!(rule("delay = { step = \"7ms\", max = \"1min\" }\nhold = { max_waiting = 3 }"), delay(7, 60_000, 3));
}

#[test]
fn new_keys_at_the_bound() {
    insta::assert_snapshot!(said(r#"[[limit]]
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
    error: `limit.on_full`: `scetch` is none of `sketch`, `shared`, `reject`, `allow`
     --> weir.toml:5:11
      |
    5 | on_full = "scetch"
      |           ^^^^^^^^
      |
      = help: did you mean `sketch`?

    error: `limit.on_full`: `reject` needs `on_limit = "reject"`
      --> weir.toml:11:11
       |
    11 | on_full = "reject"
       |           ^^^^^^^^
    "#);
    let on_full = |text: &str| {
        let limit = "[[limit]]\nname = \"a\"\nkey = []\nrate = \"5/s\"\n";
        compile(&format!("{UPSTREAM}{limit}{text}\n")).unwrap().policy.limits()[0].on_full
    };
    assert_eq!([on_full(""), on_full("on_full = \"shared\"")], [OnFull::Sketch, OnFull::Shared]);
    assert_eq!([on_full("on_full = \"reject\""), on_full("on_full = \"allow\"")], [OnFull::Reject, OnFull::Allow]);
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

    error: `log.level`: `infoo` is none of `error`, `warn`, `info`, `debug`, `trace`
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
      | ^^^^^^^ it is set above already

    error: duplicate key `server`
     --> weir.toml:4:2
      |
    4 | [server]
      |  ^^^^^^ it is set above already

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
fn a_file_that_cannot_be_read() {
    let problems = super::load(Path::new("config/none.toml")).unwrap_err();
    insta::assert_snapshot!(problems, @r#"error: cannot read `config/none.toml`: No such file or directory (os error 2)"#);
    assert_eq!(problems.len(), 1);
}

#[test]
fn a_file_that_is_no_key() {
    let keys = "{ jwks = 'keys/sellers.jwks.json' }, { jwks = 'minimal.toml' }";
    let text = format!("{UPSTREAM}[identity.a]\njwt = {{ claim = 'sub', algorithms = ['RS256'], keys = [{keys}] }}");
    let problems = compile(&text).unwrap_err();
    assert!(problems.iter().all(|title| title.starts_with("`identity.NAME.jwt.keys`: ")), "{problems}");
    assert!(problems.to_string().contains("weir.toml:4:93"), "{problems}");
}

#[test]
fn a_file_by_its_path() {
    let path = Path::new("config/minimal.toml");
    assert_eq!(super::load(path).unwrap().sources.paths().collect::<Vec<_>>(), [path]);
}

#[test]
fn problems_come_in_the_order_of_the_text() {
    let text = "[log]\nlevel = 1\n[server]\nx = 1\nworkers = 0\n[admin]\nlisten = ''\n[upstream]\nurl = ''\n";
    let problems = compile(text).unwrap_err();
    let said = problems.to_string();
    let lines: Vec<_> = said.lines().filter_map(|line| line.split("weir.toml:").nth(1)).collect();
    assert_eq!(lines, ["2:9", "4:1", "5:11", "7:10", "9:7"]);
    assert_eq!(problems.iter().count(), problems.len());
}

#[test]
fn no_secret_is_ever_shown() {
    for text in [
        "[identity.a]\njwt = { keys = [{ secret = 'hunter2', x = 1 }] }",
        "[identity.a]\njwt = { keys = [{ sercet = 'hunter2' }] }",
        "[identity.a]\njwt = { keys = [{ secret = { value = 'hunter2' } }] }",
        "[identity.a]\njwt = { keys = [{ secret = { env = ['hunter2'] } }] }",
        "[identity.a]\njwt = { keys = [{ secret = { env = 'SHORT', file = 1 } }] }",
        "[identity.a]\njwt = { keys = ['hunter2'], claim = 1 }",
        "[identity.a]\njwt = { keys = [{ pem = \"\"\"-----BEGIN\nhunter2\"\"\" }] }",
        "[identity.a]\njwt = 'hunter2'",
        "[identity]\na = 'hunter2'",
        "[identity.a]\nsecret = 'hunter2'",
        "[server]\napi_token = 'hunter2'",
        "[identity.a]\njwt = { keys = [{ secret = 'hunter2 }] }",
        "[identity.a]\njwt = { keys = [{ secret = \"\"\"\nhunter2",
        "[identity.a]\njwt = { keys = [{ secret : hunter2, secret = hunter2 }] ",
        "[identity.a]\njwt = { keys = [{ secret = { env = 'SHORT' }, secret = 'hunter2' }] }",
        "[identity.a]\njwt = { keys = [{ sercet = 'hunter2 }] }",
        "[identity.a]\njwt = { keys = [{ secret \"hunter2\" }] }",
        "[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\nmatch = { header = { authorization = 'hunter2' }, x = 1 }",
        "upstream = { url = 'http://a:hunter2@b', x = 1 }",
        "upstream = { url = 'http://a:hunter2@b/c', x = 1 }",
        "upstream = { url = 'a:hunter2@b' }",
    ] {
        let said = compile(text).expect_err(text).to_string();
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn what_is_not_written_has_its_default() {
    let config = compile(UPSTREAM).unwrap();
    let limit = &config.policy.limits()[0];
    assert_eq!(config.policy.limits().len(), 1);
    assert_eq!((&*limit.name, limit.stage, limit.mode), ("per-path", Stage::Identified, Mode::Enforce));
    assert!(matches!(limit.cost, Cost::Units(1)));
    assert_eq!(limit.key, [KeyPart::Path]);
    assert_eq!(limit.allowed.usual, bucket(100, 60_000_000_000, 100));
    assert_eq!(limit.on_limit, OnLimit::Hold(HoldRule { max_wait_ns: None, max_waiting: 1000 }));
    assert_eq!(limit.max_keys, 1_000_000);
    assert_eq!(config.fixed.listen, [Listen::Tcp("127.0.0.1:8080".parse().unwrap())]);
    assert!(config.fixed.workers >= 1);
    assert_eq!(config.admin_listen, Some(Listen::Tcp("127.0.0.1:9901".parse().unwrap())));
    let Timeouts { total, min_send, min_read, .. } = config.proxy.timeouts;
    let rate = MinRate { bytes_per_s: 240, window: Duration::from_secs(30) };
    assert_eq!((total, min_send, min_read), (None, Some(rate), Some(rate)));
    assert_eq!(config.proxy.bounds.max_head_bytes, 32 << 10);
    assert!(
        !config.proxy.upstreams[0].rewrite_host && config.policy.free_preflights && config.policy.identities.is_empty()
    );
    assert_eq!(config.sources.paths().count(), 0);
    assert!(compile(&format!("{DEFAULT_LIMIT}{UPSTREAM}")).is_ok());
    let with_none = compile(&format!("limit = []\n{UPSTREAM}")).unwrap();
    assert_eq!(with_none.policy.limits().len(), 1);
}

#[test]
fn a_full_configuration_becomes_what_it_says() {
    let config = compile(&std::fs::read_to_string("config/full.toml").unwrap()).unwrap();
    assert_eq!(config.fixed.listen.len(), 2);
    assert_eq!((config.fixed.workers, config.fixed.max_connections), (4, 10_000));
    assert_eq!(config.fixed.shutdown_grace, Duration::from_secs(30));
    assert_eq!(config.proxy.upstreams[0].endpoints[0].to_string(), "http://127.0.0.1:9000");
    assert_eq!(config.proxy.timeouts.keep_alive, Duration::from_secs(75));
    assert_eq!(config.proxy.bounds.max_h2_streams, 128);
    assert!(config.proxy.profiles.x_ratelimit && config.proxy.profiles.ietf && !config.proxy.profiles.wildberries);
    let Share { count, bytes } = config.hold.all;
    assert_eq!((count, bytes, config.max_tokens), (10_000, 64 << 20, 10_000));
    assert_eq!(config.hold.per_client, Share { count: 2000, bytes: 16 << 20 });
    assert_eq!(config.proxy.bounds.max_per_ip, 2000);
    assert_eq!((config.log.format, config.log.access), (LogFormat::Auto, AccessLog::Off));
    assert_eq!(config.policy.client_ip.trusted.len(), 2);
    assert_eq!(config.sources.paths().count(), 2);

    let identities: Vec<_> =
        config.policy.identities.iter().map(|identity| (&*identity.name, identity.on_missing)).collect();
    assert_eq!(identities, [("seller", OnMissing::Reject), ("partner", OnMissing::Reject), ("api_key", OnMissing::Ip)]);
    assert!(
        matches!(&config.policy.identities[1].source, IdentitySource::Jwt { header, .. } if header == "x-partner-token")
    );
    assert!(
        matches!(&config.policy.identities[2].source, IdentitySource::Header(header, Repeated::Reject) if header == "x-api-key")
    );

    let [_, per_ip, _, slowed, reports, search, ..] = config.policy.limits() else { panic!("several limits") };
    assert!(matches!(slowed.on_limit, OnLimit::Delay(_)) && reports.ban.is_some());
    assert_eq!(
        (per_ip.stage, per_ip.on_limit, per_ip.allowed.usual.capacity()),
        (Stage::Arrival, OnLimit::Reject, 100)
    );
    assert_eq!(per_ip.except, ["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(reports.allowed.usual, bucket(10, 120_000_000_000, 20));
    assert!(matches!(&search.allowed.usual, Algorithm::Several(rules) if rules.len() == 2));
    assert_eq!((search.allowed.plans.len(), search.allowed.overrides.len(), search.cost.max()), (3, 2, 10));
    assert_eq!(reports.key[..4], [KeyPart::Identity(0), KeyPart::Identity(1), KeyPart::Identity(2), KeyPart::Route]);
    assert_eq!(reports.key[6..8], [KeyPart::Header("x-team".parse().unwrap()), KeyPart::Query("shop".into())]);
    assert_eq!(reports.matches.paths.len(), 3);
    let hosts = [HostPattern::Exact("api.example.com".into()), HostPattern::Below(".shops.example.com".into())];
    assert_eq!(reports.matches.hosts, hosts);
    assert_eq!(reports.matches.headers[0].1, HeaderTest::Is("full".parse().unwrap()));
    assert_eq!(reports.matches.headers[1].1, HeaderTest::Present);
}

proptest! {
    #[test]
    fn arbitrary_text_is_no_reason_to_panic(text in "(?s).{0,200}") {
        let _ = compile(&text).map_err(|problems| problems.to_string());
    }

    #[test]
    fn text_in_the_alphabet_of_toml_neither(text in "(\\[\\[limit\\]\\]|\\[server\\]|key|rate|listen|secret|[\\[\\]{}=,.'\"#\n\r é1-])*") {
        let _ = compile(&text).map_err(|problems| problems.to_string());
    }

    #[test]
    fn nor_is_a_mutated_configuration(at in 0_usize..6000, length in 0_usize..40, instead in "[\\[\\]{}=,.'\"#\na0é-]{0,5}") {
        let mut text = include_str!("../../config/full.toml").to_owned();
        let start = text.floor_char_boundary(at);
        let end = text.floor_char_boundary(at + length);
        text.replace_range(start..end, &instead);
        let _ = compile(&text).map_err(|problems| problems.to_string());
    }

    #[test]
    fn no_mutation_brings_a_secret_to_light(at in 0_usize..140, length in 0_usize..8, instead in "[\\[\\]{}=,.'\"#\na0é-]{0,5}") {
        let before = "[identity.a]\non_missing = 'ip'\n[identity.a.jwt]\nclaim = 'x'\nkeys = [{ jwks = 'a' }, { secret = '";
        let text = format!("{before}hunter2' }}]\nalgorithms = ['HS256']\nheader = 'x-a'\n{UPSTREAM}");
        // The secret itself stays whole.
        let at = if (before.len()..before.len() + 7).contains(&at) { before.len() + 7 } else { at };
        let end = if at < before.len() { before.len().min(at + length) } else { at + length };
        let mutated = format!("{}{instead}{}", &text[..at], &text[end..]);
        if let Err(problems) = compile(&mutated) {
            prop_assert!(!problems.to_string().contains("hunter2"), "{mutated}\n{problems}");
        }
    }
}

#[test]
fn settling() {
    let limit = |more: &str| format!("[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/s\"\n{more}");
    insta::assert_snapshot!(said(&limit("count = { status = [99, \"6xx\", \"4xx\"] }\nmax_debt = 5")), @r#"
    error: `limit.count.status`: expected a status from 100 to 599, or a class such as `"4xx"`
     --> weir.toml:5:21
      |
    5 | count = { status = [99, "6xx", "4xx"] }
      |                     ^^

    error: `limit.count.status`: expected a status from 100 to 599, or a class such as `"4xx"`
     --> weir.toml:5:25
      |
    5 | count = { status = [99, "6xx", "4xx"] }
      |                         ^^^^^

    error: `limit.max_debt`: only a limit that is settled can go below zero
     --> weir.toml:6:12
      |
    6 | max_debt = 5
      |            ^
      |
      = help: add `settle`
    "#);
    insta::assert_snapshot!(said(&limit("count = {}\nsettle = { by = \"elapsed\" }")), @r#"
    error: `limit.count.status`: which outcomes count is missing
     --> weir.toml:5:9
      |
    5 | count = {}
      |         ^^

    error: `limit.settle.by`: `elapsed` is none of `elapsed_ms`, `response_bytes`, `status`
     --> weir.toml:6:17
      |
    6 | settle = { by = "elapsed" }
      |                 ^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"status\", every = \"1s\" }")), @r#"
    error: `limit.settle.units`: is missing
     --> weir.toml:5:10
      |
    5 | settle = { by = "status", every = "1s" }
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: units = { "4xx" = 10, "304" = 0 }

    error: `limit.settle.every`: only with `by = "elapsed_ms"`
     --> weir.toml:5:35
      |
    5 | settle = { by = "status", every = "1s" }
      |                                   ^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"header:a b\", units = { \"4xx\" = 1 } }")), @r#"
    error: `limit.settle.by`: `a b` is not a header name
     --> weir.toml:5:17
      |
    5 | settle = { by = "header:a b", units = { "4xx" = 1 } }
      |                 ^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"status\", units = { \"4x\" = 1, \"404\" = -1 } }")), @r#"
    error: `limit.settle.units`: expected a status from 100 to 599, or a class such as `"4xx"`
     --> weir.toml:5:37
      |
    5 | settle = { by = "status", units = { "4x" = 1, "404" = -1 } }
      |                                     ^^^^

    error: `limit.settle.units`: expected whole units from 0
     --> weir.toml:5:55
      |
    5 | settle = { by = "status", units = { "4x" = 1, "404" = -1 } }
      |                                                       ^^
    "#);
    insta::assert_snapshot!(said(&limit("stage = \"arrival\"\nsettle = { by = \"elapsed_ms\" }")), @r#"
    error: charges of stage `arrival` stay, whatever becomes of the request
     --> weir.toml:6:10
      |
    6 | settle = { by = "elapsed_ms" }
      |          ^^^^^^^^^^^^^^^^^^^^^
    "#);
}
