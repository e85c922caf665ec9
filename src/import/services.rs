//! Services and routes as the formats know them, and their tables of TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

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

/// The addresses of a section of the original, such as a server.
#[derive(Debug, Default)]
pub(super) struct Listening {
    /// The line that the report names.
    pub(super) place: SourceLine,
    /// The addresses that Weir can have, with their lines.
    pub(super) addresses: Vec<(SourceLine, String)>,
    /// Other addresses, such as those with TLS.
    pub(super) by_hand: Vec<String>,
    /// Whether a service gets requests of the section.
    pub(super) has_service: bool,
}

impl Listening {
    fn all(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(|(_, address)| address).chain(&self.by_hand).map(String::as_str)
    }

    /// The addresses; that of IPv4 also stands for all addresses of IPv6.
    fn distinct(&self) -> BTreeSet<String> {
        self.all().map(|address| address.replace("[::]:", "0.0.0.0:")).collect()
    }
}

/// The reason why a section on loopback addresses is missing.
pub(super) const ONLY_LOCAL: &str = "this section listens on loopback addresses only, and Weir serves all sections on \
    all addresses: run another Weir for it";

/// Divides sections into those that Weir serves and others: one on loopback addresses is not served if another section
/// listens elsewhere. Notes the others, and those that Weir serves on more addresses.
pub(super) fn served<T>(sections: Vec<T>, listening: impl Fn(&T) -> &Listening, draft: &mut Draft) -> (Vec<T>, Vec<T>) {
    let is_public = sections.iter().any(|section| listening(section).all().any(|address| !is_local(address)));
    let is_served = |section: &T| {
        let mut addresses = listening(section).all().peekable();
        !is_public || addresses.peek().is_none() || addresses.any(|address| !is_local(address))
    };
    let (served, others): (Vec<_>, Vec<_>) = sections.into_iter().partition(is_served);
    let all: BTreeSet<_> = served.iter().flat_map(|section| listening(section).distinct()).collect();
    for section in others.iter().map(&listening) {
        draft.left_out(section.place, ONLY_LOCAL);
    }
    for section in served.iter().map(&listening).filter(|section| section.has_service) {
        let own = section.distinct();
        if !own.is_empty() && own != all {
            draft.differs(section.place, "Weir serves it on the addresses of all");
        }
    }
    (served, others)
}

fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    address.starts_with("unix:") || host == "localhost" || is_loopback
}

/// Writes the addresses for clients.
pub(super) fn listen(addresses: &[(SourceLine, String)], draft: &mut Draft) {
    let is_address = |text: &str| text.starts_with("unix:") || text.parse::<SocketAddr>().is_ok();
    let (addresses, others): (Vec<_>, Vec<_>) = addresses.iter().cloned().partition(|(_, text)| is_address(text));
    for (place, other) in others {
        draft.left_out(place, format!("`{other}` is no IP address with a port: set `server.listen` by hand"));
    }
    if !addresses.is_empty() {
        let (places, addresses): (BTreeSet<_>, BTreeSet<_>) = addresses.into_iter().unzip();
        // `0.0.0.0` and `[::]` have the other addresses of their ports.
        let of_all = |text: &str| {
            let (host, port) = text.rsplit_once(':')?;
            let all = format!("{}:{port}", if host.starts_with('[') { "[::]" } else { "0.0.0.0" });
            (all != text).then_some(all)
        };
        let is_own = |text: &&String| of_all(text).is_none_or(|all| !addresses.contains(&all));
        let addresses: Vec<_> = addresses.iter().filter(is_own).collect();
        draft.push(Block::new("[server]", places).option("listen", list(&addresses)));
    }
}
