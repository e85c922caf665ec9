//! Virtual hosts and routes of Envoy, in the order in which they match.

use std::collections::BTreeMap;

use crate::import::draft::Draft;
use crate::import::limit::Match;
use crate::import::path::Path;
use crate::import::regions::Region;
use crate::import::report::OPEN;
use crate::import::services::{Rewrite, Route};
use crate::import::yaml::Node;

/// A route with its configurations around it.
#[derive(Clone, Debug)]
pub(super) struct RouteEntry<'n> {
    /// Its place in [`RouteReader::regions`].
    pub(super) index: usize,
    pub(super) route: &'n Node,
    pub(super) host: &'n Node,
    pub(super) table: &'n Node,
    pub(super) cluster: String,
}

/// The routes of all listeners.
#[derive(Default)]
pub(super) struct RouteReader<'n> {
    pub(super) entries: Vec<RouteEntry<'n>>,
    pub(super) regions: Vec<Region>,
    /// The service of each route, and the change of its path.
    actions: Vec<(String, Option<Rewrite>)>,
    rewritten: BTreeMap<String, String>,
}

impl<'n> RouteReader<'n> {
    pub(super) fn is_in_use(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Keys of services that get the host of their address, with their clusters.
    pub(super) fn rewritten(&self) -> impl Iterator<Item = (String, &str)> {
        self.rewritten.iter().map(|(id, cluster)| (id.clone(), cluster.as_str()))
    }

    pub(super) fn routes(&self) -> Vec<Route> {
        let route = |(region, (service, rewrite)): (&Region, &(String, Option<Rewrite>))| Route {
            places: vec![region.place],
            matches: region.matches.clone(),
            service: service.clone(),
            rewrite: rewrite.clone(),
            require: None,
        };
        self.regions.iter().zip(&self.actions).map(route).collect()
    }

    /// Reads the routes of a connection manager. Returns the index of its first entry.
    pub(super) fn read(&mut self, manager: &'n Node, draft: &mut Draft) -> usize {
        let first = self.entries.len();
        let Some(table) = manager.get("route_config") else { return first };
        let mut hosts: Vec<_> = Vec::new();
        for host in table.list("virtual_hosts") {
            hosts.extend(domains(host, draft).map(|domains| (host, domains)));
        }
        // Envoy prefers a host to a wildcard, and a longer wildcard to a shorter one.
        let rank = |domains: &Vec<String>| {
            let wildcards = domains.iter().filter(|domain| domain.starts_with('*'));
            (domains.is_empty(), wildcards.map(String::len).max().map_or(0, |len| usize::MAX - len))
        };
        hosts.sort_by_key(|(_, domains)| rank(domains));
        for (host, domains) in &hosts {
            for route in host.list("routes") {
                self.add(route, (host, table), domains, draft);
            }
            let has_all = |route: &RouteEntry<'_>| self.regions[route.index].matches.paths.is_empty();
            let of_host = self.entries.iter().filter(|entry| std::ptr::eq(entry.host, &raw const ***host));
            if !domains.is_empty() && hosts.len() > 1 && !of_host.into_iter().any(has_all) {
                draft.differs(host.place, "Envoy answers 404 to other paths, Weir goes on to later hosts");
            }
        }
        first
    }

    fn add(&mut self, route: &'n Node, (host, table): (&'n Node, &'n Node), domains: &[String], draft: &mut Draft) {
        let Some(action) = route.get("route") else {
            let status = route.get("direct_response").and_then(|response| response.number("status"));
            let is_refusal = status.is_some_and(|status: u16| status >= 400);
            let why = if is_refusal { OPEN } else { "Weir only forwards requests to services" };
            return route.left_out(why, draft);
        };
        let Some(cluster) = action.get("cluster").map(|cluster| cluster.text().to_owned()) else {
            return route.left_out("Weir needs a route to one cluster", draft);
        };
        let (mut matches, path) = match route.get("match").map_or(Err("it has no `match`"), conditions) {
            Ok(conditions) => conditions,
            Err(reason) => return route.left_out(reason, draft),
        };
        if matches.hosts.is_empty() {
            matches.hosts = domains.to_vec();
        }
        let rewrite = action.get("prefix_rewrite").map(|to| rewrite(path.text(), to.text()));
        if rewrite == Some(None) {
            return route.left_out("Weir removes and adds only whole segments of a path", draft);
        }
        let is_separated = route.at(&["match", "path_separated_prefix"]).is_some();
        if let Some(difference) = path.difference().filter(|_| !is_separated) {
            draft.differs(route.place, difference);
        }
        let mut service = cluster.clone();
        if action.is_true("auto_host_rewrite") {
            service = format!("{cluster} by its host");
            self.rewritten.insert(service.clone(), cluster.clone());
        }
        self.entries.push(RouteEntry { index: self.regions.len(), route, host, table, cluster });
        self.regions.push(Region { place: route.place, matches });
        self.actions.push((service, rewrite.flatten().filter(|(strip, add)| strip != add)));
    }
}

/// The hosts of a virtual host, none for all; `None` if Weir has no pattern for them.
fn domains(host: &Node, draft: &mut Draft) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for domain in host.list("domains") {
        let text = domain.text().to_ascii_lowercase();
        let name =
            text.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(&*text, |(name, _)| name);
        if name == "*" {
            return Some(Vec::new());
        }
        if name.strip_prefix("*.").unwrap_or(name).contains('*') {
            domain.left_out("Weir has no such pattern of hosts", draft);
        } else if !hosts.iter().any(|known| known == name) {
            hosts.push(name.to_owned());
        }
    }
    if hosts.is_empty() {
        host.left_out("Weir has no pattern for its hosts", draft);
        return None;
    }
    Some(hosts)
}

