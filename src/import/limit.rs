//! Limits as the formats know them, and their tables of TOML.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::draft::{Block, Draft, SourceLine, list, name, quoted, unique};

/// The reason why requests of two conditions have no `match`.
const TWO_OF_ONE_KIND: &str = "Weir cannot match two conditions of one kind";

/// Conditions of limits and routes; all that is empty holds for all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Match {
    pub(super) hosts: Vec<String>,
    pub(super) paths: Vec<String>,
    pub(super) methods: Vec<String>,
    /// Headers that a request must have, with their values or `*`.
    pub(super) headers: Vec<(String, String)>,
}

impl Match {
    /// The table of TOML; `None` if all requests match.
    pub(super) fn table(&self) -> Option<String> {
        let lists = [("host", &self.hosts), ("path", &self.paths), ("method", &self.methods)];
        let lists = lists.into_iter().filter(|(_, texts)| !texts.is_empty());
        let mut options: Vec<_> = lists.map(|(option, texts)| format!("{option} = {}", list(texts))).collect();
        if !self.headers.is_empty() {
            let headers = self.headers.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)));
            options.push(format!("header = {{ {} }}", headers.collect::<Vec<_>>().join(", ")));
        }
        (!options.is_empty()).then(|| format!("{{ {} }}", options.join(", ")))
    }

    /// The requests of both; errs if one `match` cannot have them.
    pub(super) fn both(&self, inner: &Self) -> Result<Self, String> {
        let headers: BTreeSet<_> = self.headers.iter().chain(&inner.headers).cloned().collect();
        let headers: Vec<_> = headers.into_iter().collect();
        if headers.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(TWO_OF_ONE_KIND.to_owned());
        }
        Ok(Self {
            hosts: of_both(&self.hosts, &inner.hosts)?,
            paths: of_both(&self.paths, &inner.paths)?,
            methods: of_both(&self.methods, &inner.methods)?,
            headers,
        })
    }
}

/// The patterns of one kind for the requests of both.
fn of_both(outer: &[String], inner: &[String]) -> Result<Vec<String>, String> {
    let is_within = |inner: &[String], outer: &[String]| {
        let covers = |outer: &String, inner: &String| {
            outer == inner || outer.strip_suffix("{*rest}").is_some_and(|start| inner.starts_with(start))
        };
        inner.iter().all(|inner| outer.iter().any(|outer| covers(outer, inner)))
    };
    match () {
        () if inner.is_empty() || inner == outer => Ok(outer.to_vec()),
        () if outer.is_empty() || is_within(inner, outer) => Ok(inner.to_vec()),
        () if is_within(outer, inner) => Ok(outer.to_vec()),
        () => Err(TWO_OF_ONE_KIND.to_owned()),
    }
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) places: Vec<SourceLine>,
    /// Whether it charges requests that another limit refuses later.
    pub(super) at_arrival: bool,
    pub(super) is_shadow: bool,
    pub(super) matches: Match,
    pub(super) except_ips: Vec<String>,
    pub(super) except_paths: Vec<String>,
    pub(super) key: Vec<String>,
    /// The options of its algorithm, as TOML.
    pub(super) rule: Vec<(&'static str, String)>,
}

impl Limit {
    fn block(self, used: &mut BTreeSet<String>) -> Block {
        let name = unique(name(&self.name), used);
        let mut block = Block::new("[[limit]]", self.places).option("name", quoted(&name));
        if self.at_arrival {
            block = block.option("stage", "\"arrival\"");
        }
        if self.is_shadow {
            block = block.option("mode", "\"shadow\"");
        }
        if let Some(matches) = self.matches.table() {
            block = block.option("match", matches);
        }
        // The list of the configuration has no entry twice.
        let except = [("ip", self.except_ips), ("path", self.except_paths)].map(|(option, mut texts)| {
            let mut known = BTreeSet::new();
            texts.retain(|text| known.insert(text.clone()));
            (option, texts)
        });
        let except = except.iter().filter(|(_, texts)| !texts.is_empty());
        let except: Vec<_> = except.map(|(option, texts)| format!("{option} = {}", list(texts))).collect();
        if !except.is_empty() {
            block = block.option("except", format!("{{ {} }}", except.join(", ")));
        }
        block = block.option("key", list(&self.key));
        self.rule.iter().fold(block, |block, (option, value)| block.option(option, value))
    }
}

/// Writes the limits, and what their decisions need. Clients are single addresses, also of IPv6.
pub(super) fn write(limits: Vec<Limit>, draft: &mut Draft) {
    if limits.iter().any(|limit| limit.key.iter().any(|part| part == "ip")) {
        draft.push(Block::new("[server]", []).option("ipv6_prefix", 128));
    }
    draft.push(Block::new("[headers]", []).option("free_preflights", false));
    let mut used = BTreeSet::new();
    for limit in limits {
        let has = |method: &str| limit.matches.methods.iter().any(|other| other == method);
        if has("GET") && !has("HEAD") {
            draft.differs(limit.places.first().copied().unwrap_or_default(), "Weir limits HEAD as GET");
        }
        draft.push(limit.block(&mut used));
    }
}

/// The network of a text, which may be one address; `None` for other texts.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    Some(text.parse::<IpNet>().or_else(|_| address()).ok()?.trunc())
}
