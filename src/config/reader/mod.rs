//! Reads tables option by option. It notes each error with its position, and continues.
//!
//! The schema has the names, the defaults and the bounds of options. The callers interpret the values, and check
//! dependencies between options. A read without a result has noted an error, unless the option is absent and has no
//! default.

pub(in crate::config) mod context;
mod lists;
pub(in crate::config) mod syntax;
pub(in crate::config) mod time_units;
pub(in crate::config) mod units;
mod values;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::context::Context;
use self::units::Fault;
use crate::base::fields::decimal;
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::redact::sounds_secret;
use crate::config::schema::{self, Kind, Opt, Preset};

/// A table of the configuration.
pub(in crate::config) struct Table<'a> {
    pub(in crate::config) context: &'a Context<'a>,
    path: String,
    entries: Entries<'a>,
    span: Range<usize>,
}

#[derive(Clone, Copy)]
enum Entries<'a> {
    Some(&'a DeTable<'a>),
    /// All options have their defaults.
    Absent,
    /// The value is not a table; this error is noted.
    Broken,
}

/// A value of the right type for the option at `path`, in place of `value`.
fn example(path: &str, value: &DeValue<'_>) -> Option<String> {
    let kind = schema::find(path).map(|option| option.kind);
    let written = match value {
        DeValue::Integer(number) if decimal(number.as_str().as_bytes()).is_some() => number.as_str(),
        _ => "10",
    };
    match kind {
        None => schema::example_of_table(path).map(str::to_owned),
        Some(Kind::Rates(_) | Kind::RateOrFalse | Kind::Allowance(_)) => Some(format!("`\"{written}/s\"`")),
        Some(
            Kind::Duration
            | Kind::DurationIn(..)
            | Kind::DurationOrZero
            | Kind::DurationOr(_)
            | Kind::DurationOrOneOf(_),
        ) => Some(format!("`\"{written}s\"`")),
        Some(Kind::Size(..) | Kind::SizeOr(..)) => Some("a size such as `\"64KiB\"`".to_owned()),
        Some(_) => None,
    }
}

/// A value with its position.
pub(in crate::config) type Located<T> = Spanned<T>;

impl<'a> Table<'a> {
    /// The root table of a file.
    pub(in crate::config) fn root(context: &'a Context<'a>, document: &'a DeTable<'a>) -> Self {
        Self::open(context, String::new(), document, 0..0)
    }

    /// A table that is absent.
    pub(in crate::config) fn absent(context: &'a Context<'a>, path: &str) -> Self {
        Self { context, path: path.into(), entries: Entries::Absent, span: 0..0 }
    }

    fn open(context: &'a Context<'a>, path: String, entries: &'a DeTable<'a>, span: Range<usize>) -> Self {
        let table = Self { context, path, entries: Entries::Some(entries), span };
        let known = schema::keys_of(&table.path);
        if known != ["NAME"] && known != ["PART"] {
            for (key, value) in entries.iter().filter(|(key, _)| !known.contains(&&**key.get_ref())) {
                table.note_unknown(key.get_ref(), &known, key.span(), value);
            }
        }
        table
    }

    fn note_unknown(&self, key: &str, known: &[&'static str], span: Range<usize>, value: &Spanned<DeValue<'_>>) {
        let is_compound = value.get_ref().is_table() || value.get_ref().is_array();
        let foreign = schema::help_for_key(&self.path, key).filter(|_| !self.context.hides_keys);
        if self.holds_secrets() || foreign.is_none() && sounds_secret(key) {
            self.hide_all(value);
        } else if is_compound {
            let is_network = |text: &str| units::network(text).is_ok();
            self.hide(value, &|value| !value.as_str().is_some_and(is_network));
        }
        let place = self.shown_name();
        if schema::is_not_yet(&self.path, key) {
            let title = format!("`{key}` in {place} is not supported in this version");
            return self.context.note(Problem::new(span, title));
        }
        if let Some(help) = foreign {
            let problem = Problem::new(span, format!("unknown key `{key}` in {place}")).code("unknown_key");
            return self.context.note(problem.help(Some(help.to_owned())));
        }
        let suggestion = nearest(key, known.iter().copied()).map(str::to_owned).or_else(|| self.elsewhere(key));
        let help = did_you_mean(suggestion.as_deref());
        let help = help.unwrap_or_else(|| format!("{place} can have {}", known.join(", ")));
        let key = if self.context.hides_keys { String::new() } else { format!(" `{key}`") };
        self.context.note(Problem::new(span, format!("unknown key{key} in {place}")).code("unknown_key").help(help));
    }

    /// Finds an option of this name in another table. `None` if several unrelated tables have one.
    fn elsewhere(&self, key: &str) -> Option<String> {
        let tables = schema::tables_with(key);
        let below = format!("{}.", self.path);
        if let Some(table) = tables.iter().find(|table| !self.path.is_empty() && table.starts_with(&below)) {
            return Some(format!("{}.{key}", &table[below.len()..]));
        }
        let (first, others) = tables.split_first()?;
        let is_within = |table: &&str| table.strip_prefix(first).is_some_and(|rest| rest.starts_with('.'));
        others.iter().all(is_within).then(|| format!("{first}.{key}"))
    }

    fn shown_name(&self) -> String {
        match self.path.as_str() {
            "" => "the file".into(),
            "limit" | "route" | "grpc.check" | "grpc.descriptor" => format!("`[[{}]]`", self.path),
            path => format!("`[{path}]`"),
        }
    }

    fn holds_secrets(&self) -> bool {
        let is_within =
            ["identity", "server.tls", "admin", "fleet", "store"].iter().any(|start| self.path.starts_with(start));
        is_within || [".identity", ".tls"].iter().any(|end| self.path.ends_with(end))
    }

    /// Hides every value within `value` from all messages.
    pub(in crate::config) fn hide_all(&self, value: &Spanned<DeValue<'_>>) {
        self.hide(value, &|_| true);
    }

    /// Hides the values within `value` that may be secrets. A boolean is none.
    fn hide(&self, value: &Spanned<DeValue<'_>>, may_be_secret: &dyn Fn(&DeValue<'_>) -> bool) {
        match value.get_ref() {
            DeValue::Table(table) => table.iter().for_each(|(_, value)| self.hide(value, may_be_secret)),
            DeValue::Array(items) => items.iter().for_each(|item| self.hide(item, may_be_secret)),
            DeValue::Boolean(_) => {}
            other if !may_be_secret(other) => {}
            _ => self.context.hide(value.span()),
        }
    }

