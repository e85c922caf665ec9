//! What replicas cannot share: limits with the strategy `redis`, `lease` or `service` that a store cannot decide, or that
//! cannot be lent, and limits with the strategy `stream` whose charges mean nothing to other replicas.
//!
//! Rules that a store cannot have are noted where they are compiled (`rule`).

use super::fleet::Sharing;
use super::rule::Scheme;
use crate::config::reader::Table;
use crate::engine::limit::{Algorithm, LeaseUnits};
use crate::engine::policy::{AfterResponse, Allowed, Cost, OnLimit, Strategy};

/// The parts of a limit that a store may not be able to keep.
pub(super) struct Stored<'l> {
    pub(super) scheme: &'l Scheme,
    pub(super) allowed: &'l Allowed,
    pub(super) cost: &'l Cost,
    pub(super) on_limit: OnLimit,
    pub(super) after: Option<&'l AfterResponse>,
    pub(super) max_keys: usize,
}

/// Notes what a store cannot do for the limit `table`, and warns of costs that exceed a share. Returns the largest debt that
/// the store has to keep; `None` if no store has the limit.
pub(super) fn check(table: &Table<'_>, sharing: &Sharing, limit: &Stored<'_>) -> Option<u64> {
    match sharing.strategy {
        Strategy::Local | Strategy::Split(_) => return None,
        Strategy::Stream => {
            check_stream(table, limit);
            return None;
        }
        Strategy::Redis { .. } => {}
        Strategy::Service { .. } => check_service(table, limit),
        Strategy::Lease { units, .. } => {
            check_units(table, sharing, units, limit.allowed.usual.capacity());
            check_lease(table, limit, sharing.is_etcd);
            if sharing.is_etcd {
                warn_of_many_keys(table, limit.max_keys);
            }
        }
    }
    warn_of_large_cost(table, sharing.shares, limit);
    Some(check_debts(table, limit))
}

/// Notes a lease of more units than the limit has. Units of `[fleet]` are for limits of any size.
fn check_units(table: &Table<'_>, sharing: &Sharing, units: LeaseUnits, capacity: u64) {
    let (LeaseUnits::Fixed(units), Some(span)) = (units, &sharing.units) else { return };
    if units > capacity && table.has("strategy") {
        let what = format!("a lease of {units} can never be had: the limit has {capacity} units");
        table.table("strategy").fault("units", span.clone(), what);
    }
}

const USE_REDIS: &str = "use `strategy = \"redis\"` for this limit";

/// Notes a limit whose units cannot be lent.
fn check_lease(table: &Table<'_>, limit: &Stored<'_>, is_etcd: bool) {
    let (option, why) = if matches!(limit.allowed.usual, Algorithm::Concurrency(_)) {
        ("algorithm", "`concurrency` has no units to lend: each comes back when its request ends")
    } else if limit.scheme.shapes() {
        ("algorithm", "a `leaky_bucket` that holds has no units to lend: each passes at an instant of its own")
    } else if is_etcd && limit.allowed.usual.rates().iter().any(|rate| matches!(rate, Algorithm::SlidingLog(_))) {
        ("algorithm", "etcd has one small counter for each key, and a `sliding_log` has an entry for each loan")
    } else if matches!(limit.on_limit, OnLimit::Delay(_)) {
        ("on_limit", "a delay depends on the debt of all replicas, and a lease knows that of one")
    } else {
        return;
    };
    table.fault_at(option, (format!("cannot be used with a lease: {why}"), USE_REDIS));
}

/// The keys in use to which an etcd can lend units: beside a load on one core it served 15,000 requests a second over 10,000
/// keys, and a key in use takes up to three loans a second.
const ETCD_KEYS_MAX: usize = 5000;

/// Warns of a limit with more keys than an etcd can lend units to.
fn warn_of_many_keys(table: &Table<'_>, max_keys: usize) {
    let Some(key) = table.get("key").filter(|_| max_keys > ETCD_KEYS_MAX) else { return };
    if key.get_ref().as_array().is_some_and(|parts| !parts.is_empty()) {
        let what = format!("an etcd can lend units to about {ETCD_KEYS_MAX} keys that are in use at once");
        let help = format!("with more, requests wait for it, and `on_failure` decides; {USE_REDIS}, or set `max_keys`");
        table.warn("key", key.span(), "etcd_keys", (what, help));
    }
}

/// Notes a limit whose charges mean nothing to other replicas.
fn check_stream(table: &Table<'_>, limit: &Stored<'_>) {
    let why = if matches!(limit.allowed.usual, Algorithm::Concurrency(_)) {
        "`concurrency` counts requests in flight, and those of a replica that is lost would never end"
    } else if limit.scheme.shapes() {
        "requests of a `leaky_bucket` that holds pass one by one, and replicas hear of each other only later"
    } else {
        return;
    };
    let help = "use `strategy = \"redis\"` or `\"split\"` for this limit";
    table.fault_at("algorithm", (format!("cannot be shared by streams: {why}"), help));
}

/// Notes a limit that a limiter service cannot decide.
fn check_service(table: &Table<'_>, limit: &Stored<'_>) {
    if limit.allowed.usual.is_released() {
        let what = "`concurrency` cannot be used with a limiter service: it would not hear of replicas that end";
        table.fault_at("algorithm", (what, USE_REDIS));
    }
}

/// Notes debts that are too large for a store. Returns the largest debt. A debt without a bound never becomes that large, and
/// counts as none.
fn check_debts(table: &Table<'_>, limit: &Stored<'_>) -> u64 {
    let Allowed { usual, plans, overrides, .. } = limit.allowed;
    let special = plans.iter().chain(overrides).filter_map(|(_, rule)| rule.as_ref());
    let most = special.chain([usual]).filter_map(|rule| rule.portable_debt_max()).min().unwrap_or(u64::MAX);
    let settled = limit.after.and_then(|after| after.settle.as_ref()).map(|settle| settle.max_debt);
    let settled = settled.filter(|_| table.has("max_debt"));
    if let Some(debt) = settled.filter(|debt| *debt > most) {
        let what = format!("a store cannot keep a debt of {debt} units of this limit: at most {most}");
        table.fault_at("max_debt", what);
    }
    let delayed = match limit.on_limit {
        OnLimit::Delay(rule) => rule.slow_down.max_debt(),
        _ => 0,
    };
    if delayed > most {
        let what = format!("a store cannot keep the debt of {delayed} units that this delay reaches");
        table.table("delay").fault_at("max", (what, format!("it can keep {most} units of this limit")));
    }
    settled.unwrap_or(0).max(delayed)
}

/// Warns of a cost above the share that decides while the store is down. Such a request passes if its key is unspent.
fn warn_of_large_cost(table: &Table<'_>, shares: u64, limit: &Stored<'_>) {
    let (share, cost) = (limit.allowed.usual.capacity() / shares.max(1), limit.cost.max());
    let Some(value) = table.get("cost").filter(|_| cost > share) else { return };
    let what = format!("a cost of {cost} is above the share of a replica, which is {share}");
    let help = "while the store is down, each replica admits one such request, and so all of them may exceed the limit";
    table.warn("cost", value.span(), "fallback_cost", (what, help));
}
