//! `cost` of a limit: a number, a table by path and method, or numbers in a header, a parameter or the body.

use std::ops::Range;

use super::allowed::Capacity;
use super::body_units::weighted_pointers;
use super::identity::request_header;
use super::matching::{method, path_pattern};
use crate::base::fields::decimal;
use crate::config::reader::{Fault, Problem, Table};
use crate::config::schema::{self, words};
use crate::engine::policy::{BodyCost, Cost, CostLine, CostSource};
use crate::engine::units::{Pointer, Weight};

/// Compiles the cost. No cost may exceed a capacity of the limit's rules.
pub(super) fn compile(table: &Table<'_>, capacities: &[Capacity]) -> Option<Cost> {
    if table.get("cost").is_none_or(|value| value.get_ref().as_table().is_none()) {
        return units(table, "cost", capacities).map(Cost::Units);
    }
    let cost = table.table("cost");
    let default = units(&cost, "default", capacities);
    let sources: Vec<_> =
        ["paths", "header", "query", "json", "units"].into_iter().filter(|key| cost.has(key)).collect();
    if !matches!(sources[..], ["json" | "units"]) {
        let of_json = "is valid only with `cost.json` or `cost.units`";
        cost.fault_if_present("estimate", of_json);
        cost.fault_if_present("beyond", of_json);
    }
    match sources[..] {
        ["json" | "units"] => from_body(table, &cost, default, capacities),
        ["paths"] => {
            cost.fault_if_present("max", "belongs to `header`, `query`, `json` and `units`");
            let lines = cost_lines(&cost, capacities);
            Some(Cost::Table { lines: lines?, default: default? })
        }
        [_] => from_request(&cost, default, capacities),
        [] => {
            let problem =
                Problem::new(cost.span(), "`limit.cost` has none of `paths`, `header`, `query`, `json` and `units`");
            cost.context.note(problem.help("write a constant cost as `cost = 5`").absence());
            None
        }
        [one, other, ..] => {
            let title = format!("`limit.cost` has both `{one}` and `{other}`");
            let problem = Problem::new(cost.span_of(other), title);
            cost.context.note(problem.help("choose one of `paths`, `header`, `query`, `json` and `units`"));
            None
        }
    }
}

/// Reads a number of units, and notes it if it exceeds a capacity.
fn units(table: &Table<'_>, key: &str, capacities: &[Capacity]) -> Option<u64> {
    let units = table.count_at(key)?;
    for Capacity { place, units: capacity, name } in capacities.iter().filter(|one| one.units < *units.get_ref()) {
        let (path, cost) = (table.path_of(key), units.get_ref());
        let title = format!("`{path}`: a cost of {cost} can never pass: {name} is {capacity}");
        let problem = Problem::new(units.span(), title);
        table.context.note(match place {
            Some(place) => problem.also(place.clone(), "this override"),
            None => problem,
        });
    }
    Some(units.into_inner())
}

fn from_request(cost: &Table<'_>, default: Option<u64>, capacities: &[Capacity]) -> Option<Cost> {
    let header = cost.parsed("header", |name| request_header(cost.context, name)).map(CostSource::Header);
    let query = cost.text("query").map(|name| CostSource::Query(name.into()));
    let max = max(cost, capacities);
    Some(Cost::FromRequest { by: header.or(query)?, max: max?, default: default? })
}

fn from_body(limit: &Table<'_>, cost: &Table<'_>, default: Option<u64>, capacities: &[Capacity]) -> Option<Cost> {
    let numbers = if cost.has("units") {
        weighted_pointers(cost)
    } else {
        cost.parsed("json", |text| Ok(Pointer::parse(text)?)).map(|pointer| vec![(pointer, Weight::ONE)])
    };
    let bytes_per_unit = cost.has("estimate").then(|| cost.parsed("estimate", bytes_per_unit));
    let (max, refuses_longer) = (max(cost, capacities), cost.choice("beyond", &words::BEYOND));
    let read_bytes = limit.size("read_body");
    Some(Cost::FromBody(Box::new(BodyCost {
        numbers: numbers?,
        max: max?,
        default: default?,
        bytes_per_unit: match bytes_per_unit {
            Some(bytes) => Some(bytes?),
            None => None,
        },
        read_bytes: read_bytes?,
        refuses_longer: refuses_longer?,
    })))
}

/// Reads `bytes/4`.
fn bytes_per_unit(text: &str) -> Result<u64, Fault> {
    let bytes = text.strip_prefix("bytes/").and_then(|bytes| decimal(bytes.as_bytes())).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "expected the bytes of a unit, such as `bytes/4`".into())
}

/// The largest number of units that a request names.
fn max(cost: &Table<'_>, capacities: &[Capacity]) -> Option<u64> {
    let max = units(cost, "max", capacities);
    if let (false, Some(option)) = (cost.has("max"), schema::find("limit.cost.max")) {
        cost.note_missing(option);
    }
    max
}

fn cost_lines(cost: &Table<'_>, capacities: &[Capacity]) -> Option<Vec<CostLine>> {
    let mut known: Vec<(CostLine, Range<usize>)> = Vec::new();
    let mut is_whole = true;
    for table in &cost.some_tables("paths", "must not be empty")? {
        let Some(line) = cost_line(table, capacities) else {
            is_whole = false;
            continue;
        };
        if let Some((_, other)) = known.iter().find(|(other, _)| covers(other, &line)) {
            let problem = Problem::new(table.span(), "`limit.cost.paths`: this entry is never used");
            table.context.note(problem.also(other.clone(), "this entry matches all of its requests"));
        }
        known.push((line, table.span()));
    }
    is_whole.then(|| known.into_iter().map(|(line, _)| line).collect())
}

fn cost_line(table: &Table<'_>, capacities: &[Capacity]) -> Option<CostLine> {
    if table.is_broken() {
        return None;
    }
    let paths = table.list("path", |text| path_pattern(table, text)).unwrap_or_default();
    let methods = table.list("method", method).unwrap_or_default();
    let units = units(table, "units", capacities);
    if !table.has("path") && !table.has("method") {
        let problem = Problem::new(table.span(), "`limit.cost.paths`: an entry needs `path` or `method`");
        table.context.note(problem.help("`default` is the cost of all other requests").absence());
        return None;
    }
    // Without its invalid entries, the line would match more requests.
    let is_whole = table.has("path") != paths.is_empty() && table.has("method") != methods.is_empty();
    Some(CostLine { paths, methods, units: units? }).filter(|_| is_whole)
}

/// Whether every request that matches `line` also matches `other`. `false` if that is unknown.
fn covers(other: &CostLine, line: &CostLine) -> bool {
    fn has_all<T: PartialEq>(wide: &[T], narrow: &[T]) -> bool {
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(|one| wide.contains(one)))
    }
    has_all(&other.paths, &line.paths) && has_all(&other.methods, &line.methods)
}