/// The requests of a `match`; errs with the reason why Weir cannot match them.
fn conditions(node: &Node) -> Result<(Match, Path), &'static str> {
    const NONE: &str = "Weir has no such condition of a route";
    let mut path = None;
    let mut matches = Match::default();
    for (name, value) in node.members() {
        match name.as_str() {
            "prefix" | "path_separated_prefix" => path = Some(Path::prefix(value.text())?),
            "path" => path = Some(Path::exact(value.text())?),
            "headers" => {
                for header in value.items() {
                    add_header(header, &mut matches).ok_or(NONE)?;
                }
            }
            _ => return Err(NONE),
        }
    }
    // A header `:path` would be a second path.
    let path = path.filter(|_| matches.paths.is_empty()).ok_or(NONE)?;
    matches.paths = path.patterns();
    Ok((matches, path))
}

/// Adds a condition on a header; `None` if Weir has no such condition.
pub(super) fn add_header(header: &Node, matches: &mut Match) -> Option<()> {
    let name = header.word("name").to_ascii_lowercase();
    let string = header.get("string_match");
    let text = string.and_then(|string| string.get("exact")).or_else(|| header.get("exact_match"));
    let start = string.and_then(|string| string.get("prefix")).or_else(|| header.get("prefix_match"));
    let is_plain = header.members().len() == 2 && string.is_none_or(|string| string.members().len() == 1);
    let value = text.map(|text| text.text().to_owned()).filter(|text| !text.is_empty() && text != "*");
    match (name.as_str(), value) {
        _ if !is_plain => return None,
        (":path", Some(path)) if matches.paths.is_empty() => matches.paths = Path::exact(&path).ok()?.patterns(),
        (":path", None) if matches.paths.is_empty() => {
            let path = Path::prefix(start?.text()).ok().filter(|path| path.difference().is_none())?;
            matches.paths = path.patterns();
        }
        (":method", Some(method)) if matches.methods.is_empty() => matches.methods = vec![method],
        (":authority" | "host", Some(host)) if matches.hosts.is_empty() => matches.hosts = vec![host],
        (name, Some(value)) if !name.starts_with(':') => matches.headers.push((name.to_owned(), value)),
        (name, None) if !name.starts_with(':') && header.is_true("present_match") => {
            matches.headers.push((name.to_owned(), "*".to_owned()));
        }
        _ => return None,
    }
    Some(())
}

/// The change of the start of a path; `None` if Weir has no such change.
fn rewrite(from: &str, to: &str) -> Option<Rewrite> {
    let is_alike = from.ends_with('/') == to.ends_with('/') && to.starts_with('/') && !to.contains('?');
    is_alike.then(|| (from.trim_end_matches('/').to_owned(), to.trim_end_matches('/').to_owned()))
}
