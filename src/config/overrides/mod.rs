//! The file of overrides that operators set at run time: a table for each limit, as `overrides` of that limit.
//!
//! An override may have an end: `{ to = ..., until = "..." }`. One that has ended does not apply, and goes with the next
//! change.
//!
//! An override that does not fit its limit does not apply, and has a reason. The others apply: an override that became
//! invalid must not prevent a start. `compile::overrides` decides whether an override fits.
//!
//! Keys may be credentials, and TOML can write a key in several places. So messages show no text of this file, but the
//! positions of problems.

pub(in crate::config) mod edit;
mod end;
mod in_force;
mod run_time;
mod shown;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::diagnostics::{Diagnostics, Problem, did_you_mean, nearest};
use super::files::{read_file, sibling};
use super::reader::context::Context;
use super::redact::mask;
use crate::base::time::Timestamp;
use crate::engine::policy::overrides::Override;

pub(in crate::config) use in_force::place_in;
pub use in_force::{OverridesInForce, OverridesPlace};
pub use run_time::RunTimeOverrides;

/// The content of the file, or of memory in its place.
pub(in crate::config) struct OverrideFile {
    pub(in crate::config) place: OverridesPlace,
    /// The bytes that were read; none if there is no file.
    pub(in crate::config) bytes: Option<Vec<u8>>,
    /// The text, or why there is none.
    text: Result<String, String>,
}

impl OverrideFile {
    /// Reads the overrides at `place`; those in memory are in `in_force`. `None` if there is no place.
    pub(in crate::config) fn read(place: OverridesPlace, in_force: Option<&OverridesInForce>) -> Option<Self> {
        match &place {
            OverridesPlace::Off => None,
            OverridesPlace::Memory { .. } => {
                let text = in_force.and_then(OverridesInForce::text_in_memory).unwrap_or_default();
                Some(Self::with_text(place, text))
            }
            OverridesPlace::File(path) => {
                let file = Self::read_file(path);
                // Overrides in memory move to a file that does not exist yet.
                let moved = in_force.and_then(OverridesInForce::text_in_memory).filter(|_| file.is_absent());
                Some(moved.map_or(file, |text| Self::with_text(place, text)))
            }
        }
    }

    fn is_absent(&self) -> bool {
        self.bytes.is_none() && self.text.is_ok()
    }

    /// Reads the file at `path`. A file that does not exist is an empty one.
    fn read_file(path: &Path) -> Self {
        let bytes = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            _ => read_file(path).map(Some),
        };
        let not_utf8 = |_| format!("`{}` is not UTF-8", path.display());
        let text = match &bytes {
            Ok(bytes) => String::from_utf8(bytes.clone().unwrap_or_default()).map_err(not_utf8),
            Err(error) => Err(error.clone()),
        };
        Self { place: OverridesPlace::File(path.to_owned()), bytes: bytes.ok().flatten(), text }
    }

    /// The content of `place` as if it had this text.
    pub(in crate::config) fn with_text(place: OverridesPlace, text: &str) -> Self {
        Self { place, bytes: Some(text.into()), text: Ok(text.to_owned()) }
    }

    /// The text; none if the file cannot be read.
    pub(in crate::config) fn text(&self) -> Option<&str> {
        self.text.as_deref().ok()
    }

    /// The place for a copy of the file, if its content is not TOML.
    pub(in crate::config) fn place_of_invalid(&self) -> Option<PathBuf> {
        let path = self.place.file().filter(|_| self.bytes.is_some() && self.parse().is_err())?;
        Some(sibling(path, "invalid"))
    }

    /// The text as TOML, or the problem that the file cannot be read as a whole.
    pub(in crate::config) fn parse(&self) -> Result<Spanned<DeTable<'_>>, Box<Problem>> {
        let problem = match self.text.as_deref().map(DeTable::parse) {
            Ok(Ok(table)) => return Ok(table),
            Ok(Err(error)) => not_toml(&error),
            Err(reason) => Problem::whole(reason.clone()),
        };
        Err(Box::new(problem.help(UNREADABLE)))
    }

    /// The problems, without text of the file.
    fn diagnostics(&self, problems: Vec<Problem>) -> Diagnostics {
        masked(&self.place.name(), self.text().unwrap_or_default(), problems)
    }
}

/// The problems of a text that `name` has, without the text.
fn masked(name: &str, text: &str, problems: Vec<Problem>) -> Diagnostics {
    Diagnostics::new(name, mask(text, std::slice::from_ref(&(0..text.len()))), problems).without_excerpts()
}

fn not_toml(error: &toml::de::Error) -> Problem {
    Problem::new(error.span().unwrap_or(0..0), format!("not valid TOML: {}", error.message()))
}

impl OverridesInForce {
    /// Takes `text` in place of that in memory. Returns whether it is another one.
    pub fn replace_text(&mut self, text: Arc<str>) -> bool {
        self.text.replace(Arc::clone(&text)) != Some(text)
    }

    /// Checks a text that `name` has.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn check(name: &str, text: &str) -> Result<(), Diagnostics> {
        DeTable::parse(text).map(drop).map_err(|error| masked(name, text, vec![not_toml(&error)]))
    }
}

/// The effect of a file that cannot be read as a whole.
const UNREADABLE: &str =
    "until the file is corrected, a starting Weir applies no overrides, and a running Weir keeps its overrides";

