//! `limit.stale` and `limit.stale_on`: stored answers for requests that a limit refuses.

use http::Method;

use crate::base::time::saturating_ns;
use crate::config::reader::{Optional, Table, units};
use crate::config::schema::words;
use crate::engine::policy::{KeyPart, Match, Stage, StaleCause, StaleRule};

/// Compiles the stored answers of the limit `table`.
pub(super) fn stale(
    table: &Table<'_>,
    stage: Option<Stage>,
    key: Option<&[KeyPart]>,
    matches: &Match,
) -> Optional<StaleRule> {
    let options = table.table("stale");
    let causes = table.list("stale_on", units::one_of(&words::STALE_CAUSES));
    if !options.is_present() {
        table.fault_if_present(
            "stale_on",
            ("has an effect only with `stale`", "write `stale = { max_age = \"10min\" }`"),
        );
        return Some(None);
    }
    if stage == Some(Stage::Arrival) {
        let help = "remove `stage = \"arrival\"`; at that stage Weir has verified no identity";
        table.fault_at("stale", ("needs a limit of stage `identified`", help));
    }
    if key.is_some_and(|parts| parts.iter().any(|part| matches!(part, KeyPart::Named(_)))) {
        table.fault_at("stale", "has an effect on requests only, and callers of the limiter service make none");
    }
    let reads_body = key.is_some_and(|parts| parts.iter().any(|part| matches!(part, KeyPart::Json(_))));
    if reads_body || !matches.json.is_empty() {
        table.fault_at("stale", "stores answers by the head of a request, and this limit depends on the body");
    }
    let methods = &matches.methods;
    if !methods.is_empty() && !methods.contains(&Method::GET) {
        table.fault_at("stale", ("stores answers to GET only, and `match.method` has other methods", "remove it"));
    }
    options.if_present(|options| {
        let (max_age, max_bytes) = (options.duration("max_age"), options.size("max_bytes"));
        let mut used = [false; StaleCause::ALL.len()];
        causes?.into_iter().for_each(|cause| used[cause as usize] = true);
        Some(StaleRule { max_age_ns: saturating_ns(max_age?), max_bytes: max_bytes?, causes: used })
    })
}
