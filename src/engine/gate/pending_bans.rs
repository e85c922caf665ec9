//! The changes of bans that peers have not heard of.

use std::mem;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::engine::store::stream::message::BanChange;

/// Changes that wait for the next batch at most. Peers that miss some ask for all bans.
const PENDING_MAX: usize = 65_536;

/// The changes of bans that peers have not heard of.
#[derive(Debug, Default)]
pub(super) struct PendingBans {
    /// The number of this replica; unset if bans are not shared.
    replica: OnceLock<u64>,
    changes: Mutex<Vec<BanChange>>,
}

impl PendingBans {
    /// The number of this replica, if bans are shared.
    pub(super) fn replica(&self) -> Option<u64> {
        self.replica.get().copied()
    }

    /// Takes all changes.
    pub(super) fn take(&self) -> Vec<BanChange> {
        mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shares bans from now on, as the replica with this number. Returns whether they were not shared before.
    pub(super) fn share(&self, replica: u64) -> bool {
        self.replica.set(replica).is_ok()
    }

    /// Adds a change. Returns whether there was room for it.
    pub(super) fn add(&self, change: BanChange) -> bool {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = changes.len() < PENDING_MAX;
        if has_room {
            changes.push(change);
        }
        has_room
    }
}
