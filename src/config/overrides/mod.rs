//! Overrides set at run time: a file of their own, read as if what it says stood in the configuration.
//!
//! Its text is parsed with as much white space before it as the configuration has bytes, and one: so its spans lie
//! behind those of the configuration, and whatever is noted of a place says in which file it is. What does not fit is
//! left out, and the rest applies: it may have fitted once, and must not keep Weir from starting today.

mod blame;
mod edit;
mod run_time;
mod shown;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Error};

use super::compile::Config;
use super::compile::limit::{self, DEFAULT_LIMIT};
use super::diagnostics::{Behind, Diagnostics, Problem, did_you_mean, nearest};
use super::files::{is_same, read_file};
use super::reader::context::{Context, SetAtRunTime};
use super::reader::syntax;
use super::redact;
use super::sources::Sources;
use crate::admin::Override;
use blame::Blame;

pub use edit::{Changed, change};
pub use run_time::RunTime;

/// A configuration's own text, and what it is compiled with.
pub(in crate::config) struct Main<'a> {
    pub(in crate::config) text: &'a str,
    pub(in crate::config) document: &'a DeTable<'a>,
    pub(in crate::config) errors: &'a [Error],
    pub(in crate::config) name: &'a str,
    pub(in crate::config) dir: &'a Path,
    pub(in crate::config) env: &'a dyn Fn(&str) -> Option<String>,
    /// The file that it is in, if it is in one.
    pub(in crate::config) own: Option<&'a Path>,
    pub(in crate::config) sources: Sources,
}

/// What one compilation came to.
struct Attempt {
    /// With warnings, or why it failed.
    config: Result<(Config, Vec<Problem>), Vec<Problem>>,
    secrets: Vec<Range<usize>>,
    sources: Sources,
}

/// One override of the file.
struct Entry<'d> {
    limit: &'d str,
    key: &'d Spanned<DeString<'d>>,
    value: &'d Spanned<DeValue<'d>>,
    /// Why it is left out, if it is.
    why_not: Option<String>,
}

/// Compiles `main` with what was set at run time: what `given` says, or else what is in the file for it.
pub(in crate::config) fn compile(mut main: Main<'_>, given: Option<&str>) -> Result<Config, Diagnostics> {
    let Some(place) = file_of(&main) else {
        let Attempt { config, secrets, sources } = main.attempt(main.document, None);
        return match config {
            Ok((config, warnings)) => Ok(Config { warnings: main.warnings(&secrets, warnings), ..config }),
            Err(problems) => Err(main.diagnostics(&secrets, problems).read_from(sources)),
        };
    };
    let name = place.display().to_string();
    let read = match given {
        Some(text) => Ok(Some(text.as_bytes().to_vec())),
        None => read(&place),
    };
    main.sources.add(&place, read.as_ref().ok().and_then(Option::as_deref));
    let text = read
        .and_then(|bytes| String::from_utf8(bytes.unwrap_or_default()).map_err(|_| format!("`{name}` is not UTF-8")))
        .map(without_mark);
    let from = main.text.len() + 1;
    let padded = format!("{}{}", " ".repeat(from), text.as_deref().unwrap_or_default());
    let (table, errors) = DeTable::parse_recoverable(&padded);
    let mut left = Left::new(from, padded.len());
    match &text {
        Err(why) => left.problems.push(Problem::whole(format!("{why}: {AS_A_WHOLE}"))),
        Ok(_) => left.problems.extend(errors.first().map(|error| not_toml(error, from))),
    }
    if !left.problems.is_empty() {
        left.count = 1;
        left.secrets.push(from..padded.len());
    }
    let is_read = left.problems.is_empty();
    let none = DeTable::new();
    let table = if is_read { table.get_ref() } else { &none };
    let mut entries = left.entries(table);
    let with_default = with_default(main.document, &entries);
    left.without_limit(&with_default, &mut entries);
    let (config, warnings) = left.compile(&main, &with_default, &mut entries)?;
    let overrides = entries.iter().map(Entry::said).collect();
    let left_out_count = left.count + entries.iter().filter(|entry| entry.why_not.is_some()).count();
    let behind = Behind { name, source: left.shown(&padded, table), from };
    let warnings = main.warnings(&left.secrets, warnings).with(behind.clone());
    let left_out = (!left.problems.is_empty()).then(|| main.diagnostics(&left.secrets, left.problems).with(behind));
    let text = text.ok().filter(|_| is_read);
    let run_time = RunTime { file: Some(place), overrides, left_out, left_out_count, text };
    Ok(Config { run_time, warnings, ..config })
}

/// The file that `admin.overrides` names; nothing is read from what is none, which is noted elsewhere.
fn file_of(main: &Main<'_>) -> Option<PathBuf> {
    let path = main.document.get("admin")?.get_ref().as_table()?.get("overrides")?.get_ref().as_str()?;
    let place = main.dir.join(path);
    let is_own = main.own.is_some_and(|own| is_same(own, &place));
    (!path.is_empty() && !path.ends_with('/') && !is_own).then_some(place)
}

