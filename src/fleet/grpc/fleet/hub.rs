//! The replica and its connections: all tasks of the fleet meet here.
//!
//! A connection asks for the next message when it can send one. So a slow peer costs no memory: what it gets later is
//! newer. The lock is held for one message, and only tasks of the control runtime take it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use prost::Message as _;
use tokio::sync::{Notify, watch};

use super::handshake::{ProcessId, Refusal};
use super::published::Published;
use super::roster::{Roster, Target};
use super::settings::FleetSettings;
use crate::base::attempts::Attempts;
use crate::base::opaque::opaque_debug;
use crate::base::telemetry::FleetMetrics;
use crate::base::time::{Clock, Timestamp, saturating_ns};
use crate::engine::policy::ProofKey;
use crate::engine::store::stream::message::Message;
use crate::engine::store::stream::{Ledger, Link, PeerId, Replica};

/// The parts that a fleet is made of.
pub struct FleetParts {
    /// The clock of the gate.
    pub clock: Clock,
    /// The tables of this replica.
    pub ledger: Box<dyn Ledger + Send>,
    /// The link to the requests of this replica.
    pub link: Arc<Link>,
    /// The key of proofs.
    pub key: ProofKey,
    /// The metrics of the fleet.
    pub metrics: FleetMetrics,
    /// The random number of this process, or that of the process that it takes over from.
    pub instance: u64,
}

/// The fleet as this process takes part in it.
pub struct Hub {
    pub(super) own: ProcessId,
    pub(super) clock: Clock,
    pub(super) key: ProofKey,
    pub(super) metrics: FleetMetrics,
    pub(super) link: Arc<Link>,
    pub(super) settings: ArcSwap<FleetSettings>,
    /// Changes with each reload.
    pub(super) reloads: watch::Sender<()>,
    /// The replicas, this one included; `None` until the members are known.
    pub(super) size: watch::Sender<Option<u64>>,
    pub(super) state: Mutex<State>,
    /// The refused connections by reason and address, for the log. Held to count one.
    pub(super) refusals: Mutex<BTreeMap<Refusal, Attempts>>,
}

pub(super) struct State {
    pub(super) replica: Replica,
    ledger: Box<dyn Ledger + Send>,
    pub(super) processes: BTreeMap<ProcessId, KnownProcess>,
    pub(super) roster: Roster,
    /// Whether any list of members was there.
    pub(super) is_listed: bool,
    /// The processes to which this one has a call.
    called: BTreeSet<ProcessId>,
    last_peer: u32,
    last_connection: u64,
    /// Whether a successor has taken over.
    pub(super) is_closed: bool,
    pub(super) published: Published,
}

/// A process of another replica.
pub(super) struct KnownProcess {
    pub(super) peer: PeerId,
    /// The address that it says it has, or where it connected from.
    pub(super) address: Box<str>,
    connection: Option<Connection>,
    /// When the last connection ended.
    lost_at: Timestamp,
    /// Notified when a connection ends.
    gone: Arc<Notify>,
}

struct Connection {
    number: u64,
    is_preferred: bool,
    /// Wakes the task that sends, if it waits for a message.
    sender: Option<Waker>,
    /// Notified to end the connection.
    cut: Arc<Notify>,
}

/// A connection that has joined the fleet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    process: ProcessId,
    peer: PeerId,
    number: u64,
}

/// A call to a process, in progress or joined; over on drop. There is one for each process at most, so that both sides
/// agree which connection is the newest.
pub(super) struct Calling {
    hub: Arc<Hub>,
    process: ProcessId,
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.hub.state().called.remove(&self.process);
    }
}

/// Why a connection cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinError {
    /// It leads to this process, or to the one that it takes over from.
    Itself,
    /// There is a better connection to the same process.
    Connected,
    /// The fleet has `max_replicas` replicas.
    Full,
}

impl Hub {
    /// A fleet without connections.
    pub fn new(parts: FleetParts, settings: FleetSettings) -> Arc<Self> {
        let FleetParts { clock, ledger, link, key, metrics, instance } = parts;
        let now = clock.now();
        let state = State {
            replica: Replica::new(settings.timing, now),
            ledger,
            processes: BTreeMap::new(),
            roster: Roster::default(),
            is_listed: false,
            called: BTreeSet::new(),
            last_peer: 0,
            last_connection: 0,
            is_closed: false,
            published: Published::default(),
        };
        Arc::new(Self {
            own: ProcessId { instance, epoch: now.as_ns() },
            clock,
            key,
            metrics,
            link,
            settings: ArcSwap::from_pointee(settings),
            reloads: watch::Sender::new(()),
            size: watch::Sender::new(None),
            state: Mutex::new(state),
            refusals: Mutex::default(),
        })
    }

