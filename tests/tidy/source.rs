//! A Rust file as the rules see it: a flat list of tokens with their lines, and what can be read off it.
//!
//! Tokens and not a syntax tree, so that code inside macros is seen too; comments are not tokens, and what
//! stands in a string is one.

use std::iter;
use std::str::FromStr;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A file of the crate.
pub struct Source {
    /// Relative to the crate, with `/`.
    pub path: String,
    /// As it stands on the disk.
    pub text: String,
    /// The module that it is: `["policy", "key"]` for `src/policy/key.rs`, empty for `src/lib.rs`.
    pub module: Vec<String>,
    /// All of it.
    pub tokens: Vec<Token>,
    /// Where its tests begin: the line of the first `#[cfg(test)]` on a module with a body.
    pub tests_from: Option<usize>,
}

/// An identifier, a literal, a bracket, `::` or another character of punctuation.
pub struct Token {
    /// As written.
    pub text: String,
    /// Its first line, from 1.
    pub line: usize,
    /// Its last.
    pub last_line: usize,
}

/// A path that starts at `crate`, `self` or `super`, as it reads from the crate root.
#[derive(Debug, PartialEq, Eq)]
pub struct CratePath {
    /// Where it ends.
    pub line: usize,
    /// Its segments; empty for the root itself.
    pub segments: Vec<String>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where its `fn` stands.
    pub line: usize,
    /// From `fn` to the closing brace, without lines inside a string: a table of cases is data.
    pub lines: usize,
}

impl Source {
    /// Reads a file; the error says why it is not Rust.
    pub fn parse(path: &str, text: &str) -> Result<Self, String> {
        let stream = TokenStream::from_str(text).map_err(|error| format!("{path}: {error}"))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let tests_from = tests_from(&tokens);
        Ok(Self { path: path.into(), text: text.into(), module: module_of(path), tokens, tests_from })
    }

    /// The lines at which the tokens `wanted` stand one after the other.
    pub fn find<'a>(&'a self, wanted: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
        (0..self.tokens.len()).filter(|&at| is(&self.tokens[at..], wanted)).map(|at| self.tokens[at].line)
    }

    /// The names of the modules in files of their own that are only built for tests.
    pub fn test_modules(&self) -> Vec<Vec<String>> {
        let of_name = |at: usize| {
            let at = after_visibility(&self.tokens, after_attributes(&self.tokens, at));
            let declared = text_at(&self.tokens, at) == "mod" && text_at(&self.tokens, at + 2) == ";";
            declared.then(|| self.module.iter().cloned().chain([text_at(&self.tokens, at + 1).into()]).collect())
        };
        (0..self.tokens.len()).filter(|&at| is(&self.tokens[at..], CFG_TEST)).filter_map(of_name).collect()
    }

    /// All paths into the crate, those in macros and in `use` groups too.
    pub fn crate_paths(&self) -> Vec<CratePath> {
        let mut found = Vec::new();
        let mut scope = Scope::new(&self.module);
        for at in 0..self.tokens.len() {
            scope.enter(&self.tokens, at);
            if self.starts_crate_path(at) {
                resolve(&self.tokens, at, scope.path.clone(), &mut found);
            }
        }
        found
    }

    fn starts_crate_path(&self, at: usize) -> bool {
        let before = |count: usize| at.checked_sub(count).map_or("", |at| self.tokens[at].text.as_str());
        let visibility = before(1) == "in" && before(2) == "(";
        ["crate", "self", "super"].contains(&text_at(&self.tokens, at))
            && (text_at(&self.tokens, at + 1) == "::" || before(1) == "use")
            && before(1) != "::"
            && !visibility
    }

    /// The lines at which the outside crate `name` is named.
    pub fn uses_of(&self, name: &str) -> Vec<usize> {
        let used = |at: usize| {
            let before = |count: usize| at.checked_sub(count).map_or("", |at| self.tokens[at].text.as_str());
            let starts_path = before(1) != "::" || !before(2).starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let whole = before(1) == "use" || (before(1) == "crate" && before(2) == "extern");
            text_at(&self.tokens, at) == name && starts_path && (whole || text_at(&self.tokens, at + 1) == "::")
        };
        (0..self.tokens.len()).filter(|&at| used(at)).map(|at| self.tokens[at].line).collect()
    }

    /// All functions with a body, nested ones and those in macros too.
    pub fn functions(&self) -> Vec<Function> {
        let function = |at: usize| {
            let named = text_at(&self.tokens, at) == "fn" && text_at(&self.tokens, at + 1) != "(";
            let body = if named { body_of(&self.tokens, at)? } else { return None };
            let tokens = &self.tokens[at..=body];
            let in_strings: usize = tokens.iter().map(|token| token.last_line - token.line).sum();
            let lines = self.tokens[body].line - self.tokens[at].line + 1 - in_strings;
            Some(Function { name: tokens[1].text.clone(), line: tokens[0].line, lines })
        };
        (0..self.tokens.len()).filter_map(function).collect()
    }
}

const CFG_TEST: &[&str] = &["#", "[", "cfg", "(", "test", ")", "]"];

