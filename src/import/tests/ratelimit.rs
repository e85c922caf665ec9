//! The rate limit service of Envoy.

use super::check;

/// Examples of the documentation of the service.
#[test]
fn descriptors_are_tables_and_windows() {
    check(
        "ratelimit",
        "domain: mongo_cps
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
",
        r#"[grpc]
        listen = "127.0.0.1:8081"
        [[grpc.descriptor]]
        domain = "mongo_cps"
        "#,
        "",
    );
}
