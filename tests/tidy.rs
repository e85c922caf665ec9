//! What the compiler does not keep: floors, homes of outside crates, clocks, sizes and leftovers.
//!
//! The rules are the tables below; docs/decisions/structure.md gives the reasons. Not here: guards of the concurrent
//! map. Its types cannot be named outside `store` (a home, below), and clippy's `await-holding-invalid-types`
//! watches them inside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Nothing is reachable from outside a test.
#![allow(unreachable_pub)]

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use rules::{Violation, check_file, check_top_level};
use source::Source;

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut violations = check_top_level(&entries(root));
    let mut sources = Vec::new();
    for (path, text) in ["src", "tests", "benches"].iter().flat_map(|folder| files_of(root, folder, "rs")) {
        match Source::parse(&path, &text) {
            Ok(source) => sources.push(source),
            Err(message) => violations.push(Violation { path, line: 1, message }),
        }
    }
    assert!(sources.iter().any(|source| source.path == "src/lib.rs"), "{} is not the tree", root.display());
    let test_modules: HashSet<Vec<String>> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &sources {
        violations.extend(check_file(source, &test_modules));
    }
    let is_built = |source: &&Source| {
        let only_tests = (1..=source.module.len()).any(|depth| test_modules.contains(&source.module[..depth]));
        source.path.starts_with("src/") && source.path != "src/main.rs" && !only_tests
    };
    violations.extend(tree::check_tree(&sources.iter().filter(is_built).collect::<Vec<_>>()));
    report_sizes(root, &sources, &test_modules);
    violations.sort();
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "violations: {}\n{}", lines.len(), lines.join("\n"));
}

/// A file with fewer lines is small.
const SMALL_LINES: usize = 50;

/// Prints the size of the project. `cargo test --test tidy -- --nocapture` shows it.
fn report_sizes(root: &Path, sources: &[Source], test_modules: &HashSet<Vec<String>>) {
    let only_tests = |source: &Source| {
        (0..source.module.len()).any(|depth| test_modules.contains(&source.module[..=depth]))
            || !source.path.starts_with("src/")
    };
    let ours = || sources.iter().filter(|source| !only_tests(source));
    let sizes: Vec<usize> = ours().map(rules::code_lines).collect();
    let (files, lines) = (sizes.len(), sizes.iter().sum::<usize>());
    let small = sizes.iter().filter(|lines| **lines < SMALL_LINES).count();
    let all: usize = sources.iter().map(|source| source.text.lines().count()).sum();
    println!(
        "code: {lines} lines in {files} files, {small} of them below {SMALL_LINES} lines; tests and benches: {}",
        all - lines
    );
    let functions = median(ours().flat_map(Source::functions).map(|function| function.lines).collect());
    println!("median: file {} lines, function {functions} lines", median(sizes));
    let pages = files_of(root, "docs", "md").into_iter().map(|(_, text)| text);
    let pages = pages.chain([fs::read_to_string(root.join("README.md")).unwrap()]);
    let is_word = |token: &&str| token.contains(char::is_alphanumeric);
    println!("pages: {} words", pages.map(|text| text.split_whitespace().filter(is_word).count()).sum::<usize>());
    let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap();
    println!("crates: {} in Cargo.lock, with those of tests and other systems", lock.matches("[[package]]").count());
}

/// Crates that a build of Weir for this system compiles, beside Weir itself.
const DEPENDENCIES_MAX: usize = 280;

#[test]
fn dependencies_are_few() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = ["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let output = Command::new(cargo).args(tree).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    // A line is a name, a version and notes, and each crate may have several.
    let id = |line: &str| line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    let crates = tree.lines().map(id).collect::<HashSet<_>>().len() - 1;
    println!("dependencies: {crates}");
    assert!((100..=DEPENDENCIES_MAX).contains(&crates), "{crates} dependencies, at most {DEPENDENCIES_MAX}");
}

fn median(mut sizes: Vec<usize>) -> usize {
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(0)
}