/// The inline modules around a token, below the module of the file.
struct Scope {
    path: Vec<String>,
    /// For every open brace, whether it is a module's.
    braces: Vec<bool>,
}

impl Scope {
    fn new(module: &[String]) -> Self {
        Self { path: module.to_vec(), braces: Vec::new() }
    }

    /// Moves past the token at `at`.
    fn enter(&mut self, tokens: &[Token], at: usize) {
        match tokens[at].text.as_str() {
            "{" => {
                let of_module = at >= 2 && tokens[at - 2].text == "mod";
                if of_module {
                    self.path.push(tokens[at - 1].text.clone());
                }
                self.braces.push(of_module);
            }
            "}" if self.braces.pop() == Some(true) => {
                self.path.pop();
            }
            _ => {}
        }
    }
}

/// Follows a path from `at`, where `base` is the module that it is relative to. Gives where it ends.
fn resolve(tokens: &[Token], mut at: usize, mut base: Vec<String>, found: &mut Vec<CratePath>) -> usize {
    loop {
        match text_at(tokens, at) {
            "{" => return resolve_group(tokens, at + 1, &base, found),
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            segment => base.push(segment.into()),
        }
        let continues = text_at(tokens, at + 1) == "::" && !["<", "("].contains(&text_at(tokens, at + 2));
        if !continues {
            found.push(CratePath { line: tokens[at].line, segments: base });
            return at + 1;
        }
        at += 2;
    }
}

fn resolve_group(tokens: &[Token], mut at: usize, base: &[String], found: &mut Vec<CratePath>) -> usize {
    while at < tokens.len() && tokens[at].text != "}" {
        at = resolve(tokens, at, base.to_vec(), found);
        while !["", ",", "}"].contains(&text_at(tokens, at)) {
            at += 1;
        }
        at += usize::from(text_at(tokens, at) == ",");
    }
    at + 1
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    let mut colon = false;
    for tree in stream {
        let (start, end) = (tree.span().start().line, tree.span().end().line);
        let second_colon = colon;
        colon = false;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                let (first, last) = (group.span_open().start().line, group.span_close().end().line);
                out.extend(open.map(|text| Token { text: text.into(), line: first, last_line: first }));
                flatten(group.stream(), out);
                out.extend(close.map(|text| Token { text: text.into(), line: last, last_line: last }));
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && second_colon => {
                out.pop();
                out.push(Token { text: "::".into(), line: start, last_line: end });
            }
            tree => {
                colon = matches!(&tree, TokenTree::Punct(p) if p.as_char() == ':' && p.spacing() == Spacing::Joint);
                out.push(Token { text: tree.to_string(), line: start, last_line: end });
            }
        }
    }
}

fn brackets(delimiter: Delimiter) -> (Option<&'static str>, Option<&'static str>) {
    match delimiter {
        Delimiter::Parenthesis => (Some("("), Some(")")),
        Delimiter::Brace => (Some("{"), Some("}")),
        Delimiter::Bracket => (Some("["), Some("]")),
        Delimiter::None => (None, None),
    }
}

fn module_of(path: &str) -> Vec<String> {
    let inside = path.strip_prefix("src/").unwrap_or_default();
    let mut module: Vec<String> = inside.trim_end_matches(".rs").split('/').map(String::from).collect();
    let root = module.len() == 1 && matches!(module[0].as_str(), "lib" | "");
    if root || module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    module
}

fn tests_from(tokens: &[Token]) -> Option<usize> {
    let has_body = |at: usize| {
        let at = after_visibility(tokens, after_attributes(tokens, at));
        text_at(tokens, at) == "mod" && text_at(tokens, at + 2) == "{"
    };
    let at = (0..tokens.len()).find(|&at| is(&tokens[at..], CFG_TEST) && has_body(at))?;
    Some(tokens[at].line)
}

/// The first token at or after `at` that belongs to no attribute.
fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while text_at(tokens, at) == "#" {
        at = closing(tokens, at + 1) + 1;
    }
    at
}

/// The first token at or after `at` that belongs to no `pub` or `pub(...)`.
fn after_visibility(tokens: &[Token], at: usize) -> usize {
    match (text_at(tokens, at), text_at(tokens, at + 1)) {
        ("pub", "(") => closing(tokens, at + 1) + 1,
        ("pub", _) => at + 1,
        _ => at,
    }
}

/// Where the body of the function at `at` ends; `None` for one without a body.
fn body_of(tokens: &[Token], mut at: usize) -> Option<usize> {
    loop {
        match text_at(tokens, at) {
            "" | ";" | "}" | ")" | "]" => return None,
            "{" => return Some(closing(tokens, at)),
            "(" | "[" => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
}

/// Where the bracket that opens at `at` closes.
fn closing(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    iter::successors(Some(at), |at| Some(at + 1))
        .take_while(|&at| at < tokens.len())
        .find(|&at| {
            match tokens[at].text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            depth == 0
        })
        .unwrap_or(tokens.len() - 1)
}

fn is(tokens: &[Token], wanted: &[&str]) -> bool {
    tokens.len() >= wanted.len() && tokens.iter().zip(wanted).all(|(token, wanted)| token.text == *wanted)
}

fn text_at(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}
