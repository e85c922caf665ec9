//! A replica that lacks charges asks one peer for the states of all keys that owe.

use super::message::{Cursor, States};
use super::peer::PeerId;
use crate::base::time::Timestamp;

/// The error of the age of a peer, in nanoseconds: the time of a message on the way.
pub(super) const STARTED_NS: u64 = 1_000_000_000;

/// The states that this replica asks for. They come part by part: each is asked for when the one before is there, so the
/// peer remembers nothing.
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
    /// The next part; `None` once all are there.
    wanted: Option<Cursor>,
    /// When the part is to be asked for, again if it was before.
    ask_at: Timestamp,
}

impl Recovery {
    /// Notes that charges of `peer`, which started at `started`, are missing. Its states are asked for, unless those of a
    /// peer that is as old were asked for less than `recent_ns` ago: older charges are in the states of all peers.
    pub(super) fn need(&mut self, peer: PeerId, started: Timestamp, recent_ns: u64, now: Timestamp) {
        let covers = |asking: &Asking| {
            let is_recent = asking.wanted.is_some() || now.ns_since(asking.began) < recent_ns;
            let is_as_old = asking.started <= started.saturating_add_ns(STARTED_NS);
            is_recent && asking.peer.is_some() && (is_as_old || asking.peer == Some(peer))
        };
        if !self.current.as_ref().is_some_and(covers) {
            let wanted = Some(Cursor::default());
            self.current = Some(Asking { peer: Some(peer), started, began: now, wanted, ask_at: now });
        }
    }

    /// Whether states are on the way, or no peer can be asked for them.
    pub(super) fn is_open(&self) -> bool {
        self.current.as_ref().is_some_and(|asking| asking.wanted.is_some())
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

    /// The part that `peer` is to be asked for at `now`. It is asked for again after `again_ns`.
    pub(super) fn ask(&mut self, peer: PeerId, again_ns: u64, now: Timestamp) -> Option<Cursor> {
        let asking = self.current.as_mut().filter(|asking| asking.peer == Some(peer) && asking.ask_at <= now)?;
        let wanted = asking.wanted.clone()?;
        asking.ask_at = now.saturating_add_ns(again_ns);
        Some(wanted)
    }

    /// Notes that a part came from `peer`. Returns whether it was asked for.
    pub(super) fn take(&mut self, peer: PeerId, part: &States, now: Timestamp) -> bool {
        let is_asked = |asking: &&mut Asking| asking.peer == Some(peer) && asking.wanted.as_ref() == Some(&part.at);
        let Some(asking) = self.current.as_mut().filter(is_asked) else { return false };
        // A part that leads back would be asked for forever.
        let place = |cursor: &Cursor| (cursor.limit.clone(), cursor.bans, cursor.from);
        asking.wanted = part.next.clone().filter(|next| place(next) > place(&part.at));
        asking.ask_at = now;
        true
    }
}