/// The names directly in `folder`.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files below `folder` with this extension, as path from `root` and text.
fn files_of(root: &Path, folder: &str, extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in entries(&root.join(folder)) {
        let path = format!("{folder}/{name}");
        if root.join(&path).is_dir() {
            found.extend(files_of(root, &path, extension));
        } else if Path::new(&name).extension().is_some_and(|found| found == extension) {
            let text = fs::read_to_string(root.join(&path)).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// Checks one file whose text is `text`: each expectation is a line and a part of the message there.
#[track_caller]
fn check(path: &str, text: &str, expected: &[(usize, &str)]) {
    let source = Source::parse(path, text).unwrap();
    let test_modules = HashSet::from([vec!["engine".into(), "limit".into(), "cases".into()], vec!["testing".into()]]);
    let mut found = check_file(&source, &test_modules);
    found.sort();
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, (line, part))| found.line == *line && found.message.contains(part));
    assert!(same, "{path}:\n{text}\nexpected {expected:?}\nfound {found:#?}");
}

/// As [`check`], for a file that is right but for `code`, which begins on line 2.
#[track_caller]
fn check_code(path: &str, code: &str, expected: &[(usize, &str)]) {
    check(path, &format!("//! A file.\n{code}\n"), expected);
}

#[test]
fn imports_go_down() {
    check_code("src/engine/gate/mod.rs", "use crate::{base::time::Timestamp, engine::{limit::Quota, store}};", &[]);
    check_code(
        "src/engine/gate/hold.rs",
        "use crate::engine::gate::Verdict; use super::Gate; use super::explain::Why;",
        &[],
    );
    check_code(
        "src/engine/limit/quota.rs",
        "use crate::engine::policy::Limit;",
        &[(2, "limit (floor 3) may not use policy (floor 4)")],
    );
    check_code(
        "src/engine/limit/quota.rs",
        "\nuse crate::{\n    base::time,\n    engine::gate::{Gate, hold},\n};",
        &[(5, "gate"), (5, "gate")],
    );
    check_code("src/engine/limit/mod.rs", "use crate::base::telemetry::Metrics;", &[]);
    check_code(
        "src/transport/proxy/mod.rs",
        "use crate::{admin, config};",
        &[(2, "admin (floor 12)"), (2, "config (floor 13)")],
    );
    check_code("src/cli/run.rs", "use crate::app::App;", &[]);
    check_code("src/lib.rs", "pub mod base; pub use crate::app::run;", &[]);
    check_code("src/app.rs", "use crate::cli::Args;", &[(2, "app (floor 14) may not use cli (floor 15)")]);
}

#[test]
fn paths_count_wherever_they_stand() {
    check_code("src/engine/limit/quota.rs", "fn f(gate: &crate::engine::gate::Gate) {}", &[(2, "gate")]);
    check_code(
        "src/engine/limit/quota.rs",
        "fn f() { vec![g!(crate::engine::gate::Gate::<u8>::new())]; }",
        &[(2, "gate")],
    );
    check_code("src/engine/limit/quota.rs", "macro_rules! m { () => { $crate::engine::store::x() } }", &[(2, "store")]);
    check_code("src/engine/limit/quota.rs", "use super::super::store::Store;", &[(2, "store")]);
    check_code("src/engine/limit/mod.rs", "use self::super::store::Store;", &[(2, "store")]);
    check_code("src/engine/limit/mod.rs", "mod a { mod b { use super::super::super::store; } }", &[(2, "store")]);
    check_code("src/engine/limit/mod.rs", "mod a { mod b { use super::super::store; } }", &[]);
    check_code("src/engine/limit/mod.rs", "mod a {} fn f() { super::store::f() }", &[(2, "store")]);
    check_code(
        "src/engine/limit/mod.rs",
        "pub(in crate::engine::limit) fn f() {} // crate::engine::gate\n/// crate::engine::gate\nstruct S;",
        &[],
    );
    check_code("src/engine/limit/mod.rs", "const TEXT: &str = \"crate::engine::gate::Gate\";", &[]);
}

#[test]
fn every_module_stands_on_a_floor() {
    check_code("src/utils/mod.rs", "", &[(1, "utils stands on no floor")]);
    check_code("src/engine/gate/mod.rs", "use crate::utils::Pool;", &[(2, "utils stands on no floor")]);
    check_code("src/engine/gate/mod.rs", "use crate::*;", &[(2, "the crate root")]);
    check_code("src/engine/gate/mod.rs", "use super::*;", &[(2, "the storey engine")]);
    check_code("src/engine/gate/mod.rs", "use crate::engine; use crate::base::*;", &[(2, "base"), (2, "engine")]);
    check_code("src/gate/mod.rs", "", &[(1, "gate is a room of engine")]);
    check_code("src/base/gate/mod.rs", "", &[(1, "gate is a room of engine")]);
    check_code("src/transport/net/mod.rs", "use crate::engine::policy::Policy;", &[]);
    check_code("src/engine/gate/mod.rs", "use crate::transport::net::Socket;", &[(2, "net (floor 6)")]);
    check_code("src/engine/gate/mod.rs", "use crate as weir;", &[(2, "the crate root")]);
    check_code("src/engine/gate/mod.rs", "use crate::{self as weir, base::time};", &[(2, "the crate root")]);
    check_code("src/engine/gate/hold.rs", "use super::*;", &[]);
}

#[test]
fn only_tests_may_use_testing() {
    check_code("src/engine/gate/mod.rs", "use crate::testing::clock;", &[(2, "testing")]);
    check_code("src/engine/gate/mod.rs", "#[cfg(test)]\n#[allow(x)]\nmod tests { use crate::testing::clock; }", &[]);
    check_code(
        "src/engine/gate/mod.rs",
        "#[cfg(test)] mod tests { use crate::transport::proxy::x; }",
        &[(2, "proxy (floor 8)")],
    );
    check_code("src/engine/limit/cases.rs", "use crate::testing::clock;", &[]);
    check_code("src/testing/mod.rs", "use crate::transport::proxy::Settings;", &[]);
    let source =
        Source::parse("src/engine/limit/mod.rs", "#[cfg(test)]\n#[allow(x)]\npub(crate) mod cases;\nmod quota;")
            .unwrap();
    assert_eq!(source.test_modules(), [["engine", "limit", "cases"]]);
}

#[test]
fn outside_crates_have_homes() {
    check_code("src/admin/mod.rs", "use hyper::Request; use hyper_util::rt::TokioIo;", &[]);
    check_code("src/engine/gate/mod.rs", "use hyper::Request;", &[(2, "hyper belongs in")]);
    check_code("src/engine/gate/mod.rs", "fn f() { ::hyper_util::rt::x() }", &[(2, "hyper_util belongs in")]);
    check_code("src/engine/gate/mod.rs", "use {std::fmt, dashmap::DashMap};", &[(2, "dashmap belongs in")]);
    check_code("src/engine/gate/mod.rs", "use prometheus as p;", &[(2, "prometheus belongs in")]);
    check_code("src/engine/gate/mod.rs", "extern crate toml;", &[(2, "toml belongs in")]);
    check_code("src/engine/gate/mod.rs", "#[derive(clap::Parser)] struct Args;", &[(2, "clap belongs in")]);
    check_code(
        "src/engine/gate/mod.rs",
        "#[cfg(test)] mod tests { use jsonwebtoken::x; }",
        &[(2, "jsonwebtoken belongs in")],
    );
    check_code("src/main.rs", "use clap::Parser;", &[]);
    check_code("src/lib.rs", "use clap::Parser;", &[(2, "clap belongs in cli, main")]);
    check_code("src/main.rs", "use hyper::Request;", &[(2, "hyper belongs in")]);
    check_code("src/config/mod.rs", "fn f(toml: &str) { crate::config::toml::x(); g(toml) }", &[]);
    check_code("src/engine/gate/mod.rs", "fn f() { crate::engine::gate::toml::x() }", &[]);
    check_code("tests/e2e.rs", "use hyper::Request;", &[]);
}

#[test]
fn one_place_reads_clocks() {
    check_code("src/base/time.rs", "fn f() { Instant::now(); SystemTime::now(); }", &[]);
    check_code("src/engine/gate/mod.rs", "fn f() { Instant::now() }", &[(2, "Instant::now")]);
    check_code("src/engine/gate/mod.rs", "fn f() { std::time::SystemTime::now() }", &[(2, "SystemTime::now")]);
    check_code(
        "src/engine/gate/mod.rs",
        "fn f() { g.unwrap_or_else(\ntokio::time::Instant::now) }",
        &[(3, "Instant::now")],
    );
    check_code("tests/e2e.rs", "fn f() { Instant::now() }", &[]);
}

#[test]
fn only_tests_may_panic() {
    check_code("src/engine/gate/mod.rs", "#[allow(clippy::unwrap_used)]\nfn f() {}", &[(2, "unwrap_used: only tests")]);
    check_code(
        "src/engine/gate/mod.rs",
        "#[expect(clippy::expect_used,\nclippy::panic)]\nfn f() {}",
        &[(2, "expect_used"), (3, "panic")],
    );
    check_code("src/engine/gate/mod.rs", "#[cfg(test)]\n#[allow(clippy::panic)]\nmod tests {}", &[(3, "no exception")]);
    check_code("tests/e2e.rs", "#[allow(clippy::unwrap_used)]\nfn f() {}", &[]);
}

#[test]
fn files_and_functions_stay_small() {
    let lines = |count: usize| "\n".repeat(count - 1);
    check_code("src/engine/gate/mod.rs", &lines(399), &[]);
    check_code("src/engine/gate/mod.rs", &lines(400), &[(1, "401 lines")]);
    check_code("src/engine/gate/mod.rs", &format!("{}#[cfg(test)] mod tests {{{}}}", lines(400), lines(500)), &[]);
    check_code("src/engine/gate/mod.rs", &format!("#[cfg(test)] mod cases;\n{}", lines(400)), &[(1, "402 lines")]);
    check_code("src/engine/limit/cases.rs", &lines(500), &[]);
    check_code("src/engine/gate/mod.rs", &format!("fn f() {{{}}}", lines(70)), &[]);
    check_code("src/engine/gate/mod.rs", &format!("\nfn f() {{{}}}", lines(71)), &[(3, "f has 71 lines")]);
    check_code(
        "src/engine/gate/mod.rs",
        &format!("impl T {{ async fn f<const N: usize>(\n){}{{}} }}", lines(70)),
        &[(2, "f has 71")],
    );
    check_code("tests/e2e.rs", &format!("#[test] fn f() {{{}}}", lines(71)), &[(2, "f has 71 lines")]);
    check_code(
        "tests/e2e.rs",
        &format!("proptest! {{ #[test] fn f(x in 0..9) {{{}}} }}", lines(71)),
        &[(2, "f has 71")],
    );
    check_code("tests/e2e.rs", &format!("fn f() {{ check(\"{}\") }}", lines(200)), &[]);
    check_code(
        "src/engine/gate/mod.rs",
        &format!("trait T {{ fn f(); fn g(x: fn(u8)); }}\nmod m {{{}}}", lines(90)),
        &[],
    );
}

#[test]
fn files_say_what_they_are() {
    check("src/engine/gate/mod.rs", "use crate::base::time;\n", &[(1, "begins with //!")]);
    check("src/main.rs", "fn main() {}\n", &[(1, "begins with //!")]);
    check("tests/e2e/peer.rs", "fn f() {}\n", &[]);
}

#[test]
fn nothing_is_left_over() {
    check_code("src/engine/gate/mod.rs", "fn f() { todo!() }", &[(2, "todo!")]);
    check_code(
        "src/engine/gate/mod.rs",
        "fn f() { g(dbg!(1)); std::unimplemented!() }",
        &[(2, "dbg!"), (2, "unimplemented!")],
    );
    check_code("tests/e2e.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}", &[(3, "#[ignore")]);
    check_code("benches/decision.rs", concat!("/* FIX", "ME */"), &[(2, concat!("FIX", "ME"))]);
    check_code("src/engine/gate/mod.rs", concat!("\n// X", "XX: why?"), &[(3, concat!("X", "XX"))]);
    check_code("src/engine/gate/mod.rs", concat!("const A: &str = \"todo!() aX", "XX\"; fn ignore(dbg: u8) {}"), &[]);
}

#[test]
fn the_top_level_is_closed() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
    assert_eq!(check_top_level(&names(&[".ci", ".git", "Cargo.toml", "benches", "src", "target"])), []);
    let found = check_top_level(&names(&["Cargo.toml", "notes.txt", "utils"]));
    assert_eq!(found.iter().map(|found| found.path.as_str()).collect::<Vec<_>>(), ["notes.txt", "utils"]);
}

