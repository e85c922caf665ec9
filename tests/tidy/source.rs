//! A Rust file as the rules see it: a flat list of tokens with their lines, and what can be read off it.
//!
//! Tokens and not a syntax tree, so that code inside macros is seen too; comments are not tokens, and what
//! stands in a string is one.

use std::iter;
use std::str::FromStr;

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

/// A file of the crate.
pub struct Source {
    /// Relative to the crate, with `/`.
    pub path: String,
    /// As it stands on the disk.
    pub text: String,
    /// The module that it is: `["policy", "key"]` for `src/engine/policy/key.rs`, empty for `src/lib.rs`.
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

/// A name that a `use` binds.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// Where it stands.
    pub line: usize,
    /// The name; `*` for all.
    pub name: String,
    /// The path. One that begins with `self` or `super` begins with `crate` here; another is as written.
    pub path: Vec<String>,
    /// Whether it is re-exported, by `pub` or `pub(...)`.
    pub is_public: bool,
}

/// The head of a function.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionHead {
    pub name: String,
    pub line: usize,
    /// Without `self`.
    pub parameters: usize,
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

    /// The tokens before the tests.
    fn code(&self) -> &[Token] {
        let tests = self.tests_from.unwrap_or(usize::MAX);
        &self.tokens[..self.tokens.partition_point(|token| token.line < tests)]
    }

    /// All names that `use` binds outside tests, those of its own inline modules too.
    pub fn imports(&self) -> Vec<Import> {
        let tokens = self.code();
        let mut found = Vec::new();
        let mut scope = Scope::new(&self.module);
        for at in 0..tokens.len() {
            scope.enter(tokens, at);
            if tokens[at].text == "use" {
                let before = at.checked_sub(1).map_or("", |at| tokens[at].text.as_str());
                let is_public = before == "pub" || before == ")";
                add_imports(tokens, at + 1, (Vec::new(), is_public), &scope.path, &mut found);
            }
        }
        found
    }

    /// All paths outside `use` and tests, with their lines. One that begins with `self` or `super` begins with `crate`
    /// here; one that begins with another name is as written.
    pub fn paths(&self) -> Vec<(Vec<String>, usize)> {
        let tokens = self.code();
        let mut found = Vec::new();
        let mut scope = Scope::new(&self.module);
        let mut at = 0;
        while at < tokens.len() {
            scope.enter(tokens, at);
            if tokens[at].text == "use" {
                at += tokens[at..].iter().position(|token| token.text == ";").unwrap_or(0);
            }
            let before = at.checked_sub(1).map_or("", |at| tokens[at].text.as_str());
            let starts = is_name(text_at(tokens, at)) && text_at(tokens, at + 1) == "::";
            if starts && before != "::" && before != "in" {
                let mut path = vec![tokens[at].text.clone()];
                let mut next = at + 1;
                while text_at(tokens, next) == "::" && is_name(text_at(tokens, next + 1)) {
                    path.push(tokens[next + 1].text.clone());
                    next += 2;
                }
                found.push((from_crate(path, &scope.path), tokens[at].line));
            }
            at += 1;
        }
        found
    }

    /// How often a name stands outside `use`, tests and longer paths.
    pub fn uses_of_name(&self, name: &str) -> usize {
        let tokens = self.code();
        let mut count = 0;
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at].text == "use" {
                at += tokens[at..].iter().position(|token| token.text == ";").unwrap_or(0);
            }
            let before = at.checked_sub(1).map_or("", |at| tokens[at].text.as_str());
            count += usize::from(tokens[at].text == name && before != "::" && before != ".");
            at += 1;
        }
        count
    }

    /// The types that are declared outside tests, with their lines. Associated types are not among them.
    pub fn types(&self) -> Vec<(String, usize)> {
        let tokens = self.code();
        let mut found = Vec::new();
        // For every open brace, whether it is of an `impl` or a `trait`.
        let mut braces: Vec<bool> = Vec::new();
        let mut is_head = false;
        for at in 0..tokens.len() {
            match tokens[at].text.as_str() {
                "impl" | "trait" if braces.last() != Some(&true) && text_at(tokens, at + 1) != "::" => {
                    let before = at.checked_sub(1).map_or("", |at| tokens[at].text.as_str());
                    is_head |= ["", "}", ";", "]", "pub", ")", "unsafe"].contains(&before);
                }
                "{" => braces.push(std::mem::take(&mut is_head)),
                ";" => is_head = false,
                "}" => drop(braces.pop()),
                _ => {}
            }
            let is_declared = match tokens[at].text.as_str() {
                "struct" | "enum" | "trait" => true,
                "type" => braces.last() != Some(&true),
                "union" => text_at(tokens, at + 2) == "{",
                _ => false,
            };
            let name = text_at(tokens, at + 1);
            if is_declared && name.starts_with(char::is_uppercase) {
                found.push((name.to_owned(), tokens[at].line));
            }
        }
        found
    }

    /// All functions outside tests, those without a body too.
    pub fn function_heads(&self) -> Vec<FunctionHead> {
        let tokens = self.code();
        let head = |at: usize| {
            let name = text_at(tokens, at + 1);
            if tokens[at].text != "fn" || !is_name(name) {
                return None;
            }
            let open = (at..tokens.len()).find(|&at| tokens[at].text == "(")?;
            let parameters = parameters(&tokens[open + 1..closing(tokens, open)]);
            Some(FunctionHead { name: name.to_owned(), line: tokens[at].line, parameters })
        };
        (0..tokens.len()).filter_map(head).collect()
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
            starts_path && (whole || text_at(&self.tokens, at + 1) == "::")
        };
        if !self.text.contains(name) {
            return Vec::new();
        }
        let named = self.tokens.iter().enumerate().filter(|(_, token)| token.text == name);
        named.filter(|(at, _)| used(*at)).map(|(_, token)| token.line).collect()
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

