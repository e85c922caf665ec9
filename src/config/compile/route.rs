//! `[[route]]`: the upstream of a request, and the rewriting of its path.
//!
//! Routes that no request can reach are noted here. `policy::route` chooses the route of a request.

use std::sync::Arc;

use super::access::required_identities;
use super::matching::{folded_pattern, matches};
use super::upstream::{CompiledUpstreams, note_no_upgrades, upgrades};
use crate::config::reader::{Fault, Optional, Problem, Table, did_you_mean, nearest, whole};
use crate::engine::policy::Match;
use crate::engine::policy::PathPattern;
use crate::engine::policy::path::PathRules;
use crate::engine::policy::route::{Rewrite, Route, Routes};

/// The most routes. Each route is compared with all routes before it.
const ROUTES_MAX: usize = 4096;

/// Compiles the routes to the upstreams of `compiled`. `[upstream]` has no name, and so no routes.
pub(super) fn routes(root: &Table<'_>, compiled: &CompiledUpstreams) -> Optional<Arc<Routes>> {
    let identities: Vec<_> = root.table("identity").entries().into_iter().map(|(name, _)| name.into_inner()).collect();
    let upstreams = &compiled.names[..];
    let tables = root.tables("route");
    if tables.is_empty() {
        if let Some(second) = upstreams.get(1) {
            let title = "there are several upstreams and no `[[route]]`";
            let help =
                "add a route for each upstream, as in `[[route]] match = { path = \"/a/{*rest}\" } upstream = \"a\"`";
            root.context.note(Problem::new(second.span(), title).absence().help(help));
        }
        return Some(None);
    }
    if upstreams.is_empty() {
        // Errors of `[upstreams]` are noted already.
        if !root.has("upstreams") {
            let help = "all requests go to `[upstream]`; a route needs `[upstreams.NAME]`";
            let problem = Problem::new(tables[0].span(), "`[[route]]` needs `[upstreams]`").absence();
            root.context.note(problem.help(help));
        }
        return None;
    }
    if let Some(table) = tables.get(ROUTES_MAX) {
        let title = format!("there are more than {ROUTES_MAX} routes");
        let help = "one route can have many paths, as in `match = { path = [\"/a\", \"/b\"] }`";
        root.context.note(Problem::new(table.span(), title).help(help));
        return None;
    }
    let routes: Vec<_> = tables.iter().map(|table| route(table, compiled, &identities)).collect();
    let is_used = |index: usize| routes.iter().flatten().any(|route| route.upstream == index);
    let all_known = routes.iter().all(Option::is_some);
    for (_, name) in upstreams.iter().enumerate().filter(|(index, _)| all_known && !is_used(*index)) {
        root.context.note(Problem::new(name.span(), format!("no route leads to the upstream `{}`", name.get_ref())));
    }
    for (index, later) in routes.iter().enumerate() {
        if let Some(later) = later {
            note_unreachable(&tables, &routes[..index], &later.matches, index);
        }
    }
    let routes: Option<Vec<_>> = routes.into_iter().collect();
    Some(Some(Arc::new(Routes::new(routes?))))
}

fn route(table: &Table<'_>, compiled: &CompiledUpstreams, identities: &[String]) -> Option<Route> {
    let upstreams = &compiled.names;
    let matches = matches(&table.table("match"));
    let upstream = table.parsed("upstream", |text| {
        upstreams.iter().position(|name| name.get_ref() == text).ok_or_else(|| {
            let names = || upstreams.iter().map(|name| name.get_ref().as_str());
            let all = || format!("there are {}", names().collect::<Vec<_>>().join(", "));
            let help = did_you_mean(nearest(text, names())).unwrap_or_else(all);
            Fault::new(format!("there is no upstream `{text}`")).help(help).absence()
        })
    });
    let upgrades = table.optional("upgrade", |_| upgrades(table));
    let speaks_h2 = upstream.is_some_and(|upstream| compiled.speak_h2.get(upstream) == Some(&true));
    if speaks_h2 && upgrades.iter().flatten().any(|upgrades| !upgrades.is_empty()) {
        note_no_upgrades(table);
    }
    whole!(Route {
        rewrite: table.table("rewrite").if_present(|table| rewrite(table, &matches.paths)),
        matches: Some(matches),
        upstream,
        upgrades,
        max_body_bytes: table.optional("max_body_bytes", |key| table.size(key)),
        require: Some(required_identities(table, "require", identities)),
    })
}

/// Compiles the rewriting of the path.
fn rewrite(table: &Table<'_>, paths: &[PathPattern]) -> Option<Arc<Rewrite>> {
    let paths_of_clients = table.context.paths.get();
    let read = |key: &str, rules| table.optional(key, |key| table.parsed(key, |text| prefix(text, rules)));
    // What is added is never matched.
    let (strip, add) = (read("strip", paths_of_clients), read("add", PathRules::default()));
    if let Some(Some(strip)) = &strip {
        let folded = paths_of_clients.fold(strip);
        let other = paths.iter().find(|path| !path.starts_with(&folded));
        if paths.is_empty() || other.is_some() {
            let title = other.map_or("`strip` needs `match.path`".to_owned(), |path| {
                format!("`{}` does not begin with `{strip}`", path.as_str())
            });
            let help = "every path of the route must begin with `strip`";
            table.fault_at("strip", Fault::new(title).help(help).absence());
        }
    }
    let locations = table.switch("locations");
    let (strip, add) = (strip?, add?);
    if strip.is_none() && add.is_none() && !table.is_broken() {
        let problem = Problem::new(table.span(), "`route.rewrite` changes nothing").absence();
        table.context.note(problem.help("it can have strip, add"));
    }
    let (strip, add) = (strip.unwrap_or_default(), add.unwrap_or_default());
    Some(Arc::new(Rewrite { strip, add, locations: locations?, paths: paths_of_clients }))
}

/// Parses whole segments at the start of a path.
fn prefix(text: &str, rules: PathRules) -> Result<Box<str>, Fault> {
    let pattern = folded_pattern(text, rules)?;
    if pattern.as_str().contains(['{', '}']) {
        return Err(format!("`{text}`: only a pattern can have names in braces").into());
    }
    if text.ends_with('/') {
        let shorter = text.trim_end_matches('/');
        return Err(
            Fault::new("must not end with `/`").help(did_you_mean(Some(shorter).filter(|text| !text.is_empty())))
        );
    }
    Ok(text.into())
}

/// Notes a route that no request reaches, because routes before it match all of its requests.
fn note_unreachable(tables: &[Table<'_>], earlier: &[Option<Route>], later: &Match, index: usize) {
    let by = |later: &Match| earlier.iter().position(|one| one.as_ref().is_some_and(|one| one.matches.covers(later)));
    // Several routes before it may each take some of its paths.
    let first = if later.paths.is_empty() {
        by(later)
    } else {
        let each = later.paths.iter().map(|path| by(&Match { paths: vec![path.clone()], ..later.clone() }));
        each.collect::<Option<Vec<_>>>().and_then(|all| all.first().copied())
    };
    if let Some(first) = first {
        let table = &tables[index];
        let problem = Problem::new(table.span(), "this route is never used: earlier routes match all of its requests");
        let help = "Weir uses the first route that matches; put the more specific route first";
        table.context.note(problem.also(tables[first].span(), "matched here").help(help));
    }
}
