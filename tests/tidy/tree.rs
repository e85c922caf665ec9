//! Rules about several files at once, and about names: import cycles, types of one name, retired words.
//!
//! **An import cycle.** A file imports another if its code names an item that is defined there: in a `use`, by a path,
//! or through a module that a `use` names. A name that a file re-exports counts as the file that defines it. These do
//! not count: a `mod` line; a `pub use` from a file's own child modules whose names the file does not use itself; tests.
//! So a child may import its parent, or the parent its child, but not both.

use std::collections::{HashMap, HashSet};

use super::rules::{Violation, room};
use super::source::Source;

const PARAMETERS_MAX: usize = 6;

/// Words that stand in no name of a type, a function or a file. `docs/contributing/glossary.md` has the terms to use.
const RETIRED_WORDS: &[&str] = &[
    "asked",
    "beside",
    "crowd",
    "estate",
    "foreknown",
    "given",
    "giver",
    "hands",
    "heard",
    "kept",
    "said",
    "seat",
    "shut",
    "sought",
    "tally",
    "told",
    "took",
    "trunk",
    "way",
    "whos",
];

/// Words that are no such name by themselves.
const RETIRED_NAMES: &[&str] = &[
    "behind", "beyond", "case", "come", "held", "keep", "known", "left", "line", "lost", "means", "named", "passed",
    "place", "room", "stage", "what",
];

/// The stage of a limit is a term of `policy`.
const STAGE_HOME: &str = "policy";

/// Checks files of `src`. Outside tests, all files that are built are checked.
pub fn check_tree(sources: &[&Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    cycles(sources, &mut found);
    types_twice(sources, &mut found);
    for source in sources {
        retired_words(source, &mut found);
        the_same(source, &mut found);
        deep_visibilities(source, &mut found);
        many_parameters(source, &mut found);
    }
    found
}

fn violation(source: &Source, line: usize, message: String) -> Violation {
    Violation { path: source.path.clone(), line, message }
}

/// Which file defines what.
struct Tree<'s> {
    sources: &'s [&'s Source],
    /// Modules in files of their own, by index into `sources`.
    by_module: HashMap<&'s [String], usize>,
    /// For each file the names that its `use` lines bind, with their full paths.
    bound: Vec<HashMap<String, Vec<String>>>,
}

/// Where a path leads.
enum Target {
    /// An item of the file with this index.
    Item(usize),
    Module,
    /// Another crate.
    Outside,
}

impl<'s> Tree<'s> {
    fn new(sources: &'s [&'s Source]) -> Self {
        let by_module = sources.iter().enumerate().map(|(index, source)| (&*source.module, index)).collect();
        let mut tree = Self { sources, by_module, bound: Vec::new() };
        for (index, source) in sources.iter().enumerate() {
            let imports = source.imports().into_iter();
            let full = |path: Vec<String>| tree.full_path(index, path, &HashMap::new());
            tree.bound.push(imports.filter_map(|import| Some((import.name, full(import.path)?))).collect());
        }
        tree
    }

    /// A path from the crate root; none if it leads outside. `bound` are the names that `use` binds in the file.
    fn full_path(&self, file: usize, path: Vec<String>, bound: &HashMap<String, Vec<String>>) -> Option<Vec<String>> {
        let first = path.first()?;
        if first == "crate" {
            return Some(path.get(1..)?.to_vec());
        }
        let child: Vec<String> = self.sources[file].module.iter().chain([first]).cloned().collect();
        if self.by_module.contains_key(&*child) {
            return Some(child.into_iter().chain(path.into_iter().skip(1)).collect());
        }
        Some(bound.get(first)?.iter().cloned().chain(path.into_iter().skip(1)).collect())
    }

    fn resolve(&self, path: &[String], depth: usize) -> Target {
        let mut at = 0;
        while let Some(name) = path.get(at).filter(|_| self.by_module.contains_key(&path[..=at])) {
            assert!(!name.is_empty());
            at += 1;
        }
        let Some(name) = path.get(at) else { return Target::Module };
        let Some(file) = self.by_module.get(&path[..at]) else { return Target::Outside };
        match self.bound.get(*file).and_then(|bound| bound.get(name)) {
            Some(bound) if depth > 0 => self.resolve(&[bound, &path[at + 1..]].concat(), depth - 1),
            _ => Target::Item(*file),
        }
    }

    /// The files that a file imports, each with a line that does.
    fn imports_of(&self, file: usize) -> HashMap<usize, usize> {
        let source = self.sources[file];
        let mut imported = HashMap::new();
        let mut add = |path: &[String], line: usize, is_export: bool| {
            if let Target::Item(other) = self.resolve(path, 16) {
                let is_child = self.sources[other].module.starts_with(&source.module);
                if other != file && !(is_export && is_child) && !self.sources[other].module.is_empty() {
                    imported.entry(other).or_insert(line);
                }
            }
        };
        for import in source.imports() {
            let is_export = import.is_public && source.uses_of_name(&import.name) == 0;
            if let Some(path) = self.full_path(file, import.path, &HashMap::new()) {
                add(&path, import.line, is_export);
            }
        }
        for (path, line) in source.paths() {
            if let Some(path) = self.full_path(file, path, &self.bound[file]) {
                add(&path, line, false);
            }
        }
        imported
    }
}

