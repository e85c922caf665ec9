//! The cost of a request in units, as far as it is known before the response.

use http::{HeaderName, Method};

use super::body_cost::BodyCost;
use super::facts::Facts;
use super::matching::pattern::PathPattern;
use super::matching::values::{all_in_query, compared};
use crate::base::fields::decimal;

/// The rule for the cost of a request.
#[derive(Clone, Debug)]
pub enum Cost {
    /// A constant number of units.
    Units(u64),
    /// The units of the first line that fits the request, otherwise `default`.
    Table {
        /// The lines, in order.
        lines: Vec<CostLine>,
        /// The units if no line fits.
        default: u64,
    },
    /// A number that the client or a proxy in front of Weir sends, from 1 to `max`. The request takes `default` if the
    /// value is missing or empty, and `max` if the value is any other text: a service may read a number in `+1000` or
    /// `1_000`. Of several values the highest counts, so that a client cannot lower the number of a proxy.
    FromRequest {
        /// The place of the number.
        by: CostSource,
        /// The largest number of units.
        max: u64,
        /// The units without a value.
        default: u64,
    },
    /// A number that the body names.
    FromBody(Box<BodyCost>),
}

/// One line of a cost table.
#[derive(Clone, Debug)]
pub struct CostLine {
    /// The paths that fit; empty for all.
    pub paths: Vec<PathPattern>,
    /// The methods that fit; empty for all.
    pub methods: Vec<Method>,
    /// The units of requests that fit.
    pub units: u64,
}

/// The place in a request of its cost.
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

    /// The largest cost of a request.
    pub fn max(&self) -> u64 {
        match self {
            Self::Units(units) => *units,
            Self::Table { lines, default } => lines.iter().map(|line| line.units).fold(*default, u64::max),
            Self::FromRequest { max, default, .. } => *max.max(default),
            Self::FromBody(cost) => cost.max.max(cost.default),
        }
    }

    /// Whether a line that names OPTIONS fits the path of the request.
    pub(super) fn names_options(&self, facts: &Facts<'_>) -> bool {
        let names = |line: &CostLine| line.methods.contains(&Method::OPTIONS) && line.has_path(facts);
        matches!(self, Self::Table { lines, .. } if lines.iter().any(names))
    }

    fn look_up(&self, facts: &Facts<'_>) -> u64 {
        match self {
            Self::Units(units) => *units,
            Self::Table { lines, default } => {
                // A service answers HEAD wherever it answers GET. So HEAD costs as much as GET, unless a line names
                // HEAD.
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
            Self::FromBody(cost) => cost.units(facts.body),
        }
    }
}

impl CostLine {
    fn has_path(&self, facts: &Facts<'_>) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|path| path.matches(facts.path))
    }

    /// Whether the line fits `method`, or GET if `or_get`.
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
