//! `[[limit]]`: one limit, put together from the files for its parts.
//!
//! The decisions of a limit are not here. `policy` and `limit` check their own values; this module adds the position.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::adapt::{self, Measured};
use super::candidate::Candidate;
use super::fleet::Fleet;
use super::key::NO_BODY_ON_ARRIVAL;
use super::override_key::Keyed;
use super::overrides::{self, Target};
use super::remote::{self, Stored};
use super::rule::Scheme;
use super::warnings::of_everyone;
use super::{allowed, cost, fair_share, key, matching, on_limit, ramp, rate_warnings, settle, snapshot, stale};
use crate::config::overrides::OverrideSet;
use crate::config::reader::{Fault, Located, Optional, Table, units};
use crate::config::schema::words;
use crate::engine::limit::adaptive_rate::WHOLE;
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::policy::{
    AfterResponse, Allowed, Cost, Except, Identity, KeyPart, Limit, Match, Mode, Settle, SettleBy, Stage,
};

/// The limit of a configuration without limits: requests wait if their path has more than 100 requests a minute.
pub const DEFAULT_LIMIT: &str = r#"[[limit]]
name = "per-path"
key = ["path"]
rate = "100/min"
on_limit = "hold"
hold = { max_wait = "forever", max_waiting = 1000 }
"#;

/// Compiles all limits; `None` if one has an error. `names` are the names that keys may use, of identities that may have
/// errors. `prefixes` is the counted prefix of an address in bits.
pub(super) fn limits(
    root: &Table<'_>,
    (names, identities): (&[String], &[Identity]),
    prefixes: Prefixes,
    fleet: &Fleet<'_>,
    overrides: &OverrideSet<'_>,
) -> Option<Vec<Limit>> {
    if is_none(root.get("limit")) {
        let document = DeTable::parse(DEFAULT_LIMIT).ok()?;
        return limits(&Table::root(root.context, document.get_ref()), (&[], &[]), prefixes, fleet, overrides);
    }
    let mut limit_names = Names::new();
    let (has_snapshot, has_plans) = (root.has("snapshot"), root.has("plans") || root.has("grpc"));
    let around = Around { names, identities, prefixes, fleet, has_snapshot, has_plans, overrides };
    let read = |(index, table): (usize, &Table<'_>)| {
        let (limit, candidate) = limit(table, &around, &mut limit_names)?;
        rate_warnings::of(table, &limit, has_snapshot);
        let candidate = candidate.map(|candidate| Limit { candidate_of: Some(index), ..candidate });
        Some((limit, candidate))
    };
    let limits: Vec<_> = root.tables("limit").iter().enumerate().map(read).collect();
    let (mut limits, candidates): (Vec<_>, Vec<_>) =
        limits.into_iter().collect::<Option<Vec<_>>>()?.into_iter().unzip();
    limits.extend(candidates.into_iter().flatten());
    Some(limits)
}

/// Whether the default limit applies: `limit` is absent or an empty list.
pub(in crate::config) fn is_none(limit: Option<&Spanned<DeValue<'_>>>) -> bool {
    limit.is_none_or(|limits| limits.get_ref().as_array().is_some_and(|limits| limits.is_empty()))
}

/// Facts about the rest of the configuration that a limit needs.
struct Around<'a> {
    /// Names of identities that keys may use.
    names: &'a [String],
    /// All identities; empty if one has an error.
    identities: &'a [Identity],
    /// The counted prefix of an IPv6 address, in bits.
    prefixes: Prefixes,
    fleet: &'a Fleet<'a>,
    has_snapshot: bool,
    /// Whether requests can have a plan.
    has_plans: bool,
    /// The overrides of all limits that were set at run time.
    overrides: &'a OverrideSet<'a>,
}

/// The position of the first use of each name.
type Names = HashMap<String, Range<usize>>;

