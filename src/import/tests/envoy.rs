//! Envoy.

use super::check;

const CLUSTER: &str = "clusters:
  - name: app
    type: STRICT_DNS
    load_assignment:
      cluster_name: app
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: app, port_value: 9000 } } } }] }]
";
const ROUTER: &str = "          - name: envoy.filters.http.router
            typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
";
const TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

/// A configuration with these virtual hosts, and this configuration of the local filter.
fn bootstrap(hosts: &str, filter: &str) -> String {
    let indent = |text: &str, by: usize| {
        let lines: Vec<_> = text.lines().map(|line| format!("{}{}\n", " ".repeat(by), line.trim_end())).collect();
        lines.concat()
    };
    let hosts = indent(hosts, 12);
    format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 0.0.0.0, port_value: 8080 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
{hosts}          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              \"@type\": {TYPE}
{}{ROUTER}{}",
        indent(filter, 14),
        indent(CLUSTER, 2)
    )
}

const SERVICE: &str = "listen = [\"0.0.0.0:8080\"]\n[upstream]\nurl = \"http://app:9000\"\n";
const ALL: &str = "- name: all\n  domains: [\"*\"]\n  routes: [{ match: { prefix: / }, route: { cluster: app } }]";
const ON: &str = "filter_enabled: { runtime_key: a, default_value: { numerator: 100, denominator: HUNDRED } }\n\
    filter_enforced: { default_value: { numerator: 1000000, denominator: MILLION } }\n";

/// The example of the documentation of the local rate limit filter.
#[test]
fn a_listener_has_one_bucket() {
    let bucket =
        "stat_prefix: http_local\ntoken_bucket: { max_tokens: 10000, tokens_per_fill: 1000, fill_interval: 1s }\n";
    let headers =
        "response_headers_to_add:\n- append_action: OVERWRITE_IF_EXISTS_OR_ADD\n  header: { key: x-l, value: a }\n";
    let limit = |more: &str| {
        format!("{SERVICE}[[limit]]\nname = \"http_local\"\n{more}key = []\nrate = \"1000/s\"\nburst = 10000\n")
    };
    let said = "23 LeftOut `response_headers_to_add`: Weir does not add this header";
    check("envoy", &bootstrap(ALL, &format!("{bucket}{ON}{headers}")), &limit(""), said);
    let status = format!("{}status = 503", limit(""));
    check("envoy", &bootstrap(ALL, &format!("{bucket}{ON}status: {{ code: 503 }}")), &status, "");
    for (name, written) in [
        ("TooManyRequests", ""),
        ("OK", ""),
        ("Forbidden", "status = 403"),
        ("ServiceUnavailable", "status = 503"),
        ("HTTPVersionNotSupported", "status = 505"),
    ] {
        let text = bootstrap(ALL, &format!("{bucket}{ON}status: {{ code: {name} }}"));
        check("envoy", &text, &format!("{}{written}", limit("")), "");
    }
    let said = "23 LeftOut `code`: Weir has no option for it";
    check("envoy", &bootstrap(ALL, &format!("{bucket}{ON}status: {{ code: Slow }}")), &limit(""), said);
    let enabled = ON.lines().next().unwrap();
    check("envoy", &bootstrap(ALL, &format!("{bucket}{enabled}")), &limit("mode = \"shadow\"\n"), "");
    let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
    check("envoy", &bootstrap(ALL, bucket), &format!("{SERVICE}{none}"), "");
    let part = ON.replace("1000000", "500000");
    let said = "17 Differs Envoy limits a part of the requests, Weir all of them";
    check("envoy", &bootstrap(ALL, &format!("{bucket}{part}")), &limit(""), said);
    let connection = format!("{bucket}{ON}local_rate_limit_per_downstream_connection: true");
    let said = "17 LeftOut Weir has no budget of a connection";
    check("envoy", &bootstrap(ALL, &connection), &format!("{SERVICE}{none}"), said);
    let unknown = format!("{bucket}{ON}a_new_option: true");
    check("envoy", &bootstrap(ALL, &unknown), &limit(""), "23 LeftOut `a_new_option`: Weir has no option for it");
}

/// The routes of a listener on a loopback address do not become public.
#[test]
fn a_listener_on_loopback_stays_off_other_addresses() {
    let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
    let public = bootstrap(ALL, "stat_prefix: a\n");
    let (head, rest) = public.split_once("  - address").unwrap();
    let (listener, clusters) = rest.split_once("  clusters").unwrap();
    let local = listener.replace("0.0.0.0", "127.0.0.1").replace("8080", "8081");
    let both = format!("{head}  - address{local}  - address{listener}  clusters{clusters}");
    let said = format!("3 LeftOut {}", crate::import::services::ONLY_LOCAL);
    check("envoy", &both, &format!("{SERVICE}{none}"), &said);
}

