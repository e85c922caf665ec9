//! The HTTP/2 connections of one worker to one endpoint, open or being opened.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::connection::{H2Connection, STREAMS_MAX};
use super::pending::PendingConnection;

/// Streams that a connection is expected to allow before the service has sent its settings: the least that RFC 9113,
/// section 6.5.2, recommends.
const STREAMS_EXPECTED: usize = 100;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct H2Connections {
    open: RefCell<Vec<Rc<H2Connection>>>,
    pending: RefCell<Vec<Rc<PendingConnection>>>,
    /// Streams that the connection opened last allows.
    expected_streams: Cell<usize>,
}

impl Default for H2Connections {
    fn default() -> Self {
        let expected_streams = Cell::new(STREAMS_EXPECTED);
        Self { open: RefCell::default(), pending: RefCell::default(), expected_streams }
    }
}

impl H2Connections {
    /// An open connection on which one more stream may begin. The first such connection is taken, so that the last ones
    /// become idle and close.
    pub(crate) fn with_capacity(&self) -> Option<Rc<H2Connection>> {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| connection.is_open());
        open.iter().find(|connection| connection.has_capacity()).map(Rc::clone)
    }

    /// A connection that is being opened and is expected to have a stream for one more request.
    pub(crate) fn pending(&self) -> Option<Rc<PendingConnection>> {
        let pending = self.pending.borrow();
        pending.iter().find(|pending| pending.waiting() < self.expected_streams.get()).map(Rc::clone)
    }

    /// Whether a request need not open a connection.
    pub(crate) fn has_capacity(&self) -> bool {
        let can_begin = |connection: &Rc<H2Connection>| connection.is_open() && connection.has_capacity();
        self.open.borrow().iter().any(can_begin) || self.pending().is_some()
    }

    /// Streams that one connection is expected to allow.
    pub(crate) fn expected_streams(&self) -> usize {
        self.expected_streams.get()
    }

    /// Adds a connection that is being opened.
    pub(crate) fn begin(&self) -> Rc<PendingConnection> {
        let pending = PendingConnection::new();
        self.pending.borrow_mut().push(Rc::clone(&pending));
        pending
    }

    /// Removes a connection that is no longer being opened.
    pub(crate) fn end(&self, pending: &Rc<PendingConnection>) {
        self.pending.borrow_mut().retain(|known| !Rc::ptr_eq(known, pending));
    }

    /// Adds a connection that has been opened.
    pub(crate) fn add(&self, connection: Rc<H2Connection>) {
        self.expected_streams.set(connection.streams_max().max(1));
        self.open.borrow_mut().push(connection);
    }

    /// Retires idle connections beyond `max_idle`.
    pub(crate) fn retire_surplus(&self, max_idle: usize) {
        let open = self.open.borrow();
        let idle = open.iter().filter(|connection| connection.is_idle() && connection.is_open());
        idle.skip(max_idle).for_each(|connection| connection.retire());
    }

    /// Retires one connection, an idle one if there is one. Returns whether there was any.
    pub(crate) fn retire_one(&self) -> bool {
        let open = self.open.borrow();
        let mut all = open.iter().filter(|connection| connection.is_open());
        let Some(first) = all.next() else { return false };
        let is_idle = |connection: &&Rc<H2Connection>| connection.is_idle();
        let chosen = if first.is_idle() { first } else { all.find(is_idle).unwrap_or(first) };
        chosen.retire();
        true
    }

    /// Retires one idle connection. Returns whether there was any.
    pub(crate) fn retire_one_idle(&self) -> bool {
        let open = self.open.borrow();
        let idle = open.iter().find(|connection| connection.is_idle() && connection.is_open());
        idle.inspect(|connection| connection.retire()).is_some()
    }

    /// Retires all connections.
    pub(crate) fn retire_all(&self) {
        self.open.borrow_mut().drain(..).for_each(|connection| connection.retire());
    }

    /// Retires connections whose `idle_since` is stale, and forgets closed ones.
    pub(crate) fn sweep(&self, is_stale: impl Fn(u64) -> bool) {
        self.open.borrow_mut().retain(|connection| {
            if connection.idle_since().is_some_and(&is_stale) {
                connection.retire();
            }
            connection.is_open()
        });
    }
}

// Weir expects of a service at most the streams that it uses.
const _: () = assert!(STREAMS_EXPECTED <= STREAMS_MAX);
