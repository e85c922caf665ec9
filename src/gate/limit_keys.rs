//! The keys of a request, for operators who watch requests. Nothing is charged or counted.

use super::check::Check;
use super::named_charge::NamedCharge;
use super::state::{Gate, Live};
use crate::limit::Key;
use crate::policy::{Facts, Stage};
use crate::telemetry::TappedKey;
use crate::time::Timestamp;

/// A limit that applies to a request, with the request's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitKey<'l> {
    /// The name of the limit.
    pub limit: &'l str,
    /// The key.
    pub key: Key,
    /// The parts of the key without secrets, with `|` between them.
    pub shown: String,
}

impl From<LimitKey<'_>> for TappedKey {
    fn from(LimitKey { limit, key, shown }: LimitKey<'_>) -> Self {
        Self { limit: limit.to_owned(), hash: [key.first, key.second], shown }
    }
}

impl Gate {
    /// The limits of `stage` that apply to a request, with its keys. None if the request has no key.
    #[cold]
    pub fn limit_keys<'l>(&self, live: &'l Live, stage: Stage, facts: &Facts<'_>, now: Timestamp) -> Vec<LimitKey<'l>> {
        let Some((checks, identities)) = self.keyed_checks(live, stage, facts, now) else { return Vec::new() };
        let key = |check: &Check<'l>| {
            let shown: Vec<_> = live.policy.shown(&self.secret, &check.check.applied, facts, &identities).collect();
            LimitKey { limit: &check.check.state.name, key: check.key, shown: shown.join("|") }
        };
        checks.charges().iter().map(key).collect()
    }

    /// The limit of a charge that a caller names, with its key. `None` if there is no such limit.
    #[cold]
    pub fn key_of_charge<'l>(&self, live: &'l Live, charge: &NamedCharge) -> Option<LimitKey<'l>> {
        let limit = live.policy.limits().get(charge.limit)?;
        let parts = limit.key.iter().zip(&charge.texts);
        let shown: Vec<_> = parts.map(|(part, text)| live.policy.shown_text(&self.secret, part, text)).collect();
        Some(LimitKey { limit: &limit.name, key: charge.key, shown: shown.join("|") })
    }
}
