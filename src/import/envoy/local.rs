//! The local rate limit filter of Envoy, with the configurations of its routes and its descriptors.
//!
//! Envoy charges the descriptors of a request, and then the bucket of all requests. So descriptors are limits of the
//! arrival stage, which stay charged if another limit refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use http::StatusCode;

use super::actions::{self, Keyed, keyed};
use super::routes::{RouteEntry, RouteReader};
use crate::import::draft::{Draft, quoted};
use crate::import::limit::{Limit, Match};
use crate::import::rates;
use crate::import::regions::regions;
use crate::import::report::Kind;
use crate::import::yaml::Node;

/// A local rate limit filter of a connection manager.
pub(super) struct LocalFilter<'n> {
    name: &'n str,
    config: Option<&'n Node>,
}

impl<'n> LocalFilter<'n> {
    /// Notes a filter of another kind.
    pub(super) fn of(filter: &'n Node, draft: &mut Draft) -> Option<Self> {
        let config = filter.get("typed_config");
        let kind = config.map_or("", |config| config.word("@type"));
        if kind.ends_with(".LocalRateLimit") {
            let config = config.filter(|_| !filter.is_true("disabled"));
            return Some(Self { name: filter.word("name"), config });
        }
        if kind.ends_with(".router.v3.Router") {
            draft.note(Kind::NotNeeded, filter.place, "Weir forwards requests");
            filter.skip();
        } else if kind.ends_with(".RateLimit") {
            filter.left_out("`weir import ratelimit` reads the configuration of the rate limit service", draft);
        } else {
            filter.left_out("Weir has no such filter", draft);
        }
        None
    }

