//! A configuration in the making: blocks of TOML, and findings about the lines of the original.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::report::{Finding, ImportError, Imported, Kind};
use crate::config;
use crate::engine::policy::api_keys::KeyOwner;

/// The most bytes of a file, and the most files of one import.
const FILE_BYTES_MAX: u64 = 16 << 20;
const FILES_MAX: usize = 1000;
/// The most characters of an original line in a comment or in the report.
const SHOWN_CHARS_MAX: usize = 160;

/// A line of an original file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceLine {
    /// The index of the file.
    pub(super) file: usize,
    /// From 1; 0 for the file as a whole.
    pub(super) line: usize,
}

/// Lines of a table of TOML. Blocks with the same heading are one table unless it is in a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// As in `[server]` or `[[limit]]`.
    pub(super) heading: String,
    /// The original lines.
    pub(super) places: Vec<SourceLine>,
    /// The options.
    pub(super) lines: Vec<String>,
}

impl Block {
    pub(super) fn new(heading: impl Into<String>, places: impl IntoIterator<Item = SourceLine>) -> Self {
        Self { heading: heading.into(), places: places.into_iter().collect(), lines: Vec::new() }
    }

    /// Adds a line `name = value`. The value is TOML.
    pub(super) fn option(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.lines.push(format!("{name} = {value}"));
        self
    }
}

/// A configuration in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    files: Vec<(PathBuf, String)>,
    /// The lines of each file, as comments and the report show them.
    lines: Vec<Vec<String>>,
    blocks: Vec<Block>,
    findings: BTreeSet<(SourceLine, Kind, String)>,
    /// Owners of API keys, for a file of their own.
    pub(super) api_keys: Vec<KeyOwner>,
    /// The name of this file in the configuration, if the user has named it.
    pub(super) keys_file: Option<PathBuf>,
}

