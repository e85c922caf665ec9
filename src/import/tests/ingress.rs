//! Ingresses of Kubernetes.

use super::check;

pub(super) const EXAMPLE: &str = r#"apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: app
  annotations:
    nginx.ingress.kubernetes.io/limit-rps: "10"
    nginx.ingress.kubernetes.io/limit-rpm: "100"
    nginx.ingress.kubernetes.io/limit-connections: "7"
    nginx.ingress.kubernetes.io/limit-burst-multiplier: "3"
    nginx.ingress.kubernetes.io/limit-whitelist: 10.0.0.0/8, 192.0.2.1/32
    nginx.ingress.kubernetes.io/rewrite-target: /
spec:
  ingressClassName: nginx
  tls: [{ hosts: [a.test], secretName: s }]
  rules:
  - host: a.test
    http:
      paths:
      - { path: /api, pathType: Prefix, backend: { service: { name: app, port: { number: 80 } } } }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: other, namespace: shop }
spec:
  defaultBackend: { service: { name: web, port: { number: 8080 } } }
---
kind: Service
"#;

/// Two ingresses.
#[test]
fn annotations_are_limits_of_an_ingress() {
    check(
        "ingress",
        EXAMPLE,
        r#"[upstreams.app]
        endpoints = ["http://app.default.svc:80"]
        [upstreams.web]
        endpoints = ["http://web.shop.svc:8080"]
        [[route]]
        match = { host = ["a.test"], path = ["/api", "/api/{*rest}"] }
        upstream = "app"
        [[route]]
        upstream = "web"
        [[limit]]
        name = "app-limit-rps"
        stage = "arrival"
        match = { host = ["a.test"], path = ["/api", "/api/{*rest}"] }
        except = { ip = ["10.0.0.0/8", "192.0.2.1/32"] }
        key = ["ip"]
        rate = "10/s"
        burst = 31
        [[limit]]
        name = "app-limit-rpm"
        stage = "arrival"
        match = { host = ["a.test"], path = ["/api", "/api/{*rest}"] }
        except = { ip = ["10.0.0.0/8", "192.0.2.1/32"] }
        key = ["ip"]
        rate = "1666/1000s"
        burst = 301
        [[limit]]
        name = "app-limit-connections"
        match = { host = ["a.test"], path = ["/api", "/api/{*rest}"] }
        except = { ip = ["10.0.0.0/8", "192.0.2.1/32"] }
        key = ["ip"]
        algorithm = "concurrency"
        max = 7"#,
        "11 LeftOut `nginx.ingress.kubernetes.io/rewrite-target`: set `route.rewrite` by hand
        14 LeftOut `tls`: set `server.tls` by hand
        27 LeftOut it is no ingress",
    );
}

/// Names of one network are one entry.
#[test]
fn exempt_networks_may_occur_twice() {
    let annotation = |name: &str, value: &str| format!("    nginx.ingress.kubernetes.io/{name}: {value}\n");
    for lists in [
        annotation("limit-whitelist", "10.0.0.0/8,192.0.2.1,10.0.0.0/8"),
        annotation("limit-whitelist", "10.0.0.1/8, 192.0.2.1/32") + &annotation("limit-allowlist", "10.0.0.0/8"),
    ] {
        let text = format!(
            "kind: Ingress\nmetadata:\n  name: a\n  annotations:\n{}{lists}spec:\n  \
             defaultBackend: {{ service: {{ name: web, port: {{ number: 8080 }} }} }}\n",
            annotation("limit-rps", "'1'")
        );
        check(
            "ingress",
            &text,
            r#"[upstream]
            url = "http://web.default.svc:8080"
            [[limit]]
            name = "a-limit-rps"
            stage = "arrival"
            except = { ip = ["10.0.0.0/8", "192.0.2.1/32"] }
            key = ["ip"]
            rate = "1/s"
            burst = 6"#,
            "",
        );
    }
}
