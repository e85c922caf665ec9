//! The idle connections of one worker, the most recently used first.

use std::cell::RefCell;

use tokio::time::Instant;

use super::super::settings::Upstream;
use super::connection::{ConnectError, Connection};
use crate::time;

/// Idle connections to one upstream.
#[derive(Debug)]
pub(in super::super) struct Pool {
    upstream: Upstream,
    connect_timeout: std::time::Duration,
    #[allow(clippy::vec_box)] // boxed once; moved in and out on every request
    idle: RefCell<Vec<Box<Connection>>>,
}

impl Pool {
    /// An empty pool.
    pub(in super::super) fn new(upstream: Upstream, connect_timeout: std::time::Duration) -> Self {
        Self { upstream, connect_timeout, idle: RefCell::default() }
    }

    /// An idle connection that was still open a moment ago.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let now = time::instant_now();
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if self.is_fresh(&connection, now) && connection.is_reusable() {
                return Some(connection);
            }
        }
        None
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Box<Connection>, ConnectError> {
        // Boxed, because it is rare and larger than all else that a request does.
        Box::pin(Connection::connect(&self.upstream.authority, self.connect_timeout)).await
    }

    /// Takes a connection back, if it can be used again and there is room.
    pub(super) fn put(&self, mut connection: Box<Connection>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.upstream.max_idle && connection.is_reusable() {
            connection.idle_since = Some(time::instant_now());
            idle.push(connection);
        }
    }

    /// Closes what has been idle for too long or was closed from the other side.
    pub(in super::super) fn sweep(&self) {
        let now = time::instant_now();
        self.idle.borrow_mut().retain_mut(|connection| self.is_fresh(connection, now) && connection.is_reusable());
    }

    fn is_fresh(&self, connection: &Connection, now: Instant) -> bool {
        let idle = connection.idle_since.map(|since| now.saturating_duration_since(since));
        idle.is_none_or(|idle| idle < self.upstream.idle_timeout)
    }
}
