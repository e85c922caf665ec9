//! Plugins of Kong.

use std::collections::BTreeSet;

use crate::import::draft::{Block, Draft, list, name, quoted};
use crate::import::limit::Limit;
use crate::import::yaml::Node;

/// A plugin that limits requests; of a route, of a service, or of all routes.
pub(super) struct Plugin<'n> {
    pub(super) node: &'n Node,
    pub(super) route: String,
    pub(super) service: String,
}

/// Whether a plugin limits requests.
pub(super) fn is_limit(name: &str) -> bool {
    ["rate-limiting", "rate-limiting-advanced"].contains(&name)
}

/// Notes a plugin that limits no requests.
pub(super) fn note(plugin: &Node, draft: &mut Draft) {
    let why = match plugin.word("name") {
        "key-auth" => "create keys by `weir apikeys new`, and set `[identity]` and `access.require`",
        "jwt" => "set `[identity]` and `access.require` by hand",
        "ip-restriction" => "set `[access]` by hand: Weir refuses nothing for it",
        "request-size-limiting" => "set `max_body_bytes` by hand",
        "response-ratelimiting" => "set `settle` of a limit by hand",
        _ => "Weir has no such plugin",
    };
    plugin.left_out(why, draft);
}

const UNITS: [(&str, &str); 5] =
    [("second", "s"), ("minute", "min"), ("hour", "h"), ("day", "day"), ("month", "month")];

/// The limit of a plugin.
pub(super) fn limit(plugin: &Plugin<'_>, draft: &mut Draft) -> Option<Limit> {
    let node = plugin.node;
    let kind = node.word("name");
    let config = node.get("config")?;
    let is_advanced = kind == "rate-limiting-advanced";
    let (rates, algorithm) = if is_advanced {
        let is_fixed = config.word("window_type") == "fixed";
        let pairs = config.words("limit").into_iter().zip(config.words("window_size"));
        let rates: Vec<_> = pairs.map(|(count, seconds)| format!("{count}/{seconds}s")).collect();
        (rates, if is_fixed { "fixed_window" } else { "sliding_window" })
    } else {
        let rate = |(unit, text): (&str, &str)| Some(format!("{}/{text}", config.get(unit)?.text()));
        (UNITS.into_iter().filter_map(rate).collect(), "fixed_window")
    };
    if let Some(policy) = config.get("policy").filter(|policy| policy.text() != "local") {
        policy.left_out("set `[store]` and `strategy` by hand; until then, each replica counts for itself", draft);
    }
    let by = config.word(if is_advanced { "identifier" } else { "limit_by" });
    let key = match by {
        "ip" => vec!["ip".to_owned()],
        "service" => Vec::new(),
        "" | "consumer" | "credential" => {
            draft.differs(
                node.place,
                "Weir counts addresses until `[identity]` has the keys or tokens of the consumers",
            );
            vec!["ip".to_owned()]
        }
        "header" => vec![identity(config.word("header_name"))],
        _ => {
            node.left_out(format!("Weir has no such key as `{by}`"), draft);
            return None;
        }
    };
    let owner = [&plugin.route, &plugin.service].into_iter().find(|owner| !owner.is_empty());
    let mut rule = vec![("algorithm", quoted(algorithm)), ("rate", list(&rates))];
    let status = config.word("error_code");
    rule.extend((!status.is_empty() && status != "429").then(|| ("status", status.to_owned())));
    let name = owner.map_or_else(|| kind.to_owned(), |owner| format!("{owner}-{kind}"));
    Some(Limit { name, places: vec![node.place], key, rule, ..Limit::default() })
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
