//! The instants at which the reports of an outbox are sent, and their batches.
//!
//! Not here: the calls that send them (`redis::flush`, `service::flush`).

use std::time::Duration;

use tokio::select;
use tokio::time::sleep;

use super::outbox::{Batch, Outbox, Report};
use crate::base::time::Timestamp;

/// Reports of one batch.
pub(in crate::engine::store) const BATCH_MAX: usize = 128;

/// The time for one batch. No request waits for it.
pub(in crate::engine::store) const BATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before a batch without an answer is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// The time in which more reports may join those that wait.
const GATHER: Duration = Duration::from_millis(2);

/// The age from which a batch without an answer is dropped: later, the store might make it twice.
const BATCH_AGE_MAX_NS: u64 = 300_000_000_000;

/// Calls `send` when reports are queued, until dropped. It returns whether everything was answered, or is parked; otherwise
/// it is called again after a pause.
pub(in crate::engine::store) async fn flush<R, F: Future<Output = bool>>(
    outbox: &Outbox<R>,
    mut send: impl FnMut() -> F,
) {
    let mut is_whole = true;
    loop {
        if is_whole {
            outbox.queued().await;
        } else {
            select! {
                () = outbox.queued() => {}
                () = sleep(PAUSE) => outbox.unpark(),
            }
        }
        sleep(GATHER).await;
        is_whole = send().await;
    }
}

impl<R> Batch<R> {
    /// The batches of `reports`, which are sent first at `since`. `number` gives the number of the first of so many reports.
    pub(in crate::engine::store) fn of_all(
        reports: Vec<Report<R>>,
        since: Timestamp,
        mut number: impl FnMut(usize) -> u64,
    ) -> impl Iterator<Item = Self> {
        let mut reports = reports.into_iter();
        std::iter::from_fn(move || {
            let reports: Vec<_> = reports.by_ref().take(BATCH_MAX).collect();
            (!reports.is_empty()).then(|| Self { first: number(reports.len()), reports, since })
        })
    }

    /// Whether it is so old that it is dropped.
    pub(in crate::engine::store) fn is_old(&self, now: Timestamp) -> bool {
        now.ns_since(self.since) > BATCH_AGE_MAX_NS
    }
}
