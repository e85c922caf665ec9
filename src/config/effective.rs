//! The options of a configuration with their sources, as operators read them.
//!
//! The text of the configuration in force is kept with the positions of its secrets, and is read when somebody asks.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::compile::limit::{DEFAULT_LIMIT, is_none};
use super::schema::{self, Preset};
use super::written::Written;
use crate::admin::SettingBody;
use crate::engine::policy::Policy;

/// Stands for a secret.
const MASK: &str = "***";

/// Tables that are lists in the file.
pub(super) const LISTS: [&str; 6] =
    ["limit", "route", "grpc.check", "grpc.descriptor", "admin.tokens", "priority.rule"];

/// The options to find.
#[derive(Clone, Copy, Debug)]
pub struct SettingFilter<'f> {
    /// The start of their paths, in whole names; empty for all.
    pub below: &'f str,
    /// Whether defaults are among them.
    pub has_defaults: bool,
    /// Most of them.
    pub count_max: usize,
}

/// The numbers of a running process that defaults depend on.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'p> {
    /// The policy.
    pub policy: &'p Policy,
    /// The bound on client connections without `server.max_connections`.
    pub max_connections: usize,
}

impl Written {
    /// The options of the text by path, without defaults. A value from an environment variable is the name of that.
    pub(super) fn own_settings(&self) -> BTreeMap<String, Value> {
        let filter = SettingFilter { below: "", has_defaults: false, count_max: usize::MAX };
        let (document, _) = DeTable::parse_recoverable(&self.text);
        let mut walk = Walk::new(self, document.get_ref(), None, filter);
        walk.table("", "", document.get_ref());
        let value = |setting: SettingBody| match setting.variable {
            Some(variable) => (setting.path, format!("variable {variable}").into()),
            None => (setting.path, setting.value),
        };
        walk.found.into_iter().map(value).collect()
    }

    /// The options that `filter` selects, and whether there are more: table by table, with the defaults of each table
    /// behind its own options. `in_force` are the numbers that some defaults are.
    pub fn settings(&self, filter: SettingFilter<'_>, in_force: InForce<'_>) -> (Vec<SettingBody>, bool) {
        let (document, _) = DeTable::parse_recoverable(&self.text);
        let document = document.get_ref();
        let mut walk = Walk::new(self, document, Some(in_force), filter);
        walk.table("", "", document);
        if is_none(document.get("limit"))
            && let Ok(default) = DeTable::parse(DEFAULT_LIMIT)
        {
            walk.written = None;
            walk.table("", "", default.get_ref());
        }
        (walk.found, walk.is_full)
    }
}

/// A walk through the tables of a file.
pub(super) struct Walk<'w> {
    /// `None` for text that the file does not have.
    pub(super) written: Option<&'w Written>,
    /// The whole file.
    pub(super) document: &'w DeTable<'w>,
    /// `None` without defaults.
    pub(super) in_force: Option<InForce<'w>>,
    /// The ends of its lines.
    lines: Vec<usize>,
    filter: SettingFilter<'w>,
    found: Vec<SettingBody>,
    is_full: bool,
}

impl<'w> Walk<'w> {
    fn new(
        written: &'w Written,
        document: &'w DeTable<'w>,
        in_force: Option<InForce<'w>>,
        filter: SettingFilter<'w>,
    ) -> Self {
        let lines = written.text.match_indices('\n').map(|(at, _)| at).collect();
        Self { written: Some(written), document, in_force, lines, filter, found: Vec::new(), is_full: false }
    }

