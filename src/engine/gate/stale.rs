//! The keys of stored answers: of a limit, the key of the request, and everything that selects the answer.

use smallvec::SmallVec;

use super::check::{Check, Checked as _, is_limited};
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::{Facts, Mode, Stage};

/// Indices of limits, each with the key of an answer.
pub type AnswerKeys = SmallVec<[(usize, Key); 1]>;

impl Gate {
    /// The enforced limits with stored answers that apply to a request, each with the key of the answer. `texts` select
    /// the answer: the resource and all credentials. None if the request has no key.
    pub fn answer_keys(&self, live: &Live, facts: &Facts<'_>, texts: &[Option<&[u8]>], now: Timestamp) -> AnswerKeys {
        let Some(checks) = self.keyed_checks(live, Stage::Identified, facts, now) else { return AnswerKeys::new() };
        let is_stored = |check: &&Check<'_>| {
            check.check.limit().stale.is_some() && check.check.mode() == Mode::Enforce && is_limited(check)
        };
        let key = |check: &Check<'_>| (check.check.applied.index, self.secret.of_answer(check.key, texts));
        checks.charges().iter().filter(is_stored).map(key).collect()
    }

    /// The key of the resource that `texts` name. It is equal for all clients.
    pub fn resource_key(&self, texts: &[Option<&[u8]>]) -> Key {
        self.secret.of_answer(Key::default(), texts)
    }
}
