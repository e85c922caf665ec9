//! Which shared connection of a pool a request gets, and when another one is opened.
//!
//! Opening belongs to no request: those that wait for it share its outcome, and one that leaves stops nothing.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::connection::ConnectError;
use super::lease::Line;
use super::pool::Pool;
use super::queue::Slot;
use super::transport::Transport;
use super::trunk::{STREAMS_MAX, Seat, Trunk};
use crate::net::Protocol;

/// Streams that a connection is expected to allow before one has said so: what RFC 9113, section 6.5.2, has as the
/// least that should be allowed.
const STREAMS_EXPECTED: usize = 100;

/// The shared connections of one worker to one endpoint.
#[derive(Debug)]
pub(super) struct Trunks {
    open: RefCell<Vec<Rc<Trunk>>>,
    opening: RefCell<Vec<Rc<Opening>>>,
    /// Streams that the last one allowed.
    expected: Cell<usize>,
}

/// A connection that is being opened.
#[derive(Debug)]
pub(super) struct Opening {
    /// Requests that wait for it.
    waiting: Cell<usize>,
    outcome: RefCell<Option<Result<(), Failure>>>,
    done: Notify,
}

/// Why it could not be opened, for several to know.
#[derive(Debug)]
enum Failure {
    Timeout,
    Failed(io::ErrorKind, String),
}

/// One that waits, counted while it does.
struct Waiting<'o>(&'o Opening);

impl Default for Trunks {
    fn default() -> Self {
        Self { open: RefCell::default(), opening: RefCell::default(), expected: Cell::new(STREAMS_EXPECTED) }
    }
}

impl Pool {
    /// Whether requests share its connections.
    pub(super) fn is_shared(&self) -> bool {
        self.spec.protocol == Protocol::H2
    }

    /// A stream on a connection that is open.
    pub(super) fn seat(self: &Rc<Self>) -> Option<Seat> {
        let mut open = self.trunks.open.borrow_mut();
        open.retain(|trunk| trunk.is_open());
        // The first that has room, so that the last ones become idle and close.
        open.iter().find(|trunk| trunk.has_room()).map(|trunk| Seat::new(trunk, self))
    }

    /// A connection that is being opened and is expected to have room.
    pub(super) fn opening(&self) -> Option<Rc<Opening>> {
        let opening = self.trunks.opening.borrow();
        opening.iter().find(|one| one.waiting.get() < self.trunks.expected.get()).map(Rc::clone)
    }

    /// Whether a request need not open a connection.
    pub(super) fn has_seat(&self) -> bool {
        self.trunks.open.borrow().iter().any(|trunk| trunk.is_open() && trunk.has_room()) || self.opening().is_some()
    }

    /// Begins to open a connection, which holds `slot`.
    pub(super) fn open_trunk(self: &Rc<Self>, slot: Slot) -> Rc<Opening> {
        let opening = Rc::new(Opening { waiting: Cell::new(0), outcome: RefCell::default(), done: Notify::new() });
        self.trunks.opening.borrow_mut().push(Rc::clone(&opening));
        let (pool, told) = (Rc::clone(self), Rc::clone(&opening));
        spawn_local(async move {
            let outcome = pool.connect_trunk(slot).await;
            pool.trunks.opening.borrow_mut().retain(|one| !Rc::ptr_eq(one, &told));
            told.outcome.replace(Some(outcome));
            told.done.notify_waiters();
            pool.wake_waiters();
        });
        opening
    }

    async fn connect_trunk(&self, slot: Slot) -> Result<(), Failure> {
        let (spec, patience) = (&self.spec, self.spec.connect_timeout);
        let opening = async {
            let transport = Transport::open(&spec.endpoint, self.state.resolved, spec.tls.as_ref(), None).await?;
            transport.agreed_on_h2()?;
            Trunk::open(transport, patience, Some(slot)).await
        };
        let (trunk, driver) = match timeout(patience, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(Failure::Failed(error.kind(), error.to_string())),
            Err(_) => return Err(Failure::Timeout),
        };
        spawn_local(driver.run());
        self.trunks.expected.set(trunk.streams_max().max(1));
        trunk.rest(self.sweeps());
        self.trunks.open.borrow_mut().push(trunk);
        Ok(())
    }