    /// The configuration of the filter for the requests of a route.
    fn config_of(&self, entry: &RouteEntry<'n>) -> Option<&'n Node> {
        for node in [entry.route, entry.host, entry.table] {
            let Some(own) = node.at(&["typed_per_filter_config", self.name]) else { continue };
            if own.word("@type").ends_with(".FilterConfig") {
                return own.get("config").filter(|_| !own.is_true("disabled"));
            }
            return Some(own);
        }
        self.config
    }
}

/// The limits of a filter for the requests of these routes.
pub(super) fn limits<'n>(
    filter: &LocalFilter<'n>,
    entries: &[RouteEntry<'n>],
    reader: &RouteReader<'n>,
    draft: &mut Draft,
) -> Vec<Limit> {
    let mut configs: Vec<(&Node, Vec<&RouteEntry<'n>>)> = Vec::new();
    for entry in entries {
        let Some(config) = filter.config_of(entry) else { continue };
        match configs.iter_mut().find(|(known, _)| std::ptr::eq(*known, config)) {
            Some((_, users)) => users.push(entry),
            None => configs.push((config, vec![entry])),
        }
    }
    configs.into_iter().flat_map(|(config, users)| limits_of(config, &users, reader, draft)).collect()
}

/// The limits of one configuration of the filter, which these routes share.
fn limits_of(config: &Node, users: &[&RouteEntry<'_>], reader: &RouteReader<'_>, draft: &mut Draft) -> Vec<Limit> {
    let (enabled, enforced) = (percent(config, "filter_enabled"), percent(config, "filter_enforced"));
    if enabled <= 0.0 {
        draft.note(Kind::NotNeeded, config.place, "the filter is enabled for no request");
        config.skip();
        return Vec::new();
    }
    if config.is_true("local_rate_limit_per_downstream_connection") {
        config.left_out("Weir has no budget of a connection", draft);
        return Vec::new();
    }
    let is_part = |part: f64| part > 0.0 && part < 100.0;
    if is_part(enabled) || is_part(enforced) {
        draft.differs(config.place, "Envoy limits a part of the requests, Weir all of them");
    }
    let status = config.get("status").and_then(|status| status.number("code")).map(|StatusCodeText(status)| status);
    let all: BTreeSet<_> = users.iter().map(|entry| entry.index).collect();
    let of = |bucket: &Node| Limit {
        places: vec![config.place, bucket.place],
        is_shadow: enforced <= 0.0,
        rule: rule(bucket, status),
        ..Limit::default()
    };
    let mut limits = descriptors(config, users, reader, &of, draft);
    let prefix = config.word("stat_prefix");
    let Some(bucket) = config.get("token_bucket") else { return limits };
    if !limits.is_empty() && config.number("always_consume_default_token_bucket") == Some(false) {
        draft.differs(bucket.place, "Weir also charges this bucket for requests with a descriptor");
    }
    for (matches, except_paths) in regions(&reader.regions, &all, draft) {
        let name = if prefix.is_empty() { "local" } else { prefix }.to_owned();
        limits.push(Limit { name, matches, except_paths, ..of(bucket) });
    }
    limits
}

/// The limits of all descriptors of a configuration.
fn descriptors(
    config: &Node,
    users: &[&RouteEntry<'_>],
    reader: &RouteReader<'_>,
    of: &dyn Fn(&Node) -> Limit,
    draft: &mut Draft,
) -> Vec<Limit> {
    let mut limits = Vec::new();
    for descriptor in config.list("descriptors") {
        let entries = entries_of(descriptor);
        let Some(bucket) = descriptor.get("token_bucket") else { continue };
        let uses = uses(config, users, &entries, draft);
        if uses.is_empty() {
            draft.left_out(descriptor.place, "no translated action makes this descriptor");
        }
        if entries.iter().any(|(_, value)| value.is_empty()) && !uses.is_empty() {
            let why = "Envoy forgets all but the last values of this descriptor, 20 by default; Weir forgets none";
            draft.differs(descriptor.place, why);
            config.get("max_dynamic_descriptors").map(Node::skip);
            let is_special = |other: &[actions::DescriptorEntry]| {
                let is_part = |((key, value), (own, usual)): (&(String, String), &(String, String))| {
                    key == own && (usual.is_empty() || value == usual)
                };
                other != entries && other.len() == entries.len() && other.iter().zip(&entries).all(is_part)
            };
            if config.list("descriptors").iter().any(|other| is_special(&entries_of(other))) {
                draft.differs(descriptor.place, "Weir also charges it for values that another descriptor names");
            }
        }
        let names: Vec<_> = entries.iter().map(|(key, value)| if value.is_empty() { key } else { value }).collect();
        let name = names.into_iter().map(String::as_str).collect::<Vec<_>>().join("-");
        for (Keyed { matches, parts }, routes) in uses {
            for (of_routes, except_paths) in regions(&reader.regions, &routes, draft) {
                let Some(matches) = both(of_routes, &matches) else {
                    draft.left_out(descriptor.place, "its requests are those of two patterns");
                    continue;
                };
                let limit = of(bucket);
                limits.push(Limit {
                    name: name.clone(),
                    places: vec![descriptor.place, bucket.place],
                    at_arrival: true,
                    is_shadow: limit.is_shadow || descriptor.is_true("shadow_mode"),
                    matches,
                    except_paths,
                    key: parts.clone(),
                    ..limit
                });
            }
        }
    }
    if limits.len() > 1 {
        let why = "Envoy charges a descriptor also if another one refuses; Weir charges all or none";
        draft.differs(config.get("descriptors").map_or(config.place, |node| node.place), why);
    }
    limits
}

/// The keys of a descriptor with their values, which are empty for any value.
fn entries_of(descriptor: &Node) -> Vec<actions::DescriptorEntry> {
    let entries = descriptor.list("entries").iter();
    entries.map(|entry| (entry.word("key").to_owned(), entry.word("value").to_owned())).collect()
}

/// The routes whose actions make a descriptor, by the requests that have it.
fn uses(
    config: &Node,
    users: &[&RouteEntry<'_>],
    entries: &[actions::DescriptorEntry],
    draft: &mut Draft,
) -> BTreeMap<Keyed, BTreeSet<usize>> {
    let mut uses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for entry in users {
        for rate_limit in rate_limits(config, entry) {
            match keyed(rate_limit, entries, &entry.cluster) {
                Ok(None) => {}
                Ok(Some(_)) if rate_limit.has("hits_addend") => draft.left_out(rate_limit.place, "set `cost` by hand"),
                Ok(Some(keyed)) => {
                    // The value of `:path` has the query.
                    if keyed.matches.paths.iter().any(|path| !path.ends_with("{*rest}")) {
                        draft.differs(rate_limit.place, "Weir takes this path with any query");
                    }
                    uses.entry(keyed).or_default().insert(entry.index);
                }
                Err(reason) => rate_limit.left_out(reason, draft),
            }
        }
    }
    uses
}

/// The `rate_limits` in force for a route.
fn rate_limits<'n>(config: &'n Node, entry: &RouteEntry<'n>) -> Vec<&'n Node> {
    let of = |node: Option<&'n Node>| -> Vec<&'n Node> {
        node.map_or(&[][..], |node| node.list("rate_limits")).iter().map(|node| &**node).collect()
    };
    if config.has("rate_limits") {
        return of(Some(config));
    }
    let action = entry.route.get("route");
    let mut all = of(action);
    let includes = action.is_some_and(|action| action.is_true("include_vh_rate_limits"));
    match config.word("vh_rate_limits") {
        _ if includes => all.extend(of(Some(entry.host))),
        "INCLUDE" => all.extend(of(Some(entry.host))),
        "IGNORE" => {}
        _ if all.is_empty() => all = of(Some(entry.host)),
        _ => {}
    }
    let stage: u64 = config.number("stage").unwrap_or_default();
    all.retain(|one| one.number("stage").unwrap_or(0_u64) == stage);
    all
}

/// The requests that match both, if one pattern can have them.
fn both(routes: Match, descriptor: &Match) -> Option<Match> {
    let of = |routes: Vec<String>, own: &[String]| {
        let is_within = |own: &String| {
            let is_start = |outer: &String| outer.strip_suffix("{*rest}").is_some_and(|start| own.starts_with(start));
            routes.iter().any(|outer| outer == own || is_start(outer))
        };
        match () {
            () if own.is_empty() => Some(routes),
            () if routes.is_empty() || own.iter().all(is_within) => Some(own.to_vec()),
            () => None,
        }
    };
    let mut headers = routes.headers;
    headers.extend(descriptor.headers.iter().cloned());
    headers.sort();
    headers.dedup();
    Some(Match {
        hosts: of(routes.hosts, &descriptor.hosts)?,
        paths: of(routes.paths, &descriptor.paths)?,
        methods: of(routes.methods, &descriptor.methods)?,
        headers,
    })
}

/// The options of a token bucket.
fn rule(bucket: &Node, status: Option<u16>) -> Vec<(&'static str, String)> {
    let tokens: u64 = bucket.number("tokens_per_fill").unwrap_or(1);
    let interval_us = rates::duration_us(bucket.word("fill_interval")).unwrap_or_default();
    let mut rule = vec![("rate", quoted(&rates::rate(tokens, interval_us)))];
    rule.push(("burst", bucket.word("max_tokens").parse::<u64>().unwrap_or_default().to_string()));
    rule.extend(status.filter(|status| *status != 429 && *status >= 400).map(|status| ("status", status.to_string())));
    rule
}

/// A status as a number, or by its name in Envoy, which is its reason phrase without spaces: `TooManyRequests`.
struct StatusCodeText(u16);

impl FromStr for StatusCodeText {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_named = |status: &u16| {
            let reason = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
            reason.is_some_and(|reason| reason.replace([' ', '-'], "") == text)
        };
        text.parse().or_else(|error| (100..600).find(is_named).ok_or(error)).map(Self)
    }
}

/// A `RuntimeFractionalPercent`; 0 if it is absent.
fn percent(config: &Node, name: &str) -> f64 {
    let Some(value) = config.get(name).and_then(|value| value.get("default_value")) else { return 0.0 };
    let scale = match value.word("denominator") {
        "TEN_THOUSAND" => 100.0,
        "MILLION" => 10_000.0,
        _ => 1.0,
    };
    value.number::<f64>("numerator").unwrap_or_default() / scale
}
