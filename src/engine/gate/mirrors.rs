//! What this process knows of the keys of a store, for a server that has lost them.

use std::cmp::Reverse;
use std::iter;
use std::sync::{Arc, PoisonError};

use super::state::{Gate, LimitState, Newest};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, AnyState, Key};
use crate::engine::policy::Variant;
use crate::engine::store::backend::{Mirror, Mirrors};

/// Keys of a limit that are visited together, about.
const PART_KEYS: usize = 1 << 16;

impl Mirrors for Gate {
    fn visit(&self, store: &str, part: usize, visit: &mut dyn FnMut(&Mirror<'_>)) -> bool {
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let mut limits: Vec<Arc<LimitState>> = known.values().map(Arc::clone).collect();
        drop(known);
        limits.retain(|limit| limit.remote.load().as_ref().is_some_and(|remote| **remote.store.name() == *store));
        limits.sort_by(|one, other| one.name.cmp(&other.name));
        let mut parts = limits.iter().flat_map(|limit| {
            let parts = limit.table.max_keys() / PART_KEYS + 1;
            (0..parts).map(move |part| (limit, part, parts))
        });
        if let Some((limit, part, parts)) = parts.nth(part) {
            limit.visit(|key| usize::try_from(key.second).unwrap_or(0) % parts == part, visit);
        }
        parts.next().is_some()
    }
}

impl LimitState {
    /// Visits the keys that are not idle and `is_wanted`, each under the rule that its state is under.
    fn visit(&self, is_wanted: impl Fn(Key) -> bool, visit: &mut dyn FnMut(&Mirror<'_>)) {
        let Some(newest) = self.newest.load_full() else { return };
        let now = self.clock.now();
        self.table.each_state(now, |key, state| {
            if let Some(rule) = is_wanted(key).then(|| newest.rule_of(key, state, now)).flatten() {
                let state = self.table.state_of_store(key, rule, state, now);
                visit(&Mirror { limit: &self.name, key, rule, state: &state });
            }
        });
    }
}

impl Newest {
    /// The rule that `state` of `key` is under: that of the key, or else the usual rule or that of a plan. The plan of a key
    /// is not known, so the rule is the first of those to which the state is nearest. `None` if the key has no limit.
    fn rule_of(&self, key: Key, state: &AnyState, now: Timestamp) -> Option<&Algorithm> {
        let variant = self.variant(key, None);
        let plans = self.allowed.plans.iter().filter(|_| variant == Variant::Usual);
        let rules = iter::once(self.allowed.rule(variant)?).chain(plans.filter_map(|(_, rule)| rule.as_ref()));
        rules.min_by_key(|rule| Reverse(state.likeness(rule, now)))
    }
}
