//! Charges as other processes hear of them.
//!
//! A process that hands its state over still has requests in hand. It reports their charges from the instant of the
//! handed-over state on. Charges that are given back whole without growth, and requests in flight, are not reported. So a
//! subscriber may count too much, and never too little. Not here: whether there is a subscriber (`listeners`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::engine::limit::Key;

/// Units charged to one key of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The limit's name.
    pub limit: Box<str>,
    /// The owner of the budget.
    pub key: Key,
    /// The plan whose rule was applied, if any.
    pub plan: Option<Box<str>>,
    /// Units charged; negative if a settlement gave units back.
    pub units: i64,
}

/// Deltas that may wait for the subscriber. Beyond them deltas are dropped and counted. A draining process makes few.
const WAITING_MAX: usize = 1 << 16;

/// The bounded queue of deltas, shared by all limits.
#[derive(Debug, Default)]
pub(super) struct DeltaQueue {
    to: Mutex<Option<SyncSender<Delta>>>,
    dropped: AtomicU64,
}

impl DeltaQueue {
    /// A new queue for deltas from now on.
    pub(super) fn open(&self) -> Receiver<Delta> {
        let (to, deltas) = sync_channel(WAITING_MAX);
        self.set(Some(to));
        deltas
    }

    /// Ends the queue, and returns the number of deltas that were dropped.
    pub(super) fn close(&self) -> u64 {
        self.set(None);
        self.dropped.swap(0, Ordering::Relaxed)
    }

    fn set(&self, to: Option<SyncSender<Delta>>) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// Queues a delta, without waiting for space.
    pub(super) fn push(&self, delta: Delta) {
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if to.as_ref().is_some_and(|to| to.try_send(delta).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A cost as a delta has it.
pub(super) fn units(cost: u64) -> i64 {
    i64::try_from(cost).unwrap_or(i64::MAX)
}
