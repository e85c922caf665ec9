//! `[priority]` and `[overload]`: which requests pass first, and which are shed last.

use super::access::PlanSources;
use super::identity::request_header;
use super::matching::{cover_head, matches};
use crate::base::time::saturating_ns;
use crate::config::reader::{Fault, Problem, Table, units};
use crate::config::schema::words;
use crate::engine::policy::{Overload, Priorities, PriorityRule};

/// The largest `min_share`: half of the units stay for critical requests.
const MIN_SHARE_MAX: u8 = 25;

/// Compiles `[priority]`, if it is present. Notes and leaves out invalid entries; the configuration is invalid then.
pub(super) fn priorities(root: &Table<'_>, server: &Table<'_>) -> Option<Priorities> {
    let table = root.table("priority");
    if !table.is_present() {
        return None;
    }
    let trusts = server.has("trusted_proxies");
    let untrusted = |what: &str| {
        let help = "set `server.trusted_proxies`; any client can send the header";
        Fault::new(format!("{what} counts only from trusted proxies, and there are none")).help(help).absence()
    };
    if !trusts {
        table.fault_if_present("header", untrusted("a header"));
    }
    let header = table.optional("header", |key| table.parsed(key, |name| request_header(table.context, name)));
    let has_unproven_plans = PlanSources::of(root).unproven;
    let rules = table.tables("rule");
    if rules.is_empty() && !table.has("header") {
        let problem = Problem::new(table.span(), "`[priority]` gives no request a priority").absence();
        table.context.note(problem.help("add a `[[priority.rule]]`, or `header`"));
    }
    let mut all = None;
    let mut compiled = Vec::new();
    for rule in rules.iter().filter(|rule| !rule.is_broken()) {
        if let Some(all) = &all {
            let problem = Problem::new(rule.span(), "no request comes to this rule");
            table.context.note(problem.also(std::ops::Range::clone(all), "this rule fits every request"));
        }
        if rule.has("plan") && !root.has("plans") {
            let help = "set the source of plans, as in `[plans] from = \"seller.plan\"`";
            rule.fault_at("plan", Fault::new("without `[plans]` no request has a plan").help(help).absence());
        } else if rule.has("plan") && has_unproven_plans {
            rule.fault_at("plan", untrusted("a plan in a header"));
        }
        let plans = rule.list("plan", |text| units::not_empty(text).map(Into::into)).unwrap_or_default();
        let mut matches = matches(&rule.table("match"));
        cover_head(&mut matches.methods);
        if !rule.has("plan") && !rule.has("match") {
            all.get_or_insert_with(|| rule.span());
        }
        if let Some(priority) = rule.choice("priority", &words::PRIORITIES) {
            compiled.push(PriorityRule { priority, matches, plans });
        }
    }
    Some(Priorities { header: header.flatten(), rules: compiled, min_share_percent: min_share(&table)? })
}

fn min_share(table: &Table<'_>) -> Option<u8> {
    let percent = table.percent("min_share", 0, None)?;
    if percent > MIN_SHARE_MAX {
        let help = "each priority below critical gets it, and half of the units stay for critical requests";
        table.fault_at("min_share", (format!("`{percent}%` is more than `{MIN_SHARE_MAX}%`"), help));
    }
    Some(percent)
}

/// Compiles `[overload]`, if it is present. Notes errors; the configuration is invalid then.
pub(super) fn overload(root: &Table<'_>) -> Option<Overload> {
    let table = root.table("overload");
    if !table.is_present() {
        return None;
    }
    if !["cpu", "in_flight", "queue_delay"].iter().any(|key| table.has(key)) {
        let problem = Problem::new(table.span(), "`[overload]` has no bound").absence();
        table.context.note(problem.help("set `cpu`, `in_flight` or `queue_delay`"));
    }
    let cpu_percent = table.optional("cpu", |key| {
        let percent = table.percent(key, 1, None)?;
        if percent == 100 {
            table.fault_at(key, ("the CPU time in use never exceeds `100%`", "write `99%` or less"));
        }
        Some(percent)
    });
    Some(Overload {
        cpu_percent: cpu_percent?,
        in_flight: table.optional("in_flight", |key| table.count(key))?,
        queue_delay_ns: table.optional("queue_delay", |key| table.duration(key).map(saturating_ns))?,
    })
}
