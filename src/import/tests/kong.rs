//! Kong.

use super::check;

pub(super) const EXAMPLE: &str = r#"_format_version: "3.0"
services:
- name: app
  url: http://127.0.0.1:9000/base
  connect_timeout: 1000
  routes:
  - name: api
    paths: [/api]
    plugins:
    - name: rate-limiting
      config: { second: 5, minute: 100, policy: local, limit_by: ip, error_code: 503 }
  - name: site
    paths: [/]
    strip_path: false
    hosts: [a.test]
  plugins:
  - name: rate-limiting
    config: { hour: 1000, limit_by: header, header_name: X-Consumer, policy: redis, redis: { host: r } }
plugins:
- name: rate-limiting-advanced
  config: { limit: [5, 10], window_size: [30, 60], identifier: consumer, sync_rate: -1 }
- name: key-auth
consumers:
- username: a
  keyauth_credentials: [{ key: abc }]
upstreams:
- name: u
  targets: [{ target: "a:80" }]
"#;

/// Plugins of all levels.
#[test]
fn plugins_of_routes_replace_those_of_services() {
    check(
        "kong",
        EXAMPLE,
        r#"[upstreams.app]
        endpoints = ["http://127.0.0.1:9000"]
        host = "upstream"
        [[route]]
        match = { host = ["a.test"] }
        upstream = "app"
        rewrite = { add = "/base" }
        [[route]]
        match = { path = ["/api", "/api/{*rest}"] }
        upstream = "app"
        rewrite = { strip = "/api", add = "/base" }
        [identity.x-consumer-or-address]
        header = "x-consumer"
        on_missing = "ip"
        [[limit]]
        name = "api-rate-limiting"
        match = { path = ["/api", "/api/{*rest}"] }
        key = ["ip"]
        algorithm = "fixed_window"
        rate = ["5/s", "100/min"]
        status = 503
        [[limit]]
        name = "app-rate-limiting"
        match = { host = ["a.test"] }
        key = ["x-consumer-or-address"]
        algorithm = "fixed_window"
        rate = ["1000/h"]
        [[limit]]
        name = "rate-limiting-advanced"
        key = ["ip"]
        algorithm = "sliding_window"
        rate = ["5/30s", "10/60s"]"#,
        "5 LeftOut `connect_timeout`: set `[timeouts]` by hand
        7 Differs Weir takes `/api` and paths below `/api/`, but no others that begin so
        12 Differs Weir applies limits of later routes here, too
        18 LeftOut `redis`: set `[store]` and `strategy` by hand
        18 LeftOut set `[store]` and `strategy` by hand; until then, each replica counts for itself
        20 Differs Weir counts addresses until `[identity]` has the keys or tokens of the consumers
        21 LeftOut `sync_rate`: set `[store]` and `strategy` by hand
        22 LeftOut create keys by `weir apikeys new`, and set `[identity]` and `access.require`
        23 LeftOut `consumers`: set `[identity]`, and create keys by `weir apikeys new`",
    );
}
