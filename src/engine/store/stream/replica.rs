//! One replica: what it sends to which peer, and what follows from a message.

use std::collections::BTreeMap;

use super::history::History;
use super::message::{BanChange, Cursor, LimitCharges, LimitStates, Message, States};
use super::peer::{Peer, PeerId, PeerStatus};
use super::recovery::{Recovery, STARTED_NS};
use crate::base::time::Timestamp;

/// The tables of a replica.
pub trait Ledger {
    /// Takes the charges that were made here since the last call.
    fn take(&mut self, now: Timestamp) -> Taken;

    /// Makes charges of a peer as of `at`, whether they fit or not.
    fn charge(&mut self, charges: &LimitCharges, at: Timestamp, now: Timestamp);

    /// Takes changes of bans over, except those that were changed again since.
    fn ban(&mut self, bans: &[BanChange], now: Timestamp);

    /// Bans, and states of keys that owe, from `at` on, and where the next part begins.
    fn states(&mut self, at: &Cursor, now: Timestamp) -> States;

    /// Replaces states that have spent less than in `states`.
    fn merge(&mut self, states: &LimitStates, now: Timestamp);
}

/// The charges that were made here.
#[derive(Debug)]
pub struct Taken {
    /// By limit and plan.
    pub limits: Vec<LimitCharges>,
    /// The bans that were set or lifted here.
    pub bans: Vec<BanChange>,
    /// Whether none was lost.
    pub is_complete: bool,
}

/// The times of a replica, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From one batch to the next.
    pub interval_ns: u64,
    /// A batch is forgotten after this time, and a peer that confirmed no message of so long is deaf.
    pub isolate_after_ns: u64,
}

/// The messages that a replica sends in a second at most, about, if there is something to say: one to each peer in
/// 20 microseconds for each peer.
const SEND_NS: u64 = 20_000;

/// The part of the interval after which urgent charges are sent.
const URGENT_PART: u64 = 10;

/// Heartbeats in the time after which a silent peer counts as gone.
const HEARTBEATS: u64 = 4;

/// Heartbeats in this time to a peer that does not confirm them.
const HEARTBEATS_DEAF: u64 = 20;

/// Attempts to send a batch until it is forgotten.
const SENDS: u64 = 5;

/// One replica of a fleet.
#[derive(Debug)]
pub struct Replica {
    epoch: u64,
    started: Timestamp,
    timing: Timing,
    history: History,
    recovery: Recovery,
    peers: BTreeMap<PeerId, Peer>,
    ticked: Timestamp,
    tick_at: Timestamp,
    refusing: Vec<u64>,
}

impl Replica {
    /// A replica that starts at `now`, which is also the name of its process among its peers.
    pub fn new(timing: Timing, now: Timestamp) -> Self {
        Self {
            epoch: now.as_ns(),
            started: now,
            timing,
            history: History::default(),
            recovery: Recovery::default(),
            peers: BTreeMap::new(),
            ticked: now,
            tick_at: now,
            refusing: Vec::new(),
        }
    }

    /// Changes the times.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Begins a connection to `peer`. The first message is due at once.
    pub fn connect(&mut self, peer: PeerId, now: Timestamp) {
        self.peers.entry(peer).or_default().connect(now);
    }

