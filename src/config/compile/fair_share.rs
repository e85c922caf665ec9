//! `share_by` and `weights` of a limit: the sharers of its budget, and the rules of their weights.

use toml::Spanned;
use toml::de::DeValue;

use super::rule::Scheme;
use crate::config::reader::values::whole_number;
use crate::config::reader::{Located, Table};
use crate::config::schema;
use crate::engine::limit::fair_share::{Rule, SharedPool};
use crate::engine::limit::{Algorithm, Quota};
use crate::engine::policy::Allowed;

/// The option with the parts of the key.
pub(super) fn key_option(table: &Table<'_>) -> &'static str {
    if table.has("share_by") { "share_by" } else { "key" }
}

/// Shares what the limit `table` allows, if it has `share_by`. Notes an error and returns `None`.
pub(super) fn share(table: &Table<'_>, scheme: &Scheme, allowed: Option<Allowed>) -> Option<Allowed> {
    if !table.has("share_by") {
        table.fault_if_present("weights", "has an effect only with `share_by`");
        return allowed;
    }
    check(table, scheme);
    let weights = weights(table);
    let allowed = allowed?;
    let Algorithm::TokenBucket(quota) = allowed.usual else {
        table.fault_at("share_by", "needs `algorithm = \"token_bucket\"` with one rate");
        return None;
    };
    Some(shared(allowed, quota, weights?))
}

/// Notes options that do not go with shares.
fn check(table: &Table<'_>, scheme: &Scheme) {
    if !table.items("key").is_empty() {
        let help = "write `key = []`, and one `[[limit]]` with a `match` for each budget";
        table.fault_at("key", ("`share_by` shares one budget for all requests", help));
    }
    if table.items("share_by").is_empty() {
        table.fault_at("share_by", "needs a part: each of its values has a share");
    }
    for (option, instead) in [
        ("plans", "`weights` give plans larger parts"),
        ("max_plan_rate", "`weights` give plans larger parts"),
        ("overrides", "an override at run time gives a key a budget of its own"),
        ("candidate", "a limit of its own in shadow mode tries other numbers"),
    ] {
        table.fault_if_present(option, ("does not go with `share_by`", instead));
    }
    if table.get("on_limit").and_then(|word| word.get_ref().as_str()) == Some("delay") {
        let help = "with `hold` each sharer has a queue of its own";
        table.fault_at("on_limit", ("`delay` charges without regard to shares", help));
    }
    if !scheme.counts_alone() {
        let what = "`share_by` needs `local` or `split`: no other strategy tells replicas what each sharer has spent";
        table.fault_at("strategy", what);
    }
}

/// The rules of sharers, by the weights of their plans.
fn shared(mut allowed: Allowed, quota: Quota, weights: Vec<(Box<str>, u32)>) -> Allowed {
    let pool = SharedPool::default();
    let rule = |weight| Algorithm::FairShare(Rule::new(quota, weight, pool.clone()));
    let written = allowed.written.usual.clone();
    let with = |weight: u32| {
        let mut written = written.clone();
        written.rest = format!("{}, shared with weight {weight}", written.rest).into();
        written
    };
    allowed.written.plans = weights.iter().map(|(name, weight)| (name.clone(), with(*weight))).collect();
    allowed.written.usual = with(1);
    allowed.plans = weights.into_iter().map(|(name, weight)| (name, Some(rule(weight)))).collect();
    allowed.usual = rule(1);
    allowed
}

/// The weights of plans.
fn weights(table: &Table<'_>) -> Option<Vec<(Box<str>, u32)>> {
    let weights = table.table("weights");
    let read = |(name, value): (Located<String>, &Spanned<DeValue<'_>>)| {
        let option = schema::find(&weights.path_of("NAME"))?;
        let weight = value.get_ref().as_integer().and_then(whole_number).filter(|number| option.kind.allows(*number));
        let Some(weight) = weight.and_then(|number| u32::try_from(number).ok()) else {
            return weights.mismatched("NAME", option, value);
        };
        Some((name.into_inner().into(), weight))
    };
    weights.entries().into_iter().map(read).collect::<Vec<_>>().into_iter().collect()
}