fn limit(table: &Table<'_>, around: &Around<'_>, limit_names: &mut Names) -> Option<(Limit, Option<Limit>)> {
    let &Around { names, identities, prefixes, fleet, has_snapshot, has_plans, overrides: set } = around;
    let (name, match_table) = (name(table, limit_names), table.table("match"));
    let (stage, mode) = (table.choice("stage", &words::STAGES), table.choice("mode", &words::MODES));
    let matches = conditions(table, &match_table);
    let except = except(&table.table("except"));
    let enforced_percent = enforced_percent(table, mode);
    let is_partial = enforced_percent.is_some_and(|percent| percent < 100);
    let key = key::key(table, names, stage, (mode, is_partial), match_table.has("path").then_some(&*matches.paths));
    let (word, sharing) = (table.choice("on_limit", &words::ON_LIMIT), fleet.strategy(table));
    let scheme = Scheme::of(table, word, sharing.as_ref());
    // After an error in a part of the key, the texts of keys cannot be checked.
    let parts = key.as_deref().filter(|parts| parts.len() == table.items(fair_share::key_option(table)).len());
    let keyed = Keyed { parts, routes: &matches.paths, prefixes, identities, paths: table.context.paths.get() };
    let allowed::CompiledAllowed { allowed, mut capacities, dropping } = allowed::compile(table, &scheme, &keyed);
    let candidate = Candidate::of(table, &scheme, key.as_deref(), allowed.as_ref(), (fleet, sharing.as_ref()));
    capacities.extend(candidate.iter().flatten().map(Candidate::capacity));
    let ramp = ramp::ramp(table, &scheme, allowed.as_ref(), sharing.as_ref());
    let measured = Measured { stage, key: key.as_deref(), allowed: allowed.as_ref(), sharing: sharing.as_ref() };
    let adapt = adapt::adapt(table, &measured, &mut capacities);
    let cost = cost::compile(table, &capacities);
    let queue = allowed.as_ref().filter(|_| scheme.shapes()).map(|allowed| allowed.usual.capacity());
    let excess = on_limit::compile(table, word, queue);
    let (after, max_keys) = (settle::after(table, stage), table.count("max_keys"));
    check_stage(table, stage, allowed.as_ref(), cost.as_ref(), has_plans);
    check_read_body(table, key.as_deref(), &matches, cost.as_ref(), after.as_ref());
    let (stale, unit_name) = (stale::stale(table, stage, key.as_deref(), &matches), unit_name(table, after.as_ref()));
    let (name, excess, mut allowed, cost) = (name?, excess?, allowed?, cost?);
    let (sharing, candidate) = (sharing?, candidate?);
    let (scheme, keyed, cost_of, on_limit) = (&scheme, &keyed, &cost, excess.on_limit);
    let (settled, most_keys) = (after.as_ref().and_then(Option::as_deref), max_keys.unwrap_or_default());
    let stored = Stored { scheme, allowed: &allowed, cost: cost_of, on_limit, after: settled, max_keys: most_keys };
    let stored_debt = remote::check(table, &sharing, &stored);
    excess.check_on_full(table, &allowed);
    let is_sketched = excess.is_sketched();
    let target = Target { name: &name, scheme, keyed, dropping: &dropping, cost: cost_of, is_sketched, stored_debt };
    overrides::apply(set, &target, &mut allowed);
    let persist = snapshot::persist(table, &allowed, excess.ban.as_ref(), has_snapshot);
    let limit = Limit {
        name: name.into(),
        stage: stage?,
        mode: mode?,
        enforced_percent: enforced_percent?,
        matches,
        except,
        key: key?,
        on_full: excess.on_full(&allowed),
        allowed,
        strategy: sharing.strategy,
        cost,
        after: adapt::sampled(adapt?, after?),
        on_limit,
        jitter_percent: excess.jitter_percent,
        refusals: excess.refusals.clone(),
        ban: excess.ban,
        stale: stale?,
        max_keys: max_keys?,
        persist,
        ramp: ramp?,
        ramp_steps: 0,
        adapt: adapt?,
        adapted: adapt?.map_or(WHOLE, |rule| rule.ceiling),
        unit_name: unit_name?,
        candidate_of: None,
        is_listed: false,
    };
    let candidate = candidate.map(|rule| rule.of_limit(table, &limit, |allowed| excess.on_full(allowed)));
    Some((limit, candidate))
}

fn except(table: &Table<'_>) -> Except {
    let networks = table.list_at("ip", units::network).unwrap_or_default();
    of_everyone(table, "ip", &networks, "exempts_everyone", "this limit applies to no request");
    let paths = matching::except_paths(table);
    Except { networks: networks.into_iter().map(Located::into_inner).collect(), paths }
}

/// The part of the keys for which the limit is enforced.
fn enforced_percent(table: &Table<'_>, mode: Option<Mode>) -> Option<u8> {
    if mode.is_some_and(|mode| mode != Mode::Enforce) {
        table.fault_if_present("enforce", "has an effect only with `mode = \"enforce\"`");
    }
    let percent = table.percent("enforce", 1, Some("with `mode = \"shadow\"` the limit refuses nothing"))?;
    if percent < 100 {
        warn_of_early_refusals(table);
    }
    Some(percent)
}

/// Warns of refusals that come before the key is known, and so before `enforce` can choose keys.
fn warn_of_early_refusals(table: &Table<'_>) {
    let tables = [("cost", "beyond"), ("settle", "unpriced")].map(|(name, option)| (table.get(name), name, option));
    for (value, name, option) in tables {
        let value = value.and_then(|value| value.get_ref().as_table()?.get(option));
        if let Some(value) = value.filter(|value| value.get_ref().as_str() == Some("refuse")) {
            let help = "a request is refused before its key is known; it has an effect with `enforce = \"100%\"`";
            let fault = ("refuses nothing while the limit is enforced for some keys", help);
            table.table(name).warn(option, value.span(), "partial_refusal", fault);
        }
    }
}

