//! Requests of banned keys. A limit bans a key that it refused too often, or an operator bans it.
//!
//! Not here: how many refusals lead to a ban (`limit::ban`), where they are counted (`store::Bans`), and the bans of
//! operators (`operator_bans`).

use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;

use super::operator_bans;
use super::refusal::{Cause, Refusal};
use super::refusal_log::Receipt;
use super::state::LimitState;
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// The refusal of a request that limits ban, for the longest of their bans. `bans` are limits, their banned keys, their
/// statuses for it, and the nanoseconds until their bans end. `None` if there are no bans.
#[cold]
pub(super) fn refusal<'l>(
    bans: impl Iterator<Item = (&'l Arc<LimitState>, Key, StatusCode, u64)>,
    now: Timestamp,
) -> Option<Refusal<'l>> {
    let (mut longest_ns, mut status, mut violated, mut receipt) = (0, None, SmallVec::new(), None);
    for (state, key, banned, ban_ns) in bans {
        state.metrics.cells.count(LimitDecision::Banned);
        violated.push(&*state.name);
        if state.refusal_log.is_on() {
            receipt.get_or_insert_with(|| Box::new(Receipt::new(now, Cause::Banned.word()))).add(
                &state.name,
                key,
                None,
            );
        }
        if ban_ns >= longest_ns {
            (longest_ns, status) = (ban_ns, Some(banned));
        }
    }
    let (retry, cause) = (operator_bans::retry(longest_ns), Cause::Banned);
    let refusal = Refusal { violated, retry, cause, status, receipt, ..Refusal::default() };
    (!refusal.violated.is_empty()).then_some(refusal)
}
