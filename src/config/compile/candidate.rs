//! `limit.candidate`: other numbers for a limit, which are counted beside it as a limit of their own.

use super::allowed::{self, Capacity};
use super::fleet::{Fleet, Sharing};
use super::rule::Scheme;
use super::snapshot;
use crate::config::reader::{Optional, Table};
use crate::engine::limit::{Algorithm, OnFull};
use crate::engine::policy::{Allowed, KeyPart, Limit, Mode, Strategy, WrittenRule};

/// The rule of a candidate, before replicas share it.
pub(super) struct Candidate {
    rule: Algorithm,
    written: WrittenRule,
    /// The number of replicas, each of which counts by an equal part.
    shares: u64,
}

impl Candidate {
    /// Compiles the rule of the candidate of the limit `table`.
    pub(super) fn of(
        table: &Table<'_>,
        scheme: &Scheme,
        key: Option<&[KeyPart]>,
        allowed: Option<&Allowed>,
        (fleet, sharing): (&Fleet<'_>, Option<&Sharing>),
    ) -> Optional<Self> {
        if table.has("ramp") {
            table.fault_if_present("candidate", "does not go with `ramp`, which changes the numbers of the limit");
        }
        if key.is_some_and(|key| key.iter().any(|part| matches!(part, KeyPart::Named(_)))) {
            table.fault_if_present("candidate", "needs a limit of requests: callers name the limits that they charge");
        }
        table.table("candidate").if_present(|table| {
            let rule = scheme.rule(table)?;
            if rule.is_released() && allowed.is_some_and(|allowed| allowed.usual.capacity() < rule.capacity()) {
                let what = "is above `max` of the limit, which lets no more requests be in flight";
                table.fault_at("max", (what, "try a larger `max` in the limit itself"));
            }
            let shares = sharing.map_or(1, |sharing| fleet.remote_shares(sharing.strategy));
            let written = allowed::written_in(table, &rule);
            Some(Self { rule, written, shares })
        })
    }

    /// The most units that a replica can count.
    pub(super) fn capacity(&self) -> Capacity {
        let whole = Capacity::new(&self.rule, " of the candidate");
        Capacity { units: whole.units / self.shares.max(1), ..whole }
    }

    /// The candidate of `limit`, which is written in `table`. No store decides about it.
    pub(super) fn of_limit(self, table: &Table<'_>, limit: &Limit, on_full: impl FnOnce(&Allowed) -> OnFull) -> Limit {
        let Self { rule, written, shares } = self;
        let mut allowed = allowed::with_usual(&limit.allowed, rule, written);
        let mut strategy = limit.strategy;
        if strategy.is_remote() {
            strategy = Strategy::Split(strategy.replicas());
            allowed = allowed.shared(shares);
        }
        Limit {
            name: format!("{}.candidate", limit.name).into(),
            mode: if limit.mode == Mode::Off { Mode::Off } else { Mode::Shadow },
            enforced_percent: 100,
            on_full: on_full(&allowed),
            persist: snapshot::lasts(table, &allowed, None),
            allowed,
            strategy,
            ban: None,
            stale: None,
            ..limit.clone()
        }
    }
}
