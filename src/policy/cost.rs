//! How many units a request takes, before anything is known of its answer.

use http::{HeaderName, Method};

use super::facts::Facts;
use super::matching::pattern::PathPattern;
use super::matching::values::{all_in_query, compared};
use crate::fields::decimal;

/// Units of a request.
#[derive(Clone, Debug)]
pub enum Cost {
    /// Always so many.
    Units(u64),
    /// By what is asked for: those of the first line that fits, else the default.
    Table {
        /// Lines, in order.
        lines: Vec<CostLine>,
        /// If none fits.
        default: u64,
    },
    /// A number that the client or a proxy in front of Weir sends, from 1 to `max`. The request takes `default` if the
    /// value is missing or empty, and `max` if the value is any other text: a service may read a number in `+1000` or
    /// `1_000`. Of several values the highest counts, so that a client cannot lower the number of a proxy.
    FromRequest {
        /// Where it is said.
        by: CostSource,
        /// At most.
        max: u64,
        /// Otherwise.
        default: u64,
    },
}

/// One line of a table of costs.
#[derive(Clone, Debug)]
pub struct CostLine {
    /// The paths it is for; empty for all.
    pub paths: Vec<PathPattern>,
    /// The methods it is for; empty for all.
    pub methods: Vec<Method>,
    /// Units.
    pub units: u64,
}

/// Who says what a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// A header.
    Header(HeaderName),
    /// A query parameter.
    Query(Box<str>),
}

impl Cost {
    /// The units of this request.
    #[inline]
    pub fn units(&self, facts: &Facts<'_>) -> u64 {
        match self {
            Self::Units(units) => *units,
            other => other.look_up(facts),
        }
    }

    /// The most that a request can take.
    pub fn max(&self) -> u64 {
        match self {
            Self::Units(units) => *units,
            Self::Table { lines, default } => lines.iter().map(|line| line.units).fold(*default, u64::max),
            Self::FromRequest { max, default, .. } => *max.max(default),
        }
    }

    /// Whether a line that names OPTIONS is for the request's path.
    pub(super) fn names_options(&self, facts: &Facts<'_>) -> bool {
        let names = |line: &CostLine| line.methods.contains(&Method::OPTIONS) && line.has_path(facts);
        matches!(self, Self::Table { lines, .. } if lines.iter().any(names))
    }

    fn look_up(&self, facts: &Facts<'_>) -> u64 {
        match self {
            Self::Units(units) => *units,
            Self::Table { lines, default } => {
                // A service answers HEAD wherever it answers GET: it costs as much, unless a line names it.
                let names_head = |line: &CostLine| line.methods.contains(&Method::HEAD) && line.has_path(facts);
                let or_get = *facts.method == Method::HEAD && !lines.iter().any(names_head);
                let fits = |line: &&CostLine| line.has_method(facts.method, or_get) && line.has_path(facts);
                lines.iter().find(fits).map_or(*default, |line| line.units)
            }
            Self::FromRequest { by, max, default } => {
                let units = |value: &[u8]| match compared(value) {
                    [] => *default,
                    value => number(value).map_or(*max, |units| units.clamp(1, *max)),
                };
                match by {
                    CostSource::Header(name) => facts.headers.all(name.as_str()).map(units).max(),
                    CostSource::Query(name) => all_in_query(facts.query, name).map(|value| units(&value)).max(),
                }
                .unwrap_or(*default)
            }
        }
    }
}

impl CostLine {
    fn has_path(&self, facts: &Facts<'_>) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|path| path.matches(facts.path))
    }

    /// Whether it is for `method`, or for GET if `or_get`.
    fn has_method(&self, method: &Method, or_get: bool) -> bool {
        let methods = &self.methods;
        methods.is_empty() || methods.contains(method) || or_get && methods.contains(&Method::GET)
    }
}

/// Reads a whole number. A negative number is 0, because no request costs less.
fn number(text: &[u8]) -> Option<u64> {
    match text.strip_prefix(b"-") {
        Some(negative) => decimal(negative).map(|_| 0),
        None => decimal(text),
    }
}

#[cfg(test)]
mod tests;