#[test]
fn what_is_not_rust_is_said() {
    assert!(Source::parse("src/a.rs", "fn f( {").err().is_some_and(|message| message.starts_with("src/a.rs")));
}

/// Checks the rules about several files and about names: each expectation is a path and a part of the message.
#[track_caller]
fn check_tree(files: &[(&str, &str)], expected: &[(&str, &str)]) {
    let parse = |(path, text): &(&str, &str)| Source::parse(path, text).unwrap();
    let engine = ("src/engine/mod.rs", "pub mod limit; pub mod gate;");
    let roots = [("src/lib.rs", ""), engine, ("src/engine/gate/mod.rs", "")];
    let roots = roots.iter().filter(|(path, _)| files.iter().all(|(other, _)| other != path));
    let sources: Vec<_> = roots.chain(files).map(parse).collect();
    let mut found = tree::check_tree(&sources.iter().collect::<Vec<_>>());
    found.sort();
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, (path, part))| found.path == *path && found.message.contains(part));
    assert!(same, "{files:?}\nexpected {expected:?}\nfound {found:#?}");
}

#[test]
fn files_import_no_file_that_imports_them() {
    let (a, b, parent) = ("src/engine/gate/a.rs", "src/engine/gate/b.rs", "src/engine/gate/mod.rs");
    check_tree(&[(a, "use super::b::B;"), (b, "use std::fmt;")], &[]);
    check_tree(&[(a, "use super::b::B;"), (b, "use crate::engine::gate::a::A;")], &[(a, "b.rs"), (b, "a.rs")]);
    check_tree(&[(a, "use super::b::B;"), (b, "#[cfg(test)] mod tests { use crate::engine::gate::a::A; }")], &[]);
    check_tree(&[(a, "use super::b; fn f() { b::g() }"), (b, "fn f() -> super::a::A {}")], &[(a, "b.rs"), (b, "a.rs")]);
    check_tree(&[(a, "use super::b;"), (b, "use super::a::A;")], &[]);
    let c = "src/engine/gate/c.rs";
    let through =
        [(a, "use super::b::B;"), (b, "use super::{c::{self, C}};"), (c, "use super::a as it; fn f(x: it::A) {}")];
    check_tree(&through, &[(a, "b.rs"), (b, "c.rs"), (c, "a.rs")]);
    // A parent may declare and re-export its children, and a child then import what another child defines.
    let exports = "mod a; mod b; pub use a::A; pub(crate) use b::{B as C};";
    check_tree(&[(parent, exports), (a, "use super::C;"), (b, "")], &[]);
    check_tree(
        &[(parent, exports), (a, "use super::C;"), (b, "use crate::engine::gate::A;")],
        &[(a, "b.rs"), (b, "a.rs")],
    );
    check_tree(&[(parent, exports), (a, "use super::Gate;"), (b, "")], &[]);
    for uses in ["mod a; use a::A; struct Gate;", "mod a; pub use a::A; struct Gate(A);", "mod a; struct Gate(a::A);"] {
        check_tree(&[(parent, uses), (a, "")], &[]);
        check_tree(&[(parent, uses), (a, "use super::Gate;")], &[(a, "mod.rs"), (parent, "a.rs")]);
        check_tree(&[(parent, uses), (a, "use super::*;")], &[(a, "mod.rs"), (parent, "a.rs")]);
    }
}

