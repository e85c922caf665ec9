//! The budget that one limit would charge.

use super::remote::{self, RemoteExplanation};
use crate::base::time::Timestamp;
use crate::engine::gate::check::Check;
use crate::engine::gate::queue::wait::UNKNOWN_NS;
use crate::engine::gate::state::{Gate, Live};
use crate::engine::gate::stored_key::StoredKey;
use crate::engine::limit::{Algorithm, Decision, Retry};
use crate::engine::policy::{Facts, Principal, Strategy, Unit, Variant, WrittenRule};

/// The budget that a limit would charge.
#[derive(Clone, Debug)]
pub struct BudgetExplanation<'l> {
    /// The names of the key's parts, and their texts without secrets.
    pub key: Vec<(String, String)>,
    /// The rule; `None` if the key has no limit.
    pub rule: Option<&'l Algorithm>,
    /// The rule as it is written; `None` if it is not.
    pub written: Option<&'l WrittenRule>,
    /// How replicas share the limit: the rule is the share of this one.
    pub strategy: Strategy,
    /// What the units are, if that is known.
    pub unit: Option<Unit>,
    /// The other replicas that this one does not hear, if they share the limit by streams.
    pub absent: u64,
    /// The store that decides, if one does.
    pub remote: Option<RemoteExplanation>,
    /// The key, if a store has its state.
    pub stored: Option<StoredKey>,
    /// Where the rule is configured.
    pub source: RuleSource<'l>,
    /// Units that the request takes.
    pub cost: u64,
    /// Whether the limit admits the request.
    pub admits: bool,
    /// Whole units that remain, after the request if it is admitted.
    pub remaining: u64,
    /// Units charged beyond the limit and not yet paid.
    pub debt: u64,
    /// Nanoseconds until the key has all units again; `None` if that is unknown.
    pub reset_after_ns: Option<u64>,
    /// Nanoseconds until the limit could admit the request; `None` if it does now or never will, or the wait is unknown.
    pub retry_after_ns: Option<u64>,
    /// Requests that wait on the key.
    pub waiting: usize,
}

/// Where a rule is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSource<'l> {
    /// In the limit itself.
    Limit,
    /// In the plan of this name.
    Plan(&'l str),
    /// In an override of the configuration.
    Override,
    /// In an override that was set at run time.
    RuntimeOverride,
    /// In the plan of this name, which the configuration assigns to the key.
    AssignedPlan(&'l str),
    /// In the plan of this name, which was assigned to the key at run time.
    RuntimePlan(&'l str),
}

impl Gate {
    pub(super) fn explain_budget<'l>(
        &self,
        live: &Live,
        charge: &Check<'l>,
        facts: &Facts<'_>,
        identities: &[Principal<'_>],
        now: Timestamp,
    ) -> BudgetExplanation<'l> {
        let applied = &charge.check.applied;
        let parts = applied.limit.key.iter().map(|part| live.policy.part_name(part).into_owned());
        let key = parts.zip(live.policy.shown(&self.secret, applied, facts, identities)).collect();
        budget_of(key, charge, now)
    }
}

/// The budget of a charge to `key`, whose parts have names and texts without secrets.
pub(in crate::engine::gate) fn budget_of<'l>(
    key: Vec<(String, String)>,
    charge: &Check<'l>,
    now: Timestamp,
) -> BudgetExplanation<'l> {
    let (check, limit) = (&charge.check, charge.check.applied.limit);
    let source = match check.variant {
        Variant::Usual => RuleSource::Limit,
        Variant::Plan(_) | Variant::PlanRate(_) => {
            RuleSource::Plan(limit.allowed.plan_of(check.variant).unwrap_or_default())
        }
        Variant::Override(_) => match (limit.allowed.is_set(check.variant), limit.allowed.assigned(check.variant)) {
            (true, Some(plan)) => RuleSource::RuntimePlan(plan),
            (true, None) => RuleSource::RuntimeOverride,
            (false, Some(plan)) => RuleSource::AssignedPlan(plan),
            (false, None) => RuleSource::Override,
        },
    };
    let rule = limit.allowed.rule(check.variant);
    let (decision, debt) = match rule {
        Some(rule) => (charge.peek_anywhere(now), check.state.table.over(charge.key, rule, now)),
        None => (Decision { denied: None, remaining: 0, reset_after_ns: 0 }, 0),
    };
    BudgetExplanation {
        key,
        rule,
        written: limit.allowed.written(check.variant),
        strategy: limit.strategy,
        unit: limit.unit(),
        absent: if limit.strategy == Strategy::Stream { check.state.listeners.link.absent() } else { 0 },
        remote: remote::explain(charge, now),
        stored: StoredKey::of(charge),
        source,
        cost: charge.cost,
        admits: decision.is_admitted() && !check.is_queued,
        remaining: decision.remaining,
        debt,
        reset_after_ns: known_ns(decision.reset_after_ns),
        retry_after_ns: decision.denied.and_then(retry_ns),
        waiting: check.state.queues.backlog(charge.key).waiting,
    }
}

pub(in crate::engine::gate) fn retry_ns(retry: Retry) -> Option<u64> {
    match retry {
        Retry::AfterNs(ns) => known_ns(ns),
        Retry::Never => None,
    }
}

/// `ns`, unless it stands for an unknown time or never.
pub(super) fn known_ns(ns: u64) -> Option<u64> {
    (ns < UNKNOWN_NS - 1).then_some(ns)
}
