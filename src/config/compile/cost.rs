//! `cost` of a limit: a number, a table by path and method, or the number in a header or a parameter.

use std::ops::Range;

use http::Method;

use super::allowed::Capacity;
use super::identity::request_header;
use super::matching::{method, path_pattern};
use crate::config::diagnostics::Problem;
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::config::schema;
use crate::engine::policy::{Cost, CostLine, CostSource, PathPattern};

/// Compiles the cost. No cost may exceed a capacity of the limit's rules.
pub(super) fn compile(table: &Table<'_>, capacities: &[Capacity]) -> Option<Cost> {
    if table.get("cost").is_none_or(|value| value.get_ref().as_table().is_none()) {
        return units(table, "cost", capacities).map(Cost::Units);
    }
    let cost = table.table("cost");
    let default = units(&cost, "default", capacities);
    let sources = ["paths", "header", "query"].map(|key| cost.get(key).map(|value| (key, value.span())));
    let mut given = sources.into_iter().flatten();
    let (first, second) = (given.next(), given.next());
    if let (Some((one, _)), Some((other, span))) = (&first, second) {
        let title = format!("`limit.cost` has both `{one}` and `{other}`");
        let help = Some("choose one of `paths`, `header` and `query`".to_owned());
        cost.context.note(Problem::new(span, title).help(help));
        return None;
    }
    match first {
        Some(("paths", _)) => {
            if let Some(value) = cost.get("max") {
                cost.fault("max", value.span(), Fault::new("belongs to `header` and `query`"));
            }
            let lines = cost_lines(&cost, capacities);
            Some(Cost::Table { lines: lines?, default: default? })
        }
        Some(_) => from_request(&cost, default, capacities),
        None => {
            let problem = Problem::new(cost.span(), "`limit.cost` has none of `paths`, `header` and `query`");
            let help = Some("write a constant cost as `cost = 5`".to_owned());
            cost.context.note(problem.help(help).absence());
            None
        }
    }
}

/// Reads a number of units, and notes it if it exceeds a capacity.
fn units(table: &Table<'_>, key: &str, capacities: &[Capacity]) -> Option<u64> {
    let units = table.count(key)?;
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
    let header = cost.parsed("header", |name| request_header(cost.context, name));
    let header = header.map(|name| CostSource::Header(name.into_inner()));
    let query = cost.text("query").map(|name| CostSource::Query(name.into_inner().into()));
    let max = units(cost, "max", capacities);
    if let (false, Some(option)) = (cost.has("max"), schema::find("limit.cost.max")) {
        cost.note_missing(option);
    }
    Some(Cost::FromRequest { by: header.or(query)?, max: max?, default: default? })
}

fn cost_lines(cost: &Table<'_>, capacities: &[Capacity]) -> Option<Vec<CostLine>> {
    let tables = cost.tables("paths");
    if let Some(value) = cost.get("paths").filter(|_| tables.is_empty()) {
        // Anything but a list is noted already.
        if value.get_ref().as_array().is_some() {
            cost.fault("paths", value.span(), Fault::new("must not be empty"));
        }
        return None;
    }
    let mut known: Vec<(CostLine, Range<usize>)> = Vec::new();
    let mut is_whole = true;
    for table in &tables {
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
    let paths: Option<Vec<Located<PathPattern>>> = table.list("path", |text| path_pattern(table, text));
    let methods: Option<Vec<Located<Method>>> = table.list("method", method);
    let units = units(table, "units", capacities);
    if !table.has("path") && !table.has("method") {
        let problem = Problem::new(table.span(), "`limit.cost.paths`: an entry needs `path` or `method`");
        table.context.note(problem.help(Some("`default` is the cost of all other requests".to_owned())).absence());
        return None;
    }
    let line = CostLine { paths: values(paths), methods: values(methods), units: units? };
    // Without its invalid entries, the line would match more requests.
    let is_whole = table.has("path") != line.paths.is_empty() && table.has("method") != line.methods.is_empty();
    is_whole.then_some(line)
}

fn values<T>(list: Option<Vec<Located<T>>>) -> Vec<T> {
    list.into_iter().flatten().map(Located::into_inner).collect()
}

/// Whether every request that matches `line` also matches `other`. `false` if that is unknown.
fn covers(other: &CostLine, line: &CostLine) -> bool {
    fn has_all<T: PartialEq>(wide: &[T], narrow: &[T]) -> bool {
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(|one| wide.contains(one)))
    }
    has_all(&other.paths, &line.paths) && has_all(&other.methods, &line.methods)
}
