//! The pages for operators describe this program: options, defaults and metrics are those of the code.

use weir::config;

use super::pages::Page;
use super::{between, exposition};

const SIZING: &str = "docs/operations/sizing.md";
const RUNBOOK: &str = "docs/operations/runbook.md";
const PAGES: [&str; 6] = [
    "docs/operations/index.md",
    "docs/operations/deploy.md",
    "docs/operations/one-configuration.md",
    "docs/operations/reload-restart-takeover.md",
    SIZING,
    RUNBOOK,
];

#[test]
fn every_default_is_that_of_the_option() {
    let page = Page::read(SIZING);
    let section = between(&page, "## Limits and their defaults", "\n## ");
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
    let exposition = exposition();
    let tables = ["server.", "timeouts.", "hold.", "tokens.", "limit.", "snapshot.", "admin.", "log.", "upstream."];
    let pages = PAGES.map(Page::read);
    for code in pages.iter().flat_map(Page::codes) {
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
    let page = Page::read(RUNBOOK);
    let alerts = page.text.split_once("\n## Alerts\n").unwrap().1;
    let sections: Vec<_> = alerts.split("\n## ").skip(1).collect();
    assert!(sections.len() > 10);
    for section in &sections {
        for step in ["**Look at** ", "**Meaning.** ", "**Do.** "] {
            assert!(section.contains(step), "{step}{section}");
        }
    }
}
