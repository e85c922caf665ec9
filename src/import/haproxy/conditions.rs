//! Conditions of `HAProxy`: `if` and `unless` with named and anonymous ACLs, as alternatives of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;

use ipnet::IpNet;

use super::lines::ConfigLine;
use crate::import::limit::network;
use crate::import::path::Path;

/// The most alternatives of a condition.
const ALTERNATIVES_MAX: usize = 64;

/// A test of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// A counter is above a number.
    Above {
        counter: Counter,
        number: u64,
    },
    Paths(Vec<Path>),
    Methods(Vec<String>),
    Hosts(Vec<String>),
    /// The client is in one of these networks.
    From(Vec<IpNet>),
    /// The client is in none of these networks.
    NotFrom(Vec<IpNet>),
    /// Another test.
    Other(String),
}

/// A counter of a stick table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// As in `http_req_rate`.
    pub(super) name: String,
    /// The number of the tracker; `None` for the client's entry in a table.
    pub(super) tracker: Option<String>,
    /// The table, if it is named.
    pub(super) table: Option<String>,
}

/// The ACLs of a section by name.
#[derive(Debug, Default)]
pub(super) struct Acls<'l> {
    lines: BTreeMap<&'l str, Vec<&'l ConfigLine>>,
}

impl<'l> Acls<'l> {
    pub(super) fn add(&mut self, line: &'l ConfigLine) {
        self.lines.entry(line.word(1)).or_default().push(line);
    }

    /// The ACLs whose names are in none of `lines`.
    pub(super) fn unused<'a>(&'a self, lines: &'a [&'l ConfigLine]) -> impl Iterator<Item = &'l ConfigLine> + 'a {
        let is_name =
            |line: &ConfigLine, name: &str| line.words.iter().any(|word| word.trim_start_matches('!') == name);
        let is_used = move |name: &str| lines.iter().any(|line| line.word(0) != "acl" && is_name(line, name));
        self.lines.iter().filter(move |(name, _)| !is_used(name)).flat_map(|(_, lines)| lines.iter().copied())
    }

    /// The alternatives of the condition of `line`, each a list of tests that all hold; one without tests if it has no
    /// condition. Errs with the reason why it cannot be read.
    pub(super) fn of(&self, line: &ConfigLine) -> Result<Vec<Vec<Test>>, String> {
        let Some(at) = line.words.iter().position(|word| word == "if" || word == "unless") else {
            return Ok(vec![Vec::new()]);
        };
        let alternatives = self.alternatives(&line.words[at + 1..])?;
        if line.words[at] == "if" {
            return all(&alternatives);
        }
        // No alternative holds: of each, one test fails.
        let fails = alternatives.into_iter().map(|terms| {
            terms.into_iter().map(|mut term| {
                term.is_negated = !term.is_negated;
                vec![term]
            })
        });
        let mut unless = vec![Vec::new()];
        for alternative in fails {
            let alternative: Vec<_> = alternative.collect();
            let joined = unless.iter().flat_map(|start: &Vec<Term>| {
                alternative.iter().map(move |end| start.iter().chain(end).cloned().collect())
            });
            unless = joined.take(ALTERNATIVES_MAX + 1).collect();
        }
        all(&unless)
    }

    fn alternatives(&self, words: &[String]) -> Result<Vec<Vec<Term>>, String> {
        let mut alternatives = vec![vec![Vec::new()]];
        let mut words = words.iter();
        let mut is_negated = false;
        while let Some(word) = words.next() {
            let name = word.trim_start_matches('!');
            is_negated ^= (word.len() - name.len()) % 2 == 1;
            let tests = match name {
                "" => continue,
                "or" | "||" => {
                    alternatives.push(vec![Vec::new()]);
                    continue;
                }
                "{" => vec![words.by_ref().take_while(|word| *word != "}").cloned().collect()],
                name => self.definitions(name)?,
            };
            let any: Vec<Vec<Term>> = if is_negated {
                vec![tests.into_iter().map(|words| Term { is_negated, words }).collect()]
            } else {
                tests.into_iter().map(|words| vec![Term { is_negated, words }]).collect()
            };
            is_negated = false;
            let Some(last) = alternatives.last_mut() else { continue };
            let joined = last.iter().flat_map(|start| any.iter().map(move |end| [&start[..], end].concat()));
            *last = joined.take(ALTERNATIVES_MAX + 1).collect();
        }
        Ok(alternatives.concat())
    }

    fn definitions(&self, name: &str) -> Result<Vec<Vec<String>>, String> {
        let lines = self.lines.get(name).ok_or_else(|| format!("there is no ACL `{name}`"))?;
        Ok(lines.iter().map(|line| line.words.get(2..).unwrap_or_default().to_vec()).collect())
    }
}

