//! The rules: tables first, then one function for each.

use std::collections::HashSet;
use std::fmt;

use super::source::{CratePath, Source};

/// The storeys with their rooms. The other folders of `src` are rooms by themselves.
const STOREYS: &[(&str, &[&str])] = &[
    ("base", &["attempts", "cpu", "digits", "fields", "opaque", "split_mix", "sync", "telemetry", "time", "visible"]),
    ("engine", &["gate", "limit", "policy", "store", "units"]),
    ("transport", &["http1", "http2", "net", "proxy", "respond", "stale", "upstream"]),
    ("fleet", &["etcd", "grpc", "stores"]),
];

/// A room imports only from its own folder and from lower floors. The floors of a storey are together, so that storeys
/// import only from lower ones, too.
const FLOORS: &[(usize, &[&str])] = &[
    (0, &["digits", "opaque", "split_mix", "sync", "visible"]),
    (1, &["time"]),
    (2, &["attempts", "cpu", "fields", "telemetry"]),
    (3, &["limit", "units"]),
    (4, &["policy", "store"]),
    (5, &["gate"]),
    (6, &["http1", "http2", "net", "stale"]),
    (7, &["respond", "upstream"]),
    (8, &["proxy"]),
    (9, &["stores"]),
    (10, &["etcd"]),
    (11, &["grpc"]),
    (12, &["admin"]),
    (13, &["config"]),
    (14, &["app", "import"]),
    (15, &["cli"]),
];

/// It stands above all floors, and nothing can import it.
const MAIN: &str = "main";

/// What tests share; it may use everything, and only tests may use it.
const TESTING: &str = "testing";

/// Outside crates, and the modules that may name them.
const HOMES: &[(&str, &[&str])] = &[
    ("hyper", &["http1", "admin", "app", "cli", "etcd", "grpc"]),
    ("h2", &["http2", "upstream", "stores"]),
    ("hickory_resolver", &["upstream"]),
    ("http_cache_semantics", &["stale"]),
    ("lru", &["stale"]),
    ("hyper_util", &["http1", "admin", "app", "cli", "etcd", "grpc"]),
    ("dashmap", &["store", "stores"]),
    ("redis", &["stores"]),
    ("prost", &["app", "etcd", "grpc", "store", "stores"]),
    ("prometheus", &["telemetry"]),
    ("toml", &["config"]),
    ("toml_edit", &["config"]),
    ("granit_parser", &["import"]),
    ("clap", &["cli", MAIN]),
    ("ratatui_core", &["cli"]),
    ("ratatui_crossterm", &["cli"]),
    ("ratatui_widgets", &["cli"]),
    ("regex", &["policy"]),
    ("jsonwebtoken", &["policy", "cli"]),
    ("jiff", &["limit"]),
    ("loom", &["sync", "store", "gate", "stores"]),
    ("siphasher", &["policy"]),
    ("listenfd", &["app"]),
    ("sd_notify", &["app"]),
    ("instant_acme", &["app"]),
    ("rustls", &["net"]),
    ("aws_lc_rs", &["policy", "net", "proxy", "stores"]),
    ("rustls_native_certs", &["net"]),
    ("tokio_rustls", &["net", "upstream", "app", "stores", "grpc"]),
    ("tonic", &["etcd", "grpc"]),
    ("tonic_health", &["grpc"]),
    ("tonic_reflection", &["grpc"]),
    ("prost_types", &["grpc"]),
    ("x509_parser", &["net", "policy"]),
    ("askama", &["admin", "respond"]),
    ("axum", &["admin"]),
    ("utoipa", &["admin"]),
    ("form_urlencoded", &["admin", "cli"]),
    ("utoipa_axum", &["admin"]),
];

/// Readings of a clock, and the module that may take them.
const CLOCKS: &[&[&str]] = &[&["Instant", "::", "now"], &["SystemTime", "::", "now"]];
const CLOCKS_HOME: &str = "time";

/// Lints against panics. Clippy does not apply them to tests, so nothing in `src` may allow them.
const PANIC_LINTS: &[&[&str]] = &[&["unwrap_used"], &["expect_used"], &["clippy", "::", "panic"]];

const LEFTOVERS: &[&[&str]] = &[&["todo", "!"], &["unimplemented", "!"], &["dbg", "!"], &["#", "[", "ignore"]];
/// Written in two halves, so that this file does not contain them.
const LEFTOVER_WORDS: &[&str] = &[concat!("FIX", "ME"), concat!("X", "XX")];

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;

/// Beside names that begin with a dot, and the build's own folder.
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "proto",
    "src",
    "config",
    "tests",
    "benches",
    "docs",
    "Dockerfile",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "CHANGELOG.md",
    "target",
    "dist",
];

/// A rule that does not hold somewhere.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Relative to the crate.
    pub path: String,
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Holds the names at the top of the tree against those that may stand there.
pub fn check_top_level(names: &[String]) -> Vec<Violation> {
    let strange = |name: &&String| !name.starts_with('.') && !TOP_LEVEL.contains(&name.as_str());
    let message = "does not belong at the top level";
    let violation = |name: &String| Violation { path: name.clone(), line: 1, message: message.into() };
    names.iter().filter(strange).map(violation).collect()
}

