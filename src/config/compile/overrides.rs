//! Overrides set at run time. Each is compiled against its limit, and left out if it does not fit.

use std::collections::hash_map;
use std::collections::{HashMap, HashSet};

use super::allowed::{Capacity, EXCEPTIONS_MAX, exception, make_several};
use super::override_key::{Keyed, check_text, note_same_key};
use super::rule::Scheme;
use crate::config::diagnostics::Problem;
use crate::config::overrides::{Entry, OverrideSet};
use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::limit::{Algorithm, Key};
use crate::policy::{Allowed, Cost};

/// The limit that overrides are checked against.
pub(super) struct Target<'t> {
    pub(super) name: &'t str,
    pub(super) scheme: &'t Scheme,
    pub(super) keyed: &'t Keyed<'t>,
    pub(super) cost: &'t Cost,
    /// Whether `on_full = "sketch"` is written.
    pub(super) is_sketched: bool,
}

/// Adds the overrides of a limit to what it allows. They replace those of the configuration for the same keys.
pub(super) fn apply(set: &OverrideSet<'_>, target: &Target<'_>, allowed: &mut Allowed) {
    let count = set.of_limit(target.name).count();
    if count == 0 {
        return;
    }
    let table = Table::absent(&set.context, "limit.overrides");
    if count + allowed.overrides.len() > EXCEPTIONS_MAX {
        return reject_all(set, target.name);
    }
    let has_several = matches!(allowed.usual, Algorithm::Several(_));
    let mut compiled: Vec<CompiledOverride<'_>> = Vec::new();
    for entry in set.of_limit(target.name) {
        let before = set.context.problems.borrow().len();
        let made = compile(&table, entry, target, has_several);
        match set.context.problems.borrow().get(before) {
            Some(problem) => entry.reject(problem),
            None => compiled.extend(made),
        }
    }
    reject_same_keys(&table, &compiled);
    compiled.retain(|compiled| !compiled.entry.is_rejected());
    let keys: HashSet<Key> = compiled.iter().map(|compiled| compiled.key).collect();
    allowed.overrides.retain(|(text, _)| target.keyed.key_of(text).is_none_or(|key| !keys.contains(&key)));
    allowed.set_from = allowed.overrides.len();
    allowed.overrides.extend(compiled.into_iter().map(|compiled| (compiled.entry.text().into(), compiled.rule)));
}

/// An override that fits its limit by itself.
struct CompiledOverride<'e> {
    entry: &'e Entry<'e>,
    key: Key,
    /// `None` if the key has no limit.
    rule: Option<Algorithm>,
}

/// Leaves out all overrides of a limit that has too many.
fn reject_all(set: &OverrideSet<'_>, limit: &str) {
    let mut entries = set.of_limit(limit).peekable();
    let Some(first) = entries.peek() else { return };
    let problem = Problem::new(first.key.span(), format!("a limit has at most {EXCEPTIONS_MAX} overrides"));
    entries.for_each(|entry| entry.reject(&problem));
    set.context.note(problem);
}

/// Compiles one override. If it does not fit, notes why.
fn compile<'e>(
    table: &Table<'e>,
    entry: &'e Entry<'e>,
    target: &Target<'_>,
    has_several: bool,
) -> Option<CompiledOverride<'e>> {
    if let Err(fault) = check_text(entry.text(), target.keyed, false) {
        table.fault("NAME", entry.key.span(), fault);
        return None;
    }
    let key = target.keyed.key_of(entry.text())?;
    let mut rule = exception(table, target.scheme, entry.value)?;
    let note = |title: String, help: Option<&str>| {
        table.context.note(Problem::new(entry.key.span(), title).help(help.map(str::to_owned)));
    };
    match &mut rule {
        Some(Algorithm::Several(_)) if !has_several => {
            let fault = Fault::new("must be one rate: several rates would reset all keys of this limit");
            let help = "an override can have several rates only if the limit, a plan or an override in the configuration has several";
            table.fault("NAME", entry.key.span(), fault.help(Some(help.to_owned())));
        }
        Some(rule) if has_several => make_several(rule),
        _ => {}
    }
    let cost = target.cost.max();
    if let Some(capacity) =
        rule.as_ref().map(|rule| Capacity::new(rule, " of this override")).filter(|one| one.units < cost)
    {
        let Capacity { units, name, .. } = capacity;
        note(format!("`limit.cost`: a cost of {cost} can never pass: {name} is {units}"), None);
    }
    if target.is_sketched {
        let title = "`limit.on_full`: `sketch` needs a token bucket with the same rule for every key";
        note(title.to_owned(), Some("remove `on_full`; the default is then `shared`"));
    }
    Some(CompiledOverride { entry, key, rule })
}

/// Leaves out all overrides of a key that has several, because it is unknown which one applies.
fn reject_same_keys(table: &Table<'_>, compiled: &[CompiledOverride<'_>]) {
    let mut first_of: HashMap<Key, &Entry<'_>> = HashMap::new();
    for CompiledOverride { entry, key, .. } in compiled {
        match first_of.entry(*key) {
            hash_map::Entry::Vacant(vacant) => _ = vacant.insert(entry),
            hash_map::Entry::Occupied(first) => {
                note_same_key(table, entry.key.span(), first.get().key.span());
                if let Some(problem) = table.context.problems.borrow().last() {
                    first.get().reject(problem);
                    entry.reject(problem);
                }
            }
        }
    }
}
