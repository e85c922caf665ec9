//! The defaults that depend on other options, as they are in force.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::on_limit::ON_FULL;
use crate::config::overrides::OverridesPlace;
use crate::limit::{Algorithm, ban};
use crate::policy::{Limit, Policy, Strategy};

/// The defaults of one configuration that depend on other options.
#[derive(Debug, Default)]
pub(in crate::config) struct DerivedDefaults {
    workers: usize,
    bans: Option<String>,
    overrides: String,
    limits: HashMap<Box<str>, LimitDefaults>,
}

#[derive(Debug)]
struct LimitDefaults {
    strategy: &'static str,
    on_full: Option<&'static str>,
    persist: bool,
    /// `None` if the algorithm has no burst, or if replicas divide it.
    burst: Option<u64>,
    longest_ban_ns: Option<u64>,
}

impl DerivedDefaults {
    /// The defaults of a configuration with this number of workers, these files, and these limits.
    pub(in crate::config) fn new(
        workers: usize,
        bans: Option<&Path>,
        overrides: &OverridesPlace,
        policy: &Policy,
    ) -> Self {
        let overrides = match overrides {
            OverridesPlace::Off => "off".to_owned(),
            OverridesPlace::File(path) => path.display().to_string(),
            OverridesPlace::Memory { .. } => "memory".to_owned(),
        };
        Self {
            workers,
            bans: bans.map(|path| path.display().to_string()),
            overrides,
            limits: policy.limits().iter().map(|limit| (limit.name.clone(), LimitDefaults::of(limit))).collect(),
        }
    }

    /// The default of the option `schema` at `path`, which has the name of a limit in place of the list. `None` if it is
    /// not known, or if there is none.
    pub(in crate::config) fn value(&self, schema: &str, path: &str) -> Option<Value> {
        match schema {
            "server.workers" => return Some(self.workers.into()),
            "admin.bans" => return self.bans.clone().map(Value::from),
            "admin.overrides" => return Some(self.overrides.as_str().into()),
            _ => {}
        }
        let option = schema.strip_prefix("limit")?;
        let limit = self.limits.get(path.strip_prefix("limit.")?.strip_suffix(option)?)?;
        match option {
            ".strategy" => Some(limit.strategy.into()),
            ".on_full" => limit.on_full.map(Value::from),
            ".persist" => Some(limit.persist.into()),
            ".burst" => limit.burst.map(Value::from),
            ".ban.for_max" => limit.longest_ban_ns.map(duration),
            _ => None,
        }
    }
}

impl LimitDefaults {
    fn of(limit: &Limit) -> Self {
        let usual = &limit.allowed.usual;
        let has_burst = matches!(usual, Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
        let is_whole = !matches!(limit.strategy, Strategy::Split(_));
        Self {
            strategy: limit.strategy.name(),
            on_full: ON_FULL.iter().find(|(_, known)| *known == limit.on_full).map(|(word, _)| *word),
            persist: limit.persist,
            burst: (has_burst && is_whole).then(|| usual.capacity()),
            longest_ban_ns: limit.ban.as_ref().map(ban::Rule::longest_ns),
        }
    }
}

fn duration(ns: u64) -> Value {
    humantime::format_duration(std::time::Duration::from_nanos(ns)).to_string().into()
}