fn settle_of(after: Option<&Arc<AfterResponse>>) -> Option<&Settle> {
    after?.settle.as_ref()
}

/// The requests that the limit applies to.
fn conditions(table: &Table<'_>, match_table: &Table<'_>) -> Match {
    let mut matches = matching::matches(match_table);
    matching::cover_head(&mut matches.methods);
    matches.json = matching::members(match_table, table.size("read_body").unwrap_or_default());
    matches
}

/// What the units are, if the limit says it. Money has a name of its own.
fn unit_name(table: &Table<'_>, after: Option<&Option<Arc<AfterResponse>>>) -> Optional<Arc<str>> {
    if matches!(after.and_then(|after| settle_of(after.as_ref())), Some(Settle { by: SettleBy::Body(units), .. }) if units.is_money())
    {
        table.fault_if_present("unit_name", "the units of a limit with `price` are `micro-usd`");
    }
    if !table.has("unit_name") {
        return Some(None);
    }
    table.parsed("unit_name", |text| Ok(Arc::from(name_text(text)?))).map(Some)
}

/// Notes a bound on bodies that the limit does not read. After an error that is unknown.
fn check_read_body(
    table: &Table<'_>,
    key: Option<&[KeyPart]>,
    matches: &Match,
    cost: Option<&Cost>,
    after: Option<&Option<Arc<AfterResponse>>>,
) {
    let settle = after.map(|after| settle_of(after.as_ref()));
    let reads_settle =
        settle.is_none_or(|settle| settle.is_some_and(|settle| settle.usage_of.is_some() || settle.priced.is_some()));
    let reads_key = key.is_none_or(|key| key.iter().any(|part| matches!(part, KeyPart::Json(_))));
    let reads_cost = cost.is_none_or(|cost| matches!(cost, Cost::FromBody(_)));
    if !reads_key && !reads_cost && !reads_settle && matches.json.is_empty() {
        table.fault_if_present(
            "read_body",
            "has an effect only if the limit reads bodies of requests, as by `cost.json`",
        );
    }
}

/// The options with numbers for plans.
const BY_PLAN: [&str; 3] = ["plans", "max_plan_rate", "weights"];

/// Notes what a limit of its stage cannot do, and plans of a limit whose requests never have a plan.
fn check_stage(
    table: &Table<'_>,
    stage: Option<Stage>,
    allowed: Option<&Allowed>,
    cost: Option<&Cost>,
    has_plans: bool,
) {
    if stage == Some(Stage::Arrival) {
        if allowed.is_some_and(|allowed| allowed.usual.is_released()) {
            table.fault_at("algorithm", "a limit of stage `arrival` cannot release units after the response");
        }
        if cost.is_some_and(|cost| matches!(cost, Cost::FromBody(_))) {
            table.fault_at("cost", NO_BODY_ON_ARRIVAL);
        }
        table.table("match").fault_if_present("json", NO_BODY_ON_ARRIVAL);
        for plans in BY_PLAN {
            table.fault_if_present(plans, "the plan of a request is unknown at stage `arrival`");
        }
        return;
    }
    let assigns = |value: &Spanned<DeValue<'_>>| value.get_ref().as_table().is_some_and(|one| one.contains_key("plan"));
    let overrides = table.get("overrides").and_then(|overrides| overrides.get_ref().as_table());
    let is_assigned = overrides.is_some_and(|overrides| overrides.values().any(assigns));
    for plans in BY_PLAN.into_iter().filter(|plans| table.has(plans) && !has_plans && !is_assigned) {
        let help = "set the source of plans, as in `[plans] from = \"seller.plan\"`, or assign them by `/v1/plans`";
        let fault = ("without `[plans]` no request has a plan of its own", help);
        table.warn(plans, table.span_of(plans), "plans_without_source", fault);
    }
}

fn name_text(text: &str) -> Result<&str, Fault> {
    let fault = || format!("`{text}` is not 1 to 64 of `A-Z a-z 0-9 _ -`").into();
    units::is_name(text).then_some(text).ok_or_else(fault)
}

fn name(table: &Table<'_>, names: &mut Names) -> Option<String> {
    let name = table.parsed_at("name", |text| name_text(text).map(str::to_owned))?;
    match names.entry(name.get_ref().clone()) {
        Entry::Occupied(other) => table.note_twice("name", name.get_ref(), name.span(), other.get().clone()),
        Entry::Vacant(new) => _ = new.insert(name.span()),
    }
    Some(name.into_inner())
}
