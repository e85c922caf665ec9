//! The file of overrides that operators set at run time: a table for each limit, as `overrides` of that limit.
//!
//! An override that does not fit its limit does not apply, and has a reason. The others apply: an override that became
//! invalid must not prevent a start. `compile::overrides` decides whether an override fits.

pub(in crate::config) mod edit;
mod run_time;
mod shown;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Error};

use super::diagnostics::{Diagnostics, Problem, did_you_mean, nearest};
use super::files::read_file;
use super::reader::context::Context;
use super::redact::mask;
use crate::policy::overrides::Override;

pub use run_time::RunTimeOverrides;

/// The file's content.
pub(in crate::config) struct OverrideFile {
    pub(in crate::config) path: PathBuf,
    /// The bytes that were read; none if there is no file.
    pub(in crate::config) bytes: Option<Vec<u8>>,
    /// The text, or why there is none.
    text: Result<String, String>,
}

impl OverrideFile {
    /// Reads the file at `path`. A file that does not exist is an empty one.
    pub(in crate::config) fn read(path: PathBuf) -> Self {
        let bytes = match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            _ => read_file(&path).map(Some),
        };
        let not_utf8 = |_| format!("`{}` is not UTF-8", path.display());
        let text = match &bytes {
            Ok(bytes) => String::from_utf8(bytes.clone().unwrap_or_default()).map_err(not_utf8).map(without_mark),
            Err(error) => Err(error.clone()),
        };
        Self { path, bytes: bytes.ok().flatten(), text }
    }

    /// The file as if it had this text.
    pub(in crate::config) fn with_text(path: PathBuf, text: &str) -> Self {
        Self { path, bytes: Some(text.into()), text: Ok(without_mark(text.to_owned())) }
    }

    /// The text; none if the file cannot be read.
    pub(in crate::config) fn text(&self) -> Option<&str> {
        self.text.as_deref().ok()
    }
}

/// Blanks in place of a byte order mark, so that spans stay what they are.
fn without_mark(mut text: String) -> String {
    const MARK: &str = "\u{feff}";
    if text.starts_with(MARK) {
        text.replace_range(..MARK.len(), &" ".repeat(MARK.len()));
    }
    text
}

/// One override of the file.
pub(in crate::config) struct Entry<'d> {
    pub(in crate::config) limit: &'d str,
    pub(in crate::config) key: &'d Spanned<DeString<'d>>,
    pub(in crate::config) value: &'d Spanned<DeValue<'d>>,
    /// Why it is left out.
    rejection: OnceCell<Box<str>>,
}

impl Entry<'_> {
    /// The text of the key.
    pub(in crate::config) fn text(&self) -> &str {
        self.key.get_ref()
    }

    /// Leaves the override out. The first reason counts.
    pub(in crate::config) fn reject(&self, problem: &Problem) {
        let reason = match &problem.help {
            Some(help) => format!("{} ({help})", problem.title),
            None => problem.title.clone(),
        };
        _ = self.rejection.set(reason.into());
    }

    pub(in crate::config) fn is_rejected(&self) -> bool {
        self.rejection.get().is_some()
    }

    fn shown(&self) -> Override {
        let allowance = shown::json(self.value.get_ref());
        let rejection = self.rejection.get().cloned();
        Override { limit: self.limit.into(), key: self.text().into(), allowance, rejection }
    }
}

/// All overrides of a file in its order, and the problems of the file.
pub(in crate::config) struct OverrideSet<'d> {
    pub(in crate::config) context: Context<'d>,
    entries: Vec<Entry<'d>>,
    /// Indices into `entries`.
    by_limit: HashMap<&'d str, Vec<usize>>,
    /// Parts of the file that are no override, and left out.
    others: usize,
    /// Whether the file as a whole could be read.
    is_read: bool,
}

/// What becomes of a file that cannot be read as a whole.
const UNREADABLE: &str =
    "until the file is corrected, a starting Weir applies no overrides, and a running Weir keeps its overrides";

impl<'d> OverrideSet<'d> {
    /// No override.
    pub(in crate::config) fn empty(context: Context<'d>) -> Self {
        Self { context, entries: Vec::new(), by_limit: HashMap::new(), others: 0, is_read: true }
    }

