//! The connection of one runtime to one server, which a task keeps open. Calls of all requests of the runtime share it.
//!
//! Not here: what is called.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::select;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connect::ConnectError;
use super::health::{Generation, Health};
use super::settings::NodeAddress;
use crate::base::time::instant_now;
use crate::engine::store::backend::{Failure, Unavailable};

/// The pause before the next attempt to connect while the breaker is closed.
const PAUSE: Duration = Duration::from_millis(50);

/// Attempts at once over connections that break or are refused. If a network resets the connection at one of five packets, an
/// attempt of four packets succeeds with 41 %, and one of three such attempts with 79 %.
const ATTEMPTS: usize = 3;

/// Connections in a row that break soon and count as a failed call. A network that resets some connections breaks fewer.
const BROKEN_MAX: usize = 3 * ATTEMPTS;

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

    /// A connection does not answer. If there are several servers, the next connection goes to another one.
    fn leave(&self, _: &Self::Connection) {}

    /// Whether a connection answers within a few times the timeout of calls.
    fn answers(&self, connection: &Self::Connection) -> impl Future<Output = bool> + Send;
}

/// Makes an attempt again at once that ended with an error of its connection, up to [`ATTEMPTS`] in all.
pub(super) async fn persist<T, E, F: Future<Output = Result<T, E>>>(
    mut attempt: impl FnMut() -> F,
    is_of_connection: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut result = attempt().await;
    for _ in 1..ATTEMPTS {
        match &result {
            Err(error) if is_of_connection(error) => result = attempt().await,
            _ => break,
        }
    }
    result
}

/// A connection and the future that drives it. The connection ends when the future does, or is dropped.
pub(in crate::fleet::stores) struct Opened<C> {
    pub(in crate::fleet::stores) connection: C,
    pub(in crate::fleet::stores) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The connection to one server; it is closed when this is dropped.
pub(in crate::fleet::stores) struct Link<S: Server> {
    pub(in crate::fleet::stores) node: Arc<S>,
    current: Arc<Current<S::Connection>>,
    /// The task ends on drop.
    _maintainer: JoinSet<()>,
}

/// The open connection, if there is one. The lock is held for one look.
struct Current<C> {
    connection: Mutex<Option<C>>,
    /// Whether the attempts to connect have failed, and the next one comes after a pause.
    is_pausing: AtomicBool,
    /// Notified when a connection opens, and when a pause begins.
    changed: Notify,
}

impl<S: Server> Link<S> {
    /// Begins to connect. To be called on the runtime that calls the server.
    pub(in crate::fleet::stores) fn new(node: Arc<S>) -> Self {
        let current = Arc::new(Current {
            connection: Mutex::new(None),
            is_pausing: AtomicBool::new(false),
            changed: Notify::new(),
        });
        let maintainer = JoinSet::from_iter([maintain(Arc::clone(&node), Arc::clone(&current))]);
        Self { node, current, _maintainer: maintainer }
    }

    /// The open connection.
    pub(in crate::fleet::stores) fn connection(&self) -> Option<S::Connection> {
        self.current.connection()
    }

    /// A connection to the server, and the generation of its keys, if it decides. A connection that opens is awaited until
    /// `deadline`.
    pub(in crate::fleet::stores) async fn ready(
        &self,
        deadline: Instant,
    ) -> Result<(S::Connection, Arc<Generation>), Unavailable> {
        if !self.node.is_closed() {
            return Err(Unavailable::Down);
        }
        let generation = self.node.generation().ok_or(Unavailable::Cold)?;
        if let Some(connection) = self.connection() {
            return Ok((connection, generation));
        }
        let opened = timeout_at(deadline, self.opened()).await.map_err(|_| {
            self.node.failed(Failure::Timeout, "no connection in time");
            Unavailable::Timeout
        })?;
        Ok((opened.ok_or(Unavailable::Down)?, generation))
    }

    /// Waits for an open connection; `None` if there is a pause before the next attempt.
    async fn opened(&self) -> Option<S::Connection> {
        loop {
            let changed = self.current.changed.notified();
            let connection = self.current.connection();
            if connection.is_some() || self.current.is_pausing.load(Ordering::Relaxed) {
                return connection;
            }
            changed.await;
        }
    }
}

impl<C: Clone> Current<C> {
    /// Waits until the next attempt to connect is due. Meanwhile no request waits for a connection.
    async fn pause(&self, until: Instant) {
        self.is_pausing.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
        sleep_until(until).await;
        self.is_pausing.store(false, Ordering::Relaxed);
    }

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
    // Connections in a row that broke soon.
    let mut broken = 0;
    loop {
        news.mark_unchanged();
        if !node.is_closed() {
            // The node has the sender, so there is always one.
            let _ = news.changed().await;
            continue;
        }
        match persist(|| node.open(), ConnectError::is_of_connection).await {
            Ok(opened) => {
                current.set(Some(opened.connection.clone()));
                current.changed.notify_waiters();
                let opened_at = instant_now();
                drive(&*node, opened, &mut news).await;
                current.set(None);
                // A server that accepts connections and ends them at once is asked no more often than one that refuses them.
                broken = if instant_now() < opened_at + PAUSE { broken + 1 } else { 0 };
                if broken > 0 && broken % ATTEMPTS == 0 {
                    if broken == BROKEN_MAX {
                        broken = 0;
                        node.unreachable(&Failure::Broken.into());
                    }
                    current.pause(opened_at + PAUSE).await;
                }
            }
            Err(error) => {
                node.unreachable(&error);
                current.pause(instant_now() + PAUSE).await;
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
            is_alive = node.answers(&connection) => if !is_alive { return node.leave(&connection) },
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::base::time::Clock;
    use crate::engine::store::backend::OnFailure;
    use crate::fleet::stores::driver::health::StoreContext;

    /// A server whose connections have no socket.
    pub(in crate::fleet::stores::driver) struct Socketless {
        pub(in crate::fleet::stores::driver) health: Health,
        /// Whether each connection ends as soon as it is open.
        pub(in crate::fleet::stores::driver) ends: bool,
    }

    impl Deref for Socketless {
        type Target = Health;

        fn deref(&self) -> &Health {
            &self.health
        }
    }

    impl Server for Socketless {
        type Connection = ();

        fn address(&self) -> Option<NodeAddress> {
            None
        }

        async fn open(&self) -> Result<Opened<()>, ConnectError> {
            let opened = Opened { connection: (), driver: Box::pin(pending()) };
            Ok(if self.ends { Opened { driver: Box::pin(ready(())), ..opened } } else { opened })
        }

        async fn answers(&self, (): &()) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_its_connections_is_down() {
        let context = StoreContext::of_test(OnFailure::Split, Duration::from_millis(10), Clock::start());
        let node = Arc::new(Socketless { health: Health::new(context, "node"), ends: true });
        node.warmed(Generation::of(1));
        let link = Link::new(Arc::clone(&node));
        timeout_at(instant_now() + 10 * PAUSE, node.trouble()).await.unwrap();
        assert!(!node.decides());
        assert!(matches!(link.ready(instant_now() + PAUSE).await, Err(Unavailable::Down)));
    }
}