    /// Replaces the settings. Connections with another TLS end.
    pub fn reload(&self, settings: FleetSettings) {
        if **self.settings.load() == settings {
            return;
        }
        self.state().replica.set_timing(settings.timing);
        self.settings.store(Arc::new(settings));
        self.reloads.send_replace(());
    }

    /// Ends all connections, and takes no others: a successor has them.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for connection in state.processes.values_mut().filter_map(|known| known.connection.take()) {
            connection.cut.notify_one();
        }
    }

    /// The random number of this process, for a successor.
    pub fn instance(&self) -> u64 {
        self.own.instance
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what answers at `address`.
    pub(super) fn found(&self, address: &str, target: Target) {
        let mut state = self.state();
        if let Some(instance) = state.roster.found(address, target) {
            state.forget(|process, known| process.instance == instance && known.connection.is_none());
        }
        self.note_size(&mut state);
    }

    /// Notes a call to `process`; `None` if there is one, or a connection that is no worse.
    pub(super) fn begin_call(self: &Arc<Self>, process: ProcessId) -> Option<Calling> {
        let mut state = self.state();
        let is_better = |connection: &Connection| !connection.is_preferred && self.own < process;
        let connection = state.processes.get(&process).and_then(|known| known.connection.as_ref());
        let is_wanted = connection.is_none_or(is_better) && state.called.insert(process);
        is_wanted.then(|| Calling { hub: Arc::clone(self), process })
    }

    /// Takes a connection to `process` into the fleet. `is_own_call` says whether this process has opened it. A worse
    /// connection to the same process is cut.
    ///
    /// # Errors
    /// If the connection cannot join.
    pub(super) fn join(
        &self,
        process: ProcessId,
        address: Box<str>,
        is_own_call: bool,
        cut: &Arc<Notify>,
    ) -> Result<Ticket, JoinError> {
        if process.instance == self.own.instance {
            return Err(JoinError::Itself);
        }
        // Both sides prefer the same one of two connections.
        let is_preferred = is_own_call == (self.own < process);
        let max_replicas = self.settings.load().max_replicas;
        let now = self.clock.now();
        let mut state = self.state();
        let state = &mut *state;
        if state.is_closed {
            return Err(JoinError::Itself);
        }
        if !state.processes.contains_key(&process) {
            state.make_room(process, max_replicas)?;
            state.last_peer += 1;
            let known = KnownProcess::new(PeerId(state.last_peer), now);
            state.processes.insert(process, known);
        }
        let Some(known) = state.processes.get_mut(&process) else { return Err(JoinError::Full) };
        if let Some(other) = &known.connection {
            if other.is_preferred && !is_preferred {
                return Err(JoinError::Connected);
            }
            other.cut.notify_one();
        }
        state.last_connection += 1;
        let number = state.last_connection;
        known.connection = Some(Connection { number, is_preferred, sender: None, cut: Arc::clone(cut) });
        known.address = address;
        let ticket = Ticket { process, peer: known.peer, number };
        state.replica.connect(known.peer, now);
        tracing::info!(peer = %known.address, epoch = process.epoch, "a replica is connected");
        let connected = state.connected();
        state.roster.joined(process.instance, &connected, now);
        self.note_size(state);
        Ok(ticket)
    }

    /// Ends a connection, unless another one has taken its place.
    pub(super) fn leave(&self, ticket: Ticket) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(known) = state.processes.get_mut(&ticket.process).filter(|known| known.has(ticket)) else { return };
        (known.connection, known.lost_at) = (None, self.clock.now());
        known.gone.notify_waiters();
        state.replica.disconnect(ticket.peer);
        tracing::info!(peer = %known.address, epoch = ticket.process.epoch, "a replica is disconnected");
    }

    /// Whether there is a connection to `process`.
    pub(super) fn is_connected(&self, process: ProcessId) -> bool {
        self.state().processes.get(&process).is_some_and(|known| known.connection.is_some())
    }

    /// Waits until there is no connection to `process`.
    pub(super) async fn disconnected(&self, process: ProcessId) {
        loop {
            let gone = match self.state().processes.get(&process) {
                Some(known) if known.connection.is_some() => Arc::clone(&known.gone),
                _ => return,
            };
            let mut gone = std::pin::pin!(gone.notified());
            gone.as_mut().enable();
            if self.is_connected(process) {
                gone.await;
            }
        }
    }

    /// The next message on a connection. Ends with the connection.
    pub(super) fn poll_message(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut state = self.state();
        let state = &mut *state;
        let Some(known) = state.processes.get_mut(&ticket.process).filter(|known| known.has(ticket)) else {
            return Poll::Ready(None);
        };
        let message = state.replica.next_message(ticket.peer, &mut *state.ledger, self.clock.now());
        if let Some(message) = &message {
            self.metrics.sent.count(message.encoded_len());
        } else if let Some(connection) = &mut known.connection {
            connection.sender = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(message)
    }

    /// Takes a message from a connection. Returns whether the connection is still part of the fleet.
    pub(super) fn receive(&self, ticket: Ticket, message: &Message) -> bool {
        let mut state = self.state();
        let state = &mut *state;
        let Some(known) = state.processes.get_mut(&ticket.process).filter(|known| known.has(ticket)) else {
            return false;
        };
        self.metrics.received.count(message.encoded_len());
        state.replica.receive(ticket.peer, message, &mut *state.ledger, self.clock.now());
        known.wake();
        true
    }

    /// Makes batches of the charges since the last tick, and lets all connections send.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        let state = &mut *state;
        state.replica.tick(&mut *state.ledger, self.clock.now());
        state.processes.values_mut().for_each(KnownProcess::wake);
    }

    /// Forgets members that left a while ago.
    pub(super) fn expire(&self) {
        let (now, grace_ns) = (self.clock.now(), saturating_ns(self.settings.load().leave_after));
        let mut state = self.state();
        state.roster.expire(grace_ns, now);
        state.forget(|_, known| known.connection.is_none() && now.ns_since(known.lost_at) >= grace_ns);
        self.note_size(&mut state);
    }
}