#[test]
fn a_name_is_one_type_in_a_module() {
    let (a, b) = ("src/engine/gate/a.rs", "src/engine/gate/b.rs");
    check_tree(&[(a, "struct One;"), (b, "enum One {}")], &[(b, "One: src/engine/gate/a.rs has")]);
    check_tree(&[(a, "pub trait One {}"), (b, "type One = u8;")], &[(b, "One")]);
    check_tree(&[(a, "struct One;"), ("src/engine/limit/b.rs", "struct One;")], &[]);
    // A public module is one of its own, and so are the files below it.
    let (parent, below) = ("src/engine/gate/mod.rs", "src/engine/gate/b/c.rs");
    check_tree(&[(parent, "mod a; pub mod b;"), (a, "struct One;"), (b, "struct One;")], &[]);
    check_tree(&[(parent, "mod a; pub mod b;"), (a, "struct One;"), (b, "mod c;"), (below, "struct One;")], &[]);
    check_tree(
        &[(parent, "mod a; mod b;"), (a, "struct One;"), (b, "mod c;"), (below, "struct One;")],
        &[(below, "One: src/engine/gate/a.rs has")],
    );
    check_tree(
        &[(a, "struct One; impl T for One { type Error = u8; }"), (b, "trait T { type Error; } enum Error {}")],
        &[],
    );
    check_tree(&[(a, "fn f() -> impl Iterator<Item = u8> { x } struct Item;"), (b, "struct One;")], &[]);
    check_tree(&[(a, "struct One;"), (b, "#[cfg(test)] mod tests { struct One; }")], &[]);
}

