//! The pages of the documentation, and the parts of Markdown that the tests look at.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A page of Markdown.
pub struct Page {
    /// Relative to the crate, such as `docs/guide/limits.md`.
    pub path: String,
    /// Its whole text.
    pub text: String,
}

/// A fenced block of code.
pub struct Block {
    /// The word behind the opening fence.
    pub language: String,
    /// The lines between the fences, each with its end.
    pub code: String,
}

impl Page {
    /// Reads one page.
    pub fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), text }
    }

    /// Its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let parts: Vec<&str> = self.text.split("\n```").collect();
        assert!(parts.len() % 2 == 1, "{}: a block does not end", self.path);
        let block = |part: &&str| {
            let (language, code) = part.split_once('\n').unwrap_or((part, ""));
            Block { language: language.to_owned(), code: format!("{code}\n") }
        };
        parts.iter().skip(1).step_by(2).map(block).collect()
    }

    /// Its lines outside of fenced blocks.
    pub fn prose(&self) -> impl Iterator<Item = &str> {
        let mut fenced = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.starts_with("```");
            fenced ^= is_fence;
            !fenced && !is_fence
        })
    }

    /// The texts between backticks of these lines.
    pub fn codes(&self) -> impl Iterator<Item = &str> {
        self.prose().flat_map(|line| line.split('`').skip(1).step_by(2))
    }

    /// The targets of its links, without those to other sites.
    pub fn links(&self) -> Vec<&str> {
        let targets = self.prose().flat_map(|line| line.split("](").skip(1));
        let targets = targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        targets.filter(|target| !target.contains("://")).collect()
    }

    /// The anchors of its headings, as GitHub and mdbook make them.
    pub fn anchors(&self) -> HashSet<String> {
        self.prose().filter(|line| line.starts_with('#')).map(anchor).collect()
    }

    /// The path of a file that this page links to, relative to the crate.
    pub fn resolve(&self, target: &str) -> PathBuf {
        let mut path = Path::new(&self.path).parent().unwrap_or(Path::new("")).to_path_buf();
        for part in Path::new(target).components() {
            match part {
                Component::ParentDir => assert!(path.pop(), "{}: {target} leaves the repository", self.path),
                part => path.push(part),
            }
        }
        path
    }

    /// The first paragraph below the title.
    pub fn opening(&self) -> &str {
        let below = self.text.split_once("\n\n").map_or("", |(_, below)| below);
        below.split("\n\n").next().unwrap_or("")
    }
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// README and all pages in `docs`, except the summary.
pub fn all() -> Vec<Page> {
    let paths = ["README.md".to_owned()].into_iter().chain(files("docs", ".md"));
    paths.filter(|path| path != "docs/SUMMARY.md").map(|path| Page::read(&path)).collect()
}

/// The files in a folder and its folders that end like this, in order.
pub fn files(folder: &str, end: &str) -> Vec<String> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let below = |path: PathBuf| {
        let name = path.to_str().unwrap().to_owned();
        if path.is_dir() { files(&name, end) } else { vec![name] }
    };
    entries.into_iter().flat_map(below).filter(|path| path.ends_with(end)).collect()
}