/// A route that refuses is reported as open.
#[test]
fn direct_responses_are_not_refusals_of_weir() {
    for (status, said) in [
        ("200", "15 LeftOut Weir only forwards requests to services"),
        ("403", "15 LeftOut set `[access]` by hand: Weir refuses nothing for it"),
    ] {
        let direct =
            format!("  routes:\n  - match: {{ prefix: /admin/ }}\n    direct_response: {{ status: {status} }}\n");
        let hosts = ALL.replace("  routes: [", &format!("{direct}  - ")).replace("}]", "}");
        let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
        check("envoy", &bootstrap(&hosts, "stat_prefix: a\n"), &format!("{SERVICE}{none}"), said);
    }
}

pub(super) const EXAMPLE: &str = r#"admin: { address: { socket_address: { address: 127.0.0.1, port_value: 9902 } } }
static_resources:
  listeners:
  - name: main
    address: { socket_address: { address: 0.0.0.0, port_value: 8080 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            name: r
            virtual_hosts:
            - name: all
              domains: ["*"]
              rate_limits:
              - actions: [{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }]
              routes:
              - match: { path_separated_prefix: /api }
                route:
                  cluster: app
                  prefix_rewrite: /v1
                  rate_limits:
                  - actions: [{ remote_address: {} }]
                  - actions:
                    - generic_key: { descriptor_value: post }
                    - header_value_match: { descriptor_value: yes, headers: [{ name: ":method", string_match: { exact: POST } }] }
                  - actions: [{ source_cluster: {} }]
              - match: { path: /login, headers: [{ name: ":method", exact_match: POST }] }
                route: { cluster: app, timeout: 5s }
                typed_per_filter_config:
                  envoy.filters.http.local_ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
                    stat_prefix: login
                    token_bucket: { max_tokens: 3, tokens_per_fill: 1, fill_interval: 60s }
                    filter_enabled: { default_value: { numerator: 100 } }
                    filter_enforced: { default_value: { numerator: 100 } }
                  other: {}
              - match: { prefix: /old }
                redirect: { path_redirect: /new }
              - match: { prefix: / }
                route: { cluster: app }
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: http
              token_bucket: { max_tokens: 100, tokens_per_fill: 10, fill_interval: 0.5s }
              filter_enabled: { default_value: { numerator: 100, denominator: HUNDRED } }
              filter_enforced: { default_value: { numerator: 100, denominator: HUNDRED } }
              descriptors:
              - entries: [{ key: remote_address }]
                token_bucket: { max_tokens: 20, tokens_per_fill: 20, fill_interval: 60s }
              - entries: [{ key: generic_key, value: post }, { key: header_match, value: yes }]
                token_bucket: { max_tokens: 5, tokens_per_fill: 5, fill_interval: 60s }
              - entries: [{ key: api_key, value: gold }]
                token_bucket: { max_tokens: 50, tokens_per_fill: 50, fill_interval: 60s }
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: app
    connect_timeout: 1s
    lb_policy: LEAST_REQUEST
    load_assignment:
      cluster_name: app
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9000 } } } }] }]
    health_checks: [{ timeout: 1s }]
"#;

/// Routes, with limits of their own and descriptors.
#[test]
fn routes_have_buckets_and_descriptors() {
    check(
        "envoy",
        EXAMPLE,
        r#"listen = ["0.0.0.0:8080"]
        [upstreams.app]
        endpoints = ["http://127.0.0.1:9000"]
        balance = "p2c"
        [[route]]
        match = { path = ["/api", "/api/{*rest}"] }
        upstream = "app"
        rewrite = { strip = "/api", add = "/v1" }
        [[route]]
        match = { path = ["/login"], method = ["POST"] }
        upstream = "app"
        [[route]]
        upstream = "app"
        [[limit]]
        name = "remote_address"
        stage = "arrival"
        match = { path = ["/api", "/api/{*rest}"] }
        key = ["ip"]
        rate = "20/min"
        burst = 20
        [[limit]]
        name = "post-yes"
        stage = "arrival"
        match = { path = ["/api", "/api/{*rest}"], method = ["POST"] }
        key = []
        rate = "5/min"
        burst = 5
        [[limit]]
        name = "gold"
        stage = "arrival"
        match = { header = { "x-api-key" = "gold" } }
        except = { path = ["/api", "/api/{*rest}"] }
        key = []
        rate = "50/min"
        burst = 50
        [[limit]]
        name = "http"
        key = []
        rate = "10/500ms"
        burst = 100
        [[limit]]
        name = "login"
        match = { path = ["/login"], method = ["POST"] }
        key = []
        rate = "1/min"
        burst = 3"#,
        "9 Differs Envoy takes the last address of `X-Forwarded-For`; set `server.trusted_proxies` by hand
        29 LeftOut Weir has no part of a key for `source_cluster`
        30 Differs Weir applies limits of later routes here, too
        31 LeftOut `timeout`: set `[timeouts]` by hand
        39 LeftOut `other`: Weir has no option for it
        40 LeftOut Weir only forwards requests to services
        52 Differs Envoy charges a descriptor also if another one refuses; Weir charges all or none
        53 Differs Envoy forgets all but the last values of this descriptor, 20 by default; Weir forgets none
        68 LeftOut `health_checks`: set `health` of the upstream by hand",
    );
}