impl State {
    /// The replicas with a connection.
    pub(super) fn connected(&self) -> BTreeSet<u64> {
        let connected = self.processes.iter().filter(|(_, known)| known.connection.is_some());
        connected.map(|(process, _)| process.instance).collect()
    }

    /// Forgets all processes that `is_gone` selects.
    fn forget(&mut self, is_gone: impl Fn(&ProcessId, &KnownProcess) -> bool) {
        let Self { replica, processes, .. } = self;
        processes.retain(|process, known| {
            let is_kept = !is_gone(process, known);
            if !is_kept {
                replica.remove(known.peer);
            }
            is_kept
        });
    }

    /// Makes room for one more process. Of processes without a connection, the one that was lost first is forgotten.
    fn make_room(&mut self, process: ProcessId, max_replicas: usize) -> Result<(), JoinError> {
        // During a takeover, a replica has two processes.
        if self.processes.len() < 2 * max_replicas {
            let instances = self.connected();
            let is_known = instances.contains(&process.instance);
            return if is_known || instances.len() + 1 < max_replicas { Ok(()) } else { Err(JoinError::Full) };
        }
        let lost = self.processes.iter().filter(|(_, known)| known.connection.is_none());
        let first = lost.min_by_key(|(_, known)| known.lost_at).map(|(process, _)| *process);
        let first = first.ok_or(JoinError::Full)?;
        self.forget(|process, _| *process == first);
        self.make_room(process, max_replicas)
    }
}

impl KnownProcess {
    fn new(peer: PeerId, now: Timestamp) -> Self {
        Self { peer, address: Box::default(), connection: None, lost_at: now, gone: Arc::default() }
    }

    fn has(&self, ticket: Ticket) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.number == ticket.number)
    }

    fn wake(&mut self) {
        self.connection.as_mut().map(Connection::wake);
    }
}

impl Connection {
    /// Lets the connection ask for a message.
    fn wake(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }
}

/// What it sends ends then.
impl Drop for Connection {
    fn drop(&mut self) {
        self.wake();
    }
}

opaque_debug!(Hub);
