//! The documentation and the files in `config` are true and complete: links, source paths, options, defaults, metrics,
//! configurations and transcripts agree with the program.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(unreachable_pub)] // nothing is reachable from outside a test

#[path = "docs/architecture.rs"]
mod architecture;
#[path = "docs/config_files.rs"]
mod config_files;
#[path = "docs/operating.rs"]
mod operating;
#[path = "docs/options.rs"]
mod options;
#[path = "docs/pages.rs"]
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use pages::Page;
use weir::base::telemetry::Metrics;
use weir::base::time::Timestamp;
use weir::config;

/// The text between two markers of a page.
fn between<'p>(page: &'p Page, start: &str, end: &str) -> &'p str {
    page.text.split_once(start).unwrap().1.split_once(end).unwrap().0
}

#[test]
fn readme_is_short() {
    let lines = Page::read("README.md").text.lines().count();
    assert!(lines <= 150, "{lines} lines");
}

/// Words of the first paragraph of a page.
const OPENING_WORDS_MAX: usize = 40;

#[test]
fn every_page_begins_with_a_heading_and_a_short_paragraph() {
    for page in pages::all().iter().filter(|page| page.path != "README.md") {
        let opening = page.opening();
        let is_prose = opening.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '`' | '[' | '*'));
        assert!(page.text.starts_with("# ") && is_prose, "{}: {opening}", page.path);
        assert!(!opening.starts_with("After reading this page"), "{}: {opening}", page.path);
        let words = opening.split_whitespace().count();
        assert!(words <= OPENING_WORDS_MAX, "{}: {words} words: {opening}", page.path);
    }
}

/// The bound on the words of all pages. A new page says what no other page says, or replaces one.
const WORDS_MAX: usize = 60_000;

/// The words of a text: tokens between white space that contain a letter or a digit, so not the lines of a table.
fn words(text: &str) -> usize {
    text.split_whitespace().filter(|token| token.contains(char::is_alphanumeric)).count()
}