    /// The full name of the table, with dots.
    pub(in crate::config) fn path(&self) -> &str {
        &self.path
    }

    /// The position of the table.
    pub(in crate::config) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Whether the table is present.
    pub(in crate::config) fn is_present(&self) -> bool {
        !matches!(self.entries, Entries::Absent)
    }

    /// Whether the value is not a table; this error is noted.
    pub(in crate::config) fn is_broken(&self) -> bool {
        matches!(self.entries, Entries::Broken)
    }

    pub(in crate::config) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(in crate::config) fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        match self.entries {
            Entries::Some(entries) => entries.get(key),
            Entries::Absent | Entries::Broken => None,
        }
    }

    /// The full name of an option of this table.
    pub(in crate::config) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// Notes an error of an option.
    pub(in crate::config) fn fault(&self, key: &str, span: Range<usize>, fault: Fault) {
        let title = format!("`{}`: {}", self.path_of(key), fault.what);
        let problem = Problem::new(span, title).code("invalid_value").help(fault.help);
        self.context.note(if fault.absence { problem.absence() } else { problem });
    }

    /// Notes a warning about an option. `code` is its stable name in `snake_case`.
    pub(in crate::config) fn warn(&self, key: &str, span: Range<usize>, code: &'static str, fault: Fault) {
        let title = format!("`{}`: {}", self.path_of(key), fault.what);
        self.context.note(Problem::warning(code, span, title).help(fault.help));
    }

    /// Notes that a value has the wrong type.
    pub(in crate::config) fn mismatch(&self, key: &str, wanted: &str, value: &Spanned<DeValue<'_>>) {
        if self.holds_secrets() {
            self.hide_all(value);
        }
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let path = self.path_of(key);
        let title = format!("`{path}`: expected {wanted}");
        let problem = Problem::new(value.span(), title).code("wrong_type").label(format!("this is {found}"));
        self.context.note(problem.help(example(&path, value.get_ref()).map(|example| format!("write {example}"))));
    }

    /// An inner table. If it is absent, all its options have their defaults.
    pub(in crate::config) fn table(&self, key: &str) -> Table<'a> {
        match self.get(key) {
            Some(value) => self.table_of(key, value),
            None => Table { path: self.path_of(key), entries: Entries::Absent, ..self.copy() },
        }
    }

    pub(in crate::config) fn table_of(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Table<'a> {
        if let DeValue::Table(entries) = value.get_ref() {
            return Table::open(self.context, self.path_of(key), entries, value.span());
        }
        self.mismatch(key, "table", value);
        Table { path: self.path_of(key), entries: Entries::Broken, ..self.copy() }
    }

    fn copy(&self) -> Table<'a> {
        Table { context: self.context, path: self.path.clone(), entries: self.entries, span: self.span() }
    }

    /// An inner list of tables; empty if it is absent.
    pub(in crate::config) fn tables(&self, key: &str) -> Vec<Table<'a>> {
        match self.get(key).map(|value| (value, value.get_ref())) {
            None => Vec::new(),
            Some((_, DeValue::Array(items))) => items.iter().map(|item| self.table_of(key, item)).collect(),
            Some((value, _)) => {
                self.mismatch(key, &format!("list of tables, as in `[[{}]]`", self.path_of(key)), value);
                Vec::new()
            }
        }
    }

    /// The entries of a table whose keys the user chooses, in the order of the file.
    pub(in crate::config) fn entries(&self) -> Vec<(Located<String>, &'a Spanned<DeValue<'a>>)> {
        let Entries::Some(entries) = self.entries else { return Vec::new() };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let name = |key: &Spanned<_>| Spanned::new(key.span(), String::from(AsRef::<str>::as_ref(key.get_ref())));
        entries.into_iter().map(|(key, value)| (name(key), value)).collect()
    }

    /// The inner tables of a table whose keys the user chooses, in the order of the file.
    pub(in crate::config) fn named_tables(&self) -> Vec<(Located<String>, Table<'a>)> {
        self.entries().into_iter().map(|(name, value)| (name, self.table_of("NAME", value))).collect()
    }

    /// Reads an option or its default. Notes an absent option that is required.
    pub(in crate::config) fn read<T>(
        &self,
        key: &str,
        read: impl Fn(&'static Opt, &Spanned<DeValue<'_>>) -> Option<T>,
    ) -> Option<Located<T>> {
        let option = schema::find(&self.path_of(key))?;
        if let Some(value) = self.get(key) {
            return read(option, value).map(|read| Spanned::new(value.span(), read));
        }
        match (option.default, self.entries) {
            (_, Entries::Broken) | (Preset::Unset(_), _) => None,
            (Preset::Toml(text), _) => Some(Spanned::new(self.span(), read(option, &DeValue::parse(text).ok()?)?)),
            (Preset::Required, _) => {
                self.note_missing(option);
                None
            }
        }
    }

    /// Notes that a required option is absent.
    pub(in crate::config) fn note_missing(&self, option: &Opt) {
        let problem =
            Problem::new(self.span(), format!("`{}` is missing", option.path)).code("missing_option").absence();
        self.context.note(problem.help(format!("expected {}. {}", option.kind, option.about)));
    }

    /// Parses a string.
    pub(in crate::config) fn parsed<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Located<T>> {
        self.read(key, |option, value| {
            if let DeValue::String(text) = value.get_ref() {
                return self.parse(key, value.span(), text, &parse);
            }
            self.mismatch(key, &option.kind.to_string(), value);
            None
        })
    }

    pub(in crate::config) fn parse<T>(
        &self,
        key: &str,
        span: Range<usize>,
        text: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<T> {
        parse(text).map_err(|fault| self.fault(key, span, fault)).ok()
    }

    /// A string.
    pub(in crate::config) fn text(&self, key: &str) -> Option<Located<String>> {
        self.parsed(key, |text| if text.is_empty() { Err(Fault::new("must not be empty")) } else { Ok(text.into()) })
    }

    /// Parses a list of distinct strings. Notes and skips invalid and repeated strings.
    pub(in crate::config) fn list<T: Eq + Hash>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<Located<T>>> {
        self.read(key, |option, value| self.list_of(key, option, value, &parse)).map(Spanned::into_inner)
    }

    /// Parses a value as a list of distinct strings.
    pub(in crate::config) fn list_of<T: Eq + Hash>(
        &self,
        key: &str,
        option: &Opt,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<Located<T>>> {
        let items = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        if items.is_empty() && !matches!(option.kind, Kind::List(_)) {
            let is_optional = matches!(option.kind, Kind::Some(_)) && !matches!(option.default, Preset::Required);
            let what = if is_optional { "an empty list has no effect; remove it" } else { "must not be empty" };
            self.fault(key, value.span(), Fault::new(what));
            return None;
        }
        Some(self.items(key, option, &items, parse))
    }

    fn items<T: Eq + Hash>(
        &self,
        key: &str,
        option: &Opt,
        items: &[&Spanned<DeValue<'_>>],
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<Located<T>> {
        let mut found: Vec<Located<T>> = Vec::new();
        let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
        let hasher = RandomState::new();
        for item in items {
            let DeValue::String(text) = item.get_ref() else {
                self.mismatch(key, &option.kind.to_string(), item);
                continue;
            };
            let Some(read) = self.parse(key, item.span(), text, &parse) else { continue };
            let alike = by_hash.entry(hasher.hash_one(&read)).or_default();
            let first = alike.iter().filter_map(|index| found.get(*index)).find(|other| *other.get_ref() == read);
            if let Some(first) = first {
                self.note_twice(key, text, item.span(), first.span());
            } else {
                alike.push(found.len());
                found.push(Spanned::new(item.span(), read));
            }
        }
        found
    }

    /// Notes a repeated entry.
    pub(in crate::config) fn note_twice(&self, key: &str, text: &str, span: Range<usize>, first: Range<usize>) {
        let title = format!("`{}`: `{text}` occurs twice", self.path_of(key));
        self.context.note(Problem::new(span, title).also(first, "first here"));
    }
}
