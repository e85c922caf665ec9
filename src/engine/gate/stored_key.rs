//! The newest states of keys from their stores, for operators who look at them at this replica.

use std::sync::Arc;

use super::ask::{Decider, look};
use super::check::{Check, Checked};
use super::state::{LimitState, Live, Newest};
use crate::base::time::Clock;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::policy::{Limit, Mode, Variant};
use crate::engine::store::{Batch, Charge, RemoteLimit};

/// A key whose state is in a store, and its rule.
#[derive(Clone, Debug)]
pub struct StoredKey {
    limit: Arc<Newest>,
    state: Arc<LimitState>,
    remote: Arc<RemoteLimit>,
    key: Key,
    rule: Algorithm,
}

impl StoredKey {
    /// The key of `check`; `None` if no store has its state, or it has no limit.
    pub(super) fn of(check: &Check<'_>) -> Option<Self> {
        let rule = check.check.applied.limit.allowed.rule(check.check.variant)?;
        let (remote, state) = (Arc::clone(check.remote()?), Arc::clone(check.check.state));
        Some(Self { limit: state.newest.load_full()?, state, remote, key: check.key, rule: rule.clone() })
    }

    /// Whether both are one key of one limit.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state) && self.key == other.key
    }

    /// A charge that is never made.
    fn look(&self) -> Charge<'_, &Self> {
        let mut look = Charge::new(&self.state.table, self.key, &self.rule, 1, true, self);
        look.set_remote(Some(&self.remote));
        look
    }
}

impl<'k> Checked<'k> for &'k StoredKey {
    fn state(&self) -> &'k Arc<LimitState> {
        &self.state
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    fn mode(&self) -> Mode {
        self.limit.mode
    }

    fn variant(&self) -> Variant {
        Variant::Usual
    }
}

impl Live {
    /// Whether any limit has its state in a store.
    pub fn has_stores(&self) -> bool {
        self.remotes.iter().any(Option::is_some)
    }
}

/// Keys that one call of a store asks about.
const LOOKS_MAX: usize = 100;

/// Asks the stores of `keys` for their states, and remembers them here. A key of which its store says nothing stays as it
/// is.
pub async fn hear_stores(keys: &[StoredKey], decider: &impl Decider, clock: Clock) {
    for some in keys.chunks(LOOKS_MAX) {
        look(&mut some.iter().map(StoredKey::look).collect::<Batch<'_, _>>(), decider, clock).await;
    }
}
