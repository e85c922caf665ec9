//! Receipts of refusals: the texts of their keys, and the refusals that are kept.

use super::admit::Requester;
use super::check::Check;
use super::refusal::Refusal;
use super::refusal_log::{LoggedRefusal, Receipt};
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;

impl Gate {
    /// Keeps a refusal under its id.
    #[cold]
    pub fn keep_refusal(&self, id: &str, mut receipt: Box<Receipt<'_>>, retry_after_s: Option<u64>) {
        self.refusal_log.add(id, &mut receipt, retry_after_s);
    }

    /// Whether refusals are kept.
    pub fn logs_refusals(&self) -> bool {
        self.refusal_log.is_on()
    }

    /// The refusals with this id: one for each limit that refused the request.
    pub fn refusals_of_id(&self, id: &str, now: Timestamp) -> Vec<LoggedRefusal> {
        self.refusal_log.of_id(id, now)
    }

    /// The refusals of a key, the newest first.
    pub fn refusals_of_key(&self, limit: &str, key: Key, now: Timestamp) -> Vec<LoggedRefusal> {
        self.refusal_log.of_key(limit, key, now)
    }

    /// Adds the texts of the keys to the receipt of a refusal.
    pub(super) fn show_keys<'l>(
        &self,
        refusal: &mut Refusal<'l>,
        live: &Live,
        Requester { facts, identities, .. }: Requester<'_, '_>,
        checks: &[Check<'l>],
    ) {
        for refused in refusal.receipt.iter_mut().flat_map(|receipt| &mut receipt.keys) {
            let is_refused = |check: &&Check<'l>| check.key == refused.key && *check.check.state.name == *refused.limit;
            let is_known = self.refusal_log.has_text_of(refused.limit, refused.key);
            if let Some(check) = checks.iter().find(is_refused).filter(|_| !is_known) {
                let shown = refused.shown.get_or_insert_default();
                live.policy.write_shown(shown, &self.secret, &check.check.applied, facts, identities);
            }
        }
    }
}
