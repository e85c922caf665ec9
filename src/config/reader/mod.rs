//! Reads tables option by option. It notes each error with its position, and continues.
//!
//! The schema has the names, the defaults and the bounds of options. The callers interpret the values, and check
//! dependencies between options. A read without a result has noted an error, unless the option is absent and has no
//! default.

pub(in crate::config) mod context;
pub(in crate::config) mod lists;
pub(in crate::config) mod sizes;
pub(in crate::config) mod syntax;
pub(in crate::config) mod time_units;
pub(in crate::config) mod units;
pub(in crate::config) mod values;

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::context::Context;
use crate::base::fields::decimal;
use crate::config::redact::sounds_secret;
use crate::config::schema::{self, Kind, Opt, Preset};

pub(in crate::config) use self::units::Fault;
pub(in crate::config) use crate::config::diagnostics::{Problem, did_you_mean, nearest};

/// Reads all fields of a struct, each of which may be `None` after an error, and then builds it: no error of a field hides
/// those of the next. A field without an expression is a variable.
macro_rules! whole {
    ($name:ident { $($field:ident $(: $read:expr)?),* $(,)? }) => {{
        $($(let $field = $read;)?)*
        match ($($field,)*) {
            ($(Some($field),)*) => Some($name { $($field),* }),
            _ => None,
        }
    }};
}
pub(in crate::config) use whole;

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
        Some(Kind::Size(..) | Kind::SizeOr(..)) if value.is_integer() => Some(format!("`\"{written}\"`")),
        Some(Kind::Size(..) | Kind::SizeOr(..)) => Some("a size such as `\"64KiB\"`".to_owned()),
        Some(_) => None,
    }
}

/// The result of reading something that may be absent: `None` after an error, which is noted, and `Some(None)` if it is
/// absent.
pub(in crate::config) type Optional<T> = Option<Option<T>>;

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
        if let Some(help) = foreign {
            let problem = Problem::new(span, format!("unknown key `{key}` in {place}")).code("unknown_key");
            return self.context.note(problem.help(help));
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

    /// The position of an option, or of the table if it has no such option.
    pub(in crate::config) fn span_of(&self, key: &str) -> Range<usize> {
        self.get(key).map_or(self.span(), Spanned::span)
    }

    /// Notes an error of an option.
    pub(in crate::config) fn fault(&self, key: &str, span: Range<usize>, fault: impl Into<Fault>) {
        let Fault { what, help, absence, .. } = fault.into();
        let problem = Problem::new(span, format!("`{}`: {what}", self.path_of(key))).code("invalid_value").help(help);
        self.context.note(if absence { problem.absence() } else { problem });
    }

    /// Notes an error at an option, or at the table if it has no such option.
    pub(in crate::config) fn fault_at(&self, key: &str, fault: impl Into<Fault>) {
        self.fault(key, self.span_of(key), fault);
    }

    /// Notes an option that has no effect, because another one is absent.
    pub(in crate::config) fn fault_if_present(&self, key: &str, fault: impl Into<Fault>) {
        if self.has(key) {
            self.fault_at(key, fault);
        }
    }

    /// Notes a warning about an option. `code` is its stable name in `snake_case`.
    pub(in crate::config) fn warn(&self, key: &str, span: Range<usize>, code: &'static str, fault: impl Into<Fault>) {
        let Fault { what, help, .. } = fault.into();
        self.context.note(Problem::warning(code, span, format!("`{}`: {what}", self.path_of(key))).help(help));
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

    /// Notes that the value of `option` has the wrong type.
    pub(in crate::config) fn mismatched<T>(&self, key: &str, option: &Opt, value: &Spanned<DeValue<'_>>) -> Option<T> {
        self.mismatch(key, &option.kind.to_string(), value);
        None
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

    /// A list of tables that must have one; `None` after an error. `empty` is the error of an empty list.
    pub(in crate::config) fn some_tables(&self, key: &str, empty: &str) -> Option<Vec<Table<'a>>> {
        let Some(value) = self.get(key) else {
            self.text(key); // notes that it is required
            return None;
        };
        let tables = self.tables(key);
        if tables.is_empty() && value.get_ref().is_array() {
            self.fault(key, value.span(), empty);
        }
        Some(tables).filter(|tables| !tables.is_empty())
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

    /// Reads an option that may be absent; the inner option is `None` then.
    pub(in crate::config) fn optional<T>(&self, key: &str, read: impl FnOnce(&str) -> Option<T>) -> Optional<T> {
        if self.has(key) { read(key).map(Some) } else { Some(None) }
    }

    /// Reads this table unless it is absent; the inner option is `None` then.
    pub(in crate::config) fn if_present<T>(&self, read: impl FnOnce(&Self) -> Option<T>) -> Optional<T> {
        if self.is_present() { read(self).map(Some) } else { Some(None) }
    }

    /// Parses a string. The result has its position.
    pub(in crate::config) fn parsed_at<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Located<T>> {
        self.read(key, |option, value| match value.get_ref() {
            DeValue::String(text) => self.parse(key, value.span(), text, &parse),
            _ => self.mismatched(key, option, value),
        })
    }

    /// Parses a string.
    pub(in crate::config) fn parsed<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, Fault>) -> Option<T> {
        self.parsed_at(key, parse).map(Spanned::into_inner)
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

    /// A string that is not empty, with its position.
    pub(in crate::config) fn text_at(&self, key: &str) -> Option<Located<String>> {
        self.parsed_at(key, |text| units::not_empty(text).map(str::to_owned))
    }

    /// A string that is not empty.
    pub(in crate::config) fn text(&self, key: &str) -> Option<String> {
        self.text_at(key).map(Spanned::into_inner)
    }
}
