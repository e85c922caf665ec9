//! The idle connections of one worker, the most recently used first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::super::buffer::Buffers;
use super::super::settings::Upstream;
use super::connection::{ConnectError, Connection};
use crate::telemetry::Counter;

/// Idle connections to one upstream.
#[derive(Debug)]
pub(in super::super) struct Pool {
    upstream: Upstream,
    connect_timeout: Duration,
    #[allow(clippy::vec_box)] // boxed once; moved in and out on every request
    idle: RefCell<Vec<Box<Connection>>>,
    /// How often idle connections have been looked after.
    sweeps: Cell<u64>,
    /// Another pool has taken its place.
    is_closed: Cell<bool>,
    broken_answers: Counter,
    buffers: Rc<Buffers>,
}

/// How often idle connections are looked after: how much longer than allowed one may stay.
pub(in super::super) const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Pool {
    /// An empty pool.
    pub(in super::super) fn new(
        upstream: Upstream,
        connect_timeout: Duration,
        broken_answers: Counter,
        buffers: Rc<Buffers>,
    ) -> Self {
        Self {
            upstream,
            connect_timeout,
            idle: RefCell::default(),
            sweeps: Cell::new(0),
            is_closed: Cell::new(false),
            broken_answers,
            buffers,
        }
    }

    /// The memory of the worker's connections.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// An idle connection that was still open a moment ago.
    pub(in super::super) fn take(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(connection) = idle.pop() {
            if connection.is_reusable() {
                return Some(connection);
            }
        }
        None
    }

    /// A new connection.
    pub(in super::super) async fn connect(&self) -> Result<Box<Connection>, ConnectError> {
        // Boxed, because it is rare and larger than all else that a request does.
        Box::pin(Connection::connect(&self.upstream.authority, self.connect_timeout)).await
    }

    /// Takes a connection back, if it can be used again and there is room.
    pub(super) fn put(&self, mut connection: Box<Connection>) {
        let mut idle = self.idle.borrow_mut();
        let has_room = !self.is_closed.get() && idle.len() < self.upstream.max_idle;
        if has_room && connection.is_reusable() {
            connection.idle_since = Some(self.sweeps.get());
            connection.input.release(&self.buffers);
            connection.out.release(&self.buffers);
            idle.push(connection);
        }
    }

    /// An answer broke off on a connection that was taken from here.
    pub(super) fn count_broken(&self, cause: &str) {
        tracing::debug!(cause, "the upstream broke off within its answer");
        self.broken_answers.inc();
    }

    /// Closes all that is idle, and from now on all that is put back: nobody will look after it any more.
    pub(in super::super) fn close(&self) {
        self.is_closed.set(true);
        self.idle.borrow_mut().clear();
    }

    /// Closes what has been idle for too long or was closed from the other side. To be called every
    /// [`SWEEP_EVERY`]; idle time is counted in such calls, so that putting a connection back reads no clock.
    pub(in super::super) fn sweep(&self) {
        let sweeps = self.sweeps.get() + 1;
        self.sweeps.set(sweeps);
        let allowed = self.upstream.idle_timeout.as_millis().div_ceil(SWEEP_EVERY.as_millis());
        let is_fresh = |since: u64| u128::from(sweeps - since) <= allowed;
        let is_kept =
            |connection: &mut Box<Connection>| connection.idle_since.is_some_and(is_fresh) && connection.is_reusable();
        self.idle.borrow_mut().retain_mut(is_kept);
    }
}
