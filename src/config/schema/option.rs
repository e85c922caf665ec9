//! An option: its path, kind and default, and how the documentation shows them.

use std::fmt;

use super::words::Words;

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// The tables and the key, joined by dots. `NAME` stands for a name that the user chooses.
    pub path: &'static str,
    /// The type.
    pub kind: Kind,
    /// The default.
    pub default: Preset,
    /// The purpose.
    pub about: &'static str,
}

/// The type of an option.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A string.
    Text(&'static str),
    /// A list of strings, or a single one.
    List(&'static str),
    /// A list of strings, or a single one; not empty.
    Some(&'static str),
    /// A list of strings or of files with rows, or a single one; not empty.
    Rows(&'static str),
    /// A list of statuses as strings or numbers, or a single one; not empty.
    Statuses(&'static str),
    /// A whole number in a range, both ends included.
    Count(u64, u64),
    /// A whole number in a range, both ends included, or this word.
    CountOr(u64, u64, &'static str),
    /// A whole number from this on, or a table.
    CountOrTable(u64),
    /// A rate, or a list of at most this many rates.
    Rates(usize),
    /// A rate, or `false`.
    RateOrFalse,
    /// An allowance: rates, a factor, a table, or this word for no limit.
    Allowance(&'static str),
    /// Bytes in a range, both ends included.
    Size(u64, u64),
    /// Bytes in a range, both ends included, or this word.
    SizeOr(u64, u64, &'static str),
    /// `true` or `false`.
    Switch,
    /// A duration above zero.
    Duration,
    /// A duration in a range of milliseconds, both ends included.
    DurationIn(u64, u64),
    /// A duration, also zero.
    DurationOrZero,
    /// A duration above zero, or this word.
    DurationOr(&'static str),
    /// A duration above zero, or one of these words.
    DurationOrOneOf(&'static dyn Words),
    /// One of these words.
    OneOf(&'static dyn Words),
    /// One of these words, or a table.
    OneOfOrTable(&'static dyn Words),
    /// A string, or a table.
    TextOrTable(&'static str),
    /// A string, a boolean, a list of strings, or a table.
    ValueOrTable(&'static str),
    /// Names and strings.
    Map(&'static str),
    /// A list of tables, not empty.
    Tables(&'static str),
}

/// The default of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The option is required.
    Required,
    /// The default is no constant; these words describe it.
    Unset(&'static str),
    /// The default is this TOML.
    Toml(&'static str),
}

impl Kind {
    /// Whether the option is a whole number, and `number` is within its bounds.
    pub(in crate::config) fn allows(self, number: u64) -> bool {
        match self {
            Self::Count(min, max) | Self::CountOr(min, max, _) => (min..=max).contains(&number),
            Self::CountOrTable(min) => number >= min,
            _ => false,
        }
    }
}

pub(super) const fn opt(path: &'static str, kind: Kind, default: Preset, about: &'static str) -> Opt {
    Opt { path, kind, default, about }
}

pub(super) const NONE: Preset = Preset::Unset("none");

/// The type of an address of a listener.
pub(super) const PLACE: &str = "address and port, or `unix:` and a path";

/// The word for an allowance without a limit.
pub(in crate::config) const UNLIMITED: &str = "unlimited";

impl Preset {
    /// Whether the option is required, always or with a condition.
    pub(in crate::config) fn is_required(self) -> bool {
        match self {
            Self::Required => true,
            Self::Unset(words) => words.starts_with("required"),
            Self::Toml(_) => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(what) => write!(f, "string ({what})"),
            Self::List(what) => write!(f, "list of strings ({what})"),
            Self::Some(what) | Self::Statuses(what) => write!(f, "non-empty list of strings ({what})"),
            Self::Rows(what) => write!(f, "non-empty list of strings ({what}) or of `{{ file = \"PATH\" }}`"),
            Self::Count(min, u64::MAX) => write!(f, "whole number from {min}"),
            Self::Count(min, max) => write!(f, "whole number from {min} to {max}"),
            Self::CountOr(min, u64::MAX, word) => write!(f, "whole number from {min}, or `{word}`"),
            Self::CountOr(min, max, word) => write!(f, "whole number from {min} to {max}, or `{word}`"),
            Self::CountOrTable(min) => write!(f, "whole number from {min}, or table"),
            Self::Rates(most) => write!(f, "rate, or list of 1 to {most} rates"),
            Self::RateOrFalse => f.write_str("rate, or `false`"),
            Self::Allowance(word) => write!(f, "rate, list of rates, factor, table, or `{word}`"),
            Self::Size(min, max) => write!(f, "size from {} to {}", Bytes(*min), Bytes(*max)),
            Self::SizeOr(min, max, word) => write!(f, "size from {} to {}, or `{word}`", Bytes(*min), Bytes(*max)),
            Self::Switch => f.write_str("true or false"),
            Self::Duration => f.write_str("duration"),
            Self::DurationIn(min, max) => write!(f, "duration from {} to {}", Milliseconds(*min), Milliseconds(*max)),
            Self::DurationOrZero => f.write_str("duration or zero"),
            Self::DurationOr(word) => write!(f, "duration or `{word}`"),
            Self::DurationOrOneOf(words) => write!(f, "duration, `{}`", words.all().join("`, `")),
            Self::OneOf(words) => write!(f, "`{}`", words.all().join("`, `")),
            Self::OneOfOrTable(words) => write!(f, "`{}`, or table", words.all().join("`, `")),
            Self::TextOrTable(what) => write!(f, "string ({what}), or table"),
            Self::ValueOrTable(what) => write!(f, "string or list of strings ({what}), boolean, or table"),
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

/// Milliseconds in the largest unit that divides them.
struct Milliseconds(u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) { write!(f, "{}s", self.0 / 1000) } else { write!(f, "{}ms", self.0) }
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
