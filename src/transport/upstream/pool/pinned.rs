//! The connections of a pool that are pinned to client connections, between two requests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;

use super::connection::H1Connection;
use super::usage::ActiveRequest;

/// A connection that serves the requests of one client connection only.
#[derive(Debug)]
pub(crate) struct PinnedConnection {
    /// The connection counts as an active request of its client while it is pinned.
    pub(crate) active: Option<ActiveRequest>,
    pub(crate) connection: Box<H1Connection>,
}

/// The pinned connections of one pool between two requests. Keys rise, so the first one is idle for longest.
#[derive(Debug, Default)]
pub(crate) struct PinnedConnections {
    connections: RefCell<BTreeMap<u64, PinnedConnection>>,
    next: Cell<u64>,
}

impl PinnedConnections {
    /// Keeps a connection. Returns its key.
    pub(super) fn put(&self, pinned: PinnedConnection) -> u64 {
        let key = self.next.get();
        self.next.set(key + 1);
        self.connections.borrow_mut().insert(key, pinned);
        key
    }

    /// Takes the connection of a key; none if it has closed meanwhile.
    pub(super) fn take(&self, key: u64) -> Option<PinnedConnection> {
        self.connections.borrow_mut().remove(&key)
    }

    /// Closes the connection that is idle for longest, if `is_old` is true of the sweep at which it became idle. Returns
    /// whether there was one.
    pub(super) fn close_one(&self, is_old: impl FnOnce(u64) -> bool) -> bool {
        let mut connections = self.connections.borrow_mut();
        let first = connections.first_entry().filter(|first| first.get().connection.idle_since.is_some_and(is_old));
        first.map(OccupiedEntry::remove).is_some()
    }

    /// Closes connections that the service has closed.
    pub(super) fn sweep(&self) {
        self.connections.borrow_mut().retain(|_, pinned| pinned.connection.is_reusable());
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        self.connections.take();
    }
}
