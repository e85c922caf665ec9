//! All metrics with their labels and values.

use std::collections::{BTreeMap, BTreeSet};

use crate::ops::replace;
use crate::support::{Client, Upstream, Weir};

/// Every metric: its name, its type, and the labels of each of its series.
const METRICS: &[(&str, &str, &[&str])] = &[
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_max_fds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_threads", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
    ("weir_admin_connections_displaced_total", "counter", &[]),
    ("weir_banned_address_requests_total", "counter", &[]),
    ("weir_banned_keys", "gauge", &["limit"]),
    ("weir_bans_total", "counter", &["limit"]),
    ("weir_build_info", "gauge", &["revision", "version"]),
    ("weir_client_bytes_total", "counter", &["direction"]),
    ("weir_client_connections_refused_total", "counter", &[]),
    ("weir_config_last_reload_successful", "gauge", &[]),
    ("weir_config_last_reload_timestamp_seconds", "gauge", &[]),
    ("weir_connections", "gauge", &[]),
    ("weir_connections_refused_total", "counter", &[]),
    ("weir_endpoint_connections", "gauge", &["endpoint", "upstream"]),
    ("weir_endpoint_draining", "gauge", &["endpoint", "upstream"]),
    ("weir_endpoint_ejections_total", "counter", &["endpoint", "upstream"]),
    ("weir_endpoint_healthy", "gauge", &["endpoint", "upstream"]),
    ("weir_endpoint_requests_total", "counter", &["endpoint", "result", "upstream"]),
    ("weir_grpc_checks_total", "counter", &["result", "service"]),
    ("weir_grpc_connections", "gauge", &[]),
    ("weir_grpc_connections_refused_total", "counter", &[]),
    ("weir_grpc_invalid_total", "counter", &[]),
    ("weir_held_requests", "gauge", &["limit"]),
    ("weir_hold_duration_seconds", "histogram", &["limit"]),
    ("weir_hold_overflow_total", "counter", &[]),
    ("weir_keys", "gauge", &["limit"]),
    ("weir_keys_evicted_total", "counter", &["limit", "reason"]),
    ("weir_limit_decisions_total", "counter", &["decision", "limit"]),
    ("weir_limit_headroom_ratio", "histogram", &["limit"]),
    ("weir_log_lines_dropped_total", "counter", &[]),
    ("weir_operator_bans", "gauge", &[]),
    ("weir_overflow_decisions_total", "counter", &["limit"]),
    ("weir_overhead_seconds", "histogram", &[]),
    ("weir_overload_level", "gauge", &[]),
    ("weir_overrides_left_out", "gauge", &[]),
    ("weir_panics_total", "counter", &[]),
    ("weir_preflights_total", "counter", &["verdict"]),
    ("weir_problems_total", "counter", &["kind"]),
    ("weir_proxy_headers_refused_total", "counter", &[]),
    ("weir_refused_requests_total", "counter", &["by"]),
    ("weir_requests_total", "counter", &["verdict"]),
    ("weir_responses_total", "counter", &["class"]),
    ("weir_shed_requests_total", "counter", &["priority"]),
    ("weir_tap_events_lost_total", "counter", &[]),
    ("weir_taps", "gauge", &[]),
    ("weir_tasks", "gauge", &[]),
    ("weir_tls_handshakes_failed_total", "counter", &[]),
    ("weir_traced_requests_dropped_total", "counter", &[]),
    ("weir_traced_requests_exported_total", "counter", &[]),
    ("weir_untaken_bytes", "gauge", &[]),
    ("weir_upgraded_connections", "gauge", &[]),
    ("weir_upstream_duration_seconds", "histogram", &["upstream"]),
    ("weir_upstream_queue_refused_total", "counter", &["reason", "upstream"]),
    ("weir_upstream_queued", "gauge", &["upstream"]),
    ("weir_upstream_responses_total", "counter", &["class", "upstream"]),
];

/// A family of the exposition.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// Label names without `le`.
    labels: BTreeSet<Vec<String>>,
    series: BTreeMap<String, f64>,
}

