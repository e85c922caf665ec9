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

/// The problems with `text`, to which nothing is added, as a user reads them.
fn said(text: &str) -> String {
    compile(text).expect_err("this is wrong").to_string()
}

/// The problems with `text`, each in a line or two.
fn brief(text: &str) -> String {
    compile(text).expect_err("this is wrong").brief()
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
    insta::assert_snapshot!(brief("[upstream]\nurl = \"http://a\"\n[upstreams.b]\nendpoints = \"http://b\""), @r"
    1:1 «[upstream]» there are both `[upstream]` and `[upstreams]` [also 3:2 «upstreams» and here]
      = `[upstream]` is for one service; move it to `[upstreams.NAME]`
    ");
    insta::assert_snapshot!(brief("[upstreams]"), @"1:1 «[upstreams]» `[upstreams]` has no upstream");
    insta::assert_snapshot!(brief("[upstreams.a]\nhost = \"upstream\""), @r"
    1:1 «[upstreams.a]» `upstreams.NAME.endpoints` is missing
      = expected non-empty list of strings (`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`). Addresses of the service; `srv+http://` and `srv+https://` take them from SRV records.
    ");
    insta::assert_snapshot!(brief("[upstreams.\"a b\"]\nendpoints = []"), @r#"
    1:12 «"a b"» `upstreams`: `a b` is not 1 to 64 of `A-Z a-z 0-9 _ -`
    2:13 «[]» `upstreams.NAME.endpoints`: must not be empty
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
    insta::assert_snapshot!(brief("[upstreams.a]\nendpoint = \"http://a\""), @r"
    1:1 «[upstreams.a]» `upstreams.NAME.endpoints` is missing
      = expected non-empty list of strings (`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`). Addresses of the service; `srv+http://` and `srv+https://` take them from SRV records.
    2:1 «endpoint» unknown key `endpoint` in `[upstreams.NAME]`
      = did you mean `endpoints`?
    ");
}

#[test]
fn routes_that_lead_nowhere() {
    insta::assert_snapshot!(brief(&format!("{A}{B}")), @r#"
    3:12 «b» there are several upstreams and no `[[route]]`
      = add a route for each upstream, as in `[[route]] match = { path = "/a/{*rest}" } upstream = "a"`
    "#);
    insta::assert_snapshot!(brief("[upstream]\nurl = \"http://a\"\n[[route]]\nupstream = \"a\""), @r"
    3:1 «[[route]]» `[[route]]` needs `[upstreams]`
      = all requests go to `[upstream]`; a route needs `[upstreams.NAME]`
    ");
    insta::assert_snapshot!(brief("[upstreams.api]\nendpoints = \"http://a\"\n[[route]]\nmatch = { path = \"/a\" }\nupstream = \"apii\"\n[[route]]\nmatch = { paht = \"/b\" }"), @r#"
    5:12 «"apii"» `route.upstream`: there is no upstream `apii`
      = did you mean `api`?
    6:1 «[[route]]» `route.upstream` is missing
      = expected string (name of an upstream). Upstream of its requests. The first route that matches counts; a request without a route is 404.
    7:11 «paht» unknown key `paht` in `[route.match]`
      = did you mean `path`?
    "#);
    insta::assert_snapshot!(brief(&format!("{A}{B}[[route]]\nupstream = \"a\"")), @"3:12 «b» no route leads to the upstream `b`");
}

#[test]
fn routes_that_are_never_reached() {
    let routes = "[[route]]\nmatch = { path = \"/a/{*rest}\" }\nupstream = \"a\"\n[[route]]\nmatch = { path = \"/b\", method = [\"GET\", \"PUT\"] }\nupstream = \"a\"\n\
                  [[route]]\nmatch = { path = [\"/b\", \"/a/{x}/y\"], host = \"a.test\", method = \"GET\" }\nupstream = \"a\"";
    insta::assert_snapshot!(brief(&format!("{A}{routes}")), @r"
    9:1 «[[route]]» this route is never used: earlier routes match all of its requests [also 6:1 «[[route]]» matched here]
      = Weir uses the first route that matches; put the more specific route first
    ");
    insta::assert_snapshot!(brief(&format!("{A}[[route]]\nupstream = \"a\"\n[[route]]\nmatch = {{ path = \"/x\" }}\nupstream = \"a\"")), @r"
    5:1 «[[route]]» this route is never used: earlier routes match all of its requests [also 3:1 «[[route]]» matched here]
      = Weir uses the first route that matches; put the more specific route first
    ");
    good(&format!(
        "{A}[[route]]\nmatch = {{ path = \"/{{x}}\" }}\nupstream = \"a\"\n[[route]]\nmatch = {{ path = [\"/x\", \"/x/y\"] }}\nupstream = \"a\""
    ));
}

#[test]
fn rewrites_that_are_wrong() {
    let brief = |matches: &str, rewrite: &str| {
        brief(&format!("{A}[[route]]\nmatch = {{ {matches} }}\nupstream = \"a\"\nrewrite = {{ {rewrite} }}"))
    };
    insta::assert_snapshot!(brief("path = [\"/v1\", \"/v10/{*rest}\"]", "strip = \"/v1\""), @r#"
    6:21 «"/v1"» `route.rewrite.strip`: `/v10/{*rest}` does not begin with `/v1`
      = every path of the route must begin with `strip`
    "#);
    insta::assert_snapshot!(brief("host = \"a\"", "strip = \"/v1\""), @r#"
    6:21 «"/v1"» `route.rewrite.strip`: `strip` needs `match.path`
      = every path of the route must begin with `strip`
    "#);
    insta::assert_snapshot!(brief("path = \"/v1/{x}\"", "strip = \"/v1/\", add = \"/{x}\""), @r#"
    6:21 «"/v1/"» `route.rewrite.strip`: must not end with `/`
      = did you mean `/v1`?
    6:35 «"/{x}"» `route.rewrite.add`: `/{x}`: only a pattern can have names in braces
    "#);
    insta::assert_snapshot!(brief("path = \"/v1/{x}\"", "strip = \"v1\", add = \"/a//b\""), @r#"
    6:21 «"v1"» `route.rewrite.strip`: `v1`: a path pattern begins with `/`
      = did you mean `/v1`?
    6:33 «"/a//b"» `route.rewrite.add`: `/a//b`: paths are normalised before they are matched; write `/a/b`
    "#);
    insta::assert_snapshot!(brief("path = \"/v1/{x}\"", ""), @r"
    6:11 «{  }» `route.rewrite` changes nothing
      = it can have strip, add
    ");
}

#[test]
fn ways_to_balance_that_are_wrong() {
    insta::assert_snapshot!(brief(&format!("{A}balance = \"least_conections\"\nhash_by = \"method\"")), @r#"
    3:11 «"least_conections"» `upstreams.NAME.balance`: `least_conections` is not one of `round_robin`, `least_connections`, `p2c`, `hash`
      = did you mean `least_connections`?
    4:11 «"method"» `upstreams.NAME.hash_by`: `method` is not a source of the hash
      = it can be ip, path, host, header:NAME, query:NAME, cookie:NAME
    "#);
    insta::assert_snapshot!(brief(&format!("{A}hash_by = \"ip\"")), @r#"3:11 «"ip"» `upstreams.NAME.hash_by`: has no effect without `balance = "hash"`"#);
    insta::assert_snapshot!(brief(&format!("{A}balance = \"hash\"\nhash_by = \"header\"")), @r#"
    4:11 «"header"» `upstreams.NAME.hash_by`: `header` is not a source of the hash
      = it can be ip, path, host, header:NAME, query:NAME, cookie:NAME
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
    insta::assert_snapshot!(brief(&format!("{A}health = {{ interval = \"0s\", unhealthy_after = 0 }}\neject = {{ after = 0, fro = \"1s\" }}")), @r#"
    3:10 «{ interval = "0s", unhealthy_after = 0 }» `upstreams.NAME.health.path` is missing
      = expected string (path, also with a query). Target of the checks; a status from 200 to 399 is good.
    3:23 «"0s"» `upstreams.NAME.health.interval`: must be longer than zero
    3:47 «0» `upstreams.NAME.health.unhealthy_after`: expected whole number from 1 to 1000
    4:19 «0» `upstreams.NAME.eject.after`: expected whole number from 1 to 1000
    4:22 «fro» unknown key `fro` in `[upstreams.NAME.eject]`
      = did you mean `for`?
    "#);
    insta::assert_snapshot!(brief(&format!("{A}health = {{ path = \"healthz\" }}\neject = true")), @r#"
    3:19 «"healthz"» `upstreams.NAME.health.path`: is not a request path, as in `/healthz`
    4:9 «true» `upstreams.NAME.eject`: expected table [this is a boolean]
    "#);
    insta::assert_snapshot!(brief(&format!("{A}health = {{ path = \"/a b\" }}")), @r#"3:19 «"/a b"» `upstreams.NAME.health.path`: is not a request path, as in `/healthz`"#);
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
    insta::assert_snapshot!(brief(&format!("{A}max_connections = 0\nmax_queued = \"many\"")), @r#"
    3:19 «0» `upstreams.NAME.max_connections`: expected whole number from 1 to 1000000
    4:14 «"many"» `upstreams.NAME.max_queued`: expected whole number from 0 to 1000000 [this is a string]
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
    insta::assert_snapshot!(brief("[dns]\nservers = [\"a\"]\n[upstreams.a]\nendpoints = [\"srv+http://app.test\", \
        \"srv+http://_http._tcp.a:81\", \"srv+unix://_http._tcp.a\", \"srv+http://_http.tcp.a\"]\nresolve = \"tll\""), @r#"
    2:12 «"a"» `dns.servers`: `a` is not an address, as in `10.0.0.53`
    4:14 «"srv+http://app.test"» `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
    4:37 «"srv+http://_http._tcp.a:81"» `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
    4:67 «"srv+unix://_http._tcp.a"» `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
    4:94 «"srv+http://_http.tcp.a"» `upstreams.NAME.endpoints`: is not an SRV name, as in `srv+http://_http._tcp.example.com`
    5:11 «"tll"» `upstreams.NAME.resolve`: `tll` is not a duration
      = did you mean `ttl`?
    "#);
    insta::assert_snapshot!(brief("[upstreams.a]\nendpoints = \"srv+http://_http._tcp.a\"\nresolve = \"off\""), @r#"3:11 «"off"» `upstreams.NAME.resolve`: Weir finds the endpoints of `srv+` only by DNS lookups"#);
    insta::assert_snapshot!(brief("[upstream]\nurl = \"srv+http://_http._tcp.a\""), @r#"
    2:7 «"srv+http://_http._tcp.a"» `upstream.url`: must be one service at one address
      = use `[upstreams.NAME]`; its `endpoints` accept `srv+`
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

    insta::assert_snapshot!(brief("[upstream]\nurl = \"http://a\"\ntls = { server_name = \"a\" }"), @r#"3:7 «{ server_name = "a" }» `upstream.tls` has no effect without `https://`"#);
    insta::assert_snapshot!(brief("[upstream]\nurl = \"https://a\"\ntls = { ca = \"none.pem\", server_name = \"a b\" }"), @r#"
    3:14 «"none.pem"» `upstream.tls.ca`: cannot read `config/none.pem`: No such file or directory (os error 2)
    3:40 «"a b"» `upstream.tls.server_name`: is neither a host name nor an address, so no certificate can contain it
    "#);
    insta::assert_snapshot!(brief("[upstream]\nurl = \"https://a\"\ntls = { cert = \"own.pem\" }"), @r#"3:16 «"own.pem"» `upstream.tls.cert`: needs `key` beside it"#);
    insta::assert_snapshot!(brief("[upstream]\nurl = \"http://a\"\ntls = { verify = false }"), @r"
    3:7 «{ verify = false }» `upstream.tls` has no effect without `https://`
    3:9 «verify» unknown key `verify` in `[upstream.tls]`
      = `[upstream.tls]` can have ca, server_name, cert, key
    ");
    insta::assert_snapshot!(brief("[upstream]\nurl = \"https://a_b.test/x\""), @r#"
    2:7 «"https://a_b.test/x"» `upstream.url`: must end after the host or port
      = did you mean `https://a_b.test`?
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

    insta::assert_snapshot!(brief(&format!("{A}upgrade = [\"h2c\"]\n[[route]]\nupstream = \"a\"\nupgrade = [\"TLS/1.2\", 7]")), @r#"
    3:12 «"h2c"» `upstreams.NAME.upgrade`: `h2c` would let requests bypass all limits
    6:12 «"TLS/1.2"» `route.upgrade`: `TLS/1.2` would let requests bypass all limits
    6:23 «7» `route.upgrade`: expected list of strings (name of a protocol, such as `websocket`) [this is an integer]
    "#);
}

#[test]
fn a_service_is_not_where_weir_listens() {
    insta::assert_snapshot!(brief("[server]\nlisten = \"unix:/run/weir.sock\"\n[upstreams.a]\nendpoints = [\"unix:/run/app.sock\", \"unix:/run/weir.sock\"]"), @r#"4:36 «"unix:/run/weir.sock"» `upstreams.NAME.endpoints`: Weir itself listens on this address [also 2:10 «"unix:/run/weir.sock"» here]"#);
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

    insta::assert_snapshot!(brief(&format!("[server]\nmax_body_bytes = \"of\"\n{A}[[route]]\nupstream = \"a\"\nmax_body_bytes = \"0B\"")), @r#"
    2:18 «"of"» `server.max_body_bytes`: `of` is not a size
      = did you mean `off`?
    7:18 «"0B"» `route.max_body_bytes`: expected size from 1B to 1024TiB, or `off`
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
    insta::assert_snapshot!(brief(&text), @r#"
    4:18 «"v2"» `upstreams.NAME.proxy_protocol`: cannot be used with `protocol = "h2"`
      = clients share connections with `protocol = "h2"`, but a PROXY header names one client
    5:11 «"websocket"» `upstreams.NAME.upgrade`: is not possible for an upstream with `protocol = "h2"`
      = an upgrade takes a connection for itself; give such requests a route to an upstream with `protocol = "http1"`
    9:11 «"websocket"» `route.upgrade`: is not possible for an upstream with `protocol = "h2"`
      = an upgrade takes a connection for itself; give such requests a route to an upstream with `protocol = "http1"`
    "#);
    insta::assert_snapshot!(brief(&format!("{A}protocol = \"http2\"")), @r#"
    3:12 «"http2"» `upstreams.NAME.protocol`: `http2` is not one of `http1`, `h2`
      = did you mean `http1`?
    "#);
}
