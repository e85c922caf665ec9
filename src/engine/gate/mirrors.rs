//! What this process knows of the keys of a store, for a server that has lost them.

use std::sync::{Arc, PoisonError};

use super::state::{Gate, LimitState};
use crate::engine::limit::Key;
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
    /// Visits the keys that are not idle and `is_wanted`, each under its own rule or the usual one: a plan is not known.
    fn visit(&self, is_wanted: impl Fn(Key) -> bool, visit: &mut dyn FnMut(&Mirror<'_>)) {
        let Some(newest) = self.newest.load_full() else { return };
        let now = self.clock.now();
        self.table.each_state(now, |key, state| {
            if let Some(rule) = newest.usual_rule(key).filter(|_| is_wanted(key)) {
                let state = self.table.state_of_store(key, rule, state, now);
                visit(&Mirror { limit: &self.name, key, rule, state: &state });
            }
        });
    }
}