/// Holds one file against all rules that concern it; `test_modules` are the files that only tests see.
pub fn check_file(source: &Source, test_modules: &HashSet<Vec<String>>) -> Vec<Violation> {
    let only_tests = (1..=source.module.len()).any(|depth| test_modules.contains(&source.module[..depth]));
    let mut report = Report { path: &source.path, violations: Vec::new() };
    leftovers(source, &mut report);
    function_sizes(source, &mut report);
    if source.path.starts_with("src/") {
        floors(source, only_tests, &mut report);
        homes(source, &mut report);
        clocks(source, &mut report);
        panics(source, &mut report);
        opening(source, &mut report);
        if !only_tests {
            file_size(source, &mut report);
        }
    }
    report.violations
}

/// The lines of a file before its tests.
pub fn code_lines(source: &Source) -> usize {
    source.tests_from.map_or_else(|| source.text.lines().count(), |tests| tests - 1)
}

struct Report<'s> {
    path: &'s str,
    violations: Vec<Violation>,
}

impl Report<'_> {
    fn add(&mut self, line: usize, message: String) {
        self.violations.push(Violation { path: self.path.into(), line, message });
    }
}

fn floors(source: &Source, only_tests: bool, report: &mut Report) {
    let own = room(&source.module);
    if own.is_empty() || [MAIN, TESTING].contains(&own) {
        return;
    }
    let Some(own_floor) = floor(own) else {
        return report.add(1, format!("{own} stands on no floor"));
    };
    if let Some((storey, _)) = STOREYS.iter().find(|(_, rooms)| rooms.contains(&own))
        && source.module.first().is_none_or(|first| first != storey)
    {
        report.add(1, format!("{own} is a room of {storey}"));
    }
    for CratePath { line, segments } in source.crate_paths() {
        let in_tests = only_tests || source.tests_from.is_some_and(|tests| line >= tests);
        let first = segments.first().map_or("*", String::as_str);
        match room(&segments) {
            _ if first == "*" => report.add(line, "names the crate root and so every floor".into()),
            "" | "*" => report.add(line, format!("names the storey {first} and so all of its rooms")),
            TESTING if in_tests => {}
            TESTING => report.add(line, format!("only tests may use {TESTING}")),
            other if other == own => {}
            other => match floor(other) {
                Some(floor) if floor < own_floor => {}
                Some(floor) => {
                    report.add(line, format!("{own} (floor {own_floor}) may not use {other} (floor {floor})"));
                }
                None => report.add(line, format!("{other} stands on no floor")),
            },
        }
    }
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// The room in a path from the crate root; empty for the root and for a storey itself.
pub fn room(path: &[String]) -> &str {
    let is_storey = |first: &String| STOREYS.iter().any(|(storey, _)| storey == first);
    let depth = usize::from(path.first().is_some_and(is_storey));
    path.get(depth).map_or("", String::as_str)
}

fn homes(source: &Source, report: &mut Report) {
    for (name, homes) in HOMES {
        if !homes.contains(&room(&source.module)) {
            for line in source.uses_of(name) {
                report.add(line, format!("{name} belongs in {}", homes.join(", ")));
            }
        }
    }
}

fn clocks(source: &Source, report: &mut Report) {
    for clock in CLOCKS {
        if room(&source.module) != CLOCKS_HOME {
            for line in source.find(clock) {
                report.add(line, format!("{}: only {CLOCKS_HOME} reads a clock", clock.concat()));
            }
        }
    }
}

fn panics(source: &Source, report: &mut Report) {
    for lint in PANIC_LINTS {
        for line in source.find(lint) {
            report.add(line, format!("{}: only tests may panic, and they need no exception", lint.concat()));
        }
    }
}

fn opening(source: &Source, report: &mut Report) {
    if !source.text.starts_with("//!") {
        report.add(1, "a file begins with //! and what it is for".into());
    }
}

fn file_size(source: &Source, report: &mut Report) {
    let lines = code_lines(source);
    if lines > FILE_LINES_MAX {
        report.add(1, format!("has {lines} lines before its tests, {FILE_LINES_MAX} are allowed"));
    }
}

fn function_sizes(source: &Source, report: &mut Report) {
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_MAX {
            let (name, lines) = (function.name, function.lines);
            report.add(function.line, format!("{name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed"));
        }
    }
}

fn leftovers(source: &Source, report: &mut Report) {
    for leftover in LEFTOVERS {
        for line in source.find(leftover) {
            report.add(line, format!("{} is left over", leftover.concat()));
        }
    }
    let words: Vec<_> = LEFTOVER_WORDS.iter().filter(|word| source.text.contains(**word)).collect();
    for (index, line) in source.text.lines().enumerate() {
        for word in &words {
            if line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == **word) {
                report.add(index + 1, format!("{word} is left over"));
            }
        }
    }
}