impl Draft {
    /// Reads a file. Returns its index.
    pub(super) fn read(&mut self, path: &Path) -> Result<usize, String> {
        if self.files.len() >= FILES_MAX {
            return Err(format!("there are more than {FILES_MAX} files"));
        }
        let len = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
        if len > FILE_BYTES_MAX {
            return Err(format!("the file has more than {} MiB", FILE_BYTES_MAX >> 20));
        }
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        Ok(self.add_file(path, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Adds a file with this text. Returns its index.
    pub(super) fn add_file(&mut self, path: &Path, text: String) -> usize {
        self.lines.push(text.lines().map(|line| shown(line.trim())).collect());
        self.files.push((path.to_owned(), text));
        self.files.len() - 1
    }

    pub(super) fn text(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |(_, text)| text)
    }

    /// Keeps a line with a secret out of comments and of the report.
    pub(super) fn hide(&mut self, SourceLine { file, line }: SourceLine) {
        let lines = self.lines.get_mut(file);
        if let Some(text) = lines.and_then(|lines| lines.get_mut(line.wrapping_sub(1))) {
            "(a line with a secret)".clone_into(text);
        }
    }

    /// The name of a place in messages.
    pub(super) fn name_of(&self, SourceLine { file, line }: SourceLine) -> String {
        let name = self.files.get(file).map_or_else(String::new, |(path, _)| shown(&path.display().to_string()));
        if line == 0 { name } else { format!("{name}:{line}") }
    }

    /// The text of a line as it is shown.
    fn line_text(&self, place: SourceLine) -> &str {
        let lines = self.lines.get(place.file);
        lines.and_then(|lines| lines.get(place.line.wrapping_sub(1))).map_or("", String::as_str)
    }

    /// The file of API keys in the configuration.
    pub(super) fn keys_file(&self) -> &Path {
        self.keys_file.as_deref().unwrap_or(Path::new("keys.toml"))
    }

    pub(super) fn push(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// Notes a line that is not translated exactly.
    pub(super) fn note(&mut self, kind: Kind, place: SourceLine, why: impl Into<String>) {
        self.findings.insert((place, kind, why.into()));
    }

    pub(super) fn left_out(&mut self, place: SourceLine, why: impl Into<String>) {
        self.note(Kind::LeftOut, place, why);
    }

    pub(super) fn differs(&mut self, place: SourceLine, why: impl Into<String>) {
        self.note(Kind::Differs, place, why);
    }

    /// The result. Leaves out blocks that are not valid.
    pub(super) fn finish(mut self, format: &str) -> Result<Imported, ImportError> {
        loop {
            self.complete();
            let (config, lines) = self.render(format);
            let Err(problems) = config::compile_with_empty(&config, "weir.toml", self.keys_file()) else {
                let findings = self.report();
                return Ok(Imported { config, findings, api_keys: self.api_keys });
            };
            let is_about = |index: usize, line: usize| lines.get(index).is_some_and(|lines| lines.contains(&line));
            let before = self.blocks.len();
            for finding in problems.findings().0 {
                let Some(line) = finding.line else { continue };
                let Some(index) = (0..before).find(|index| is_about(*index, line)) else { continue };
                let block = std::mem::take(&mut self.blocks[index]);
                for place in block.places {
                    self.left_out(place, format!("Weir does not accept it: {}", finding.title));
                }
            }
            self.blocks.retain(|block| !block.heading.is_empty());
            if self.blocks.len() == before {
                return Err(ImportError(format!("the translation is not valid: {problems}")));
            }
        }
    }

    /// Adds tables without which Weir has no service, or a limit of its own.
    fn complete(&mut self) {
        let has = |start: &str| self.blocks.iter().any(|block| block.heading.starts_with(start));
        let (has_service, has_limit) = (has("[upstream") || has("[grpc]"), has("[[limit]]"));
        if !has_service {
            self.left_out(SourceLine::default(), "there is no service to forward to; set `upstream.url`");
            self.push(Block::new("[upstream]", []).option("url", "\"http://127.0.0.1:9000\""));
        }
        if !has_limit {
            let none = Block::new("[[limit]]", []).option("name", "\"none\"").option("mode", "\"off\"");
            self.push(none.option("key", "[]").option("rate", "\"1/s\""));
        }
        let rank = |block: &Block| {
            let starts = ["[server]", "[headers]", "[upstream", "[grpc]", "[[route]]"];
            starts.iter().position(|start| block.heading.starts_with(start)).unwrap_or(starts.len())
        };
        self.blocks.sort_by_key(rank);
    }

    /// The text, and the lines of each block in it, from 1.
    fn render(&self, format: &str) -> (String, Vec<Range<usize>>) {
        let mut text = format!("# Written by `weir import {format}`; its report has what differs from the original.\n");
        let mut lines = Vec::new();
        let mut heading = "";
        let mut line = 2;
        for block in &self.blocks {
            let mut shown = String::new();
            let places: BTreeSet<_> = block.places.iter().filter(|place| place.line > 0).collect();
            let comment = |place: &&SourceLine| format!("# {}: {}\n", self.name_of(**place), self.line_text(**place));
            let comments: String = places.iter().map(comment).collect();
            if block.heading == heading && !heading.starts_with("[[") {
                shown.push_str(&comments);
            } else {
                // Writing to a text does not fail.
                let _ = write!(shown, "\n{comments}{}\n", block.heading);
            }
            heading = &block.heading;
            block.lines.iter().for_each(|line| shown.extend([line, "\n"]));
            let end = line + shown.matches('\n').count();
            lines.push(line..end);
            line = end;
            text.push_str(&shown);
        }
        (text, lines)
    }

    fn report(&self) -> Vec<Finding> {
        let finding = |(place, kind, why): &(SourceLine, Kind, String)| Finding {
            kind: *kind,
            file: self.name_of(SourceLine { line: 0, ..*place }),
            line: place.line,
            text: self.line_text(*place).to_owned(),
            why: why.clone(),
        };
        self.findings.iter().map(finding).collect()
    }
}

/// The start of a text without characters that a comment cannot have.
fn shown(text: &str) -> String {
    let shown = text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c });
    let end = if text.chars().nth(SHOWN_CHARS_MAX).is_some() { "..." } else { "" };
    shown.chain(end.chars()).collect()
}

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A list of strings of TOML.
pub(super) fn list<S: AsRef<str>>(texts: &[S]) -> String {
    let texts: Vec<_> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

/// A name that limits and upstreams may have.
pub(super) fn name(text: &str) -> String {
    let name = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' });
    let name: String = name.take(60).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// `name`, or a name that `used` does not have.
pub(super) fn unique(name: String, used: &mut BTreeSet<String>) -> String {
    let other = (2..).map(|count| format!("{name}-{count}"));
    let free = std::iter::once(name.clone()).chain(other).find(|name| !used.contains(name)).unwrap_or(name);
    used.insert(free.clone());
    free
}
