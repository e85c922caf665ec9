//! Values that no option takes.

use super::*;

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
      = help: write an IP address, not a host name: "127.0.0.1:8080" or "[::1]:8080"

    error: `server.listen`: `127.0.0.1:80` occurs twice
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
    error: `server.listen`: an empty list has no effect; remove it
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

    error: `timeouts.keep_alive`: `10` is not a duration: `10` has no unit
     --> weir.toml:3:14
      |
    3 | keep_alive = "10"
      |              ^^^^
      |
      = help: did you mean `10s`?

    error: `timeouts.total`: `of` is not a duration
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
      = help: write the host without a port

    error: `admin.hosts`: `a b` is not a host
     --> weir.toml:2:40
      |
    2 | hosts = ["weir.internal", "weir:9901", "a b"]
      |                                        ^^^^^
      |
      = help: write the host without a port
    "#);
    insta::assert_snapshot!(said(r#"[headers]
profiles = ["x-ratelimit", "ieft", "x-ratelimit-retry"]"#), @r#"
    error: `headers.profiles`: `ieft` is not one of `x-ratelimit`, `x-ratelimit-retry`, `github`, `ietf`, `ietf-10`, `ietf-11`
     --> weir.toml:2:28
      |
    2 | profiles = ["x-ratelimit", "ieft", "x-ratelimit-retry"]
      |                            ^^^^^^
      |
      = help: did you mean `ietf`?

    error: `headers.profiles`: `x-ratelimit` and `x-ratelimit-retry` write the same fields; choose one
     --> weir.toml:2:36
      |
    2 | profiles = ["x-ratelimit", "ieft", "x-ratelimit-retry"]
      |             ------------- and here ^^^^^^^^^^^^^^^^^^^
    "#);
    for (profiles, expected) in [
        ("'ietf-11', 'ietf'", "`ietf` and `ietf-11` write the same fields; choose one"),
        ("'github', 'x-ratelimit'", "`x-ratelimit` and `github` write the same fields; choose one"),
        ("'wildberries', 'github'", "`x-ratelimit-retry` and `github` write the same fields; choose one"),
        ("'ietf-10', 'ietf-11'", "`ietf-10` and `ietf-11` write the same fields; choose one"),
    ] {
        let said = said(&format!("[headers]\nprofiles = [{profiles}]"));
        assert!(said.contains(expected), "{said}");
    }
    insta::assert_snapshot!(said(r#"[log]
level = "infoo"
format = "xml""#), @r#"
    error: `log.level`: `infoo` is not one of `error`, `warn`, `info`, `debug`, `trace`
     --> weir.toml:2:9
      |
    2 | level = "infoo"
      |         ^^^^^^^
      |
      = help: did you mean `info`?

    error: `log.format`: `xml` is not one of `auto`, `text`, `json`
     --> weir.toml:3:10
      |
    3 | format = "xml"
      |          ^^^^^
    "#);
}

#[test]
fn formats_of_access_lines() {
    for (format, problem, help) in [
        ("combine", "`combine` is no format", "did you mean `combined`?"),
        ("{cleint} x", "there is no field `cleint`", "did you mean `client`?"),
        ("{client", "not a template", "the names of fields stand in braces"),
        ("{client}\\n", "not a template", "a line has no control characters"),
    ] {
        let said = said(&format!("[log]\naccess_format = \"{format}\"\naccess_sample = 0"));
        assert!(said.contains(&format!("`log.access_format`: {problem}")) && said.contains(help), "{said}");
        assert!(said.contains("`log.access_sample`"), "{said}");
    }
}
