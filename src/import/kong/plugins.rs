//! Plugins of Kong.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::draft::{Block, Draft, list, name, quoted};
use crate::import::limit::Limit;
use crate::import::yaml::Node;

/// The identity of consumers in Weir.
pub(super) const IDENTITY: &str = "consumer";

/// A plugin of a route, of a service, or of all routes; for all requests, or for those of a consumer or a group.
pub(super) struct Plugin<'n> {
    pub(super) node: &'n Node,
    pub(super) route: String,
    pub(super) service: String,
    pub(super) consumer: String,
    pub(super) group: String,
}

impl<'n> Plugin<'n> {
    pub(super) fn name(&self) -> &'n str {
        self.node.word("name")
    }

    /// Whether an instance of `key-auth` lets requests without a key pass.
    pub(super) fn admits_anonymous(&self) -> bool {
        self.node.get("config").is_some_and(|config| !config.word("anonymous").is_empty())
    }

    /// Whether it replaces other instances for a consumer or a group.
    pub(super) fn is_tier(&self) -> bool {
        !(self.consumer.is_empty() && self.group.is_empty())
    }
}

/// The plugin that verifies keys.
pub(super) const KEY_AUTH: &str = "key-auth";

/// Whether a plugin limits requests.
pub(super) fn is_limit(name: &str) -> bool {
    ["rate-limiting", "rate-limiting-advanced"].contains(&name)
}

/// Notes a plugin that limits no requests.
pub(super) fn note(plugin: &Node, draft: &mut Draft) {
    let why = match plugin.word("name") {
        "jwt" => "set `[identity]` and `access.require` by hand",
        "ip-restriction" => "set `[access]` by hand: Weir refuses nothing for it",
        "request-size-limiting" => "set `max_body_bytes` by hand",
        "response-ratelimiting" => "set `settle` of a limit by hand",
        _ => "Weir has no such plugin",
    };
    plugin.left_out(why, draft);
}

/// A rate that no client reaches.
const UNLIMITED: &str = "1000000/s";

const UNITS: [(&str, &str); 5] =
    [("second", "s"), ("minute", "min"), ("hour", "h"), ("day", "day"), ("month", "month")];

/// The rates of a plugin, and its algorithm.
fn rates(plugin: &Plugin<'_>) -> Option<(Vec<String>, &'static str)> {
    let config = plugin.node.get("config")?;
    if is_advanced(plugin) {
        let is_fixed = config.word("window_type") == "fixed";
        let pairs = config.words("limit").into_iter().zip(config.words("window_size"));
        let rates = pairs.map(|(count, seconds)| format!("{count}/{seconds}s")).collect();
        return Some((rates, if is_fixed { "fixed_window" } else { "sliding_window" }));
    }
    let rate = |(unit, text): (&str, &str)| Some(format!("{}/{text}", config.get(unit)?.text()));
    Some((UNITS.into_iter().filter_map(rate).collect(), "fixed_window"))
}

fn is_advanced(plugin: &Plugin<'_>) -> bool {
    plugin.name() == "rate-limiting-advanced"
}

/// The option with which a plugin names its key.
fn key_of<'n>(plugin: &Plugin<'n>) -> &'n str {
    let config = plugin.node.get("config");
    config.map_or("", |config| config.word(if is_advanced(plugin) { "identifier" } else { "limit_by" }))
}

/// Whether a plugin counts the requests of each consumer.
fn is_by_consumer(plugin: &Plugin<'_>) -> bool {
    ["", "consumer", "credential"].contains(&key_of(plugin))
}

fn note_policy(config: &Node, draft: &mut Draft) {
    if let Some(policy) = config.get("policy").filter(|policy| policy.text() != "local") {
        policy.left_out("set `[store]` and `strategy` by hand; until then, each replica counts for itself", draft);
    }
}