/// Adds the names that a `use` binds from `at` on; `before` is the path so far, and whether it is public. Gives the end.
fn add_imports(
    tokens: &[Token],
    mut at: usize,
    before: (Vec<String>, bool),
    module: &[String],
    found: &mut Vec<Import>,
) -> usize {
    let (mut path, is_public) = before;
    loop {
        match text_at(tokens, at) {
            "{" => {
                at += 1;
                while !["", "}"].contains(&text_at(tokens, at)) {
                    at = add_imports(tokens, at, (path.clone(), is_public), module, found);
                    at += usize::from(text_at(tokens, at) == ",");
                }
                return at + 1;
            }
            "::" => at += 1,
            "self" if !path.is_empty() => at += 1, // `{self}` binds the path so far
            name if is_name(name) || name == "*" => {
                path.push(name.to_owned());
                at += 1;
            }
            _ => break,
        }
        if text_at(tokens, at) == "as" {
            let name = text_at(tokens, at + 1).to_owned();
            let line = tokens[at].line;
            found.push(Import { line, name, path: from_crate(path, module), is_public });
            return at + 2;
        }
    }
    let line = tokens.get(at).map_or(0, |token| token.line);
    let name = path.last().cloned().unwrap_or_default();
    found.push(Import { line, name, path: from_crate(path, module), is_public });
    at
}

/// A path that begins with `crate` if it began with `self` or `super` within `module`.
fn from_crate(path: Vec<String>, module: &[String]) -> Vec<String> {
    if !path.first().is_some_and(|first| first == "self" || first == "super") {
        return path;
    }
    let supers = path.iter().take_while(|name| *name == "self" || *name == "super");
    let up = supers.clone().filter(|name| *name == "super").count();
    let rest = path.iter().skip(supers.count());
    let base = module[..module.len().saturating_sub(up)].iter();
    ["crate".to_owned()].iter().chain(base).chain(rest).cloned().collect()
}

/// The number of parameters in `tokens`, without `self`.
fn parameters(tokens: &[Token]) -> usize {
    let (mut depth, mut count, mut is_empty, mut has_self) = (0_i32, 0, true, false);
    for (at, token) in tokens.iter().enumerate() {
        let arrow = at > 0 && tokens[at - 1].text == "-";
        match token.text.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ">" if !arrow => depth -= 1,
            "self" if depth == 0 && count == 0 => has_self = true,
            "," if depth == 0 => {
                count += usize::from(!is_empty);
                is_empty = true;
                continue;
            }
            _ => {}
        }
        is_empty = false;
    }
    count + usize::from(!is_empty) - usize::from(has_self)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    let mut colon = false;
    for tree in stream {
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
                out.push(token("::".into(), punct.span()));
            }
            tree => {
                colon = matches!(&tree, TokenTree::Punct(p) if p.as_char() == ':' && p.spacing() == Spacing::Joint);
                out.push(token(tree.to_string(), tree.span()));
            }
        }
    }
}

fn token(text: String, span: Span) -> Token {
    Token { text, line: span.start().line, last_line: span.end().line }
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