    /// Waits for a connection that is being opened. None if others were faster.
    pub(super) async fn seat_on(self: &Rc<Self>, opening: &Opening) -> Result<Option<Line>, ConnectError> {
        let waiting = Waiting::new(opening);
        let outcome = loop {
            if let Some(outcome) = &*opening.outcome.borrow() {
                break match outcome {
                    Ok(()) => Ok(()),
                    Err(failure) => Err(failure.error()),
                };
            }
            // Nothing happens between the look and this, for all of it is on one thread.
            opening.done.notified().await;
        };
        drop(waiting);
        outcome.map_err(|error| error.at(&self.spec.endpoint))?;
        let seat = self.seat().map(Line::H2);
        self.close_surplus();
        Ok(seat)
    }

    /// A stream has ended, or did not begin.
    pub(super) fn stream_ended(&self, trunk: &Rc<Trunk>) {
        if trunk.is_idle() {
            trunk.rest(self.sweeps());
            self.close_surplus();
            if self.is_short() {
                trunk.leave();
            }
        }
        if self.has_waiters() && !self.wake_waiters() {
            // It makes room for the one in front, which cannot use it, once its streams have ended.
            trunk.leave();
        }
    }

    /// Closes what is idle beyond what may be.
    fn close_surplus(&self) {
        let at_most = if self.is_closed() { Some(0) } else { self.spec.max_idle };
        let Some(at_most) = at_most else { return };
        let open = self.trunks.open.borrow();
        let idle = open.iter().filter(|trunk| trunk.is_idle() && trunk.is_open());
        idle.skip(at_most).for_each(|trunk| trunk.leave());
    }

    /// Closes one connection for another worker, an idle one if there is one. Says whether there was any.
    pub(super) fn shed_trunk(&self) -> bool {
        let open = self.trunks.open.borrow();
        let mut all = open.iter().filter(|trunk| trunk.is_open());
        let Some(first) = all.next() else { return false };
        let chosen = if first.is_idle() { first } else { all.find(|trunk| trunk.is_idle()).unwrap_or(first) };
        chosen.leave();
        true
    }

    /// Closes one idle connection. Says whether there was any.
    pub(super) fn shed_idle_trunk(&self) -> bool {
        let open = self.trunks.open.borrow();
        let idle = open.iter().find(|trunk| trunk.is_idle() && trunk.is_open());
        idle.inspect(|trunk| trunk.leave()).is_some()
    }

    /// Lets no stream begin any more.
    pub(super) fn close_trunks(&self) {
        self.trunks.open.borrow_mut().drain(..).for_each(|trunk| trunk.leave());
    }

    /// Closes what `is_stale` says of, by since when it is idle; and forgets what has closed.
    pub(super) fn sweep_trunks(&self, is_stale: impl Fn(u64) -> bool) {
        self.trunks.open.borrow_mut().retain(|trunk| {
            if trunk.idle_since().is_some_and(&is_stale) {
                trunk.leave();
            }
            trunk.is_open()
        });
    }
}

impl<'o> Waiting<'o> {
    fn new(opening: &'o Opening) -> Self {
        opening.waiting.set(opening.waiting.get() + 1);
        Self(opening)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

impl Failure {
    fn error(&self) -> ConnectError {
        match self {
            Self::Timeout => ConnectError::Timeout,
            Self::Failed(kind, text) => ConnectError::Failed(io::Error::new(*kind, text.clone())),
        }
    }
}

// What is expected of a service is no more than what is used of it.
const _: () = assert!(STREAMS_EXPECTED <= STREAMS_MAX);
