//! The log lines about bans that limits set: one when a ban begins, and one when it ends.
//!
//! Requests write no line. The sweep finds bans that have begun or ended since the last one, so a line is up to a second
//! late. A flood has [`LINES_MAX`] lines of each kind and one line with the numbers of the others.

use super::state::LimitState;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::BanNews;

/// Lines about beginnings, and lines about ends, of one limit in one sweep.
const LINES_MAX: usize = 10;

impl LimitState {
    /// Forgets idle keys, and logs the bans that have begun or ended since the last sweep.
    pub(super) fn sweep_bans(&self, now: Timestamp) {
        let news = self.bans.sweep(now, LINES_MAX);
        if news == BanNews::default() {
            return;
        }
        let (limit, names) = (&*self.name, self.refused.names());
        let name = |key: &Key| names.get(key).map(|name| &**name);
        // A ban that goes on began after an earlier one of its key had ended.
        let (over, going_on): (Vec<_>, Vec<_>) = news.begun.iter().partition(|(_, left_ns)| *left_ns == 0);
        let begin = |(key, left_ns): &(Key, u64)| {
            let (key, id, left_ms) = (name(key), key.id(), left_ns / 1_000_000);
            tracing::info!(limit, key, id, left_ms, "a limit has banned a key");
        };
        over.into_iter().for_each(begin);
        for key in &news.ended {
            let (key, id) = (name(key), key.id());
            tracing::info!(limit, key, id, "the ban of a key by its limit has ended");
        }
        going_on.into_iter().for_each(begin);
        let (begun, ended) = (news.more_begun, news.more_ended);
        if begun + ended > 0 {
            tracing::info!(
                limit,
                begun,
                ended,
                "more bans by a limit have begun and ended, without lines of their own"
            );
        }
    }
}
