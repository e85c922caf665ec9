//! The connection of one runtime to one node, which a task keeps open. Calls of all requests of the runtime share it.
//!
//! Not here: what is called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::select;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, sleep_until, timeout};

use super::connection::Opened;
use super::node::Node;
use crate::time::instant_now;

/// The pause before the next attempt to connect while the breaker is closed.
const PAUSE: Duration = Duration::from_millis(50);

/// The connection to one node; it is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: Arc<Node>,
    current: Arc<Current>,
    maintainer: AbortHandle,
}

/// The open connection, if there is one. The lock is held for one look.
#[derive(Debug, Default)]
struct Current {
    connection: Mutex<Option<MultiplexedConnection>>,
    opened: Notify,
}

impl Link {
    /// Begins to connect. To be called on the runtime that calls the node.
    pub(super) fn new(node: Arc<Node>) -> Self {
        let current: Arc<Current> = Arc::default();
        let maintainer = tokio::spawn(maintain(Arc::clone(&node), Arc::clone(&current))).abort_handle();
        Self { node, current, maintainer }
    }

    /// The open connection.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.current.connection()
    }

    /// Waits for an open connection.
    pub(super) async fn opened(&self) -> MultiplexedConnection {
        loop {
            let opened = self.current.opened.notified();
            if let Some(connection) = self.current.connection() {
                return connection;
            }
            opened.await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.maintainer.abort();
    }
}

impl Current {
    fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, connection: Option<MultiplexedConnection>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = connection;
    }
}

/// Keeps a connection open while the breaker is closed, until dropped.
async fn maintain(node: Arc<Node>, current: Arc<Current>) {
    let mut news = node.news();
    loop {
        news.mark_unchanged();
        if !node.is_closed() {
            // The node has the sender, so there is always one.
            let _ = news.changed().await;
            continue;
        }
        match node.open().await {
            Ok(opened) => {
                current.set(Some(opened.connection.clone()));
                current.opened.notify_waiters();
                let opened_at = instant_now();
                drive(&node, opened, &mut news).await;
                current.set(None);
                // A server that accepts connections and ends them at once is asked no more often than one that refuses them.
                sleep_until(opened_at + PAUSE).await;
            }
            Err(error) => {
                node.unreachable(&error);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Drives a connection until it ends, or is of no more use.
async fn drive(node: &Node, opened: Opened, news: &mut watch::Receiver<()>) {
    let Opened { mut driver, connection } = opened;
    let address = node.address();
    loop {
        select! {
            () = &mut driver => return,
            _ = news.changed() => {}
        }
        if node.address() != address {
            return;
        }
        // The node answers again, but perhaps this connection does not: the kernel notices that only later.
        select! {
            () = &mut driver => return,
            is_alive = answers(node, &connection) => if !is_alive { return },
        }
    }
}

/// Whether a connection answers within a few times `timeout`.
async fn answers(node: &Node, connection: &MultiplexedConnection) -> bool {
    let mut connection = connection.clone();
    timeout(node.timeout() * 3, connection.send_packed_command(&cmd("PING"))).await.is_ok_and(|reply| reply.is_ok())
}
