//! Several services: endpoints, and routes to them.

use std::time::Duration;

use super::{Config, compile};
use crate::engine::policy::KeyPart;
use crate::engine::policy::Repeated;
use crate::engine::policy::upgrades::Upgrades;
use crate::transport::net::Protocol;
use crate::transport::net::tls::ServerName;
use crate::transport::upstream::Eject;
use crate::transport::upstream::settings::{Address, Balance, Cap, Health, Resolve, Upstream};

/// What is said about `text`, to which nothing is added.
fn said(text: &str) -> String {
    compile(text).expect_err("this is wrong").to_string()
}

const A: &str = "[upstreams.a]\nendpoints = \"http://a\"\n";
const B: &str = "[upstreams.b]\nendpoints = \"http://b\"\n";

fn good(text: &str) -> Config {
    compile(text).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn what_is_right_becomes_upstreams() {
    let config = good("[upstream]\nurl = \"unix:/run/app.sock\"");
    let [only] = &config.proxy.upstreams[..] else { panic!("{config:?}") };
    assert_eq!((&only.name, &*only.endpoints[0].host), (&None, "localhost"));
    assert_eq!(only.endpoints[0].address, Address::Unix("/run/app.sock".into()));
    assert!(config.proxy.routes.is_none());

    let both =
        "endpoints = [\"http://[::1]:81\", \"unix:/a\"]\nhost = \"upstream\"\nmax_idle = 0\nidle_timeout = \"1s\"";
    let routes = "[[route]]\nmatch = { host = \"b.test\" }\nupstream = \"b\"\n[[route]]\nupstream = \"a\"";
    let config = good(&format!("[upstreams.a]\n{both}\n{B}{routes}"));
    let [a, b] = &config.proxy.upstreams[..] else { panic!("{config:?}") };
    let endpoints: Vec<_> = a.endpoints.iter().map(ToString::to_string).collect();
    assert_eq!((a.name.as_deref(), endpoints), (Some("a"), vec!["http://[::1]:81".to_owned(), "unix:/a".to_owned()]));
    assert!(a.rewrite_host && a.max_idle == Some(0) && !b.rewrite_host && b.max_idle.is_none());
    assert!(config.proxy.routes.is_some());

    for (text, balance) in [
        ("", Balance::RoundRobin),
        ("balance = \"least_connections\"", Balance::LeastConnections),
        ("balance = \"p2c\"", Balance::P2c),
        ("balance = \"hash\"", Balance::Hash(KeyPart::Ip)),
        (
            "balance = \"hash\"\nhash_by = \"cookie:session\"",
            Balance::Hash(KeyPart::Cookie("session".into(), Repeated::First)),
        ),
    ] {
        assert_eq!(good(&format!("{A}{text}")).proxy.upstreams[0].balance, balance, "{text}");
    }
}

#[test]
fn upstreams_that_are_wrong() {
    insta::assert_snapshot!(said("[upstream]\nurl = \"http://a\"\n[upstreams.b]\nendpoints = \"http://b\""), @r#"
    error: there are both `[upstream]` and `[upstreams]`
     --> weir.toml:1:1
      |
    1 | [upstream]
      | ^^^^^^^^^^
    2 | url = "http://a"
    3 | [upstreams.b]
      |  --------- and here
      |
      = help: `[upstream]` is for one service; move it to `[upstreams.NAME]`
    "#);
    insta::assert_snapshot!(said("[upstreams]"), @r#"
    error: `[upstreams]` has no upstream
     --> weir.toml:1:1
      |
    1 | [upstreams]
      | ^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said("[upstreams.a]\nhost = \"upstream\""), @r#"
    error: `upstreams.NAME.endpoints` is missing
     --> weir.toml:1:1
      |
    1 | [upstreams.a]
      | ^^^^^^^^^^^^^
      |
      = help: expected non-empty list of strings (`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`). Addresses of the service; `srv+http://` and `srv+https://` take them from SRV records.
    "#);
    insta::assert_snapshot!(said("[upstreams.\"a b\"]\nendpoints = []"), @r#"
    error: `upstreams`: `a b` is not 1 to 64 of `A-Z a-z 0-9 _ -`
     --> weir.toml:1:12
      |
    1 | [upstreams."a b"]
      |            ^^^^^

    error: `upstreams.NAME.endpoints`: must not be empty
     --> weir.toml:2:13
      |
    2 | endpoints = []
      |             ^^
    "#);
    insta::assert_snapshot!(said("[server]\nlisten = \"127.0.0.1:80\"\n[upstreams.a]\nendpoints = [\"http://a\", \"unix:app.sock\", \"http://me:hunter2@a\", 7, \"http://127.0.0.1:80\", \"http://a\"]"), @r#"
    error: `upstreams.NAME.endpoints`: write the absolute path of the Unix socket, as in `unix:/run/app.sock`
     --> weir.toml:4:26
      |
    4 | endpoints = ["http://a", "unix:app.sock", *********************, 7, "http://127.0.0.1:80", "http://a"]
      |                          ^^^^^^^^^^^^^^^

    error: `upstreams.NAME.endpoints`: must not contain a user or a password
     --> weir.toml:4:43
      |
    4 | endpoints = ["http://a", "unix:app.sock", *********************, 7, "http://127.0.0.1:80", "http://a"]
      |                                           ^^^^^^^^^^^^^^^^^^^^^

    error: `upstreams.NAME.endpoints`: expected non-empty list of strings (`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`)
     --> weir.toml:4:66
      |
    4 | endpoints = ["http://a", "unix:app.sock", *********************, 7, "http://127.0.0.1:80", "http://a"]
      |                                                                  ^ this is an integer

    error: `upstreams.NAME.endpoints`: Weir itself listens on this address
     --> weir.toml:4:69
      |
    2 | listen = "127.0.0.1:80"
      |          -------------- here
    3 | [upstreams.a]
    4 | endpoints = ["http://a", "unix:app.sock", *********************, 7, "http://127.0.0.1:80", "http://a"]
      |                                                                     ^^^^^^^^^^^^^^^^^^^^^

    error: `upstreams.NAME.endpoints`: `http://a` occurs twice
     --> weir.toml:4:92
      |
    4 | endpoints = ["http://a", "unix:app.sock", *********************, 7, "http://127.0.0.1:80", "http://a"]
      |              ---------- first here                                                         ^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said("[upstreams.a]\nendpoint = \"http://a\""), @r#"
    error: `upstreams.NAME.endpoints` is missing
     --> weir.toml:1:1
      |
    1 | [upstreams.a]
      | ^^^^^^^^^^^^^
      |
      = help: expected non-empty list of strings (`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`). Addresses of the service; `srv+http://` and `srv+https://` take them from SRV records.

    error: unknown key `endpoint` in `[upstreams.NAME]`
     --> weir.toml:2:1
      |
    2 | endpoint = "http://a"
      | ^^^^^^^^
      |
      = help: did you mean `endpoints`?
    "#);
}

#[test]
fn routes_that_lead_nowhere() {
    insta::assert_snapshot!(said(&format!("{A}{B}")), @r#"
    error: there are several upstreams and no `[[route]]`
     --> weir.toml:3:12
      |
    3 | [upstreams.b]
      |            ^
      |
      = help: add a route for each upstream, as in `[[route]] match = { path = "/a/{*rest}" } upstream = "a"`
    "#);
    insta::assert_snapshot!(said("[upstream]\nurl = \"http://a\"\n[[route]]\nupstream = \"a\""), @r#"
    error: `[[route]]` needs `[upstreams]`
     --> weir.toml:3:1
      |
    3 | [[route]]
      | ^^^^^^^^^
      |
      = help: all requests go to `[upstream]`; a route needs `[upstreams.NAME]`
    "#);
    insta::assert_snapshot!(said("[upstreams.api]\nendpoints = \"http://a\"\n[[route]]\nmatch = { path = \"/a\" }\nupstream = \"apii\"\n[[route]]\nmatch = { paht = \"/b\" }"), @r#"
    error: `route.upstream`: there is no upstream `apii`
     --> weir.toml:5:12
      |
    5 | upstream = "apii"
      |            ^^^^^^
      |
      = help: did you mean `api`?

    error: `route.upstream` is missing
     --> weir.toml:6:1
      |
    6 | [[route]]
      | ^^^^^^^^^
      |
      = help: expected string (name of an upstream). Upstream of its requests. The first route that matches counts; a request without a route is 404.

    error: unknown key `paht` in `[route.match]`
     --> weir.toml:7:11
      |
    7 | match = { paht = "/b" }
      |           ^^^^
      |
      = help: did you mean `path`?
    "#);
    insta::assert_snapshot!(said(&format!("{A}{B}[[route]]\nupstream = \"a\"")), @r#"
    error: no route leads to the upstream `b`
     --> weir.toml:3:12
      |
    3 | [upstreams.b]
      |            ^
    "#);
}

#[test]
fn routes_that_are_never_reached() {
    let routes = "[[route]]\nmatch = { path = \"/a/{*rest}\" }\nupstream = \"a\"\n[[route]]\nmatch = { path = \"/b\", method = [\"GET\", \"PUT\"] }\nupstream = \"a\"\n\
                  [[route]]\nmatch = { path = [\"/b\", \"/a/{x}/y\"], host = \"a.test\", method = \"GET\" }\nupstream = \"a\"";
    insta::assert_snapshot!(said(&format!("{A}{routes}")), @r#"
    error: this route is never used: earlier routes match all of its requests
     --> weir.toml:9:1
      |
    6 | [[route]]
      | --------- matched here
    ...
    9 | [[route]]
      | ^^^^^^^^^
      |
      = help: Weir uses the first route that matches; put the more specific route first
    "#);
    insta::assert_snapshot!(said(&format!("{A}[[route]]\nupstream = \"a\"\n[[route]]\nmatch = {{ path = \"/x\" }}\nupstream = \"a\"")), @r#"
    error: this route is never used: earlier routes match all of its requests
     --> weir.toml:5:1
      |
    3 | [[route]]
      | --------- matched here
    4 | upstream = "a"
    5 | [[route]]
      | ^^^^^^^^^
      |
      = help: Weir uses the first route that matches; put the more specific route first
    "#);
    good(&format!(
        "{A}[[route]]\nmatch = {{ path = \"/{{x}}\" }}\nupstream = \"a\"\n[[route]]\nmatch = {{ path = [\"/x\", \"/x/y\"] }}\nupstream = \"a\""
    ));
}

#[test]
fn rewrites_that_are_wrong() {
    let said = |matches: &str, rewrite: &str| {
        said(&format!("{A}[[route]]\nmatch = {{ {matches} }}\nupstream = \"a\"\nrewrite = {{ {rewrite} }}"))
    };
    insta::assert_snapshot!(said("path = [\"/v1\", \"/v10/{*rest}\"]", "strip = \"/v1\""), @r#"
    error: `route.rewrite.strip`: `/v10/{*rest}` does not begin with `/v1`
     --> weir.toml:6:21
      |
    6 | rewrite = { strip = "/v1" }
      |                     ^^^^^
      |
      = help: every path of the route must begin with `strip`
    "#);
    insta::assert_snapshot!(said("host = \"a\"", "strip = \"/v1\""), @r#"
    error: `route.rewrite.strip`: `strip` needs `match.path`
     --> weir.toml:6:21
      |
    6 | rewrite = { strip = "/v1" }
      |                     ^^^^^
      |
      = help: every path of the route must begin with `strip`
    "#);
    insta::assert_snapshot!(said("path = \"/v1/{x}\"", "strip = \"/v1/\", add = \"/{x}\""), @r#"
    error: `route.rewrite.strip`: must not end with `/`
     --> weir.toml:6:21
      |
    6 | rewrite = { strip = "/v1/", add = "/{x}" }
      |                     ^^^^^^
      |
      = help: did you mean `/v1`?

    error: `route.rewrite.add`: `/{x}`: only a pattern can have names in braces
     --> weir.toml:6:35
      |
    6 | rewrite = { strip = "/v1/", add = "/{x}" }
      |                                   ^^^^^^
    "#);
    insta::assert_snapshot!(said("path = \"/v1/{x}\"", "strip = \"v1\", add = \"/a//b\""), @r#"
    error: `route.rewrite.strip`: `v1`: a path pattern begins with `/`
     --> weir.toml:6:21
      |
    6 | rewrite = { strip = "v1", add = "/a//b" }
      |                     ^^^^
      |
      = help: did you mean `/v1`?

    error: `route.rewrite.add`: `/a//b`: paths are normalised before they are matched; write `/a/b`
     --> weir.toml:6:33
      |
    6 | rewrite = { strip = "v1", add = "/a//b" }
      |                                 ^^^^^^^
    "#);
    insta::assert_snapshot!(said("path = \"/v1/{x}\"", ""), @r#"
    error: `route.rewrite` changes nothing
     --> weir.toml:6:11
      |
    6 | rewrite = {  }
      |           ^^^^
      |
      = help: it can have strip, add
    "#);
}

#[test]
fn ways_to_balance_that_are_wrong() {
    insta::assert_snapshot!(said(&format!("{A}balance = \"least_conections\"\nhash_by = \"method\"")), @r#"
    error: `upstreams.NAME.balance`: `least_conections` is not one of `round_robin`, `least_connections`, `p2c`, `hash`
     --> weir.toml:3:11
      |
    3 | balance = "least_conections"
      |           ^^^^^^^^^^^^^^^^^^
      |
      = help: did you mean `least_connections`?

    error: `upstreams.NAME.hash_by`: `method` is not a source of the hash
     --> weir.toml:4:11
      |
    4 | hash_by = "method"
      |           ^^^^^^^^
      |
      = help: it can be ip, path, host, header:NAME, query:NAME, cookie:NAME
    "#);
    insta::assert_snapshot!(said(&format!("{A}hash_by = \"ip\"")), @r#"
    error: `upstreams.NAME.hash_by`: has no effect without `balance = "hash"`
     --> weir.toml:3:11
      |
    3 | hash_by = "ip"
      |           ^^^^
    "#);
    insta::assert_snapshot!(said(&format!("{A}balance = \"hash\"\nhash_by = \"header\"")), @r#"
    error: `upstreams.NAME.hash_by`: `header` is not a source of the hash
     --> weir.toml:4:11
      |
    4 | hash_by = "header"
      |           ^^^^^^^^
      |
      = help: it can be ip, path, host, header:NAME, query:NAME, cookie:NAME
    "#);
}

#[test]
fn checks_and_ejection() {
    let config = good(&format!("{A}health = {{ path = \"/healthz?deep=1\", timeout = \"500ms\" }}\neject = {{}}"));
    let a = &config.proxy.upstreams[0];
    let seconds = Duration::from_secs;
    let health = Health {
        path: "/healthz?deep=1".into(),
        interval: seconds(5),
        timeout: Duration::from_millis(500),
        healthy_after: 2,
        unhealthy_after: 3,
    };
    assert_eq!((&a.health, a.eject), (&Some(health), Some(Eject { after: 5, duration: seconds(10) })));
    insta::assert_snapshot!(said(&format!("{A}health = {{ interval = \"0s\", unhealthy_after = 0 }}\neject = {{ after = 0, fro = \"1s\" }}")), @r#"
    error: `upstreams.NAME.health.path` is missing
     --> weir.toml:3:10
      |
    3 | health = { interval = "0s", unhealthy_after = 0 }
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: expected string (path, also with a query). Target of the checks; a status from 200 to 399 is good.

    error: `upstreams.NAME.health.interval`: must be longer than zero
     --> weir.toml:3:23
      |
    3 | health = { interval = "0s", unhealthy_after = 0 }
      |                       ^^^^

    error: `upstreams.NAME.health.unhealthy_after`: expected whole number from 1 to 1000
     --> weir.toml:3:47
      |
    3 | health = { interval = "0s", unhealthy_after = 0 }
      |                                               ^

    error: `upstreams.NAME.eject.after`: expected whole number from 1 to 1000
     --> weir.toml:4:19
      |
    4 | eject = { after = 0, fro = "1s" }
      |                   ^

    error: unknown key `fro` in `[upstreams.NAME.eject]`
     --> weir.toml:4:22
      |
    4 | eject = { after = 0, fro = "1s" }
      |                      ^^^
      |
      = help: did you mean `for`?
    "#);
    insta::assert_snapshot!(said(&format!("{A}health = {{ path = \"healthz\" }}\neject = true")), @r#"
    error: `upstreams.NAME.health.path`: is not a request path, as in `/healthz`
     --> weir.toml:3:19
      |
    3 | health = { path = "healthz" }
      |                   ^^^^^^^^^

    error: `upstreams.NAME.eject`: expected table
     --> weir.toml:4:9
      |
    4 | eject = true
      |         ^^^^ this is a boolean
    "#);
    insta::assert_snapshot!(said(&format!("{A}health = {{ path = \"/a b\" }}")), @r#"
    error: `upstreams.NAME.health.path`: is not a request path, as in `/healthz`
     --> weir.toml:3:19
      |
    3 | health = { path = "/a b" }
      |                   ^^^^^^
    "#);
}

#[test]
fn bounds_on_connections() {
    let cap = |text: &str| good(&format!("{A}{text}")).proxy.upstreams[0].cap;
    let usual = Cap { max_connections: None, max_queued: 1000, queue_timeout: Duration::from_secs(5) };
    assert_eq!(cap(""), usual);
    assert_eq!(cap("max_connections = 7"), Cap { max_connections: Some(7), ..usual });
    let own = Cap { max_queued: 0, queue_timeout: Duration::from_millis(1), ..usual };
    assert_eq!(cap("max_queued = 0\nqueue_timeout = \"1ms\""), own);
    let one = good("[upstream]\nurl = \"http://a:81\"\nmax_connections = 7\nmax_queued = 0\nqueue_timeout = \"1ms\"");
    assert_eq!(one.proxy.upstreams[0].cap, Cap { max_connections: Some(7), ..own });
    insta::assert_snapshot!(said(&format!("{A}max_connections = 0\nmax_queued = \"many\"")), @r#"
    error: `upstreams.NAME.max_connections`: expected whole number from 1 to 1000000
     --> weir.toml:3:19
      |
    3 | max_connections = 0
      |                   ^

    error: `upstreams.NAME.max_queued`: expected whole number from 0 to 1000000
     --> weir.toml:4:14
      |
    4 | max_queued = "many"
      |              ^^^^^^ this is a string
    "#);
}

#[test]
fn names_are_looked_up() {
    let resolve = |text: &str| good(&format!("{A}{text}")).proxy.upstreams[0].resolve;
    assert_eq!(resolve(""), Resolve::Ttl);
    assert_eq!(resolve("resolve = \"5s\""), Resolve::Every(Duration::from_secs(5)));
    assert_eq!(resolve("resolve = \"off\""), Resolve::Off);
    assert_eq!(good("[upstream]\nurl = \"http://a\"").proxy.upstreams[0].resolve, Resolve::Off);
    let servers = good(&format!("[dns]\nservers = [\"10.0.0.53\", \"[::1]:5353\"]\n{A}")).proxy.name_servers;
    assert_eq!(servers[..], ["10.0.0.53:53".parse().unwrap(), "[::1]:5353".parse().unwrap()]);
    assert!(good(A).proxy.name_servers.is_empty());

    let service = |url: &str| good(&format!("[upstreams.a]\nendpoints = \"{url}\"")).proxy.upstreams.remove(0);
    let Upstream { endpoints, .. } = service("srv+http://_http._tcp.app.test");
    assert_eq!((&*endpoints[0].host, &endpoints[0].server_name), ("app.test", &None));
    assert_eq!(endpoints[0].address, Address::Srv("_http._tcp.app.test".into()));
    assert_eq!(endpoints[0].to_string(), "srv+http://_http._tcp.app.test");
    insta::assert_snapshot!(said("[dns]\nservers = [\"a\"]\n[upstreams.a]\nendpoints = [\"srv+http://app.test\", \
        \"srv+http://_http._tcp.a:81\", \"srv+unix://_http._tcp.a\", \"srv+http://_http.tcp.a\"]\nresolve = \"tll\""), @r#"
    error: `dns.servers`: `a` is not an address, as in `10.0.0.53`
     --> weir.toml:2:12
      |
    2 | servers = ["a"]
      |            ^^^

    error: `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
     --> weir.toml:4:14
      |
    4 | endpoints = ["srv+http://app.test", "srv+http://_http._tcp.a:81", "srv+unix://_http._tcp.a", "srv+http://_http.tcp.a"]
      |              ^^^^^^^^^^^^^^^^^^^^^

    error: `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
     --> weir.toml:4:37
      |
    4 | endpoints = ["srv+http://app.test", "srv+http://_http._tcp.a:81", "srv+unix://_http._tcp.a", "srv+http://_http.tcp.a"]
      |                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
     --> weir.toml:4:67
      |
    4 | endpoints = ["srv+http://app.test", "srv+http://_http._tcp.a:81", "srv+unix://_http._tcp.a", "srv+http://_http.tcp.a"]
      |                                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
     --> weir.toml:4:94
      |
    4 | endpoints = ["srv+http://app.test", "srv+http://_http._tcp.a:81", "srv+unix://_http._tcp.a", "srv+http://_http.tcp.a"]
      |                                                                                              ^^^^^^^^^^^^^^^^^^^^^^^^

    error: `upstreams.NAME.resolve`: `tll` is not a duration
     --> weir.toml:5:11
      |
    5 | resolve = "tll"
      |           ^^^^^
      |
      = help: did you mean `ttl`?
    "#);
    insta::assert_snapshot!(said("[upstreams.a]\nendpoints = \"srv+http://_http._tcp.a\"\nresolve = \"off\""), @r#"
    error: `upstreams.NAME.resolve`: Weir finds the endpoints of `srv+` only by DNS lookups
     --> weir.toml:3:11
      |
    3 | resolve = "off"
      |           ^^^^^
    "#);
    insta::assert_snapshot!(said("[upstream]\nurl = \"srv+http://_http._tcp.a\""), @r#"
    error: `upstream.url`: must be one service at one address
     --> weir.toml:2:7
      |
    2 | url = "srv+http://_http._tcp.a"
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: use `[upstreams.NAME]`; its `endpoints` accept `srv+`
    "#);
}

#[test]
fn tls_to_services() {
    // Not the system's, which may have none.
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a.test".into()]).unwrap().self_signed(&key).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let ca = format!("ca = \"{}\"", ca.display());
    let config = good(&format!("[upstream]\nurl = \"https://a.test\"\ntls = {{ {ca} }}"));
    let endpoint = &config.proxy.upstreams[0].endpoints[0];
    assert_eq!((endpoint.to_string(), &*endpoint.host), ("https://a.test".to_owned(), "a.test"));
    assert_eq!(endpoint.server_name, ServerName::new("a.test"));
    assert!(config.proxy.upstreams[0].tls.is_some() && good(A).proxy.upstreams[0].tls.is_none());
    let both = "[upstreams.a]\nendpoints = [\"https://a.test\", \"http://b.test\"]";
    let both = format!("{both}\ntls = {{ {ca}, server_name = \"c.test\" }}");
    let names: Vec<_> = good(&both).proxy.upstreams[0].endpoints.iter().map(|one| one.server_name.clone()).collect();
    assert_eq!(names, [ServerName::new("c.test"), None]);

    insta::assert_snapshot!(said("[upstream]\nurl = \"http://a\"\ntls = { server_name = \"a\" }"), @r#"
    error: `upstream.tls` has no effect without `https://`
     --> weir.toml:3:7
      |
    3 | tls = { server_name = "a" }
      |       ^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said("[upstream]\nurl = \"https://a\"\ntls = { ca = \"none.pem\", server_name = \"a b\" }"), @r#"
    error: `upstream.tls.ca`: cannot read `config/none.pem`: No such file or directory (os error 2)
     --> weir.toml:3:14
      |
    3 | tls = { ca = "none.pem", server_name = "a b" }
      |              ^^^^^^^^^^

    error: `upstream.tls.server_name`: is neither a host name nor an address, so no certificate can contain it
     --> weir.toml:3:40
      |
    3 | tls = { ca = "none.pem", server_name = "a b" }
      |                                        ^^^^^
    "#);
    insta::assert_snapshot!(said("[upstream]\nurl = \"https://a\"\ntls = { cert = \"own.pem\" }"), @r#"
    error: `upstream.tls.cert`: needs `key` beside it
     --> weir.toml:3:16
      |
    3 | tls = { cert = "own.pem" }
      |                ^^^^^^^^^
    "#);
    insta::assert_snapshot!(said("[upstream]\nurl = \"http://a\"\ntls = { verify = false }"), @r#"
    error: `upstream.tls` has no effect without `https://`
     --> weir.toml:3:7
      |
    3 | tls = { verify = false }
      |       ^^^^^^^^^^^^^^^^^^

    error: unknown key `verify` in `[upstream.tls]`
     --> weir.toml:3:9
      |
    3 | tls = { verify = false }
      |         ^^^^^^
      |
      = help: `[upstream.tls]` can have ca, server_name, cert, key
    "#);
    insta::assert_snapshot!(said("[upstream]\nurl = \"https://a_b.test/x\""), @r#"
    error: `upstream.url`: must end after the host or port
     --> weir.toml:2:7
      |
    2 | url = "https://a_b.test/x"
      |       ^^^^^^^^^^^^^^^^^^^^
      |
      = help: did you mean `https://a_b.test`?
    "#);
}

#[test]
fn what_clients_may_change_to() {
    let routes = "[[route]]\nmatch = { path = \"/a\" }\nupstream = \"a\"\nupgrade = \"WebSocket\"\n\
                  [[route]]\nmatch = { path = \"/b\" }\nupstream = \"a\"\nupgrade = []\n[[route]]\nupstream = \"a\"";
    let config = good(&format!("{A}upgrade = [\"irc/6.9\", \"websocket\"]\n{routes}"));
    let names = |names: &[&str]| Upgrades(names.iter().map(|name| (*name).into()).collect());
    assert_eq!(config.proxy.upstreams[0].upgrades, names(&["irc/6.9", "websocket"]));
    let routes = config.proxy.routes.unwrap();
    assert!(routes.allow_upgrade(b"websocket") && !routes.allow_upgrade(b"irc/6.9"));
    assert!(good(A).proxy.upstreams[0].upgrades.is_empty());

    insta::assert_snapshot!(said(&format!("{A}upgrade = [\"h2c\"]\n[[route]]\nupstream = \"a\"\nupgrade = [\"TLS/1.2\", 7]")), @r#"
    error: `upstreams.NAME.upgrade`: `h2c` would let requests bypass all limits
     --> weir.toml:3:12
      |
    3 | upgrade = ["h2c"]
      |            ^^^^^

    error: `route.upgrade`: `TLS/1.2` would let requests bypass all limits
     --> weir.toml:6:12
      |
    6 | upgrade = ["TLS/1.2", 7]
      |            ^^^^^^^^^

    error: `route.upgrade`: expected list of strings (name of a protocol, such as `websocket`)
     --> weir.toml:6:23
      |
    6 | upgrade = ["TLS/1.2", 7]
      |                       ^ this is an integer
    "#);
}

#[test]
fn a_service_is_not_where_weir_listens() {
    insta::assert_snapshot!(said("[server]\nlisten = \"unix:/run/weir.sock\"\n[upstreams.a]\nendpoints = [\"unix:/run/app.sock\", \"unix:/run/weir.sock\"]"), @r#"
    error: `upstreams.NAME.endpoints`: Weir itself listens on this address
     --> weir.toml:4:36
      |
    2 | listen = "unix:/run/weir.sock"
      |          --------------------- here
    3 | [upstreams.a]
    4 | endpoints = ["unix:/run/app.sock", "unix:/run/weir.sock"]
      |                                    ^^^^^^^^^^^^^^^^^^^^^
    "#);
    let long = said(&format!("[upstream]\nurl = \"unix:/{}\"", "x".repeat(150)));
    assert!(long.contains("has 151 bytes; the path of a socket has at most 107"), "{long}");
}

#[test]
fn how_long_bodies_may_be() {
    let routes = "[[route]]\nmatch = { path = \"/a\" }\nupstream = \"a\"\nmax_body_bytes = \"off\"\n\
                  [[route]]\nmatch = { path = \"/b\" }\nupstream = \"a\"\nmax_body_bytes = \"1KiB\"\n[[route]]\nupstream = \"a\"";
    let config = good(&format!("[server]\nmax_body_bytes = \"2MiB\"\n{A}{routes}"));
    assert_eq!(config.proxy.bounds.max_body_bytes, 2 << 20);
    assert!(config.proxy.routes.is_some());
    assert_eq!(good(A).proxy.bounds.max_body_bytes, 64 << 20);

    insta::assert_snapshot!(said(&format!("[server]\nmax_body_bytes = \"of\"\n{A}[[route]]\nupstream = \"a\"\nmax_body_bytes = \"0B\"")), @r#"
    error: `server.max_body_bytes`: `of` is not a size
     --> weir.toml:2:18
      |
    2 | max_body_bytes = "of"
      |                  ^^^^
      |
      = help: did you mean `off`?

    error: `route.max_body_bytes`: expected size from 1B to 1024TiB, or `off`
     --> weir.toml:7:18
      |
    7 | max_body_bytes = "0B"
      |                  ^^^^
    "#);
}

#[test]
fn what_http_2_to_a_service_cannot_be_had_with() {
    let protocol = |text: &str| good(text).proxy.upstreams[0].protocol;
    assert_eq!(protocol(A), Protocol::Http1);
    assert_eq!(protocol(&format!("{A}protocol = \"h2\"\nproxy_protocol = \"off\"\nupgrade = []")), Protocol::H2);
    assert_eq!(protocol("[upstream]\nurl = \"unix:/a\"\nprotocol = \"h2\""), Protocol::H2);
    let routes = "[[route]]\nmatch = { path = \"/a\" }\nupstream = \"a\"\nupgrade = \"websocket\"\n\
                  [[route]]\nmatch = { path = \"/b\" }\nupstream = \"a\"\nupgrade = []\n[[route]]\nupstream = \"a\"";
    let text = format!("{A}protocol = \"h2\"\nproxy_protocol = \"v2\"\nupgrade = \"websocket\"\n{routes}");
    insta::assert_snapshot!(said(&text), @r#"
    error: `upstreams.NAME.proxy_protocol`: cannot be used with `protocol = "h2"`
     --> weir.toml:4:18
      |
    4 | proxy_protocol = "v2"
      |                  ^^^^
      |
      = help: clients share connections with `protocol = "h2"`, but a PROXY header names one client

    error: `upstreams.NAME.upgrade`: is not possible for an upstream with `protocol = "h2"`
     --> weir.toml:5:11
      |
    5 | upgrade = "websocket"
      |           ^^^^^^^^^^^
      |
      = help: an upgrade takes a connection for itself; give such requests a route to an upstream with `protocol = "http1"`

    error: `route.upgrade`: is not possible for an upstream with `protocol = "h2"`
     --> weir.toml:9:11
      |
    9 | upgrade = "websocket"
      |           ^^^^^^^^^^^
      |
      = help: an upgrade takes a connection for itself; give such requests a route to an upstream with `protocol = "http1"`
    "#);
    insta::assert_snapshot!(said(&format!("{A}protocol = \"http2\"")), @r#"
    error: `upstreams.NAME.protocol`: `http2` is not one of `http1`, `h2`
     --> weir.toml:3:12
      |
    3 | protocol = "http2"
      |            ^^^^^^^
      |
      = help: did you mean `http1`?
    "#);
}
