//! What a replica knows of one peer: which batches each has of the other.

use bytes::Bytes;

use super::history::History;
use super::message::{Cursor, Echo, Received};
use super::parts::Parts;
use super::sequences::{SEQUENCE_MAX, Sequences, WINDOW};
use super::skew::Skew;
use crate::base::time::Timestamp;

/// The number of a peer, which the owner of a replica gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) is_connected: bool,
    /// Whether nothing has come on the connection: its first message says which process it leads to, and what the peer has.
    pub(super) is_new: bool,
    /// The process of the peer; 0 before it is known.
    pub(super) epoch: u64,
    /// When it started, by the own clock.
    pub(super) started: Timestamp,
    pub(super) last_received: Option<Timestamp>,
    /// When this replica sent the newest message that the peer is known to have, or when the first connection began.
    pub(super) confirmed: Timestamp,
    /// The replicas whose addresses refuse connections of the peer.
    pub(super) refusing: Vec<u64>,
    pub(super) skew: Skew,
    /// The batches of the peer that this replica has.
    received: Sequences,
    /// The batches of this replica that the peer has.
    acknowledged: Sequences,
    /// The last batch that the peer does not get: all that was charged up to it is in the states.
    skipped: u64,
    /// The next batch to send.
    next: u64,
    /// When batches are sent again that the peer lacks; `None` while it lacks none.
    resend_at: Option<Timestamp>,
    /// When the peer is told what this replica has, if no message does so before.
    acknowledge_at: Option<Timestamp>,
    /// When the peer gets a message even if there is nothing to say.
    heartbeat_at: Timestamp,
    /// When the peer gets an echo with the next message.
    echo_at: Timestamp,
    /// The part of the states that the peer has asked for.
    pub(super) asked: Option<Cursor>,
    /// The bans that this replica asks for.
    pub(super) bans: Parts,
}

/// Bans that changed so long before a gap are asked for as well, in nanoseconds, because clocks differ: an hour.
const CLOCKS_NS: u64 = 3600 * 1_000_000_000;

/// One peer as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// When the last message came.
    pub last_received: Option<Timestamp>,
    /// When the newest message was sent that the peer is known to have.
    pub confirmed: Timestamp,
    /// The last batch up to which all have been received.
    pub received: u64,
    /// The batches that the peer lacks.
    pub lag: u64,
    /// Nanoseconds by which the peer's clock is ahead; `None` before it is known.
    pub ahead_ns: Option<i64>,
}

impl Peer {
    /// Begins a connection.
    pub(super) fn connect(&mut self, now: Timestamp) {
        (self.is_connected, self.is_new) = (true, true);
        (self.next, self.resend_at, self.acknowledge_at, self.heartbeat_at) = (0, None, None, now);
        self.asked = None;
        if self.confirmed == Timestamp::ZERO {
            self.confirmed = now;
        }
    }

    /// Whether the peer is not known to have a message of the last `silent_ns`.
    pub(super) fn is_deaf(&self, silent_ns: u64, now: Timestamp) -> bool {
        now.ns_since(self.confirmed) >= silent_ns
    }

    /// Has the peer get a message with an echo at once.
    pub(super) fn hurry_echo(&mut self) {
        (self.heartbeat_at, self.echo_at) = (Timestamp::ZERO, Timestamp::ZERO);
    }

    /// Notes that the peer has a message that was sent at `sent_at`.
    pub(super) fn confirm(&mut self, sent_at: u64, now: Timestamp) {
        self.confirmed = self.confirmed.max(Timestamp::from_ns(sent_at).min(now));
    }

    /// Whether a message of the process `epoch` belongs to the connection.
    pub(super) fn accepts(&mut self, epoch: u64) -> bool {
        if std::mem::take(&mut self.is_new) && self.epoch != epoch {
            let Self { is_connected, heartbeat_at, confirmed, .. } = *self;
            *self = Self { is_connected, epoch, confirmed, heartbeat_at, ..Self::default() };
        }
        self.is_connected && self.epoch == epoch
    }

    /// The batches of the peer that this replica has.
    pub(super) fn received(&self) -> Received {
        Received::of(self.epoch, self.received)
    }

    /// Notes which batches the peer has, `None` if it knows nothing of this process.
    pub(super) fn acknowledge(&mut self, sequences: Option<Sequences>, history: &History, resend_at: Timestamp) {
        let sequences = sequences.unwrap_or(Sequences { base: self.skipped, ahead: 0 });
        // Another number was never sent.
        if sequences.base < self.acknowledged.base || sequences.base >= history.next() {
            return;
        }
        if sequences.base > self.acknowledged.base {
            self.resend_at = self.resend_at.map(|_| resend_at);
        }
        self.acknowledged = sequences;
    }

