//! The operator's page says what is so: its options and defaults, links and metrics are those of the code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use weir::config;
use weir::telemetry::Metrics;
use weir::time::Timestamp;

const PAGE: &str = include_str!("../docs/OPERATING.md");

/// What stands between backticks, also within a longer text.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_default_is_that_of_the_option() {
    let section = PAGE.split_once("## Limits and their defaults").unwrap().1.split_once("\n## ").unwrap().0;
    let rows: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("| `")).collect();
    assert!(rows.len() > 15);
    for row in rows {
        let (path, rest) = row.split_once("` | ").unwrap();
        let option = config::options().iter().find(|option| option.path == path);
        let option = option.unwrap_or_else(|| panic!("no option {path}"));
        assert_eq!(rest.split_once(" |").unwrap().0, option.default.to_string(), "{path}");
    }
}

#[test]
fn every_option_and_metric_exists() {
    let metrics = Metrics::new("", "").unwrap();
    metrics.show_snapshots().unwrap();
    metrics.limit("any");
    metrics.upstream("any");
    metrics.problems.with_label_values(&["any"]);
    metrics.jwks_fetched("any", true, Timestamp::ZERO);
    let exposition = String::from_utf8(metrics.render().unwrap()).unwrap();
    let tables = ["server.", "timeouts.", "hold.", "tokens.", "limit.", "snapshot.", "admin.", "log.", "upstream."];
    for code in codes(PAGE) {
        let name = code.split([' ', '=', '[', '{']).next().unwrap();
        if tables.iter().any(|table| name.starts_with(table)) {
            assert!(config::options().iter().any(|option| option.path == name), "{code}");
        }
        for word in code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.starts_with("weir_") {
                assert!(exposition.contains(&format!("# TYPE {word} ")), "{word}");
            }
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    for link in PAGE.split("](").skip(1).map(|rest| rest.split_once(')').unwrap().0) {
        assert!(Path::new("docs").join(link).exists(), "{link}");
    }
}