/// One override of the file.
pub(in crate::config) struct Entry<'d> {
    pub(in crate::config) limit: &'d str,
    pub(in crate::config) key: &'d Spanned<DeString<'d>>,
    pub(in crate::config) value: &'d Spanned<DeValue<'d>>,
    /// The end; `None` if it has none.
    until: Option<Timestamp>,
    /// Why it is left out.
    rejection: OnceCell<Box<str>>,
    /// How it drops windows of its limit.
    dropped: OnceCell<Box<str>>,
}

impl<'d> Entry<'d> {
    /// Reads an override with its end, if it has one. Notes a wrong end, and leaves the override out.
    fn read(
        context: &Context<'_>,
        limit: &'d str,
        key: &'d Spanned<DeString<'d>>,
        value: &'d Spanned<DeValue<'d>>,
    ) -> Self {
        let (value, until, is_bad) = match end::timed(value) {
            None => (value, None, false),
            Some((inner, until)) => (inner, until, until.is_none()),
        };
        let entry = Self { limit, key, value, until, rejection: OnceCell::new(), dropped: OnceCell::new() };
        if is_bad {
            let problem = Problem::new(key.span(), end::EXPECTED);
            entry.reject(&problem);
            context.note(problem);
        }
        entry
    }

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

    /// Notes how the override drops windows of its limit.
    pub(in crate::config) fn note_dropped(&self, how: &str) {
        _ = self.dropped.set(how.into());
    }

    pub(in crate::config) fn is_rejected(&self) -> bool {
        self.rejection.get().is_some()
    }

    /// The position in the file.
    fn start(&self) -> usize {
        self.key.span().start
    }

    fn shown(&self) -> Override {
        let allowance = shown::json(self.value.clone());
        let (rejection, dropped) = (self.rejection.get().cloned(), self.dropped.get().cloned());
        Override { limit: self.limit.into(), key: self.text().into(), allowance, until: self.until, rejection, dropped }
    }
}

/// The overrides of a file by limit, and the problems of the file.
pub(in crate::config) struct OverrideSet<'d> {
    pub(in crate::config) context: Context<'d>,
    by_limit: HashMap<&'d str, Vec<Entry<'d>>>,
    /// Parts of the file that are no override, and left out.
    others: usize,
    /// Whether the file has overrides that have ended.
    has_ended: bool,
}

impl<'d> OverrideSet<'d> {
    /// No override.
    pub(in crate::config) fn empty(context: Context<'d>) -> Self {
        Self { context, by_limit: HashMap::new(), others: 0, has_ended: false }
    }

    /// The overrides of a file that have not ended at `now`.
    pub(in crate::config) fn read(context: Context<'d>, table: &'d DeTable<'d>, now: Timestamp) -> Self {
        let mut set = Self::empty(context);
        for (limit, value) in table {
            if let DeValue::Table(overrides) = value.get_ref() {
                let read = |(key, value)| Entry::read(&set.context, limit.get_ref(), key, value);
                let mut entries: Vec<_> = overrides.iter().map(read).collect();
                entries.retain(|entry| entry.until.is_none_or(|until| until > now));
                set.has_ended |= entries.len() < overrides.len();
                set.by_limit.insert(limit.get_ref(), entries);
                continue;
            }
            set.others += 1;
            let problem = Problem::new(limit.span(), "expected a table of overrides for each limit");
            set.context.note(problem.help("write it like `[NAME]`, with the name of a limit"));
        }
        set.by_limit.values_mut().for_each(|entries| entries.sort_by_key(Entry::start));
        set
    }

    /// The overrides of one limit, in the order of the file.
    pub(in crate::config) fn of_limit(&self, limit: &str) -> &[Entry<'d>] {
        self.by_limit.get(limit).map_or(&[], Vec::as_slice)
    }

    /// Leaves out the overrides of limits that are not among `names`.
    pub(in crate::config) fn reject_unknown_limits(&self, names: &[&str]) {
        let known: HashSet<&str> = names.iter().copied().collect();
        for (limit, entries) in self.by_limit.iter().filter(|(limit, _)| !known.contains(*limit)) {
            let Some(first) = entries.first() else { continue };
            let problem = Problem::new(first.key.span(), format!("there is no limit `{limit}`"));
            for entry in entries {
                entry.reject(&problem);
            }
            self.context.note(problem.help(did_you_mean(nearest(limit, names.iter().copied()))));
        }
    }

    /// The overrides of `text`, and the reasons why some are left out. `text` is that of `file`, unless the file is
    /// `unreadable`.
    pub(in crate::config) fn finish(
        self,
        file: &OverrideFile,
        text: Option<&str>,
        unreadable: Option<Box<Problem>>,
    ) -> RunTimeOverrides {
        let mut entries: Vec<_> = self.by_limit.into_values().flatten().collect();
        entries.sort_by_key(Entry::start);
        let rejected = entries.iter().filter(|entry| entry.is_rejected()).count();
        let (rejected_count, problems) = match unreadable {
            Some(problem) => (1, vec![*problem]),
            None => (self.others + rejected, self.context.problems.take()),
        };
        let problems = (!problems.is_empty()).then(|| file.diagnostics(problems));
        let overrides = entries.iter().map(Entry::shown).collect();
        let kept = OverridesInForce { place: file.place.clone(), text: text.map(Into::into) };
        RunTimeOverrides { kept, overrides, problems, rejected_count, has_ended: self.has_ended }
    }
}