/// The limit of a plugin. `consumers` tells whether Weir verifies the keys of consumers.
pub(super) fn limit(plugin: &Plugin<'_>, consumers: bool, draft: &mut Draft) -> Option<Limit> {
    let node = plugin.node;
    let kind = plugin.name();
    let config = node.get("config")?;
    let (rates, algorithm) = rates(plugin)?;
    note_policy(config, draft);
    let key = match key_of(plugin) {
        _ if is_by_consumer(plugin) && consumers => vec![IDENTITY.to_owned()],
        "ip" => vec!["ip".to_owned()],
        "service" => {
            if plugin.route.is_empty() && plugin.service.is_empty() {
                draft.differs(node.place, "all services share one budget in Weir");
            }
            Vec::new()
        }
        "" | "consumer" | "credential" => {
            draft.differs(
                node.place,
                "Weir counts addresses until `[identity]` has the keys or tokens of the consumers",
            );
            vec!["ip".to_owned()]
        }
        "header" => vec![identity(config.word("header_name"))],
        by => {
            node.left_out(format!("Weir has no such key as `{by}`"), draft);
            return None;
        }
    };
    let owner = [&plugin.route, &plugin.service].into_iter().find(|owner| !owner.is_empty());
    let mut rule = vec![("algorithm", quoted(algorithm)), ("rate", list(&rates))];
    if let Some(status) = config.get("error_code").filter(|status| status.text() != "429") {
        match status.text().parse() {
            Ok(status @ 400..=599_u16) => rule.push(("status", status.to_string())),
            _ => draft.differs(status.place, "Weir answers 429 in place of this status"),
        }
    }
    let name = owner.map_or_else(|| kind.to_owned(), |owner| format!("{owner}-{kind}"));
    Some(Limit { name, places: vec![node.place], key, rule, ..Limit::default() })
}

/// Adds the instances of `tiers` that replace `base` for consumers and groups: overrides and plans of its limit.
pub(super) fn add_tiers(base: &Plugin<'_>, limit: &mut Limit, tiers: &[&Plugin<'_>], draft: &mut Draft) {
    let is_own = |tier: &Plugin<'_>| tier.route == base.route && tier.service == base.service;
    let is_for_all = |tier: &Plugin<'_>| tier.route.is_empty() && tier.service.is_empty();
    let fitting = tiers.iter().filter(|tier| tier.name() == base.name() && (is_own(tier) || is_for_all(tier)));
    let mut rows: BTreeMap<(&'static str, &str), String> = BTreeMap::new();
    for tier in fitting {
        let place = tier.node.place;
        let Some((rates, algorithm)) = rates(tier).filter(|_| is_by_consumer(tier)) else { continue };
        if !limit.rule.contains(&("algorithm", quoted(algorithm))) {
            draft.differs(place, "Weir has one algorithm for all plans");
        }
        if !is_own(tier) {
            draft.differs(place, "Weir counts the requests of each limit, and not those of all together");
        }
        if let Some(config) = tier.node.get("config") {
            note_policy(config, draft);
        }
        let row = if tier.consumer.is_empty() { ("plans", &*tier.group) } else { ("overrides", &*tier.consumer) };
        if is_own(tier) || !rows.contains_key(&row) {
            rows.insert(row, format!("{} = {{ rate = {} }}", quoted(row.1), list(&rates)));
        }
        limit.places.push(place);
    }
    for option in ["plans", "overrides"] {
        let of_option = rows.iter().filter(|((of, _), _)| *of == option);
        let texts: Vec<_> = of_option.map(|(_, text)| text.as_str()).collect();
        if !texts.is_empty() {
            limit.rule.push((option, format!("{{ {} }}", texts.join(", "))));
        }
    }
}

/// The limits of instances for consumers and groups where no instance counts the requests of others.
pub(super) fn limits_of_tiers(tiers: &[&Plugin<'_>], consumers: bool, draft: &mut Draft) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    for tier in tiers {
        let place = tier.node.place;
        if limits.iter().any(|limit| limit.places.contains(&place)) {
            continue;
        }
        let is_for_all = tier.route.is_empty() && tier.service.is_empty();
        let Some((_, algorithm)) = rates(tier).filter(|_| consumers && is_for_all && is_by_consumer(tier)) else {
            tier.node.left_out("set `plans` or `overrides` of a limit by hand", draft);
            continue;
        };
        draft.differs(place, format!("others have {UNLIMITED} in place of no limit"));
        let rule = vec![("algorithm", quoted(algorithm)), ("rate", list(&[UNLIMITED]))];
        let (name, key) = (tier.name().to_owned(), vec![IDENTITY.to_owned()]);
        let mut limit = Limit { name, key, rule, ..Limit::default() };
        add_tiers(tier, &mut limit, tiers, draft);
        limits.push(limit);
    }
    limits
}

/// The identity with the values of a header, or else the address.
fn identity(header: &str) -> String {
    format!("{}-or-address", name(&header.to_ascii_lowercase()))
}

/// Writes the identities that the keys of `limits` name.
pub(super) fn write_identities(limits: &[Limit], draft: &mut Draft) {
    let parts = limits.iter().flat_map(|limit| &limit.key);
    let headers: BTreeSet<_> = parts.filter_map(|part| part.strip_suffix("-or-address")).collect();
    for header in headers {
        let block = Block::new(format!("[identity.{header}-or-address]"), []);
        draft.push(block.option("header", quoted(header)).option("on_missing", quoted("ip")));
    }
}