fn cycles(sources: &[&Source], found: &mut Vec<Violation>) {
    let tree = Tree::new(sources);
    let imports: Vec<_> = (0..sources.len()).map(|file| tree.imports_of(file)).collect();
    let reached: Vec<HashSet<usize>> = (0..sources.len())
        .map(|file| {
            let mut reached = HashSet::new();
            let mut open: Vec<usize> = imports[file].keys().copied().collect();
            while let Some(next) = open.pop() {
                if reached.insert(next) {
                    open.extend(imports[next].keys());
                }
            }
            reached
        })
        .collect();
    for (file, source) in sources.iter().enumerate().filter(|(file, _)| reached[*file].contains(file)) {
        let mut others: Vec<_> = imports[file].iter().filter(|(other, _)| reached[**other].contains(&file)).collect();
        others.sort_unstable();
        let line = others.iter().map(|(_, line)| **line).min().unwrap_or(1);
        let others: Vec<_> =
            others.iter().map(|(other, line)| format!("{} (line {line})", sources[**other].path)).collect();
        let message = format!("an import cycle: imports {}, which lead back here", others.join(", "));
        found.push(violation(source, line, message));
    }
}

/// Types count once for each module as callers write it: a file that its parent does not declare by `pub mod` is a part of
/// the parent. So `limit::token_bucket::State` is not `limit::fixed_window::State`. Associated types do not count.
fn types_twice(sources: &[&Source], found: &mut Vec<Violation>) {
    let by_module: HashMap<&[String], &Source> = sources.iter().map(|source| (&*source.module, *source)).collect();
    let mut first: HashMap<(&[String], String), &str> = HashMap::new();
    for source in sources {
        let home = home(&source.module, &by_module);
        for (name, line) in source.types() {
            match first.get(&(home, name.clone())) {
                Some(other) => {
                    let message = format!("{name}: {other} has a type of this name too");
                    found.push(violation(source, line, message));
                }
                None => _ = first.insert((home, name), &source.path),
            }
        }
    }
}

/// The innermost public module that a module is, or is in.
fn home<'m>(module: &'m [String], by_module: &HashMap<&[String], &Source>) -> &'m [String] {
    let is_public = |len: &usize| {
        let (Some(name), Some(parent)) = (module.get(len - 1), by_module.get(&module[..len - 1])) else { return false };
        parent.find(&["pub", "mod", name]).next().is_some()
    };
    let len = (2..=module.len()).rev().find(is_public).unwrap_or(module.len().min(1));
    &module[..len]
}

fn retired_words(source: &Source, found: &mut Vec<Violation>) {
    let functions = source.function_heads().into_iter().map(|function| (function.name, function.line));
    let file = source.module.last().map(|name| (name.clone(), 1));
    for (name, line) in source.types().into_iter().chain(functions).chain(file) {
        let words: Vec<String> = words(&name).collect();
        let is_retired = words.iter().any(|word| RETIRED_WORDS.contains(&word.as_str()))
            || words.len() == 1
                && RETIRED_NAMES.contains(&words[0].as_str())
                && !(words[0] == "stage" && room(&source.module) == STAGE_HOME);
        if is_retired {
            let message = format!("{name} has a retired word; see docs/contributing/glossary.md");
            found.push(violation(source, line, message));
        }
    }
}

/// The words of a name in snake case or camel case, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = vec![String::new()];
    for letter in name.chars() {
        if (letter == '_' || letter.is_uppercase()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter != '_') {
            word.extend(letter.to_lowercase());
        }
    }
    words.into_iter()
}

fn the_same(source: &Source, found: &mut Vec<Violation>) {
    let mut is_inside = false;
    for (index, line) in source.text.lines().enumerate() {
        let doc = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        if !is_inside && doc.is_some_and(|doc| doc.trim_start().starts_with("The same")) {
            let message = "a doc comment says what the item is; it does not begin with `The same`".to_owned();
            found.push(violation(source, index + 1, message));
        }
        is_inside = doc.is_some_and(|doc| !doc.trim().is_empty());
    }
}

fn deep_visibilities(source: &Source, found: &mut Vec<Violation>) {
    for line in source.find(&["pub", "(", "in", "super", "::", "super"]) {
        let message = "no `pub(in super::super)`: write the path from `crate`".to_owned();
        found.push(violation(source, line, message));
    }
}

fn many_parameters(source: &Source, found: &mut Vec<Violation>) {
    for function in source.function_heads() {
        if function.parameters > PARAMETERS_MAX {
            let (name, count) = (function.name, function.parameters);
            let message = format!("{name} has {count} parameters, {PARAMETERS_MAX} are allowed");
            found.push(violation(source, function.line, message));
        }
    }
}