    /// Leaves out all batches until now. The peer learns it at once, and asks for the states.
    pub(super) fn skip(&mut self, history: &History) {
        let newest = history.next() - 1;
        self.skipped = newest;
        if newest > 0 {
            self.heartbeat_at = Timestamp::ZERO;
        }
    }

    /// The first batch that the peer can get.
    pub(super) fn oldest(&self, history: &History) -> u64 {
        history.oldest().max(self.skipped + 1)
    }

    /// Notes that the peer has forgotten all batches before `oldest`. Returns whether this replica lacks one of them. Ignores
    /// numbers beyond [`SEQUENCE_MAX`].
    pub(super) fn skip_to(&mut self, oldest: u64) -> bool {
        oldest <= SEQUENCE_MAX && self.received.add_up_to(oldest.saturating_sub(1))
    }

    /// The instant up to which the peer has sent its bans: none if it is another process than before.
    pub(super) fn bans_received_until(&self) -> Timestamp {
        if self.received.base == 0 { Timestamp::ZERO } else { self.confirmed }
    }

    /// Has the peer asked for its bans: it may have some that changed after `received`, and that never come in a batch.
    pub(super) fn want_bans(&mut self, received: Timestamp) {
        let bans = received.saturating_sub_ns(CLOCKS_NS).as_ns();
        self.bans.want(Cursor { bans, ..Cursor::default() });
    }

    /// Notes a batch of the peer, which learns of it until `acknowledge_at`. Returns whether the batch is new.
    pub(super) fn receive(&mut self, sequence: u64, acknowledge_at: Timestamp) -> bool {
        self.acknowledge_at.get_or_insert(acknowledge_at);
        self.received.add(sequence)
    }

    /// The next batch that the peer lacks, if one more may be on the way, and when it was made. Batches are sent again
    /// after `resend_ns`. A peer that does not hear this replica for `silent_ns` gets none.
    pub(super) fn next_batch(
        &mut self,
        history: &History,
        (resend_ns, silent_ns): (u64, u64),
        now: Timestamp,
    ) -> Option<(Bytes, Timestamp)> {
        if self.is_new || self.is_deaf(silent_ns, now) {
            return None;
        }
        if self.acknowledged.base.max(self.skipped) + 1 < history.oldest() {
            self.skip(history);
        }
        let floor = self.floor(history);
        if floor + 1 >= history.next() {
            self.resend_at = None;
        } else if self.resend_at.is_some_and(|at| at <= now) {
            (self.next, self.resend_at) = (0, None);
        }
        self.next = self.next.max(floor + 1);
        while self.acknowledged.contains(self.next) {
            self.next += 1;
        }
        let batch = history.batch(self.next).filter(|_| self.next <= floor + WINDOW)?;
        self.next += 1;
        self.resend_at.get_or_insert(now.saturating_add_ns(resend_ns));
        Some(batch)
    }

    /// The last batch up to which the peer has all, or cannot get the others.
    fn floor(&self, history: &History) -> u64 {
        self.acknowledged.base.max(self.oldest(history) - 1)
    }

    /// Whether the peer is to be told at `now` what this replica has.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.heartbeat_at <= now || self.acknowledge_at.is_some_and(|at| at <= now)
    }

    /// The echo of a message that goes to the peer at `now`. The next one is due at `next_at`, also if there is nothing to
    /// say.
    pub(super) fn echo(&mut self, next_at: Timestamp, now: Timestamp) -> Option<Echo> {
        (self.heartbeat_at, self.acknowledge_at) = (next_at, None);
        let echo = self.skew.echo(now).filter(|_| self.echo_at <= now)?;
        self.echo_at = next_at;
        Some(echo)
    }

    /// How operators see the peer.
    pub(super) fn status(&self, history: &History) -> PeerStatus {
        let present = u64::from(self.acknowledged.ahead.count_ones());
        PeerStatus {
            is_connected: self.is_connected,
            last_received: self.last_received,
            confirmed: self.confirmed,
            received: self.received.base,
            lag: (history.next() - 1).saturating_sub(self.floor(history)).saturating_sub(present),
            ahead_ns: self.skew.ahead_ns(),
        }
    }
}
