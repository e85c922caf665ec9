//! Traefik: middlewares that limit requests, with routers and services of a dynamic configuration.
//!
//! Each router has buckets of its own. Middlewares decide one after the other; so all but the last limit of a router are
//! of the arrival stage, which stays charged if a later limit refuses.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::draft::{Draft, quoted};
use super::limit::{self, Limit, Match};
use super::rates;
use super::regions::{Region, regions};
use super::report::{ImportError, Kind, OPEN};
use super::services::{Route, Service, write};
use super::yaml::{self, Node, Reasons};

/// Translates a dynamic configuration.
pub(super) fn translate(_: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let documents = yaml::read(draft)?;
    let http: Vec<_> = documents.iter().filter_map(|document| document.get("http")).collect();
    let named = |table: &'static str| http.iter().filter_map(move |http| http.get(table)).flat_map(Node::members);
    let middlewares: BTreeMap<_, _> = named("middlewares").map(|(name, node)| (name.as_str(), &**node)).collect();
    let mut services = BTreeMap::new();
    for (name, node) in named("services") {
        services.extend(service(name, node, draft).map(|service| (name.clone(), service)));
    }
    let mut routers: Vec<_> = named("routers").map(|(name, node)| Router::of(name, node)).collect();
    routers.sort_by_key(|router| std::cmp::Reverse(router.priority));
    let (mut all, mut routes, mut users) = (Vec::new(), Vec::new(), Vec::new());
    for router in routers {
        let (matches, differences) = match rules::alternatives(router.node.word("rule")) {
            Ok(alternatives) => alternatives,
            Err(reason) => {
                router.node.left_out(reason, draft);
                continue;
            }
        };
        for difference in differences {
            draft.differs(router.node.place, difference);
        }
        let own: BTreeSet<_> = (all.len()..all.len() + matches.len()).collect();
        let mut rewrite = None;
        let mut limits = Vec::new();
        for middleware in router.middlewares(&middlewares, draft) {
            limits.extend(read_middleware(&router, middleware, &mut rewrite, draft));
        }
        let service = own_name(router.node.word("service")).to_owned();
        let strip = rewrite.as_ref().map_or("", |(strip, _)| strip.trim_end_matches('/')).to_owned();
        let has_start =
            |path: &String| path.strip_prefix(&strip).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let has_all = |one: &Match| !one.paths.is_empty() && one.paths.iter().all(has_start);
        if !strip.is_empty() && !matches.iter().all(has_all) {
            draft.left_out(router.node.place, "Weir removes only a start that all paths of a route have");
            rewrite = None;
        }
        for matches in matches {
            all.push(Region { place: router.node.place, matches: matches.clone() });
            let (places, rewrite) = (vec![router.node.place], rewrite.clone());
            routes.push(Route { places, matches, service: service.clone(), rewrite, require: None });
        }
        users.push((router.node, own, limits));
    }
    for (_, middleware) in middlewares.iter().filter(|(_, middleware)| !middleware.is_read()) {
        middleware.left_out("no translated router uses it", draft);
    }
    write(&services, routes, draft);
    let limits = users.into_iter().flat_map(|(node, own, limits)| limits_of(node, &own, limits, &all, draft));
    let limits: Vec<_> = limits.collect();
    limit::write(limits, draft);
    for document in &documents {
        document.report(&REASONS, draft);
    }
    Ok(())
}

const REASONS: Reasons = Reasons {
    not_needed: "",
    left_out: &[
        ("entryPoints", "set `server.listen` by hand"),
        ("tls", "set `server.tls` by hand"),
        ("tcp", "Weir forwards only HTTP"),
        ("udp", "Weir forwards only HTTP"),
        ("weight", "endpoints of Weir have equal weights"),
        ("healthCheck", "set `health` of the upstream by hand"),
        ("sticky", "set `balance` to `hash` by hand"),
        ("serversTransport", "set `tls` of the upstream by hand"),
        ("responseForwarding", "Weir forwards each piece of an answer at once"),
        ("ipAllowList", OPEN),
        ("ipWhiteList", OPEN),
        ("basicAuth", "Weir checks no passwords"),
        ("forwardAuth", "Weir asks no other service"),
        ("buffering", "set `max_body_bytes` by hand"),
        ("circuitBreaker", "set `eject` of the upstream by hand"),
        ("retry", "Weir retries a request only if no byte of it was sent"),
        ("redis", "set `[store]` and `strategy` by hand"),
        ("ipv6Subnet", "set `server.ipv6_prefix` by hand"),
    ],
};

/// The name without its provider.
fn own_name(name: &str) -> &str {
    name.split('@').next().unwrap_or_default()
}

struct Router<'n> {
    name: &'n str,
    node: &'n Node,
    priority: usize,
}

impl<'n> Router<'n> {
    fn of(name: &'n str, node: &'n Node) -> Self {
        // Without a priority, longer rules go first.
        let priority = node.number("priority").filter(|priority| *priority > 0);
        Self { name, node, priority: priority.unwrap_or(node.word("rule").len()) }
    }

    /// The middlewares in their order, those of chains in their place.
    fn middlewares(&self, all: &BTreeMap<&str, &'n Node>, draft: &mut Draft) -> Vec<(&'n str, &'n Node)> {
        let mut found = Vec::new();
        let mut next: Vec<&'n Node> = self.node.list("middlewares").iter().rev().map(|name| &**name).collect();
        // Chains may name each other.
        for _ in 0..100 {
            let Some(name) = next.pop() else { break };
            let Some(middleware) = all.get(own_name(name.text())) else {
                draft.left_out(name.place, format!("there is no middleware `{}`", name.text()));
                continue;
            };
            for (kind, node) in middleware.members() {
                if kind == "chain" {
                    next.extend(node.list("middlewares").iter().rev().map(|name| &**name));
                } else {
                    found.push((kind.as_str(), &**node));
                }
            }
        }
        found
    }
}