    /// Ends the connection to `peer`.
    pub fn disconnect(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.is_connected = false;
        }
        self.recovery.lose(peer);
    }

    /// Forgets `peer`. The others are asked for bans: it may have told them of some when this replica did not hear it.
    pub fn remove(&mut self, peer: PeerId) {
        self.disconnect(peer);
        if let Some(gone) = self.peers.remove(&peer) {
            self.peers.values_mut().for_each(|peer| peer.want_bans(gone.confirmed));
        }
    }

    /// The age of the process in nanoseconds.
    pub fn uptime_ns(&self, now: Timestamp) -> u64 {
        now.ns_since(self.started)
    }

    /// Whether messages of this replica reach `peer`. A charge counts once for each replica: a replica charges its own table in the
    /// place of each peer that is deaf, and the peer never hears of these charges.
    pub fn reaches(&self, peer: PeerId, now: Timestamp) -> bool {
        self.peers.get(&peer).is_some_and(|peer| !peer.is_deaf(self.timing.isolate_after_ns, now))
    }

    /// Tells peers the replicas whose addresses refuse connections, by their random numbers.
    pub fn set_refusing(&mut self, refusing: Vec<u64>) {
        self.refusing = refusing;
    }

    /// Whether all peers that hear this replica say that the address of `instance` refuses their connections.
    pub fn is_refused_by_all(&self, instance: u64, now: Timestamp) -> bool {
        let hearing = self.peers.values().filter(|peer| !peer.is_deaf(self.timing.isolate_after_ns, now));
        let mut hearing = hearing.filter(|peer| peer.is_connected);
        hearing.all(|peer| peer.refusing.contains(&instance))
    }

    /// How operators see `peer`.
    pub fn status(&self, peer: PeerId) -> Option<PeerStatus> {
        self.peers.get(&peer).map(|peer| peer.status(&self.history))
    }

    /// Whether states of a peer are on the way.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_open()
    }

    /// When [`Replica::tick`] is due.
    pub fn tick_at(&self) -> Timestamp {
        self.tick_at
    }

    /// Makes the next tick due as soon as a message may be sent again: a key has used a part of its limit.
    pub fn hurry(&mut self) {
        let gap_ns = (self.timing.interval_ns / URGENT_PART).max(self.send_ns());
        self.tick_at = self.tick_at.min(self.ticked.saturating_add_ns(gap_ns));
    }

    /// The least time between messages to one peer, in nanoseconds.
    fn send_ns(&self) -> u64 {
        SEND_NS.saturating_mul(self.peers.len() as u64)
    }

    /// Makes batches of the charges in `ledger`. Messages are due for all peers after it.
    pub fn tick(&mut self, ledger: &mut dyn Ledger, now: Timestamp) {
        self.ticked = now;
        self.tick_at = now.saturating_add_ns(self.timing.interval_ns.max(self.send_ns()));
        self.collect(ledger, now);
        self.history.forget_before(now.saturating_sub_ns(self.timing.isolate_after_ns));
        if self.recovery.lacks_peer() {
            let connected = self.peers.iter().filter(|(_, peer)| peer.is_connected && peer.epoch != 0);
            if let Some((id, peer)) = connected.min_by_key(|(_, peer)| peer.started) {
                self.recovery.need(*id, peer.started, 0, now);
            }
        }
    }

    fn collect(&mut self, ledger: &mut dyn Ledger, now: Timestamp) {
        let Taken { limits, bans, is_complete } = ledger.take(now);
        if !is_complete {
            self.history.leave_gap();
        }
        self.history.add(limits, &bans, now);
    }

    /// The next message to a peer; `None` if nothing is due.
    pub fn next_message(&mut self, id: PeerId, ledger: &mut dyn Ledger, now: Timestamp) -> Option<Message> {
        let again_ns = self.timing.isolate_after_ns / SENDS;
        let asked = self.peers.get_mut(&id).filter(|peer| peer.is_connected)?.asked.take();
        if asked.is_some() {
            // Charges that are in the states go before them.
            self.collect(ledger, now);
        }
        let peer = self.peers.get_mut(&id)?;
        let times = (again_ns, self.timing.isolate_after_ns);
        let batch = peer.next_batch(&self.history, times, now);
        let has_charges = batch.is_some();
        let (charges, made_at) = batch.unwrap_or_default();
        let states = match asked {
            // Until all charges are on the way.
            Some(at) if has_charges => {
                peer.asked = Some(at);
                None
            }
            Some(at) => Some(ledger.states(&at, now)),
            None => None,
        };
        let parts = self.recovery.parts_of(id).unwrap_or(&mut peer.bans);
        let wanted = if peer.epoch == 0 { None } else { parts.ask(again_ns, now) };
        if !has_charges && states.is_none() && wanted.is_none() && !peer.is_due(now) {
            return None;
        }
        let is_deaf = peer.is_deaf(self.timing.isolate_after_ns, now);
        let heartbeats = if is_deaf { HEARTBEATS_DEAF } else { HEARTBEATS };
        let echo = peer.echo(now.saturating_add_ns(self.timing.isolate_after_ns / heartbeats), now);
        Some(Message {
            epoch: self.epoch,
            sent_at: now.as_ns(),
            uptime_ms: now.ns_since(self.started) / 1_000_000,
            oldest: peer.oldest(&self.history),
            received: (peer.epoch != 0).then(|| peer.received()),
            echo,
            charges,
            age_us: if has_charges { now.ns_since(made_at) / 1000 } else { 0 },
            wanted,
            states,
            refusing: self.refusing.clone(),
        })
    }

    /// Takes a message of a peer. Messages may be due for it after this.
    pub fn receive(&mut self, id: PeerId, message: &Message, ledger: &mut dyn Ledger, now: Timestamp) {
        let Timing { interval_ns, isolate_after_ns } = self.timing;
        if message.echo.is_some() && !self.reaches(id, now) {
            // Charges until now were made in the place of the peer, too.
            self.collect(ledger, now);
        }
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let (is_first, was_known) = (peer.is_new, peer.epoch == message.epoch);
        if !peer.accepts(message.epoch) {
            return;
        }
        peer.started = now.saturating_sub_ns(message.uptime_ms.saturating_mul(1_000_000));
        if !was_known && peer.started.saturating_add_ns(STARTED_NS) < self.started {
            // It may have charges and bans of replicas that are gone.
            self.recovery.need(id, peer.started, isolate_after_ns, now);
        }
        let (was_deaf, bans_until) = (peer.is_deaf(isolate_after_ns, now), peer.bans_received_until());
        if was_deaf || peer.last_received.is_some_and(|at| now.ns_since(at) >= isolate_after_ns / 2) {
            peer.hurry_echo(); // so that it knows soon that a cut has ended
        }
        peer.last_received = Some(now);
        peer.refusing.clone_from(&message.refusing);
        message.echo.iter().for_each(|echo| peer.confirm(echo.sent_at, now));
        let received = message.received.filter(|received| received.epoch == self.epoch);
        let resend_at = now.saturating_add_ns(isolate_after_ns / SENDS);
        // A younger process has the charges until now in the state that it began with, or asks for them. It may confirm
        // batches only because the first message on the connection named them. An older process gets all batches.
        let has_states = is_first && peer.started > self.started && (!was_known || received.is_none());
        let is_heard_again = was_deaf && !peer.is_deaf(isolate_after_ns, now);
        // What was charged in the place of a deaf peer would count twice.
        if has_states || is_heard_again {
            peer.skip(&self.history);
        }
        peer.acknowledge(received.map(|received| received.sequences()), &self.history, resend_at);
        peer.skew.measure(message.sent_at, message.echo.as_ref(), now);
        let has_gap = peer.skip_to(message.oldest);
        if has_gap {
            self.recovery.need(id, peer.started, isolate_after_ns, now);
        }
        if has_gap || is_heard_again {
            // The peer whose states are asked for may not know of all bans of this one.
            peer.want_bans(bans_until);
        }
        if let Some(wanted) = &message.wanted {
            peer.asked = Some(wanted.clone());
        }
        if let Some(charges) = message.charges()
            && peer.receive(charges.sequence, now.saturating_add_ns(interval_ns))
        {
            let sent_ns = peer.skew.since_ns(message.sent_at, now);
            let at = now.saturating_sub_ns(message.age_us.saturating_mul(1000).saturating_add(sent_ns));
            charges.limits.iter().for_each(|limit| ledger.charge(limit, at, now));
            if !charges.bans.is_empty() {
                ledger.ban(&peer.skew.bans(&charges.bans), now);
            }
        }
        if let Some(states) = &message.states {
            let next = states.next.as_ref();
            let is_asked = self.recovery.parts_of(id).is_some_and(|parts| parts.take(states, next, now));
            let are_bans_asked = peer.bans.take(states, next.filter(|next| next.limit.is_empty()), now);
            if is_asked {
                states.limits.iter().for_each(|limit| ledger.merge(limit, now));
            }
            if (is_asked || are_bans_asked) && !states.bans.is_empty() {
                ledger.ban(&peer.skew.bans(&states.bans), now);
            }
        }
    }
}
