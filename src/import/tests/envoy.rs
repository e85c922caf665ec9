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
        text.lines().map(|line| format!("{}{}\n", " ".repeat(by), line.trim_end())).collect::<String>()
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
    let bucket = "stat_prefix: http_local\ntoken_bucket: { max_tokens: 10000, tokens_per_fill: 1000, fill_interval: 1s }\n";
    let headers = "response_headers_to_add:\n- append_action: OVERWRITE_IF_EXISTS_OR_ADD\n  header: { key: x-l, value: a }\n";
    let limit = |more: &str| {
        format!("{SERVICE}[[limit]]\nname = \"http_local\"\n{more}key = []\nrate = \"1000/s\"\nburst = 10000\n")
    };
    let said = "24 LeftOut `response_headers_to_add`: Weir does not add this header";
    check("envoy", &bootstrap(ALL, &format!("{bucket}{ON}{headers}")), &limit(""), said);
    let status = format!("{}status = 503", limit(""));
    check("envoy", &bootstrap(ALL, &format!("{bucket}{ON}status: {{ code: 503 }}")), &status, "");
    let enabled = ON.lines().next().unwrap();
    check("envoy", &bootstrap(ALL, &format!("{bucket}{enabled}")), &limit("mode = \"shadow\"\n"), "");
    let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
    check("envoy", &bootstrap(ALL, bucket), &format!("{SERVICE}{none}"), "");
    let part = ON.replace("1000000", "500000");
    let said = "19 Differs Envoy limits a part of the requests, Weir all of them";
    check("envoy", &bootstrap(ALL, &format!("{bucket}{part}")), &limit(""), said);
    let connection = format!("{bucket}{ON}local_rate_limit_per_downstream_connection: true");
    let said = "19 LeftOut Weir has no budget of a connection";
    check("envoy", &bootstrap(ALL, &connection), &format!("{SERVICE}{none}"), said);
    let unknown = format!("{bucket}{ON}a_new_option: true");
    check("envoy", &bootstrap(ALL, &unknown), &limit(""), "24 LeftOut `a_new_option`: Weir has no option for it");
}
