//! Reads lists of strings, and tables of lists whose keys the user chooses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::{Fault, Located, Problem, Table};
use crate::config::schema::{self, Kind, Opt, Preset};

/// The most invalid rows of a file that are noted.
const ROW_FAULTS_MAX: usize = 20;

/// The values of a list, or the value alone.
pub(in crate::config) fn items_of<'v>(value: &'v Spanned<DeValue<'v>>) -> &'v [Spanned<DeValue<'v>>] {
    value.get_ref().as_array().map_or(std::slice::from_ref(value), |items| &**items)
}

impl Table<'_> {
    /// Parses a list of distinct strings. Notes and skips invalid and repeated strings.
    pub(in crate::config) fn list<T: Eq + Hash>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<T>> {
        Some(self.list_at(key, parse)?.into_iter().map(Spanned::into_inner).collect())
    }

    /// Parses a list of distinct strings, each with its position. Notes and skips invalid and repeated strings.
    pub(in crate::config) fn list_at<T: Eq + Hash>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<Located<T>>> {
        self.read(key, |option, value| self.list_of(key, option, value, &parse)).map(Spanned::into_inner)
    }

    /// Parses a list of distinct strings, as [`Self::list_at`] does, and whether all strings are valid.
    pub(in crate::config) fn counted_list<T: Eq + Hash>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<(Vec<Located<T>>, bool)> {
        let items = self.list_at(key, parse)?;
        let is_whole = items.len() == self.items(key).len();
        Some((items, is_whole))
    }

    /// The values of a list, or the value alone; none if the option is absent.
    pub(in crate::config) fn items(&self, key: &str) -> &[Spanned<DeValue<'_>>] {
        self.get(key).map_or(&[], items_of)
    }

    /// Parses a value as a list of distinct strings.
    pub(in crate::config) fn list_of<T: Eq + Hash>(
        &self,
        key: &str,
        option: &Opt,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<Located<T>>> {
        let mut found: Vec<Located<T>> = Vec::new();
        let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
        let hasher = RandomState::new();
        let is_listed = |span: &Range<usize>| self.context.listed.borrow().contains(span);
        for (text, read) in self.strings(key, option, value, parse)? {
            let alike = by_hash.entry(hasher.hash_one(read.get_ref())).or_default();
            let first =
                alike.iter().filter_map(|index| found.get(*index)).find(|other| other.get_ref() == read.get_ref());
            if let Some(first) = first {
                if !is_listed(&read.span()) && !is_listed(&first.span()) {
                    self.note_twice(key, &text, read.span(), first.span());
                }
            } else {
                alike.push(found.len());
                found.push(read);
            }
        }
        Some(found)
    }

    /// Parses a list of strings. Notes and skips invalid strings. The caller finds repeated strings.
    pub(in crate::config) fn long_list<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<Located<T>> {
        let value = self.get(key).zip(schema::find(&self.path_of(key)));
        let read = value.and_then(|(value, option)| self.strings(key, option, value, parse));
        read.into_iter().flatten().map(|(_, read)| read).collect()
    }

    /// Parses a list for each key of a table whose keys the user chooses, in the order of the file.
    pub(in crate::config) fn named_lists<T>(
        &self,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<(Located<String>, Vec<Located<T>>)> {
        let Some(option) = schema::find(&self.path_of("NAME")) else { return Vec::new() };
        let read = |(name, value): (Located<String>, _)| {
            let read = self.strings(name.get_ref(), option, value, &parse);
            (name, read.into_iter().flatten().map(|(_, read)| read).collect())
        };
        self.entries().into_iter().map(read).collect()
    }

    /// The strings of a list with their positions. Notes and skips invalid strings. `None` for an empty list.
    fn strings<'v, T>(
        &self,
        key: &str,
        option: &Opt,
        value: &'v Spanned<DeValue<'v>>,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<(Cow<'v, str>, Located<T>)>> {
        let items = items_of(value);
        if items.is_empty() && !matches!(option.kind, Kind::List(_)) {
            let is_optional =
                matches!(option.kind, Kind::Some(_) | Kind::Rows(_)) && !matches!(option.default, Preset::Required);
            let what = if is_optional { "an empty list has no effect; remove it" } else { "must not be empty" };
            self.fault(key, value.span(), what);
            return None;
        }
        let mut all = Vec::new();
        for item in items {
            let file =
                item.get_ref().as_table().filter(|table| matches!(option.kind, Kind::Rows(_)) && table.len() == 1);
            match (item.get_ref(), file.and_then(|table| table.get("file")?.get_ref().as_str())) {
                (DeValue::String(text), _) => {
                    let read = self.parse(key, item.span(), text, &parse);
                    all.extend(read.map(|read| (Cow::Borrowed(&**text), Spanned::new(item.span(), read))));
                }
                (_, Some(path)) => {
                    let rows = self.rows(key, &item.span(), path, &parse);
                    all.extend(
                        rows.into_iter().map(|(text, read)| (Cow::Owned(text), Spanned::new(item.span(), read))),
                    );
                }
                _ => _ = self.mismatched::<T>(key, option, item),
            }
        }
        Some(all)
    }

    /// Parses each row of a file: a string, and `#` before a comment. Notes the lines of invalid rows, without their text.
    pub(in crate::config) fn rows<T>(
        &self,
        key: &str,
        span: &Range<usize>,
        path: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<(String, T)> {
        self.context.listed.borrow_mut().insert(span.clone());
        let decoded = |bytes| String::from_utf8(bytes).map_err(|_| format!("`{path}` is not UTF-8"));
        let text = match self.context.file(path).and_then(decoded) {
            Ok(text) => text,
            Err(what) => {
                self.fault(key, span.clone(), what);
                return Vec::new();
            }
        };
        let (mut rows, mut faults) = (Vec::new(), 0);
        for (number, row) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let is_comment = |at: usize| row.get(..at).is_some_and(|before| before.trim_end().len() < at || at == 0);
            let end = row.match_indices('#').find(|(at, _)| is_comment(*at)).map_or(row.len(), |(at, _)| at);
            let row = row.get(..end).unwrap_or(row).trim();
            match parse(row) {
                _ if row.is_empty() => {}
                Ok(read) => rows.push((row.to_owned(), read)),
                Err(fault) => {
                    let what = fault.of_row.unwrap_or("not a valid row");
                    self.fault(key, span.clone(), format!("`{path}`, line {number}: {what}"));
                    faults += 1;
                }
            }
            if faults == ROW_FAULTS_MAX {
                break;
            }
        }
        rows
    }

    /// Notes a repeated entry.
    pub(in crate::config) fn note_twice(&self, key: &str, text: &str, span: Range<usize>, first: Range<usize>) {
        let title = format!("`{}`: `{text}` occurs twice", self.path_of(key));
        self.context.note(Problem::new(span, title).also(first, "first here"));
    }
}
