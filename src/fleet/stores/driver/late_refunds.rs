//! Refunds that a store hears of so late that mirrors may have been heard without them.
//!
//! A refund puts the mirror of its key in doubt for [`REFUND_NS`]. A mirror that is heard after that, and before the store
//! has made the refund, would deny until its retry time although the store would not. So a late refund puts all mirrors of
//! the store in doubt when it is made: each key that is denied costs one more call.
//!
//! Not here: the doubt about one key (`store::table`).

use std::sync::atomic::{AtomicU64, Ordering};

use super::outbox::Report;
use crate::base::time::Timestamp;
use crate::engine::store::backend::REFUND_NS;

/// The late refunds of one store.
#[derive(Debug, Default)]
pub(in crate::fleet::stores) struct LateRefunds {
    /// When the last one was made, in nanoseconds; 0 if there was none.
    last_ns: AtomicU64,
}

impl LateRefunds {
    /// The store has made `reports`, as this process knows since `now`.
    pub(in crate::fleet::stores) fn made<R>(&self, reports: &[Report<R>], now: Timestamp) {
        if reports.iter().any(|report| now.ns_since(report.queued_at()) >= REFUND_NS) {
            self.last_ns.fetch_max(now.as_ns(), Ordering::Relaxed);
        }
    }

    /// Answers to questions that were asked earlier may lack a refund.
    pub(in crate::fleet::stores) fn last_at(&self) -> Timestamp {
        Timestamp::from_ns(self.last_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_late_refunds_count() {
        let at = |ms: u64| Timestamp::from_ns(1_000_000_000_000 + ms * 1_000_000);
        let late = LateRefunds::default();
        for (queued_at, made_at, expected) in [
            (at(0), at(99), Timestamp::ZERO),
            (at(0), at(100), at(100)),
            (at(150), at(200), at(100)),
            // No mirror was told of it.
            (Timestamp::ZERO, at(201), at(201)),
            (at(0), at(150), at(201)),
        ] {
            late.made(&[Report::GiveBack((), queued_at)], made_at);
            assert_eq!(late.last_at(), expected);
        }
    }
}