#[derive(Clone, Debug)]
struct Term {
    is_negated: bool,
    words: Vec<String>,
}

fn all(alternatives: &[Vec<Term>]) -> Result<Vec<Vec<Test>>, String> {
    if alternatives.len() > ALTERNATIVES_MAX {
        return Err(format!("its condition has more than {ALTERNATIVES_MAX} alternatives"));
    }
    Ok(alternatives.iter().map(|terms| terms.iter().map(test).collect()).collect())
}

/// The meaning of a test with its fetch, flags and values.
fn test(Term { is_negated, words }: &Term) -> Test {
    let text = || {
        let sign = if *is_negated { "!" } else { "" };
        Test::Other(format!("{sign}{{ {} }}", words.join(" ")))
    };
    let fetch = words.first().map_or("", String::as_str);
    let values = &words[1.min(words.len())..];
    if let Some(counter) = counter(fetch) {
        return above(*is_negated, values).map_or_else(text, |number| Test::Above { counter, number });
    }
    let flags: BTreeSet<&str> = values.iter().map(String::as_str).take_while(|value| value.starts_with('-')).collect();
    if fetch == "src" && flags.is_empty() && !values.is_empty() {
        let networks: Option<Vec<_>> = values.iter().map(|value| network(value)).collect();
        return networks.map_or_else(text, if *is_negated { Test::NotFrom } else { Test::From });
    }
    if *is_negated || flags.iter().any(|flag| *flag != "-i") {
        return text();
    }
    let is_folded = !flags.is_empty();
    let values = &values[flags.len().min(values.len())..];
    let paths = |read: fn(&str) -> Result<Path, &'static str>| {
        let paths: Option<Vec<_>> = values.iter().map(|value| read(value).ok()).collect();
        paths.filter(|paths| !is_folded && !paths.is_empty()).map_or_else(text, Test::Paths)
    };
    match fetch {
        "path" => paths(Path::exact),
        "path_beg" => paths(Path::prefix),
        "method" if !values.is_empty() && !is_folded => Test::Methods(values.to_vec()),
        // HAProxy compares the field with its port.
        "hdr(host)" | "req.hdr(host)" if is_folded && !values.is_empty() => Test::Hosts(values.to_vec()),
        _ => text(),
    }
}

/// The number that a counter must be above for the test to hold.
fn above(is_negated: bool, values: &[String]) -> Option<u64> {
    let [operator, number] = values else { return None };
    let number: u64 = number.parse().ok()?;
    match (is_negated, operator.as_str()) {
        (false, "gt") | (true, "le") => Some(number),
        (false, "ge") | (true, "lt") => number.checked_sub(1),
        _ => None,
    }
}

/// `sc_NAME(0)`, `sc_NAME(0,table)`, `sc0_NAME`, `src_NAME(table)`.
fn counter(fetch: &str) -> Option<Counter> {
    let (name, arguments) = fetch.split_once('(').map_or((fetch, ""), |(name, rest)| (name, rest));
    if fetch.contains('(') && !arguments.ends_with(')') || arguments.contains("),") {
        return None;
    }
    let arguments = arguments.trim_end_matches(')');
    let table = |text: &str| text.is_empty().not().then(|| text.trim().to_owned());
    if let Some(name) = name.strip_prefix("src_") {
        return Some(Counter { name: name.to_owned(), tracker: None, table: table(arguments) });
    }
    let rest = name.strip_prefix("sc")?;
    if let Some(name) = rest.strip_prefix('_') {
        let (tracker, named) = arguments.split_once(',').unwrap_or((arguments, ""));
        return Some(Counter { name: name.to_owned(), tracker: Some(tracker.trim().to_owned()), table: table(named) });
    }
    let (tracker, name) = rest.split_once('_')?;
    let is_number = tracker.bytes().all(|byte| byte.is_ascii_digit());
    let counter = Counter { name: name.to_owned(), tracker: Some(tracker.to_owned()), table: table(arguments) };
    is_number.then_some(counter)
}