/// What is in the file; none if there is no such file.
fn read(place: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::metadata(place) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        _ => read_file(place).map(Some),
    }
}

/// What becomes of a file of which nothing can be read.
const AS_A_WHOLE: &str =
    "a Weir that starts has no override of it until this is mended; one that runs keeps what it has";

/// The same with blanks for a byte order mark, which is none behind other text.
fn without_mark(mut text: String) -> String {
    const MARK: &str = "\u{feff}";
    if text.starts_with(MARK) {
        text.replace_range(..MARK.len(), &" ".repeat(MARK.len()));
    }
    text
}

/// Says where the file is no TOML, and nothing of what is in it.
fn not_toml(error: &Error, from: usize) -> Problem {
    let span = error.span().filter(|span| span.start >= from).unwrap_or(from..from);
    Problem::new(span, format!("not valid TOML: {}", error.message())).help(AS_A_WHOLE.to_owned())
}

impl Main<'_> {
    fn attempt(&self, document: &DeTable<'_>, set: Option<SetAtRunTime>) -> Attempt {
        let context = Context::new(self.dir, self.env, self.own, set);
        context.sources.replace(self.sources.clone());
        let config = super::compile::config(&context, document);
        let (warnings, errors) = context.problems.take().into_iter().partition(Problem::is_warning);
        let problems = syntax::merge(self.text, self.errors, errors);
        let (secrets, sources) = (context.secrets.take(), context.sources.take());
        let config = match config {
            // Beside errors a warning may only be their echo, so it is kept for a valid configuration.
            Some(config) if problems.is_empty() => Ok((Config { sources: sources.clone(), ..config }, warnings)),
            // Whatever yields nothing says why; should it ever not, an empty list must not pass for success.
            _ if problems.is_empty() => Err(vec![Problem::new(0..0, "this configuration cannot be compiled")]),
            _ => Err(problems),
        };
        Attempt { config, secrets, sources }
    }

    /// Warnings about it, without its secrets. The text is copied only if there are any.
    fn warnings(&self, secrets: &[Range<usize>], warnings: Vec<Problem>) -> Diagnostics {
        if warnings.is_empty() { Diagnostics::default() } else { self.diagnostics(secrets, warnings) }
    }

    /// Problems with it, without its secrets.
    fn diagnostics(&self, secrets: &[Range<usize>], problems: Vec<Problem>) -> Diagnostics {
        let mut secrets = secrets.to_vec();
        secrets.extend(redact::userinfos(self.text));
        secrets.extend(redact::private_keys(self.text));
        secrets.extend(redact::words_of_identities(self.text, self.errors.is_empty()));
        if !self.errors.is_empty() {
            // What the parser dropped has not been read, so nobody has said what of it is secret.
            secrets.extend(redact::after_secrets(self.text));
        }
        Diagnostics::new(self.name, redact::strike_out(self.text, &secrets), problems)
    }
}

impl Entry<'_> {
    fn text(&self) -> &str {
        self.key.get_ref()
    }

    fn said(&self) -> Override {
        let to = shown::shown_json(edit::json_of(self.value.get_ref()));
        let why_not = self.why_not.as_deref().map(Into::into);
        Override { limit: self.limit.into(), text: self.text().into(), to, why_not }
    }
}

/// What is left out, and why.
struct Left {
    /// Where the file begins, and where it ends.
    from: usize,
    to: usize,
    problems: Vec<Problem>,
    secrets: Vec<Range<usize>>,
    /// What is none of the entries.
    count: usize,
}

impl Left {
    fn new(from: usize, to: usize) -> Self {
        Self { from, to, problems: Vec::new(), secrets: Vec::new(), count: 0 }
    }

    /// The overrides of all limits. What is no table of them is left out, and hidden: it may be a key.
    fn entries<'d>(&mut self, table: &'d DeTable<'d>) -> Vec<Entry<'d>> {
        let mut entries = Vec::new();
        for (limit, value) in table {
            if let DeValue::Table(overrides) = value.get_ref() {
                // What the keys of the limit are today says nothing of what they were when this was set.
                self.secrets.extend(overrides.keys().map(Spanned::span));
                let entry = |(key, value)| Entry { limit: limit.get_ref(), key, value, why_not: None };
                entries.extend(overrides.iter().map(entry));
                continue;
            }
            self.count += 1;
            self.secrets.extend([limit.span(), value.span()]);
            let problem = Problem::new(limit.span(), "expected a table of overrides for each limit");
            self.problems.push(problem.help("write it like `[NAME]`, with the name of a limit".to_owned()));
        }
        entries.sort_by_key(|entry| entry.key.span().start);
        entries
    }

