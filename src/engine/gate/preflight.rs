//! CORS preflights, which are free up to a rate for each client address.
//!
//! A browser sends preflights on its own and without credentials, so limits do not charge them. Any client can send
//! them, so beyond the rate they are ordinary requests. The state outlives policies, as the state of limits does.

use super::state::Gate;
use crate::base::time::Timestamp;
use crate::engine::limit::OnFull;
use crate::engine::policy::{Facts, Policy};
use crate::engine::store::{Batch, Charge, Table};

/// Addresses that are counted exactly. More addresses share a sketch of fixed size, which may charge too early.
const ADDRESSES_MAX: usize = 65_536;

impl Gate {
    /// Whether the request is a free preflight: no limit of the identified stage charges it. Counts preflights.
    #[inline]
    pub fn frees_preflight(&self, policy: &Policy, facts: &Facts<'_>, now: Timestamp) -> bool {
        facts.is_cors_preflight() && self.charge_preflight(policy, facts, 1, now)
    }

    /// Whether [`Gate::frees_preflight`] would return `true`. Counts nothing.
    pub(super) fn would_free_preflight(&self, policy: &Policy, facts: &Facts<'_>, now: Timestamp) -> bool {
        facts.is_cors_preflight() && self.charge_preflight(policy, facts, 0, now)
    }

    /// Whether the request is free. A `cost` of 0 peeks.
    #[cold]
    fn charge_preflight(&self, policy: &Policy, facts: &Facts<'_>, cost: u64, now: Timestamp) -> bool {
        let Some(rule) = &policy.free_preflights else { return false };
        let table = self.preflights.get_or_init(|| Table::new(rule, ADDRESSES_MAX, OnFull::Sketch));
        let key = self.secret.of_address(facts.client_ip, policy.client_ip.prefixes);
        if cost == 0 {
            return table.peek(key, rule, 1, now).is_admitted();
        }
        let mut batch: Batch<'_, ()> = [Charge::new(table, key, rule, cost, true, ())].into_iter().collect();
        let is_free = batch.admit(now);
        self.metrics.preflights[usize::from(is_free)].inc();
        is_free
    }
}
