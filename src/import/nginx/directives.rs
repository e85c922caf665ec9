//! Reads a configuration of nginx into a tree of directives: words, quotes, comments, blocks and includes.
//!
//! It accepts what `ngx_conf_file.c` of nginx accepts. Not here: the meaning of a directive.

use std::path::{Path, PathBuf};

use crate::import::draft::{Draft, SourceLine};
use crate::import::report::{ImportError, Kind};

/// The most blocks and includes within each other.
const DEPTH_MAX: usize = 32;

/// A directive with its words, and its block if it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) place: SourceLine,
    pub(super) name: String,
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
}

impl Directive {
    /// The word at `index`; empty without one.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub(super) fn directives(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Reads the directives of the first file of `draft` and of the files that it includes. A file that cannot be included
/// is noted.
pub(super) fn read(path: &Path, draft: &mut Draft) -> Result<Vec<Directive>, ImportError> {
    file_directives(0, path.parent().unwrap_or(Path::new("")), 0, draft)
}

fn file_directives(file: usize, folder: &Path, depth: usize, draft: &mut Draft) -> Result<Vec<Directive>, ImportError> {
    let text = draft.text(file).to_owned();
    let mut lexer = Lexer { rest: &text, place: SourceLine { file, line: 1 }, folder };
    match lexer.block(depth, draft)? {
        (directives, false) => Ok(directives),
        (_, true) => Err(lexer.error("`}` without `{`", draft)),
    }
}

struct Lexer<'t> {
    rest: &'t str,
    place: SourceLine,
    /// The folder of relative includes.
    folder: &'t Path,
}

impl Lexer<'_> {
    fn error(&self, what: &str, draft: &Draft) -> ImportError {
        ImportError(format!("{}: {what}", draft.name_of(self.place)))
    }

    /// Reads directives up to a `}` or the end of the file. Returns whether there is a `}`.
    fn block(&mut self, depth: usize, draft: &mut Draft) -> Result<(Vec<Directive>, bool), ImportError> {
        if depth > DEPTH_MAX {
            return Err(self.error("blocks or includes are too deep", draft));
        }
        let mut directives = Vec::new();
        let mut next = Directive::default();
        loop {
            match self.token(draft)? {
                Some(Token::Word(word)) if next.place.line == 0 => {
                    next = Directive { place: self.place, name: word, ..Directive::default() };
                }
                Some(Token::Word(word)) => next.words.push(word),
                Some(Token::End | Token::Open) if next.place.line == 0 => {
                    return Err(self.error("a directive has no name", draft));
                }
                Some(Token::End) if next.name == "include" => {
                    directives.extend(self.included(&std::mem::take(&mut next), depth, draft)?);
                }
                Some(Token::End) => directives.push(std::mem::take(&mut next)),
                Some(Token::Open) => {
                    let (block, has_end) = self.block(depth + 1, draft)?;
                    if !has_end {
                        return Err(self.error(&format!("the block of `{}` has no end", next.name), draft));
                    }
                    directives.push(Directive { block: Some(block), ..std::mem::take(&mut next) });
                }
                Some(Token::Close) | None if next.place.line > 0 => {
                    return Err(self.error(&format!("`{}` does not end with `;`", next.name), draft));
                }
                end => return Ok((directives, end.is_some())),
            }
        }
    }

    fn token(&mut self, draft: &Draft) -> Result<Option<Token>, ImportError> {
        loop {
            let Some(first) = self.rest.chars().next() else { return Ok(None) };
            match first {
                '\n' => self.place.line += 1,
                '#' => {
                    self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
                    continue;
                }
                c if c.is_ascii_whitespace() => {}
                '{' | '}' | ';' => {
                    self.rest = &self.rest[1..];
                    return Ok(Some(match first {
                        '{' => Token::Open,
                        '}' => Token::Close,
                        _ => Token::End,
                    }));
                }
                _ => return self.word(draft).map(|word| Some(Token::Word(word))),
            }
            self.rest = &self.rest[first.len_utf8()..];
        }
    }

    /// Reads a word, which does not begin with white space.
    fn word(&mut self, draft: &Draft) -> Result<String, ImportError> {
        let quote = self.rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let (mut word, mut line_ends) = (String::new(), 0);
        let mut chars = self.rest.char_indices().skip(usize::from(quote.is_some())).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 't')) => word.push('\t'),
                    Some((_, 'r')) => word.push('\r'),
                    Some((_, 'n')) => word.push('\n'),
                    Some((_, next @ ('"' | '\'' | '\\'))) => word.push(next),
                    Some((_, next)) => word.extend(['\\', next]),
                    None => word.push('\\'),
                },
                c if Some(c) == quote => {
                    self.rest = &self.rest[at + 1..];
                    self.place.line += line_ends;
                    return Ok(word);
                }
                '$' if chars.peek().is_some_and(|(_, next)| *next == '{') => {
                    word.extend(chars.next().map(|_| "${"));
                }
                '}' if word.rfind("${").is_some_and(|start| !word[start..].contains('}')) => word.push('}'),
                ' ' | '\t' | '\r' | '\n' | ';' | '{' | '}' if quote.is_none() => {
                    self.rest = &self.rest[at..];
                    return Ok(word);
                }
                c => {
                    line_ends += usize::from(c == '\n');
                    word.push(c);
                }
            }
        }
        if quote.is_some() {
            return Err(self.error("a quoted text has no end", draft));
        }
        self.rest = "";
        Ok(word)
    }

    /// The directives of the files that `include` names.
    fn included(&self, include: &Directive, depth: usize, draft: &mut Draft) -> Result<Vec<Directive>, ImportError> {
        let name = include.word(0);
        if name.ends_with("mime.types") {
            draft.note(Kind::NotNeeded, include.place, "it changes no decision about requests");
            return Ok(Vec::new());
        }
        let mut directives = Vec::new();
        let paths = matching(&self.folder.join(name)).unwrap_or_else(|error| {
            draft.left_out(include.place, format!("it cannot be read: {error}"));
            Vec::new()
        });
        for path in paths {
            match draft.read(&path) {
                Ok(file) => directives.extend(file_directives(file, self.folder, depth + 1, draft)?),
                Err(error) => draft.left_out(include.place, format!("it cannot be read: {error}")),
            }
        }
        Ok(directives)
    }
}

/// The files of a pattern whose last part may have `*`, in order.
fn matching(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let wanted = pattern.file_name().unwrap_or_default().to_string_lossy();
    if wanted.contains(['?', '[']) {
        return Err(std::io::Error::other("`weir import` knows no wildcard but `*`"));
    }
    let Some(folder) = pattern.parent().filter(|_| wanted.contains('*')) else {
        return Ok(vec![pattern.to_owned()]);
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if fits(&name, &wanted) && !name.starts_with('.') && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a name fits a pattern, in which `*` stands for any text.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(start) else { return false };
    let (pieces, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first place of each piece leaves the most for the pieces behind it.
    let left = pieces.split('*').try_fold(name, |name, piece| Some(name.split_once(piece)?.1));
    left.is_some_and(|left| left.ends_with(end))
}
