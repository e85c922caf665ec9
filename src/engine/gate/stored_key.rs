//! The newest states of keys from their stores, for operators who look at them at this replica.

use std::sync::Arc;

use super::ask::Decider;
use super::check::Check;
use super::state::LimitState;
use crate::base::time::{Clock, Timestamp, instant_now};
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::{Handling, RemoteCharge, Units};
use crate::engine::store::{Batch, Charge, RemoteLimit};

/// A key whose state is in a store, and its rule.
#[derive(Clone, Debug)]
pub struct StoredKey {
    state: Arc<LimitState>,
    remote: Arc<RemoteLimit>,
    key: Key,
    rule: Algorithm,
}

impl StoredKey {
    /// The key of `check`; `None` if no store has its state, or it has no limit.
    pub(super) fn of(check: &Check<'_>) -> Option<Self> {
        let limit = check.check.applied.limit;
        let (remote, rule) = (check.remote()?, limit.allowed.rule(check.check.variant)?);
        let (state, remote) = (Arc::clone(check.check.state), Arc::clone(remote));
        Some(Self { state, remote, key: check.key, rule: rule.clone() })
    }

    /// Whether both are one key of one limit.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state) && self.key == other.key
    }

    /// A look at `now`.
    fn question(&self, now: Timestamp) -> RemoteCharge<'_> {
        let Self { state, remote, key, rule } = self;
        let until = || instant_now() + remote.store.timeout();
        RemoteCharge {
            limit: &state.name,
            key: *key,
            rule,
            units: Units::exactly(0),
            handling: Handling::Shadow,
            asked_again_until: state.table.is_doubted(*key, now).then(until),
        }
    }
}

/// Asks the stores of `keys` for their states, and remembers them here. A key of which its store says nothing stays as it
/// is.
pub async fn hear_stores(keys: &[StoredKey], decider: &impl Decider, clock: Clock) {
    let mut rest: Vec<&StoredKey> = keys.iter().collect();
    while let Some(first) = rest.first() {
        let store = &first.remote.store;
        let (own, others): (Vec<&StoredKey>, Vec<_>) = rest.iter().partition(|key| key.remote.store.is(store));
        let queried_at = clock.now();
        let questions: Vec<_> = own.iter().map(|key| key.question(queried_at)).collect();
        let answers = decider.decide(store, &questions).await;
        let looks = own.iter().map(|key| Charge::new(&key.state.table, key.key, &key.rule, 0, false, ()));
        let mut looks: Batch<'_, ()> = looks.collect();
        for (index, outcome) in answers.outcomes.into_iter().enumerate() {
            if let Ok(outcome) = outcome {
                looks.hear(index, outcome, queried_at, clock.now());
            }
        }
        rest = others;
    }
}
