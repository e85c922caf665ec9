//! The listeners to charges: the process that takes over from this one, and peers.
//!
//! Not here: the charges of one limit that peers have not heard of (`streamed`), and their bans (`shared_bans`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::Receiver;

use super::delta::{Delta, DeltaQueue};
use super::pending_bans::PendingBans;
use crate::engine::store::stream::Link;
use crate::engine::store::stream::message::BanChange;

/// The listeners, shared by all limits.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// [`SUCCESSOR`] and [`PEERS`]; 0 if nothing listens.
    bits: AtomicU8,
    pub(super) deltas: DeltaQueue,
    pub(super) link: Arc<Link>,
    pub(super) bans: PendingBans,
    /// Whether this process has charges that peers will hear of in no batch.
    has_gap: AtomicBool,
}

/// A subscriber of deltas.
const SUCCESSOR: u8 = 1;

/// Limits that replicas share by streams.
const PEERS: u8 = 2;

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

    /// Has peers told of the change of a ban soon.
    pub(super) fn tell_ban(&self, change: BanChange) {
        if !self.bans.add(change) {
            self.leave_gap();
        }
        self.link.hurry();
    }

    fn set(&self, listener: u8, is_on: bool) {
        if is_on {
            self.bits.fetch_or(listener, Ordering::Release);
        } else {
            self.bits.fetch_and(!listener, Ordering::Release);
        }
    }
}
