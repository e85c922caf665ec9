//! `max = "auto"` with `floor` and `ceiling`: what it needs, and what does not go with it.

use crate::config::reader::{Optional, Table};
use crate::config::schema;
use crate::engine::limit::concurrency::adaptive::Range;
use crate::engine::policy::Strategy;

const AUTO: &str = "auto";
const BOUNDS: [&str; 2] = ["floor", "ceiling"];

/// The bounds of the limit `table` if its `max` follows the service. Notes an error and returns `None`.
pub(super) fn range(table: &Table<'_>, strategy: Strategy) -> Optional<Range> {
    // Plans and overrides have no such `max`.
    if schema::find(&table.path_of("floor")).is_none() {
        return Some(None);
    }
    if table.get("max").is_none_or(|max| max.get_ref().as_str() != Some(AUTO)) {
        for option in BOUNDS {
            table.fault_if_present(option, "has an effect only with `max = \"auto\"`");
        }
        return Some(None);
    }
    for name in BOUNDS {
        if let (false, Some(option)) = (table.has(name), schema::find(&table.path_of(name))) {
            table.note_missing(option);
        }
    }
    let (floor, ceiling) = (table.count_at("floor"), table.count_at("ceiling"));
    check(table, strategy);
    let (floor, ceiling) = (floor?.into_inner(), ceiling?);
    if floor >= *ceiling.get_ref() {
        table.fault("ceiling", ceiling.span(), "must be more than `floor`");
        return None;
    }
    Some(Some(Range { floor, ceiling: ceiling.into_inner() }))
}

/// Notes options that assume a fixed number.
fn check(table: &Table<'_>, strategy: Strategy) {
    if !table.items("key").is_empty() {
        let help = "write `key = []`, and one `[[limit]]` with a `match` for each service";
        table.fault_at("key", ("`max = \"auto\"` finds one bound for all requests", help));
    }
    for option in ["plans", "overrides", "ramp", "candidate"] {
        table.fault_if_present(option, "does not go with `max = \"auto\"`, which has no numbers to change");
    }
    if strategy != Strategy::Local {
        let help = "write `strategy = \"local\"`: replicas that share a service find their parts by themselves";
        table.fault_at("strategy", ("each replica finds the bound of `max = \"auto\"` by itself", help));
    }
}
