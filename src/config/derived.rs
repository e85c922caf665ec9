//! The defaults that depend on other options, as they are in force.
//!
//! They are found when somebody asks for them, in the text of the configuration and in its compiled form.

use std::time::Duration;

use serde_json::Value;
use toml::de::DeTable;

use super::compile::store;
use super::effective::Walk;
use super::reader::time_units;
use super::schema::words::ON_FULL;
use crate::engine::limit::{Algorithm, ban};
use crate::engine::policy::Limit;

impl Walk<'_> {
    /// The default of the absent option `schema`, which `table` could have; that may be absent, too. `path` has the names
    /// of tables in lists. `None` if the default is not known, or if there is none.
    pub(super) fn derived(&self, schema: &str, path: &str, table: Option<&DeTable<'_>>) -> Option<Value> {
        let (known, in_force) = (&self.written?.derived, self.in_force?);
        match schema {
            "server.workers" => Some(known.workers.into()),
            "server.max_connections" => Some(in_force.max_connections.into()),
            "admin.bans" => known.bans.clone().map(Value::from),
            "admin.overrides" => Some(known.overrides.as_str().into()),
            "route.max_body_bytes" => self.inherited("server.max_body_bytes", &["server", "max_body_bytes"]),
            "route.upgrade" => {
                let upstream = text(table?, "upstream")?;
                self.inherited("upstreams.NAME.upgrade", &["upstreams", upstream, "upgrade"])
            }
            "upstreams.NAME.hash_by" => (text(table?, "balance")? == "hash").then(|| "ip".into()),
            "store.NAME.timeout" => Some(duration(store::default_timeout(table?.contains_key("etcd")))),
            "fleet.strategy.store" | "limit.strategy.store" => only_store(table?, self.document).map(Value::from),
            _ => {
                let (name, _) = path.strip_prefix("limit.")?.split_once('.')?;
                let limit = match schema {
                    "limit.candidate.burst" => in_force.policy.by_name(&format!("{name}.candidate"))?.limit,
                    _ => in_force.policy.by_name(name)?.limit,
                };
                match schema.strip_prefix("limit.")? {
                    // Without a file for snapshots no state outlives the process.
                    "persist" => Some((limit.persist && self.document.contains_key("snapshot")).into()),
                    option => of_limit(option, table, limit),
                }
            }
        }
    }
}

/// The default of the option `option` of a limit, or of a table in it.
fn of_limit(option: &str, table: Option<&DeTable<'_>>, limit: &Limit) -> Option<Value> {
    match option {
        "strategy" => Some(limit.strategy.name().into()),
        "on_full" => ON_FULL.iter().find(|(_, known)| *known == limit.on_full).map(|(word, _)| (*word).into()),
        "burst" | "plans.NAME.burst" | "overrides.NAME.burst" | "candidate.burst" => {
            let has_burst = matches!(limit.allowed.usual, Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
            // The rule of a replica may be a share of the written one.
            let rate = time_units::rate(text(table?, "rate")?).ok()?;
            has_burst.then(|| rate.count.into())
        }
        "ban.for_max" => limit.ban.as_ref().map(|rule| duration(Duration::from_nanos(ban::Rule::longest_ns(rule)))),
        _ => None,
    }
}

/// The name of the only store that fits the strategy `table`.
fn only_store<'t>(table: &DeTable<'_>, document: &'t DeTable<'_>) -> Option<&'t str> {
    let kinds: &[&str] = match text(table, "use")? {
        "redis" => &["redis", "cluster", "sentinel"],
        "lease" => &["redis", "cluster", "sentinel", "etcd"],
        "service" if !table.contains_key("url") => &["service"],
        _ => return None,
    };
    let fits = |store: &DeTable<'_>| kinds.iter().any(|kind| store.contains_key(*kind));
    let stores = document.get("store")?.get_ref().as_table()?;
    let mut fitting = stores.iter().filter(|(_, store)| store.get_ref().as_table().is_some_and(fits));
    let (only, _) = fitting.next()?;
    fitting.next().is_none().then(|| &**only.get_ref())
}

/// The text that `table` has for `key`.
fn text<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.get(key)?.get_ref().as_str()
}

fn duration(duration: Duration) -> Value {
    humantime::format_duration(duration).to_string().into()
}