fn service(name: &str, node: &Node, draft: &mut Draft) -> Option<Service> {
    let Some(balancer) = node.get("loadBalancer") else {
        node.left_out("Weir has no such service", draft);
        return None;
    };
    let mut service = Service { name: name.to_owned(), places: vec![node.place], ..Service::default() };
    service.rewrites_host = balancer.number("passHostHeader") == Some(false);
    for server in balancer.list("servers") {
        service.endpoints.push(server.word("url").trim_end_matches('/').to_owned());
        service.places.push(server.place);
    }
    (!service.endpoints.is_empty()).then_some(service)
}

/// The limit of a middleware. Notes middlewares that have none, except changes of the path.
fn read_middleware(
    router: &Router<'_>,
    (kind, node): (&str, &Node),
    rewrite: &mut Option<(String, String)>,
    draft: &mut Draft,
) -> Option<Limit> {
    let rule = match kind {
        "rateLimit" => match rate(node) {
            Ok(rule) => rule,
            Err(reason) => {
                node.left_out(reason, draft);
                return None;
            }
        },
        "inFlightReq" => {
            let max: Option<i64> = if node.has("amount") { node.number("amount") } else { Some(0) };
            max.map(|max| match max {
                1.. => vec![("algorithm", quoted("concurrency")), ("max", max.to_string())],
                _ => rates::zero(),
            })
        }
        "addPrefix" => {
            node.word("prefix").clone_into(&mut rewrite.get_or_insert_default().1);
            return None;
        }
        "stripPrefix" if rewrite.is_none() && node.list("prefixes").len() == 1 => {
            *rewrite = Some((node.list("prefixes")[0].text().to_owned(), String::new()));
            return None;
        }
        _ => {
            let reason = REASONS.left_out.iter().find(|(name, _)| *name == kind).map(|(_, reason)| *reason);
            node.left_out(reason.unwrap_or("Weir has no such middleware"), draft);
            return None;
        }
    };
    let Some(rule) = rule else {
        draft.note(Kind::NotNeeded, node.place, "it limits nothing");
        return None;
    };
    let default = if kind == "rateLimit" { "ip" } else { "host" };
    let part = node.get("sourceCriterion").map_or(default.to_owned(), |criterion| part(criterion, draft));
    let name = format!("{}-{kind}", router.name);
    Some(Limit { name, places: vec![router.node.place, node.place], key: vec![part], rule, ..Limit::default() })
}

/// The part of a key.
fn part(criterion: &Node, draft: &mut Draft) -> String {
    if criterion.is_true("requestHost") {
        return "host".to_owned();
    }
    let header = criterion.word("requestHeaderName").to_ascii_lowercase();
    if !header.is_empty() {
        draft.differs(criterion.place, "requests without this header share one budget in Traefik and in Weir");
        return format!("header:{header}");
    }
    if let Some(strategy) = criterion.get("ipStrategy").filter(|strategy| !strategy.members().is_empty()) {
        strategy.left_out("set `server.trusted_proxies` by hand; until then, the address is that of the peer", draft);
    }
    "ip".to_owned()
}

/// Options of a limit, as TOML.
type RateOptions = Vec<(&'static str, String)>;

/// The rule of a `rateLimit`; `None` if it limits nothing. Errs if its period is none that Weir knows.
fn rate(node: &Node) -> Result<Option<RateOptions>, &'static str> {
    let burst = node.number("burst").unwrap_or(1_i64).max(1);
    let Some(average) = node.number("average").filter(|average: &u64| *average > 0) else { return Ok(None) };
    let period = node.get("period").map_or("1s", Node::text);
    let period_us =
        period.parse().map_or_else(|_| rates::duration_us(period), |seconds: u64| seconds.checked_mul(1_000_000));
    let period_us = period_us.filter(|period| *period > 0).ok_or("Weir has no such period")?;
    // Traefik lets a request wait for half of the interval between two, and for 500 ms at most.
    let per_second = average.saturating_mul(1_000_000) / period_us;
    let wait_us = if per_second < 1 { 500_000 } else { 500_000 / per_second };
    let mut rule = vec![("rate", quoted(&rates::rate(average, period_us))), ("burst", burst.to_string())];
    if wait_us > 0 {
        rule.push(("on_limit", quoted("hold")));
        rule.push(("hold", format!("{{ max_wait = {} }}", quoted(&rates::duration(wait_us)))));
    }
    Ok(Some(rule))
}

/// The limits of a router, whose requests are `own`.
fn limits_of(
    router: &Node,
    own: &BTreeSet<usize>,
    limits: Vec<Limit>,
    all: &[Region],
    draft: &mut Draft,
) -> Vec<Limit> {
    if limits.len() > 2 {
        draft.differs(
            router.place,
            "Traefik charges earlier limits also if a later one refuses; Weir charges all or none",
        );
    }
    let last = limits.len().saturating_sub(1);
    let mut written = Vec::new();
    for (index, limit) in limits.into_iter().enumerate() {
        // A concurrency limit is never at arrival: a request that a later limit refuses gives its place back.
        let at_arrival = index < last && limit.rule.iter().all(|(option, _)| *option != "max");
        for (matches, except_paths) in regions(all, own, draft) {
            written.push(Limit { at_arrival, matches, except_paths, ..limit.clone() });
        }
    }
    written
}