#[test]
fn the_pages_can_be_read() {
    let mut folders = BTreeMap::<String, usize>::new();
    for page in pages::all().into_iter().chain([Page::read("docs/SUMMARY.md")]) {
        let folder = Path::new(&page.path).parent().unwrap().to_str().unwrap().to_owned();
        *folders.entry(folder).or_default() += words(&page.text);
    }
    let words: usize = folders.values().sum();
    assert!(words <= WORDS_MAX, "{words} words in the pages, at most {WORDS_MAX}; by folder: {folders:#?}");
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = Page::read("docs/SUMMARY.md");
    let path = |link: &&str| summary.resolve(link).to_str().unwrap().to_owned();
    let listed: Vec<String> = summary.links().iter().map(path).collect();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "docs/SUMMARY.md lists a page twice");
    let pages = pages::all();
    let missing = pages.iter().filter(|page| page.path != "README.md" && !listed.contains(&page.path));
    let missing: Vec<_> = missing.map(|page| &page.path).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let linked_from = pages::all().into_iter().chain([Page::read("docs/SUMMARY.md")]);
    for page in linked_from {
        for link in page.links() {
            let (target, anchor) = link.split_once('#').map_or((link, None), |(target, anchor)| (target, Some(anchor)));
            let path = if target.is_empty() { Path::new(&page.path).to_path_buf() } else { page.resolve(target) };
            let has_anchor =
                |anchor: &str| path.is_file() && Page::read(path.to_str().unwrap()).anchors().contains(anchor);
            // The book has the pages of `docs` only, so they name other files without a link.
            let leaves = page.path.starts_with("docs/") && !path.starts_with("docs");
            if leaves || !path.exists() || anchor.is_some_and(|anchor| !has_anchor(anchor)) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Words that the glossary retires; no page for readers uses them.
const RETIRED: &[&str] = &["crowd", "trunk", "trunks", "tally", "estate", "traits", "whos", "whoever"];

#[test]
fn no_page_uses_a_retired_word() {
    let mut found = Vec::new();
    for page in pages::all() {
        // The glossary may name the words that it retires.
        for line in page.prose().filter(|_| page.path != "docs/contributing/glossary.md") {
            let words = line.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
            let retired = words.filter(|word| RETIRED.contains(&word.as_str()));
            found.extend(retired.map(|word| format!("{}: {word}: {line}", page.path)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_field_of_the_access_log_is_there() {
    let expected = weir::base::telemetry::fields_markdown();
    let page = Page::read("docs/reference/metrics.md");
    let found = between(&page, "<!-- fields -->\n", "<!-- /fields -->");
    assert!(found == expected, "put this between the markers of {}:\n{expected}", page.path);
}

/// The response of `/metrics` with each metric.
fn exposition() -> String {
    let metrics = Metrics::new("", "").unwrap();
    metrics.show_snapshots().unwrap();
    metrics.show_remote_config().unwrap();
    metrics.remote_config.in_force("1");
    metrics.show_fleet().unwrap().peer("any", true, 0, Some(Timestamp::ZERO), Some(0));
    metrics.limit("any").unreadable("any", "any");
    metrics.limit("any").cut("any");
    metrics.stale("any", ["any"; 3]);
    metrics.endpoint("any", "any");
    metrics.upstream("any");
    metrics.remote_limit("any", true);
    metrics.set_fleet_bound("any", Some(1.0));
    metrics.set_limit_bound("any", Some(1));
    metrics.set_adapted_part("any", Some(1));
    metrics.streamed_units("any");
    let store = metrics.store("any");
    store.up("any");
    store.errors("any");
    store.clock_ahead(0);
    metrics.problems.with_label_values(&["any"]);
    metrics.jwks.expose("any");
    metrics.acme.expose("any");
    String::from_utf8(metrics.render().unwrap()).unwrap()
}

#[test]
fn every_metric_is_there_and_no_other() {
    let text = exposition();
    let registered: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = Page::read("docs/reference/metrics.md");
    let rows = between(&page, "## Metrics", "## Logs").lines().filter_map(|line| line.strip_prefix("| `"));
    let described: BTreeSet<_> = rows.map(|row| row.split_once('`').unwrap().0).collect();
    assert_eq!(described, registered);
}

/// Each attack over HTTP/2 has a bound, a counter that exists, and a test; and each such test is in the table.
#[test]
fn every_attack_over_http2_has_a_bound_a_counter_and_a_test() {
    let page = Page::read("docs/guide/client-bounds.md");
    let start = page.text.find("## HTTP/2").unwrap();
    let rows: Vec<Vec<&str>> = page.text[start..]
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Attack"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let tests: BTreeSet<_> = ["h2_bounds", "h2_floods"]
        .iter()
        .flat_map(|name| {
            let text = std::fs::read_to_string(format!("tests/e2e/attacks/{name}.rs")).unwrap();
            let tests = text.split("#[test]\nfn ").skip(1).map(|rest| rest.split('(').next().unwrap().to_owned());
            tests.collect::<Vec<_>>()
        })
        .collect();
    let named: BTreeSet<_> = rows.iter().flat_map(|row| words(row[4])).collect();
    assert_eq!(named, tests);
    let others = ["untaken_answer", "untaken_overflow", "weir_hold_overflow_total", "weir_connections"];
    let kinds = weir::transport::respond::ProblemKind::COUNTED.map(weir::transport::respond::ProblemKind::label);
    for row in &rows {
        assert!(row.len() == 5 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        for counter in words(row[3]) {
            let known =
                others.iter().chain(&kinds).chain(&weir::transport::http2::Fatal::KINDS).any(|known| *known == counter);
            assert!(known, "{counter}");
        }
    }
    let counted: BTreeSet<_> = rows.iter().flat_map(|row| words(row[3])).collect();
    assert!(weir::transport::http2::Fatal::KINDS.iter().all(|kind| counted.contains(*kind)), "{counted:?}");
    assert!(rows.len() >= 10);
}

/// Words that operators read before "refused", `retry_after` and `reset_after`, in pages for them, texts of the program and
/// the labels of metrics. `deny` and `reject` are words of the configuration.
#[test]
fn one_word_means_one_thing() {
    const RETIRED: [&str; 8] =
        ["rejected", "rejects", "denied", "denies", "shadow_rejected", "whole again", "could admit in", "next unit in"];
    let has = |text: &str, word: &str| {
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        text.match_indices(word)
            .any(|(at, _)| !text[..at].ends_with(is_of_word) && !text[at + word.len()..].starts_with(is_of_word))
    };
    let mut retired = Vec::new();
    let mut search = |path: &str, text: &str| {
        retired.extend(RETIRED.iter().filter(|word| has(text, word)).map(|word| format!("{path}: {word}")));
    };
    for folder in ["docs/guide", "docs/reference", "docs/operations", "docs/recipes", "docs/fleet"] {
        for path in pages::files(folder, "") {
            search(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
    for folder in ["src/admin", "src/cli", "src/fleet/grpc", "src/transport/respond", "src/base/telemetry"] {
        for path in pages::files(folder, "") {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                // What is between quotes is text of the program; a page is text altogether.
                let shown = line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join("\n");
                search(
                    &path,
                    if Path::new(&path).extension().is_some_and(|end| end == "html") { line } else { &shown },
                );
            }
        }
    }
    let metrics = Metrics::new("", "").unwrap();
    metrics.limit("any");
    metrics.show_problems(weir::transport::respond::ProblemKind::COUNTED.iter().map(|kind| kind.label()));
    search("/metrics", &String::from_utf8(metrics.render().unwrap()).unwrap());
    assert_eq!(retired, [""; 0]);
}

/// A folder with all files that configurations in the pages name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a.test".into()]).unwrap().self_signed(&key).unwrap();
    for name in ["admin", "grafana", "night"] {
        std::fs::write(folder.path().join(format!("{name}.token")), format!("0123456789abcdef-{name}")).unwrap();
    }
    for name in ["shop", "api", "devices", "ca", "weir"] {
        std::fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    std::fs::write(folder.path().join("keys.toml"), "").unwrap();
    std::os::unix::fs::symlink(std::path::absolute("config/keys").unwrap(), folder.path().join("keys")).unwrap();
    folder
}

/// Compiles a configuration of a page; panics with its problems.
fn compile(page: &str, text: &str, folder: &Path) -> config::Config {
    let known = ["WEIR_JWT_SECRET", "WEIR_FLEET_SECRET", "REDIS_PASSWORD"];
    let env = |name: &str| known.contains(&name).then(|| "0123456789abcdef0123456789ABCDEF".to_owned());
    config::compile(text, page, folder, &env).unwrap_or_else(|problems| panic!("{page}:\n{text}\n{problems}"))
}

#[test]
fn every_configuration_compiles() {
    let (folder, mut count) = (folder(), 0);
    for page in pages::all() {
        for block in page.blocks().iter().filter(|block| block.language == "toml") {
            let upstream =
                if block.code.contains("[upstream") { "" } else { "[upstream]\nurl = \"http://127.0.0.1:9000\"\n" };
            compile(&page.path, &format!("{upstream}{}", block.code), folder.path());
            count += 1;
        }
    }
    assert!(count >= 50, "{count}");
}

#[test]
fn every_transcript_comes_true() {
    let mut count = 0;
    for page in pages::all() {
        for block in page.blocks() {
            let Some(transcript) = block.code.strip_prefix("$ weir ") else { continue };
            let (command, shown) = transcript.split_once('\n').unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(command.split(' ')).output().unwrap();
            assert_eq!(shown, String::from_utf8(output.stdout).unwrap(), "{}: $ weir {command}", page.path);
            count += 1;
        }
    }
    assert!(count >= 2, "{count}");
}

/// What `weir` prints as help for a command.
fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(command).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The names that begin the lines of a section of a help text.
fn names<'h>(help: &'h str, section: &str) -> impl Iterator<Item = &'h str> {
    let lines = help.split_once(section).map_or("", |(_, lines)| lines).lines().skip(1);
    lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next())
}

#[test]
fn every_command_and_every_long_option_is_there() {
    let page = Page::read("docs/reference/command-line.md");
    let top = help(&[]);
    for command in names(&top, "Commands:").filter(|name| *name != "help") {
        let text = help(&[command]);
        let below: Vec<_> = names(&text, "Commands:").filter(|name| *name != "help").collect();
        let commands: Vec<_> = below.iter().map(|name| vec![command, *name]).collect();
        for command in if commands.is_empty() { vec![vec![command]] } else { commands } {
            let name = command.join(" ");
            // The rows of a group of commands name the others after the first one.
            let is_there = page.text.contains(&format!("`weir {name}"))
                || command.get(1).is_some_and(|below| page.text.contains(&format!(", `{below}")));
            assert!(is_there, "{}: {name}", page.path);
            let text = help(&command);
            let options = text.split_whitespace().filter(|word| word.starts_with("--"));
            for option in options.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-')) {
                let is_known = ["--help", "--n"].contains(&option) || page.text.contains(option);
                assert!(is_known, "{}: {option} of {name}", page.path);
            }
        }
    }
}

/// The pages of recipes and their configurations.
fn recipes() -> Vec<(String, String, Page)> {
    let pages = pages::all().into_iter().filter(|page| page.path.starts_with("docs/recipes/"));
    let recipe = |page: Page| {
        let name = page.path.trim_start_matches("docs/recipes/").trim_end_matches(".md").to_owned();
        let block = page.blocks().into_iter().find(|block| block.language == "toml");
        let text = block.unwrap_or_else(|| panic!("{}: no configuration", page.path)).code;
        (name, text, page)
    };
    pages.map(recipe).collect()
}

#[test]
fn recipes_are_whole_and_have_no_warnings() {
    let folder = folder();
    for (_, text, page) in recipes() {
        let config = compile(&page.path, &text, folder.path());
        // Whether `/var/lib/weir` exists depends on the machine.
        let mut warnings = config.warnings.findings().0.into_iter().filter(|one| one.severity == "warning");
        assert!(warnings.all(|warning| warning.code == "folder"), "{}: {}", page.path, config.warnings);
    }
}

#[test]
fn examples_equal_their_recipes() {
    let recipes = recipes();
    for entry in std::fs::read_dir("config/examples").unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue; // of docs/fleet
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let recipe = recipes.iter().find(|(recipe, ..)| recipe == name);
        let (_, text, page) = recipe.unwrap_or_else(|| panic!("{name} has no recipe"));
        let expected = format!("# {} explains this configuration.\n\n{text}", page.path);
        assert!(std::fs::read_to_string(&path).unwrap() == expected, "{path:?} should be:\n{expected}");
    }
}

#[test]
fn examples_of_fleets_are_named_and_tested() {
    let [page, test] =
        ["docs/fleet/examples.md", "tests/e2e/fleet_examples.rs"].map(|file| std::fs::read_to_string(file).unwrap());
    for entry in std::fs::read_dir("config/examples/fleet").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(page.contains(&format!("`{name}.toml`")), "docs/fleet/examples.md does not name {name}");
        assert!(test.contains(&format!("\"{name}\"")), "no test starts {name}");
    }
}

#[test]
fn every_recipe_names_a_test_of_its_own() {
    let mut named = BTreeSet::new();
    for (_, _, page) in recipes() {
        let (_, rest) = page.text.split_once("\nTest: `").unwrap_or_else(|| panic!("{} names no test", page.path));
        let (test, rest) = rest.split_once('`').unwrap();
        let file = rest.split('`').nth(1).unwrap();
        let source = std::fs::read_to_string(file).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "{}: no test {test} in {file}", page.path);
        assert!(named.insert(test.to_owned()), "{}: {test} belongs to another recipe", page.path);
    }
    assert!(named.len() >= 25, "{}", named.len());
}
