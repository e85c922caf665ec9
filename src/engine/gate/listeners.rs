//! The listeners to charges: the process that takes over from this one, and peers. Peers also hear of bans and resets.
//!
//! Not here: the charges of one limit that peers have not heard of (`streamed`), and which bans they hear of (`shared_bans`).

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::delta::{Delta, DeltaQueue};
use crate::engine::limit::Key;
use crate::engine::store::stream::Link;
use crate::engine::store::stream::message::{BanChange, LimitCharges};

/// The listeners, shared by all limits.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// [`SUCCESSOR`] and [`PEERS`]; 0 if nothing listens.
    bits: AtomicU8,
    pub(super) deltas: DeltaQueue,
    pub(super) link: Arc<Link>,
    /// The number of this replica; unset if bans are not shared.
    replica: OnceLock<u64>,
    /// The changes of bans that peers have not heard of.
    ban_changes: Mutex<Vec<BanChange>>,
    /// The keys that were reset, of limits of which each replica has a share, and that peers have not heard of.
    resets: Mutex<Vec<LimitCharges>>,
    /// Whether this process has charges that peers will hear of in no batch.
    has_gap: AtomicBool,
}

/// A subscriber of deltas.
const SUCCESSOR: u8 = 1;

/// Limits that replicas share by streams.
const PEERS: u8 = 2;

/// Changes of bans that wait for the next batch at most. Peers that miss some ask for all bans.
const BAN_CHANGES_MAX: usize = 65_536;

/// Resets that wait for the next batch at most. Peers do not hear of further ones.
const RESETS_MAX: usize = 65_536;

impl Listeners {
    /// Whether anything listens. A charge that a packed state does not contain finds this set: both were made under the
    /// lock of the key, and this was set before the state was packed.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.bits.load(Ordering::Relaxed) != 0
    }

    /// Whether a successor listens.
    pub(super) fn has_successor(&self) -> bool {
        self.bits.load(Ordering::Relaxed) & SUCCESSOR != 0
    }

    /// Queues all deltas from now on. The successor tells them to peers.
    pub(super) fn subscribe(&self) -> Receiver<Delta> {
        let deltas = self.deltas.open();
        self.set(SUCCESSOR, true);
        deltas
    }

    /// Ends the subscription, and returns the number of deltas that were dropped.
    pub(super) fn unsubscribe(&self) -> u64 {
        self.set(SUCCESSOR, false);
        // If this process goes on, peers have not heard of these charges.
        self.leave_gap();
        self.deltas.close()
    }

    /// Sets whether a limit is shared by streams.
    pub(super) fn set_streams(&self, has_streams: bool) {
        self.set(PEERS, has_streams);
    }

    /// Notes that peers will not hear of charges of this process. They then ask for its states.
    pub(super) fn leave_gap(&self) {
        self.has_gap.store(true, Ordering::Relaxed);
    }

    /// Whether [`Listeners::leave_gap`] was called since the last call.
    pub(super) fn take_gap(&self) -> bool {
        self.has_gap.swap(false, Ordering::Relaxed)
    }

    /// Shares bans from now on, as the replica with this number. Returns whether they were not shared before.
    pub(super) fn share_bans(&self, replica: u64) -> bool {
        self.replica.set(replica).is_ok()
    }

    /// The number of this replica, if bans are shared.
    pub(super) fn replica(&self) -> Option<u64> {
        self.replica.get().copied()
    }

    /// Has peers told of the change of a ban soon.
    pub(super) fn tell_ban(&self, change: BanChange) {
        {
            let mut changes = self.ban_changes.lock().unwrap_or_else(PoisonError::into_inner);
            if changes.len() < BAN_CHANGES_MAX {
                changes.push(change);
            } else {
                self.leave_gap();
            }
        }
        self.link.hurry();
    }

    /// Takes the changes of bans that peers have not heard of.
    pub(super) fn take_ban_changes(&self) -> Vec<BanChange> {
        mem::take(&mut *self.ban_changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has peers told soon that `key` of a limit was reset under the rule of `plan`: that it is charged these `units`.
    pub(super) fn tell_reset(&self, limit: &str, plan: Option<&str>, key: Key, units: i64) {
        if self.replica().is_none() {
            return;
        }
        {
            let mut resets = self.resets.lock().unwrap_or_else(PoisonError::into_inner);
            if resets.iter().map(|keys| keys.units.len()).sum::<usize>() >= RESETS_MAX {
                return;
            }
            let is_same = |keys: &LimitCharges| (&*keys.limit, &*keys.plan) == (limit, plan.unwrap_or_default());
            if !resets.last().is_some_and(is_same) {
                resets.push(LimitCharges::of(limit, plan));
            }
            if let Some(keys) = resets.last_mut() {
                keys.push(key, units);
            }
        }
        self.link.hurry();
    }

    /// Takes the resets that peers have not heard of.
    pub(super) fn take_resets(&self) -> Vec<LimitCharges> {
        mem::take(&mut *self.resets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, listener: u8, is_on: bool) {
        if is_on {
            self.bits.fetch_or(listener, Ordering::Release);
        } else {
            self.bits.fetch_and(!listener, Ordering::Release);
        }
    }
}
