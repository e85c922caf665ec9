//! Reads a configuration of `HAProxy` into sections of lines: words, quotes, escapes and comments.
//!
//! Not here: the meaning of a line.

use crate::import::draft::{Draft, SourceLine};
use crate::import::report::ImportError;

/// The words that begin a section.
const SECTIONS: &str = "global defaults frontend backend listen peers resolvers mailers userlist program http-errors ring \
    log-forward log-profile cache fcgi-app crt-store traces acme";

/// A line with its words; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigLine {
    pub(super) place: SourceLine,
    pub(super) words: Vec<String>,
}

impl ConfigLine {
    /// The word at `index`; empty without one.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }
}

/// A section with its lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) lines: Vec<ConfigLine>,
}

/// Reads the sections of the first file of `draft`. Lines before the first section are a `listen` without a name.
pub(super) fn read(draft: &Draft) -> Result<Vec<Section>, ImportError> {
    let mut sections: Vec<Section> = Vec::new();
    for (line, text) in (1..).zip(draft.text(0).lines()) {
        let place = SourceLine { file: 0, line };
        let words = words(text).map_err(|what| ImportError(format!("{}: {what}", draft.name_of(place))))?;
        match words.first() {
            None => {}
            Some(first) if SECTIONS.split_whitespace().any(|kind| kind == first) => {
                let name = words.get(1).cloned().unwrap_or_default();
                sections.push(Section { kind: first.clone(), name, lines: Vec::new() });
            }
            Some(_) => {
                if sections.is_empty() {
                    sections.push(Section { kind: "listen".to_owned(), ..Section::default() });
                }
                if let Some(section) = sections.last_mut() {
                    section.lines.push(ConfigLine { place, words });
                }
            }
        }
    }
    Ok(sections)
}

/// The words of a line without its comment.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                let next = chars.next().ok_or("a line ends with `\\`")?;
                word.get_or_insert_default().push(next);
            }
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) => break,
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quoted text has no end");
    }
    words.extend(word);
    Ok(words)
}
