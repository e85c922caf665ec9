//! The rate limit service of Envoy.

use super::check;

pub(super) const EXAMPLE: &str = r"domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit:
      unit: second
      requests_per_unit: 500
  - key: database
    value: default
    shadow_mode: true
    rate_limit: { unit: second, requests_per_unit: 500, name: n }
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: remote_address
    value: 50.0.0.5
    rate_limit: { unlimited: true }
  - key: remote_address
    value: 50.0.0.6
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        detailed_metric: true
        rate_limit: { unit: day, requests_per_unit: 5, replaces: [{ name: n }] }
  - key: a
    value: b*
    rate_limit: { unit: day, requests_per_unit: 5 }
  - key: c
    rate_limit: { unit: year, requests_per_unit: 5 }
";

#[test]
fn zero_requests_are_none() {
    check(
        "ratelimit",
        "domain: d\ndescriptors:\n- { key: a, rate_limit: { unit: day, requests_per_unit: 0 } }\n",
        r#"[grpc]
        listen = "127.0.0.1:8081"
        [[grpc.descriptor]]
        domain = "d"
        entries = [{ key = "a" }]
        limits = { "a" = { "name:a" = "{a}" } }
        [[limit]]
        name = "a"
        key = ["name:a"]
        rate = "1/s"
        ramp = { from = "2000-01-01", to = "2000-01-02", to_rate = "0/s", step = "1day", at_zero = "limited" }"#,
        "",
    );
}

/// Examples of the documentation of the service.
#[test]
fn descriptors_are_tables_and_windows() {
    check(
        "ratelimit",
        EXAMPLE,
        r#"[grpc]
        listen = "127.0.0.1:8081"
        [[grpc.descriptor]]
        domain = "mongo_cps"
        entries = [{ key = "database", value = "users" }]
        limits = { "users" = {} }
        [[grpc.descriptor]]
        domain = "mongo_cps"
        entries = [{ key = "database", value = "default" }]
        limits = { "default" = {} }
        [[grpc.descriptor]]
        domain = "mongo_cps"
        entries = [{ key = "remote_address", value = "50.0.0.5" }]
        limits = { "50-0-0-5" = {} }
        [[grpc.descriptor]]
        domain = "mongo_cps"
        entries = [{ key = "remote_address", value = "50.0.0.6" }]
        limits = { "50-0-0-6" = {} }
        [[grpc.descriptor]]
        domain = "mongo_cps"
        entries = [{ key = "message_type", value = "marketing" }, { key = "to_number" }]
        limits = { "marketing-to_number" = { "name:to_number" = "{to_number}" } }
        [[grpc.descriptor]]
        domain = "mongo_cps"
        entries = [{ key = "remote_address" }]
        limits = { "remote_address" = { "name:remote_address" = "{remote_address}" } }
        [[limit]]
        name = "users"
        key = []
        algorithm = "fixed_window"
        rate = "500/s"
        [[limit]]
        name = "default"
        mode = "shadow"
        key = []
        algorithm = "fixed_window"
        rate = "500/s"
        [[limit]]
        name = "50-0-0-5"
        key = []
        mode = "off"
        rate = "1/s"
        [[limit]]
        name = "50-0-0-6"
        key = []
        mode = "off"
        rate = "1/s"
        [[limit]]
        name = "marketing-to_number"
        key = ["name:to_number"]
        algorithm = "fixed_window"
        rate = "5/day"
        [[limit]]
        name = "remote_address"
        key = ["name:remote_address"]
        algorithm = "fixed_window"
        rate = "10/min""#,
        "24 LeftOut `replaces`: Weir charges all limits of a request; each descriptor has the limit of its table
        25 LeftOut Weir has no pattern of values
        29 LeftOut Weir has no rate by the unit `year`",
    );
}
