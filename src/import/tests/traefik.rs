//! Traefik.

use super::{check, import};

pub(super) const EXAMPLE: &str = r#"http:
  routers:
    api:
      rule: Host(`example.com`) && PathPrefix(`/api/`)
      entryPoints: [web]
      middlewares: [limit, flight@file]
      service: app
    site:
      rule: Host(`example.com`)
      middlewares: [all]
      service: app
    bad:
      rule: "!Host(`x`)"
      service: app
  middlewares:
    limit: { rateLimit: { average: 100, period: 1m, burst: 50, sourceCriterion: { ipStrategy: { depth: 1 } } } }
    flight: { inFlightReq: { amount: 10 } }
    all: { chain: { middlewares: [key, allow, strip] } }
    key: { rateLimit: { average: 5, sourceCriterion: { requestHeaderName: X-Key } } }
    allow: { ipAllowList: { sourceRange: [10.0.0.0/8] } }
    strip: { stripPrefix: { prefixes: [/site] } }
    unused: { compress: {} }
  services:
    app:
      loadBalancer:
        servers: [{ url: "http://127.0.0.1:9000/" }, { url: "http://127.0.0.1:9001", weight: 3 }]
        healthCheck: { path: /health }
"#;

/// Middlewares in chains, by files and without a router.
#[test]
fn routers_have_limits_of_their_own() {
    check(
        "traefik",
        EXAMPLE,
        r#"[upstreams.app]
        endpoints = ["http://127.0.0.1:9000", "http://127.0.0.1:9001"]
        [[route]]
        match = { host = ["example.com"], path = ["/api/{*rest}"] }
        upstream = "app"
        [[route]]
        match = { host = ["example.com"] }
        upstream = "app"
        [[limit]]
        name = "api-rateLimit"
        stage = "arrival"
        match = { host = ["example.com"], path = ["/api/{*rest}"] }
        key = ["ip"]
        rate = "100/min"
        burst = 50
        on_limit = "hold"
        hold = { max_wait = "500ms" }
        [[limit]]
        name = "api-inFlightReq"
        match = { host = ["example.com"], path = ["/api/{*rest}"] }
        key = ["host"]
        algorithm = "concurrency"
        max = 10
        [[limit]]
        name = "site-rateLimit"
        match = { host = ["example.com"] }
        except = { path = ["/api/{*rest}"] }
        key = ["header:x-key"]
        rate = "5/s"
        burst = 1
        on_limit = "hold"
        hold = { max_wait = "100ms" }"#,
        "5 LeftOut `entryPoints`: set `server.listen` by hand
        8 LeftOut Weir removes only a start that all paths of a route have
        12 LeftOut Weir has no negated condition of a route
        16 LeftOut set `server.trusted_proxies` by hand; until then, the address is that of the peer
        19 Differs requests without this header share one budget in Traefik and in Weir
        20 LeftOut set `[access]` by hand: Weir refuses nothing for it
        22 LeftOut no translated router uses it
        26 LeftOut `weight`: endpoints of Weir have equal weights
        27 LeftOut `healthCheck`: set `health` of the upstream by hand",
    );
}

/// Traefik takes a burst below one as one, and admits nothing with an `amount` below one, which is the default.
#[test]
fn zeros_are_those_of_traefik() {
    let none =
        r#"ramp = { from = "2000-01-01", to = "2000-01-02", to_rate = "0/s", step = "1day", at_zero = "limited" }"#;
    for (limit, written) in [
        ("rateLimit: { average: 5, burst: 0 }", "\nrate = \"5/s\"\nburst = 1\n"),
        ("rateLimit: { average: 5, burst: -1 }", "\nrate = \"5/s\"\nburst = 1\n"),
        ("inFlightReq: { amount: 0 }", none),
        ("inFlightReq: { amount: -1 }", none),
        ("inFlightReq: { sourceCriterion: { requestHost: true } }", none),
    ] {
        let text = format!(
            "http:\n  routers: {{ a: {{ rule: PathPrefix(`/`), middlewares: [m], service: s }} }}\n  \
             middlewares: {{ m: {{ {limit} }} }}\n  \
             services: {{ s: {{ loadBalancer: {{ servers: [{{ url: 'http://127.0.0.1:9000' }}] }} }} }}\n"
        );
        let imported = import("traefik", &text);
        assert!(imported.is_exact() && imported.config.contains(written), "{limit}: {}", imported.config);
    }
}

/// A limit of requests in flight cannot be at arrival, as others before the last one are.
#[test]
fn requests_in_flight_may_be_limited_first() {
    let text = "http:
  routers: { a: { rule: PathPrefix(`/`), middlewares: [flight, limit], service: s } }
  middlewares: { flight: { inFlightReq: { amount: 10 } }, limit: { rateLimit: { average: 5 } } }
  services: { s: { loadBalancer: { servers: [{ url: 'http://127.0.0.1:9000' }] } } }
";
    check(
        "traefik",
        text,
        r#"[upstream]
        url = "http://127.0.0.1:9000"
        [[limit]]
        name = "a-inFlightReq"
        key = ["host"]
        algorithm = "concurrency"
        max = 10
        [[limit]]
        name = "a-rateLimit"
        key = ["ip"]
        rate = "5/s"
        burst = 1
        on_limit = "hold"
        hold = { max_wait = "100ms" }"#,
        "",
    );
}
