//! Plugins of Kong.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::draft::{Block, Draft, list, name, quoted};
use crate::import::limit::Limit;
use crate::import::report::OPEN;
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
    /// The consumer that has the requests without a key, if an instance of `key-auth` lets them pass.
    pub(super) anonymous: String,
}

impl<'n> Plugin<'n> {
    pub(super) fn name(&self) -> &'n str {
        self.node.word("name")
    }

    /// Whether it replaces other instances for a consumer or a group.
    pub(super) fn is_tier(&self) -> bool {
        !(self.consumer.is_empty() && self.group.is_empty())
    }

    /// Whether it is for all routes and services.
    fn is_for_all(&self) -> bool {
        self.route.is_empty() && self.service.is_empty()
    }

    /// Whether both are for one route or service, or for all.
    fn has_scope_of(&self, other: &Plugin<'_>) -> bool {
        self.route == other.route && self.service == other.service
    }

    /// Whether it replaces `base` for its consumer or group.
    pub(super) fn replaces(&self, base: &Plugin<'_>) -> bool {
        self.is_tier() && self.name() == base.name() && (self.has_scope_of(base) || self.is_for_all())
    }
}

/// The consumers whose requests a limit counts.
pub(super) struct Clients<'c> {
    /// Those with keys.
    pub(super) keyed: Vec<&'c str>,
    /// The plan of each consumer that has one.
    pub(super) plans: BTreeMap<&'c str, &'c str>,
    /// Those of requests without a key.
    pub(super) anonymous: BTreeSet<&'c str>,
}

impl Clients<'_> {
    /// Whether a limit by consumer can count the requests of an instance. Requests without a key have an address there.
    fn has_all_of(&self, tier: &Plugin<'_>) -> bool {
        is_by_consumer(tier) || key_of(tier) == "ip" && self.anonymous.contains(&*tier.consumer)
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
        "ip-restriction" => OPEN,
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

/// The rows of `plans` and `overrides`, each with its instance and its rates.
type Rows<'r, 'n> = BTreeMap<(&'static str, &'r str), (&'r Plugin<'n>, String)>;

/// Adds the instances of `tiers` that replace `base` for consumers and groups: overrides and plans of its limit.
pub(super) fn add_tiers(
    base: &Plugin<'_>,
    limit: &mut Limit,
    tiers: &[&Plugin<'_>],
    clients: &Clients<'_>,
    draft: &mut Draft,
) {
    let is_own = |tier: &Plugin<'_>| tier.has_scope_of(base);
    let mut rows = Rows::new();
    for tier in tiers.iter().filter(|tier| tier.replaces(base)) {
        let place = tier.node.place;
        let Some((rates, algorithm)) = rates(tier).filter(|_| clients.has_all_of(tier)) else { continue };
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
            rows.insert(row, (tier, list(&rates)));
        }
        limit.places.push(place);
    }
    add_anonymous(base, limit, &mut rows, clients, draft);
    for option in ["plans", "overrides"] {
        let of_option = rows.iter().filter(|((of, _), _)| *of == option);
        let texts = of_option.map(|((_, name), (_, rates))| format!("{} = {{ rate = {rates} }}", quoted(name)));
        let texts: Vec<_> = texts.collect();
        if !texts.is_empty() {
            limit.rule.push((option, format!("{{ {} }}", texts.join(", "))));
        }
    }
}

/// Makes the rates of the anonymous consumer the usual ones of a limit, because no row is for requests without a key. Other
/// consumers get the rates of `base` in rows.
fn add_anonymous<'r, 'n>(
    base: &'r Plugin<'n>,
    limit: &mut Limit,
    rows: &mut Rows<'r, 'n>,
    clients: &Clients<'r>,
    draft: &mut Draft,
) {
    let plan_of = |name| ("plans", clients.plans.get(name).copied().unwrap_or_default());
    let of = |name: &&'r str| rows.get(&("overrides", *name)).or_else(|| rows.get(&plan_of(*name))).cloned();
    let own = clients.anonymous.iter().find_map(of);
    rows.retain(|(option, name), _| *option != "overrides" || !clients.anonymous.contains(name));
    if clients.anonymous.len() > 1 {
        draft.differs(base.node.place, "Weir has one rate for requests without a key");
    }
    let Some((_, usual)) = limit.rule.iter_mut().find(|(option, _)| *option == "rate") else { return };
    let is_unlimited = own.is_none() && usual.contains(UNLIMITED);
    let tier = own.as_ref().map_or(base, |(tier, _)| tier);
    if !clients.anonymous.is_empty() && !is_unlimited && is_by_consumer(tier) {
        let why = "requests without a key have this rate per address, in place of all together";
        draft.differs(tier.node.place, why);
    }
    let Some((_, own)) = own else { return };
    let usual = std::mem::replace(usual, own);
    let others = clients.keyed.iter().filter(|name| !clients.anonymous.contains(*name));
    for name in others {
        if !rows.contains_key(&plan_of(*name)) {
            rows.entry(("overrides", name)).or_insert_with(|| (base, usual.clone()));
        }
    }
}

/// The limits of instances for consumers and groups where no instance counts the requests of others. `consumers` tells
/// whether Weir verifies the keys of consumers.
pub(super) fn limits_of_tiers(
    tiers: &[&Plugin<'_>],
    consumers: bool,
    clients: &Clients<'_>,
    draft: &mut Draft,
) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    for tier in tiers {
        let place = tier.node.place;
        if limits.iter().any(|limit| limit.places.contains(&place)) {
            continue;
        }
        let is_usable = consumers && tier.is_for_all() && clients.has_all_of(tier);
        let Some((_, algorithm)) = rates(tier).filter(|_| is_usable) else {
            tier.node.left_out("set `plans` or `overrides` of a limit by hand", draft);
            continue;
        };
        let rule = vec![("algorithm", quoted(algorithm)), ("rate", list(&[UNLIMITED]))];
        let (name, key) = (tier.name().to_owned(), vec![IDENTITY.to_owned()]);
        let mut limit = Limit { name, key, rule, ..Limit::default() };
        add_tiers(tier, &mut limit, tiers, clients, draft);
        if limit.rule.iter().any(|(_, value)| value.contains(UNLIMITED)) {
            draft.differs(place, format!("others have {UNLIMITED} in place of no limit"));
        }
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