    /// Leaves out those of limits that are not there.
    fn without_limit(&mut self, document: &DeTable<'_>, entries: &mut [Entry<'_>]) {
        let names: Vec<&str> = limits_of(document).filter_map(name_of).collect();
        let mut said: Option<&str> = None;
        for entry in entries.iter_mut().filter(|entry| !names.contains(&entry.limit)) {
            let title = format!("there is no limit `{}`", entry.limit);
            if said != Some(entry.limit) {
                let help = did_you_mean(nearest(entry.limit, names.iter().copied()));
                self.problems.push(Problem::new(entry.key.span(), &*title).help(help));
            }
            said = Some(entry.limit);
            entry.why_not = Some(title);
        }
    }

    /// Compiles with all that fit. If nothing is left and it still does not compile, that is not their fault.
    fn compile(
        &mut self,
        main: &Main<'_>,
        document: &DeTable<'_>,
        entries: &mut [Entry<'_>],
    ) -> Result<(Config, Vec<Problem>), Diagnostics> {
        let several: Vec<_> = places_with_several(document, entries);
        for round in 0.. {
            let set = SetAtRunTime { from: self.from, several: several.clone() };
            let Attempt { config, secrets, sources } = main.attempt(&merged(document, entries), Some(set));
            self.secrets.extend(secrets);
            let problems = match config {
                Ok(config) => return Ok(config),
                Err(problems) if entries.iter().all(|entry| entry.why_not.is_some()) => {
                    return Err(main.diagnostics(&self.secrets, problems).read_from(sources));
                }
                Err(problems) => problems,
            };
            self.problems.extend(Blame::of(problems, document, entries, round).put(entries));
        }
        Err(main.diagnostics(&self.secrets, Vec::new())) // there is no last number
    }

    /// The file's own text, which says `table`, without its secrets.
    fn shown(&self, padded: &str, table: &DeTable<'_>) -> String {
        let own = self.secrets.iter().filter(|span| span.start >= self.from && span.end <= self.to);
        let own: Vec<_> = own.map(|span| span.start - self.from..span.end - self.from).collect();
        redact::strike_out(&shown::shown(&padded[self.from..], self.from, table), &own)
    }
}

/// The tables of all limits.
fn limits_of<'t, 'd>(document: &'t DeTable<'d>) -> impl Iterator<Item = &'t DeTable<'d>> {
    let limits = document.get("limit").and_then(|value| value.get_ref().as_array());
    limits.into_iter().flat_map(|limits| limits.iter()).filter_map(|limit| limit.get_ref().as_table())
}

fn name_of<'t>(limit: &'t DeTable<'_>) -> Option<&'t str> {
    limit.get("name")?.get_ref().as_str()
}

/// The same with the limit that there is by default, if it is that and one of the entries is of it.
fn with_default<'d>(document: &DeTable<'d>, entries: &[Entry<'_>]) -> DeTable<'d> {
    let mut document = document.clone();
    let is_none = limit::is_none(document.get("limit"));
    if let (true, false, Ok(default)) = (is_none, entries.is_empty(), DeTable::parse(DEFAULT_LIMIT)) {
        for (key, value) in default.into_inner() {
            document.remove(&**key.get_ref());
            document.insert(key, value);
        }
    }
    document
}

/// The document with all entries that are not left out, each in the table of its limit.
fn merged<'d>(document: &DeTable<'d>, entries: &[Entry<'d>]) -> DeTable<'d> {
    let mut document = document.clone();
    let Some(DeValue::Array(limits)) = document.get_mut("limit").map(Spanned::as_mut) else { return document };
    let mut by_limit: HashMap<&str, Vec<&Entry<'d>>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.why_not.is_none()) {
        by_limit.entry(entry.limit).or_default().push(entry);
    }
    for limit in limits.iter_mut() {
        let DeValue::Table(limit) = limit.as_mut() else { continue };
        let Some(entries) = name_of(limit).and_then(|name| by_limit.remove(name)) else { continue };
        if limit.get("overrides").is_none() {
            let span = entries[0].key.span();
            limit.insert(
                Spanned::new(span.clone(), "overrides".into()),
                Spanned::new(span, DeValue::Table(DeTable::new())),
            );
        }
        // Anything but a table is the configuration's own problem.
        let Some(DeValue::Table(overrides)) = limit.get_mut("overrides").map(Spanned::as_mut) else { continue };
        for entry in entries {
            // An entry that is replaced would keep its key, and the place of that.
            overrides.remove(entry.text());
            overrides.insert(entry.key.clone(), entry.value.clone());
        }
    }
    document
}

/// Where the entries stand of limits that have several windows without them.
fn places_with_several(document: &DeTable<'_>, entries: &[Entry<'_>]) -> Vec<Range<usize>> {
    let limits = limits_of(document).filter(|limit| has_several(limit));
    let names: Vec<&str> = limits.filter_map(name_of).collect();
    entries.iter().filter(|entry| names.contains(&entry.limit)).map(|entry| entry.key.span()).collect()
}

/// Whether a limit has several windows by what the configuration says of it.
fn has_several(limit: &DeTable<'_>) -> bool {
    let is_several = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::Array(rates) => rates.len() > 1,
        DeValue::Table(table) => {
            table.get("rate").and_then(|rate| rate.get_ref().as_array()).is_some_and(|rates| rates.len() > 1)
        }
        _ => false,
    };
    let own = limit.get("rate").is_some_and(is_several);
    let special = ["plans", "overrides"].into_iter().filter_map(|key| limit.get(key)?.get_ref().as_table());
    own || special.flat_map(|table| table.values()).any(is_several)
}
