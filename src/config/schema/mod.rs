//! All options: the path, the type, the default and the purpose of each.
//!
//! The reader looks up keys, defaults and bounds here, and the documentation is generated from the same table. `compile`
//! interprets the values.

mod fleet;
mod foreign;
mod grpc;
mod limit;
mod option;
mod options;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use options::OPTIONS;

pub(in crate::config) use foreign::{example_of_table, help_for_key, help_for_rate, own_value};
pub(in crate::config) use option::UNLIMITED;
pub use option::{Kind, Opt, Preset};
pub(in crate::config) use options::RESOLVE;

/// Keys that later versions may have, by table, so that messages do not call them misspellings.
const NOT_YET: &[(&str, &[&str])] = &[("", &["tls", "ban"])];

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

fn key_below(option: &'static str, path: &str) -> Option<&'static str> {
    let rest = if path.is_empty() { option } else { option.strip_prefix(path)?.strip_prefix('.')? };
    rest.split('.').next()
}

/// Whether a later version may have this key.
pub(in crate::config) fn is_not_yet(path: &str, key: &str) -> bool {
    NOT_YET.iter().any(|(table, keys)| *table == path && keys.contains(&key))
}

/// The tables that have a key of this name, if it is not a table itself.
pub(in crate::config) fn tables_with(key: &str) -> Vec<&'static str> {
    let split = OPTIONS.iter().filter_map(|option| option.path.rsplit_once('.'));
    split.filter(|(_, name)| *name == key).map(|(table, _)| table).collect()
}

/// A Markdown table of all options.
pub fn options_markdown() -> String {
    let mut text = String::from("| Option | Type | Default | Purpose |\n|---|---|---|---|\n");
    for Opt { path, kind, default, about } in &OPTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{path}` | {kind} | {default} | {about} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_unique_and_in_one_line() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..index].iter().all(|other| other.path != option.path), "{} twice", option.path);
            assert!(option.about.ends_with('.') && !option.about.contains(['\n', '|']), "{}", option.about);
        }
        assert_eq!(options_markdown().lines().count(), OPTIONS.len() + 2);
    }

    #[test]
    fn what_is_not_yet_known_is_not_known() {
        for (table, keys) in NOT_YET {
            assert!(keys.iter().all(|key| !keys_of(table).contains(key)));
        }
    }

    #[test]
    fn rows_read_well() {
        let row = |path| {
            let start = format!("| `{path}` ");
            options_markdown().lines().find(|line| line.starts_with(&start)).map(str::to_owned).unwrap_or_default()
        };
        insta::assert_snapshot!(row("server.max_uri_bytes"), @r#"| `server.max_uri_bytes` | size from 16B to 65534B | `"8KiB"` | Longest request target; a longer one is 414. |"#);
        insta::assert_snapshot!(row("timeouts.total"), @r#"| `timeouts.total` | duration or `off` | `"off"` | From the hand-over to the upstream to the end of the response. |"#);
        insta::assert_snapshot!(row("limit.burst"), @r#"| `limit.burst` | whole number from 1 | COUNT of `rate` | Units that may be spent at once; for a `leaky_bucket` that holds, units that may wait. Only with one rate, of `token_bucket` or `leaky_bucket`. |"#);
        insta::assert_snapshot!(row("upstream.url"), @r#"| `upstream.url` | string (`http://host[:port]`, `https://host[:port]` or `unix:/path`) | required without `[upstreams]`, `[check]` and `[grpc]` | The address of the service, if there is one service at one address. |"#);
    }
}
