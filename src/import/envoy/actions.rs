//! Actions of Envoy that make descriptors of requests, as keys of limits.

use super::routes::add_header;
use crate::import::limit::Match;
use crate::import::path::Path;
use crate::import::yaml::Node;

/// The requests that have a descriptor, and the parts of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Keyed {
    pub(super) matches: Match,
    pub(super) parts: Vec<String>,
}

impl Keyed {
    fn add(&mut self, part: String) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }
}

/// An entry of a descriptor: its key, and its value, empty for any.
pub(super) type DescriptorEntry = (String, String);

/// The requests of which `rate_limit` makes the descriptor with `entries`; `None` if it makes others.
///
/// # Errors
/// The reason why Weir has no such key.
pub(super) fn keyed(rate_limit: &Node, entries: &[DescriptorEntry], cluster: &str) -> Result<Option<Keyed>, String> {
    let actions = rate_limit.list("actions");
    if actions.len() != entries.len() {
        return Ok(None);
    }
    let mut keyed = Keyed::default();
    for (action, entry) in actions.iter().zip(entries) {
        let [(kind, action)] = action.members() else { return Err("an action has one kind".to_owned()) };
        if !add(&mut keyed, kind, action, entry, cluster)? {
            return Ok(None);
        }
    }
    Ok(Some(keyed))
}

/// Adds an action; `false` if it makes another entry.
fn add(
    keyed: &mut Keyed,
    kind: &str,
    action: &Node,
    (key, value): &DescriptorEntry,
    cluster: &str,
) -> Result<bool, String> {
    action.members();
    let own = |default: &str| {
        let own = action.word("descriptor_key");
        (if own.is_empty() { default } else { own }) == key
    };
    let is_value = |text: &str| value.is_empty() || text == value;
    match kind {
        "generic_key" => return Ok(own("generic_key") && is_value(action.word("descriptor_value"))),
        "destination_cluster" => return Ok(key == kind && is_value(cluster)),
        "remote_address" | "masked_remote_address" if key != kind => return Ok(false),
        "remote_address" | "masked_remote_address" if !value.is_empty() => {
            return Err("Weir has no limit for single addresses".to_owned());
        }
        "remote_address" => keyed.add("ip".to_owned()),
        "masked_remote_address" => {
            let bits = |name, all: u8| action.number(name).unwrap_or(all);
            let (bits_v4, bits_v6) = (bits("v4_prefix_mask_len", 32), bits("v6_prefix_mask_len", 128));
            keyed.add(format!("ip/{bits_v4}/{bits_v6}"));
        }
        "request_headers" => {
            if !own("") {
                return Ok(false);
            }
            if action.is_true("skip_if_absent") {
                return Err("Weir has no descriptors without an absent header".to_owned());
            }
            add_request_header(keyed, action.word("header_name"), value)?;
        }
        "header_value_match" => {
            if !own("header_match") || !is_value(action.word("descriptor_value")) {
                return Ok(false);
            }
            let is_known = !action.has("expect_match") || action.is_true("expect_match");
            let mut headers = action.list("headers").iter();
            if !is_known || !headers.all(|header| add_header(header, &mut keyed.matches).is_some()) {
                return Err("Weir has no such condition of a limit".to_owned());
            }
        }
        kind => return Err(format!("Weir has no part of a key for `{kind}`")),
    }
    Ok(true)
}

/// Adds a header with a `value`, or with any value if that is empty.
fn add_request_header(keyed: &mut Keyed, name: &str, value: &str) -> Result<(), String> {
    let name = name.to_ascii_lowercase();
    let (matches, is_any) = (&mut keyed.matches, value.is_empty());
    match name.as_str() {
        ":path" if is_any => keyed.add("uri".to_owned()),
        ":path" => {
            matches.paths = Path::exact(value)?.patterns();
        }
        ":method" if is_any => keyed.add("method".to_owned()),
        ":method" => matches.methods = vec![value.to_owned()],
        ":authority" | "host" if is_any => keyed.add("host".to_owned()),
        ":authority" | "host" => matches.hosts = vec![value.to_owned()],
        "x-forwarded-for" => return Err("set `server.trusted_proxies`, and use the part `ip`".to_owned()),
        _ => {
            let value = if is_any { "*" } else { value };
            matches.headers.push((name.clone(), value.to_owned()));
            if is_any {
                keyed.add(format!("header:{name}"));
            }
        }
    }
    Ok(())
}