    fn table(&mut self, schema: &str, path: &str, table: &DeTable<'_>) {
        let names = schema::keys_of(schema);
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let own = match names.as_slice() {
                [any @ ("NAME" | "PART")] => any,
                _ => &**key.get_ref(),
            };
            let shown = if self.is_secret(&key.span()) { MASK } else { key.get_ref() };
            self.value(&join(schema, own), &join(path, shown), value);
        }
        // Defaults of the file are those of its own tables.
        if self.written.is_some() {
            self.defaults(schema, path, Some(table));
        }
    }

    fn value(&mut self, schema: &str, path: &str, value: &Spanned<DeValue<'_>>) {
        if self.is_full || !self.is_wanted(path) {
            return;
        }
        let has_options = !schema::keys_of(schema).is_empty();
        match value.get_ref() {
            DeValue::Array(items) if has_options && items.iter().all(|item| item.get_ref().is_table()) => {
                for (index, item) in items.iter().enumerate() {
                    let Some(table) = item.get_ref().as_table() else { continue };
                    let name = table.get("name").and_then(|name| name.get_ref().as_str());
                    let name = name.map_or_else(|| (index + 1).to_string(), str::to_owned);
                    self.table_if_wanted(schema, &join(path, &name), table);
                }
            }
            DeValue::Table(table) if has_options => match variable(schema, table) {
                Some(variable) => {
                    let line = Some(self.line_of(&value.span()));
                    self.add(path, MASK.into(), ("environment", line, Some(variable.to_owned())));
                }
                None => self.table(schema, path, table),
            },
            _ => {
                let line = self.written.map(|_| self.line_of(&value.span()));
                let source = if line.is_some() { "file" } else { "default" };
                self.add(path, self.shown(value), (source, line, None));
            }
        }
    }

    fn table_if_wanted(&mut self, schema: &str, path: &str, table: &DeTable<'_>) {
        if !self.is_full && self.is_wanted(path) {
            self.table(schema, path, table);
        }
    }

    /// Adds the defaults that `table` leaves. A table that is absent has none if one of its options is required: the
    /// feature is off then.
    fn defaults(&mut self, schema: &str, path: &str, table: Option<&DeTable<'_>>) {
        let names = schema::keys_of(schema);
        if !self.filter.has_defaults || matches!(names.as_slice(), ["NAME" | "PART"]) {
            return;
        }
        for name in names.into_iter().filter(|name| table.is_none_or(|table| !table.contains_key(*name))) {
            let (below, path) = (join(schema, name), join(path, name));
            match schema::find(&below).map(|option| option.default) {
                Some(_) if !self.is_wanted(&path) => {}
                Some(preset) => {
                    if let Some(value) = constant(preset).or_else(|| self.derived(&below, &path, table)) {
                        self.add(&path, value, ("default", None, None));
                    }
                }
                None if LISTS.contains(&below.as_str()) => {}
                None => {
                    let is_required = |name: &str| {
                        schema::find(&join(&below, name)).is_some_and(|option| option.default.is_required())
                    };
                    if !schema::keys_of(&below).into_iter().any(is_required) {
                        self.defaults(&below, &path, None);
                    }
                }
            }
        }
    }

    /// The value of the option `schema` at `path`: that of the file, or its default.
    pub(super) fn inherited(&self, schema: &str, path: &[&str]) -> Option<Value> {
        let (name, tables) = path.split_last()?;
        let table = tables.iter().try_fold(self.document, |table, name| table.get(*name)?.get_ref().as_table());
        let written = table.and_then(|table| table.get(*name)).map(|value| self.shown(value));
        written.or_else(|| constant(schema::find(schema)?.default))
    }

    /// Adds an option with its source, the line of the file, and the environment variable.
    fn add(&mut self, path: &str, value: Value, source: (&str, Option<usize>, Option<String>)) {
        let (source, line, variable) = source;
        if self.found.len() >= self.filter.count_max {
            self.is_full = true;
        } else if is_below(path, self.filter.below) {
            self.found.push(SettingBody { path: path.to_owned(), value, source: source.to_owned(), line, variable });
        }
    }

    /// Whether options at or below `path` are wanted.
    fn is_wanted(&self, path: &str) -> bool {
        is_below(path, self.filter.below) || is_below(self.filter.below, path)
    }

    fn is_secret(&self, span: &Range<usize>) -> bool {
        let secrets = self.written.map_or(&[][..], |written| &written.secrets);
        secrets.iter().any(|secret| secret.start < span.end && span.start < secret.end)
    }

    fn line_of(&self, span: &Range<usize>) -> usize {
        self.lines.partition_point(|end| *end < span.start) + 1
    }

    fn shown(&self, value: &Spanned<DeValue<'_>>) -> Value {
        json(value, |span| self.is_secret(span))
    }
}

/// The default of an option, if it is a constant.
pub(super) fn constant(preset: Preset) -> Option<Value> {
    match preset {
        Preset::Toml(text) => Some(json(&DeValue::parse(text).ok()?, |_| false)),
        Preset::Required | Preset::Unset(_) => None,
    }
}

/// A value without secrets.
pub(super) fn json(value: &Spanned<DeValue<'_>>, is_secret: impl Fn(&Range<usize>) -> bool + Copy) -> Value {
    match value.get_ref() {
        DeValue::Array(items) => items.iter().map(|item| json(item, is_secret)).collect(),
        DeValue::Table(table) => {
            let pair = |(key, value): (&Spanned<_>, _)| {
                let name: &str = AsRef::<str>::as_ref(key.get_ref());
                let name = if is_secret(&key.span()) { MASK } else { name };
                (name.to_owned(), json(value, is_secret))
            };
            Value::Object(table.iter().map(pair).collect::<Map<_, _>>())
        }
        _ if is_secret(&value.span()) => MASK.into(),
        DeValue::String(text) => Value::from(&**text),
        DeValue::Boolean(is_set) => (*is_set).into(),
        DeValue::Integer(number) => number.as_str().parse::<i64>().map_or_else(|_| number.as_str().into(), Value::from),
        DeValue::Float(number) => number.as_str().into(),
        DeValue::Datetime(at) => at.to_string().into(),
    }
}

/// The environment variable that a table of this option names, and nothing else.
fn variable<'t>(schema: &str, table: &'t DeTable<'_>) -> Option<&'t str> {
    schema::find(&join(schema, "env")).filter(|_| table.len() == 1)?;
    table.get("env")?.get_ref().as_str()
}

/// The path of `name` in the table at `path`; `""` is the whole file.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether `path` is `start`, or below it.
fn is_below(path: &str, start: &str) -> bool {
    start.is_empty() || path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
