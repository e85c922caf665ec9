//! Services and routes as the formats know them, and their tables of TOML.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{Block, Draft, SourceLine, list, name, quoted, unique};
use super::limit::Match;

/// A service with its endpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) places: Vec<SourceLine>,
    pub(super) endpoints: Vec<String>,
    /// `balance`, and `hash_by`, as TOML.
    pub(super) balance: Vec<(&'static str, String)>,
    /// Whether the service gets the host of its address in place of that of the client.
    pub(super) rewrites_host: bool,
}

/// The starts of a path that are removed and added.
pub(super) type Rewrite = (String, String);

/// The requests that go to a service.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) places: Vec<SourceLine>,
    pub(super) matches: Match,
    /// The key of the service.
    pub(super) service: String,
    pub(super) rewrite: Option<Rewrite>,
    /// The identity that each request must have.
    pub(super) require: Option<&'static str>,
}

/// Writes the services with a route, and the routes in their order.
pub(super) fn write(services: &BTreeMap<String, Service>, routes: Vec<Route>, draft: &mut Draft) {
    let (routes, lost): (Vec<_>, Vec<_>) = routes.into_iter().partition(|route| services.contains_key(&route.service));
    for place in lost.into_iter().flat_map(|route| route.places) {
        draft.left_out(place, "its service is not translated");
    }
    let Some(first) = routes.first() else { return };
    let (only, service) =
        (routes.len() == 1 && first.rewrite.is_none() && first.require.is_none(), &services[&first.service]);
    if only && first.matches == Match::default() && service.endpoints.len() == 1 && service.balance.is_empty() {
        let places = first.places.iter().chain(&service.places).copied();
        let block = Block::new("[upstream]", places).option("url", quoted(&service.endpoints[0]));
        draft.push(if service.rewrites_host { block.option("host", "\"upstream\"") } else { block });
        return;
    }
    let mut used = BTreeSet::new();
    let mut names = BTreeMap::new();
    for route in &routes {
        if names.contains_key(&route.service) {
            continue;
        }
        let service = &services[&route.service];
        let name = unique(name(&service.name), &mut used);
        let block = Block::new(format!("[upstreams.{name}]"), service.places.iter().copied());
        let block = block.option("endpoints", list(&service.endpoints));
        let block = if service.rewrites_host { block.option("host", "\"upstream\"") } else { block };
        draft.push(service.balance.iter().fold(block, |block, (option, value)| block.option(option, value)));
        names.insert(route.service.clone(), name);
    }
    for route in routes {
        let mut block = Block::new("[[route]]", route.places);
        if let Some(matches) = route.matches.table() {
            block = block.option("match", matches);
        }
        block = block.option("upstream", quoted(&names[&route.service]));
        if let Some((strip, add)) = route.rewrite {
            let parts = [("strip", strip), ("add", add)].into_iter().filter(|(_, path)| !path.is_empty());
            let parts: Vec<_> = parts.map(|(option, path)| format!("{option} = {}", quoted(&path))).collect();
            block = block.option("rewrite", format!("{{ {} }}", parts.join(", ")));
        }
        if let Some(identity) = route.require {
            block = block.option("require", list(&[identity]));
        }
        draft.push(block);
    }
}

/// Writes the addresses for clients.
pub(super) fn listen(addresses: &[(SourceLine, String)], draft: &mut Draft) {
    if !addresses.is_empty() {
        let (places, addresses): (BTreeSet<_>, BTreeSet<_>) = addresses.iter().cloned().unzip();
        let addresses: Vec<_> = addresses.into_iter().collect();
        draft.push(Block::new("[server]", places).option("listen", list(&addresses)));
    }
}
