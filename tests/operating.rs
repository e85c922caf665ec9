//! The pages for operators describe this program: options, defaults and metrics are those of the code.
#![allow(clippy::unwrap_used, clippy::panic)]

use weir::base::telemetry::Metrics;
use weir::config;

const SIZING: &str = include_str!("../docs/operations/sizing.md");
const RUNBOOK: &str = include_str!("../docs/operations/runbook.md");
const PAGES: &[&str] = &[
    include_str!("../docs/operations/index.md"),
    include_str!("../docs/operations/deploy.md"),
    include_str!("../docs/operations/one-configuration.md"),
    include_str!("../docs/operations/reload-restart-takeover.md"),
    SIZING,
    RUNBOOK,
];

/// The texts between backticks of the lines outside code blocks.
fn codes(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn every_default_is_that_of_the_option() {
    let section = SIZING.split_once("## Limits and their defaults").unwrap().1.split_once("\n## ").unwrap().0;
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
    metrics.show_remote_config().unwrap();
    metrics.remote_config.in_force("1");
    metrics.limit("any");
    metrics.stale("any", ["a", "b", "c"]);
    metrics.upstream("any");
    metrics.endpoint("any", "any");
    metrics.problems.with_label_values(&["any"]);
    metrics.jwks.expose("any");
    let exposition = String::from_utf8(metrics.render().unwrap()).unwrap();
    let tables = ["server.", "timeouts.", "hold.", "tokens.", "limit.", "snapshot.", "admin.", "log.", "upstream."];
    for code in PAGES.iter().copied().flat_map(codes) {
        let name = code.split([' ', '=', '[', '{']).next().unwrap();
        if tables.iter().any(|table| name.starts_with(table)) {
            let is_table = |path: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            let is_option = |name: &str| config::options().iter().any(|option| option.path == name);
            let has_table = config::options().iter().any(|option| is_table(option.path));
            assert!(is_option(name) || is_option(&format!("limit.{name}")) || has_table, "{code}");
        }
        for word in code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.starts_with("weir_") {
                let is_prefix = word.ends_with('_');
                assert!(is_prefix || exposition.contains(&format!("# TYPE {word} ")), "{word}");
            }
        }
    }
}

#[test]
fn every_section_of_the_runbook_says_what_to_do() {
    let alerts = RUNBOOK.split_once("\n## Alerts\n").unwrap().1;
    let sections: Vec<_> = alerts.split("\n## ").skip(1).collect();
    assert!(sections.len() > 10);
    for section in &sections {
        for step in ["**Look at** ", "**Meaning.** ", "**Do.** "] {
            assert!(section.contains(step), "{step}{section}");
        }
    }
}
