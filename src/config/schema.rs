//! Every option there is: its path, type, default and purpose.
//!
//! This one table says which keys exist, what they default to and what numbers they allow; the reader looks
//! all of that up here, and the documentation is rendered from it. What values mean is not here.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use super::options::OPTIONS;

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its place: tables and key, joined by dots. `NAME` stands for a name that the user chooses.
    pub path: &'static str,
    /// What it can be.
    pub kind: Kind,
    /// What it is when it is absent.
    pub default: Preset,
    /// What it is for, in a sentence.
    pub about: &'static str,
}

/// What an option can be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A string.
    Text(&'static str),
    /// A list of strings, or a single one.
    List(&'static str),
    /// The same, not empty.
    Some(&'static str),
    /// A whole number in a range, both ends included.
    Count(u64, u64),
    /// A whole number from this on, or a table.
    CountOrTable(u64),
    /// A rate, or so many at most.
    Rates(usize),
    /// A rate, or `false`.
    RateOrFalse,
    /// What a limit allows to some: rates, a table, or this word for all.
    Allowance(&'static str),
    /// Bytes in a range, both ends included.
    Size(u64, u64),
    /// The same, or this word.
    SizeOr(u64, u64, &'static str),
    /// `true` or `false`.
    Switch,
    /// A duration above zero.
    Duration,
    /// A duration, also zero.
    DurationOrZero,
    /// A duration above zero, or this word.
    DurationOr(&'static str),
    /// A duration above zero, or one of these words.
    DurationOrOneOf(&'static [&'static str]),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Names and strings.
    Map(&'static str),
    /// A list of tables, not empty.
    Tables(&'static str),
}

/// What an option is when it is absent.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// An error.
    Required,
    /// Not a constant; in words.
    Unset(&'static str),
    /// The same as this TOML.
    Toml(&'static str),
}

impl Kind {
    /// Whether it is a whole number, and this one may be it.
    pub(super) fn allows(self, number: u64) -> bool {
        match self {
            Self::Count(min, max) => (min..=max).contains(&number),
            Self::CountOrTable(min) => number >= min,
            _ => false,
        }
    }
}

/// Keys of other versions, by table, so that they are not taken for misspellings.
const NOT_YET: &[(&str, &[&str])] = &[("", &["tls", "store", "ban"])];

/// Every option there is, in the order of documentation.
pub fn options() -> &'static [Opt] {
    &OPTIONS
}

/// The option at a path.
pub(super) fn find(path: &str) -> Option<&'static Opt> {
    static BY_PATH: LazyLock<HashMap<&str, &Opt>> =
        LazyLock::new(|| OPTIONS.iter().map(|option| (option.path, option)).collect());
    BY_PATH.get(path).copied()
}

/// The keys that the table at `path` can have; `""` is the whole file.
pub(super) fn keys_of(path: &str) -> Vec<&'static str> {
    let mut keys: Vec<_> = OPTIONS.iter().filter_map(|option| key_below(option.path, path)).collect();
    keys.dedup();
    keys
}

fn key_below(option: &'static str, path: &str) -> Option<&'static str> {
    let rest = if path.is_empty() { option } else { option.strip_prefix(path)?.strip_prefix('.')? };
    rest.split('.').next()
}

/// Whether a later version may know this key.
pub(super) fn is_not_yet(path: &str, key: &str) -> bool {
    NOT_YET.iter().any(|(table, keys)| *table == path && keys.contains(&key))
}

/// The tables that have a key of this name, if it is not a table itself.
pub(super) fn tables_with(key: &str) -> Vec<&'static str> {
    let split = OPTIONS.iter().filter_map(|option| option.path.rsplit_once('.'));
    split.filter(|(_, name)| *name == key).map(|(table, _)| table).collect()
}

/// A Markdown table of every option.
pub fn options_markdown() -> String {
    let mut text = String::from("| Option | Type | Default | Purpose |\n|---|---|---|---|\n");
    for Opt { path, kind, default, about } in &OPTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{path}` | {kind} | {default} | {about} |");
    }
    text
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(what) => write!(f, "string ({what})"),
            Self::List(what) => write!(f, "list of strings ({what})"),
            Self::Some(what) => write!(f, "non-empty list of strings ({what})"),
            Self::Count(min, u64::MAX) => write!(f, "whole number from {min}"),
            Self::Count(min, max) => write!(f, "whole number from {min} to {max}"),
            Self::CountOrTable(min) => write!(f, "whole number from {min}, or table"),
            Self::Rates(most) => write!(f, "rate, or list of 1 to {most} rates"),
            Self::RateOrFalse => f.write_str("rate, or `false`"),
            Self::Allowance(word) => write!(f, "rate, list of rates, table, or `{word}`"),
            Self::Size(min, max) => write!(f, "size from {} to {}", Bytes(*min), Bytes(*max)),
            Self::SizeOr(min, max, word) => write!(f, "size from {} to {}, or `{word}`", Bytes(*min), Bytes(*max)),
            Self::Switch => f.write_str("true or false"),
            Self::Duration => f.write_str("duration"),
            Self::DurationOrZero => f.write_str("duration or zero"),
            Self::DurationOr(word) => write!(f, "duration or `{word}`"),
            Self::DurationOrOneOf(words) => write!(f, "duration, `{}`", words.join("`, `")),
            Self::OneOf(words) => write!(f, "`{}`", words.join("`, `")),
            Self::Map(what) => write!(f, "table ({what})"),
            Self::Tables(what) => write!(f, "non-empty list of tables ({what})"),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => f.write_str("required"),
            Self::Unset(words) => f.write_str(words),
            Self::Toml(text) => write!(f, "`{text}`"),
        }
    }
}

/// Bytes in the largest unit that divides them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >= 1 << shift && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}B", self.0),
        }
    }
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
        insta::assert_snapshot!(row("server.max_uri_bytes"), @r#"| `server.max_uri_bytes` | size from 16B to 65534B | `"8KiB"` | Longest request target; longer is 414. |"#);
        insta::assert_snapshot!(row("timeouts.total"), @r#"| `timeouts.total` | duration or `off` | `"off"` | From the hand-over to the upstream to the end of the response. |"#);
        insta::assert_snapshot!(row("limit.burst"), @r#"| `limit.burst` | whole number from 1 | COUNT of `rate` | Units that may be spent at once; for `leaky_bucket` that holds, units that may queue. For one rate, of `token_bucket` or `leaky_bucket`. |"#);
        insta::assert_snapshot!(row("upstream.url"), @r#"| `upstream.url` | string (`http://host[:port]`, `https://host[:port]` or `unix:/path`) | required without `[upstreams]` | The service behind Weir, if there is one in one place. |"#);
    }
}
