//! The pages for contributors describe this tree: files that they name exist, and lists are complete and sorted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::pages::{self, Page};

/// A page that is longer is no map.
const ARCHITECTURE_BYTES_MAX: usize = 12 * 1024;
/// The storeys of `src`.
const STOREYS: &[&str] = &["base", "engine", "transport", "fleet"];
/// Folders of the repository that pages name in full; other paths are below `src` or below one of its storeys.
const ROOTS: &[&str] = &["src/", "tests/", "benches/", "config/", "docs/", ".ci/", ".cargo/"];

/// Whether a text is the path of a source file or of a folder below `src`.
fn is_source_path(code: &str, modules: &[String]) -> bool {
    let is_path = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    let first = code.split('/').next().unwrap();
    let is_known = ROOTS.iter().any(|root| code.starts_with(root)) || modules.iter().any(|module| module == first);
    let is_rust = Path::new(code).extension().is_some_and(|extension| extension == "rs");
    is_path && code.contains('/') && (is_rust || is_known)
}

#[test]
fn every_source_path_exists() {
    let folders: Vec<_> =
        ["src".to_owned()].into_iter().chain(STOREYS.iter().map(|name| format!("src/{name}"))).collect();
    let modules: Vec<_> =
        folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap())).collect();
    let modules: Vec<_> = modules.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    let mut missing = Vec::new();
    for page in pages::all().into_iter().chain([Page::read("benches/README.md")]) {
        for code in page.codes().filter(|code| is_source_path(code, &modules)) {
            if !Path::new(code).exists() && !folders.iter().any(|folder| Path::new(folder).join(code).exists()) {
                missing.push(format!("{}: {code}", page.path));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The files that a reader opens on the walk: for a request with a local limit, and with a limit in Redis.
const LOCAL_FILES_MAX: usize = 12;
const REDIS_FILES_MAX: usize = 20;

#[test]
fn the_walk_is_short_and_each_step_calls_the_next() {
    let page = fs::read_to_string("docs/contributing/architecture.md").unwrap();
    let (_, walk) = page.split_once("\n## A walk\n").unwrap();
    let (walk, _) = walk.split_once("\n## ").unwrap();
    let (local, _) = walk.split_once("If Redis").unwrap();
    let steps = |part: &str| part.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).count();
    let (local, both) = (steps(local), steps(walk));
    assert!((2..=LOCAL_FILES_MAX).contains(&local) && (local + 1..=REDIS_FILES_MAX).contains(&both), "{local}, {both}");
    let mut before = String::new();
    for (index, line) in walk.lines().filter(|line| line.contains(". `")).enumerate() {
        let names: Vec<_> = line.split('`').skip(1).step_by(2).collect();
        let [path, function] = names[..] else { panic!("{line}") };
        assert!(line.starts_with(&format!("{}. ", index + 1)), "{line}");
        let found = STOREYS.iter().find_map(|storey| fs::read_to_string(format!("src/{storey}/{path}")).ok());
        let text = found.unwrap_or_else(|| panic!("{path} is in no storey"));
        assert!(text.contains(&format!("fn {function}")), "{line}: the file has no such function");
        let calls = [format!(".{function}("), format!(" {function}("), format!("::{function}(")];
        let is_called = before.is_empty() || calls.iter().any(|call| before.contains(call.as_str()));
        assert!(is_called, "{line}: no file before it calls the function");
        before.push_str(&text.lines().filter(|line| !line.contains("fn ")).collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn the_architecture_is_short() {
    let length = fs::metadata("docs/contributing/architecture.md").unwrap().len();
    assert!(length <= ARCHITECTURE_BYTES_MAX as u64, "{length} bytes");
}

#[test]
fn every_decision_gives_a_reason_and_every_topic_is_listed() {
    let index = fs::read_to_string("docs/decisions/index.md").unwrap();
    let summary = fs::read_to_string("docs/SUMMARY.md").unwrap();
    let pages = pages::files("docs/decisions", ".md");
    let mut decisions = BTreeSet::new();
    for path in pages.iter().filter(|path| !path.ends_with("index.md")) {
        let page = fs::read_to_string(path).unwrap();
        let title = page.lines().next().unwrap().strip_prefix("# ").unwrap();
        let file = Path::new(path).file_name().unwrap().to_str().unwrap();
        assert!(index.contains(&format!("- [{title}]({file})\n")), "{path}");
        assert!(summary.contains(&format!("  - [{title}](decisions/{file})\n")), "{path}");
        for section in page.split("\n## ").skip(1) {
            let (decision, text) = section.split_once("\n\n").unwrap();
            assert_eq!(text.matches("**Reason:**").count(), 1, "{path}: {decision}");
            assert!(text.find("\n\n**Reason:**") > Some(0), "{path}: {decision} begins with its reason");
            assert!(decisions.insert(decision.to_owned()), "{path}: {decision} is on another page too");
        }
    }
    assert!(decisions.len() >= 80, "{}", decisions.len());
    assert_eq!(index.matches("\n- [").count(), pages.len() - 1);
}

#[test]
fn the_glossary_is_sorted_and_has_each_term_once() {
    let glossary = fs::read_to_string("docs/contributing/glossary.md").unwrap();
    let mut terms = Vec::new();
    for section in glossary.split("\n## ").skip(1) {
        let rows = section.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**: "));
        let rows: Vec<_> = rows.map(|(term, _)| term.to_lowercase()).collect();
        assert!(!rows.is_empty(), "{}", section.lines().next().unwrap());
        assert!(rows.is_sorted(), "{}: {rows:?}", section.lines().next().unwrap());
        terms.extend(rows);
    }
    terms.sort();
    let repeated: Vec<_> = terms.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}

/// `proto/generate` writes the checksums of the interfaces and of the code that it makes of them.
#[test]
fn generated_code_is_that_of_the_interfaces() {
    let listed = fs::read_to_string("proto/generated/checksums").unwrap();
    let mut expected = Vec::new();
    let mut folders = vec![std::path::PathBuf::from("proto")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let shown = path.strip_prefix("proto").unwrap().display().to_string();
            if path.is_dir() && shown != "generate" {
                folders.push(path);
            } else if path.is_file() && shown != "generated/checksums" {
                expected.push(format!("{:08x}  {shown}", crc32fast::hash(&fs::read(&path).unwrap())));
            }
        }
    }
    let mut listed: Vec<_> = listed.lines().collect();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected, "run cargo run --manifest-path proto/generate/Cargo.toml");
}

/// The page about a new algorithm names each file that it touches: those that name `sub_window`, outside its folder.
#[test]
fn an_algorithm_touches_the_files_that_its_page_names() {
    let page = Page::read("docs/contributing/adding-an-algorithm.md");
    let named: Vec<&str> = page.codes().collect();
    let sources = [".rs", ".lua"].into_iter().flat_map(|end| pages::files("src", end));
    let others = sources.filter(|path| !path.contains("/tests") && !path.contains("/sub_window"));
    let touched: Vec<_> = others.filter(|path| fs::read_to_string(path).unwrap().contains("sub_window")).collect();
    assert!(touched.contains(&"src/engine/limit/algorithm.rs".to_owned()), "{touched:?}");
    let unnamed: Vec<_> = touched.iter().filter(|path| !named.iter().any(|code| path.ends_with(code))).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}
