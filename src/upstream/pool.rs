//! The connections of one worker to one endpoint: idle ones, the most recently used first, or those that requests share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{ConnectError, Connection};
use super::queue::{Queue, Slot, WorkerBell};
use super::settings::Endpoint;
use super::state::EndpointState;
use super::transport::Transport;
use super::trunks::Trunks;
use crate::net::Protocol;
use crate::net::buffer::Buffers;
use crate::net::tls::ClientTls;

/// Connections to one endpoint.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) spec: PoolSpec,
    /// What all workers know of the endpoint.
    pub(super) state: Arc<EndpointState>,
    /// Who waits for its connections.
    queue: Arc<Queue>,
    worker: WorkerBell,
    #[allow(clippy::vec_box)] // boxed once; moved in and out on every request
    idle: RefCell<Vec<Box<Connection>>>,
    /// Those that requests share; there are none of the others then.
    pub(super) trunks: Trunks,
    /// How often idle connections have been looked after.
    sweeps: Cell<u64>,
    /// Nobody looks after it any more.
    is_closed: Cell<bool>,
    buffers: Rc<Buffers>,
}

/// What a pool goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolSpec {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<ClientTls>,
    pub(super) protocol: Protocol,
    pub(super) max_idle: Option<usize>,
    pub(super) idle_timeout: Duration,
    pub(super) connect_timeout: Duration,
}

/// How often idle connections are looked after: how much longer than allowed one may stay.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Pool {
    /// An empty pool.
    pub(super) fn new(
        spec: PoolSpec,
        state: Arc<EndpointState>,
        queue: Arc<Queue>,
        worker: WorkerBell,
        buffers: Rc<Buffers>,
    ) -> Self {
        let (idle, sweeps, is_closed) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Self { spec, state, queue, worker, idle, trunks: Trunks::default(), sweeps, is_closed, buffers }
    }

    /// An idle connection that was still open a moment ago.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if connection.is_reusable() {
                return Some(connection);
            }
        }
        None
    }

    /// Closes a connection that another worker could have, if there is one.
    pub(super) fn shed(&self) -> Option<()> {
        if self.is_shared() { self.shed_trunk().then_some(()) } else { self.take().map(drop) }
    }

    /// Closes a connection that nobody uses, for another upstream.
    pub(super) fn shed_idle(&self) -> Option<()> {
        if self.is_shared() { self.shed_idle_trunk().then_some(()) } else { self.take().map(drop) }
    }

    /// Whether a request may need no new connection.
    pub(super) fn has_idle(&self) -> bool {
        if self.is_shared() { self.has_seat() } else { !self.idle.borrow().is_empty() }
    }

    /// Whether anybody waits for its connections.
    pub(super) fn has_waiters(&self) -> bool {
        self.queue.has_waiters()
    }

    /// Whether another upstream waits for any connection to close.
    pub(super) fn is_short(&self) -> bool {
        self.queue.ceiling.is_short()
    }

    /// Wakes who is in front. Says whether that is a request of this worker.
    pub(super) fn wake_waiters(&self) -> bool {
        let is_ours = self.queue.is_front_of(&self.worker);
        if is_ours {
            self.queue.wake_front();
        }
        is_ours
    }

    /// How often it has been looked after.
    pub(super) fn sweeps(&self) -> u64 {
        self.sweeps.get()
    }

    /// Whether nobody looks after it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// A new connection, which holds `slot` and begins with `preamble`.
    pub(super) async fn connect(&self, slot: Slot, preamble: Option<&[u8]>) -> Result<Box<Connection>, ConnectError> {
        let opening = Transport::open(&self.spec.endpoint, self.state.resolved, self.spec.tls.as_ref(), preamble);
        let opened = Connection::connect(opening, self.spec.connect_timeout, slot).await;
        opened.map_err(|error| error.at(&self.spec.endpoint))
    }

    /// Takes a connection back, if it can be used again and there is room.
    pub(super) fn put(&self, connection: Box<Connection>) {
        if !self.queue.has_waiters() {
            // Closed, it makes room for other upstreams.
            return if self.is_short() { drop(connection) } else { self.keep(connection) };
        }
        if self.queue.is_front_of(&self.worker) {
            self.keep(connection);
            self.queue.wake_front();
        } // else it makes room for the one in front, which cannot use it
    }

    fn keep(&self, mut connection: Box<Connection>) {
        let mut idle = self.idle.borrow_mut();
        let has_room = !self.is_closed.get() && self.spec.max_idle.is_none_or(|most| idle.len() < most);
        if has_room && connection.is_reusable() {
            connection.idle_since = Some(self.sweeps.get());
            connection.input.release(&self.buffers);
            connection.out.release(&self.buffers);
            idle.push(connection);
        }
    }

    /// Closes all that is idle, and from now on all that is put back: nobody will look after it any more.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.idle.borrow_mut().clear();
        self.close_trunks();
    }

    /// Closes what has been idle for too long or was closed from the other side. To be called every
    /// [`SWEEP_EVERY`]; idle time is counted in such calls, so that putting a connection back reads no clock.
    pub(super) fn sweep(&self) {
        let sweeps = self.sweeps.get() + 1;
        self.sweeps.set(sweeps);
        let allowed = self.spec.idle_timeout.as_millis().div_ceil(SWEEP_EVERY.as_millis());
        let is_fresh = |since: u64| u128::from(sweeps - since) <= allowed;
        let is_kept =
            |connection: &mut Box<Connection>| connection.idle_since.is_some_and(is_fresh) && connection.is_reusable();
        self.idle.borrow_mut().retain_mut(is_kept);
        self.sweep_trunks(|since| !is_fresh(since));
    }
}