#[test]
fn retired_words_name_nothing() {
    let a = "src/engine/gate/a.rs";
    check_tree(&[(a, "struct Trunk; fn open_trunk() {}")], &[(a, "Trunk"), (a, "open_trunk")]);
    check_tree(&[(a, "struct KeptCharge; fn told() {}")], &[(a, "KeptCharge"), (a, "told")]);
    check_tree(&[("src/engine/gate/way_h1.rs", "")], &[("src/engine/gate/way_h1.rs", "way_h1")]);
    check_tree(&[(a, "struct Place; fn request_line() {} fn line() {}")], &[(a, "Place"), (a, "line")]);
    check_tree(&[(a, "fn always() {} fn in_place() {} fn keep_alive() {} struct Outcome;")], &[]);
    check_tree(
        &[("src/engine/policy/a.rs", "enum Stage {}"), ("src/transport/proxy/b.rs", "enum Stage {}")],
        &[("src/transport/proxy/b.rs", "Stage")],
    );
}

#[test]
fn docs_and_heads_of_functions() {
    let a = "src/engine/gate/a.rs";
    check_tree(&[(a, "/// The same, for two.\nfn f() {}")], &[(a, "The same")]);
    check_tree(&[(a, "/// Two of them.\n/// The same as one.\nfn f() {}\n// The same.\n")], &[]);
    check_tree(&[(a, "pub(in super::super) fn f() {} pub(in crate::engine::gate) fn g() {}")], &[(a, "super::super")]);
    check_tree(&[(a, "fn f(a: A, b: B, c: C, d: D, e: E, f: F, g: G) {}")], &[(a, "f has 7 parameters")]);
    check_tree(&[(a, "impl S { fn f(&mut self, a: A, b: HashMap<K, V>, c: C, d: D, e: E, f: F,) -> A; }")], &[]);
    check_tree(&[(a, "fn f<T: Fn(A, B) -> C>(a: impl Fn(A, B) -> C, b: (A, B), c: [A; 2], d: D, e: E, f: F) {}")], &[]);
}
