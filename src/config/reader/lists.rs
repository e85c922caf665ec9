//! Reads long lists, and tables of lists whose keys the user chooses.

use toml::Spanned;
use toml::de::DeValue;

use super::units::Fault;
use super::{Entries, Located, Table};
use crate::config::schema::{self, Opt};

impl<'a> Table<'a> {
    /// Parses a list of strings. Notes and skips invalid strings. The caller finds repeated strings: a comparison of each
    /// pair would be too slow for thousands.
    pub(in crate::config) fn long_list<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<Located<T>> {
        let Some(option) = schema::find(&self.path_of(key)) else { return Vec::new() };
        self.get(key).map(|value| self.strings(key, option, value, parse)).unwrap_or_default()
    }

    /// Parses a list for each key of a table whose keys the user chooses, in the order of the file.
    pub(in crate::config) fn named_lists<T>(
        &self,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<(Located<String>, Vec<Located<T>>)> {
        let (Entries::Some(entries), Some(option)) = (self.entries, schema::find(&self.path_of("NAME"))) else {
            return Vec::new();
        };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let read = |(key, value): (&Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name = String::from(AsRef::<str>::as_ref(key.get_ref()));
            let values = self.strings(&name, option, value, &parse);
            (Spanned::new(key.span(), name), values)
        };
        entries.into_iter().map(read).collect()
    }

    fn strings<T>(
        &self,
        key: &str,
        option: &Opt,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Vec<Located<T>> {
        let items = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        if items.is_empty() {
            self.fault(key, value.span(), Fault::new("an empty list has no effect; remove it"));
        }
        let read = |item: &Spanned<DeValue<'_>>| {
            let DeValue::String(text) = item.get_ref() else {
                self.mismatch(key, &option.kind.to_string(), item);
                return None;
            };
            self.parse(key, item.span(), text, &parse).map(|read| Spanned::new(item.span(), read))
        };
        items.into_iter().filter_map(read).collect()
    }
}
