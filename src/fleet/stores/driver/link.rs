//! The connection of one runtime to one server, which a task keeps open. Calls of all requests of the runtime share it.
//!
//! Not here: what is called.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::select;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::connect::ConnectError;
use super::health::{Generation, Health};
use super::settings::NodeAddress;
use crate::base::time::instant_now;
use crate::engine::store::backend::{Failure, Unavailable};

/// The pause before the next attempt to connect while the breaker is closed.
const PAUSE: Duration = Duration::from_millis(50);

/// A server of a store.
pub(in crate::fleet::stores) trait Server:
    Deref<Target = Health> + Send + Sync + 'static
{
    /// Makes calls. Clones use the same connection.
    type Connection: Clone + Send + 'static;

    /// The address; `None` if it is not known yet.
    fn address(&self) -> Option<NodeAddress>;

    /// Opens a connection, once the address is known.
    fn open(&self) -> impl Future<Output = Result<Opened<Self::Connection>, ConnectError>> + Send;

    /// A call failed.
    fn failed(&self, failure: Failure, text: &str) {
        self.call_failed(failure, text);
    }

    /// No connection could be opened. So no call can succeed.
    fn unreachable(&self, error: &ConnectError) {
        self.connection_failed(error);
    }

    /// Whether a connection answers within a few times the timeout of calls.
    fn answers(&self, connection: &Self::Connection) -> impl Future<Output = bool> + Send;
}

/// A connection and the future that drives it. The connection ends when the future does, or is dropped.
pub(in crate::fleet::stores) struct Opened<C> {
    pub(in crate::fleet::stores) connection: C,
    pub(in crate::fleet::stores) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<C> Opened<C> {
    /// Runs `calls` on the connection, which is used for nothing else.
    pub(in crate::fleet::stores) async fn during<T, E: From<Failure>>(
        self,
        calls: impl AsyncFnOnce(&mut C) -> Result<T, E>,
    ) -> Result<T, E> {
        let Self { mut connection, mut driver } = self;
        select! {
            result = calls(&mut connection) => result,
            () = &mut driver => Err(Failure::Connection.into()),
        }
    }
}

/// The connection to one server; it is closed when this is dropped.
pub(in crate::fleet::stores) struct Link<S: Server> {
    pub(in crate::fleet::stores) node: Arc<S>,
    current: Arc<Current<S::Connection>>,
    maintainer: AbortHandle,
}

/// The open connection, if there is one. The lock is held for one look.
struct Current<C> {
    connection: Mutex<Option<C>>,
    opened: Notify,
}

impl<S: Server> Link<S> {
    /// Begins to connect. To be called on the runtime that calls the server.
    pub(in crate::fleet::stores) fn new(node: Arc<S>) -> Self {
        let current = Arc::new(Current { connection: Mutex::new(None), opened: Notify::new() });
        let maintainer = tokio::spawn(maintain(Arc::clone(&node), Arc::clone(&current))).abort_handle();
        Self { node, current, maintainer }
    }

    /// The open connection.
    pub(in crate::fleet::stores) fn connection(&self) -> Option<S::Connection> {
        self.current.connection()
    }

    /// A connection to the server, and the generation of its keys, if it decides. A connection is awaited until `deadline`.
    pub(in crate::fleet::stores) async fn ready(
        &self,
        deadline: Instant,
    ) -> Result<(S::Connection, Arc<Generation>), Unavailable> {
        if !self.node.is_closed() {
            return Err(Unavailable::Down);
        }
        let generation = self.node.generation().ok_or(Unavailable::Cold)?;
        let connection = match self.connection() {
            Some(connection) => connection,
            None => timeout_at(deadline, self.opened()).await.map_err(|_| {
                self.node.failed(Failure::Timeout, "no connection in time");
                Unavailable::Timeout
            })?,
        };
        Ok((connection, generation))
    }

    /// Waits for an open connection.
    async fn opened(&self) -> S::Connection {
        loop {
            let opened = self.current.opened.notified();
            if let Some(connection) = self.current.connection() {
                return connection;
            }
            opened.await;
        }
    }
}

impl<S: Server> Drop for Link<S> {
    fn drop(&mut self) {
        self.maintainer.abort();
    }
}

impl<C: Clone> Current<C> {
    fn connection(&self) -> Option<C> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, connection: Option<C>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = connection;
    }
}

/// Keeps a connection open while the breaker is closed, until dropped.
async fn maintain<S: Server>(node: Arc<S>, current: Arc<Current<S::Connection>>) {
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
                drive(&*node, opened, &mut news).await;
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
async fn drive<S: Server>(node: &S, opened: Opened<S::Connection>, news: &mut watch::Receiver<()>) {
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
            is_alive = node.answers(&connection) => if !is_alive { return },
        }
    }
}
