//! What a store cannot do: limits with the strategy `redis` or `lease` that Redis cannot decide, or that cannot be lent.

use super::fleet::Sharing;
use super::on_limit::Word;
use super::rule::Scheme;
use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::limit::Algorithm;
use crate::policy::{Allowed, Cost, LeaseUnits, Strategy};

/// Notes what a store cannot do for the limit `table`, and warns of requests that a share can never admit.
pub(super) fn check(
    table: &Table<'_>,
    sharing: &Sharing,
    word: Option<Word>,
    scheme: &Scheme,
    allowed: &Allowed,
    cost: &Cost,
) {
    match sharing.strategy {
        Strategy::Local | Strategy::Split(_) => return,
        Strategy::Redis { .. } => {}
        Strategy::Lease { units, .. } => check_lease(table, sharing, units, word, scheme, allowed),
    }
    warn_of_large_cost(table, sharing.shares, allowed, cost);
}

/// Notes a limit whose units cannot be lent.
fn check_lease(
    table: &Table<'_>,
    sharing: &Sharing,
    units: LeaseUnits,
    word: Option<Word>,
    scheme: &Scheme,
    allowed: &Allowed,
) {
    let capacity = allowed.usual.capacity();
    if let (LeaseUnits::Fixed(units), Some(span)) = (units, &sharing.units)
        && units > capacity
        && table.get("strategy").is_some()
    {
        let what = format!("a lease of {units} can never be had: the limit has {capacity} units");
        table.table("strategy").fault("units", span.clone(), Fault::new(what));
    }
    let (option, why) = if matches!(allowed.usual, Algorithm::Concurrency(_)) {
        ("algorithm", "`concurrency` has no units to lend: each comes back when its request ends")
    } else if scheme.shapes() {
        ("algorithm", "a `leaky_bucket` that holds has no units to lend: each passes at an instant of its own")
    } else if word == Some(Word::Delay) {
        ("on_limit", "a delay depends on the debt of all replicas, and a lease knows that of one")
    } else {
        return;
    };
    let span = table.get(option).map_or(table.span(), toml::Spanned::span);
    let help = "use `strategy = \"redis\"` for this limit".to_owned();
    table.fault(option, span, Fault::new(format!("cannot be used with a lease: {why}")).help(help));
}

/// Warns of a cost that is above the share that decides while the store is down.
fn warn_of_large_cost(table: &Table<'_>, shares: u64, allowed: &Allowed, cost: &Cost) {
    let share = allowed.usual.capacity() / shares.max(1);
    let Some(value) = table.get("cost").filter(|_| cost.max() > share) else { return };
    let what = format!("while the store is down, a cost of {} can never pass: a share is {share}", cost.max());
    let help = "raise the limit, or set another `on_failure` in the store".to_owned();
    table.warn("cost", value.span(), "fallback_cost", Fault::new(what).help(help));
}
