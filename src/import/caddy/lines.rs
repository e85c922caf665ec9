//! Reads a Caddyfile into a tree of directives: words, quotes, comments, heredocs and blocks.
//!
//! Not here: the meaning of a directive, and snippets.

use crate::import::draft::{Draft, SourceLine};
use crate::import::report::ImportError;

/// The most blocks within each other.
const DEPTH_MAX: usize = 32;

/// A directive, a site or a matcher: its words, and what its block has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CaddyLine {
    pub(super) place: SourceLine,
    pub(super) words: Vec<String>,
    /// Whether it has a block.
    pub(super) has_block: bool,
    pub(super) block: Vec<CaddyLine>,
}

impl CaddyLine {
    /// The word at `index`; empty without one.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The first word.
    pub(super) fn name(&self) -> &str {
        self.word(0)
    }

    /// The words behind the first one.
    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Notes it, and not what its block has.
    pub(super) fn left_out(&self, why: impl Into<String>, draft: &mut Draft) {
        draft.left_out(self.place, why);
    }
}

enum CaddyToken {
    Word(String),
    Open,
    Close,
    EndOfLine,
}

/// Reads the first file of `draft`.
pub(super) fn read(draft: &Draft) -> Result<Vec<CaddyLine>, ImportError> {
    let mut lexer = CaddyLexer { rest: draft.text(0), place: SourceLine { file: 0, line: 1 } };
    match lexer.block(0) {
        Ok((directives, false)) => Ok(directives),
        Ok((_, true)) => Err(lexer.error("`}` without `{`", draft)),
        Err(what) => Err(lexer.error(what, draft)),
    }
}

struct CaddyLexer<'t> {
    rest: &'t str,
    place: SourceLine,
}

impl CaddyLexer<'_> {
    fn error(&self, what: &str, draft: &Draft) -> ImportError {
        ImportError(format!("{}: {what}", draft.name_of(self.place)))
    }

    /// Reads directives up to a `}` or the end of the file. Returns whether there is a `}`.
    fn block(&mut self, depth: usize) -> Result<(Vec<CaddyLine>, bool), &'static str> {
        if depth > DEPTH_MAX {
            return Err("blocks are too deep");
        }
        let (mut directives, mut next) = (Vec::new(), CaddyLine::default());
        loop {
            let place = self.place;
            let token = self.token()?;
            let is_empty = next.words.is_empty() && !next.has_block;
            match token {
                Some(CaddyToken::Word(word)) => {
                    if is_empty {
                        next.place = place;
                    }
                    next.words.push(word);
                    continue;
                }
                Some(CaddyToken::Open) => {
                    if is_empty {
                        next.place = place;
                    }
                    let (block, is_closed) = self.block(depth + 1)?;
                    if !is_closed {
                        return Err("a block has no end");
                    }
                    (next.has_block, next.block) = (true, block);
                }
                // A list of addresses goes on behind a comma.
                Some(CaddyToken::EndOfLine) if next.words.last().is_some_and(|word| word.ends_with(',')) => continue,
                Some(CaddyToken::Close) | None => {
                    directives.extend((!is_empty).then_some(next));
                    return Ok((directives, token.is_some()));
                }
                Some(CaddyToken::EndOfLine) => {}
            }
            if !next.words.is_empty() || next.has_block {
                directives.push(std::mem::take(&mut next));
            }
        }
    }

    /// The next token; `None` at the end of the file.
    fn token(&mut self) -> Result<Option<CaddyToken>, &'static str> {
        loop {
            let blank = self.rest.trim_start_matches([' ', '\t', '\r']);
            self.rest = blank;
            if let Some(rest) = blank.strip_prefix("\\\n") {
                self.take(blank.len() - rest.len());
            } else if blank.starts_with('#') {
                self.rest = &blank[blank.find('\n').unwrap_or(blank.len())..];
            } else {
                break;
            }
        }
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        Ok(Some(match first {
            '\n' => {
                self.take(1);
                CaddyToken::EndOfLine
            }
            '"' | '`' => CaddyToken::Word(self.quoted(first)?),
            _ => {
                let end = self.rest.find([' ', '\t', '\r', '\n']).unwrap_or(self.rest.len());
                let word = self.take(end);
                match (word, word.strip_prefix("<<")) {
                    ("{", _) => CaddyToken::Open,
                    ("}", _) => CaddyToken::Close,
                    (_, Some(marker)) if !marker.is_empty() => CaddyToken::Word(self.heredoc(marker)?),
                    _ => CaddyToken::Word(word.to_owned()),
                }
            }
        }))
    }

    /// The text in quotes, of which only `"` has escapes.
    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        self.take(1);
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.take(at + 1);
                    return Ok(text);
                }
                '\\' if quote == '"' => match chars.next() {
                    Some((_, '"')) => text.push('"'),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => break,
                },
                _ => text.push(c),
            }
        }
        Err("a text in quotes has no end")
    }

    /// The lines up to one with the marker alone.
    fn heredoc(&mut self, marker: &str) -> Result<String, &'static str> {
        let mut end = 0;
        for line in self.rest.split_inclusive('\n') {
            let is_end = line.trim() == marker;
            if is_end {
                return Ok(self.take(end + line.trim_end().len()).to_owned());
            }
            end += line.len();
        }
        Err("a heredoc has no end")
    }
}

impl<'t> CaddyLexer<'t> {
    /// The next bytes, which are read.
    fn take(&mut self, len: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(len);
        self.place.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }
}
