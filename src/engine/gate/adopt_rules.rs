//! The keys of limits whose rules have changed: they go on under the new rules at once, also if nobody asks about them.
//! Until then, units would come back at the old rate.
//!
//! Steps of `adapt` are left out: they are small and come each second. A key adopts them at its next use. So do keys beyond
//! `max_keys`, keys of a snapshot or of a store, and keys whose rule is not known: a state has its interval, and plans may
//! have had the same. Not here: the conversion (`limit`).

use std::collections::HashMap;
use std::sync::Arc;

use super::state::{Gate, Live};
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState};
use crate::engine::policy::Allowed;

impl Gate {
    /// Lets all keys adopt the rules of `live`, which has taken the place of `before`. To be called once new requests are
    /// decided by `live`: a request under the policy before adopts its rules again. Locks a few keys or a shard at a time.
    pub fn adopt_rules(&self, before: &Live, live: &Live) {
        let places: HashMap<&str, usize> =
            before.states.iter().enumerate().map(|(place, state)| (&*state.name, place)).collect();
        for (place, state) in live.states.iter().enumerate() {
            let is_local = live.remotes[place].is_none();
            let known =
                places.get(&*state.name).filter(|known| is_local && Arc::ptr_eq(&before.states[**known], state));
            if let Some(known) = known {
                self.adopt_rules_of((before, *known), (live, place));
            }
        }
    }

    /// As [`Gate::adopt_rules`], of a limit at its places in both policies.
    fn adopt_rules_of(&self, (before, known): (&Live, usize), (live, place): (&Live, usize)) {
        let (table, now) = (&live.states[place].table, self.clock.now());
        let (old, new) = (&before.policy.limits()[known].allowed, &live.policy.limits()[place].allowed);
        let overrides = [&before.overrides[known], &live.overrides[place]];
        if let Algorithm::FairShare(_) = new.usual {
            AnyState::fresh(&new.usual).peek(&new.usual, 1, now); // by the pool of all keys
            return;
        }
        let successors = successors(old, new);
        if old.plan_rates.is_none() && successors.iter().any(|(old, new)| !is_like(old, new)) {
            let is_special = |key| overrides.iter().any(|overrides| overrides.contains_key(&key));
            let successor = |is_of: &dyn Fn(&Algorithm) -> bool| {
                let mut found = successors.iter().filter(|(old, _)| is_of(old)).map(|(_, new)| *new);
                let first = found.next()?;
                found.all(|other| is_like(first, other)).then_some(first)
            };
            table.adopt_rules(|key, is_of| if is_special(key) { None } else { successor(is_of) }, now);
        }
        for key in overrides.into_iter().flat_map(|overrides| overrides.keys()) {
            let rule = match live.special(place, *key) {
                Some(variant) => new.rule(variant),
                None if new.has_plans() => None, // its plan is not known
                None => Some(&new.usual),
            };
            if let Some(rule) = rule {
                table.adopt_rule(*key, rule, now);
            }
        }
    }
}

/// Whether states of one rule are those of the other.
fn is_like(one: &Algorithm, other: &Algorithm) -> bool {
    let has_parts = |rule: &Algorithm| rule.rates().iter().any(|rate| matches!(rate, Algorithm::SubWindow(_)));
    one == other || !has_parts(one) && AnyState::fresh(one).is_of(other)
}

/// The rules of a limit and of its plans, each with the rule that has taken its place.
fn successors<'r>(old: &'r Allowed, new: &'r Allowed) -> Vec<(&'r Algorithm, &'r Algorithm)> {
    let of_plan = |(name, rule): &'r (Box<str>, Option<Algorithm>)| Some((rule.as_ref()?, new.rule(new.plan(name))?));
    std::iter::once((&old.usual, &new.usual)).chain(old.plans.iter().filter_map(of_plan)).collect()
}
