//! A replica that lacks charges asks one peer for the states of all keys that owe. Each peer that it lacks batches of, it
//! also asks for bans: those cannot be estimated, and the one peer may not know of them yet.

use super::message::Cursor;
use super::parts::Parts;
use super::peer::PeerId;
use crate::base::time::Timestamp;

/// The error of the age of a peer, in nanoseconds: the time of a message on the way.
pub(super) const STARTED_NS: u64 = 1_000_000_000;

/// The states that this replica asks for.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    current: Option<Asking>,
}

#[derive(Debug)]
struct Asking {
    /// The peer; `None` after it was lost.
    peer: Option<PeerId>,
    /// When the peer started, by the own clock.
    started: Timestamp,
    began: Timestamp,
    parts: Parts,
}

impl Recovery {
    /// Notes that charges of `peer`, which started at `started`, are missing. Its states are asked for, unless those of a
    /// peer that is as old were asked for less than `recent_ns` ago: older charges are in the states of all peers.
    pub(super) fn need(&mut self, peer: PeerId, started: Timestamp, recent_ns: u64, now: Timestamp) {
        let covers = |asking: &Asking| {
            let is_recent = asking.parts.is_open() || now.ns_since(asking.began) < recent_ns;
            let is_as_old = asking.started <= started.saturating_add_ns(STARTED_NS);
            is_recent && asking.peer.is_some() && (is_as_old || asking.peer == Some(peer))
        };
        if !self.current.as_ref().is_some_and(covers) {
            let parts = Parts::from(Cursor::default());
            self.current = Some(Asking { peer: Some(peer), started, began: now, parts });
        }
    }

    /// Whether states are on the way, or no peer can be asked for them.
    pub(super) fn is_open(&self) -> bool {
        self.current.as_ref().is_some_and(|asking| asking.parts.is_open())
    }

    /// Whether another peer has to be asked.
    pub(super) fn lacks_peer(&self) -> bool {
        self.is_open() && self.current.as_ref().is_some_and(|asking| asking.peer.is_none())
    }

    /// Notes that `peer` is gone.
    pub(super) fn lose(&mut self, peer: PeerId) {
        if let Some(asking) = self.current.as_mut().filter(|asking| asking.peer == Some(peer)) {
            asking.peer = None;
        }
    }

    /// The states that are asked for from `peer`; `None` if all are there.
    pub(super) fn parts_of(&mut self, peer: PeerId) -> Option<&mut Parts> {
        let is_open = |asking: &&mut Asking| asking.peer == Some(peer) && asking.parts.is_open();
        Some(&mut self.current.as_mut().filter(is_open)?.parts)
    }
}
