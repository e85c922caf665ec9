//! `limit.candidate`: other numbers for a limit, which are counted beside it as a limit of their own.

use super::allowed::{self, Capacity};
use super::rule::Scheme;
use crate::config::reader::{Optional, Table};
use crate::engine::limit::{Algorithm, OnFull};
use crate::engine::policy::{Allowed, KeyPart, Limit, Mode, Strategy, WrittenRule};

/// The rule of a candidate, before replicas share it.
pub(super) struct Rule {
    rule: Algorithm,
    written: WrittenRule,
}

/// Compiles the rule of the candidate of the limit `table`.
pub(super) fn rule(table: &Table<'_>, scheme: &Scheme, key: Option<&[KeyPart]>) -> Optional<Rule> {
    if table.has("ramp") {
        table.fault_if_present("candidate", "does not go with `ramp`, which changes the numbers of the limit");
    }
    if key.is_some_and(|key| key.iter().any(|part| matches!(part, KeyPart::Named(_)))) {
        table.fault_if_present("candidate", "needs a limit of requests: callers name the limits that they charge");
    }
    table.table("candidate").if_present(|table| {
        let rule = scheme.rule(table)?;
        let written = allowed::written_in(table, &rule);
        Some(Rule { rule, written })
    })
}

impl Rule {
    pub(super) fn capacity(&self) -> Capacity {
        Capacity::new(&self.rule, " of the candidate")
    }

    /// The candidate of `limit`. No store decides about it: each of `shares` replicas counts by its share.
    pub(super) fn candidate_of(self, limit: &Limit, shares: u64, on_full: impl FnOnce(&Allowed) -> OnFull) -> Limit {
        let Self { rule, written } = self;
        let mut allowed = allowed::with_usual(&limit.allowed, rule, written);
        let mut strategy = limit.strategy;
        if strategy.is_remote() {
            strategy = Strategy::Split(strategy.replicas());
            allowed = allowed.shared(shares);
        }
        Limit {
            name: format!("{}.candidate", limit.name).into(),
            mode: Mode::Shadow,
            enforced_percent: 100,
            on_full: on_full(&allowed),
            allowed,
            strategy,
            ban: None,
            ..limit.clone()
        }
    }
}
