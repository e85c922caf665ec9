//! All options: the path, the type, the default and the purpose of each.
//!
//! The reader looks up keys, defaults and bounds here, and the documentation is generated from the same table. `compile`
//! interprets the values.

mod access;
mod fleet;
mod foreign;
mod grpc;
mod limit;
mod option;
mod options;
mod overload;
pub(in crate::config) mod words;

use std::collections::HashMap;
use std::sync::LazyLock;

use options::OPTIONS;

pub(in crate::config) use foreign::{example_of_table, help_for_key, help_for_rate, own_value};
pub(in crate::config) use option::UNLIMITED;
pub use option::{Kind, Opt, Preset};

/// All options, in the order of the documentation.
pub fn options() -> &'static [Opt] {
    &OPTIONS
}

/// The option at a path.
pub(in crate::config) fn find(path: &str) -> Option<&'static Opt> {
    static BY_PATH: LazyLock<HashMap<&str, &Opt>> =
        LazyLock::new(|| OPTIONS.iter().map(|option| (option.path, option)).collect());
    BY_PATH.get(path).copied()
}

/// The keys that the table at `path` can have; `""` is the whole file.
pub(in crate::config) fn keys_of(path: &str) -> Vec<&'static str> {
    let mut keys: Vec<_> = OPTIONS.iter().filter_map(|option| key_below(option.path, path)).collect();
    keys.dedup();
    keys
}

/// Whether a table or an option has this name.
pub(in crate::config) fn has_name(name: &str) -> bool {
    OPTIONS.iter().any(|option| option.path.split('.').any(|part| part == name))
}

fn key_below(option: &'static str, path: &str) -> Option<&'static str> {
    let rest = if path.is_empty() { option } else { option.strip_prefix(path)?.strip_prefix('.')? };
    rest.split('.').next()
}

/// The tables that have a key of this name, if it is not a table itself.
pub(in crate::config) fn tables_with(key: &str) -> Vec<&'static str> {
    let split = OPTIONS.iter().filter_map(|option| option.path.rsplit_once('.'));
    split.filter(|(_, name)| *name == key).map(|(table, _)| table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_unique_and_end_with_a_full_stop() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..index].iter().all(|other| other.path != option.path), "{} twice", option.path);
            assert!(option.about.ends_with('.') && !option.about.contains(['\n', '|']), "{}", option.about);
        }
    }
}
