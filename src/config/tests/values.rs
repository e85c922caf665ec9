//! Values that no option takes.

use super::*;

#[test]
fn bad_values() {
    insta::assert_snapshot!(brief(r#"[server]
listen = ["unix:/run/weir.sock", ":8080", "localhost:80", "127.0.0.1:80", "127.0.0.1:80"]"#), @r#"
    2:34 «":8080"» `server.listen`: `:8080` is not an address with a port
      = did you mean `0.0.0.0:8080`?
    2:43 «"localhost:80"» `server.listen`: `localhost:80` is not an address with a port
      = write an IP address, not a host name: "127.0.0.1:8080" or "[::1]:8080"
    2:75 «"127.0.0.1:80"» `server.listen`: `127.0.0.1:80` occurs twice [also 2:59 «"127.0.0.1:80"» first here]
    "#);
    insta::assert_snapshot!(brief(r#"[server]
listen = []
trusted_proxies = ["10.0.0.1/8", "lan"]
ipv6_prefix = 0"#), @r#"
    2:10 «[]» `server.listen`: an empty list has no effect; remove it
    3:20 «"10.0.0.1/8"» `server.trusted_proxies`: `10.0.0.1/8` has bits set beyond its prefix
      = did you mean `10.0.0.0/8`?
    3:34 «"lan"» `server.trusted_proxies`: `lan` is neither an address nor a network
      = write it like "192.0.2.7" or "10.0.0.0/8"
    4:15 «0» `server.ipv6_prefix`: expected whole number from 1 to 128
    "#);
    insta::assert_snapshot!(brief(r#"[server]
workers = -1
max_head_bytes = "1MB"
max_uri_bytes = "1 GiB"
max_headers = 99999999999999999999"#), @r#"
    2:11 «-1» `server.workers`: expected whole number from 1 to 1024
    4:17 «"1 GiB"» `server.max_uri_bytes`: expected size from 16B to 65534B
    5:15 «99999999999999999999» `server.max_headers`: expected whole number from 1 to 10000
    "#);
    insta::assert_snapshot!(brief(r#"[server]
max_head_bytes = "big""#), @r#"
    2:18 «"big"» `server.max_head_bytes`: `big` is not a size
      = write it like "64KiB" or "10MiB"
    "#);
    insta::assert_snapshot!(brief(r#"[timeouts]
connect = "0s"
keep_alive = "10"
total = "of"
body_idle = "2years""#), @r#"
    2:11 «"0s"» `timeouts.connect`: must be longer than zero
    3:14 «"10"» `timeouts.keep_alive`: `10` is not a duration: `10` has no unit
      = did you mean `10s`?
    4:9 «"of"» `timeouts.total`: `of` is not a duration
      = did you mean `off`?
    5:13 «"2years"» `timeouts.body_idle`: `2years` is longer than a year
    "#);
    insta::assert_snapshot!(brief(r#"[admin]
listen = "127.0.0.1:8080"
[server]
listen = "127.0.0.1:8080""#), @r#"2:10 «"127.0.0.1:8080"» `admin.listen` and `server.listen` have an address in common [also 4:10 «"127.0.0.1:8080"» here]"#);
    insta::assert_snapshot!(brief("[admin]\nhosts = [\"weir.internal\", \"weir:9901\", \"a b\"]"), @r#"
    2:27 «"weir:9901"» `admin.hosts`: `weir:9901` is not a host
      = write the host without a port
    2:40 «"a b"» `admin.hosts`: `a b` is not a host
      = write the host without a port
    "#);
    insta::assert_snapshot!(brief(r#"[headers]
profiles = ["x-ratelimit", "ieft", "x-ratelimit-retry"]"#), @r#"
    2:28 «"ieft"» `headers.profiles`: `ieft` is not one of `x-ratelimit`, `x-ratelimit-retry`, `github`, `ietf`, `ietf-10`, `ietf-11`
      = did you mean `ietf`?
    2:36 «"x-ratelimit-retry"» `headers.profiles`: `x-ratelimit` and `x-ratelimit-retry` write the same fields; choose one [also 2:13 «"x-ratelimit"» and here]
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
    insta::assert_snapshot!(brief(r#"[log]
level = "infoo"
format = "xml""#), @r#"
    2:9 «"infoo"» `log.level`: `infoo` is not one of `error`, `warn`, `info`, `debug`, `trace`
      = did you mean `info`?
    3:10 «"xml"» `log.format`: `xml` is not one of `auto`, `text`, `json`
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
