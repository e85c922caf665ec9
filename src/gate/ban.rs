//! Keys that a limit refuses everything, because it refused them too often.
//!
//! Not here: how often is too often (`limit::ban`), and what is remembered (`store::Bans`).

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Cause, LimitState, Refusal};
use crate::limit::{Key, Retry};
use crate::policy::{Limit, Mode};
use crate::telemetry::Decided;
use crate::time::Timestamp;

impl LimitState {
    /// Nanoseconds that everything of `key` is still refused; none if it is not banned.
    #[inline]
    pub(super) fn banned_ns(&self, limit: &Limit, key: Key, now: Timestamp) -> Option<u64> {
        if limit.ban.is_none() || limit.mode != Mode::Enforce {
            return None;
        }
        self.bans.banned_ns(key, now)
    }

    /// Counts a refusal towards a ban.
    pub(super) fn refused(&self, limit: &Limit, key: Key, now: Timestamp) {
        let Some(rule) = &limit.ban else { return };
        if self.bans.refused(key, rule, limit.max_keys, now).is_some() {
            self.metrics.bans.inc();
            self.line.wake_front(key); // who waits is refused one after another
        }
    }
}

/// The refusal of a request that these limits ban, for the longest of their times; none if there are none.
#[cold]
pub(super) fn refusal<'l>(bans: impl Iterator<Item = (&'l Arc<LimitState>, u64)>) -> Option<Refusal<'l>> {
    let (mut longest_ns, mut violated) = (0, SmallVec::new());
    for (state, left_ns) in bans {
        state.metrics.cells.count(Decided::Rejected);
        violated.push(&*state.name);
        longest_ns = longest_ns.max(left_ns);
    }
    let retry = Retry::AfterNs(longest_ns);
    (!violated.is_empty()).then_some(Refusal {
        standing: None,
        violated,
        retry,
        cause: Cause::Banned,
        budgets: Vec::new(),
    })
}