/// Parses the text format, version 0.0.4, and panics if it is invalid.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let (mut current, mut helped) = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect(line);
            assert!(!help.trim().is_empty() && !families.contains_key(name), "{line}");
            name.clone_into(&mut helped);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert_eq!(name, helped, "HELP comes first");
            families.insert(name.to_owned(), Family { kind: kind.to_owned(), ..Family::default() });
            name.clone_into(&mut current);
        } else {
            let (series, value) = line.rsplit_once(' ').expect(line);
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let family = families.get_mut(&current).expect(line);
            let suffix = name.strip_prefix(&*current).expect(line);
            let suffixes: &[&str] = if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            let pairs = labels.strip_suffix('}').expect(line).split(',').filter(|pair| !pair.is_empty());
            let names = pairs.map(|pair| {
                let (name, value) = pair.split_once('=').expect(line);
                assert!(value.len() >= 2 && value.starts_with('"') && value.ends_with('"'), "{line}");
                name.to_owned()
            });
            family.labels.insert(names.filter(|name| name != "le").collect());
            let value = value.parse().expect(line);
            assert!(family.series.insert(series.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    families
}

fn scrape(weir: &Weir) -> BTreeMap<String, Family> {
    let answer = Client::connect(weir.admin()).get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    parse(&answer.text())
}

const LIMITS: &str = r#"
[identity.user]
header = "x-user"

[[limit]]
name = "refuse"
match = { path = "/refuse" }
key = ["ip"]
rate = "2/h"

[[limit]]
name = "shadow"
match = { path = "/shadow" }
key = ["ip"]
rate = "1/h"
mode = "shadow"

[[limit]]
name = "hold"
match = { path = "/hold" }
key = ["ip"]
rate = "1/3s"
on_limit = "hold"

[[limit]]
name = "stuck"
match = { path = "/stuck" }
key = ["ip"]
rate = "1/h"
on_limit = "hold"

[[limit]]
name = "user"
match = { path = "/user" }
key = ["user"]
rate = "10/h"
"#;

/// A known sequence of requests, each with its status.
fn known_traffic(weir: &Weir) {
    let mut client = Client::connect(weir.address());
    let asked = [
        ("/free", 200),
        ("/refuse", 200),
        ("/refuse", 200),
        ("/refuse", 429),
        ("/shadow", 200),
        ("/shadow", 200),
        ("/hold", 200),
        ("/hold", 200),
        ("/stuck", 200),
        ("/user", 401),
        ("/%zz", 400),
    ];
    for (target, status) in asked {
        assert_eq!(client.get(target).status, status, "{target}");
    }
    let mut leaving = Client::connect(weir.address());
    leaving.send("GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_metric("weir_held_requests{limit=\"stuck\"}", |held| held == 1.0);
    drop(leaving);
    weir.wait_for_metric("weir_requests_total{verdict=\"abandoned\"}", |abandoned| abandoned == 1.0);
}

#[test]
fn every_metric_has_exactly_its_labels() {
    let weir = Weir::start(&Upstream::start(), LIMITS);
    let names =
        |weir: &Weir| scrape(weir).into_values().flat_map(|family| family.series.into_keys()).collect::<Vec<_>>();
    let before = names(&weir);
    known_traffic(&weir);
    let families = scrape(&weir);
    assert_eq!(names(&weir), before, "every series is there from the start");
    let found: Vec<_> = families.iter().map(|(name, family)| (&**name, &*family.kind)).collect();
    let expected: Vec<_> = METRICS.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    assert_eq!(found, expected);
    for (name, _, labels) in METRICS {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(families[*name].labels.iter().collect::<Vec<_>>(), [&labels], "{name}");
    }
    let build = families["weir_build_info"].series.keys().next().unwrap();
    assert!(build.contains(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{build}");
}

#[test]
fn a_known_sequence_has_known_values() {
    let weir = Weir::start(&Upstream::start(), LIMITS);
    known_traffic(&weir);
    let decision = |limit, decision| format!("weir_limit_decisions_total{{decision=\"{decision}\",limit=\"{limit}\"}}");
    let verdict = |verdict| format!("weir_requests_total{{verdict=\"{verdict}\"}}");
    let refused_by = |by| format!("weir_refused_requests_total{{by=\"{by}\"}}");
    let of = |name, limit| format!("{name}{{limit=\"{limit}\"}}");
    let expected = [
        (verdict("forwarded"), 7.0),
        (verdict("held"), 1.0),
        (verdict("refused"), 3.0),
        (refused_by("limit"), 1.0),
        (refused_by("identity"), 1.0),
        (refused_by("other"), 1.0),
        (refused_by("ban"), 0.0),
        (verdict("abandoned"), 1.0),
        (decision("refuse", "admitted"), 2.0),
        (decision("refuse", "refused"), 1.0),
        (decision("shadow", "admitted"), 1.0),
        (decision("shadow", "shadow_refused"), 1.0),
        (decision("shadow", "refused"), 0.0),
        (decision("hold", "admitted"), 2.0),
        (decision("hold", "held"), 1.0),
        (decision("stuck", "admitted"), 1.0),
        (decision("stuck", "held"), 1.0),
        (decision("user", "admitted"), 0.0),
        ("weir_problems_total{kind=\"unidentified\"}".into(), 1.0),
        ("weir_problems_total{kind=\"bad_path\"}".into(), 1.0),
        (of("weir_hold_duration_seconds_count", "hold"), 1.0),
        (of("weir_hold_duration_seconds_count", "stuck"), 1.0),
        (of("weir_held_requests", "stuck"), 0.0),
        (of("weir_limit_headroom_ratio_count", "refuse"), 3.0),
        (of("weir_keys", "refuse"), 1.0),
        ("weir_overhead_seconds_count".into(), 7.0),
        ("weir_upstream_duration_seconds_count{upstream=\"upstream\"}".into(), 8.0),
        ("weir_upstream_responses_total{class=\"2xx\",upstream=\"upstream\"}".into(), 8.0),
        ("weir_responses_total{class=\"2xx\"}".into(), 8.0),
        ("weir_responses_total{class=\"4xx\"}".into(), 3.0),
        ("weir_responses_total{class=\"5xx\"}".into(), 0.0),
        ("weir_panics_total".into(), 0.0),
        ("weir_config_last_reload_successful".into(), 1.0),
    ];
    for (series, value) in expected {
        assert_eq!(weir.metric(&series), value, "{series}");
    }
}

#[test]
fn openmetrics_has_the_same_values() {
    let weir = Weir::start(&Upstream::start(), LIMITS);
    known_traffic(&weir);
    let head = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let answer = Client::connect(weir.admin()).send(head).answer();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((answer.header("content-type"), answer.header("vary")), (Some(kind), Some("accept")));
    let text = answer.text();
    let (series, end) = text.rsplit_once("# EOF").unwrap();
    assert_eq!(end, "\n");
    let samples = series.lines().filter(|line| !line.starts_with('#')).filter(|line| !line.contains("_created"));
    let without_point = |name: &str| if name.contains("le=") { name.replace(".0\"", "\"") } else { name.to_owned() };
    let names: Vec<_> = samples.map(|line| without_point(line.rsplit_once(' ').unwrap().0)).collect();
    let mut expected: Vec<_> = scrape(&weir).into_values().flat_map(|family| family.series.into_keys()).collect();
    // Small bounds have an exponent.
    for expected in &mut expected {
        for (from, to) in [("0.00001", "1e-05"), ("0.00002", "2e-05"), ("0.00005", "5e-05")] {
            *expected = expected.replace(&format!("\"{from}\""), &format!("\"{to}\""));
        }
    }
    let sorted = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(sorted(names), sorted(expected));
    assert!(text.contains("# TYPE weir_requests counter\n"), "{text}");
    assert!(text.contains("\nweir_requests_total{verdict=\"forwarded\"} 7\n"), "{text}");
    assert!(text.contains("\nweir_requests_created{verdict=\"forwarded\"} 1"), "{text}");
}

#[test]
fn clients_cannot_add_series() {
    let limits = "[[limit]]\nname = \"all\"\nkey = [\"path\", \"host\", \"method\", \"header:x-a\"]\nrate = \"1/h\"";
    let weir = Weir::start(&Upstream::start(), limits);
    let series = |weir: &Weir| scrape(weir).values().map(|family| family.series.len()).sum::<usize>();
    let before = series(&weir);
    let mut client = Client::connect(weir.address());
    client.get("/%zz");
    for n in 0..100 {
        let head = format!("GET /{n} HTTP/1.1\r\nHost: host-{n}\r\nX-A: {n}\r\n\r\n");
        assert_eq!(client.send(&head).answer().status, 200);
        assert_eq!(client.send(&head).answer().status, 429);
    }
    assert_eq!(series(&weir), before);
    assert_eq!(weir.metric("weir_keys{limit=\"all\"}"), 100.0);
}

#[test]
fn a_limit_that_a_reload_adds_has_all_its_series() {
    let upstream = Upstream::start();
    let first = Weir::start(&upstream, LIMITS);
    let of = |weir: &Weir, limit: &str| -> BTreeMap<String, f64> {
        let label = format!("limit=\"{limit}\"");
        let all = scrape(weir).into_values().flat_map(|family| family.series);
        all.filter(|(name, _)| name.contains(&label))
            .map(|(name, value)| (name.replace(&label, "limit=\"\""), value))
            .collect()
    };
    let usual = of(&first, "hold");
    assert!(usual.len() > 20 && usual.values().all(|value| *value == 0.0), "{usual:?}");
    let more = LIMITS.replace(
        "[[limit]]\nname = \"hold\"",
        "[[limit]]\nname = \"new\"\nkey = []\nmatch = { path = \"/new\" }\nrate = \"1/s\"\n[[limit]]\nname = \"hold\"",
    );
    replace(&first.config_file(), &Weir::config(&upstream, "", &more));
    first.signal("HUP");
    first.wait_for_line("\"reloaded\"");
    assert_eq!(of(&first, "new"), usual);
}

#[test]
fn the_admin_listener_is_read_only() {
    let weir = Weir::start(&Upstream::start(), "");
    let mut client = Client::connect(weir.admin());
    let mut ask = |method: &str, target: &str| {
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).answer()
    };
    for target in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(ask("GET", target).status, 200);
        for method in ["POST", "PUT", "DELETE"] {
            let answer = ask(method, target);
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method} {target}");
        }
    }
    // The web page is answered only under names of the listener.
    assert_eq!(ask("GET", "/").status, 403);
    assert_eq!(ask("GET", "/nothing").status, 404);
    assert_eq!(ask("POST", "/reload").status, 404);
    assert_eq!(ask("GET", "/healthz").header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!((ask("GET", "/healthz").text(), ask("GET", "/readyz").text()), ("weir ok\n".into(), "ready\n".into()));
    let head = client.send("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n").head().unwrap();
    assert_eq!(head.status, 200);
}