    /// The overrides of `file`, which was parsed as `table` with `errors`.
    pub(in crate::config) fn read(
        context: Context<'d>,
        file: &OverrideFile,
        table: &'d DeTable<'d>,
        errors: &[Error],
    ) -> Self {
        let mut set = Self::empty(context);
        let problem = match (&file.text, errors.first()) {
            (Err(error), _) => Problem::whole(format!("{error}: {UNREADABLE}")),
            (Ok(text), Some(error)) => {
                set.context.hide(0..text.len());
                let title = format!("not valid TOML: {}", error.message());
                Problem::new(error.span().unwrap_or(0..0), title).help(UNREADABLE.to_owned())
            }
            (Ok(_), None) => {
                set.add_all(table);
                return set;
            }
        };
        set.context.note(problem);
        Self { others: 1, is_read: false, ..set }
    }

    fn add_all(&mut self, table: &'d DeTable<'d>) {
        for (limit, value) in table {
            if let DeValue::Table(overrides) = value.get_ref() {
                // The key of the limit may have been a secret when the override was set, whatever it is now.
                overrides.keys().for_each(|key| self.context.hide(key.span()));
                let entry = |(key, value)| Entry { limit: limit.get_ref(), key, value, rejection: OnceCell::new() };
                self.entries.extend(overrides.iter().map(entry));
                continue;
            }
            self.others += 1;
            self.context.hide(limit.span());
            self.context.hide(value.span());
            let problem = Problem::new(limit.span(), "expected a table of overrides for each limit");
            self.context.note(problem.help("write it like `[NAME]`, with the name of a limit".to_owned()));
        }
        self.entries.sort_by_key(|entry| entry.key.span().start);
        for (index, entry) in self.entries.iter().enumerate() {
            self.by_limit.entry(entry.limit).or_default().push(index);
        }
    }

    /// The overrides of one limit.
    pub(in crate::config) fn of_limit(&self, limit: &str) -> impl Iterator<Item = &Entry<'d>> {
        self.by_limit.get(limit).into_iter().flatten().filter_map(|index| self.entries.get(*index))
    }

    /// Leaves out the overrides of limits that are not among `names`.
    pub(in crate::config) fn reject_unknown_limits(&self, names: &[&str]) {
        let known: HashSet<&str> = names.iter().copied().collect();
        for (limit, entries) in self.by_limit.iter().filter(|(limit, _)| !known.contains(*limit)) {
            let title = format!("there is no limit `{limit}`");
            let mut entries = entries.iter().filter_map(|index| self.entries.get(*index)).peekable();
            let Some(first) = entries.peek() else { continue };
            let help = did_you_mean(nearest(limit, names.iter().copied()));
            self.context.note(Problem::new(first.key.span(), &*title).help(help));
            let problem = Problem::new(0..0, title);
            entries.for_each(|entry| entry.reject(&problem));
        }
    }

    /// What the file says, and what of it is left out.
    pub(in crate::config) fn finish(self, file: &OverrideFile, table: &DeTable<'_>) -> RunTimeOverrides {
        let problems = self.context.problems.take();
        let rejected_count = self.others + self.entries.iter().filter(|entry| entry.is_rejected()).count();
        let problems = (!problems.is_empty()).then(|| {
            let text = file.text().unwrap_or_default();
            let shown = mask(&shown::text(text, table), &self.context.secrets.take());
            Diagnostics::new(&file.path.display().to_string(), shown, problems)
        });
        let overrides = self.entries.iter().map(Entry::shown).collect();
        let text = file.text().filter(|_| self.is_read).map(str::to_owned);
        RunTimeOverrides { file: Some(file.path.clone()), overrides, problems, rejected_count, text }
    }
}

/// The file that `admin.overrides` names, unless that is the configuration file or no file. Both are noted elsewhere.
pub(in crate::config) fn path_in(document: &DeTable<'_>, dir: &Path, own: Option<&Path>) -> Option<PathBuf> {
    let path = document.get("admin")?.get_ref().as_table()?.get("overrides")?.get_ref().as_str()?;
    let file = dir.join(path);
    let is_own = own.is_some_and(|own| super::files::is_same(own, &file));
    (!path.is_empty() && !path.ends_with('/') && !is_own).then_some(file)
}
