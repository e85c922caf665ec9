//! The configuration of Envoy's rate limit service, as limits of descriptors.
//!
//! The service prefers an exact value of an entry to any value, and limits only a descriptor whose last entry has a
//! `rate_limit`. Its windows begin at multiples of their length.

use std::path::Path;

use super::draft::{Block, Draft, name, quoted, unique};
use super::limit::{self, Limit};
use super::rates;
use super::report::ImportError;
use super::yaml::{self, Node, Reasons};

/// Translates the configuration of a domain.
pub(super) fn translate(_: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let documents = yaml::read(draft)?;
    draft.push(Block::new("[grpc]", []).option("listen", quoted("127.0.0.1:8081")));
    let mut limits = Vec::new();
    for document in &documents {
        let mut reader = DescriptorReader { domain: document.word("domain"), tables: Vec::new() };
        reader.read_all(document, &[], draft);
        // The first table that fits decides: exact values go before any value, from the first entry on.
        reader.tables.sort_by_key(|table| table.entries.iter().map(|(_, value)| value.is_none()).collect::<Vec<_>>());
        let mut used = limits.iter().map(|limit: &Limit| limit.name.clone()).collect();
        for table in reader.tables {
            let name = unique(name(&table.name()), &mut used);
            draft.push(table.block(reader.domain, &name));
            limits.push(Limit { name, ..table.limit });
        }
        document.report(&REASONS, draft);
    }
    limit::write(limits, draft);
    Ok(())
}

const REASONS: Reasons = Reasons {
    not_needed: "detailed_metric value_to_metric share_threshold name",
    left_out: &[
        ("replaces", "Weir charges all limits of a request; each descriptor has the limit of its table"),
        ("quota_mode", "Weir has no such mode"),
    ],
};

/// An entry of a descriptor; without a value for any value.
type ServiceEntry = (String, Option<String>);

/// A descriptor with its limit.
struct DescriptorTable {
    entries: Vec<ServiceEntry>,
    limit: Limit,
}

impl DescriptorTable {
    /// The values and keys of its entries.
    fn name(&self) -> String {
        let texts: Vec<_> = self.entries.iter().map(|(key, value)| value.as_deref().unwrap_or(key)).collect();
        texts.join("-")
    }

    fn block(&self, domain: &str, limit: &str) -> Block {
        let entry = |(key, value): &ServiceEntry| match value {
            Some(value) => format!("{{ key = {}, value = {} }}", quoted(key), quoted(value)),
            None => format!("{{ key = {} }}", quoted(key)),
        };
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        let any = self.entries.iter().filter(|(_, value)| value.is_none() && !self.limit.key.is_empty());
        let parts = any.map(|(key, _)| format!("{} = {}", quoted(&part(key)), quoted(&format!("{{{key}}}"))));
        let parts: Vec<_> = parts.collect();
        let parts = if parts.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", parts.join(", ")) };
        Block::new("[[grpc.descriptor]]", self.limit.places.iter().copied())
            .option("domain", quoted(domain))
            .option("entries", format!("[{}]", entries.join(", ")))
            .option("limits", format!("{{ {} = {parts} }}", quoted(limit)))
    }
}

/// The part of a key that has the value of an entry.
fn part(key: &str) -> String {
    format!("name:{}", name(key))
}

struct DescriptorReader<'n> {
    domain: &'n str,
    tables: Vec<DescriptorTable>,
}

impl DescriptorReader<'_> {
    /// Reads the descriptors of `node`, whose entries are `outer`.
    fn read_all(&mut self, node: &Node, outer: &[ServiceEntry], draft: &mut Draft) {
        let all = node.list("descriptors");
        for one in all {
            let is_default = |other: &Node| other.word("key") == one.word("key") && other.word("value").is_empty();
            let default = all.iter().find(|other| !one.word("value").is_empty() && is_default(other));
            if default.is_some_and(|default| default.has("descriptors")) {
                draft.differs(
                    one.place,
                    "for this value, Weir also takes the descriptors below the key without a value",
                );
            }
            self.read(one, outer, default.is_some(), draft);
        }
    }

    /// Reads a descriptor below the entries `outer`. It `has_default` if the key also has a limit for any value.
    fn read(&mut self, node: &Node, outer: &[ServiceEntry], has_default: bool, draft: &mut Draft) {
        let value = node.get("value").map(|value| value.text().to_owned());
        if value.as_ref().is_some_and(|value| value.ends_with('*')) {
            return node.left_out("Weir has no pattern of values", draft);
        }
        let mut entries = outer.to_vec();
        entries.push((node.word("key").to_owned(), value.filter(|value| !value.is_empty())));
        self.read_all(node, &entries, draft);
        let is_shadow = node.is_true("shadow_mode");
        let rate_limit = node.get("rate_limit");
        let is_unlimited = rate_limit.map_or(has_default, |rate_limit| rate_limit.is_true("unlimited"));
        if is_unlimited {
            let rule = vec![("mode", quoted("off")), ("rate", quoted("1/s"))];
            let limit = Limit { places: vec![node.place], rule, ..Limit::default() };
            return self.tables.push(DescriptorTable { entries, limit });
        }
        let Some(rate_limit) = rate_limit else { return };
        let count = rate_limit.get("requests_per_unit").map_or("0", Node::text);
        let unit = rate_limit.word("unit").to_ascii_lowercase();
        let unit = match unit.as_str() {
            "second" => "s",
            "minute" => "min",
            "hour" => "h",
            "day" => "day",
            "week" => {
                draft.differs(rate_limit.place, "its weeks begin on Thursday, those of Weir on Monday");
                "week"
            }
            "month" => {
                draft.differs(rate_limit.place, "its months have 30 days, those of Weir are of the calendar");
                "month"
            }
            _ => return rate_limit.left_out(format!("Weir has no rate by the unit `{unit}`"), draft),
        };
        let any = entries.iter().filter(|(_, value)| value.is_none());
        let key = any.map(|(key, _)| part(key)).collect();
        let rule = match count {
            "0" => rates::zero(),
            _ => vec![("algorithm", quoted("fixed_window")), ("rate", quoted(&format!("{count}/{unit}")))],
        };
        let limit = Limit { places: vec![node.place, rate_limit.place], is_shadow, key, rule, ..Limit::default() };
        self.tables.push(DescriptorTable { entries, limit });
    }
}
